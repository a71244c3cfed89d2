"""One claimed job: decode, call the handler, and say how the run ended."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from mq import codec
from mq.context import Context, enter
from mq.errors import DecodeError, PayloadError, StoreError
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
    """How a run ended: the verb that tells the store, its ack, and how long the handler took."""

    verb: str
    ack: Ack
    took_ms: float


class Runner:
    """Runs handlers; knows neither threads nor Redis beyond reporting progress.

    Args:
        jobs: definitions with handlers, by name.
        store: where progress goes.
        worker: id of the worker, for the ledger.
        max_bytes: size limit of an encoded result or error.
    """

    def __init__(
        self, jobs: Mapping[str, Job[Any, Any]], store: Store, worker: str, max_bytes: int
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._worker = worker
        self._max_bytes = max_bytes

    def run(self, run: Run) -> Ended:
        """Run one job to its end. Never raises: whatever a handler does is an outcome."""
        record = run.record
        log.info("run started: %s %s #%d (%s)", record.name, record.id, run.attempt, record.queue)
        started = time.monotonic()
        try:
            verb, ack = self._attempt(run)
        finally:
            enter(None)
        took_ms = (time.monotonic() - started) * 1000
        log.info(
            "run %s: %s %s #%d in %.0f ms%s",
            _PAST_TENSE[verb], record.name, record.id, run.attempt, took_ms,
            f" ({ack.summary})" if ack.summary else "",
        )  # fmt: skip
        return Ended(verb, ack, took_ms)

    def _attempt(self, run: Run) -> tuple[str, Ack]:
        job = self._jobs[run.record.name]
        try:
            if run.record.payload is None:
                raise DecodeError("the payload is missing from the store")
            payload = job.payload_codec.decode(run.record.payload)
        except DecodeError as error:
            return self._failed(run, job, error, typed=False)
        context = self._context(run)
        enter(context)
        try:
            result = job(payload, context) if job.passes_context else job(payload)
            exit_ = job.exit_codec.encode_success(result, self._max_bytes)
        except PayloadError as error:
            return self._failed(run, job, error, typed=False)
        except BaseException as error:  # noqa: BLE001 SystemExit and the like end a run, not a worker
            return self._failed(run, job, error, typed=True)
        return "ack_completed", Ack(run.record.id, run.token, exit_, self._worker)

    def _context(self, run: Run) -> Context:
        record = run.record
        run.context = Context(
            job_id=record.id,
            name=record.name,
            queue=record.queue,
            attempt=run.attempt,
            attempts_max=record.attempts_max,
            enqueued_at=record.enqueued_at,
            metadata=record.metadata,
            time_limit_ms=record.timeout_ms,
            report=lambda value: self._report(run, value),
        )
        if run.cancel_requested or run.lost:
            run.tell()
        return run.context

    def _report(self, run: Run, value: Any) -> None:
        encoded = codec.pack_plain(value, MAX_PROGRESS_BYTES, "progress")
        try:
            self._store.progress(run.record.id, run.token, encoded)
        except StoreError as error:
            log.warning("progress of job %s was not stored: %s", run.record.id, error)

    def _failed(
        self, run: Run, job: Job[Any, Any], error: BaseException, *, typed: bool
    ) -> tuple[str, Ack]:
        record = run.record
        if run.cancel_requested:
            return "ack_cancelled", Ack(record.id, run.token, None, self._worker)
        exit_, kind = job.exit_codec.encode_failure(error, self._max_bytes)
        summary = codec.error_summary(error)
        failed_runs = record.attempts_made + 1
        spent = failed_runs >= record.attempts_max or is_unrecoverable(error)
        if spent or (typed and kind == "failure" and not _retryable(job, error)):
            return "ack_failed", Ack(record.id, run.token, exit_, self._worker, summary)
        delay_ms = _backoff(record.backoff).delay_ms_for(failed_runs, random.random)
        return "ack_retried", Ack(record.id, run.token, exit_, self._worker, summary, delay_ms)


_PAST_TENSE = {
    "ack_completed": "completed",
    "ack_retried": "failed, will retry",
    "ack_failed": "failed",
    "ack_cancelled": "cancelled",
}


def _retryable(job: Job[Any, Any], error: BaseException) -> bool:
    if job.retryable is None:
        return True
    try:
        return bool(job.retryable(error))
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
