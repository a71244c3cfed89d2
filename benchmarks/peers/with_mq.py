"""mq: one process, ten threads."""

from __future__ import annotations

import os
import sys

import mq
from peers._marks import noop

app = mq.App(os.environ["BENCH_URL"])
WORKER = [
    sys.executable, "-m", "mq", "worker", "peers.with_mq:app", "-c", "10",
    "--log-level", "warning",
]  # fmt: skip


@app.job("noop")
def job(number: int) -> None:
    noop(number)


def enqueue_one(number: int) -> None:
    job.enqueue(number)


def enqueue_all(numbers: range) -> None:
    job.enqueue_many(numbers)
