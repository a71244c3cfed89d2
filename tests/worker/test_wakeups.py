"""Who is woken by what: pushes reach a worker that can run the job, and only such a one."""

from __future__ import annotations

import queue
from contextlib import ExitStack

from helpers import wait_until
from servers import Server
from worker.build import (
    PROMPT_S,
    Gate,
    all_finished,
    finished,
    idle,
    opened_after,
    record,
    worker_of,
)

import mq
from mq.store import Store


def test_an_idle_worker_starts_a_new_job_at_once(app: mq.App) -> None:
    """It polls once a minute, so this is a push."""
    ran: queue.SimpleQueue[int] = queue.SimpleQueue()

    @app.job("note")
    def note(number: int) -> None:
        """Tell the number."""
        ran.put(number)

    with worker_of(app) as worker:
        for number in range(5):
            wait_until(lambda: idle(worker))
            note.enqueue(number)
            assert ran.get(timeout=PROMPT_S) == number


def test_a_worker_of_other_names_is_not_woken(app: mq.App, one_server: Server) -> None:
    """Same queue, another name: no claim is made in vain, and the job waits."""

    @app.job("mine")
    def mine(payload: None) -> None:
        """Nothing."""

    other = mq.App(one_server.url).define("other", payload=type(None), result=None)
    with worker_of(app, stalled_interval="60s") as worker:
        wait_until(lambda: idle(worker))
        claims = worker.fetcher._claims
        other.enqueue_many([None] * 10)
        finished(app.store, mine.enqueue(None))
        assert worker.fetcher._claims - claims == 1
        assert [state.value for state, n in app.store.counts().items() if n] == [
            "waiting",
            "completed",
        ]


def test_a_full_worker_leaves_wake_ups_to_an_idle_one(app: mq.App, store: Store) -> None:
    """The first is stuck in its handlers; the second must start what comes later."""
    gate = Gate()
    ran: queue.SimpleQueue[str] = queue.SimpleQueue()

    @app.job("stuck", queue="first")
    def stuck(payload: None) -> None:
        """Fill the first worker."""
        gate.stop_here()

    @app.job("note", queue="both")
    def note(word: str) -> None:
        """Tell the word."""
        ran.put(word)

    with (
        worker_of(app, queues=["first", "both"], concurrency=1) as full,
        opened_after(gate),
        worker_of(app, queues=["both"], concurrency=1) as second,
    ):
        wait_until(lambda: idle(full) and idle(second))
        stuck.enqueue(None)
        gate.await_entry()
        for number in range(20):
            note.enqueue(str(number))
            assert ran.get(timeout=PROMPT_S) == str(number)


def test_a_worker_is_hungry_again_after_it_was_full(app: mq.App, store: Store) -> None:
    """One slot: it hears nothing while it runs, and everything once it is free."""
    gate = Gate()

    @app.job("stuck")
    def stuck(payload: None) -> None:
        """Wait for the test."""
        gate.stop_here()

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    with worker_of(app, concurrency=1) as worker, opened_after(gate):
        wait_until(lambda: idle(worker))
        first = stuck.enqueue(None)
        gate.await_entry()
        behind = [noop.enqueue(None) for _ in range(3)]
        gate.opened.set()
        assert finished(store, first, *behind) == ["completed"] * 4
        for _ in range(3):
            wait_until(lambda: idle(worker))
            assert finished(store, noop.enqueue(None)) == ["completed"]


def test_many_jobs_at_once_wake_several_idle_workers(app: mq.App, store: Store) -> None:
    """Wake-ups chain: each claim that leaves jobs behind wakes the next worker."""
    gate = Gate()

    @app.job("meet")
    def meet(payload: None) -> None:
        """Wait until there is one of these in every slot of every worker."""
        gate.stop_here()

    with ExitStack() as stack:
        workers = [stack.enter_context(worker_of(app, concurrency=2)) for _ in range(4)]
        stack.enter_context(opened_after(gate))
        wait_until(lambda: all(idle(worker) for worker in workers))
        meet.enqueue_many([None] * 100)
        gate.await_entry(8)
        assert [len(worker.runs) for worker in workers] == [2] * 4
        gate.opened.set()
        assert all_finished(store, 100) == {"completed": 100}


def test_a_delayed_job_starts_when_it_is_due(app: mq.App, store: Store) -> None:
    """The enqueue wakes an idle worker, which then knows until when to sleep."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    with worker_of(app) as worker:
        wait_until(lambda: idle(worker))
        later = noop.enqueue(None, delay="1s")
        sooner = noop.enqueue(None, delay="0.3s")
        assert finished(store, sooner, later) == ["completed"] * 2
    for job_id in (sooner, later):
        entry = store.get_attempts(job_id)[0]
        assert record(store, job_id).run_at <= (entry.started_at or 0)


def test_a_job_retried_with_a_delay_runs_again_when_it_is_due(app: mq.App, store: Store) -> None:
    """The worker that sent it back is idle by then."""
    tries: list[int] = []

    @app.job("twice", attempts=2, backoff=mq.fixed("0.5s"))
    def twice(payload: None) -> None:
        """Fail the first time."""
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")

    with worker_of(app):
        job_id = twice.enqueue(None)
        assert finished(store, job_id) == ["completed"]
    first, second = store.get_attempts(job_id)
    assert (second.started_at or 0) - first.finished_at >= 500
