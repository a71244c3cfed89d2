"""Whatever a handler raises is one failed attempt, and the worker goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import pytest
import redis
from worker.build import (
    Gate,
    all_finished,
    finished,
    opened_after,
    outcomes,
    record,
    worker_of,
)

import mq
from mq.store import Store

MOST_EXIT_BYTES = 48 * 1024


class Rude(BaseException):
    """Derives from BaseException."""


class NeedsMore(Exception):
    """Cannot be made from its args."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


class PropertyOnly(Exception):
    """Has an attribute that cannot be set."""

    @property
    def reason(self) -> str:
        """A text of its own."""
        return "because"


class NoText(Exception):
    """Its text raises."""

    def __str__(self) -> str:
        """Raise."""
        raise RuntimeError("no text")

    __repr__ = __str__


class ExitingText(Exception):
    """Its text ends the thread."""

    def __str__(self) -> str:
        """Raise what is no Exception."""
        raise SystemExit(1)


def three_deep() -> BaseException:
    """An error with three causes behind it."""
    error: Exception = ValueError("root")
    for n in range(3):
        after = RuntimeError(f"level {n}")
        after.__cause__ = error
        error = after
    return error


def circular() -> BaseException:
    """Two errors, each the context of the other."""
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    return one


def raised_by_next() -> BaseException:
    """The StopIteration of an iterator that is used up."""
    try:
        next(iter(()))
    except StopIteration as error:
        return error
    raise AssertionError


ERRORS: dict[str, Callable[[], BaseException]] = {
    "TimeoutError": lambda: TimeoutError("my own"),
    "CancelledError": asyncio.CancelledError,
    "asyncio.TimeoutError": asyncio.TimeoutError,
    "StopIteration": raised_by_next,
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "redis ConnectionError": lambda: redis.ConnectionError("somebody else's server"),
    "StoreError": lambda: mq.StoreError("somebody else's store"),
    "LockLostError": lambda: mq.LockLostError("somebody else's lock"),
    "DecodeError": lambda: mq.DecodeError("somebody else's bytes"),
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(0),
    "Interrupted": lambda: mq.Interrupted("by myself"),
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "ExceptionGroup": lambda: ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several", [KeyboardInterrupt()]),
    "BaseException": lambda: Rude("rude"),
    "constructor with more arguments": lambda: NeedsMore("a", "b"),
    "property": PropertyOnly,
    "text that raises": NoText,
    "text that exits": ExitingText,
    "three causes": three_deep,
    "circular context": circular,
    "a function in args": lambda: ValueError(lambda: None),
    "half a surrogate pair": lambda: ValueError("\ud83d\x00\u2028 \u202e"),
    "bytes": lambda: ValueError(b"\x8b\x08"),
}


def test_each_odd_error_is_one_failed_attempt_and_the_next_job_runs(
    app: mq.App, store: Store
) -> None:
    """Every one of them is retried once, then failed; between them a plain job completes."""

    @app.job("odd", attempts=2)
    def odd(which: str) -> None:
        """Raise it."""
        error = ERRORS[which]()
        raise error

    @app.job("plain")
    def plain(number: int) -> int:
        """Give it back."""
        return number

    with worker_of(app, concurrency=1):
        for number, which in enumerate(ERRORS):
            failing, next_one = odd.enqueue(which), plain.enqueue(number)
            assert finished(store, failing, next_one) == ["failed", "completed"], which
            assert outcomes(store, failing) == ["retried", "failed"], which
            assert plain.await_result(next_one) == number
            entry = odd.attempts(failing)[-1]
            assert isinstance(entry.exit, mq.Defect)
            expected = type(ERRORS[which]()).__name__
            assert entry.exit.type.rpartition(".")[2] == expected
            assert expected in entry.exit.traceback
            assert (record(store, failing).error or "").startswith(expected)
            with pytest.raises(mq.JobFailedError):
                odd.await_result(failing)


def test_a_shower_of_odd_errors_leaves_every_slot_alive(app: mq.App, store: Store) -> None:
    """All at once on several threads."""

    @app.job("odd")
    def odd(which: str) -> None:
        """Raise it."""
        error = ERRORS[which]()
        raise error

    gate = Gate()

    @app.job("meet")
    def meet(payload: None) -> None:
        """Wait until there is one of these in every slot."""
        gate.stop_here()

    odd.enqueue_many(list(ERRORS) * 4)
    with worker_of(app, concurrency=4), opened_after(gate):
        assert all_finished(store, 4 * len(ERRORS)) == {"failed": 4 * len(ERRORS)}
        meet.enqueue_many([None] * 4)
        gate.await_entry(4)


def test_an_error_of_fifty_megabytes_is_cut_to_size(app: mq.App, store: Store) -> None:
    """The beginning stands in the ledger, with a marker."""

    @app.job("loud")
    def loud(payload: None) -> None:
        """Raise a very long message."""
        raise ValueError("x" * 50_000_000)

    with worker_of(app):
        job_id = loud.enqueue(None)
        assert finished(store, job_id, timeout=30) == ["failed"]
    ended = loud.attempts(job_id)[0].exit
    assert isinstance(ended, mq.Defect)
    assert ended.message.startswith("xxx")
    assert "truncated" in ended.message
    assert len(store.get_attempts(job_id)[0].exit or b"") < MOST_EXIT_BYTES
    assert len(record(store, job_id).error or "") <= 64


def test_five_thousand_frames_are_cut_to_size(app: mq.App, store: Store) -> None:
    """The last frames stand in the ledger, and how many were left out."""
    limit = sys.getrecursionlimit()

    @app.job("deep")
    def deep(frames: int) -> None:
        """Raise from far down."""

        def down(left: int) -> None:
            if left:
                down(left - 1)
            raise ValueError("from far down")

        down(frames)

    sys.setrecursionlimit(10_000)
    try:
        with worker_of(app):
            job_id = deep.enqueue(5_000)
            assert finished(store, job_id) == ["failed"]
    finally:
        sys.setrecursionlimit(limit)
    ended = deep.attempts(job_id)[0].exit
    assert isinstance(ended, mq.Defect)
    assert ended.message == "from far down"
    assert "earlier frames left out" in ended.traceback
    assert len(store.get_attempts(job_id)[0].exit or b"") < MOST_EXIT_BYTES


@pytest.mark.parametrize("size", [10_000_000, 1_048_577])
def test_a_result_over_the_limit_is_one_failed_attempt(
    app: mq.App, store: Store, size: int
) -> None:
    """Nothing of it is stored."""

    @app.job("big")
    def big(number: int) -> str:
        """Return so many characters."""
        return "x" * number

    with worker_of(app):
        job_id = big.enqueue(size)
        assert finished(store, job_id) == ["failed"]
        with pytest.raises(mq.JobFailedError, match="result of job 'big'"):
            big.await_result(job_id)
    assert len(store.get_attempts(job_id)[0].exit or b"") < MOST_EXIT_BYTES


def test_a_payload_over_the_limit_is_refused_where_it_is_enqueued(
    app: mq.App, store: Store
) -> None:
    """Nothing reaches the store."""

    @app.job("big")
    def big(text: str) -> None:
        """Nothing."""

    with pytest.raises(mq.PayloadError, match="payload of job 'big'"):
        big.enqueue("x" * 10_000_000)
    assert not any(store.counts().values())
