"""What a store costs its server: commands, round trips, memory, bounded scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, record, take
from servers import Server
from transitions.invariants import violations
from transitions.seed import raw

from mq.clock import FakeClock
from mq.policies import Dedupe
from mq.records import Ack, ClaimRequest
from mq.states import JobState
from mq.store import REFUSALS, Store
from mq.store.steering import STEER_BATCH, Verb

KUBERNETES_WORKER = "payments-worker-7c9d8b6f5d-x2x9q:1:9f3a".ljust(63, "0")
MANY, FEWER = 20_000, 4_000


def _info(server: Server, section: str) -> dict[str, str]:
    lines = server.cli("INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _commands(server: Server) -> dict[str, int]:
    """How often each command ran, those inside scripts included."""
    stats = _info(server, "commandstats")
    own = {"cmdstat_info", "cmdstat_config|resetstat", "cmdstat_config"}
    return {
        name: int(text.split(",")[0].removeprefix("calls="))
        for name, text in stats.items()
        if name not in own
    }


def _bytes_used(server: Server) -> int:
    return int(_info(server, "memory")["used_memory"])


def test_a_plain_enqueue_is_one_round_trip_of_few_commands(
    real_store: Store, real_server: Server
) -> None:
    """At most ten commands, EVALSHA counted, also for the second of a name."""
    real_store.enqueue(job())
    real_server.cli("CONFIG", "RESETSTAT")
    real_store.enqueue(job())
    commands = _commands(real_server)
    assert commands["cmdstat_evalsha"] == 1
    assert sum(commands.values()) <= 10, commands


def test_a_thousand_jobs_are_a_few_round_trips(real_store: Store, real_server: Server) -> None:
    """One a chunk."""
    real_store.enqueue(job())
    real_server.cli("CONFIG", "RESETSTAT")
    real_store.enqueue_many(job() for _ in range(1_000))
    commands = _commands(real_server)
    assert commands["cmdstat_evalsha"] == 10
    assert sum(commands.values()) <= 5 * 1_000


def test_a_claim_costs_the_same_however_many_other_jobs_wait(
    real_store: Store, real_server: Server
) -> None:
    """It reads heads alone."""
    costs = []
    for backlog in (1, 3_000):
        real_store.enqueue_many(job(name="other") for _ in range(backlog))
        real_store.enqueue_many(job() for _ in range(backlog + 1))
        take(real_store)
        real_server.cli("CONFIG", "RESETSTAT")
        take(real_store)
        costs.append(sum(_commands(real_server).values()))
    assert costs[0] == costs[1]


LATEST = Dedupe("latest", replace=True)

STEERING: dict[str, tuple[int, Callable[[Store, int], Any]]] = {
    "cancel": (10, lambda s, n: s.cancel(f"waiting-{n}")),
    "cancel of an active job": (10, lambda s, n: s.cancel(f"active-{n}")),
    "cancel_by_key": (14, lambda s, n: s.cancel_by_key(NAME, f"k{n}")),
    "retry": (14, lambda s, n: s.retry(f"failed-{n}")),
    "promote": (11, lambda s, n: s.promote(f"delayed-{n}")),
    "remove": (10, lambda s, n: s.remove(f"failed-{n}")),
    "pause": (10, lambda s, n: s.pause(f"q{n}")),
    "resume": (10, lambda s, n: s.resume(f"paused-{n}")),
    "enqueue that takes a key": (15, lambda s, n: s.enqueue(job(dedupe=Dedupe(f"new{n}")))),
    "enqueue that a key drops": (7, lambda s, n: s.enqueue(job(dedupe=Dedupe(f"k{n}")))),
    "enqueue that replaces": (20, lambda s, n: s.enqueue(job(delay_ms=n + 1, dedupe=LATEST))),
}
"""What is asked of one job, and the most commands that it may cost, EVALSHA counted."""


@pytest.mark.parametrize("verb", STEERING)
def test_a_verb_on_one_job_costs_the_same_few_commands_however_many_jobs_there_are(
    real_store: Store, real_server: Server, verb: str
) -> None:
    """One round trip, whatever else waits, has failed or is keyed."""
    most, act = STEERING[verb]
    for at in range(3):
        for state in ("active", "failed"):
            real_store.enqueue(job(f"{state}-{at}", priority=9))
            assert take(real_store) == [f"{state}-{at}"]
        real_store.ack_failed(f"failed-{at}", TOKEN)
        real_store.enqueue_many(
            [
                job(f"waiting-{at}"), job(f"delayed-{at}", delay_ms=50_000),
                job(dedupe=Dedupe(f"k{at}")), job(queue=f"paused-{at}"),
            ]
        )  # fmt: skip
        real_store.pause(f"paused-{at}")
    real_store.enqueue(job(delay_ms=90_000, dedupe=LATEST))
    act(real_store, 0)
    costs = []
    for number in (1, 2):
        real_server.cli("CONFIG", "RESETSTAT")
        act(real_store, number)
        commands = _commands(real_server)
        assert commands["cmdstat_evalsha"] == 1
        costs.append(sum(commands.values()))
        real_store.enqueue_many(job(delay_ms=at % 2 * 60_000) for at in range(1_000))
    assert costs[0] == costs[1] <= most, commands


@pytest.mark.parametrize("verb", ["cancel_request", "retry", "promote", "remove"])
def test_a_batch_of_steering_is_one_round_trip_of_a_few_commands_a_job(
    real_store: Store, real_server: Server, verb: Verb
) -> None:
    """At most five a job, so that a full batch holds the server up no longer than a claim."""
    ids = [f"j{at}" for at in range(STEER_BATCH)]
    if verb == "promote":
        real_store.enqueue_many(job(job_id, delay_ms=50_000) for job_id in ids)
    else:
        real_store.enqueue_many(job(job_id) for job_id in ids)
    if verb == "retry":
        take(real_store, STEER_BATCH)
        real_store.exchange([("ack_failed", Ack(job_id, TOKEN)) for job_id in ids], None)
    real_store.steer(verb, ["nobody"])
    real_server.cli("CONFIG", "RESETSTAT")
    words = {word for word, _ in real_store.steer(verb, ids)}
    commands = _commands(real_server)
    assert len(words) == 1
    assert not words & {*REFUSALS, "not_removable"}
    assert commands["cmdstat_evalsha"] == 1
    assert sum(commands.values()) <= 5 * STEER_BATCH + 20, commands


def _how_many(server: Server) -> int:
    """The full number on one of the servers, enough to see the same on the others."""
    return MANY if server.name == "redis-7.0" else FEWER


def test_a_job_fits_its_share_of_memory(
    real_store: Store, real_server: Server, record_property: object
) -> None:
    """Waiting with a payload of 100 bytes, and completed with its entry and a long worker id."""
    jobs = _how_many(real_server)
    real_store.enqueue(job("warm-up"))
    take(real_store)
    real_store.ack_completed("warm-up", TOKEN)
    empty = _bytes_used(real_server)
    real_store.enqueue_many(job(payload=b"p" * 100) for _ in range(jobs))
    waiting = (_bytes_used(real_server) - empty) / jobs
    ask = ClaimRequest([QUEUE], [NAME], TOKEN * 4, LOCK_MS, 100, KUBERNETES_WORKER)
    done, claim = 0, real_store.exchange([], ask)[1]
    while claim is not None and claim.jobs:
        done += len(claim.jobs)
        acks = [("ack_completed", Ack(one.id, ask.token, b"\xc0")) for one in claim.jobs]
        last = claim.jobs[-1].id
        claim = real_store.exchange(acks, ClaimRequest(*_again(ask)))[1]
    completed = (_bytes_used(real_server) - empty) / jobs
    assert done == jobs
    record_property("bytes_waiting", round(waiting))  # type: ignore[operator]
    record_property("bytes_completed", round(completed))  # type: ignore[operator]
    encoding = real_server.cli("OBJECT", "ENCODING", real_store.keys.job(last))
    assert encoding in {b"listpack", b"ziplist"}
    assert waiting <= 950
    assert completed <= 1_200


def _again(ask: ClaimRequest) -> tuple[object, ...]:
    """The same question under a nonce of its own."""
    return ask.queues, ask.names, ask.token, ask.lock_ms, ask.limit, ask.worker


def test_a_record_stays_small_through_a_long_life(
    real_store: Store, real_server: Server, clock: FakeClock
) -> None:
    """No value on it passes 64 bytes: it stays a listpack with every field at its longest."""
    longest = "x" * 64
    real_store.enqueue(
        job(
            "a", queue="q" * 64, name="n" * 64, payload=b"p" * 9_999, attempts_max=10**6,
            priority=-1000, timeout_ms=10**12, metadata={"k": "v" * 512}, trace="t" * 500,
        )
    )  # fmt: skip
    for run in range(20):
        claim = real_store.claim(["q" * 64], ["n" * 64], "t" * 22, LOCK_MS, 1, longest)
        assert len(claim.jobs) == 1
        real_store.progress("a", "t" * 22, b"p" * 4_000)
        if run % 5 == 4:
            clock.advance(LOCK_MS)
            real_store.stall_sweep(99)
        else:
            exit_ = b"e" * (64 if run % 2 else 9_000)
            real_store.ack_retried("a", "t" * 22, 0, exit_, worker=longest, summary=longest)
    fields = raw(real_store).hgetall(real_store.keys.job("a"))
    assert max(map(len, fields.values())) <= 64
    assert real_server.cli("OBJECT", "ENCODING", real_store.keys.job("a")) in {
        b"listpack", b"ziplist",
    }  # fmt: skip


def test_thousands_of_jobs_due_at_once_are_all_run_in_order(
    real_store: Store, real_server: Server, clock: FakeClock, record_property: object
) -> None:
    """Promoted a bounded number a call; each call says that there is more to do."""
    jobs = _how_many(real_server)
    real_server.cli("CONFIG", "SET", "slowlog-log-slower-than", "20000")
    real_server.cli("SLOWLOG", "RESET")
    made = real_store.enqueue_many(job(delay_ms=1_000) for _ in range(jobs))
    clock.advance(1_000)
    order: list[str] = []
    while True:
        claim = real_store.claim([QUEUE], [NAME], TOKEN, LOCK_MS, 100, "worker")
        if not claim.jobs:
            break
        order += (one.id for one in claim.jobs)
        assert claim.next_run_at in {clock.now_ms(), None}
    slow = real_server.cli("SLOWLOG", "GET", 128)
    real_server.cli("CONFIG", "SET", "slowlog-log-slower-than", "10000")
    record_property("scripts_over_20_ms", len(slow))  # type: ignore[operator]
    assert order == [one.id for one in made]
    assert real_store.counts()[JobState.ACTIVE] == jobs


@pytest.mark.parametrize("metadata", [{}, {f"key{at}": "v" * 100 for at in range(16)}])
def test_every_batch_works_at_its_largest(
    store: Store, clock: FakeClock, metadata: dict[str, str]
) -> None:
    """200 enqueues, 100 claims after 100 promotions, 100 acks of each kind, 50 recoveries."""
    store.enqueue_many(
        job(f"j{at:03}", name=f"n{at}", delay_ms=at % 2, metadata=metadata) for at in range(200)
    )
    clock.advance(1)
    names = tuple(f"n{at}" for at in range(200))
    first = take(store, 100, names=names)
    second = take(store, 100, names=names)
    assert len(first + second) == 200
    kinds = ("ack_retried", "ack_completed")
    for kind, ids in zip(kinds, (first, second), strict=True):
        words, _ = store.exchange([(kind, Ack(one, TOKEN, b"x" * 500)) for one in ids], None)
        assert words == [kind[4:]] * 100
    assert len(take(store, 100, names=names)) == 100
    clock.advance(LOCK_MS)
    assert [len(store.stall_sweep(1)) for _ in range(3)] == [50, 50, 0]
    assert record(store, first[0]).stalled_count == 1
    assert violations(store) == []
