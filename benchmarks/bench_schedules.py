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
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import redis

import mq
from mq import scripts
from mq.errors import MQError
from mq.records import Request, ScheduleRecord
from mq.store import Store

PREFIX = "bench-schedules"
NAME, QUEUE = "tick", "counted"
LOCK_S, AWAY_S, SETTLE_S = 2, 5, 3
ALONE_S = 3
FRESH = multiprocessing.get_context("spawn")


class TimeUpError(Exception):
    """The limit given for the whole run is over."""


class Limit:
    """When the run has to end."""

    def __init__(self, limit_s: float) -> None:
        self._until = time.monotonic() + limit_s

    def wait(self, predicate: Callable[[], bool], pause_s: float = 0.002) -> None:
        """Wait until the predicate is true; raise when the limit is over."""
        while not predicate():
            if time.monotonic() > self._until:
                raise TimeUpError
            time.sleep(pause_s)


# Tables


def heading(title: str, *columns: str) -> None:
    """Begin a table; a column is a text on the left, a number on the right when it ends in `:`."""
    print(f"\n{title}\n\n| {' | '.join(column.rstrip(':') for column in columns)} |")
    print(f"| {' | '.join('--:' if column.endswith(':') else '---' for column in columns)} |")


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def spread(took: Sequence[float]) -> list[str]:
    """Return median, 99th percentile and maximum of milliseconds."""
    if len(took) < 2:
        return ["-"] * 3
    p99 = statistics.quantiles(took, n=100, method="inclusive")[98]
    return [f"{ms:.2f}" for ms in (statistics.median(took), p99, max(took))]


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


def produce(url: str, ready: Any, stop: Any, answer: Any) -> None:
    """Enqueue one job after another until told to stop; answers when each began and its ms."""
    store = Store(url, prefix=PREFIX)
    request = Request(name="other", queue="others", payload=b"waiting".ljust(100))
    store.enqueue(request)
    ready.set()
    took: list[tuple[float, float]] = []
    while not stop.is_set():
        began = time.perf_counter()
        store.enqueue(request)
        took.append((began, (time.perf_counter() - began) * 1000))
        time.sleep(0.001)
    answer.send(took)


@contextlib.contextmanager
def producer(url: str) -> Iterator[list[tuple[float, float]]]:
    """Run a producer in a process of its own; the list holds its latencies afterwards."""
    ready, stop = FRESH.Event(), FRESH.Event()
    receive, answer = FRESH.Pipe(duplex=False)
    process = FRESH.Process(target=produce, args=(url, ready, stop, answer), daemon=True)
    process.start()
    took: list[tuple[float, float]] = []
    try:
        if not ready.wait(30):
            raise RuntimeError("the producer did not start")
        yield took
    finally:
        stop.set()
        if receive.poll(30):
            took.extend(receive.recv())
        process.join(10)
        process.kill()


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


# The server's view


class Watch:
    """How long scripts of this prefix took, as the server tells it by its slow log."""

    SETTINGS = ("slowlog-log-slower-than", "slowlog-max-len")
    LENGTH, ABOVE_US = 100_000, 300

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._names = {script.sha.encode(): name for name, script in scripts.load_scripts().items()}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Note slow runs from here on; put the server's own settings back at the end."""
        kept = {name: self._client.config_get(name)[name] for name in self.SETTINGS}
        self._client.slowlog_reset()
        self._client.config_set("slowlog-max-len", self.LENGTH)
        self._client.config_set("slowlog-log-slower-than", self.ABOVE_US)
        try:
            yield
        finally:
            for name, value in kept.items():
                self._client.config_set(name, value)

    def read(self) -> dict[str, list[float]]:
        """Return the milliseconds of each script that was noted."""
        times: dict[str, list[float]] = {}
        for entry in self._client.slowlog_get(self.LENGTH):
            words = bytes(entry["command"]).split(b" ", 4)
            if words[0] == b"EVALSHA" and words[3].startswith(b"{%s" % PREFIX.encode()):
                times.setdefault(self._names[words[1]], []).append(entry["duration"] / 1000)
        return times

    def calls(self) -> int:
        """Return how many scripts the server has run."""
        stats = self._client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})
        return int(stats["calls"])


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
    """When what happened, by this process's monotonic clock, and how many scripts were run.

    Args:
        due_s: the instant of all occurrences.
        half_s: half of them were made.
        done_s: all of them were made.
        left: how many were not made when one worker was stopped.
        calls: scripts run between the instant and the end of it.
    """

    due_s: float
    half_s: float
    done_s: float
    left: int
    calls: int


