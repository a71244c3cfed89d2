"""Signals to a worker process: the first drains, a repeat is ignored, a later one stops at once."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
import time
from types import FrameType

REPEAT_S = 1.0
"""A second signal within this time is the same request: an init that signals the whole process
group delivers it twice."""


class StartUpStopped(BaseException):
    """A signal came before the worker had started: it holds nothing, so it just ends."""


class SignalEvent(threading.Event):
    """An event that a signal handler may set, for one thread to wait on.

    The handler runs in the main thread, between two bytecodes of whatever it does. When that is a
    wait on this very event, the lock that an ordinary `set` takes is held below and never freed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._raised = False
        # Its put is reentrant by contract: made to be called from signal handlers.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def set(self) -> None:
        """Set it and wake the waiting thread, without a lock."""
        self._raised = True
        self._wake.put(None)

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._raised

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; False when `timeout` seconds are over first."""
        if not self._raised:
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=timeout)
        return self._raised


class StopSignals:
    """What SIGTERM and SIGINT asked for so far.

    `drain` is set by the first, `force` by one that comes later than REPEAT_S after it.

    Args:
        starting: until `started` is called a signal also raises StartUpStopped in the main
            thread, so that the import of a slow module or a connection that hangs is cut short.
    """

    def __init__(self, *, starting: bool = False) -> None:
        self.drain: threading.Event = SignalEvent()
        self.force: threading.Event = SignalEvent()
        self._first_at: float | None = None
        self._starting = starting

    def install(self) -> None:
        """Handle the signals from now on; only the main thread may."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._received)

    def started(self) -> None:
        """Say that from now on somebody looks at the events."""
        self._starting = False

    def _received(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            self.drain.set()
        elif now - self._first_at > REPEAT_S:
            self.force.set()
        else:
            return
        if self._starting:
            raise StartUpStopped
