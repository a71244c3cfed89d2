"""A duty: a thread that does something at start and then every interval, give or take a tenth."""

from __future__ import annotations

import random
import threading

from mq.errors import StoreError
from mq.worker.outage import Outage, Streak


class Duty(threading.Thread):
    """Runs `look` until stopped. Any worker may do it, so all of them do; each look is bounded.

    Args:
        name: of the thread.
        told: what an outage keeps it from, for the log.
        interval_ms: pause between two looks; jitter keeps workers from looking in step.
        streak: outages, as the other duties see them.
    """

    def __init__(self, name: str, told: str, interval_ms: int, streak: Streak) -> None:
        super().__init__(name=name, daemon=True)
        self._interval_s = interval_ms / 1000
        self._stop_asked = threading.Event()
        self._poked = threading.Event()
        self._outage = Outage(told, self._stop_asked, streak)

    def stop(self) -> None:
        """End the thread."""
        self._stop_asked.set()
        self._poked.set()

    def poke(self) -> None:
        """Look again now: somebody knows of work."""
        self._poked.set()

    def look(self) -> None:
        """Do the work there is now."""
        raise NotImplementedError

    def pause_s(self) -> float:
        """How long to wait before the next look."""
        return self._interval_s * random.uniform(0.9, 1.1)

    def run(self) -> None:
        """Look until stopped."""
        while not self._stop_asked.is_set():
            try:
                self.look()
                self._outage.worked()
            except StoreError as error:
                self._outage.failed(error)
                continue
            self._poked.wait(self.pause_s())
            self._poked.clear()
