"""Lists, counts, bulk verbs and the back-fill over many kept jobs.

    BENCH_URL=redis://127.0.0.1:6379/15 BENCH_JOBS=1000000 python benchmarks/bench_lists.py

It works under a prefix of its own, `bench-lists`, which it empties before and after, on a server
that should do nothing else meanwhile. The jobs stand in 36 pairs of queue and name, which is as
many as one `list` call over all states can merge, and carry two metadata pairs: `customer`, a key
that is declared, and `shop`, one that is declared later. A rare value of each is on 50 jobs.

Printed: how fast the jobs were made; what an index costs a job; the time of a page at the first,
middle and last place of several lists, as the client sees it and as the server's slow log tells
it; counts against those of a thousand jobs; the back-fill, and a cancel and a removal of a tenth
of the jobs, with the latency of a producer beside each; and the slowest run of every script. The
slow log's settings are changed meanwhile and put back.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis
from measuring import (
    CALLS,
    BesideProducer,
    Limit,
    TimeUpError,
    Watch,
    counting_client,
    heading,
    ms_since,
    ping_for,
    row,
    spread,
    timed,
    used_memory,
)  # fmt: skip

from mq import listing, scripts
from mq.errors import MQError
from mq.records import Ack, ClaimRequest, Request
from mq.store import Store
from mq.worker.indexer import PAUSE_S

PREFIX = "bench-lists"
QUEUES = ("mail", "reports", "sync")
NAMES = tuple(f"job-{n:02}" for n in range(12))
FATES = ("completed", "failed", "cancelled", "waiting", "delayed", "active")
WEIGHTS = {"mail": (55, 6, 4, 30, 5, 0.1)}
OTHER_WEIGHTS = (78, 7, 5, 5, 5, 0.1)
RARE, RARE_JOBS, POPULAR = "rare", 50, "popular"
ROUND, CLAIM = 5_000, 100
PAGE, FEW_JOBS, COST_JOBS = 50, 1_000, 20_000
DAY_MS = 86_400_000
ACKS = {
    "completed": ("ack_completed", b"\xa2ok", ""),
    "failed": ("ack_failed", b"\x81" + b"e" * 40, "ValueError: no such customer"),
    "cancelled": ("ack_cancelled", None, ""),
}

Lists = Sequence[tuple[str, dict[str, Any]]]
LISTS: Lists = (
    ("unfiltered", {}),
    ("of a queue", {"queue": "reports"}),
    ("failed", {"states": ["failed"]}),
    (
        "finished, by finished_at",
        {"states": ["completed", "failed", "cancelled"], "order_by": "finished_at"},
    ),
    (
        "delayed of a queue, by run_at",
        {"states": ["delayed"], "queue": "reports", "order_by": "run_at", "order": "asc"},
    ),
    ("declared value, 50 jobs", {"metadata": {"customer": RARE}}),
    ("declared value, a fifth of the jobs", {"metadata": {"customer": POPULAR}}),
    (
        "failed, name, queue, popular value",
        {
            "states": ["failed"],
            "queue": "reports",
            "name": NAMES[4],
            "metadata": {"customer": POPULAR},
        },
    ),
)


# Making the jobs


def requests_of(first: int, last: int, every: int, dice: random.Random) -> list[Request]:
    """Return jobs of all fates; the payload says which one it is to be."""
    made = []
    for n in range(first, last):
        queue = QUEUES[n % 3]
        fate = dice.choices(FATES, WEIGHTS.get(queue, OTHER_WEIGHTS))[0]
        customer = POPULAR if dice.random() < 0.2 else f"c-{dice.randrange(10_000):05}"
        shop = f"s-{dice.randrange(20):02}"
        if n % every == every // 2 and n // every < RARE_JOBS:
            customer = shop = RARE
        made.append(
            Request(
                name=NAMES[n // 3 % 12],
                queue=queue,
                payload=fate.encode().ljust(100),
                # What is to stay waiting stands behind everything else, so no claim takes it.
                priority=-1 if fate == "waiting" else 0,
                delay_ms=dice.randrange(DAY_MS, 2 * DAY_MS) if fate == "delayed" else None,
                metadata={"customer": customer, "shop": shop},
            )
        )
    return made


def finish(store: Store, queue: str, left: int) -> None:
    """Claim so many jobs of a queue and end each as its payload says."""
    acks: list[tuple[str, Ack]] = []
    while left or acks:
        claim = (
            ClaimRequest([queue], NAMES, "bench", DAY_MS, min(CLAIM, left), "bench")
            if left
            else None
        )
        words, claimed = store.exchange(acks, claim)
        assert {"lost", "not_found"}.isdisjoint(words)
        acks = []
        for job in claimed.jobs if claimed else ():
            fate = (job.payload or b"").decode().strip()
            if fate in ACKS:
                verb, exit_, summary = ACKS[fate]
                acks.append((verb, Ack(job.id, "bench", exit_, summary=summary)))
        taken = len(claimed.jobs) if claimed else 0
        assert taken or not left, "a claim came back empty"
        left -= taken


class Seeder:
    """Makes the jobs of the store, in steps, and tells how fast."""

    def __init__(self, store: Store, total: int, watch: Watch, limit: Limit) -> None:
        self._store, self._watch, self._limit = store, watch, limit
        self._every = total // RARE_JOBS
        self._dice = random.Random(7)
        self._made = self._finished = 0
        self._enqueue_s = self._finish_s = 0.0

    def up_to(self, total: int) -> None:
        """Make jobs until there are so many."""
        while self._made < total:
            self._limit.check()
            last = min(self._made + ROUND, total)
            requests = requests_of(self._made, last, self._every, self._dice)
            began = time.perf_counter()
            self._store.enqueue_many(requests)
            between = time.perf_counter()
            runnable = collections.Counter(
                one.queue for one in requests if one.priority == 0 and one.delay_ms is None
            )
            for queue, number in runnable.items():
                finish(self._store, queue, number)
            self._enqueue_s += between - began
            self._finish_s += time.perf_counter() - between
            self._made, self._finished = last, self._finished + runnable.total()
            self._watch.read()

    def report(self, used_bytes: int) -> None:
        """Print the rates."""
        heading("Making the jobs", "what", "jobs:", "jobs/s:")
        row("enqueue_many", f"{self._made:,}", f"{self._made / self._enqueue_s:,.0f}")
        row(
            "claim and ack, 100 a call",
            f"{self._finished:,}",
            f"{self._finished / self._finish_s:,.0f}",
        )
        both_s = self._enqueue_s + self._finish_s
        row("both together", f"{self._made:,}", f"{self._made / both_s:,.0f}")
        print(f"\nMemory of the server: {used_bytes / 2**20:,.0f} MiB, {both_s:.0f} s.")


# What an index costs


def calls_of(client: redis.Redis) -> tuple[int, int]:
    """Return how many commands the server ran, scripts and inside them, and the scripts' us."""
    stats = client.info("commandstats")
    asked = ("cmdstat_info", "cmdstat_config", "cmdstat_slowlog", "cmdstat_ping")
    calls = sum(one["calls"] for name, one in stats.items() if not name.startswith(asked))
    return calls, int(stats.get("cmdstat_evalsha", {}).get("usec", 0))


