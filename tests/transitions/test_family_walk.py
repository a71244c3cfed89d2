"""Random walks over retention, flows, the outbox and schedules: after each step all is sound.

What each verb answers is told elsewhere; here steps come in any order, so that a policy, a cancel
and a report meet each other in states that nobody thought of.
"""

from __future__ import annotations

import contextlib
import itertools

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from servers import MEMORY, Backend, Server, memory_server
from transitions.invariants import unannounced, violations
from transitions.seed import write_children
from transitions.walks import walk

from mq.cadence import Cadence
from mq.clock import FakeClock
from mq.errors import JobNotFoundError, LockLostError
from mq.policies import Keep, encode_keep
from mq.records import Ack, Request, ScheduleRecord
from mq.states import FINISHED, JobState
from mq.store import Store
from mq.store.families import ChildReport, OnChildFailure
from mq.store.steering import Verb

ACKS = ("ack_completed", "ack_retried", "ack_failed", "ack_cancelled", "release", "ack_fanned_out")
LOCK_MS = 100
IDS = [f"job-{at}" for at in range(4)]
CHILDREN = ["a", "b", "c"]
POLICIES = [
    Keep(count=0), Keep(count=1), Keep(count=2, age=0.1), Keep(age=0.06), Keep(age=0),
    {"failed": Keep(count=1)},
    {"completed": Keep(age=0.1), "cancelled": Keep(count=0, age="36500d")},
]  # fmt: skip

ids = st.sampled_from(IDS)
names = st.sampled_from(["a", "b"])
tokens = st.sampled_from(["t1", "t2"])
exits = st.sampled_from([None, b"", b"exit"])
keys = st.lists(st.sampled_from(CHILDREN), max_size=3, unique=True)
modes: st.SearchStrategy[OnChildFailure] = st.sampled_from(["continue", "fail"])
outcomes = st.sampled_from(["completed", "failed", "cancelled"])
verbs: st.SearchStrategy[Verb] = st.sampled_from(["cancel_request", "retry", "promote", "remove"])

_prefixes = itertools.count(1)


