"""What a failed run comes to: budget, backoff, predicates, marks, and payloads nobody can read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from itertools import pairwise

import attrs
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
from mq.records import Request
from mq.store import Store

Lines = Callable[..., list[str]]


@attrs.frozen
class Refused(Exception):
    """A declared error."""

    reason: str


@attrs.frozen
class Number:
    """A payload."""

    n: int


def test_an_idle_worker_runs_the_retry_of_one_that_is_full(app: mq.App, store: Store) -> None:
    """When it is due, though nobody polls."""
    gate = Gate()

    @app.job("twice", attempts=2, backoff=mq.fixed("0.3s"))
    def twice(payload: None, ctx: mq.Context) -> int:
        """Fail the first time."""
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    @app.job("stuck", queue="mine")
    def stuck(payload: None) -> None:
        """Fill the first worker."""
        gate.stop_here()

    with (
        worker_of(app, id="first", concurrency=1) as first,
        worker_of(app, id="second", queues=["default"]) as second,
        opened_after(gate),
    ):
        wait_until(lambda: idle(first) and idle(second))
        job_id = twice.enqueue(None)
        wait_until(lambda: outcomes(store, job_id))
        stuck.enqueue(None)
        gate.await_entry()
        assert twice.await_result(job_id, timeout=PROMPT_S) == 2
    assert store.get_attempts(job_id)[1].worker_id == "second"


def test_a_retry_outlives_the_worker_that_sent_it_back(app: mq.App, store: Store) -> None:
    """It holds no slot and no lock while it waits."""

    @app.job("twice", attempts=2, backoff=mq.fixed("0.3s"))
    def twice(payload: None, ctx: mq.Context) -> int:
        """Fail the first time."""
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    with worker_of(app, id="first"):
        job_id = twice.enqueue(None)
        wait_until(lambda: outcomes(store, job_id))
    assert state(store, job_id) == "delayed"
    with worker_of(app, id="second"):
        assert twice.await_result(job_id, timeout=PROMPT_S) == 2
    assert [one.worker_id for one in store.get_attempts(job_id)] == ["first", "second"]


def test_a_retry_runs_on_the_record_alone(app: mq.App, store: Store, one_server: Server) -> None:
    """The worker that runs it defines another budget and backoff, which count for nothing."""

    @app.job("flaky", attempts=3, backoff=mq.fixed("50ms"))
    def flaky(payload: None) -> None:
        """Fail."""
        raise ValueError("always")

    job_id = flaky.enqueue(None)
    second_app = mq.App(one_server.url)
    second_app.job("flaky", attempts=100, backoff=mq.fixed("1h"))(flaky.function)
    with worker_of(second_app):
        assert finished(store, job_id) == ["failed"]
    second_app.close()
    entries = store.get_attempts(job_id)
    assert [one.outcome.value for one in entries] == ["retried", "retried", "failed"]
    for before, after in pairwise(entries):
        assert (after.started_at or 0) - before.finished_at >= 50
    assert record(store, job_id).attempts_made == 3


def test_a_backoff_that_nobody_understands_loses_no_job(
    app: mq.App, store: Store, one_server: Server
) -> None:
    """Written by hand, or by a later release: it is retried at once, and a line says so."""

    @app.job("flaky", attempts=2)
    def flaky(payload: None, ctx: mq.Context) -> int:
        """Fail the first time."""
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return ctx.attempt

    job_id = flaky.enqueue(None)
    one_server.cli("HSET", store.keys.job(job_id), "backoff", "quadratic 5")
    with worker_of(app):
        assert flaky.await_result(job_id, timeout=PROMPT_S) == 2


def raising(error: BaseException) -> Callable[[Refused], bool]:
    """A predicate that raises."""

    def predicate(_: Refused) -> bool:
        raise error

    return predicate


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (lambda error: error.reason == "voided", ["retried", "failed"]),
        (lambda error: error.reason != "voided", ["failed"]),
        (lambda error: 0, ["failed"]),
        (raising(RuntimeError("oops")), ["retried", "failed"]),
        (raising(SystemExit(1)), ["retried", "failed"]),
        (raising(KeyboardInterrupt()), ["retried", "failed"]),
    ],
    ids=["True", "False", "falsy", "raises", "exits", "interrupts"],
)
def test_a_predicate_decides_about_declared_errors(
    app: mq.App, store: Store, predicate: Callable[[Refused], bool], expected: list[str]
) -> None:
    """False skips the rest of the budget; one that raises, whatever it raises, counts as True."""

    @app.job("refuse", error=Refused, attempts=2, retryable=predicate)
    def refuse(payload: None) -> None:
        """Raise the declared error."""
        raise Refused("voided")

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    with worker_of(app, concurrency=1):
        job_id = refuse.enqueue(None)
        assert finished(store, job_id, noop.enqueue(None)) == ["failed", "completed"]
    assert outcomes(store, job_id) == expected
    with pytest.raises(Refused) as caught:
        refuse.await_result(job_id)
    assert caught.value.reason == "voided"


def test_a_predicate_is_not_asked_about_defects(app: mq.App, store: Store) -> None:
    """It knows declared errors alone."""
    asked: list[BaseException] = []

    @app.job("refuse", error=Refused, attempts=2, retryable=lambda error: bool(asked.append(error)))
    def refuse(payload: None) -> None:
        """Raise something else."""
        raise ValueError("a bug")

    with worker_of(app):
        job_id = refuse.enqueue(None)
        assert finished(store, job_id) == ["failed"]
    assert (outcomes(store, job_id), asked) == (["retried", "failed"], [])


@pytest.mark.parametrize("error", [Refused("voided"), ValueError("a bug"), KeyboardInterrupt()])
def test_an_unrecoverable_error_skips_the_budget(
    app: mq.App, store: Store, error: BaseException
) -> None:
    """A frozen declared error, a defect, and what stops programs: the same object, marked."""

    @app.job("refuse", error=Refused, attempts=5, retryable=lambda _: True)
    def refuse(payload: None) -> None:
        """Raise it, marked."""
        raise mq.unrecoverable(error)

    with worker_of(app):
        job_id = refuse.enqueue(None)
        assert finished(store, job_id) == ["failed"]
    assert outcomes(store, job_id) == ["failed"]
    with pytest.raises(Refused if isinstance(error, Refused) else mq.JobFailedError):
        refuse.await_result(job_id)


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\xa1x", b"\x93\x01", b"\x81\xa1n\xa1x", b"\x2a"],
    ids=["empty", "no msgpack", "text", "cut short", "wrong type", "wrong shape"],
)  # fmt: skip
def test_a_payload_that_does_not_fit_is_a_failed_attempt(
    app: mq.App, store: Store, payload: bytes
) -> None:
    """The handler is not called; the budget applies; the next job runs."""
    called: list[Number] = []

    def take(number: Number) -> int:
        """Note the number."""
        called.append(number)
        return number.n

    job = app.job("take", payload=Number, result=int)(take)
    request = Request(name="take", queue="default", payload=payload, attempts_max=2)
    with worker_of(app, concurrency=1):
        bad = store.enqueue(request).id
        good = job.enqueue(Number(7))
        assert finished(store, bad, good) == ["failed", "completed"]
    assert outcomes(store, bad) == ["retried", "failed"]
    assert called == [Number(7)]
    with pytest.raises(mq.JobFailedError, match="payload of job 'take'") as caught:
        job.await_result(bad)
    assert caught.value.error_type == "mq.errors.DecodeError"


def test_a_payload_that_is_gone_is_a_failed_attempt(
    app: mq.App, store: Store, one_server: Server
) -> None:
    """Evicted, or deleted by hand."""

    @app.job("plain")
    def plain(number: int) -> int:
        """Give it back."""
        return number

    job_id = plain.enqueue(1)
    one_server.cli("DEL", store.keys.payload(job_id))
    with worker_of(app):
        assert finished(store, job_id) == ["failed"]
    with pytest.raises(mq.JobFailedError, match="payload is missing"):
        plain.await_result(job_id)


def test_a_record_that_no_ack_can_be_written_to_holds_up_nobody(
    app: mq.App, store: Store, one_server: Server, lines: Lines
) -> None:
    """Something else under its key, put by hand: one line, and the other jobs end as ever."""
    gate = Gate()

    @app.job("slow")
    def slow(payload: None) -> None:
        """End when the test says so."""
        gate.stop_here()

    @app.job("plain")
    def plain(number: int) -> int:
        """Give it back."""
        return number

    with worker_of(app, concurrency=2), opened_after(gate):
        broken = slow.enqueue(None)
        gate.await_entry()
        one_server.cli("SET", store.keys.job(broken), "no hash")
        ids = plain.enqueue_many(range(5))
        gate.opened.set()
        ids += plain.enqueue_many(range(20))
        assert set(finished(store, *ids)) == {"completed"}
        wait_until(lambda: lines(logging.ERROR))
    assert {tuple(outcomes(store, job_id)) for job_id in ids} == {("completed",)}
    assert all(broken in line and "cannot be recorded" in line for line in lines(logging.ERROR))


def test_a_job_without_a_handler_here_is_left_to_others(
    app: mq.App, store: Store, one_server: Server, lines: Lines
) -> None:
    """It waits, the others run, and a worker that has the handler takes it."""

    @app.job("mine")
    def mine(payload: None) -> None:
        """Nothing."""

    theirs = app.define("theirs", payload=type(None), result=None)
    waiting = theirs.enqueue(None, priority=1_000)
    with worker_of(app):
        assert finished(store, *(mine.enqueue(None) for _ in range(3))) == ["completed"] * 3
        assert state(store, waiting) == "waiting"
        assert any("theirs has no handler here" in line for line in lines(logging.WARNING))
        other = mq.App(one_server.url)
        ran = threading.Event()
        other.job("theirs", payload=type(None), result=None)(lambda _: ran.set())
        with worker_of(other):
            assert ran.wait(PROMPT_S)
        other.close()


def burst(app: mq.App) -> int:
    """Run what is there; the code of its end, which must not wait for a poll."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(worker_of(app, burst=True).run()))
    thread.start()
    thread.join(PROMPT_S)
    assert codes, "the burst did not end"
    return codes[0]


def test_a_burst_ends_when_nothing_is_runnable(app: mq.App, store: Store) -> None:
    """Without waiting for a poll; what is delayed stays; failed jobs are told by the code."""

    @app.job("maybe", attempts=3)
    def maybe(number: int, ctx: mq.Context) -> int:
        """Fail for odd ones, the first time."""
        if number % 2 and ctx.attempt == 1:
            raise ValueError("odd")
        return number

    @app.job("never")
    def never(payload: None) -> None:
        """Fail."""
        raise ValueError("never")

    ids = maybe.enqueue_many(range(50))
    later = maybe.enqueue(0, delay="1h")
    assert burst(app) == 0
    assert {found.value for found in store.get_states(ids) if found} == {"completed"}
    assert state(store, later) == "delayed"
    never.enqueue(None)
    assert burst(app) == 5
    assert burst(app) == 0
