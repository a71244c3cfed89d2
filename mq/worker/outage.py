"""Living through an outage: says so once, waits longer each time, says when it is over."""

from __future__ import annotations

import logging
import random
import threading
import time

from mq.durations import format_ms
from mq.errors import StoreError

log = logging.getLogger("mq.worker")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


class Outage:
    """One duty's view of an unreachable store.

    Args:
        duty: what is interrupted, for the log line.
        stop: ends a pause early.
    """

    def __init__(self, duty: str, stop: threading.Event) -> None:
        self._duty = duty
        self._stop = stop
        self._since: float | None = None
        self._pause_s = FIRST_PAUSE_S

    @property
    def on(self) -> bool:
        """Whether the last call failed."""
        return self._since is not None

    def failed(self, error: StoreError) -> None:
        """Note a failure, and pause with growing, jittered waits."""
        if self._since is None:
            self._since = time.monotonic()
            log.warning("%s interrupted, trying again until it works: %s", self._duty, error)
        self._stop.wait(self._pause_s * random.uniform(0.5, 1))
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def worked(self) -> None:
        """Note that a call went through."""
        if self._since is None:
            return
        lasted = format_ms(int((time.monotonic() - self._since) * 1000))
        log.warning("%s goes on after %s", self._duty, lasted)
        self._since = None
        self._pause_s = FIRST_PAUSE_S
