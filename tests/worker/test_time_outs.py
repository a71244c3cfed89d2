"""Time limits of runs in threads: what they stop, what they cannot, and what the ledger says."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

import pytest
from helpers import wait_until
from worker.build import Gate, finished, opened_after, outcomes, worker_of

import mq

PROMPT = {"timeout": "150ms", "interrupt_grace": "150ms"}


def defect_of(job: mq.Job, job_id: str, nth: int = 0) -> mq.Defect:
    """The defect an attempt ended in."""
    exit_ = job.attempts(job_id)[nth].exit
    assert isinstance(exit_, mq.Defect)
    return exit_


def test_a_run_over_its_time_is_interrupted_and_its_clean_up_runs(app: mq.App) -> None:
    """The exception passes `except Exception`, and `finally` blocks and context managers run."""
    cleaned: list[str] = []

    @app.job("spin", timeout="150ms")
    def spin(payload: str) -> None:
        lock = threading.Lock()
        try:
            while True:
                try:
                    with lock:
                        sum(range(50))
                except Exception:  # noqa: BLE001 what a handler might do
                    cleaned.append("swallowed")
        finally:
            cleaned.append("finally" if lock.acquire(blocking=False) else "lock held")

    with worker_of(app):
        job_id = spin.enqueue("")
        assert finished(app.store, job_id) == ["failed"]
    assert cleaned == ["finally"]
    ended = defect_of(spin, job_id)
    assert (ended.kind, ended.type) == ("timeout", "TimeoutError")
    assert ended.message == "the run exceeded its timeout of 150ms"
    assert "in spin" in ended.traceback


def test_a_time_out_consumes_an_attempt_and_is_retried(app: mq.App) -> None:
    """A timed-out run is a failed run like any other: budget and ledger say so."""

    @app.job("slow-once", timeout="150ms", attempts=2)
    def slow_once(payload: str, ctx: mq.Context) -> int:
        while ctx.attempt == 1:
            ctx.check()
            ctx.sleep(0.01)
        return ctx.attempt

    with worker_of(app):
        job_id = slow_once.enqueue("")
        assert slow_once.await_result(job_id, timeout=15) == 2
    assert outcomes(app.store, job_id) == ["retried", "completed"]


def test_a_handler_that_sees_the_end_of_its_time_first_has_timed_out(app: mq.App) -> None:
    """`ctx.check()` may look before the worker does; the ledger says the same."""

    @app.job("punctual", timeout="150ms")
    def punctual(payload: str, ctx: mq.Context) -> None:
        while True:
            ctx.check()

    with worker_of(app) as worker:
        # The worker's own look never comes.
        worker.timekeeper.stop()
        job_id = punctual.enqueue("")
        assert finished(app.store, job_id) == ["failed"]
    assert defect_of(punctual, job_id).kind == "timeout"


@pytest.mark.parametrize("error", [TimeoutError("mine"), mq.Interrupted("mine")])
def test_a_handlers_own_time_out_is_an_ordinary_failure(app: mq.App, error: BaseException) -> None:
    """The runtime's limit is told apart by kind, not by the name of the error."""

    @app.job("raises", timeout="60s")
    def raises(payload: str) -> None:
        raise error

    with worker_of(app):
        job_id = raises.enqueue("")
        finished(app.store, job_id)
    assert defect_of(raises, job_id).kind == "raised"


def test_a_sleep_that_the_end_of_the_time_cut_short_is_a_time_out(app: mq.App) -> None:
    """What a handler would return after half a sleep is not taken for its result."""

    @app.job("sleeper", timeout="150ms")
    def sleeper(payload: str, ctx: mq.Context) -> str:
        ctx.sleep(30)
        return "as if it had slept"

    with worker_of(app, concurrency=4):
        ids = sleeper.enqueue_many([""] * 8)
        assert set(finished(app.store, *ids)) == {"failed"}
    assert {defect_of(sleeper, job_id).kind for job_id in ids} == {"timeout"}


def test_a_value_returned_within_the_grace_stands(app: mq.App) -> None:
    """An interrupt that the handler outlived does not take away what it returned."""

    @app.job("stubborn", timeout="100ms", interrupt_grace="60s")
    def stubborn(payload: str, ctx: mq.Context) -> str:
        try:
            while True:
                sum(range(50))
        except mq.Interrupted:
            return "done all the same"

    with worker_of(app):
        assert stubborn.execute("", wait=15) == "done all the same"


def test_a_handler_that_does_not_react_is_recorded_and_its_slot_replaced(
    app: mq.App, lines: Callable[..., list[str]]
) -> None:
    """A thread blocked in C is left behind: counted, logged with its stack, its result refused."""
    gate = Gate()

    @app.job("stuck", **PROMPT)
    def stuck(payload: str) -> str:
        gate.entered.release()
        # One call into C: no exception can surface before it returns.
        gate.opened._cond.acquire()
        gate.opened._cond.release()
        return "late"

    @app.job("quick")
    def quick(payload: str) -> str:
        return payload

    with worker_of(app, concurrency=1) as worker:
        gate.opened._cond.acquire()
        try:
            job_id = stuck.enqueue("")
            assert finished(app.store, job_id) == ["failed"]
            assert defect_of(stuck, job_id).kind == "timeout"
            assert worker.interrupter.strays == 1
            assert quick.execute("next", wait=15) == "next"
        finally:
            gate.opened._cond.release()
        wait_until(lambda: worker.interrupter.strays == 0, what="the stray to end")
        assert quick.execute("after", wait=15) == "after"
    assert outcomes(app.store, job_id) == ["failed"]
    left = [line for line in lines() if "left behind" in line]
    assert len(left) == 1
    assert "_cond.acquire()" in left[0]
    assert any("ended after it was given up" in line for line in lines())


