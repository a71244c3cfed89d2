"""Locks: kept while a run lasts, and what a run that lost its own is told."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from helpers import wait_until
from servers import Server
from worker.build import (
    PROMPT_S,
    Gate,
    all_finished,
    finished,
    idle,
    opened_after,
    outcomes,
    record,
    worker_of,
)

import mq
from mq.store import Store

Lines = Callable[..., list[str]]


def expire(server: Server, store: Store, job_id: str) -> None:
    """Let the lock of an active job be over, and a sweep of another worker find it."""
    server.cli("ZADD", store.keys.active(), 0, job_id)
    assert [one.id for one in store.stall_sweep(5)] == [job_id]


def test_the_heartbeat_keeps_a_job_longer_than_its_lock(
    app: mq.App, store: Store, one_server: Server
) -> None:
    """Two locks long, with sweeps all the while: one run, never stalled."""
    gate = Gate()

    @app.job("long")
    def long(payload: None) -> None:
        """End when the test says so."""
        gate.stop_here()

    with worker_of(app, lock_duration="1s", lock_renew_interval="0.2s", stalled_interval="0.1s"):
        with opened_after(gate):
            job_id = long.enqueue(None)
            gate.await_entry()
            first = record(store, job_id).processed_at or 0
            wait_until(
                lambda: (
                    float(one_server.cli("ZSCORE", store.keys.active(), job_id)) > first + 3_000
                ),
                what="the lock to be extended two locks beyond its first end",
            )
        assert finished(store, job_id) == ["completed"]
    assert outcomes(store, job_id) == ["completed"]
    assert record(store, job_id).stalled_count == 0


def test_more_than_a_hundred_locks_are_kept(app: mq.App, store: Store, one_server: Server) -> None:
    """Every one of them, though a script extends a hundred at a time."""
    gate = Gate()

    @app.job("long")
    def long(number: int) -> None:
        """End when the test says so."""
        gate.stop_here()

    with worker_of(app, concurrency=130, lock_duration="30s") as worker, opened_after(gate):
        ids = long.enqueue_many(range(130))
        gate.await_entry(130)
        one_server.cli("ZADD", store.keys.active(), *(part for one in ids for part in (0, one)))
        worker.heartbeat.beat()
        assert one_server.cli("ZCOUNT", store.keys.active(), "-inf", 0) == 0
        gate.opened.set()
        assert all_finished(store, 130) == {"completed": 130}
        assert worker.heartbeat.locks_lost == 0


def test_a_run_whose_lock_is_lost_is_told_and_its_result_refused(
    app: mq.App, store: Store, one_server: Server, lines: Lines
) -> None:
    """Taken over while it runs: its end counts for nothing, and one line says so."""
    gate = Gate()
    told = threading.Event()

    @app.job("slow", interrupt=False)
    def slow(payload: None, ctx: mq.Context) -> str:
        """The first run ends when it is told to and the test lets it."""
        if ctx.attempt > 1:
            return "second run"
        gate.entered.release()
        if ctx.cancelled.wait(PROMPT_S):
            told.set()
        gate.opened.wait(PROMPT_S)
        return "first run"

    with worker_of(app, id="loser", concurrency=1) as loser, opened_after(gate):
        job_id = slow.enqueue(None)
        gate.await_entry()
        expire(one_server, store, job_id)
        with worker_of(app, id="heir", concurrency=1):
            assert slow.await_result(job_id, timeout=PROMPT_S) == "second run"
        assert told.wait(PROMPT_S)
        gate.opened.set()
        wait_until(lambda: not len(loser.runs))
        assert loser.heartbeat.locks_lost == 1
    assert [(one.outcome.value, one.worker_id) for one in store.get_attempts(job_id)] == [
        ("stalled", "loser"),
        ("completed", "heir"),
    ]
    assert slow.await_result(job_id) == "second run"
    warned = [line for line in lines(logging.WARNING) if job_id in line and "stalled" not in line]
    assert len(warned) == 1, warned


def test_an_ack_that_comes_before_the_loss_is_known_is_refused(
    app: mq.App, store: Store, one_server: Server, lines: Lines
) -> None:
    """The heartbeat has not noticed yet: the token guards the job all the same."""
    gate = Gate()

    @app.job("slow")
    def slow(payload: None, ctx: mq.Context) -> int:
        """The first run ends when the test says so."""
        if ctx.attempt == 1:
            gate.stop_here()
        return ctx.attempt

    rare = {"lock_duration": "60s", "lock_renew_interval": "59s"}
    with worker_of(app, concurrency=1, **rare) as loser, opened_after(gate):
        job_id = slow.enqueue(None)
        gate.await_entry()
        expire(one_server, store, job_id)
        with worker_of(app, concurrency=1):
            assert slow.await_result(job_id, timeout=PROMPT_S) == 2
        gate.opened.set()
        wait_until(lambda: loser.fetcher.tally["lost"] == 1)
        assert finished(store, slow.enqueue(None))
    assert outcomes(store, job_id) == ["stalled", "completed"]
    assert slow.await_result(job_id) == 2
    assert len([line for line in lines(logging.WARNING) if "refused (lost)" in line]) == 1


def test_a_worker_that_claims_its_own_lost_job_tells_the_first_run(
    app: mq.App, store: Store, one_server: Server
) -> None:
    """It holds the job twice for a while; only the second run counts."""
    gate = Gate()
    told = threading.Event()

    @app.job("slow", interrupt=False)
    def slow(to_be_lost: bool, ctx: mq.Context) -> int:
        """The first run ends when it is told to."""
        if to_be_lost and ctx.attempt == 1:
            gate.entered.release()
            if ctx.cancelled.wait(PROMPT_S):
                told.set()
        return ctx.attempt

    with worker_of(app, concurrency=2) as worker:
        job_id = slow.enqueue(True)
        gate.await_entry()
        expire(one_server, store, job_id)
        assert finished(store, job_id) == ["completed"]
        assert told.wait(PROMPT_S), "the first run was not told that its lock is lost"
        assert worker.heartbeat.locks_lost == 1
        wait_until(lambda: not len(worker.runs))
        assert finished(store, slow.enqueue(False)) == ["completed"]
    assert outcomes(store, job_id) == ["stalled", "completed"]
    assert slow.await_result(job_id) == 2


def test_handlers_that_hold_the_interpreter_do_not_starve_the_heartbeat(
    app: mq.App, store: Store
) -> None:
    """All slots are in C code for tens of milliseconds at a time, and longer than a lock."""

    @app.job("busy")
    def busy(seconds: float) -> int:
        """Keep the interpreter's lock for a while, again and again."""
        until, sums = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            sums += sum(range(500_000)) and 1
        return sums

    options: dict[str, Any] = {"lock_duration": "2s", "lock_renew_interval": "0.5s"}
    with worker_of(app, concurrency=4, stalled_interval="0.2s", **options) as worker:
        wait_until(lambda: idle(worker))
        ids = busy.enqueue_many([2.5] * 4)
        assert finished(store, *ids, timeout=30) == ["completed"] * 4
        assert worker.heartbeat.locks_lost == 0
    assert {tuple(outcomes(store, job_id)) for job_id in ids} == {("completed",)}
