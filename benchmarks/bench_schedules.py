"""Schedules that fall due together, with one of several workers stopped in the middle of its pass.

    BENCH_URL=redis://127.0.0.1:6379/15 python benchmarks/bench_schedules.py --schedules 10000

It works under a prefix of its own, `bench-schedules`, which it empties before and after, on a
server that should do nothing else meanwhile. All schedules have their next occurrence at one
instant; worker processes with the options of real ones wait for it. When a quarter of the
occurrences are made, one worker is stopped with SIGSTOP; when it has been away for longer than a
lock lasts, it is continued. Nobody serves the queue of the jobs, so they can be counted.

Printed: whether each schedule has exactly one job of that instant, and none of another; the time
from the instant until all were made, and until the whole is done by half; calls of scripts for each
occurrence, which is what workers that read the same page cost; the slowest runs of each script by
the slow log; and the latency of a producer before and meanwhile. The slow log's settings are
changed meanwhile and put back.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import redis
from measuring import Limit, TimeUpError, Watch, heading, producer, row, spread

import mq
from mq.errors import MQError
from mq.records import Request, ScheduleRecord
from mq.store import Store

PREFIX = "bench-schedules"
NAME, QUEUE = "tick", "counted"
LOCK_S, AWAY_S, SETTLE_S = 2, 5, 3
ALONE_S = 3
ABOVE_US = 300
PRODUCED = Request(name="other", queue="others", payload=b"waiting".ljust(100))
FRESH = multiprocessing.get_context("spawn")


def wait(limit: Limit, predicate: Callable[[], bool], pause_s: float = 0.002) -> None:
    """Wait until the predicate is true; raise when the limit is over."""
    while not predicate():
        limit.check()
        time.sleep(pause_s)


# Processes


def work(url: str, ready: Any) -> None:
    """Run a worker with a definition to schedule, until it is told to stop."""
    app = mq.App(url, prefix=PREFIX)

    @app.job(NAME, queue="served")
    def tick(payload: None) -> None:
        """Nothing: its jobs are in a queue that no worker serves."""

    worker = mq.Worker(
        app, queues=["served"], concurrency=1, lock_duration=LOCK_S, schedule_interval="1s"
    )
    ready.set()
    worker.run()


@contextlib.contextmanager
def workers(url: str, number: int) -> Iterator[list[int]]:
    """Start worker processes; yields their process ids, and ends them."""
    ready = [FRESH.Event() for _ in range(number)]
    started = [FRESH.Process(target=work, args=(url, one), daemon=True) for one in ready]
    try:
        for process in started:
            process.start()
        if not all(one.wait(60) for one in ready):
            raise RuntimeError("a worker did not start")
        yield [process.pid or 0 for process in started]
    finally:
        for process in started:
            if process.pid and process.is_alive():
                os.kill(process.pid, signal.SIGCONT)
                process.terminate()
        for process in started:
            process.join(10)
            process.kill()


# All of it


def register(url: str, store: Store, number: int, at_ms: int) -> list[str]:
    """Register so many schedules whose next occurrence is at that instant; returns their keys."""
    app = mq.App(url, prefix=PREFIX)
    app.define(NAME, payload=type(None), result=None).schedule("first", every="1h", queue=QUEUE)
    first = store.get_schedule(NAME, "first")
    assert first is not None
    store.remove_schedule(NAME, "first")
    app.close()
    keys = [f"k{at:06}" for at in range(number)]

    def one(key: str) -> None:
        record: ScheduleRecord = attrs.evolve(first, key=key, next_run_at=at_ms)
        store.upsert_schedule(record)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, keys))
    return keys


@attrs.frozen
class Pass:
    """How the occurrences were made.

    Args:
        due_s: their instant, by this process's `perf_counter`.
        half_s: seconds from then until half of them were made.
        all_s: until all of them were.
        left: how many were not made when one worker was stopped.
        stopped_s: when that was.
        calls: scripts run meanwhile, a producer's among them.
    """

    due_s: float
    half_s: float
    all_s: float
    left: int
    stopped_s: float
    calls: int


def scripts_run(client: redis.Redis) -> int:
    """Return how many scripts the server has run."""
    return int(client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


def watch_pass(
    store: Store, client: redis.Redis, pid: int, due: tuple[int, int], limit: Limit
) -> Pass:
    """Stop one worker when a quarter is made, and go on until all are."""
    at_ms, number = due

    def left() -> int:
        return int(client.zcount(store.keys.schedules(), "-inf", at_ms))

    while (wait_ms := at_ms - store.now_ms()) > 0:
        time.sleep(min(wait_ms, 100) / 1000)
    due_s, calls = time.perf_counter(), scripts_run(client)
    wait(limit, lambda: left() <= number * 3 // 4)
    os.kill(pid, signal.SIGSTOP)
    stopped_s, stopped_left = time.perf_counter(), left()
    wait(limit, lambda: left() <= number // 2)
    half_s = time.perf_counter() - due_s
    wait(limit, lambda: left() == 0)
    all_s = time.perf_counter() - due_s
    return Pass(due_s, half_s, all_s, stopped_left, stopped_s, scripts_run(client) - calls)


def check(store: Store, keys: list[str], at_ms: int) -> None:
    """Fail unless each schedule has one job of the instant, and there is no other."""
    expected = [f"sched/{NAME}/{key}/{at_ms}" for key in keys]
    states = [
        state
        for start in range(0, len(expected), 500)
        for state in store.get_states(expected[start : start + 500])
    ]
    missing = sum(state is None for state in states)
    counted = sum(store.counts(QUEUE).values())
    print(f"\n{counted:,} jobs of {len(keys):,} occurrences, {missing:,} missing")
    if missing or counted != len(keys):
        sys.exit("bench_schedules: not exactly one job of each occurrence")


def report(
    done: Pass, number: int, alone: list[float], beside: list[float],
    scripts_ms: dict[str, list[float]],
) -> None:  # fmt: skip
    heading("Making the occurrences", "figure", "seen:")
    row("until half was made, s", f"{done.half_s:.2f}")
    row("until all were made, s", f"{done.all_s:.2f}")
    row("occurrences a second", f"{number / done.all_s:,.0f}")
    row("left when one worker was stopped", f"{done.left:,}")
    row("scripts an occurrence, the producer's left out",
        f"{max(0, done.calls - len(beside)) / number:.1f}")  # fmt: skip
    heading("A producer's single enqueues (ms)", "while", "enqueues:", "p50:", "p99:", "max:")
    row("nothing else happens", f"{len(alone):,}", *spread(alone))
    row("occurrences are made", f"{len(beside):,}", *spread(beside))
    heading(
        f"Scripts over {ABOVE_US / 1000} ms (ms)",
        "script", "noted:", "median:", "p99:", "worst:", "over 5 ms:",
    )  # fmt: skip
    for name, spent in sorted(scripts_ms.items()):
        row(name, f"{len(spent):,}", *spread(spent), sum(ms > 5 for ms in spent))


def run(url: str, number: int, processes: int, limit: Limit) -> None:
    client = redis.Redis.from_url(url)
    store, watch = Store(url, prefix=PREFIX), Watch(client, PREFIX)
    with contextlib.ExitStack() as ends:
        ends.callback(store.destroy)
        store.destroy()
        pids = ends.enter_context(workers(url, processes))
        # Time enough to register them all, and for every worker to see when they fall due.
        at_ms = store.now_ms() + 1000 * (ALONE_S + 5) + number * 2
        keys = register(url, store, number, at_ms)
        if store.now_ms() > at_ms - 1000 * (ALONE_S + 2):
            sys.exit("bench_schedules: registering took too long; name fewer --schedules")
        ends.enter_context(watch.settings_kept())
        watch.above(ABOVE_US)
        with producer(url, PRODUCED, PREFIX) as took:
            began_s = time.perf_counter()
            time.sleep(ALONE_S)
            alone_s = (began_s, time.perf_counter())
            done = watch_pass(store, client, pids[0], (at_ms, number), limit)
        found = watch.read()
        wait(limit, lambda: time.perf_counter() > done.stopped_s + AWAY_S, 0.1)
        os.kill(pids[0], signal.SIGCONT)
        time.sleep(SETTLE_S)
        check(store, keys, at_ms)
        beside = took.between(done.due_s, done.due_s + done.all_s)
        report(done, number, took.between(*alone_s), beside, found)


def main() -> None:
    """Run it on the server that BENCH_URL names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=5, help="processes; at least 2")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for all of it")
    options = parser.parse_args()
    url = os.environ.get("BENCH_URL")
    if not url or url.startswith("memory:"):
        sys.exit("bench_schedules: name a scratch server: BENCH_URL=redis://127.0.0.1:6379/15")
    if options.workers < 2 or options.schedules < 8:
        sys.exit("bench_schedules: needs 2 workers, of which one is stopped, and 8 schedules")
    began = time.monotonic()
    try:
        run(url, options.schedules, options.workers, Limit(options.limit))
    except TimeUpError:
        sys.exit(f"\nnot finished within {options.limit:,.0f} s; what was made is removed")
    except (redis.RedisError, MQError) as error:
        sys.exit(f"bench_schedules: {error}")
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
