"""Many jobs in every state, the list that a page-by-page walk over them must give, and the walk."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from conformance.build import TOKEN, job
from servers import Server
from transitions.seed import CHILD, raw, snapshot, write_children

from mq.clock import FakeClock
from mq.records import Ack, JobRecord, Request
from mq.states import FINISHED, JobState
from mq.store import Store

QUEUES = ("q1", "q2")
NAMES = ("a", "A", "a.b")
LATER_MS = 3_600_000
LOCK_MS = 600_000
UNTOUCHED = {JobState.WAITING, JobState.DELAYED}
ENDS = {
    JobState.COMPLETED: "ack_completed",
    JobState.FAILED: "ack_failed",
    JobState.CANCELLED: "ack_cancelled",
}
STEMS = (
    "a", "A", "ab", "aB", "AB", "a_", "a-", "a b", "_a", "b", "B", "Z", "z", "0", "00", "~", "é",
    "E", "e\u0301", "ß", "日本", "\U0001d11e", "\uffee", "a:b", "*", "[x]",
)  # fmt: skip
"""Beginnings of ids on whose order bytes, code units and locales disagree."""


def odd_ids(number: int) -> list[str]:
    """Ids of which some are the beginning of others."""
    rounds = itertools.chain([""], map(str, itertools.count(1)))
    made = (stem + tail for tail in rounds for stem in STEMS)
    return list(itertools.islice(made, number))


def mixed(
    number: int, states: Sequence[JobState] = tuple(JobState)
) -> list[tuple[Request, JobState]]:
    """Jobs over queues, names, states and metadata, each pair of those met in many ways."""
    chance, jobs = random.Random(6), []
    for at, job_id in enumerate(odd_ids(number)):
        metadata = {"customer": f"c{chance.randrange(3)}", "tier": chance.choice(["gold", ""])}
        request = job(
            job_id, queue=chance.choice(QUEUES), name=chance.choice(NAMES),
            metadata=metadata if chance.random() < 0.9 else {},
        )  # fmt: skip
        jobs.append((request, states[at % len(states)]))
    return jobs


def fill(
    store: Store, clock: FakeClock, jobs: Sequence[tuple[Request, JobState]], instants: int = 3
) -> None:
    """Take jobs in and bring each to its state, all within few instants, the clock's own steps."""
    made = []
    for at, (request, state) in enumerate(jobs):
        if state is JobState.DELAYED:
            run_at = clock.now_ms() + LATER_MS + at % 3
            made.append(attrs.evolve(request, run_at=run_at))
        else:
            priority = request.priority if state in UNTOUCHED else max(request.priority, 9)
            made.append(attrs.evolve(request, priority=priority))
    for step in range(instants):
        store.enqueue_many(made[step::instants])
        clock.advance(1)
    busy = [(request, state) for request, state in jobs if state not in UNTOUCHED]
    _claim(store, [request for request, _ in busy])
    ended = [(ENDS[state], Ack(_id(one), TOKEN, b"exit")) for one, state in busy if state in ENDS]
    for step in range(instants):
        words, _ = store.exchange(ended[step::instants], None)
        assert set(words) <= {"completed", "failed", "cancelled"}
        clock.advance(1)
    for request, state in busy:
        if state is JobState.WAITING_CHILDREN:
            write_children(store, _id(request), TOKEN, [CHILD])
            store.ack_fanned_out(_id(request), TOKEN)


def _id(request: Request) -> str:
    assert request.id is not None
    return request.id


def _claim(store: Store, requests: Sequence[Request]) -> None:
    """Claim exactly these, which have the highest priority of their queues."""
    names = sorted({request.name for request in requests})
    for queue in sorted({request.queue for request in requests}):
        wanted = {request.id for request in requests if request.queue == queue}
        claimed: set[str] = set()
        while len(claimed) < len(wanted):
            limit = min(100, len(wanted) - len(claimed))
            claim = store.claim([queue], names, TOKEN, LOCK_MS, limit, "worker")
            assert claim.jobs
            claimed |= {one.id for one in claim.jobs}
        assert claimed == wanted


def all_records(store: Store) -> list[JobRecord]:
    """Every record there is, read by id: no index had a part in it."""
    prefix = store.keys.root + "job:"
    keys = raw(store).scan_iter(match=prefix + "*", count=1_000)
    found = (store.get_job(key.decode().removeprefix(prefix)) for key in keys)
    return [one for one in found if one is not None]


def expected(
    records: Iterable[JobRecord],
    *,
    queue: str | None = None,
    name: str | None = None,
    states: Iterable[JobState | str] | None = None,
    metadata: Mapping[str, str] | None = None,
    order_by: str = "enqueued_at",
    order: str = "desc",
    **_: Any,
) -> list[str]:
    """The ids that a list has to give, in its order."""
    asked = None if states is None else set(states)

    def wanted(one: JobRecord) -> bool:
        pairs = one.metadata
        return (
            (queue is None or one.queue == queue)
            and (name is None or one.name == name)
            and (asked is None or one.state in asked)
            and all(pairs.get(key) == value for key, value in (metadata or {}).items())
        )

    places = sorted(
        ((getattr(one, order_by), one.id.encode()) for one in records if wanted(one)),
        reverse=order == "desc",
    )
    return [job_id.decode() for _, job_id in places]


def pages(
    store: Store, *, limit: int = 50, cursor: str | None = None, **options: Any
) -> Iterator[list[JobRecord]]:
    """One page after the other until no cursor comes."""
    for _ in range(10_000):
        page = store.list(limit=limit, cursor=cursor, **options)
        assert len(page.items) <= limit
        yield page.items
        cursor = page.cursor
        if cursor is None:
            return
    raise AssertionError("the walk does not end")


def walk(store: Store, **options: Any) -> list[str]:
    """The ids of all pages, one after the other."""
    return [one.id for page in pages(store, **options) for one in page]


def not_indexed(store: Store, *keys: str) -> list[str]:
    """Jobs that have a metadata key and do not stand in the sorted set of their value of it."""
    content = snapshot(store)
    prefix = store.keys.root + "extra:"
    missing = []
    for hash_key, fields in content.items():
        if not hash_key.startswith(prefix):
            continue
        job_id = hash_key.removeprefix(prefix)
        enqueued_at = int(content[store.keys.job(job_id)]["enqueued_at"])
        for key in keys:
            value = fields.get(f"metadata:{key}")
            if value is None:
                continue
            index = store.keys.metadata(key, value.encode("latin-1").decode())
            if content.get(index, {}).get(job_id) != enqueued_at:
                missing.append(f"{job_id} by {key}")
    return missing


def calls_of(server: Server, *commands: str) -> list[int]:
    """How often a real server ran these commands, those inside scripts included."""
    lines = server.cli("INFO", "commandstats").decode().splitlines()
    stats = dict(line.split(":", 1) for line in lines if ":" in line)
    return [
        int(stats.get(f"cmdstat_{command}", "calls=0,").split(",")[0].removeprefix("calls="))
        for command in commands
    ]


def finished_state(nth: int) -> JobState:
    """One finished state after the other."""
    return sorted(FINISHED)[nth % 3]