def test_past_max_strays_the_worker_drains_and_exits_with_its_own_code(app: mq.App) -> None:
    """A supervisor is told to replace the process: nothing else frees what strays hold."""
    gate = Gate()

    @app.job("swallows", **PROMPT)
    def swallows(payload: str) -> None:
        while not gate.opened.is_set():
            with contextlib.suppress(BaseException):
                gate.opened.wait(0.01)

    with opened_after(gate):
        worker = worker_of(app, concurrency=2, max_strays=1, shutdown_grace="5s")
        ids = swallows.enqueue_many(["", ""])
        assert worker.run() is mq.worker.ExitCode.STRAYS
        assert [outcomes(app.store, job_id) for job_id in ids] == [["failed"], ["failed"]]


def test_on_unresponsive_wait_keeps_slot_and_lock(
    app: mq.App, lines: Callable[..., list[str]]
) -> None:
    """Runs of such a job never overlap: the next begins after the first has really ended."""
    gate = Gate()
    running = threading.Semaphore(1)
    overlapped: list[int] = []

    @app.job("alone", attempts=2, on_unresponsive="wait", interrupt=False, **PROMPT)
    def alone(payload: str, ctx: mq.Context) -> str:
        if not running.acquire(blocking=False):
            overlapped.append(ctx.attempt)
        try:
            if ctx.attempt == 1:
                gate.stop_here()
                raise RuntimeError("late")
            return "second"
        finally:
            running.release()

    with opened_after(gate), worker_of(app):
        job_id = alone.enqueue("")
        gate.await_entry()
        wait_until(
            lambda: any("slot and lock are kept" in line for line in lines()),
            what="the grace to pass",
        )
        assert outcomes(app.store, job_id) == []
        gate.opened.set()
        assert alone.await_result(job_id, timeout=15) == "second"
    assert overlapped == []
    assert outcomes(app.store, job_id) == ["retried", "completed"]
    assert defect_of(alone, job_id).kind == "timeout"


def test_without_interrupt_only_the_flag_tells(app: mq.App) -> None:
    """`interrupt=False` leaves the handler alone: it sees `ctx.cancelled` and the deadline."""

    @app.job("polite", timeout="100ms", interrupt=False)
    def polite(payload: str, ctx: mq.Context) -> bool:
        assert ctx.deadline is not None
        assert abs(ctx.deadline - time.time() * 1000) < 60_000
        ctx.cancelled.wait(15)
        return ctx.time_left() == 0.0 and bool(ctx.cancelled)

    with worker_of(app):
        assert polite.execute("", wait=15) is True


def test_on_failure_is_called_after_the_ack_and_changes_nothing(
    app: mq.App, lines: Callable[..., list[str]]
) -> None:
    """The hook sees error and context of each failed run; what it raises is logged."""
    seen: list[tuple[str, int, str]] = []
    states: list[str] = []

    def tell(error: BaseException, ctx: mq.Context) -> None:
        seen.append((str(error), ctx.attempt, mq.current_context().job_id))
        states.append(fails.poll(ctx.job_id).state.value)
        raise RuntimeError("the hook is broken")

    @app.job("fails", attempts=2, backoff=mq.fixed("60s"), on_failure=tell)
    def fails(payload: str) -> None:
        raise ValueError("no")

    with worker_of(app):
        job_id = fails.enqueue("")
        wait_until(lambda: states == ["delayed"], what="the hook")
    assert seen == [("no", 1, job_id)]
    assert outcomes(app.store, job_id) == ["retried"]
    assert any("on_failure of job fails" in line for line in lines())


def test_the_ledger_goes_on_over_a_manual_retry(app: mq.App) -> None:
    """After two failed runs the next entry is the third, with a fresh budget of two."""

    @app.job("flaky", attempts=2)
    def flaky(payload: str, ctx: mq.Context) -> int:
        if ctx.attempt < 4:
            raise ValueError(str(ctx.attempt))
        return ctx.attempt

    with worker_of(app):
        job_id = flaky.enqueue("")
        assert finished(app.store, job_id) == ["failed"]
        flaky.retry(job_id)
        assert flaky.await_result(job_id, timeout=15) == 4
    ledger = flaky.attempts(job_id)
    assert [entry.attempt for entry in ledger] == [1, 2, 3, 4]
    assert outcomes(app.store, job_id) == ["retried", "failed", "retried", "completed"]
    with pytest.raises(mq.JobNotRetryableError, match="is completed"):
        flaky.retry(job_id)
    with pytest.raises(mq.JobNotFoundError):
        flaky.retry("no-such-job")
