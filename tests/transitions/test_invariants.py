"""Random walks over the store's verbs: after each step the keyspace is sound."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from servers import MEMORY, Backend, Server, memory_server
from transitions.invariants import unannounced, violations

from mq.clock import FakeClock
from mq.records import Ack, ClaimRequest, Request
from mq.states import JobState, Outcome
from mq.store import Store

ACKS = ("ack_completed", "ack_retried", "ack_failed", "ack_cancelled", "release")
COUNTED = {Outcome.COMPLETED, Outcome.RETRIED, Outcome.FAILED}
LOCK_MS = 100

queues = st.sampled_from(["q1", "q2"])
names = st.sampled_from(["a", "b", "c"])
workers = st.sampled_from([None, "worker-1", "worker-2"])
known_ids = st.integers(0, 11).map("job-{}".format)
tokens = st.sampled_from(["t1", "t2"])
delays = st.sampled_from([0, 0, 1, 60, 150])
exits = st.sampled_from([None, b"", b"short", b"x" * 65])

_prefixes = itertools.count(1)


class StoreWalk(RuleBasedStateMachine):
    """One store under a prefix of its own, and what the walk knows of its jobs."""

    server: Server

    @initialize()
    def open(self) -> None:
        """Begin with an empty store."""
        self.clock = FakeClock(0)
        self.store = Store(self.server.url, prefix=f"walk-{next(_prefixes)}", clock=self.clock)
        self.entries: dict[str, int] = {}

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.store.destroy()
        self.store.close()

    @rule(
        jobs=st.lists(st.tuples(known_ids, queues, names, delays), min_size=1, max_size=5),
        priority=st.sampled_from([-1000, -1, 0, 0, 1, 1000]),
    )
    def enqueue(self, jobs: list[tuple[str, str, str, int]], priority: int) -> None:
        """Take a batch in, some of it known already."""
        answers = self.store.enqueue_many(
            Request(
                name=name, queue=queue, payload=b"p", id=job_id, delay_ms=delay, priority=priority
            )
            for job_id, queue, name, delay in jobs
        )
        for answer in answers:
            assert answer.duplicate == (answer.id in self.entries)
            self.entries.setdefault(answer.id, 0)

    @rule(
        asked=st.lists(queues, min_size=1, max_size=2, unique=True),
        wanted=st.lists(names, min_size=1, max_size=3, unique=True),
        token=tokens,
        limit=st.integers(1, 4),
        worker=workers,
    )
    def claim(
        self, asked: list[str], wanted: list[str], token: str, limit: int, worker: str | None
    ) -> None:
        """Claim from some queues and names."""
        claim = self.store.claim(asked, wanted, token, LOCK_MS, limit, worker)
        assert len(claim.jobs) <= limit
        for job in claim.jobs:
            assert job.queue in asked
            assert job.name in wanted
            assert (job.state, job.token, job.worker) == (JobState.ACTIVE, token, worker)
            assert job.run_at <= self.clock.now_ms()

    @rule(
        acks=st.lists(st.tuples(st.sampled_from(ACKS), known_ids, tokens), min_size=1, max_size=4),
        exit_=exits,
        delay=delays,
        claims=st.booleans(),
    )
    def exchange(
        self, acks: list[tuple[str, str, str]], exit_: bytes | None, delay: int, claims: bool
    ) -> None:
        """Ack what is held and what is not, with or without a claim behind it."""
        sent = [
            (verb, Ack(job_id, token, exit_, "w", "summary", delay)) for verb, job_id, token in acks
        ]
        claim = ClaimRequest(["q1", "q2"], ["a"], "t1", LOCK_MS) if claims else None
        words, _ = self.store.exchange(sent, claim)
        for (_, job_id, _), word in zip(acks, words, strict=True):
            assert (word == "not_found") == (job_id not in self.entries)

    @rule(held=st.lists(st.tuples(known_ids, tokens), min_size=1, max_size=3))
    def extend(self, held: list[tuple[str, str]]) -> None:
        """Extend what is held and what is not."""
        self.store.extend(held, LOCK_MS)

    @rule(max_stalled=st.integers(0, 2), limit=st.integers(1, 4))
    def stall_sweep(self, max_stalled: int, limit: int) -> None:
        """Recover what has expired."""
        assert len(self.store.stall_sweep(max_stalled, limit)) <= limit

    @rule(job_id=known_ids)
    def request_cancel(self, job_id: str) -> None:
        """Flag an active job, as a cancel request does."""
        if self.store.get_states([job_id]) == [JobState.ACTIVE]:
            assert self.store.cancel(job_id) == "cancel_requested"

    @rule(job_id=known_ids, token=tokens)
    def mark(self, job_id: str, token: str) -> None:
        """Report progress and wait for a job."""
        self.store.progress(job_id, token, b"half")
        self.store.watch(job_id)

    @rule(ms=st.sampled_from([1, 60, 100]))
    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)

    @invariant()
    def keyspace_is_sound(self) -> None:
        """Sets, records, counts and markers agree."""
        assert violations(self.store) == []
        assert unannounced(self.store) == []

    @invariant()
    def no_job_and_no_entry_is_lost(self) -> None:
        """Ledgers only grow, and attempts are what the entries say."""
        for job_id, entries in self.entries.items():
            whole = self.store.get_whole(job_id)
            assert whole is not None
            record, ledger = whole
            assert len(ledger) >= entries
            self.entries[job_id] = len(ledger)
            assert record.stalled_count == sum(e.outcome is Outcome.STALLED for e in ledger)
            assert record.attempts_made >= sum(e.outcome in COUNTED for e in ledger)
            assert record.attempts_made <= sum(e.outcome is not Outcome.STALLED for e in ledger)


def _walk(server: Server, examples: int) -> None:
    class Walk(StoreWalk):
        pass

    Walk.server = server
    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        ),
    )


def test_a_random_walk_in_memory_keeps_the_keyspace_sound() -> None:
    """The in-process server runs the same scripts."""
    _walk(memory_server(Backend(MEMORY)), examples=20)


def test_a_random_walk_on_a_real_server_keeps_the_keyspace_sound(one_server: Server) -> None:
    """What the scripts promise holds on a server that enforces its own rules."""
    _walk(one_server, examples=60)
