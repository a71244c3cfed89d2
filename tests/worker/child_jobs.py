"""Jobs of the process executor: an app that child processes import."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading

import attrs

import mq

app = mq.App()


@attrs.frozen
class Refused(Exception):
    """A declared error."""

    why: str


@app.job("where", executor="process")
def where(payload: str) -> int:
    """Say which process it runs in."""
    return os.getpid()


@app.job("refuses", executor="process", error=Refused)
def refuses(payload: str) -> None:
    """Raise the declared error."""
    raise Refused(payload)


@app.job("reports", executor="process")
def reports(payload: str, ctx: mq.Context) -> None:
    """Report progress."""
    ctx.progress({"half": True})


@app.job("forks", executor="process")
def forks(payload: int) -> int:
    """Return twice when told to, in two processes."""
    if payload == 9:
        os.fork()
    return payload


@app.job("dies", executor="process")
def dies(payload: str) -> None:
    """End the process in one of several ways."""
    if payload == "exit":
        os._exit(3)
    elif payload == "segfault":
        ctypes.string_at(0)
    else:
        os.kill(os.getpid(), signal.SIGKILL)


@app.job("stuck", executor="process", timeout="300ms", interrupt_grace="300ms")
def stuck(payload: str, ctx: mq.Context) -> None:
    """Start a process, then block where no exception can surface."""
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ctx.progress(started.pid)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Event().wait(60)


@app.job("spins", executor="process", timeout="300ms", interrupt_grace="10s")
def spins(payload: str, ctx: mq.Context) -> None:
    """Run until interrupted, then clean up."""
    try:
        while True:
            sum(range(100))
    finally:
        ctx.progress("cleaned up")


@app.job("waits", executor="process")
def waits(payload: str, ctx: mq.Context) -> None:
    """Say where it runs, and wait."""
    ctx.progress(os.getpid())
    threading.Event().wait(60)