def index_cost(store: Store, client: redis.Redis, declared: int, unique: bool) -> list[str]:
    """Enqueue jobs with so many of their two metadata keys declared; commands, us and bytes."""

    def made(first: int, number: int) -> list[Request]:
        values = [f"{n if unique else n % 20:08}" for n in range(first, first + number)]
        return [
            Request(name="job", queue="cost", payload=b"p" * 100, metadata={"a": v, "b": v})
            for v in values
        ]

    store.destroy()
    store.declare_index(["a", "b"][:declared])
    # What the server and its connections need at their first use is no cost of a job.
    store.enqueue_many(made(0, 1000))
    calls, _ = calls_of(client)
    for request in made(1000, 200):
        store.enqueue(request)
    single = (calls_of(client)[0] - calls) / 200
    bytes_before = used_memory(client)
    calls, spent_us = calls_of(client)
    store.enqueue_many(made(1200, COST_JOBS))
    calls_after, spent_after_us = calls_of(client)
    grown = used_memory(client) - bytes_before
    store.destroy()
    return [
        f"{single:.1f}",
        f"{(calls_after - calls) / COST_JOBS:.2f}",
        f"{(spent_after_us - spent_us) / COST_JOBS:.1f}",
        f"{grown / COST_JOBS:,.0f}",
    ]


def index_costs(url: str, client: redis.Redis, limit: Limit) -> None:
    heading(
        f"What a declared key costs ({COST_JOBS:,} jobs with two pairs each)",
        "declared keys", "values", "commands, one a call:", "commands, 100 a call:",
        "server us a job, 100 a call:", "bytes a job:",
    )  # fmt: skip
    store = Store(url, prefix=f"{PREFIX}-cost")
    try:
        for declared, unique in ((0, False), (1, False), (1, True), (2, False), (2, True)):
            limit.check()
            values = "-" if not declared else "unique" if unique else "20 of each"
            row(declared, values, *index_cost(store, client, declared, unique))
    finally:
        store.destroy()
        store.close()


