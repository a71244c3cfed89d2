"""celery: one process, a pool of ten threads, results ignored, acks early as by default."""

from __future__ import annotations

import os
import sys

from celery import Celery

from peers._marks import noop

app = Celery("bench", broker=os.environ["BENCH_URL"], task_ignore_result=True)
WORKER = [
    sys.executable, "-m", "celery", "-A", "peers.with_celery", "worker", "-P", "threads",
    "-c", "10", "-l", "warning",
]  # fmt: skip


@app.task
def job(number: int) -> None:
    noop(number)


def enqueue_one(number: int) -> None:
    job.delay(number)


def enqueue_all(numbers: range) -> None:
    for number in numbers:
        job.delay(number)
