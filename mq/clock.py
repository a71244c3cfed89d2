"""Where the time of a transition comes from: integer milliseconds since the Unix epoch.

Every script takes `now` as its first argument. In production it is left empty and the script asks
the server, so that workers on hosts with different clocks agree about locks and due times. Tests
pass an instant of their own; 0 is an instant like any other.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Clock(Protocol):
    """What a store asks for the instant of its next call."""

    def now_ms(self) -> int | None:
        """Return the instant to pass to scripts, or None for the server's own time."""
        ...


class ServerClock:
    """The clock of the Redis server: the only right one when several hosts share a store."""

    def now_ms(self) -> int | None:
        """Return None: each script reads TIME where it runs."""
        return None


class FakeClock:
    """A clock that moves only when told, for tests on any back end.

    Args:
        start_ms: the first instant, in milliseconds; 0 is allowed.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._now_ms = start_ms

    def now_ms(self) -> int:
        """Return the instant the clock stands at."""
        with self._lock:
            return self._now_ms

    def advance(self, ms: int) -> int:
        """Move on by `ms` milliseconds and return the new instant."""
        with self._lock:
            self._now_ms += ms
            return self._now_ms

    def set(self, at_ms: int) -> None:
        """Stand at `at_ms`, earlier or later."""
        with self._lock:
            self._now_ms = at_ms
