"""Jobs that are cancelled while they run in worker processes; what they do is seen in Redis."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import redis

import mq

NAP = threading.Event()
"""Never set: a wait for it is a short nap of a handler, in a call that blocks."""

app = mq.App()
# One connection of the module's own, by which handlers tell the test what they do.
told = redis.Redis(unix_socket_path=os.environ.get("MQ_URL", "").removeprefix("unix://"))
held = threading.Lock()

PATIENT = {"attempts": 5, "interrupt_grace": "60s"}
IMPATIENT = {"attempts": 5, "interrupt_grace": "300ms"}


@contextmanager
def noted(word: str) -> Iterator[None]:
    """Tell when the handler's `with` block is left."""
    try:
        yield
    finally:
        told.rpush("told", f"{word}: with")


def polls(ctx: mq.Context) -> None:
    """Look at the flag."""
    while not ctx.cancelled:
        NAP.wait(0.005)
    ctx.check()


def stops(ctx: mq.Context) -> None:
    """Look at the flag, and end as if all was done."""
    while not ctx.cancelled:
        NAP.wait(0.005)


def checks(ctx: mq.Context) -> None:
    """Ask whether to go on."""
    while True:
        ctx.check()
        NAP.wait(0.005)


def sleeps(ctx: mq.Context) -> None:
    """Sleep as the context offers it."""
    ctx.sleep(60)
    ctx.check()


def naps(ctx: mq.Context) -> None:
    """Sleep in short steps, and look at nothing."""
    while True:
        NAP.wait(0.005)


def spins(ctx: mq.Context) -> None:
    """Compute, and look at nothing."""
    while True:
        sum(range(50))


def blocks_in_c(ctx: mq.Context) -> None:
    """Wait for a lock that is held."""
    held.acquire()
    held.acquire()


WAYS = {one.__name__: one for one in (polls, stops, checks, sleeps, naps, spins, blocks_in_c)}


def tell_and_go_on(word: str, ctx: mq.Context) -> str:
    """Say that it began, go on as the last part of the word says, and say what was cleaned up."""
    try:
        with noted(word):
            told.rpush("began", word)
            WAYS[word.rpartition("/")[2]](ctx)
    finally:
        told.rpush("told", f"{word}: finally")
    return "as if nothing had happened"


@app.job("goes-on", **PATIENT)
def goes_on(word: str, ctx: mq.Context) -> str:
    """End when an exception is raised in it."""
    return tell_and_go_on(word, ctx)


@app.job("looks", interrupt=False, **PATIENT)
def looks(word: str, ctx: mq.Context) -> str:
    """End when it sees the flag."""
    return tell_and_go_on(word, ctx)


@app.job("blocks", **IMPATIENT)
def blocks(word: str, ctx: mq.Context) -> str:
    """Block where no exception can surface, until `frees` has run."""
    return tell_and_go_on(word, ctx)


@app.job("frees")
def frees(payload: None) -> None:
    """Let the one that blocks go on."""
    held.release()


@app.job("ignores", **IMPATIENT)
def ignores(word: str) -> str:
    """Swallow whatever is raised in it, and return when the test pushes to `go:<word>`."""
    told.rpush("began", word)
    while True:
        try:
            while not told.exists(f"go:{word}"):
                NAP.wait(0.005)
            return "too late"
        except BaseException:  # noqa: BLE001 what it is about
            told.rpush("told", f"{word}: swallowed")


@app.job("noop")
def noop(payload: None) -> None:
    """Nothing."""