# Pages


def places(store: Store, options: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield the cursors of the first, the middle and the last page, walking none between."""
    yield "first", None
    by = options.get("order_by", "enqueued_at")
    query = listing.read_query(**options)
    turned = {**options, "order": "desc" if options.get("order") == "asc" else "asc"}
    from_the_end = store.list(**turned, limit=PAGE + 1).items
    if len(from_the_end) <= PAGE:
        return
    begin = getattr(store.list(**options, limit=1).items[0], by)
    end = getattr(from_the_end[0], by)
    yield "middle", listing.write_cursor(query, ((begin + end) // 2, ""))
    before = from_the_end[PAGE]
    yield "last", listing.write_cursor(query, (getattr(before, by), before.id))


def behind(store: Store, options: dict[str, Any], cursor: str | None) -> Iterator[bool]:
    """Whether each further page has jobs; filters may leave pages without any behind the last."""
    while cursor is not None:
        page = store.list(**options, limit=PAGE, cursor=cursor)
        yield bool(page.items)
        cursor = page.cursor


def page_times(store: Store, watch: Watch, repeats: int, limit: Limit, lists: Lists) -> None:
    heading(
        f"Pages of {PAGE} ({repeats} repeats, ms; `list` and `get` are scripts by the slow log)",
        "list", "page", "jobs:", "median:", "p99:", "server CPU:",
        "list best:", "list median:", "list p99:", "list worst:", "get median:",
    )  # fmt: skip
    watch.above(20)
    for label, options in lists:
        for place, cursor in places(store, options):
            limit.check()
            ask = functools.partial(store.list, **options, limit=PAGE, cursor=cursor)
            page = ask()
            if place == "last":
                assert len(page.items) == PAGE
                assert not any(behind(store, options, page.cursor))
            watch.read()
            cpu_ms = watch.cpu_ms()
            took = timed(ask, repeats)
            cpu_ms = (watch.cpu_ms() - cpu_ms) / repeats
            times = watch.read()
            inside, got = times.get("list", []), times.get("get", [])
            best = f"{min(inside):.2f}" if inside else "-"
            row(
                label, place, len(page.items), *spread(took)[:2], f"{cpu_ms:.2f}",
                best, *spread(inside), spread(got)[0],
            )  # fmt: skip


def walk(store: Store, watch: Watch, limit: Limit, label: str, options: dict[str, Any]) -> int:
    """Go through a list that no index serves, to its end; returns how many jobs it gave."""
    watch.above(200)
    took: list[float] = []
    sizes: list[int] = []
    cursor = None
    cpu_ms = watch.cpu_ms()
    while cursor or not took:
        limit.check()
        began = time.perf_counter()
        page = store.list(**options, limit=PAGE, cursor=cursor)
        took.append(ms_since(began))
        sizes.append(len(page.items))
        cursor = page.cursor
    cpu_ms = (watch.cpu_ms() - cpu_ms) / len(took)
    inside = watch.read().get("list", [])
    median, _, worst = spread(inside)
    row(
        label, f"{len(took):,}", sum(sizes), f"{sizes.count(0):,}", *spread(took)[:2],
        f"{cpu_ms:.2f}", f"{min(inside):.2f}" if inside else "-", median, worst,
        f"{sum(took) / 1000:.1f}",
    )  # fmt: skip
    return sum(sizes)


# Work beside a producer


def back_fill(store: Store, key: str, limit: Limit) -> int:
    """Declare a key and take the steps a worker takes, with its pauses."""
    store.declare_index([key])
    looked_at = 0
    while (step := store.backfill()) is not None:
        looked_at += step[1]
        limit.check()
        time.sleep(PAUSE_S)
    return looked_at


def bulk(
    store: Store, verb: Callable[..., Any], queue: str, state: str, limit: Limit
) -> Callable[[], int]:
    """Return the work of doing `verb` to every job of a state of a queue, checked."""

    def work() -> int:
        expected = store.counts(queue)[state]  # type: ignore[index]
        result = verb(queue=queue, states=[state], on_page=limit.check)
        assert (len(result.ids), result.refused) == (expected, {})
        return len(result.ids)

    return work


# All of it


def run(url: str, jobs: int, repeats: int, limit: Limit) -> None:
    client = redis.Redis.from_url(url)
    store = Store(counting_client(url), prefix=PREFIX)
    watch = Watch(client, PREFIX)
    with watch.settings_kept(), contextlib.ExitStack() as ends:
        ends.callback(store.destroy)
        store.destroy()
        index_costs(url, client, limit)
        watch.above(200)
        store.declare_index(["customer"])
        seeder = Seeder(store, jobs, watch, limit)
        seeder.up_to(FEW_JOBS)
        few = timed(store.counts, repeats)
        seeder.up_to(jobs)
        seeder.report(used_memory(client))
        look(store, watch, repeats, few, jobs, limit)
        work(url, store, watch, jobs, repeats, limit)
        report_scripts(watch)


def look(
    store: Store, watch: Watch, repeats: int, few: list[float], jobs: int, limit: Limit
) -> None:
    many = timed(store.counts, repeats)
    heading("counts() (ms)", "jobs:", "median:", "p99:")
    row(f"{FEW_JOBS:,}", *spread(few)[:2])
    row(f"{jobs:,}", *spread(many)[:2])
    print(f"\nRatio of the medians: {statistics.median(many) / statistics.median(few):.2f}")
    page_times(store, watch, repeats, limit, LISTS)
    heading(
        "Lists by a key that is not declared, to their end (ms a call)",
        "list", "calls:", "jobs:", "empty pages:", "median:", "p99:", "server CPU:",
        "list best:", "list median:", "list worst:", "s:",
    )  # fmt: skip
    rare = walk(store, watch, limit, "undeclared value, 50 jobs", {"metadata": {"shop": RARE}})
    assert rare == RARE_JOBS
    walk(
        store, watch, limit, "the same among failed of a name and a queue",
        {"metadata": {"shop": RARE}, "states": ["failed"], "queue": "sync", "name": NAMES[0]},
    )  # fmt: skip


def work(url: str, store: Store, watch: Watch, jobs: int, repeats: int, limit: Limit) -> None:
    request = Request(name=NAMES[0], queue="sync", payload=b"waiting".ljust(100))
    beside = BesideProducer(url, watch, request, PREFIX)
    alone_s = 1 if jobs < 100_000 else 5
    client = redis.Redis.from_url(url)
    beside.run("none", lambda: time.sleep(alone_s))
    beside.run("a client that pings", lambda: ping_for(client, alone_s))
    beside.run("back-fill of a second key", lambda: back_fill(store, "shop", limit))
    beside.run("cancel_where", bulk(store, store.cancel_where, "mail", "waiting", limit))
    beside.run("remove_where", bulk(store, store.remove_where, "mail", "cancelled", limit))
    declared = [("declared later, back-filled", {"metadata": {"shop": RARE}, "queue": "sync"})]
    page_times(store, watch, repeats, limit, declared)


def report_scripts(watch: Watch) -> None:
    heading(
        "Scripts over the whole run (ms of the runs that the slow log noted)",
        "script", "calls:", "noted:", "best:", "median:", "p99:", "worst:", "over 5 ms:",
    )  # fmt: skip
    names = {script.sha: name for name, script in scripts.load_scripts().items()}
    for name, calls in sorted((names[sha], calls) for sha, calls in CALLS.items()):
        seen = watch.seen.get(name, [])
        best = f"{min(seen):.2f}" if seen else "-"
        row(name, f"{calls:,}", f"{len(seen):,}", best, *spread(seen), sum(ms > 5 for ms in seen))
    if watch.lost:
        print(f"\n{watch.lost:,} entries of the slow log were dropped before they could be read.")


def main() -> None:
    """Run it on the server that BENCH_URL names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("BENCH_JOBS", "1000000")))
    parser.add_argument("--repeats", type=int, help="of each page and of counts")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for all of it")
    options = parser.parse_args()
    url = os.environ.get("BENCH_URL")
    if not url or url.startswith("memory:"):
        sys.exit("bench_lists: name a scratch server: BENCH_URL=redis://127.0.0.1:6379/15")
    if options.jobs < 2 * FEW_JOBS:
        sys.exit(f"bench_lists: BENCH_JOBS must be at least {2 * FEW_JOBS:,}")
    repeats = options.repeats or (200 if options.jobs >= 100_000 else 50)
    began = time.monotonic()
    try:
        run(url, options.jobs, repeats, Limit(options.limit))
    except TimeUpError:
        sys.exit(f"\nnot finished within {options.limit:,.0f} s; what was made is removed")
    except (redis.RedisError, MQError) as error:
        sys.exit(f"bench_lists: {error}")
    print(f"\n{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
