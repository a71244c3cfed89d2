"""Retention at work: what finishes by its own policy, and what the pruner does over time."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from helpers import wait_until
from servers import Server
from transitions.invariants import violations
from transitions.seed import raw, snapshot
from worker.build import Gate, all_finished, finished, opened_after, record, worker_of

import mq
from mq.clock import FakeClock
from mq.errors import StoreError
from mq.policies import encode_keep
from mq.store import PRUNE_BATCH, Store
from mq.store.steering import Verb
from mq.worker.options import read_options
from mq.worker.outage import Streak
from mq.worker.pruner import Pruner

SOON = "0.05s"
HOUR_MS = 3_600_000
VERBS: tuple[Verb, ...] = ("cancel_request", "promote", "remove", "retry")


class Refusal(Exception):
    """A handler's declared error."""


@pytest.fixture
def aged(one_server: Server, clock: FakeClock) -> Iterator[mq.App]:
    """An app on a real server whose time is the test's."""
    made = mq.App(one_server.url, clock=clock)
    yield made
    made.close()


def note(app: mq.App, name: str = "note", **options: Any) -> mq.Job[str, str]:
    """A job that returns its payload, or fails when that is `bad`."""

    @app.job(name, error=Refusal, **options)
    def job(word: str) -> str:
        if word == "bad":
            raise Refusal(word)
        return word

    return job


def gone(store: Store, *job_ids: str) -> None:
    """Wait until none of these jobs is there."""
    wait_until(lambda: set(store.get_states(job_ids)) == {None}, what="jobs to be pruned")


def left_over(store: Store) -> set[str]:
    """Every key but the store's hash, its counter, and what Redis expires by itself."""
    client = raw(store)
    found = client.scan_iter(match=store.keys.root + "*", count=1000)
    lasting = {key.decode() for key in found if client.pttl(key) == -1}
    return lasting - {store.keys.meta(), store.keys.seq()}


def test_a_worker_prunes_what_is_past_its_age(
    aged: mq.App, clock: FakeClock, lines: Callable[..., list[str]]
) -> None:
    """Not before, and of a name that went quiet; it says how many."""
    store = aged.store
    old, young = note(aged, "old", keep=mq.Keep(age="1h")), note(aged, keep=mq.Keep(age="2h"))
    with worker_of(aged, history_interval=SOON, poll_interval=SOON):
        ids = [old.enqueue("a"), old.enqueue("bad"), young.enqueue("c")]
        assert finished(store, *ids) == ["completed", "failed", "completed"]
        assert store.prune() == 0
        clock.advance(HOUR_MS)
        gone(store, *ids[:2])
        assert store.get_job(ids[2]) is not None
        clock.advance(HOUR_MS)
        gone(store, ids[2])
        wait_until(lambda: len(told(lines)) == 2, what="both reports")
    assert told(lines) == ["pruned 2 finished jobs", "pruned 1 finished jobs"]
    assert violations(store) == []


def told(lines: Callable[..., list[str]]) -> list[str]:
    """What pruners have logged."""
    return [line for line in lines(logging.INFO) if line.startswith("pruned ")]


def test_a_worker_prunes_to_the_ceiling_of_its_store(one_server: Server, clock: FakeClock) -> None:
    """Jobs that nobody gave a policy, and those whose own is laxer; split by state."""
    app = mq.App(one_server.url, clock=clock, history_ttl={"completed": "1h", "failed": "3h"})
    store = app.store
    job, lax = note(app), note(app, "lax", keep=mq.Keep(age="9h"))
    with worker_of(app, history_interval=SOON, poll_interval=SOON):
        good = [job.enqueue("a"), lax.enqueue("b")]
        bad = [job.enqueue("bad"), lax.enqueue("bad")]
        cancelled = job.enqueue("c", delay="1h")
        job.cancel(cancelled)
        finished(store, *good, *bad)
        clock.advance(HOUR_MS)
        gone(store, *good)
        assert None not in store.get_states([*bad, cancelled])
        clock.advance(2 * HOUR_MS)
        gone(store, *bad)
        assert store.get_job(cancelled) is not None
    assert violations(store) == []
    app.close()


def test_a_ceiling_that_is_shortened_is_applied_in_steps(
    one_server: Server, clock: FakeClock
) -> None:
    """One look does it all, however many jobs there are, whichever worker has the ceiling."""
    plain = mq.App(one_server.url, clock=clock)
    job = note(plain)
    with worker_of(plain, concurrency=10):
        job.enqueue_many(["a"] * (5 * PRUNE_BATCH))
        all_finished(plain.store, 5 * PRUNE_BATCH, 30)
    clock.advance(HOUR_MS)
    strict = mq.App(one_server.url, clock=clock, history_ttl="1h")
    note(strict)
    # Its first look is the only one within any test.
    with worker_of(strict, history_interval="1h"):
        wait_until(lambda: not any(plain.store.counts().values()), 30, "the store to be empty")
    assert left_over(plain.store) == set()
    strict.close()
    plain.close()


