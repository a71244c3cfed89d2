"""rq: one process without forking, one job at a time: it has no threads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import redis
from rq import Queue

from peers._marks import noop

queue = Queue(connection=redis.Redis.from_url(os.environ["BENCH_URL"]))
WORKER = [
    str(Path(sys.executable).with_name("rq")), "worker", "-u", os.environ["BENCH_URL"],
    "-w", "rq.worker.SimpleWorker", "-q",
]  # fmt: skip


def enqueue_one(number: int) -> None:
    queue.enqueue(noop, number)


def enqueue_all(numbers: range) -> None:
    queue.enqueue_many([Queue.prepare_data(noop, (number,)) for number in numbers])