def watch_pass(
    store: Store, client: redis.Redis, watch: Watch, pids: list[int], due: tuple[int, int],
    limit: Limit,
) -> Pass:  # fmt: skip
    """Stop one worker when a quarter is made; continue it when it was away for long enough."""
    at_ms, number = due

    def left() -> int:
        return int(client.zcount(store.keys.schedules(), "-inf", at_ms))

    while (wait_ms := at_ms - store.now_ms()) > 0:
        time.sleep(min(wait_ms, 100) / 1000)
    due_s, calls = time.perf_counter(), watch.calls()
    limit.wait(lambda: left() <= number * 3 // 4)
    os.kill(pids[0], signal.SIGSTOP)
    stopped_s, stopped_left = time.perf_counter(), left()
    limit.wait(lambda: left() <= number // 2)
    half_s = time.perf_counter()
    limit.wait(lambda: left() == 0)
    done_s, calls = time.perf_counter(), watch.calls() - calls
    limit.wait(lambda: time.perf_counter() > stopped_s + AWAY_S, 0.1)
    os.kill(pids[0], signal.SIGCONT)
    time.sleep(SETTLE_S)
    return Pass(due_s, half_s, done_s, stopped_left, calls)


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
    done: Pass, number: int, took: list[tuple[float, float]], alone_s: tuple[float, float],
    scripts_ms: dict[str, list[float]],
) -> None:  # fmt: skip
    spent_s = done.done_s - done.due_s
    during = [began for began, _ in took if done.due_s <= began <= done.done_s]
    heading("Making the occurrences", "figure", "seen:")
    row("until half was made, s", f"{done.half_s - done.due_s:.2f}")
    row("until all were made, s", f"{spent_s:.2f}")
    row("occurrences a second", f"{number / spent_s:,.0f}")
    row("left when one worker was stopped", f"{done.left:,}")
    row("scripts an occurrence, the producer's left out",
        f"{max(0, done.calls - len(during)) / number:.1f}")  # fmt: skip
    heading("A producer's single enqueues (ms)", "while", "enqueues:", "p50:", "p99:", "max:")
    for label, (begin, end) in (
        ("nothing else happens", alone_s),
        ("occurrences are made", (done.due_s, done.done_s)),
    ):
        inside = [ms for began, ms in took if begin <= began <= end]
        row(label, f"{len(inside):,}", *spread(inside))
    heading(
        f"Scripts over {Watch.ABOVE_US / 1000} ms (ms)",
        "script", "noted:", "median:", "p99:", "worst:", "over 5 ms:",
    )  # fmt: skip
    for name, spent in sorted(scripts_ms.items()):
        worst = f"{max(spent):.2f}"
        row(name, f"{len(spent):,}", *spread(spent)[:2], worst, sum(ms > 5 for ms in spent))


def run(url: str, number: int, processes: int, limit: Limit) -> None:
    client = redis.Redis.from_url(url)
    store, watch = Store(url, prefix=PREFIX), Watch(client)
    with contextlib.ExitStack() as ends:
        ends.callback(store.destroy)
        store.destroy()
        pids = ends.enter_context(workers(url, processes))
        # Time enough to register them all, and for every worker to see when they fall due.
        at_ms = store.now_ms() + 1000 * (ALONE_S + 4) + number * 2
        keys = register(url, store, number, at_ms)
        if store.now_ms() > at_ms - 1000 * (ALONE_S + 2):
            sys.exit("bench_schedules: registering took too long; name fewer --schedules")
        ends.enter_context(watch.running())
        with producer(url) as took:
            began_s = time.perf_counter()
            time.sleep(ALONE_S)
            alone_s = (began_s, time.perf_counter())
            done = watch_pass(store, client, watch, pids, (at_ms, number), limit)
        found = watch.read()
        check(store, keys, at_ms)
        report(done, number, took, alone_s, found)


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
