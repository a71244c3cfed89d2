"""Random walks over the store's verbs: after each step the keyspace is sound."""

from __future__ import annotations

import itertools
from datetime import timedelta

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from servers import MEMORY, Backend, Server, memory_server
from transitions.invariants import unannounced, violations
from transitions.walks import walk

from mq.clock import FakeClock
from mq.policies import Dedupe
from mq.records import Ack, Attempt, ClaimRequest, Enqueued, JobRecord, Request
from mq.states import FINISHED, JobState, Outcome
from mq.store import Store

ACKS = ("ack_completed", "ack_retried", "ack_failed", "ack_cancelled", "release")
COUNTED = {Outcome.COMPLETED, Outcome.RETRIED, Outcome.FAILED}
DIRECT = {JobState.WAITING, JobState.DELAYED}
REMOVABLE = {*DIRECT, *FINISHED}
LOCK_MS = 100
KNOWN = [f"job-{at}" for at in range(12)]

queues = st.sampled_from(["q1", "q2"])
names = st.sampled_from(["a", "b", "c"])
workers = st.sampled_from([None, "worker-1", "worker-2"])
known_ids = st.sampled_from(KNOWN)
tokens = st.sampled_from(["t1", "t2"])
delays = st.sampled_from([0, 0, 1, 60, 150])
exits = st.sampled_from([None, b"", b"short", b"x" * 65])
priorities = st.sampled_from([-1000, -1, 0, 0, 1, 1000])
some_states = st.lists(st.sampled_from(JobState), min_size=1, unique=True)
metadata = st.dictionaries(st.sampled_from(["color", "size"]), st.sampled_from("xy"))


def _dedupe(key: str, ttl_ms: int | None, extend: bool, replace: bool) -> Dedupe:
    ttl = None if ttl_ms is None else timedelta(milliseconds=ttl_ms)
    return Dedupe(key, ttl=ttl, extend=extend and ttl_ms is not None, replace=replace)


dedupes = st.builds(
    _dedupe,
    st.sampled_from(["k1", "k2", "long" * 20]),
    st.sampled_from([None, None, 0, 60, 150]),
    st.booleans(),
    st.booleans(),
)

_prefixes = itertools.count(1)


@attrs.define
class Kept:
    """What the walk knows of a job that is there."""

    name: str
    queue: str
    payload: bytes
    metadata: dict[str, str]
    enqueued_at: int
    entries: int = 0
    retried_at: int = 0
    """Ledger entries at its last retry: counters begin anew there."""


@attrs.define
class Holder:
    """What a dedup key stands for: a job, and the mode of the enqueue that took it."""

    job_id: str
    job: Kept
    mode: Dedupe
    until: int | None


