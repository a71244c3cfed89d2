"""huey: one process, ten threads; without results, as it would store each."""

from __future__ import annotations

import os
import sys

from huey import RedisHuey

from peers._marks import noop

huey = RedisHuey("bench", url=os.environ["BENCH_URL"], results=False)
WORKER = [
    sys.executable, "-m", "huey.bin.huey_consumer", "peers.with_huey.huey", "-w", "10", "-q",
]  # fmt: skip


@huey.task()
def job(number: int) -> None:
    noop(number)


def enqueue_one(number: int) -> None:
    job(number)


def enqueue_all(numbers: range) -> None:
    for number in numbers:
        job(number)
