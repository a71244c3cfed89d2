"""One claimed job: have its handler called, and say how the run ended."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from mq import codec
from mq.context import Context
from mq.durations import format_ms
from mq.errors import (
    FlowError,
    JobFailedError,
    JobNotFoundError,
    LockLostError,
    PayloadError,
    StoreError,
)
from mq.manifests import manifest_of
from mq.policies import Backoff
from mq.records import Ack
from mq.worker.flow_phase import phase_of
from mq.worker.invocation import Report, defect, invoke

if TYPE_CHECKING:
    from mq.definitions import Job
    from mq.flows import Flow
    from mq.store import Store
    from mq.worker.run import Run

log = logging.getLogger("mq.worker")

MAX_PROGRESS_BYTES = 4_096

_PAST_TENSE = {
    "ack_completed": "completed",
    "ack_retried": "failed, will retry",
    "ack_failed": "failed",
    "ack_cancelled": "cancelled",
    "ack_fanned_out": "fanned out",
    "release": "given back",
}


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


class Elsewhere(Protocol):
    """Calls handlers in other processes."""

    def invoke(self, run: Run, begin: Callable[[], Context]) -> Report:
        """Run the handler of a run to its end; `begin` is called when it is about to start."""
        ...


class Runner:
    """Runs jobs; knows neither threads nor Redis beyond reporting progress.

    Args:
        jobs: definitions with handlers, by name.
        store: where progress goes.
        worker: id of the worker, for the ledger.
        max_bytes: size limit of an encoded result or error.
        started: called when a handler is about to begin.
        elsewhere: calls handlers in child processes.
        process_names: the jobs whose handlers it calls.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job[Any, Any]],
        store: Store,
        worker: str,
        max_bytes: int,
        started: Callable[[Run], None],
        elsewhere: Elsewhere,
        process_names: frozenset[str],
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._worker = worker
        self._max_bytes = max_bytes
        self._started = started
        self._elsewhere = elsewhere
        self._process_names = process_names

    def run(self, run: Run) -> Ended:
        """Run one job to its end. Never raises: whatever a handler does is an outcome."""
        log.info("run started: %s %s #%d (%s)", run.name, run.job_id, run.attempt, run.record.queue)
        run.began = time.monotonic()
        run.elsewhere = run.name in self._process_names and self._jobs[run.name].flow is None
        try:
            ended = self._attempt(run)
        except BaseException as error:  # noqa: BLE001 a record that cannot be read is no reason to die
            report = defect(error, "undecodable")
            ended = self._end(
                "ack_failed", run, exit_=report.exit, summary=report.summary, error=error
            )
        if not run.over and not run.lost:
            self._log_end(run, ended)
        return ended

    def unresponsive(self, run: Run, stack: str) -> Ended:
        """Return how a run ends whose handler was told to and did not."""
        ended = self._told(run, stack)
        self._log_end(run, ended)
        return ended

    def _log_end(self, run: Run, ended: Ended) -> None:
        log.info(
            "run %s: %s %s #%d in %.0f ms%s",
            _PAST_TENSE[ended.verb], run.name, run.job_id, run.attempt, ended.took_ms,
            # The type alone: a message may repeat what the payload says.
            f" ({ended.ack.summary.partition(':')[0]})" if ended.ack.summary else "",
        )  # fmt: skip

    def _attempt(self, run: Run) -> Ended:
        if run.cancel_requested:
            return self._end("ack_cancelled", run)
        job = self._jobs[run.name]
        if job.flow is not None:
            return self._flow_phase(run, job, job.flow)
        if run.elsewhere:
            report = self._elsewhere.invoke(run, lambda: self._begin(run))
        else:
            context = self._begin(run)
            report = invoke(job, run.record.payload, context, run.window, self._max_bytes)
        return self._ended_by(run, job, report)

    def _ended_by(self, run: Run, job: Job[Any, Any], report: Report) -> Ended:
        if report.completed:
            return self._end("ack_completed", run, exit_=report.exit)
        if _was_told(run, report):
            return self._told(run, report.traceback)
        return self._failed(run, job, report)

    def _flow_phase(self, run: Run, job: Job[Any, Any], flow: Flow[Any, Any]) -> Ended:
        """Run a flow parent: it fans out, or collects when that has landed."""
        try:
            phase = phase_of(flow, self._store, run.record)
        except StoreError as error:
            log.warning("job %s is given back, its children cannot be read: %s", run.job_id, error)
            return self._end("release", run)
        context = self._begin(run)
        report = invoke(job, run.record.payload, context, run.window, self._max_bytes, phase)
        if report.completed and phase.fans_out:
            return self._fanned_out(run, flow, report)
        return self._ended_by(run, job, report)

    def _fanned_out(self, run: Run, flow: Flow[Any, Any], report: Report) -> Ended:
        try:
            rows = manifest_of(flow, run.record, report.value)
            self._store.write_manifest(run.job_id, run.token, rows, flow.on_child_failure)
        except (LockLostError, JobNotFoundError):
            run.lost = True
        except StoreError as error:
            log.warning("fan-out of job %s was not stored, it is given back: %s", run.job_id, error)
            return self._end("release", run)
        except (FlowError, PayloadError, ValueError) as error:
            # The same children come out of every run: another one would fail likewise.
            spent = attrs.evolve(defect(error, "unencodable"), spent=True)
            return self._failed(run, self._jobs[run.name], spent)
        return self._end("ack_fanned_out", run)

    def _begin(self, run: Run) -> Context:
        """Make the context of a handler that is about to start; its time counts from here."""
        record = run.record
        context = run.context = Context(
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
        if run.reason is not None or run.lost:
            context.cancelled.set()
        self._started(run)
        return context

    def _report(self, run: Run, value: Any) -> None:
        encoded = codec.pack_plain(value, MAX_PROGRESS_BYTES, "progress")
        try:
            self._store.progress(run.job_id, run.token, encoded)
        except StoreError as error:
            log.warning("progress of job %s was not stored: %s", run.job_id, error)

    # How a run ends

    def _told(self, run: Run, trace: str) -> Ended:
        """End a run that was told to: by a cancel, the end of its time, or a stop."""
        if run.cancel_requested:
            return self._end("ack_cancelled", run)
        if run.reason == "stop":
            return self._end("release", run)
        limit = format_ms(run.record.timeout_ms or 0)
        late = TimeoutError(f"the run exceeded its timeout of {limit}")
        exit_ = codec.encode_defect("TimeoutError", str(late), trace, "timeout")
        report = Report(False, exit_, codec.error_summary(late), error=late)
        return self._failed(run, self._jobs[run.name], report)

    def _failed(self, run: Run, job: Job[Any, Any], report: Report) -> Ended:
        record = run.record
        failed_runs = record.attempts_made + 1
        verb, delay_ms = "ack_failed", 0
        if not report.spent and failed_runs < record.attempts_max:
            verb = "ack_retried"
            delay_ms = _backoff(record.backoff).delay_ms_for(failed_runs, random.random)
        error = report.error
        if error is None and job.conduct.on_failure is not None:
            error = _rebuilt(job, report)
        return self._end(
            verb, run, exit_=report.exit, summary=report.summary, error=error, delay_ms=delay_ms
        )

    def _end(
        self,
        verb: str,
        run: Run,
        *,
        exit_: bytes | None = None,
        summary: str = "",
        error: BaseException | None = None,
        delay_ms: int = 0,
    ) -> Ended:
        ack = Ack(run.job_id, run.token, exit_, self._worker, summary, delay_ms)
        return Ended(verb, ack, (time.monotonic() - run.began) * 1000, error)


def _was_told(run: Run, report: Report) -> bool:
    # A stop excuses nothing but the interrupt it raised: a handler's own failure stays one.
    if run.reason == "stop" and not run.cancel_requested:
        return report.interrupted
    if run.reason is None and report.interrupted and run.context is not None:
        # `ctx.check()` found the time over before the timekeeper did.
        return run.context.time_left() == 0.0
    return run.reason is not None or run.cancel_requested


def _rebuilt(job: Job[Any, Any], report: Report) -> BaseException:
    """Return the error that was raised in another process, as far as it travelled."""
    exit_ = job.exit_codec.decode(report.exit)
    if isinstance(exit_, codec.Failure):
        return exit_.error
    trace = exit_.traceback if isinstance(exit_, codec.Defect) else None
    return JobFailedError(report.summary, remote_traceback=trace)


def _backoff(text: str) -> Backoff:
    if not text:
        return Backoff()
    try:
        return Backoff.decode(text)
    except ValueError:
        # Written by hand, or by a release that knows more kinds: the job must not be lost for it.
        log.warning("backoff %r is not understood; retrying at once", text)
        return Backoff()
