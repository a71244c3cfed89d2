"""The pruner: removes finished jobs that are past their retention."""

from __future__ import annotations

import logging

from mq.store import PRUNE_BATCH, Store
from mq.worker.duty import Duty
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak

log = logging.getLogger("mq.worker")

PAUSE_S = 0.005
"""Between two steps, so that a retention that was shortened leaves producers their server."""


class Pruner(Duty):
    """Does what scripts that finish jobs leave over: their share is bounded, names go quiet.

    Args:
        store: what is pruned, with its ceiling.
        options: the interval.
        streak: outages, as the other duties see them.
    """

    def __init__(self, store: Store, options: WorkerOptions, streak: Streak) -> None:
        super().__init__("mq-pruner", "pruning", options.history_ms, streak)
        self._store = store

    def look(self) -> None:
        """Remove all there is to remove now, in bounded steps."""
        removed = 0
        while not self._stop_asked.is_set():
            step = self._store.prune()
            removed += step
            if step < PRUNE_BATCH:
                break
            self._stop_asked.wait(PAUSE_S)
        if removed:
            log.info("pruned %d finished jobs", removed)
