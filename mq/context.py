"""What a handler sees of its own run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from mq.durations import Duration, to_ms

_current: ContextVar[Context | None] = ContextVar("mq_context", default=None)


class Interrupted(BaseException):
    """Raised in a handler whose run should end: cancelled, lost, or the worker is stopping.

    It derives from BaseException so that `except Exception` does not swallow it.
    """


class Flag(threading.Event):
    """An event that can be tested like a bool: `while not ctx.cancelled: ...`."""

    def __bool__(self) -> bool:
        """Whether the flag is set."""
        return self.is_set()


class Context:
    """One run of one job, for its handler.

    Args:
        job_id: id of the job.
        name: job name.
        queue: queue it was claimed from.
        attempt: number of this run in the ledger, from 1.
        attempts_max: the budget.
        enqueued_at: when the job was enqueued, ms since the epoch.
        metadata: the pairs given at enqueue.
        time_limit_ms: limit of this run, counted from now; None for none.
        report: stores an encoded progress value.
    """

    def __init__(
        self,
        *,
        job_id: str,
        name: str,
        queue: str,
        attempt: int,
        attempts_max: int,
        enqueued_at: int,
        metadata: Mapping[str, str],
        time_limit_ms: int | None = None,
        report: Callable[[Any], None] | None = None,
    ) -> None:
        self.job_id = job_id
        self.name = name
        self.queue = queue
        self.attempt = attempt
        self.attempts_max = attempts_max
        self.enqueued_at = enqueued_at
        self.metadata = metadata
        self.cancelled = Flag()
        self._report = report
        self._ends = None if time_limit_ms is None else time.monotonic() + time_limit_ms / 1000
        self.deadline = None if time_limit_ms is None else int(time.time() * 1000) + time_limit_ms
        """When the time is over, ms since the epoch by this host's clock; None for no limit."""

    def time_left(self) -> float | None:
        """Return the seconds until the deadline, 0 once it is over; None for no limit."""
        return None if self._ends is None else max(0.0, self._ends - time.monotonic())

    def check(self) -> None:
        """Raise Interrupted when the run should end: cancelled, lost, stopping or out of time."""
        if self.cancelled.is_set() or self.time_left() == 0.0:
            raise Interrupted(f"run {self.attempt} of job {self.job_id} was told to end")

    def sleep(self, duration: Duration) -> bool:
        """Sleep, but no longer than until a cancel; True when it slept to the end.

        Args:
            duration: seconds, a timedelta, or text such as `"50ms"`.

        Raises:
            ValueError, TypeError: it is no duration, or a negative one.
        """
        return not self.cancelled.wait(to_ms(duration, "sleep") / 1000)

    def progress(self, value: Any) -> None:
        """Store how far the run is, at most 4 kB encoded; `poll` shows it.

        Raises:
            PayloadError: the value is not plain data, or is too long.
        """
        if self._report is not None:
            self._report(value)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job's name, id and attempt."""
        extra = {"job_id": self.job_id, "job_name": self.name, "attempt": self.attempt}
        return _JobLog(logging.getLogger("mq.job"), extra)

    def __repr__(self) -> str:
        """Return name, id and attempt."""
        return f"<Context {self.name} {self.job_id} attempt {self.attempt}/{self.attempts_max}>"


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log with the run in front of the message and in the record's attributes."""
        if not self.isEnabledFor(level):
            return
        extra: Mapping[str, object] = self.extra or {}
        run = f"{extra['job_name']} {extra['job_id']} #{extra['attempt']}"
        # An id may hold a percent sign, which is one of formatting only when there are arguments.
        kwargs["extra"] = {**extra, **kwargs.get("extra", {})}
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        run = run.replace("%", "%%") if args else run
        text = f"{run}: {msg}"
        self.logger.log(level, text, *args, **kwargs)


def current_context() -> Context:
    """Return the context of the run this code is part of, at any call depth.

    Raises:
        LookupError: no handler is running here.
    """
    context = _current.get()
    if context is None:
        raise LookupError("no job is running here: current_context() works inside a handler")
    return context


def enter(context: Context | None) -> None:
    """Make `context` the current one of this thread; None when the run is over."""
    _current.set(context)
