"""Flows: what a child costs beside a plain job, and what it takes to call off many.

    BENCH_URL=redis://127.0.0.1:6379/15 python benchmarks/bench_flows.py
    BENCH_URL=redis://127.0.0.1:6379/15 python benchmarks/bench_flows.py --crashes

It works under a prefix of its own, `bench-flows`, which it empties before and after, on a server
that should do nothing else meanwhile.

Printed: the time and the server's processor time of a child, from the enqueue of its parent to the
parent's result, beside a plain job through `enqueue_many` and the same worker; then, for a parent
with all of its children open, a cancel and a failure that ends it: the call itself, when the rows
read as cancelled, how long the delivery of the cancels takes one sweeper, and a producer's latency
meanwhile. With each the longest scripts, by the slow log, whose settings are put back.

With `--crashes` instead: many flows of one child that does nothing, run by worker processes of
which one after the other is killed, until all have settled. Each ledger is read afterwards.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import redis
from measuring import Limit, TimeUpError, Watch, heading, ms_since, producer, row, share

import mq
from mq import manifests
from mq.errors import MQError
from mq.records import Child, Request
from mq.states import JobState
from mq.store import Store
from mq.store.families import ChildReport
from mq.worker.flow_starter import FlowStarter
from mq.worker.flow_sweeper import FlowSweeper
from mq.worker.options import read_options
from mq.worker.outage import Streak

PREFIX = "bench-flows"
TOKEN = "bench"
DAY_MS = 86_400_000
ALONE_S = 5.0
PRODUCED = Request(name="produced", queue="produced", payload=b"p" * 100)
CRASH_OPTIONS: dict[str, Any] = {
    "concurrency": 10,
    "lock_duration": "2s",
    "stalled_interval": "1s",
    "flow_interval": "1s",
    "poll_interval": "1s",
    "max_stalled_count": 1000,
}
LIFE_S = (2.0, 6.0)
"""How long a worker process lives before it is killed, from its start."""

app = mq.App(os.environ.get("BENCH_URL", "memory://"), prefix=PREFIX)
wide = app.define("wide", payload=int, result=int)
single = app.define("single", payload=int, result=int)
SEEN: dict[str, float] = {}
"""When the phases of the wide flow began, by the process' clock."""


@app.job("plain")
def plain(number: int) -> int:
    return number


@app.job("child")
def child(number: int) -> int:
    return number


fan = app.flow("wide", parent=wide, children=[child])
one = app.flow("single", parent=single, children=[child])


def children_of(number: int) -> list[Child]:
    return [child.child(f"{n:06}", n) for n in range(number)]


@fan.fan_out
def _(number: int) -> list[Child]:
    SEEN["fan_out"] = time.perf_counter()
    return children_of(number)


@fan.collect
def _(number: int, results: mq.FlowResults) -> int:
    SEEN["collect"] = time.perf_counter()
    return sum(one.value for one in results.iter())


@one.fan_out
def _(number: int) -> list[Child]:
    return [child.child("only", number)]


@one.collect
def _(number: int, results: mq.FlowResults) -> int:
    return results.counts.completed


def slowest(times: dict[str, list[float]]) -> str:
    """Return each script's longest run, and the median of those that were noted, as a cell."""
    worst = sorted(((max(spent), name) for name, spent in times.items()), reverse=True)
    told = [f"{name} {ms:.1f} ({share(times[name], 0.5):.1f})" for ms, name in worst]
    return ", ".join(told) or "none noted"


# A child beside a plain job


