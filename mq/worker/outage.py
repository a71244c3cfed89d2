"""Living through an outage: says so once, waits longer each time, says when it is over."""

from __future__ import annotations

import logging
import random
import threading
import time

from mq.connection import retryable
from mq.durations import format_ms
from mq.errors import StoreError

log = logging.getLogger("mq.worker")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


def blames_a_record(error: StoreError) -> bool:
    """Whether a script failed on what stands in the store, so that trying again is no use.

    A field that is no number, or a key of another type: written by hand, or by another program.
    """
    text = str(error)
    return "WRONGTYPE" in text or ("user_script" in text and "attempt to" in text)


class Streak:
    """An outage as one worker has it: several duties notice, and it is told once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None
        self.number = 0
        """Counts the outages, so that a success from before the current one is told apart."""

    def begins(self) -> bool:
        """Note a failure; whether it is the first."""
        with self._lock:
            first = self._since is None
            if first:
                self._since = time.monotonic()
                self.number += 1
            return first

    def ends(self, number: int) -> float | None:
        """Note a success after outage `number`; how many seconds it lasted if that is news."""
        with self._lock:
            if number != self.number:
                return None
            since, self._since = self._since, None
            return None if since is None else time.monotonic() - since


class Outage:
    """One duty's view of an unreachable store.

    Args:
        duty: what is interrupted, for the log line.
        stop: the duty is over. It ends a pause, and what fails from then on is no outage: whoever
            stopped the worker may have closed the store, or ended the server, before it was read.
        streak: shared by the duties of a worker. A failure that concerns one alone, such as a
            right it lacks, is told by itself and hides nothing from the others.
    """

    def __init__(self, duty: str, stop: threading.Event, streak: Streak) -> None:
        self._duty = duty
        self._stop = stop
        self._shared = streak
        self._streak = streak
        self._on = False
        self._number = 0
        self._pause_s = FIRST_PAUSE_S

    @property
    def on(self) -> bool:
        """Whether the last call failed."""
        return self._on

    def failed(self, error: StoreError) -> None:
        """Note a failure, and pause with growing, jittered waits."""
        if self._stop.is_set():
            return
        if not self._on:
            self._on = True
            cause = error.__cause__
            passing = isinstance(cause, Exception) and retryable(cause)
            self._streak = self._shared if passing else Streak()
            level = logging.WARNING if self._streak.begins() else logging.DEBUG
            log.log(level, "%s interrupted, trying again until it works: %s", self._duty, error)
        self._number = self._streak.number
        self._stop.wait(self._pause_s * random.uniform(0.5, 1))
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def worked(self) -> None:
        """Note that a call went through."""
        if not self._on:
            return
        self._on = False
        self._pause_s = FIRST_PAUSE_S
        lasted_s = self._streak.ends(self._number)
        if lasted_s is not None:
            log.warning("%s goes on after %s", self._duty, format_ms(int(lasted_s * 1000)))
