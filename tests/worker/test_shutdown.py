"""A worker that stops: what runs may end, what does not is given back, and nothing is charged."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest
from helpers import wait_until
from servers import Server
from worker.build import (
    PROMPT_S,
    Gate,
    finished,
    idle,
    opened_after,
    outcomes,
    record,
    state,
    worker_of,
)

import mq
from mq.store import Store


def test_a_stop_lets_runs_finish(app: mq.App, store: Store) -> None:
    """Within the grace nothing is interrupted, and nothing new begins."""
    gate = Gate()

    @app.job("slow")
    def slow(word: str) -> str:
        """End when the test says so."""
        gate.stop_here()
        return word

    worker = worker_of(app, concurrency=1)
    worker.start()
    first, second = slow.enqueue("first"), slow.enqueue("second")
    gate.await_entry()
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    wait_until(lambda: not worker.fetcher._claiming)
    gate.opened.set()
    stopping.join(PROMPT_S)
    assert not stopping.is_alive()
    assert slow.await_result(first, timeout=0) == "first"
    assert (state(store, second), outcomes(store, second)) == ("waiting", [])


def test_what_does_not_end_within_the_grace_is_given_back(
    app: mq.App, store: Store, lines: Callable[..., list[str]]
) -> None:
    """Runnable at once elsewhere, no attempt spent; what the stray handler returns is not sent."""
    gate = Gate()
    returned = threading.Event()

    @app.job("stubborn", interrupt=False)
    def stubborn(payload: None) -> str:
        """Take no notice of a stop."""
        if len(gates) == 2:
            return "second"
        gates.append(gate)
        gate.stop_here()
        returned.set()
        return "first"

    gates: list[Gate] = [gate]
    first = worker_of(app, id="first", shutdown_grace="0.1s")
    first.start()
    job_id = stubborn.enqueue(None)
    gate.await_entry()
    with opened_after(gate):
        first.stop()
        assert state(store, job_id) == "waiting"
        found = record(store, job_id)
        assert (found.attempts_made, found.stalled_count, outcomes(store, job_id)) == (0, 0, [])
        with worker_of(app, id="second"):
            assert stubborn.await_result(job_id, timeout=PROMPT_S) == "second"
    assert returned.wait(PROMPT_S)
    assert [entry.worker_id for entry in store.get_attempts(job_id)] == ["second"]
    assert stubborn.await_result(job_id) == "second"
    given_back = [line for line in lines(logging.WARNING) if "given back" in line]
    assert len(given_back) == 1
    assert job_id in given_back[0]


def test_a_handler_that_ends_because_it_was_told_to_is_given_back(
    app: mq.App, store: Store
) -> None:
    """`ctx.check()` raises when a stop is out of patience: that is no failure of the job."""
    began = threading.Event()

    @app.job("polite")
    def polite(payload: None, ctx: mq.Context) -> None:
        """Check all the time."""
        began.set()
        while True:
            ctx.sleep(0.01)
            ctx.check()

    with worker_of(app, shutdown_grace="0.1s"):
        job_id = polite.enqueue(None)
        assert began.wait(PROMPT_S)
    assert (state(store, job_id), outcomes(store, job_id)) == ("waiting", [])
    assert record(store, job_id).attempts_made == 0


def test_a_result_that_comes_while_the_worker_stops_counts(app: mq.App, store: Store) -> None:
    """A handler that notices the stop may also return what it has."""
    began = threading.Event()

    @app.job("polite", interrupt=False)
    def polite(payload: None, ctx: mq.Context) -> str:
        """Return when told."""
        began.set()
        ctx.cancelled.wait(60)
        return "what I have"

    with worker_of(app, shutdown_grace="0.1s"):
        job_id = polite.enqueue(None)
        assert began.wait(PROMPT_S)
    assert polite.await_result(job_id, timeout=0) == "what I have"


def test_a_failure_that_comes_while_the_worker_stops_counts(app: mq.App, store: Store) -> None:
    """A stop excuses nothing but the interrupt that it raised."""
    began = threading.Event()

    @app.job("clumsy", interrupt=False)
    def clumsy(payload: None, ctx: mq.Context) -> None:
        """Fail when told."""
        began.set()
        ctx.cancelled.wait(60)
        raise ValueError("clumsy")

    with worker_of(app, shutdown_grace="0.1s"):
        job_id = clumsy.enqueue(None)
        assert began.wait(PROMPT_S)
    assert (state(store, job_id), outcomes(store, job_id)) == ("failed", ["failed"])


def test_a_pending_cancel_lands_when_the_job_is_given_back(
    app: mq.App, store: Store, one_server: Server
) -> None:
    """Cancelled, with one ledger entry, not runnable elsewhere."""
    gate = Gate()

    @app.job("stubborn", interrupt=False)
    def stubborn(payload: None) -> None:
        """Take no notice of a stop."""
        gate.stop_here()

    with opened_after(gate), worker_of(app, shutdown_grace="0.1s", lock_renew_interval="1.9s"):
        job_id = stubborn.enqueue(None)
        gate.await_entry()
        store.cancel(job_id)
    assert state(store, job_id) == "cancelled"
    assert outcomes(store, job_id) == ["cancelled"]


def test_no_claim_is_left_behind_by_a_stop(app: mq.App, store: Store) -> None:
    """A claim that is on its way when the stop comes may still bring jobs: they run, or go back."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    for _ in range(40):
        worker = worker_of(app)
        worker.start()
        wait_until(lambda worker=worker: idle(worker))
        job_id = noop.enqueue(None)
        worker.stop()
        assert state(store, job_id) in ("completed", "waiting")
        store.destroy()


def test_a_stopped_worker_leaves_the_wake_up_to_the_next(app: mq.App, store: Store) -> None:
    """What is enqueued while one stops is started by the other at once."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    with worker_of(app) as stays:
        for _ in range(20):
            leaves = worker_of(app)
            leaves.start()
            wait_until(lambda leaves=leaves: idle(leaves) and idle(stays))
            stopping = threading.Thread(target=leaves.stop)
            stopping.start()
            job_id = noop.enqueue(None)
            stopping.join(PROMPT_S)
            assert finished(store, job_id) == ["completed"]


@pytest.mark.parametrize("concurrency", [1, 120])
def test_all_held_runs_are_given_back(app: mq.App, store: Store, concurrency: int) -> None:
    """More than one batch of them, too."""
    gate = Gate()

    @app.job("stubborn", interrupt=False)
    def stubborn(number: int) -> None:
        """Take no notice of a stop."""
        gate.stop_here()

    ids = stubborn.enqueue_many(range(concurrency))
    worker = worker_of(app, concurrency=concurrency, shutdown_grace=0)
    with opened_after(gate):
        worker.start()
        gate.await_entry(concurrency)
        worker.stop()
        assert {found.value for found in store.get_states(ids) if found} == {"waiting"}
    assert store.claim(["default"], ["stubborn"], "t", 1_000, 100).jobs
