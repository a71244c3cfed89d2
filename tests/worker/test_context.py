"""What a handler sees of its own run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from helpers import wait_until
from servers import Server
from worker.build import PROMPT_S, Gate, finished, opened_after, outcomes, record, worker_of

import mq
from mq.durations import Duration
from mq.store import Store


def test_a_context_tells_all_about_the_run(app: mq.App, store: Store) -> None:
    """Also of a second run, whose numbers are those of its ledger entry."""
    seen: list[dict[str, Any]] = []

    @app.job("look", queue="side", attempts=3, timeout="1m", metadata=lambda _: {"own": "1"})
    def look(payload: None, ctx: mq.Context) -> None:
        """Note what there is, and fail the first time."""
        names = "job_id name queue attempt attempts_max enqueued_at metadata deadline".split()
        seen.append({name: getattr(ctx, name) for name in names})
        seen[-1]["now"] = time.time() * 1000
        seen[-1]["left"] = ctx.time_left()
        seen[-1]["flag"] = bool(ctx.cancelled)
        ctx.check()
        if ctx.attempt == 1:
            raise ValueError("once more")

    with worker_of(app):
        job_id = look.enqueue(None, metadata={"given": "2"})
        assert finished(store, job_id) == ["completed"]
    found = record(store, job_id)
    assert [one["attempt"] for one in seen] == [1, 2]
    for one in seen:
        assert one["job_id"] == job_id
        assert (one["name"], one["queue"], one["attempts_max"]) == ("look", "side", 3)
        assert one["enqueued_at"] == found.enqueued_at
        assert one["metadata"] == {"own": "1", "given": "2"}
        assert 50_000 < one["deadline"] - one["now"] <= 60_000
        assert 50 < one["left"] <= 60
        assert one["flag"] is False


def test_a_run_without_a_limit_has_no_deadline(app: mq.App) -> None:
    """And all the time in the world."""

    @app.job("look")
    def look(payload: None, ctx: mq.Context) -> list[bool]:
        """Tell."""
        return [ctx.deadline is None, ctx.time_left() is None]

    with worker_of(app):
        assert look.execute(None, wait=PROMPT_S) == [True, True]


def test_the_context_is_reached_at_any_call_depth(app: mq.App, store: Store) -> None:
    """And only while a handler runs: the next job on that thread has its own."""

    def deep(left: int) -> str:
        return deep(left - 1) if left else mq.current_context().job_id

    @app.job("dig")
    def dig(depth: int) -> str:
        """Ask from far down."""
        return deep(depth)

    with worker_of(app, concurrency=1):
        for depth in (0, 50):
            job_id = dig.enqueue(depth)
            assert dig.await_result(job_id, timeout=PROMPT_S) == job_id
    with pytest.raises(LookupError, match="no job is running here"):
        mq.current_context()


def test_the_context_is_passed_by_name_or_by_annotation(app: mq.App) -> None:
    """The second parameter may be called anything when it is annotated."""

    @app.job("named")
    def named(payload: None, ctx) -> str:  # type: ignore[no-untyped-def]
        """By its name."""
        return str(ctx.name)

    @app.job("annotated")
    def annotated(payload: None, run: mq.Context) -> str:
        """By its annotation."""
        return run.name

    @app.job("optional")
    def optional(payload: None, factor: int = 3) -> int:
        """Something else, which keeps its default."""
        return factor

    with worker_of(app):
        assert named.execute(None, wait=PROMPT_S) == "named"
        assert annotated.execute(None, wait=PROMPT_S) == "annotated"
        assert optional.execute(None, wait=PROMPT_S) == 3


def test_progress_is_shown_while_the_job_runs(app: mq.App) -> None:
    """The last value stands, and one that is too long is refused in the handler."""
    gate = Gate()
    refused: list[str] = []

    @app.job("step")
    def step(payload: None, ctx: mq.Context) -> None:
        """Report several times."""
        for number in range(3):
            ctx.progress({"step": number, "of": [1, None, 2.5, b"x"]})
        for value in ("x" * 5_000, object(), float("nan")):
            try:
                ctx.progress(value)
            except mq.PayloadError as error:
                refused.append(error.what)
        gate.stop_here()

    with worker_of(app), opened_after(gate):
        job_id = step.enqueue(None)
        gate.await_entry()
        status = step.poll(job_id)
        assert status is not None
        assert status.progress == {"step": 2, "of": [1, None, 2.5, b"x"]}
        assert status.state is mq.JobState.ACTIVE
    assert refused == ["progress"] * 3


def test_a_pending_cancel_sets_the_flag_and_lands(
    app: mq.App, store: Store, one_server: Server
) -> None:
    """By the heartbeat, here: `sleep` ends early, `check` raises, and the job is cancelled."""
    began = threading.Event()
    slept: list[bool] = []

    @app.job("wait", attempts=5)
    def wait(payload: None, ctx: mq.Context) -> None:
        """Sleep for a minute, unless told otherwise."""
        began.set()
        try:
            slept.append(ctx.sleep(60))
        finally:
            slept.append(bool(ctx.cancelled))
        ctx.check()

    with worker_of(app, lock_renew_interval="0.1s"):
        job_id = wait.enqueue(None)
        assert began.wait(PROMPT_S)
        store.cancel(job_id)
        assert finished(store, job_id) == ["cancelled"]
    assert outcomes(store, job_id) == ["cancelled"]
    assert slept[-1] is True
    with pytest.raises(mq.JobCancelledError):
        wait.await_result(job_id)


@pytest.mark.parametrize("duration", ["5ms", 0.005, 0, timedelta(milliseconds=5)])
def test_sleep_takes_what_a_duration_may_be(duration: Duration) -> None:
    """As every option does; True when it slept to the end, False at once after a cancel."""
    ctx = lone_context()
    assert ctx.sleep(duration)
    ctx.cancelled.set()
    assert not ctx.sleep(60)


@pytest.mark.parametrize("duration", ["soon", -1, float("nan"), True, None])
def test_sleep_names_what_is_no_duration(duration: Any) -> None:
    """On one line."""
    with pytest.raises((ValueError, TypeError), match=r"sleep.* write it such as") as caught:
        lone_context().sleep(duration)
    assert "\n" not in str(caught.value)


def lone_context() -> mq.Context:
    """A context of no run."""
    return mq.Context(
        job_id="a", name="n", queue="q", attempt=1, attempts_max=1, enqueued_at=0, metadata={}
    )


def test_a_pushed_cancel_is_heard_without_a_heartbeat(app: mq.App, store: Store) -> None:
    """Through the control key, while the worker is full and while it is hungry."""
    began = threading.Semaphore(0)

    @app.job("wait")
    def wait(payload: None, ctx: mq.Context) -> None:
        """Sleep for a minute, unless told otherwise."""
        began.release()
        ctx.sleep(60)
        ctx.check()

    rare = {"lock_duration": "60s", "lock_renew_interval": "59s"}
    for concurrency in (1, 2):
        with worker_of(app, concurrency=concurrency, **rare):
            job_id = wait.enqueue(None)
            assert began.acquire(timeout=PROMPT_S)
            store.cancel(job_id)
            assert finished(store, job_id) == ["cancelled"]


def test_a_handlers_log_lines_carry_its_job(
    app: mq.App, lines: Callable[..., list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    """Name, id and attempt, in the text and as fields."""

    @app.job("speak")
    def speak(payload: None, ctx: mq.Context) -> None:
        """Log."""
        ctx.log.info("at %d of %s", 3, "many", extra={"mine": 1})
        ctx.log.warning("100%")

    with worker_of(app):
        job_id = speak.enqueue(None)
        wait_until(lambda: any("100%" in line for line in lines(logging.WARNING)))
    spoken = [one for one in caplog.records if one.name == "mq.job"]
    assert [one.getMessage() for one in spoken] == [
        f"speak {job_id} #1: at 3 of many",
        f"speak {job_id} #1: 100%",
    ]
    first: Any = spoken[0]
    assert (first.job_id, first.job_name, first.attempt, first.mine) == (job_id, "speak", 1, 1)