class StoreWalk(RuleBasedStateMachine):
    """One store under a prefix of its own, and what the walk knows of its jobs."""

    server: Server

    @initialize()
    def open(self) -> None:
        """Begin with an empty store."""
        self.clock = FakeClock(0)
        self.store = Store(self.server.url, prefix=f"walk-{next(_prefixes)}", clock=self.clock)
        self.jobs: dict[str, Kept] = {}
        self.holders: dict[tuple[str, str], Holder] = {}
        self.paused: set[str] = set()
        self.declared: list[str] = []
        self.payloads = itertools.count(1)
        self.states: dict[str, JobState] = {}

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.store.destroy()
        self.store.close()

    # Producing

    @rule(
        asked=st.lists(
            st.tuples(known_ids, queues, names, delays, metadata, st.none() | dedupes),
            min_size=1,
            max_size=5,
        ),
        priority=priorities,
    )
    def enqueue(
        self,
        asked: list[tuple[str, str, str, int, dict[str, str], Dedupe | None]],
        priority: int,
    ) -> None:
        """Take a batch in, some of it known already, some of it under keys that are taken."""
        requests = [
            Request(
                name=name, queue=queue, payload=str(next(self.payloads)).encode(), id=job_id,
                delay_ms=delay, priority=priority, metadata=pairs, dedupe=dedupe,
            )
            for job_id, queue, name, delay, pairs, dedupe in asked
        ]  # fmt: skip
        self._enqueue(requests)

    @rule(queue=queues, name=names, delay=delays, pairs=metadata, dedupe=dedupes)
    def enqueue_under_a_key(
        self, queue: str, name: str, delay: int, pairs: dict[str, str], dedupe: Dedupe
    ) -> None:
        """Take one in whose id is free, so that its key decides."""
        free = [job_id for job_id in KNOWN if job_id not in self.jobs]
        self._enqueue(
            [
                Request(
                    name=name, queue=queue, payload=str(next(self.payloads)).encode(),
                    id=free[0] if free else "one-more", delay_ms=delay, metadata=pairs,
                    dedupe=dedupe,
                )
            ]
        )  # fmt: skip

    def _enqueue(self, requests: list[Request]) -> None:
        states = {**self.states}
        expected = [self._decide(request, states) for request in requests]
        answers = self.store.enqueue_many(requests)
        assert [(*one, one.name) for one in answers] == [(*one, one.name) for one in expected]

    def _decide(self, request: Request, states: dict[str, JobState]) -> Enqueued:
        """What the contract says of one request; `states` and what is known move with it."""
        assert request.id is not None
        if request.id in self.jobs:
            return Enqueued(request.id, True, self.jobs[request.id].name)
        now, dedupe = self.clock.now_ms(), request.dedupe
        holder = self._holder(request.name, dedupe.key, states) if dedupe else None
        if holder is not None:
            replaces = holder.mode.replace and (self._state_of(holder, states) is JobState.DELAYED)
            if replaces:
                holder.job.payload, holder.job.metadata = request.payload, {**request.metadata}
            if holder.mode.ttl_ms is not None and (replaces or holder.mode.extend):
                holder.until = now + holder.mode.ttl_ms
            return Enqueued(holder.job_id, True, request.name)
        kept = Kept(request.name, request.queue, request.payload, {**request.metadata}, now)
        self.jobs[request.id] = kept
        states[request.id] = JobState.DELAYED if request.delay_ms else JobState.WAITING
        if dedupe is not None:
            until = None if dedupe.ttl_ms is None else now + dedupe.ttl_ms
            self.holders[request.name, dedupe.key] = Holder(request.id, kept, dedupe, until)
        return Enqueued(request.id, False, request.name)

    def _state_of(self, holder: Holder, states: dict[str, JobState]) -> JobState | None:
        """Where the very job stands that took a key; None when it is gone."""
        return states[holder.job_id] if self.jobs.get(holder.job_id) is holder.job else None

    def _holder(self, name: str, key: str, states: dict[str, JobState]) -> Holder | None:
        """What a key stands for now; None when it is free."""
        holder = self.holders.get((name, key))
        if holder is None or holder.until is None:
            state = holder and self._state_of(holder, states)
            return None if state is None or state in FINISHED else holder
        return holder if self.clock.now_ms() < holder.until else None

    # Running

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
            assert job.queue not in self.paused
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
            assert (word == "not_found") == (job_id not in self.jobs)

    @rule(token=tokens, verb=st.sampled_from(ACKS), exit_=exits, delay=delays)
    def end_all(self, token: str, verb: str, exit_: bytes | None, delay: int) -> None:
        """End every run of one token, so that jobs get old enough to be steered."""
        held = [job_id for job_id, state in self.states.items() if state is JobState.ACTIVE]
        acks = [(verb, Ack(job_id, token, exit_, delay_ms=delay)) for job_id in held]
        self.store.exchange(acks, None)

    @rule(held=st.lists(st.tuples(known_ids, tokens), min_size=1, max_size=3))
    def extend(self, held: list[tuple[str, str]]) -> None:
        """Extend what is held and what is not."""
        self.store.extend(held, LOCK_MS)

    @rule(max_stalled=st.integers(0, 2), limit=st.integers(1, 4))
    def stall_sweep(self, max_stalled: int, limit: int) -> None:
        """Recover what has expired."""
        assert len(self.store.stall_sweep(max_stalled, limit)) <= limit

    @rule(job_id=known_ids, token=tokens)
    def mark(self, job_id: str, token: str) -> None:
        """Report progress and wait for a job."""
        self.store.progress(job_id, token, b"half")
        self.store.watch(job_id)

    # Steering

    @rule(ids=st.lists(known_ids, min_size=1, max_size=4))
    def cancel(self, ids: list[str]) -> None:
        """Cancel jobs wherever they stand, some of them twice."""
        words = {JobState.ACTIVE: "cancel_requested", **dict.fromkeys(DIRECT, "cancelled")}
        self._steer("cancel_request", ids, words, "not_cancellable")

    @rule(ids=st.lists(known_ids, min_size=1, max_size=4))
    def promote(self, ids: list[str]) -> None:
        """Make delayed jobs runnable."""
        self._steer("promote", ids, {JobState.DELAYED: "promoted"}, "not_promotable")

    @rule(ids=st.lists(known_ids, min_size=1, max_size=4))
    def retry(self, ids: list[str]) -> None:
        """Give failed jobs a fresh budget."""
        failed = [job_id for job_id, state in self.states.items() if state is JobState.FAILED]
        self._steer("retry", ids, {JobState.FAILED: "retried"}, "not_retryable")
        self._begin_anew([job_id for job_id in ids if job_id in failed])

    @rule(ids=st.lists(known_ids, min_size=1, max_size=4))
    def remove(self, ids: list[str]) -> None:
        """Delete jobs."""
        self._steer("remove", ids, dict.fromkeys(REMOVABLE, "removed"), "not_removable")
        for job_id in {*ids}:
            if self.states.get(job_id) in REMOVABLE:
                del self.jobs[job_id]

    def _steer(self, verb: str, ids: list[str], words: dict[JobState, str], refusal: str) -> None:
        answered = self.store.steer(verb, ids)  # type: ignore[arg-type]
        assert [word for word, _ in answered] == [
            words.get(self.states[job_id], refusal) if job_id in self.states else "not_found"
            for job_id in ids
        ]

    def _begin_anew(self, ids: list[str]) -> None:
        for job_id in ids:
            self.jobs[job_id].retried_at = len(self.store.get_attempts(job_id))

    @rule(name=names, key=st.sampled_from(["k1", "k2", "long" * 20]))
    def cancel_by_key(self, name: str, key: str) -> None:
        """Cancel what a key stands for."""
        holder = self._holder(name, key, self.states)
        state = holder and self._state_of(holder, self.states)
        pending = state is not None and state not in FINISHED
        assert self.store.cancel_by_key(name, key) is pending

    @rule(queue=queues)
    def pause(self, queue: str) -> None:
        """Hold a queue."""
        assert self.store.pause(queue) is (queue not in self.paused)
        self.paused.add(queue)
        assert self.store.paused_queues() == sorted(self.paused)

    @rule(queue=queues)
    def resume(self, queue: str) -> None:
        """Let a queue go."""
        assert self.store.resume(queue) is (queue in self.paused)
        self.paused.discard(queue)
        assert self.store.paused_queues() == sorted(self.paused)

    @rule(
        verb=st.sampled_from(["cancel_where", "retry_where", "remove_where"]),
        queue=queues,
        pairs=metadata,
        dry_run=st.booleans(),
    )
    def do_to_all(self, verb: str, queue: str, pairs: dict[str, str], dry_run: bool) -> None:
        """Cancel, retry or remove all jobs of a list."""
        lands = {
            "cancel_where": {*DIRECT, JobState.ACTIVE},
            "retry_where": {JobState.FAILED},
            "remove_where": REMOVABLE,
        }[verb]
        met = self._in_order(lands, queue, None, pairs)
        act = getattr(self.store, verb)
        result = act(queue=queue, metadata=pairs, dry_run=dry_run)
        assert (result.ids, result.refused) == (met, {})
        if dry_run:
            assert self.store.get_states(list(self.jobs)) == list(self.states.values())
        elif verb == "retry_where":
            self._begin_anew(met)
        elif verb == "remove_where":
            for job_id in met:
                del self.jobs[job_id]

    # Looking, and upkeep

    @rule(
        states=some_states,
        queue=st.none() | queues,
        name=st.none() | names,
        pairs=metadata,
        limit=st.integers(1, 4),
        descending=st.booleans(),
    )
    def look(
        self,
        states: list[JobState],
        queue: str | None,
        name: str | None,
        pairs: dict[str, str],
        limit: int,
        descending: bool,
    ) -> None:
        """Read a list to its end: exactly the jobs that fit, in order."""
        found: list[JobRecord] = []
        cursor: str | None = None
        while cursor is not None or not found:
            page = self.store.list(
                queue=queue, name=name, states=states, metadata=pairs, limit=limit, cursor=cursor,
                order="desc" if descending else "asc",
            )  # fmt: skip
            assert len(page.items) <= limit
            found += page.items
            cursor = page.cursor
            if cursor is None:
                break
        ids = self._in_order(set(states), queue, name, pairs)
        assert [one.id for one in found] == (ids[::-1] if descending else ids)

    def _in_order(
        self, states: set[JobState], queue: str | None, name: str | None, pairs: dict[str, str]
    ) -> list[str]:
        fitting = [
            (self.jobs[job_id].enqueued_at, job_id.encode(), job_id)
            for job_id, state in self.states.items()
            if state in states
            and queue in {None, self.jobs[job_id].queue}
            and name in {None, self.jobs[job_id].name}
            and pairs.items() <= self.jobs[job_id].metadata.items()
        ]
        return [job_id for _, _, job_id in sorted(fitting)]

    @rule(keys=st.lists(st.sampled_from(["color", "size"]), min_size=1, unique=True))
    def declare_index(self, keys: list[str]) -> None:
        """Keep an index of a metadata key from now on."""
        fresh = [key for key in keys if key not in self.declared]
        assert self.store.declare_index(keys) == len(fresh)
        self.declared += fresh

    @rule(limit=st.integers(1, 4), steps=st.integers(1, 9))
    def backfill(self, limit: int, steps: int) -> None:
        """Work at the indexes that are not complete."""
        for _ in range(steps):
            done = self.store.backfill(limit)
            if done is None:
                assert self.store.index_states() == dict.fromkeys(self.declared, True)
                break
            assert done[0] in self.declared
            assert done[1] <= limit

    @rule(limit=st.integers(1, 4))
    def window_sweep(self, limit: int) -> None:
        """Delete windows that are over."""
        assert self.store.window_sweep(limit) <= limit

    @rule(ms=st.sampled_from([1, 60, 100]))
    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)

    # What holds after each step

    @invariant()
    def keyspace_is_sound(self) -> None:
        """Sets, records, counts and markers agree."""
        assert violations(self.store) == []
        assert unannounced(self.store) == []

    @invariant()
    def no_job_and_no_entry_is_lost(self) -> None:
        """Ledgers only grow, attempts are what the entries say, and nothing else was written."""
        self.states = {}
        for job_id, whole in zip(self.jobs, self.store._get(list(self.jobs), "whole"), strict=True):
            assert whole is not None
            record, ledger = whole
            self.states[job_id] = record.state
            self._check(record, ledger, self.jobs[job_id])
        self._free_keys()

    def _check(self, record: JobRecord, ledger: list[Attempt], kept: Kept) -> None:
        assert len(ledger) >= kept.entries
        kept.entries = len(ledger)
        recent = ledger[kept.retried_at :]
        assert record.stalled_count == sum(e.outcome is Outcome.STALLED for e in recent)
        assert record.attempts_made >= sum(e.outcome in COUNTED for e in recent)
        assert record.attempts_made <= sum(e.outcome is not Outcome.STALLED for e in recent)
        assert (record.name, record.queue) == (kept.name, kept.queue)
        assert (record.payload, record.metadata) == (kept.payload, kept.metadata)
        assert record.enqueued_at == kept.enqueued_at

    def _free_keys(self) -> None:
        """A key without a window is given up when its job is no longer pending, and for good."""
        self.holders = {
            named: holder
            for named, holder in self.holders.items()
            if holder.until is not None or self._holder(*named, self.states) is not None
        }


def test_a_random_walk_in_memory_keeps_the_keyspace_sound() -> None:
    """The in-process server runs the same scripts."""
    walk(StoreWalk, memory_server(Backend(MEMORY)), examples=12, steps=25)


def test_a_random_walk_on_a_real_server_keeps_the_keyspace_sound(one_server: Server) -> None:
    """What the scripts promise holds on a server that enforces its own rules."""
    walk(StoreWalk, one_server, examples=50, steps=25)
