"""One call of a handler: decode the payload, call, encode how it ended.

The same in a thread and in a child process.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from mq import codec
from mq.context import Context, Interrupted, enter
from mq.errors import DecodeError, PayloadError
from mq.failures import describe
from mq.unrecoverable import is_unrecoverable

if TYPE_CHECKING:
    from types import TracebackType

    from mq.codec import DefectKind
    from mq.definitions import Job

log = logging.getLogger("mq.worker")


class Window(Protocol):
    """Calls a handler so that it can be told to end, and only it."""

    def call(self, function: Any, arguments: Any) -> Any:
        """Return or raise what the handler does."""
        ...


@attrs.frozen
class Report:
    """What a call of a handler came to.

    Args:
        completed: whether it returned a value that can be stored.
        exit: the encoded value, failure or defect.
        summary: one line about a failure.
        traceback: its formatted traceback.
        spent: whether the rest of the budget is to be skipped.
        interrupted: whether it ended by mq's own interrupt.
        error: what was raised; None after a value, and when it was raised in another process.
        value: what a fan-out returned, which is not stored as an exit.
    """

    completed: bool
    exit: bytes
    summary: str = ""
    traceback: str = ""
    spent: bool = False
    interrupted: bool = False
    error: BaseException | None = None
    value: Any = None


@attrs.frozen
class Phase:
    """What is called instead of a definition's handler: one of the two phases of a flow.

    Args:
        function: what is called.
        passes_context: whether the context comes last.
        arguments: what comes behind the payload.
        fans_out: whether its value is the children, not a result.
    """

    function: Any
    passes_context: bool
    arguments: tuple[Any, ...] = ()
    fans_out: bool = False


def invoke(
    job: Job[Any, Any],
    payload: bytes | None,
    context: Context,
    window: Window,
    max_bytes: int,
    phase: Phase | None = None,
) -> Report:
    """Run a handler to its end. Never raises: whatever a handler does is a report."""
    phase = phase or Phase(job.function or job, job.passes_context)
    try:
        if payload is None:
            raise DecodeError("the payload is missing from the store")
        value = job.payload_codec.decode(payload)
    except DecodeError as error:
        return defect(error, "undecodable")
    arguments = (value, *phase.arguments, *([context] if phase.passes_context else []))
    enter(context)
    try:
        result = window.call(phase.function, arguments)
        if phase.fans_out:
            return Report(completed=True, exit=b"", value=result)
    except BaseException as error:  # noqa: BLE001 SystemExit too ends a run, not a worker
        return _raised(job, _from_handler(error), max_bytes)
    finally:
        enter(None)
    try:
        return Report(completed=True, exit=job.exit_codec.encode_success(result, max_bytes))
    except PayloadError as error:
        return defect(error, "unencodable")


def defect(error: BaseException, kind: DefectKind) -> Report:
    """Return the report of a failure that the runtime found."""
    text = describe(error)
    exit_ = codec.encode_defect(text.type, text.message, text.traceback, kind)
    summary = codec.error_summary(error)
    return Report(completed=False, exit=exit_, summary=summary, error=error)


def _raised(job: Job[Any, Any], error: BaseException, max_bytes: int) -> Report:
    exit_, kind = job.exit_codec.encode_failure(error, max_bytes)
    return Report(
        completed=False,
        exit=exit_,
        summary=codec.error_summary(error),
        traceback=describe(error).traceback,
        spent=is_unrecoverable(error) or (kind == "failure" and not _retryable(job, error)),
        interrupted=isinstance(error, Interrupted),
        error=error,
    )


def _retryable(job: Job[Any, Any], error: BaseException) -> bool:
    if job.conduct.retryable is None:
        return True
    try:
        return bool(job.conduct.retryable(error))
    except BaseException:
        log.exception("retryable of job %s raised; the run counts as retryable", job.name)
        return True


def _from_handler(error: BaseException) -> BaseException:
    """Return the error with the runtime's frames above the handler taken off its traceback."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(
        "mq.worker"
    ):
        trace = trace.tb_next
    return error.with_traceback(trace or error.__traceback__)
