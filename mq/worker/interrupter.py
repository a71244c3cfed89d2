"""The interrupter: tells a run to end, and deals with one that does not.

A handler told to end has its definition's `interrupt_grace`. One that reacts ends its run itself.
For one that does not (it blocks in a call, or swallows the exception) the run is recorded all the
same, what it returns later is refused, and its slot gets a new thread; the old one is a *stray*,
counted and logged with its stack. Too many strays end the worker: memory and locks they hold are
gone only with the process.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from mq.durations import format_ms
from mq.failures import MAX_FRAMES
from mq.worker.executors import interrupts
from mq.worker.run import Reason, Run
from mq.worker.runner import Ended, Runner
from mq.worker.timekeeper import Timekeeper

if TYPE_CHECKING:
    from mq.definitions import Job

log = logging.getLogger("mq.worker")


AGAIN_S = 0.001
"""When to try again to interrupt a handler that was just taking a lock."""


class Replacing(Protocol):
    """What the interrupter needs of an executor."""

    def replace(self, run: Run) -> None:
        """Give the slot of a run that does not end to a new thread."""
        ...


class Interrupter:
    """Enforces time limits and cancels.

    Args:
        jobs: definitions by name: how each may be interrupted.
        runner: says how an unresponsive run is acked.
        timekeeper: when limits and graces are over.
        finished: told the end of a run that did not end by itself.
        max_strays: how many strays there may be.
        overrun: called once when there are more.
    """

    def __init__(
        self,
        jobs: Mapping[str, Job[Any, Any]],
        runner: Runner,
        timekeeper: Timekeeper,
        finished: Callable[[Run, Ended], None],
        max_strays: int,
        overrun: Callable[[], None],
    ) -> None:
        self.executor: Replacing | None = None
        self._jobs = jobs
        self._runner = runner
        self._timekeeper = timekeeper
        self._finished = finished
        self._max_strays = max_strays
        self._overrun = overrun
        self._lock = threading.Lock()
        self._strays = 0

    @property
    def strays(self) -> int:
        """How many abandoned threads still run."""
        return self._strays

    def started(self, run: Run) -> None:
        """Note that a handler begins: its time limit counts from here."""
        limit_ms = run.record.timeout_ms
        if limit_ms is not None:
            self._timekeeper.after(limit_ms / 1000, lambda: self.interrupt(run, "timeout"))

    def cancel(self, run: Run) -> None:
        """Tell a run that a cancel of its job is pending."""
        if run.cancel_requested or run.over:
            return
        run.cancel_requested = True
        log.info("job %s: cancel requested, run #%d is told to end", run.job_id, run.attempt)
        self.interrupt(run, "cancel")

    def interrupt(self, run: Run, reason: Reason) -> None:
        """Tell a run to end, for the first reason that comes up."""
        if run.over or run.reason is not None:
            return
        run.reason = reason
        conduct = self._jobs[run.name].conduct
        # In this order a handler that waits for the flag is interrupted in its wait; the other way
        # round it could wake, return as if its time had not been over, and be taken at its word.
        if conduct.interrupt:
            self._raise(run)
        run.tell()
        self._timekeeper.after(conduct.interrupt_grace_ms / 1000, lambda: self._grace_over(run))

    def _raise(self, run: Run) -> None:
        if not run.over and not run.interrupt():
            self._timekeeper.after(AGAIN_S, lambda: self._raise(run))

    def _grace_over(self, run: Run) -> None:
        if run.over or run.reason == "stop":
            return
        if run.elsewhere and not run.started:
            # Its child is still starting; the slot ends the run when it is.
            self._timekeeper.after(AGAIN_S * 100, lambda: self._grace_over(run))
            return
        if run.kill():
            # Its slot sees the child die and ends the run.
            log.warning(
                "job %s: run #%d did not react (%s); its child process is killed",
                run.job_id, run.attempt, run.reason,
            )  # fmt: skip
            return
        conduct = self._jobs[run.name].conduct
        stack = stack_of(run)
        if conduct.on_unresponsive == "wait":
            log.warning(
                "job %s: run #%d does not end (%s); its slot and lock are kept until it does\n%s",
                run.job_id, run.attempt, run.reason, stack,
            )  # fmt: skip
            return
        ended = self._runner.unresponsive(run, stack)
        if not run.end():
            return
        with self._lock:
            self._strays += 1
            strays = self._strays
        if strays > self._max_strays:
            # Before the slot is free again: a worker that is to end claims nothing more.
            self._overrun()
        log.warning(
            "job %s: run #%d did not end within %s (%s); its thread is left behind (%d of %d)\n%s",
            run.job_id, run.attempt, format_ms(conduct.interrupt_grace_ms), run.reason,
            strays, self._max_strays, stack,
        )  # fmt: skip
        if self.executor is not None:
            self.executor.replace(run)
        self._finished(run, ended)

    def stray_ended(self, run: Run) -> None:
        """Note that an abandoned thread came back after all; what it returned is refused."""
        with self._lock:
            self._strays -= 1
        log.warning("job %s: run #%d ended after it was given up", run.job_id, run.attempt)


def stack_of(run: Run) -> str:
    """Return the stack of the thread a handler runs in, as text."""
    frames = sys._current_frames()  # noqa: SLF001 documented, and the only way to see another stack
    frame = frames.get(run.window.thread_id or 0)
    if frame is None:
        return "(its thread has no stack)"
    stack = traceback.extract_stack(frame, limit=MAX_FRAMES)
    # What lies above the handler is the runtime's own, the same in every stack.
    own = [at for at, entry in enumerate(stack) if entry.filename == interrupts.__file__]
    return "".join(traceback.format_list(stack[own[-1] + 1 :] if own else stack)).rstrip()