def test_the_policy_is_that_of_the_job_not_of_the_worker(aged: mq.App, one_server: Server) -> None:
    """A worker whose definition says nothing, or something else, applies what the record says."""
    store = aged.store
    note(aged, keep=mq.Keep(count=1_000))
    producer = mq.App(one_server.url)
    mine: mq.Job[str, str] = producer.define(
        "note", payload=str, result=str, keep={"completed": mq.Keep(count=2)}
    )
    with worker_of(aged, concurrency=1):
        job_ids = [mine.enqueue("a") for _ in range(5)]
        last = mine.enqueue("b", keep=mq.Keep(count=4))
        finished(store, last)
    states = store.get_states(job_ids)
    assert [state and state.value for state in states] == [None] * 3 + ["completed"] * 2
    producer.close()


def test_a_policy_split_by_state_keeps_failures_longer(aged: mq.App, clock: FakeClock) -> None:
    """What completed is gone with its ack, what was cancelled stays, what failed goes with time."""
    store = aged.store
    job = note(aged, keep={"completed": mq.Keep(count=0), "failed": mq.Keep(age="7d")})
    with worker_of(aged, history_interval=SOON):
        cancelled = job.enqueue("x", delay="1h")
        job.cancel(cancelled)
        good, bad = job.enqueue("a"), job.enqueue("bad")
        gone(store, good)
        assert finished(store, bad) == ["failed"]
        clock.advance(7 * 24 * HOUR_MS)
        gone(store, bad)
        assert store.get_states([cancelled]) == [mq.JobState.CANCELLED]
    assert violations(store) == []


def test_a_job_that_is_gone_with_its_ack_is_still_awaited(aged: mq.App) -> None:
    """Its waiter learns that it is not there, and does not wait for ever."""
    job = note(aged, keep=mq.Keep(count=0))
    gate = Gate()

    @aged.job("held", keep=mq.Keep(count=0))
    def held(word: str) -> str:
        gate.stop_here()
        return word

    with opened_after(gate), worker_of(aged):
        gone(aged.store, job.enqueue("a"))
        job_id = held.enqueue("b")
        gate.await_entry()
        raised: list[BaseException] = []

        def wait() -> None:
            try:
                held.await_result(job_id, timeout="60s")
            except mq.MQError as error:
                raised.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        gate.opened.set()
        waiter.join(30)
        assert not waiter.is_alive()
        assert held.poll(job_id) is None
    assert [type(error) for error in raised] == [mq.JobNotFoundError]


def test_who_executes_a_job_that_keeps_nothing_learns_that_it_is_gone(
    aged: mq.App, lines: Callable[..., list[str]]
) -> None:
    """At once, however it ended; `on_failure` is called all the same."""
    told: list[str] = []
    job = note(aged, keep=mq.Keep(age=0), on_failure=lambda _, ctx: told.append(ctx.job_id))
    with worker_of(aged):
        for word in ("a", "bad"):
            with pytest.raises(mq.JobNotFoundError) as caught:
                job.execute(word, timeout="60s")
            assert caught.value.job_id
            assert job.poll(caught.value.job_id) is None
        wait_until(lambda: told, what="on_failure to be called")
    assert told == [caught.value.job_id]
    assert [line for line in lines(logging.WARNING) if "refused" in line] == []


def test_a_pruner_stops_in_the_middle_of_its_work(aged: mq.App, clock: FakeClock) -> None:
    """A shutdown does not wait until a million jobs are gone."""
    store = aged.store
    pruner = Pruner(store, read_options(history_interval=SOON), Streak())
    steps: list[int] = []

    class Endless(Store):
        """There is always more to prune."""

        def prune(self, limit: int = PRUNE_BATCH) -> int:
            """Say that a full step was done; the pruner is told to stop in the third."""
            steps.append(limit)
            if len(steps) == 3:
                pruner.stop()
            return limit

    pruner._store = Endless("memory://", clock=clock)
    pruner.start()
    pruner.join(10)
    assert not pruner.is_alive()
    assert steps == [PRUNE_BATCH] * 3


def test_an_outage_keeps_a_pruner_from_nothing_else(aged: mq.App, clock: FakeClock) -> None:
    """It looks again when Redis is back."""
    store = aged.store
    job = note(aged, keep=mq.Keep(age="1h"))
    with worker_of(aged):
        job_id = job.enqueue("a")
        finished(store, job_id)
    clock.advance(HOUR_MS)

    class Away(Store):
        """Away at the first look."""

        looks = 0

        def prune(self, limit: int = PRUNE_BATCH) -> int:
            """Fail once."""
            self.looks += 1
            if self.looks == 1:
                raise StoreError("Redis is away")
            return store.prune(limit)

    pruner = Pruner(Away("memory://", clock=clock), read_options(history_interval=SOON), Streak())
    pruner.start()
    gone(store, job_id)
    pruner.stop()
    pruner.join(10)
    assert not pruner.is_alive()


