"""Jobs of an app that child processes take their time to import."""

from __future__ import annotations

import os
import threading

import mq

if os.environ.get("MQ_CHILD"):
    threading.Event().wait(1.2)

app = mq.App(prefix="slow")


@app.job("where", timeout="600ms", interrupt_grace="200ms")
def where(payload: str) -> int:
    """Say which process it runs in."""
    return os.getpid()