class Meter:
    """The time, and the processor time of server and client, that something took."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def of(self, work: Callable[[], None], jobs: int) -> list[float]:
        """Return seconds in all, then microseconds a job: all, server's and client's processor."""
        cpu_ms, own_s, began = self._watch.cpu_ms(), time.process_time(), time.perf_counter()
        work()
        spent_s = time.perf_counter() - began
        own_s, cpu_ms = time.process_time() - own_s, self._watch.cpu_ms() - cpu_ms
        return [spent_s, spent_s / jobs * 1e6, cpu_ms / jobs * 1e3, own_s / jobs * 1e6]


def run_plain(store: Store, jobs: int, limit: Limit) -> None:
    before = store.counts(name="plain")[JobState.COMPLETED]
    plain.enqueue_many(range(jobs))
    while store.counts(name="plain")[JobState.COMPLETED] - before < jobs:
        limit.check()
        time.sleep(0.02)


def run_wide(jobs: int, limit_s: float) -> None:
    began = time.perf_counter()
    assert fan.execute(jobs, wait=limit_s) == sum(range(jobs))
    SEEN["began"], SEEN["ended"] = began, time.perf_counter()


def compare(
    store: Store, watch: Watch, jobs: int, rounds: int, limit: Limit, limit_s: float
) -> None:
    figures: dict[str, list[list[float]]] = {"plain jobs": [], "children": []}
    scripts: dict[str, dict[str, list[float]]] = {}
    phases: list[list[float]] = []
    meter = Meter(watch)
    with mq.Worker(app, concurrency=10):
        run_plain(store, 200, limit)
        run_wide(200, limit_s)
        for _ in range(rounds):
            for what, rows in figures.items():
                limit.check()
                watch.above(1000)
                if what == "children":
                    took = meter.of(lambda: run_wide(jobs, limit_s), jobs)
                    marks = [SEEN[name] for name in ("began", "fan_out", "collect", "ended")]
                    phases.append([b - a for a, b in itertools.pairwise(marks)])
                else:
                    took = meter.of(lambda: run_plain(store, jobs, limit), jobs)
                rows.append(took)
                for name, times in watch.read().items():
                    scripts.setdefault(what, {}).setdefault(name, []).extend(times)
    heading(
        f"{jobs:,} children of one parent beside as many plain jobs (medians of {rounds} rounds)",
        "what", "s:", "us each:", "server CPU, us each:", "worker and producer CPU, us each:",
        "scripts over 1 ms: longest (median), ms",
    )  # fmt: skip
    for what, rows in figures.items():
        medians = [share([one[at] for one in rows], 0.5) for at in range(4)]
        row(
            what, f"{medians[0]:.2f}", *(f"{value:,.0f}" for value in medians[1:]),
            slowest(scripts.get(what, {})),
        )  # fmt: skip
    both = [share([one[1] for one in rows], 0.5) for rows in figures.values()]
    cpu = [share([one[2] for one in rows], 0.5) for rows in figures.values()]
    print(f"\nA child takes {both[1] / both[0]:.2f} times as long, {cpu[1] / cpu[0]:.2f} times the")
    print("server's processor time.")
    until, between, after = ([one[at] for one in phases] for at in range(3))
    print(
        f"Until fan_out is called {share(until, 0.5):.2f} s, from there until collect is"
        f" {share(between, 0.5):.2f} s, collect and its result {share(after, 0.5):.2f} s."
    )


# Calling off


def duty(kind: Any, store: Store) -> Any:
    """Return a duty of a worker, not started."""
    return kind(app, store, read_options(), Streak())


def park(store: Store, flow: mq.Flow[int, int], children: int) -> str:
    """Fan out a parent, and start all its children; nobody runs them."""
    job_id = flow.enqueue(children)
    (claimed,) = store.claim(["default"], [flow.parent.name], TOKEN, DAY_MS).jobs
    rows = manifests.manifest_of(flow, claimed, children_of(children))
    store.write_manifest(job_id, TOKEN, rows, flow.on_child_failure)
    assert store.ack_fanned_out(job_id, TOKEN) == "fanned_out"
    starter = duty(FlowStarter, store)
    starter.start_children(job_id)
    starter.look()
    return str(job_id)


def cancel(store: Store, job_id: str) -> None:
    assert store.cancel(job_id) == "cancelled"


def fail_fast(store: Store, job_id: str) -> None:
    assert store.record_child_results([ChildReport(job_id, "000000", "failed")]) == [True]


def call_off(
    store: Store, url: str, watch: Watch, children: int, act: Callable[[Store, str], None]
) -> list[object]:
    """End a parent with all children open; cells of a row."""
    store.destroy()
    fan.on_child_failure = "fail"
    job_id = park(store, fan, children)
    watch.above(1000)
    with producer(url, PRODUCED, PREFIX) as took:
        began = time.perf_counter()
        act(store, job_id)
        called_ms = ms_since(began)
        counts = store.list_child_results(job_id, limit=0).counts
        read_ms = ms_since(began)
        assert counts.pending == 0
        assert counts.total == children
        duty(FlowSweeper, store).look()
        delivered_ms = ms_since(began)
    assert store.counts(name="child")[JobState.CANCELLED] >= children - 1
    inside = slowest(watch.read())
    fan.on_child_failure = "continue"
    return [
        f"{called_ms:.2f}", f"{read_ms:.2f}", f"{delivered_ms / 1000:.2f}", inside,
        f"{len(took):,}", *(f"{share(took, part):.2f}" for part in (0.5, 0.99, 1)),
    ]  # fmt: skip


def calling_off(store: Store, url: str, watch: Watch, children: int, limit: Limit) -> None:
    heading(
        f"Calling off {children:,} children that are open (a producer's single enqueues beside)",
        "what", "call, ms:", "rows read as cancelled after, ms:", "all delivered after, s:",
        "scripts over 1 ms: longest (median), ms", "enqueues:", "p50:", "p99:", "max:",
    )  # fmt: skip
    with producer(url, PRODUCED, PREFIX) as took:
        time.sleep(min(ALONE_S, 1 + children / 2_000))
    row(
        "nothing: the producer alone", "-", "-", "-", "-", f"{len(took):,}",
        *(f"{share(took, part):.2f}" for part in (0.5, 0.99, 1)),
    )  # fmt: skip
    for label, act in (("cancel of the parent", cancel), ("a child fails, `fail`", fail_fast)):
        limit.check()
        row(label, *call_off(store, url, watch, children, act))


# Crashes


def start_worker() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "--worker"], stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def dying_workers(number: int) -> Iterator[Callable[[], int]]:
    """Run worker processes; each call kills those whose time has come and starts others.

    It returns how many were killed so far.
    """
    running: list[tuple[subprocess.Popen[bytes], float]] = []
    killed = 0

    def born() -> tuple[subprocess.Popen[bytes], float]:
        return start_worker(), time.monotonic() + random.uniform(*LIFE_S)

    def reap() -> int:
        nonlocal killed
        for at, (process, dies_at) in enumerate(running):
            if process.poll() is not None:
                raise RuntimeError(f"a worker ended by itself, with code {process.returncode}")
            if time.monotonic() >= dies_at:
                process.kill()
                process.wait()
                killed += 1
                running[at] = born()
        return killed

    running += (born() for _ in range(number))
    try:
        yield reap
    finally:
        for process, _ in running:
            process.kill()
            process.wait()


def crashes(store: Store, total: int, workers: int, limit: Limit) -> None:
    ids = single.enqueue_many(range(total))
    began = time.monotonic()
    killed = 0
    with dying_workers(workers) as reap:
        while True:
            limit.check()
            killed = reap()
            counts = store.counts(name="single")
            if sum(count for state, count in counts.items() if state.finished) >= total:
                break
            time.sleep(0.1)
    spent_s = time.monotonic() - began
    ledgers: collections.Counter[str] = collections.Counter()
    right = 0
    for job_id in ids:
        words = [entry.outcome.value for entry in store.get_attempts(job_id)]
        below = [entry.outcome.value for entry in store.get_attempts(f"flow/default/{job_id}/only")]
        ledgers["stalled"] += (words + below).count("stalled")
        # Stalls apart, each phase of a parent and each child have ended exactly once.
        settled = [word for word in words if word != "stalled"] == ["fanned-out", "completed"]
        ran = [word for word in below if word != "stalled"] == ["completed"]
        counted = store.list_child_results(job_id, limit=0).counts.completed == 1
        right += settled and ran and counted
    heading(f"{total:,} flows of one child, {workers} workers that are killed", "figure", "seen:")
    row("settled exactly once, their child too", f"{right:,} of {total:,}")
    row("in, s", f"{spent_s:.1f}")
    row("workers killed", killed)
    row("runs that were lost and made up for", f"{ledgers['stalled']:,}")
    assert right == total, "a flow settled twice, or wrongly"


# All of it


def main() -> None:
    """Run it on the server that BENCH_URL names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--children", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--crashes", action="store_true", help="kill workers, and do nothing else")
    parser.add_argument("--flows", type=int, default=10_000, help="how many, with --crashes")
    parser.add_argument("--workers", type=int, default=3, help="processes, with --crashes")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for all of it")
    options = parser.parse_args()
    url = os.environ.get("BENCH_URL")
    if not url or url.startswith("memory:"):
        sys.exit("bench_flows: name a scratch server: BENCH_URL=redis://127.0.0.1:6379/15")
    if options.worker:
        logging.disable(logging.WARNING)  # a line for every job of a worker that was killed
        sys.exit(mq.Worker(app, **CRASH_OPTIONS).run())
    began, limit = time.monotonic(), Limit(options.limit)
    store, watch = app.store, Watch(redis.Redis.from_url(url), PREFIX)
    store.destroy()
    try:
        with watch.settings_kept():
            if options.crashes:
                crashes(store, options.flows, options.workers, limit)
            else:
                compare(store, watch, options.children, options.rounds, limit, options.limit)
                calling_off(store, url, watch, options.children, limit)
    except TimeUpError:
        sys.exit(f"\nnot finished within {options.limit:,.0f} s; what was made is removed")
    except (redis.RedisError, MQError) as error:
        sys.exit(f"bench_flows: {error}")
    finally:
        store.destroy()
        app.close()
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
