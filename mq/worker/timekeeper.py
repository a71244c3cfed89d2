"""The timekeeper: calls what is due, when it is due, on one thread."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger("mq.worker")


class Timekeeper(threading.Thread):
    """Holds actions for later. They must be quick: each delays those behind it."""

    def __init__(self) -> None:
        super().__init__(name="mq-timekeeper", daemon=True)
        self._change = threading.Condition()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._stopped = False

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` in `seconds` from now; it must look itself whether it is still wanted."""
        with self._change:
            entry = (time.monotonic() + seconds, next(self._order), action)
            heapq.heappush(self._due, entry)
            if self._due[0] is entry:
                self._change.notify()

    def stop(self) -> None:
        """End the thread; what is not due yet is dropped."""
        with self._change:
            self._stopped = True
            self._change.notify()

    def run(self) -> None:
        """Call what falls due until stopped."""
        while True:
            with self._change:
                while not self._stopped and not self._first_is_due():
                    left_s = self._due[0][0] - time.monotonic() if self._due else None
                    self._change.wait(left_s)
                if self._stopped:
                    return
                action = heapq.heappop(self._due)[2]
            try:
                action()
            except Exception:
                log.exception("a timed action failed")

    def _first_is_due(self) -> bool:
        return bool(self._due) and self._due[0][0] <= time.monotonic()
