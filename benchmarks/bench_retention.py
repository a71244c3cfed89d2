"""What shortening the retention of many finished jobs does to a producer.

    BENCH_URL=redis://127.0.0.1:6379/15 python benchmarks/bench_retention.py --jobs 1000000

It works under a prefix of its own, `bench-retention`, which it empties before and after, on a
server that should do nothing else meanwhile. Finished jobs of three names are made, none of them
with a policy. Then a worker starts, in a process of its own, with `history_ttl=0`: its pruner
removes them all.

Printed: how fast the jobs were made; the latency of a producer's single enqueues alone, beside a
client that pings as often as a pruner takes a step, and beside the pruner; how fast that was; how
long its scripts took; and the keys that are left. The slow log's settings are changed meanwhile
and put back.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import redis
from measuring import (
    BesideProducer,
    Limit,
    TimeUpError,
    Watch,
    heading,
    ping_for,
    row,
    spread,
    used_memory,
)

import mq
from mq.errors import MQError
from mq.records import Ack, ClaimRequest, Request
from mq.store import PRUNE_BATCH, Store
from mq.worker.pruner import PAUSE_S

PREFIX = "bench-retention"
QUEUE, NAMES = "bench", ("job-1", "job-2", "job-3")
ROUND, CLAIM = 5_000, 100
LOCK_MS = 3_600_000
LOOK_S = 0.2
LASTING = {"meta", "seq"}
ALONE_S = 10


def make(store: Store, jobs: int, limit: Limit) -> None:
    """Make finished jobs; one in ten has failed."""
    made = 0
    began = time.perf_counter()
    while made < jobs:
        limit.check()
        number = min(ROUND, jobs - made)
        store.enqueue_many(
            Request(name=NAMES[n % 3], queue=QUEUE, payload=b"p" * 100) for n in range(number)
        )
        finish(store, number)
        made += number
    spent_s = time.perf_counter() - began
    heading("Making the jobs", "jobs:", "s:", "jobs/s:")
    row(f"{jobs:,}", f"{spent_s:.0f}", f"{jobs / spent_s:,.0f}")


def finish(store: Store, left: int) -> None:
    """Claim so many jobs, and end each."""
    acks: list[tuple[str, Ack]] = []
    while left or acks:
        claim = ClaimRequest([QUEUE], NAMES, "bench", LOCK_MS, min(CLAIM, left), "bench")
        words, claimed = store.exchange(acks, claim if left else None)
        assert set(words) <= {"completed", "failed"}
        taken = claimed.jobs if claimed else ()
        assert taken or not left, "a claim came back empty"
        acks = [
            ("ack_failed" if n % 10 == 0 else "ack_completed", Ack(job.id, "bench", b"\xa2ok"))
            for n, job in enumerate(taken)
        ]
        left -= len(taken)


def prune_for(url: str, began: Any, stop: Any) -> None:
    """Be a worker with another retention, in a process of its own, until told to stop."""
    app = mq.App(url, prefix=PREFIX, history_ttl=0)

    @app.job("idle", queue="idle")
    def idle(word: str) -> str:
        return word

    worker = mq.Worker(app, queues=["idle"], concurrency=1, history_interval="1s")
    began.set()
    with worker:
        stop.wait()
    app.close()


@contextlib.contextmanager
def pruning_worker(url: str) -> Iterator[None]:
    """Run such a worker."""
    fresh = multiprocessing.get_context("spawn")
    began, stop = fresh.Event(), fresh.Event()
    process = fresh.Process(target=prune_for, args=(url, began, stop), daemon=True)
    process.start()
    try:
        if not began.wait(30):
            raise RuntimeError("the worker did not start")
        yield
    finally:
        stop.set()
        process.join(30)
        process.kill()


def finished(store: Store) -> int:
    return sum(number for state, number in store.counts(QUEUE).items() if state.finished)


def prune_all(store: Store, jobs: int, limit: Limit) -> int:
    """Wait until a worker has removed all jobs that have finished."""
    while finished(store):
        limit.check()
        time.sleep(LOOK_S)
    return jobs


def report_scripts(watch: Watch) -> None:
    seen = watch.seen.get("prune", [])
    heading(
        f"Runs of `prune`, at most {PRUNE_BATCH} jobs each (ms, those over 0.2)",
        "runs:", "median:", "p99:", "worst:", "over 5 ms:",
    )  # fmt: skip
    row(f"{len(seen):,}", *spread(seen), sum(ms > 5 for ms in seen))
    if watch.lost:
        print(f"\n{watch.lost:,} entries of the slow log were dropped before they could be read.")


def report_floor(store: Store, client: redis.Redis, limit: Limit) -> None:
    """Remove what the producer enqueued, and look at what is left."""
    store.remove_where(queue="producer", on_page=limit.check)
    while store.prune() >= PRUNE_BATCH:
        limit.check()
    left = collections.Counter[str]()
    for key in client.scan_iter(match=store.keys.root + "*", count=1000):
        bare = key.decode().removeprefix(store.keys.root)
        left[bare if client.pttl(key) == -1 else "expiring"] += 1
    expiring = left.pop("expiring", 0)
    print(
        f"\nKeys at the end: {', '.join(sorted(left))}; and {expiring} that expire by themselves."
    )
    print(f"Memory of the server: {used_memory(client) / 2**20:,.0f} MiB.")
    assert set(left) == LASTING, "that is more than an empty store holds"


def run(url: str, jobs: int, limit: Limit) -> None:
    client = redis.Redis.from_url(url)
    store = Store(url, prefix=PREFIX)
    watch = Watch(client, PREFIX)
    alone_s = 2 if jobs < 100_000 else ALONE_S
    with watch.settings_kept(), contextlib.ExitStack() as ends:
        ends.callback(store.destroy)
        store.destroy()
        make(store, jobs, limit)
        print(f"\nMemory of the server: {used_memory(client) / 2**20:,.0f} MiB.")
        request = Request(name="produced", queue="producer", payload=b"p" * 100)
        beside = BesideProducer(url, watch, request, PREFIX)
        beside.run("none", lambda: time.sleep(alone_s))
        beside.run("a client that pings", lambda: ping_for(client, alone_s, PAUSE_S))
        with contextlib.ExitStack() as worker:

            def shorten() -> int:
                worker.enter_context(pruning_worker(url))
                return prune_all(store, jobs, limit)

            beside.run("history_ttl=0", shorten)
        report_scripts(watch)
        report_floor(store, client, limit)


def main() -> None:
    """Run it on the server that BENCH_URL names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("BENCH_JOBS", "1000000")))
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for all of it")
    options = parser.parse_args()
    url = os.environ.get("BENCH_URL")
    if not url or url.startswith("memory:"):
        sys.exit("bench_retention: name a scratch server: BENCH_URL=redis://127.0.0.1:6379/15")
    if options.jobs < 1:
        sys.exit("bench_retention: --jobs must be at least 1")
    began = time.monotonic()
    try:
        run(url, options.jobs, Limit(options.limit))
    except TimeUpError:
        sys.exit(f"\nnot finished within {options.limit:,.0f} s; what was made is removed")
    except (redis.RedisError, MQError) as error:
        sys.exit(f"bench_retention: {error}")
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