def test_workers_that_prune_together_prune_each_job_once(
    aged: mq.App, clock: FakeClock, lines: Callable[..., list[str]]
) -> None:
    """What one has removed another does not count."""
    store = aged.store
    job = note(aged, keep=mq.Keep(age="1h"))
    number = 4 * PRUNE_BATCH
    with worker_of(aged, concurrency=10):
        job.enqueue_many(["a"] * number)
        all_finished(store, number, 30)
    clock.advance(HOUR_MS)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(worker_of(aged, history_interval=SOON))
        wait_until(lambda: not any(store.counts().values()), 30, "the store to be empty")
    assert sum(int(line.split()[1]) for line in told(lines)) == number
    assert left_over(store) == set()


@pytest.mark.parametrize("seed", range(3))
def test_everything_that_can_expire_leaves_nothing_behind(
    aged: mq.App, clock: FakeClock, seed: int
) -> None:
    """After any mix of outcomes: the store's hash and its counter are all there is."""
    draw, store, gate = random.Random(seed), aged.store, Gate()
    keep = mq.Keep(age="1h")
    jobs = [
        note(aged, f"n{at}", queue=queue, keep=keep, attempts=2, metadata=lambda w: {"word": w[:9]})
        for at, queue in enumerate(("default", "side", "side"))
    ]
    # Long text stands in a key of its own, and must go as well.
    words = ["a", "bad", "w" * 5_000]

    @aged.job("held", keep=keep)
    def held(word: str) -> str:
        gate.stop_here()
        return word

    stalled = note(aged, "stalled", queue="lost", keep=keep)
    flow = parent_of(aged, keep)
    with opened_after(gate):
        # A worker died with these; one has used up what it may stall.
        lost = [stalled.enqueue("a") for _ in range(4)]
        for _ in range(2):
            assert store.claim(["lost"], ["stalled"], "dead", 1, 2, "w").jobs
            clock.advance(10)
            store.stall_sweep(1)
        with worker_of(aged, history_interval=SOON, flow_interval=SOON, poll_interval=SOON):
            running = held.enqueue("r")
            parents = [flow.enqueue(word) for word in ("ada", "bob")]
            for _ in range(150):
                job, word = draw.choice(jobs), draw.choice(words)
                key = draw.choice(["k1", "k2"])
                dedupe = draw.choice(
                    [None, key, mq.Dedupe(key, ttl="1m"), mq.Dedupe(key, replace=True)]
                )
                job_id = job.enqueue(
                    word,
                    delay=draw.choice([None, "10m"]),
                    dedupe=dedupe,
                    metadata={"nth": str(draw.randrange(3))},
                )
                if draw.random() < 0.2:
                    store.steer(draw.choice(VERBS), [job_id])
            gate.await_entry()
            held.cancel(running)
            gate.opened.set()
            clock.advance(10 * 60_000)
            finished(store, running, *lost, *parents, timeout=30)
            wait_until(lambda: unfinished(store) == 0, 30, "all jobs to finish")
            clock.advance(HOUR_MS)
            wait_until(lambda: not any(store.counts().values()), 30, "all jobs to be pruned")
            wait_until(lambda: left_over(store) == set(), 30, "all keys to be gone")
    assert violations(store) == []
    meta = snapshot(store)[store.keys.meta()]
    assert [field for field in meta if field.startswith("seen:")] == []


def parent_of(app: mq.App, keep: mq.Keep) -> mq.Job[str, int]:
    """A parent of three children, one of which fails."""
    child = note(app, "child", keep=keep)
    parent: mq.Job[str, int] = app.define("parent", payload=str, result=int, keep=keep)
    family = app.flow("family", parent=parent, children=[child])

    @family.fan_out
    def fan_out(word: str) -> Any:
        return [child.child(key=one, payload=one) for one in (word, "bad", "x")]

    @family.collect
    def collect(word: str, results: Any) -> int:
        return int(results.counts.completed)

    return parent


def unfinished(store: Store) -> int:
    """How many jobs have not ended."""
    return sum(number for state, number in store.counts().items() if not state.finished)


def test_a_policy_that_is_kept_shows_on_the_record(aged: mq.App) -> None:
    """From the definition to the job that has finished."""
    keep = mq.Keep(count=3, age="1d")
    job = note(aged, keep=keep)
    with worker_of(aged):
        job_id = job.enqueue("a")
        finished(aged.store, job_id)
    assert record(aged.store, job_id).keep == encode_keep(keep)
