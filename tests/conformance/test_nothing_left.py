"""After any number of jobs with every fate: what can expire is gone, and what stays is named."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from conformance.build import LOCK_MS, NAME, TOKEN, job, take
from servers import Server
from transitions.invariants import violations
from transitions.seed import raw, snapshot

from mq.cadence import Cadence
from mq.clock import FakeClock
from mq.policies import Dedupe, Keep, encode_keep
from mq.records import Ack, Request, ScheduleRecord
from mq.states import JobState
from mq.store import Store
from mq.store.families import ChildReport, ChildRow, OnChildFailure

HOUR_MS = 3_600_000
ROUNDS, FEWER_ROUNDS = 20, 2
"""How often each fate is met: on a real server, and in memory, which is slow."""

LASTING_KEYS = {"meta", "seq"}
LASTING_FIELDS = {"schema", "created", "indexed", "ready:customer"}
EXPIRING = {"answered", "claims", "control"}
"""Kinds of keys that Redis expires by itself."""

POLICIES = (
    None,
    Keep(age="1h"),
    Keep(count=3),
    Keep(count=0),
    Keep(age=0),
    {"failed": Keep(count=2, age="1m"), "cancelled": Keep(age="30m")},
)


@attrs.frozen
class Rig:
    """One life of a job: a queue of its own kind, and requests that nobody else has."""

    store: Store
    clock: FakeClock
    queue: str
    stamp: str
    keep: str

    def enqueue(self, part: str = "", **given: Any) -> str:
        """Enqueue a job and return its id."""
        return self.store.enqueue(self.request(part, **given)).id

    def request(self, part: str = "", **given: Any) -> Request:
        """A job of this life."""
        given = {"queue": self.queue, "keep": self.keep, **given}
        return job(f"{self.queue}-{self.stamp}-{part}", **given)

    def claim(self, token: str = TOKEN) -> str:
        """Take the one job that is runnable."""
        (job_id,) = take(self.store, 9, queues=(self.queue,), token=token)
        return job_id

    def run(self, part: str = "", **given: Any) -> str:
        """Enqueue and claim."""
        job_id = self.enqueue(part, **given)
        assert self.claim() == job_id
        return job_id


Fate = Callable[[Rig], object]


def _rich(rig: Rig) -> None:
    """Everything a job may have beside its record, over two runs, awaited."""
    job_id = rig.run(
        payload=b"p" * 5_000, metadata={"customer": rig.stamp, "note": "v" * 400}, trace="t" * 99
    )
    rig.store.progress(job_id, TOKEN, b"half")
    rig.store.ack_retried(job_id, TOKEN, 1_000, b"e" * 500, summary="no", worker="w")
    rig.store.watch(job_id)
    rig.clock.advance(1_000)
    rig.claim("second")
    rig.store.ack_completed(job_id, "second", b"r" * 500)


def _end(verb: str, *, cancelled: bool = False) -> Fate:
    def live(rig: Rig) -> None:
        job_id = rig.run(metadata={"customer": "c"})
        if cancelled:
            rig.store.cancel(job_id)
        words, _ = rig.store.exchange([(verb, Ack(job_id, TOKEN, b"exit"))], None)
        assert words[0] not in {"lost", "not_found", "retried"}

    return live


def _stall(times: int, *, cancelled: bool = False) -> Fate:
    def live(rig: Rig) -> None:
        job_id = rig.run()
        for at in range(times):
            if cancelled:
                rig.store.cancel(job_id)
            rig.clock.advance(LOCK_MS)
            assert len(rig.store.stall_sweep(1)) == 1
            if at + 1 < times:
                rig.claim()
        if times == 1 and not cancelled:
            rig.claim("next")
            rig.store.ack_completed(job_id, "next")

    return live


def _due(rig: Rig) -> None:
    rig.enqueue(delay_ms=500)
    rig.clock.advance(500)
    rig.store.ack_completed(rig.claim(), TOKEN)


def _promoted(rig: Rig) -> None:
    job_id = rig.enqueue(delay_ms=HOUR_MS)
    rig.store.promote(job_id)
    rig.store.ack_completed(rig.claim(), TOKEN)


def _retried(rig: Rig) -> None:
    job_id = rig.run(keep=encode_keep(Keep(count=9, age="1h")))
    rig.store.ack_failed(job_id, TOKEN, b"e")
    rig.store.retry(job_id)
    rig.claim("second")
    rig.store.ack_completed(job_id, "second")


def _released(rig: Rig) -> None:
    job_id = rig.run()
    rig.store.release(job_id, TOKEN)
    assert rig.store.cancel_where(queue=rig.queue).ids == [job_id]


def _deduped(mode: Callable[[str], Dedupe], *, delayed: bool) -> Fate:
    """One takes the key, two more come under it, and the job ends or is cancelled by the key."""

    def live(rig: Rig) -> None:
        key = mode(f"{rig.queue} {rig.stamp}")
        delay = 500 if delayed else None
        first = rig.enqueue("1", dedupe=key, delay_ms=delay)
        for part in ("2", "3"):
            given = {"metadata": {"customer": part}, "delay_ms": delay}
            assert rig.enqueue(part, dedupe=key, **given) == first
        if int(rig.stamp) % 2:
            assert rig.store.cancel_by_key(NAME, key.key)
        else:
            rig.clock.advance(500)
            rig.store.ack_completed(rig.claim(), TOKEN)

    return live


def _same_id(rig: Rig) -> None:
    """As an idempotency key does: what comes under an id that is taken is dropped."""
    job_id = rig.run(keep=encode_keep(Keep(age="1h")))
    assert rig.store.enqueue(rig.request()).duplicate
    rig.store.ack_completed(job_id, TOKEN)
    assert rig.store.enqueue(rig.request()).duplicate


def _removed(rig: Rig) -> None:
    for part, delay in (("waiting", None), ("delayed", 500)):
        assert rig.store.remove(rig.enqueue(part, delay_ms=delay, metadata={"customer": "c"}))
    keep = encode_keep(Keep(age="1h"))
    job_id = rig.run("done", keep=keep, dedupe=Dedupe(f"gone {rig.stamp}", ttl="1m"))
    rig.store.ack_completed(job_id, TOKEN, b"r" * 99)
    assert rig.store.remove(job_id)


def _paused(rig: Rig) -> None:
    rig.store.pause(rig.queue)
    rig.enqueue()
    assert take(rig.store, queues=(rig.queue,)) == []
    rig.store.resume(rig.queue)
    rig.store.ack_completed(rig.claim(), TOKEN)


def _scheduled(rig: Rig) -> None:
    """Registered, paused, resumed, ticked, run at once, and removed; its jobs run."""
    at = rig.clock.now_ms()
    schedule = ScheduleRecord(
        name=NAME, key=rig.stamp, cadence=Cadence(every_ms=1_000), next_run_at=at, anchor=at,
        request=attrs.evolve(rig.request(), id=None),
    )  # fmt: skip
    rig.store.upsert_schedule(schedule)
    rig.store.pause_schedule(NAME, rig.stamp)
    rig.store.resume_schedule(NAME, rig.stamp)
    found = rig.store.get_schedule(NAME, rig.stamp)
    assert found is not None
    occurrence = found.occurrence(found.next_run_at)
    assert rig.store.tick(NAME, rig.stamp, found.next_run_at, at + 9_000, occurrence)
    rig.store.ack_completed(rig.claim(), TOKEN)
    assert rig.store.run_schedule_now(NAME, rig.stamp)
    rig.store.ack_failed(rig.claim(), TOKEN)
    assert rig.store.remove_schedule(NAME, rig.stamp)


def _flow(mode: OnChildFailure, *, act: str) -> Fate:
    """A parent of three, one of which is a parent of one: its end, and what it does to them."""

    def live(rig: Rig) -> None:
        store = rig.store
        parent = _parent(rig, "p", ["a", "b", "nested"], mode)
        nested = _parent(rig, "nested", ["leaf"], "continue", parent=f"{parent}\nnested")
        _child(rig, "a", parent, "ack_completed")
        if act != "cancel":
            _child(rig, "b", parent, "ack_failed")
        _child(rig, "leaf", nested, "ack_completed")
        if act == "cancel":
            store.cancel(parent)
        _carry(rig)
        if act == "remove":
            assert store.remove(parent)
        if store.get_states([nested])[0] is JobState.WAITING:
            store.ack_completed(rig.claim("collects"), "collects")
            _carry(rig)
        if store.get_states([parent])[0] is JobState.WAITING:
            store.ack_completed(rig.claim("collects"), "collects", b"r" * 99)
        if act == "retry":
            store.retry(parent)
            store.ack_completed(rig.claim("collects"), "collects")

    return live


def _parent(rig: Rig, part: str, children: list[str], mode: OnChildFailure, **given: Any) -> str:
    keep = encode_keep(Keep(age="1h"))
    job_id = rig.run(part, keep=keep, **given)
    rows = [ChildRow(key, b"row of " + key.encode()) for key in children]
    rig.store.write_manifest(job_id, TOKEN, rows, mode)
    rig.store.next_children(job_id, children)
    rig.store.ack_fanned_out(job_id, TOKEN)
    return job_id


def _child(rig: Rig, key: str, parent: str, verb: str) -> None:
    job_id = rig.run(key, parent=f"{parent}\n{key}")
    rig.store.exchange([(verb, Ack(job_id, TOKEN, b"of a child"))], None)


def _carry(rig: Rig) -> None:
    """What the relay and the flow sweeper of a worker do: carry reports, deliver cancels."""
    store = rig.store
    while entries := store.peek_outbox():
        reports = []
        for one in entries:
            parent, key = one.parent.split("\n")
            reports.append(ChildReport(parent, key, one.outcome, one.exit))
        store.record_child_results(reports)
        store.delete_outbox([one.id for one in entries])
    for row in store.flow_sweep_work(HOUR_MS):
        store.mark_children_delivered(row.parent, [row.key])


def _never_acked(rig: Rig) -> None:
    """A fan-out that was written and failed before its ack."""
    job_id = rig.run()
    rig.store.write_manifest(job_id, TOKEN, [ChildRow("a", b"row")], "continue")
    rig.store.ack_failed(job_id, TOKEN)


FATES: dict[str, Fate] = {
    "rich": _rich,
    "completed": _end("ack_completed"),
    "failed": _end("ack_failed"),
    "cancelled-active": _end("ack_cancelled", cancelled=True),
    "cancelled-retried": _end("ack_retried", cancelled=True),
    "cancelled-released": _end("release", cancelled=True),
    "cancelled-waiting": lambda rig: rig.store.cancel(rig.enqueue()),
    "cancelled-delayed": lambda rig: rig.store.cancel(rig.enqueue(delay_ms=500)),
    "stalled-once": _stall(1),
    "stalled-out": _stall(2),
    "stalled-cancelled": _stall(1, cancelled=True),
    "due": _due,
    "promoted": _promoted,
    "retried": _retried,
    "released": _released,
    "pending-key": _deduped(Dedupe, delayed=True),
    "throttled": _deduped(lambda key: Dedupe(key, ttl="1m"), delayed=False),
    "debounced": _deduped(lambda key: Dedupe(key, ttl="1m", extend=True), delayed=True),
    "replaced": _deduped(lambda key: Dedupe(key, replace=True), delayed=True),
    "replaced-window": _deduped(lambda key: Dedupe(key, ttl="1m", replace=True), delayed=True),
    "same-id": _same_id,
    "removed": _removed,
    "paused": _paused,
    "scheduled": _scheduled,
    "flow-continue": _flow("continue", act=""),
    "flow-fail": _flow("fail", act=""),
    "flow-retried": _flow("fail", act="retry"),
    "flow-cancelled": _flow("continue", act="cancel"),
    "flow-removed": _flow("fail", act="remove"),
    "flow-unacked": _never_acked,
}


@pytest.fixture
def strict(server: Server, clock: FakeClock) -> Any:
    """A store with a ceiling for what no policy takes."""
    opened = Store(server.url, clock=clock, history_ttl="1h")
    yield opened
    opened.close()


def test_a_store_in_which_everything_has_expired_holds_a_documented_constant(
    server: Server, strict: Store, clock: FakeClock
) -> None:
    """Whatever became of its jobs: the same keys as after its first, and the same fields."""
    assert snapshot(strict) == {}
    strict.declare_index(["customer"])
    while strict.backfill():
        pass
    policies = itertools.cycle(POLICIES)
    rounds = FEWER_ROUNDS if server.in_memory else ROUNDS
    for number in range(rounds):
        for fate, live in FATES.items():
            keep = encode_keep(next(policies))
            live(Rig(strict, clock, fate, str(number), keep))
        # One policy a fate and round: the next round begins elsewhere in the cycle.
        next(policies)
    assert violations(strict) == []
    assert int(snapshot(strict)[strict.keys.seq()]) >= rounds * len(FATES)
    # Of parents that were removed nobody waits; reports go nowhere.
    _carry(Rig(strict, clock, "", "", ""))
    clock.advance(HOUR_MS)
    _sweep(strict)
    assert set(strict.counts().values()) == {0}
    assert violations(strict) == []
    content = snapshot(strict)
    kinds = {key.removeprefix(strict.keys.root).partition(":")[0] for key in content}
    assert kinds - EXPIRING == LASTING_KEYS
    assert set(content[strict.keys.meta()]) == LASTING_FIELDS
    client = raw(strict)
    for key in content:
        if key.removeprefix(strict.keys.root) not in LASTING_KEYS:
            assert client.pttl(key) > 0, f"{key} stays for ever"


def _sweep(store: Store) -> None:
    """What a worker's pruner and its other sweepers do, until there is nothing left to do."""
    for _ in range(1_000):
        if not store.prune() + store.window_sweep() + len(store.stall_sweep(1)):
            return
    raise AssertionError("there is always more to sweep")
