"""One claimed job: decode, call the handler, and say how the run ended."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from mq import codec
from mq.codec import DefectKind
from mq.context import Context, Interrupted, enter
from mq.durations import format_ms
from mq.errors import DecodeError, PayloadError, StoreError
from mq.failures import describe
from mq.policies import Backoff
from mq.records import Ack
from mq.unrecoverable import is_unrecoverable

if TYPE_CHECKING:
    from mq.definitions import Job
    from mq.store import Store
    from mq.worker.run import Run

log = logging.getLogger("mq.worker")

MAX_PROGRESS_BYTES = 4_096


@attrs.frozen
class Ended:
    """How a run ended.

    Args:
        verb: the store's verb for it.
        ack: what the verb is called with.
        took_ms: how long the handler ran.
        error: what it raised, for the definition's `on_failure`.
    """

    verb: str
    ack: Ack
    took_ms: float
    error: BaseException | None = None


class Runner:
    """Runs handlers; knows neither threads nor Redis beyond reporting progress.

    Args:
        jobs: definitions with handlers, by name.
        store: where progress goes.
        worker: id of the worker, for the ledger.
        max_bytes: size limit of an encoded result or error.
        started: called when a handler is about to begin.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job[Any, Any]],
        store: Store,
        worker: str,
        max_bytes: int,
        started: Callable[[Run], None],
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._worker = worker
        self._max_bytes = max_bytes
        self._started = started

    def run(self, run: Run) -> Ended:
        """Run one job to its end. Never raises: whatever a handler does is an outcome."""
        log.info("run started: %s %s #%d (%s)", run.name, run.job_id, run.attempt, run.record.queue)
        run.began = time.monotonic()
        try:
            ended = self._attempt(run, run.began)
        finally:
            enter(None)
        if not run.over:
            self._log_end(run, ended)
        return ended

    def unresponsive(self, run: Run, stack: str) -> Ended:
        """Return how a run ends whose handler was told to and did not."""
        ended = self._told(run, stack, run.began)
        self._log_end(run, ended)
        return ended

    def _log_end(self, run: Run, ended: Ended) -> None:
        log.info(
            "run %s: %s %s #%d in %.0f ms%s",
            _PAST_TENSE[ended.verb], run.name, run.job_id, run.attempt, ended.took_ms,
            f" ({ended.ack.summary})" if ended.ack.summary else "",
        )  # fmt: skip

    def _attempt(self, run: Run, began: float) -> Ended:
        job = self._jobs[run.name]
        if run.cancel_requested:
            return self._cancelled(run, began)
        try:
            if run.record.payload is None:
                raise DecodeError("the payload is missing from the store")
            payload = job.payload_codec.decode(run.record.payload)
        except DecodeError as error:
            return self._defect(run, error, "undecodable", began)
        context = run.context = self._context(run)
        if run.reason is not None or run.lost:
            context.cancelled.set()
        enter(context)
        self._started(run)
        arguments = (payload, context) if job.passes_context else (payload,)
        try:
            result = run.window.call(job.function or job, arguments)
        except BaseException as error:  # noqa: BLE001 SystemExit too ends a run, not a worker
            return self._raised(run, job, _from_handler(error), began)
        try:
            exit_ = job.exit_codec.encode_success(result, self._max_bytes)
        except PayloadError as error:
            return self._defect(run, error, "unencodable", began)
        return self._end("ack_completed", run, began, exit_)

    def _context(self, run: Run) -> Context:
        record = run.record
        return Context(
            job_id=run.job_id,
            name=run.name,
            queue=record.queue,
            attempt=run.attempt,
            attempts_max=record.attempts_max,
            enqueued_at=record.enqueued_at,
            metadata=record.metadata,
            time_limit_ms=record.timeout_ms,
            report=lambda value: self._report(run, value),
        )

    def _report(self, run: Run, value: Any) -> None:
        encoded = codec.pack_plain(value, MAX_PROGRESS_BYTES, "progress")
        try:
            self._store.progress(run.job_id, run.token, encoded)
        except StoreError as error:
            log.warning("progress of job %s was not stored: %s", run.job_id, error)

    # How a run ends

    def _raised(self, run: Run, job: Job[Any, Any], error: BaseException, began: float) -> Ended:
        if run.cancel_requested or run.reason is not None:
            interrupted = run.reason != "stop" or isinstance(error, Interrupted)
            if run.cancel_requested or interrupted:
                return self._told(run, describe(error).traceback, began)
        exit_, kind = job.exit_codec.encode_failure(error, self._max_bytes)
        spent = is_unrecoverable(error) or (kind == "failure" and not _retryable(job, error))
        return self._failed(run, exit_, error, began, spent=spent)

    def _told(self, run: Run, trace: str, began: float) -> Ended:
        """End a run that was told to: by a cancel, the end of its time, or a stop."""
        if run.cancel_requested:
            return self._cancelled(run, began)
        if run.reason == "stop":
            return self._end("release", run, began, None)
        late = _timed_out(run)
        exit_ = codec.encode_defect("TimeoutError", str(late), trace, "timeout")
        return self._failed(run, exit_, late, began)

    def _cancelled(self, run: Run, began: float) -> Ended:
        return self._end("ack_cancelled", run, began, None)

    def _defect(self, run: Run, error: Exception, kind: DefectKind, began: float) -> Ended:
        text = describe(error)
        exit_ = codec.encode_defect(text.type, text.message, text.traceback, kind)
        return self._failed(run, exit_, error, began)

    def _failed(
        self, run: Run, exit_: bytes, error: BaseException, began: float, *, spent: bool = False
    ) -> Ended:
        record = run.record
        failed_runs = record.attempts_made + 1
        if spent or failed_runs >= record.attempts_max:
            return self._end("ack_failed", run, began, exit_, error)
        delay_ms = _backoff(record.backoff).delay_ms_for(failed_runs, random.random)
        return self._end("ack_retried", run, began, exit_, error, delay_ms)

    def _end(
        self,
        verb: str,
        run: Run,
        began: float,
        exit_: bytes | None,
        error: BaseException | None = None,
        delay_ms: int = 0,
    ) -> Ended:
        summary = codec.error_summary(error) if error is not None else ""
        ack = Ack(run.job_id, run.token, exit_, self._worker, summary, delay_ms)
        return Ended(verb, ack, (time.monotonic() - began) * 1000, error)


_PAST_TENSE = {
    "ack_completed": "completed",
    "ack_retried": "failed, will retry",
    "ack_failed": "failed",
    "ack_cancelled": "cancelled",
    "release": "given back",
}


def _from_handler(error: BaseException) -> BaseException:
    """Return the error with the frames of the runtime above the handler taken off its traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(
        "mq.worker"
    ):
        trace = trace.tb_next
    return error.with_traceback(trace or error.__traceback__)


def _timed_out(run: Run) -> TimeoutError:
    return TimeoutError(f"the run exceeded its timeout of {format_ms(run.record.timeout_ms or 0)}")


def _retryable(job: Job[Any, Any], error: BaseException) -> bool:
    if job.conduct.retryable is None:
        return True
    try:
        return bool(job.conduct.retryable(error))
    except Exception:
        log.exception("retryable of job %s raised; the run counts as retryable", job.name)
        return True


def _backoff(text: str) -> Backoff:
    if not text:
        return Backoff()
    try:
        return Backoff.decode(text)
    except ValueError:
        # Written by hand, or by a release that knows more kinds: the job must not be lost for it.
        log.warning("backoff %r is not understood; retrying at once", text)
        return Backoff()
