"""Jobs that are not runnable at once: not too early, in order, and all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from helpers import Processes, wait_until
from servers import Server
from worker.build import all_finished, outcomes, seen, start_worker, worker_of

import mq
from mq.store import Store

DUE_AT_ONCE = 3_000


def test_thousands_due_at_once_run_once_each(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """In the same millisecond, with two worker processes that stay busy until all are done."""
    note = process_app.jobs["note"]
    due = datetime.now(UTC) + timedelta(seconds=1)
    ids = note.enqueue_many([str(n) for n in range(DUE_AT_ONCE)], at=due)
    for _ in range(2):
        start_worker(proc, one_server, concurrency=10, lock_duration="30s")
    assert all_finished(process_app.store, DUE_AT_ONCE, 40) == {"completed": DUE_AT_ONCE}
    assert sorted(seen(one_server, "ran"), key=int) == [str(n) for n in range(DUE_AT_ONCE)]
    due_ms = int(due.timestamp() * 1000)
    entries = [process_app.store.get_attempts(job_id) for job_id in ids[::50]]
    assert all(len(ledger) == 1 for ledger in entries)
    assert all((ledger[0].started_at or 0) >= due_ms for ledger in entries)
    assert {ledger[0].worker_id for ledger in entries} != {entries[0][0].worker_id}


def test_due_jobs_start_in_the_order_of_their_time(app: mq.App, store: Store) -> None:
    """On one thread, and in the order of the enqueue within one instant."""
    ran: list[int] = []

    @app.job("note")
    def note(number: int) -> None:
        """Note the number."""
        ran.append(number)

    base = datetime.now(UTC) + timedelta(seconds=0.5)
    ids = [
        note.enqueue(number, at=base + timedelta(milliseconds=number // 10))
        for number in range(400)
    ]
    with worker_of(app, concurrency=1):
        all_finished(store, 400)
    assert ran == list(range(400))
    started = [store.get_attempts(job_id)[0].started_at or 0 for job_id in ids]
    assert started == sorted(started)


def test_a_delay_longer_than_the_lock_is_one_run(app: mq.App, store: Store) -> None:
    """Several workers sweep all the while; nobody takes it before its time."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    brisk = {"lock_duration": "0.3s", "lock_renew_interval": "0.1s", "stalled_interval": "0.1s"}
    with worker_of(app, **brisk), worker_of(app, **brisk), worker_of(app, **brisk):
        job_id = noop.enqueue(None, delay="1.5s")
        wait_until(lambda: outcomes(store, job_id))
    found = store.get_job(job_id)
    assert found is not None
    (entry,) = store.get_attempts(job_id)
    assert (entry.started_at or 0) - found.enqueued_at >= 1_500
    assert (entry.started_at or 0) >= found.run_at
    assert found.stalled_count == 0