class FamilyWalk(RuleBasedStateMachine):
    """One store under a prefix of its own."""

    server: Server

    @initialize(ceiling=st.sampled_from([None, 0.3, {"failed": 0.2}]))
    def open(self, ceiling: object) -> None:
        """Begin with an empty store."""
        self.clock = FakeClock(0)
        self.store = Store(
            self.server.url, prefix=f"family-{next(_prefixes)}", clock=self.clock,
            history_ttl=ceiling,  # type: ignore[arg-type]
        )  # fmt: skip

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.store.destroy()
        self.store.close()

    @rule(
        job_id=ids,
        name=names,
        delay=st.sampled_from([0, 0, 60]),
        keep=st.none() | st.sampled_from(POLICIES),
        parent=st.sampled_from(["", "", "1\nstore\nparent\nkey"]),
    )
    def enqueue(self, job_id: str, name: str, delay: int, keep: object, parent: str) -> None:
        """Take a job in, some with a policy, some as a child."""
        self.store.enqueue(
            Request(
                name=name, queue="q", payload=b"body", id=job_id, delay_ms=delay,
                keep=encode_keep(keep), parent=parent,
            )
        )  # fmt: skip

    @rule(token=tokens, limit=st.integers(1, 4))
    def claim(self, token: str, limit: int) -> None:
        """Claim of both names."""
        self.store.claim(["q"], ["a", "b"], token, LOCK_MS, limit)

    @rule(job_id=ids, token=tokens, children=keys, mode=modes)
    def write(self, job_id: str, token: str, children: list[str], mode: OnChildFailure) -> None:
        """Note children, with or without an ack behind it."""
        with contextlib.suppress(LockLostError, JobNotFoundError):
            write_children(self.store, job_id, token, children, mode)

    @rule(
        token=tokens,
        children=keys,
        mode=modes,
        instead=st.sampled_from([None, None, "release", "ack_failed", "ack_cancelled"]),
    )
    def fan_out(
        self, token: str, children: list[str], mode: OnChildFailure, instead: str | None
    ) -> None:
        """Claim something and fan it out; or note its children, and then end it otherwise."""
        for job in self.store.claim(["q"], ["a", "b"], token, LOCK_MS, 2).jobs:
            write_children(self.store, job.id, token, children, mode)
            if instead:
                self.store.exchange([(instead, Ack(job.id, token))], None)
                continue
            assert self.store.ack_fanned_out(job.id, token) == "fanned_out"
            landed = self.store.get_job(job.id)
            assert landed is not None
            assert landed.flow == "collect"

    @rule(verb=st.sampled_from(ACKS), token=tokens, exit_=exits, some=st.sets(ids, min_size=1))
    def ack(self, verb: str, token: str, exit_: bytes | None, some: set[str]) -> None:
        """End what is held and what is not, in one call."""
        self.store.exchange([(verb, Ack(one, token, exit_)) for one in sorted(some)], None)

    @rule(
        reports=st.lists(
            st.tuples(ids, st.sampled_from([*CHILDREN, "unknown"]), outcomes, exits),
            min_size=1,
            max_size=6,
        )
    )
    def record(self, reports: list[tuple[str, str, str, bytes | None]]) -> None:
        """Report children that are open, settled, twice told and unknown."""
        states = self.store.get_states([one[0] for one in reports])
        applied = self.store.record_child_results([ChildReport(*one) for one in reports])
        for state, was_applied in zip(states, applied, strict=True):
            assert state is JobState.WAITING_CHILDREN or not was_applied

    @rule(job_id=ids, limit=st.integers(0, 2))
    def start(self, job_id: str, limit: int) -> None:
        """Enqueue the next children of a parent, and say so."""
        rows = self.store.next_children(job_id, limit=limit)
        assert len(rows) <= limit
        self.store.next_children(job_id, [row.key for row in rows], limit=0)

    @rule(age=st.sampled_from([0, 60, 150]), limit=st.integers(1, 4), delivers=st.booleans())
    def sweep(self, age: int, limit: int, delivers: bool) -> None:
        """Look after rows that were open for long, and deliver cancels."""
        rows = self.store.flow_sweep_work(age, limit)
        assert len(rows) <= limit
        for row in rows:
            state = self.store.get_states([row.parent])[0]
            owed = row.kind in ("owed", "owed_unstarted")
            assert owed == (state is not JobState.WAITING_CHILDREN)
            if delivers and owed:
                self.store.mark_children_delivered(row.parent, [row.key])

    @rule(job_id=ids, page=st.integers(1, 2))
    def read(self, job_id: str, page: int) -> None:
        """Page through the children of a parent: in order, and as many as are counted."""
        items, cursor = [], None
        while True:
            found = self.store.list_child_results(job_id, page, cursor)
            items += found.items
            cursor = found.cursor
            if cursor is None:
                break
        assert [one.key for one in items] == sorted(one.key for one in items)
        counts = found.counts
        assert len(items) == counts.total
        for outcome in ("completed", "failed", "cancelled", "pending"):
            assert sum(one.outcome == outcome for one in items) == getattr(counts, outcome)

    @rule(limit=st.integers(1, 3), deletes=st.booleans())
    def carry(self, limit: int, deletes: bool) -> None:
        """Read the outbox from its old end, and delete what was read."""
        entries = [one.id for one in self.store.peek_outbox(limit)]
        assert entries == sorted(entries, key=int)
        if deletes:
            self.store.delete_outbox([*entries, "0"])
            left = [one.id for one in self.store.peek_outbox(50)]
            assert not set(left) & set(entries)

    @rule(verb=verbs, some=st.sets(ids, min_size=1))
    def steer(self, verb: Verb, some: set[str]) -> None:
        """Cancel, retry, promote or remove."""
        self.store.steer(verb, sorted(some))

    @rule(max_stalled=st.integers(0, 1))
    def stall_sweep(self, max_stalled: int) -> None:
        """Recover what has expired."""
        self.store.stall_sweep(max_stalled)

    @rule(limit=st.integers(1, 4))
    def prune(self, limit: int) -> None:
        """Apply what retention is left over; nothing unfinished goes."""
        before = dict(zip(IDS, self.store.get_states(IDS), strict=True))
        self.store.prune(limit)
        after = dict(zip(IDS, self.store.get_states(IDS), strict=True))
        assert all(
            before[job_id] in FINISHED and after[job_id] is None
            for job_id in IDS
            if before[job_id] is not after[job_id]
        )

    @rule(key=st.sampled_from(["k1", "k2"]), every=st.sampled_from([40, 70]))
    def register(self, key: str, every: int) -> None:
        """Register a schedule, or take it over."""
        now = self.clock.now_ms()
        self.store.upsert_schedule(
            ScheduleRecord(
                name="a", key=key, cadence=Cadence(every_ms=every), anchor=now,
                request=Request(name="a", queue="q", payload=b"slot", keep="completed=0/*"),
                next_run_at=now + every,
            )
        )  # fmt: skip

    @rule(what=st.sampled_from(["remove_schedule", "pause_schedule", "resume_schedule"]))
    def turn(self, what: str) -> None:
        """Delete a schedule, or let it rest or go on."""
        getattr(self.store, what)("a", "k1")

    @rule(skips=st.booleans(), twice=st.booleans())
    def tick(self, skips: bool, twice: bool) -> None:
        """Make what is due a job, or move on without; a second tick of an occurrence is stale."""
        for one in self.store.due_schedules().schedules:
            slot, then = one.next_run_at, one.next_after(self.clock.now_ms())
            if skips:
                assert self.store.advance_schedule("a", one.key, slot, then)
                continue
            assert self.store.tick("a", one.key, slot, then, one.occurrence(slot))
            if twice:
                assert not self.store.tick("a", one.key, slot, then, one.occurrence(slot))

    @rule(ms=st.sampled_from([1, 60, 100]))
    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)

    @invariant()
    def keyspace_is_sound(self) -> None:
        """Sets, records, manifests, reports, schedules and markers agree."""
        assert violations(self.store) == []
        assert unannounced(self.store) == []


def test_a_random_walk_through_families_in_memory_keeps_the_keyspace_sound() -> None:
    """The in-process server runs the same scripts."""
    walk(FamilyWalk, memory_server(Backend(MEMORY)), examples=12, steps=30)


def test_a_random_walk_through_families_keeps_the_keyspace_sound(one_server: Server) -> None:
    """What the scripts promise holds on a server that enforces its own rules."""
    walk(FamilyWalk, one_server, examples=80, steps=30)
