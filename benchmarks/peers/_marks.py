"""How a no-op job says when a drain began and ended, the same for every library."""

from __future__ import annotations

import os
import time

import redis

_client = redis.Redis.from_url(os.environ["BENCH_URL"])
FIRST = int(os.environ.get("BENCH_FIRST", "0"))
LAST = int(os.environ.get("BENCH_LAST", "0"))


def noop(number: int) -> None:
    """Do nothing, but for two jobs that note the time."""
    if number == FIRST:
        _client.set("bench:first", repr(time.time()))
    elif number == LAST:
        _client.set("bench:last", repr(time.time()))
