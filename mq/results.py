"""Reading a job back through its definition: status, ledger, and waiting for the result."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from mq.durations import Duration, to_ms
from mq.errors import (
    AwaitTimeoutError,
    DecodeError,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
)
from mq.records import Attempt, JobRecord
from mq.states import JobState, Outcome

if TYPE_CHECKING:
    from mq.codec import Exit
    from mq.job_verbs import JobVerbs

P = TypeVar("P")
R = TypeVar("R")

FIRST_LOOK_S = 0.005
LONGEST_LOOK_S = 0.5
"""Without pushes a waiter looks by itself, at pauses that grow from the first to the longest."""
PUSHED_LOOK_S = 5.0
"""With pushes it does so only as a safeguard."""
SUBSCRIBE_S = 0.5


@attrs.frozen
class JobStatus(Generic[R]):
    """Where a job stands.

    Args:
        id: job id.
        state: its state.
        attempts_made: runs that were acked.
        metadata: the pairs given at enqueue.
        progress: what the handler last reported; None when it never did.
        exit: how the job ended (`Success`, `Failure` or `Defect`); None while it has not, and for a
            job that ended without one.
        failed_reason: why the store, not a handler, failed the job.
    """

    id: str
    state: JobState
    attempts_made: int
    metadata: dict[str, str]
    progress: Any
    exit: Exit | None
    failed_reason: str | None


class TypedJob(Generic[P, R]):
    """A job of a definition; payload and exit are decoded when they are read.

    So a list can be shown although one of its jobs no longer fits the declared types.

    Args:
        record: all else about the job, as the store holds it.
    """

    __slots__ = ("_job", "record")

    def __init__(self, job: JobVerbs[P, R], record: JobRecord) -> None:
        self._job = job
        self.record = record

    @property
    def id(self) -> str:
        """The job's id."""
        return self.record.id

    @property
    def state(self) -> JobState:
        """Where the job stands."""
        return self.record.state

    @property
    def payload(self) -> P | None:
        """The decoded payload; None when it was left out of a list.

        Raises:
            DecodeError: it no longer fits the declared type.
        """
        if self.record.payload is None:
            return None
        with _decoding(self.record):
            payload: P = self._job.payload_codec.decode(self.record.payload)
            return payload

    @property
    def exit(self) -> Exit | None:
        """How the job ended (`Success`, `Failure` or `Defect`), None without an exit.

        Raises:
            DecodeError: it no longer fits the declared types.
        """
        if self.record.exit is None:
            return None
        with _decoding(self.record):
            return self._job.exit_codec.decode(self.record.exit)

    def __repr__(self) -> str:
        """Return id, name and state, never the payload."""
        return f"<TypedJob {self.id} {self.record.name} {self.state.value}>"


@attrs.frozen
class TypedAttempt:
    """One ledger entry with its exit decoded; times in ms since the epoch."""

    attempt: int
    started_at: int | None
    finished_at: int
    outcome: Outcome
    exit: Exit | None
    worker_id: str | None


def typed_job(job: JobVerbs[P, R], record: JobRecord) -> TypedJob[P, R]:
    """Return a record as a job of a definition."""
    return TypedJob(job, record)


def get_job(job: JobVerbs[P, R], job_id: str) -> TypedJob[P, R] | None:
    """Return a job of this definition, or None."""
    record = job.store.get_job(job_id)
    if record is None:
        return None
    _check_name(job, record)
    return TypedJob(job, record)


def poll(job: JobVerbs[Any, R], job_id: str) -> JobStatus[R] | None:
    """Return the status of a job of this definition, or None."""
    record = job.store.get_job(job_id)
    if record is None:
        return None
    _check_name(job, record)
    with _decoding(record):
        return _status(job, record)


def _status(job: JobVerbs[Any, R], record: JobRecord) -> JobStatus[R]:
    from mq import codec  # late: it loads cattrs

    return JobStatus(
        record.id,
        record.state,
        record.attempts_made,
        record.metadata,
        None if record.progress is None else codec.unpack_plain(record.progress),
        None if record.exit is None else job.exit_codec.decode(record.exit),
        record.failed_reason,
    )


