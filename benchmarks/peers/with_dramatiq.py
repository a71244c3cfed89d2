"""dramatiq: one process, ten threads, results and retries as they come."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from peers._marks import noop

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_URL"]))
WORKER = [
    sys.executable, "-m", "dramatiq", "peers.with_dramatiq", "-p", "1", "-t", "10",
]  # fmt: skip


@dramatiq.actor
def job(number: int) -> None:
    noop(number)


def enqueue_one(number: int) -> None:
    job.send(number)


def enqueue_all(numbers: range) -> None:
    for number in numbers:
        job.send(number)
