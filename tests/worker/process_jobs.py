"""Jobs that run in worker processes of their own; what they do is seen in Redis."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import threading

import redis

import mq

sys.stdout.write("importing\n")
# Some jobs crash the process on purpose, and nobody wants its memory on disk.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

app = mq.App(**json.loads(os.environ.get("STORE_SETTINGS", "{}")))
# One connection of the module's own, by which handlers tell the test that they run.
told = redis.Redis(unix_socket_path=os.environ["MQ_URL"].removeprefix("unix://"))
never = threading.Event()


@app.job("note", attempts=3)
def note(word: str) -> str:
    """Say that it ran."""
    told.rpush("ran", word)
    return word


@app.job("noop")
def noop(payload: None) -> None:
    """Nothing."""


@app.job("stay")
def stay(word: str) -> str:
    """Say that it began, and go on until the test pushes to `go:<word>`; at most 30 s."""
    told.rpush("began", word)
    told.blpop([f"go:{word}"], 30)
    return word


@app.job("hang")
def hang(word: str) -> str:
    """Say that it began, and take no notice of anything for a minute."""
    told.rpush("began", word)
    never.wait(60)
    return word


@app.job("polite")
def polite(word: str, ctx: mq.Context) -> str:
    """Say that it began, and check every few milliseconds whether to go on."""
    told.rpush("began", word)
    while ctx.sleep(0.005):
        pass
    ctx.check()
    return word


@app.job("die", attempts=2)
def die(how: str) -> str:
    """End the process, or the thread, in one of several ways; but only the first time."""
    if told.rpush("died", how) > 1:
        return how
    match how:
        case "exit":
            sys.exit(3)
        case "os-exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "overflow":
            faulthandler._stack_overflow()
    return "alive"


@app.job("poison")
def poison(word: str) -> None:
    """End the process each time."""
    told.rpush("died", word)
    os.kill(os.getpid(), signal.SIGKILL)
