"""The window sweeper: deletes dedup windows that are over."""

from __future__ import annotations

from mq.store import WINDOW_BATCH, Store
from mq.worker.duty import Duty
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak


class WindowSweeper(Duty):
    """Keeps windows from outliving their use; an enqueue looks at the clock, not at the sweep.

    Args:
        store: what is swept.
        options: the interval.
        streak: outages, as the other duties see them.
    """

    def __init__(self, store: Store, options: WorkerOptions, streak: Streak) -> None:
        super().__init__("mq-window-sweeper", "window sweep", options.history_ms, streak)
        self._store = store

    def look(self) -> None:
        """Delete all there are now, in bounded calls."""
        while not self._stop_asked.is_set():
            if self._store.window_sweep() < WINDOW_BATCH:
                return
