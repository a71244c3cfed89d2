"""Signals to a worker process: the first drains, a repeat is ignored, a later one stops at once."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

REPEAT_S = 1.0
"""A second signal within this time is the same request: an init that signals the whole process
group delivers it twice."""


class StartUpStopped(BaseException):
    """A signal came before the worker had started: it holds nothing, so it just ends."""


class StopSignals:
    """What SIGTERM and SIGINT asked for so far.

    `drain` is set by the first, `force` by one that comes later than REPEAT_S after it.

    Args:
        starting: until `started` is called a signal also raises StartUpStopped in the main
            thread, so that the import of a slow module or a connection that hangs is cut short.
    """

    def __init__(self, *, starting: bool = False) -> None:
        self.drain = threading.Event()
        self.force = threading.Event()
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
