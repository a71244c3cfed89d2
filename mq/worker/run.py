"""A run: one claimed job from the claim until its ack has landed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Literal, Protocol

from mq.context import Context
from mq.records import JobRecord
from mq.worker.executors.interrupts import Window

Reason = Literal["cancel", "timeout", "stop"]

EARLY_CANCELS = 1_000
"""Pushed cancels kept for runs that are not here yet; the heartbeat tells of any other."""


class InChild(Protocol):
    """A handler that runs in a child process."""

    def tell(self) -> None:
        """Set its `ctx.cancelled`."""
        ...

    def interrupt(self) -> None:
        """Raise Interrupted in it."""
        ...

    def kill(self) -> None:
        """Kill its process."""
        ...


class Run:
    """What the worker knows of a job it holds.

    Its end is decided once: by the slot, when the handler ended, or by the interrupter, when it
    would not. Whoever comes second is refused.

    Args:
        record: the job as it was claimed.
        token: what it is held under.
    """

    __slots__ = (
        "_child",
        "_end_lock",
        "attempt",
        "began",
        "cancel_requested",
        "context",
        "elsewhere",
        "job_id",
        "lost",
        "name",
        "over",
        "reason",
        "record",
        "token",
        "window",
    )

    def __init__(self, record: JobRecord, token: str) -> None:
        self.record = record
        self.token = token
        self.job_id = record.id
        self.name = record.name
        self.attempt = record.runs + 1
        """The number this run gets in the ledger."""
        self.began = 0.0
        """When its slot took it up, by the monotonic clock in seconds."""
        self.context: Context | None = None
        self.window = Window()
        """How its handler is interrupted in a thread of this process."""
        self._child: InChild | None = None
        self.reason: Reason | None = None
        """Why its handler was first told to end; None when it was not."""
        self.elsewhere = False
        """Whether its handler runs, or will, in a child process."""
        self.cancel_requested = False
        self.lost = False
        self.over = False
        self._end_lock = threading.Lock()

    def end(self) -> bool:
        """Take the right to say how the run ended; False when somebody has it already."""
        with self._end_lock:
            if self.over:
                return False
            self.over = True
            return True

    @property
    def started(self) -> bool:
        """Whether its handler has been called."""
        return self.context is not None

    def in_child(self, child: InChild) -> None:
        """Note that the handler runs in a child process; one told to end before hears of it."""
        with self._end_lock:
            self._child = child
            told = self.reason is not None or self.lost
        if told:
            child.tell()
            child.interrupt()

    def tell(self) -> None:
        """Set the handler's `ctx.cancelled`, now or as soon as it has one."""
        context = self.context
        # Once the flag is set nobody takes its lock again: a handler that was interrupted in a wait
        # for it may have left it held.
        if context is not None and not context.cancelled.is_set():
            context.cancelled.set()
        if self._child is not None:
            self._child.tell()

    def interrupt(self) -> bool:
        """Raise Interrupted in the handler, wherever it runs; False when it has to be later."""
        if self._child is not None:
            self._child.interrupt()
            return True
        return self.window.interrupt() != "later"

    def kill(self) -> bool:
        """Kill the process the handler runs in; False when it is this one."""
        if self._child is None:
            return False
        self._child.kill()
        return True


class Runs:
    """The runs a worker holds, by job id; shared by its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[str, Run] = {}
        self._early: deque[tuple[str, str]] = deque(maxlen=EARLY_CANCELS)
        self._empty = threading.Condition(self._lock)

    def add(self, run: Run) -> Run | None:
        """Hold a run, and return the one of the same job that it takes the place of."""
        with self._lock:
            before = self._by_id.get(run.job_id)
            self._by_id[run.job_id] = run
            return before

    def told_to_cancel(self, job_id: str, token: str) -> Run | None:
        """Return the run that a pushed cancel means; None when it is over, or not here yet."""
        with self._lock:
            run = self._by_id.get(job_id)
            if run is not None and run.token == token:
                return run
            self._early.append((job_id, token))
            return None

    def is_cancelled_early(self, run: Run) -> bool:
        """Whether a cancel was pushed before the answer of the claim had come."""
        with self._lock:
            return (run.job_id, run.token) in self._early

    def drop(self, run: Run) -> None:
        """Let a run go: its ack has landed, or it was lost."""
        with self._lock:
            if self._by_id.get(run.job_id) is run:
                del self._by_id[run.job_id]
            if not self._by_id:
                self._empty.notify_all()

    def held(self) -> list[Run]:
        """Return the runs held now."""
        with self._lock:
            return list(self._by_id.values())

    def get(self, job_id: str) -> Run | None:
        """Return the run of a job, or None when this worker does not hold it."""
        with self._lock:
            return self._by_id.get(job_id)

    def wait_until_empty(self, timeout_s: float) -> bool:
        """Wait until nothing is held; False when `timeout_s` is over first."""
        with self._lock:
            return self._empty.wait_for(lambda: not self._by_id, timeout_s)

    def __len__(self) -> int:
        """How many runs are held."""
        return len(self._by_id)

    def __iter__(self) -> Iterator[Run]:
        """Iterate over the runs held now."""
        return iter(self.held())