def attempts(job: JobVerbs[Any, Any], job_id: str) -> list[TypedAttempt]:
    """Return the ledger of a job of this definition, decoded, oldest first."""
    whole = job.store.get_whole(job_id)
    if whole is None:
        return []
    _check_name(job, whole[0])
    with _decoding(whole[0]):
        return [_typed(job, entry) for entry in whole[1]]


@contextlib.contextmanager
def _decoding(record: JobRecord) -> Iterator[None]:
    """Say of which job it was that stored bytes no longer fit the declared type."""
    try:
        yield
    except DecodeError as error:
        error.job_id, error.state = record.id, record.state.value
        raise


def _typed(job: JobVerbs[Any, Any], entry: Attempt) -> TypedAttempt:
    return TypedAttempt(
        entry.attempt,
        entry.started_at,
        entry.finished_at,
        entry.outcome,
        None if entry.exit is None else job.exit_codec.decode(entry.exit),
        entry.worker_id,
    )


def await_result(job: JobVerbs[Any, R], job_id: str, timeout: Duration | None) -> R:
    """Wait until a job of this definition has finished; return or raise how it ended."""
    limit_s = None if timeout is None else to_ms(timeout, "timeout") / 1000
    until = float("inf") if limit_s is None else time.monotonic() + limit_s
    record = _look(job, job_id)
    if record.state.finished:
        return _outcome(job, record)
    bell = job.store.doorbell
    ring = bell.expect(job_id, min(SUBSCRIBE_S, max(until - time.monotonic(), 0)))
    try:
        # The mark is set before the record is read again: a job that finishes after the reading
        # finds the mark and announces itself.
        job.store.watch(job_id)
        pause_s = FIRST_LOOK_S
        while not (record := _look(job, job_id)).state.finished:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise AwaitTimeoutError(
                    f"job {job_id} is still {record.state.value} after {limit_s:g} s; it goes on",
                    job_id=job_id,
                    state=record.state.value,
                )
            # Jitter keeps many waiters from asking in step.
            jittered_s = pause_s * random.uniform(0.7, 1.0)
            ring.wait(min(PUSHED_LOOK_S if bell.connected else jittered_s, left_s))
            ring.clear()
            pause_s = min(pause_s * 1.5, LONGEST_LOOK_S)
        return _outcome(job, record)
    finally:
        bell.forget(job_id, ring)


def check_ownership(job: JobVerbs[Any, Any], job_id: str) -> None:
    """Raise JobNotFoundError unless the id belongs to a job of this definition."""
    if not is_owned(job, job_id):
        raise _not_found(job_id)


def is_owned(job: JobVerbs[Any, Any], job_id: str) -> bool:
    """Whether there is such a job; JobNotFoundError when it has another name."""
    record = job.store.get_job(job_id, bodies=False)
    if record is None:
        return False
    _check_name(job, record)
    return True


def _not_found(job_id: str) -> JobNotFoundError:
    return JobNotFoundError(f"no job has the id {job_id[:200]!r}", job_id=job_id)


def _look(job: JobVerbs[Any, Any], job_id: str) -> JobRecord:
    record = job.store.get_job(job_id)
    if record is None:
        raise _not_found(job_id)
    _check_name(job, record)
    return record


def _outcome(job: JobVerbs[Any, R], record: JobRecord) -> R:
    from mq.codec import Failure, Success  # late: it loads cattrs

    state = record.state.value
    if record.state is JobState.CANCELLED:
        raise JobCancelledError(f"job {record.id} was cancelled", job_id=record.id, state=state)
    with _decoding(record):
        ended = None if record.exit is None else job.exit_codec.decode(record.exit)
    if isinstance(ended, Success):
        value: R = ended.value
        return value
    if isinstance(ended, Failure):
        raise ended.error
    told = None if ended is None else f"{ended.type}: {ended.message[:500]}"
    reason = record.failed_reason or told or record.error or "no reason was recorded"
    raise JobFailedError(
        f"job {record.id} ({record.name}) failed: {reason}",
        failed_reason=record.failed_reason,
        error_type=None if ended is None else ended.type,
        remote_traceback=None if ended is None else ended.traceback,
        job_id=record.id,
        state=state,
    )


def _check_name(job: JobVerbs[Any, Any], record: JobRecord) -> None:
    if record.name != job.name:
        raise JobNotFoundError(
            f"no {job.name!r} job has the id {record.id!r}: that is a {record.name!r} job",
            job_id=record.id,
        )
