"""A worker process whose host has a wrong clock, and which may stop in the middle of a pass.

SKEW_S is how wrong the clock is, LOCK how long a lock lasts. With STOP_IN_PASS the process stops
itself, as SIGSTOP does, when it has read many schedules and ticked a part of them, as soon as the
test pushes to `stop-now`; the others it ticks when it was continued and the test has pushed to
`go-on`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence

import process_jobs

import mq
from mq.store import Store
from mq.store.scheduling import TICK_BATCH, Tick

TICKED_BEFORE = 4
"""Of the first full call of ticks, after which the process stops."""

_time, _time_ns = time.time, time.time_ns
_skew_s = [int(os.environ.get("SKEW_S", "0"))]
time.time = lambda: _time() + _skew_s[0]
time.time_ns = lambda: _time_ns() + _skew_s[0] * 10**9

app, told = process_jobs.app, process_jobs.told


def await_word(key: str) -> None:
    """Go on when the test pushes there, and after a minute in any case."""
    pause, until = threading.Event(), time.monotonic() + 60
    while told.lpop(key) is None and time.monotonic() < until:
        pause.wait(0.02)


@app.job("step")
def step(seconds: int) -> None:
    """Set the clock of this host on or back in the middle of the run."""
    _skew_s[0] += seconds
    told.rpush("began", f"step {seconds}")
    await_word(f"go:step {seconds}")


@app.job("late", attempts=2, backoff=mq.fixed("0.4s"))
def late(word: str) -> None:
    """Fail the first time."""
    if told.rpush("tried", word) == 1:
        raise RuntimeError(word)


_tick_all, _passes = Store.tick_all, []


def stopped_in_pass(store: Store, ticks: Sequence[Tick]) -> list[bool]:
    """Tick some, stop, and tick the others when the process goes on."""
    if _passes or len(ticks) < TICK_BATCH:
        return _tick_all(store, ticks)
    _passes.append(len(ticks))
    made = _tick_all(store, ticks[:TICKED_BEFORE])
    told.rpush("in-pass", sum(made))
    await_word("stop-now")
    os.kill(os.getpid(), signal.SIGSTOP)
    # This thread may go on for a moment before the whole process stands.
    await_word("go-on")
    behind = _tick_all(store, ticks[TICKED_BEFORE:])
    told.rpush("went-on", sum(behind))
    return made + behind


if os.environ.get("STOP_IN_PASS"):
    Store.tick_all = stopped_in_pass  # type: ignore[method-assign]

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    sys.exit(
        mq.Worker(
            app, concurrency=3, lock_duration=os.environ.get("LOCK", "2s"),
            stalled_interval="0.3s", schedule_interval="0.2s", poll_interval="1s",
            queues=["default"],
        ).run()
    )  # fmt: skip
