"""The indexer: declares metadata keys and completes their indexes with the jobs that were there."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mq.store import Store
from mq.worker.duty import Duty
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak

log = logging.getLogger("mq.worker")

PAUSE_S = 0.002
"""Between two steps, so that a back-fill takes no more than its share of the server."""


class Indexer(Duty):
    """Takes steps of the back-fill until every index is complete.

    A declaration is repeated with each look: it costs one call, and holds again after a FLUSHALL.

    Args:
        store: whose indexes they are.
        keys: metadata keys that the worker's definitions declare.
        options: the interval.
        streak: outages, as the other duties see them.
    """

    def __init__(
        self, store: Store, keys: Sequence[str], options: WorkerOptions, streak: Streak
    ) -> None:
        super().__init__("mq-indexer", "metadata back-fill", options.history_ms, streak)
        self._store = store
        self._keys = keys

    def look(self) -> None:
        """Declare, and do what there is to do."""
        self._store.declare_index(self._keys)
        looked_at: dict[str, int] = {}
        while not self._stop_asked.is_set() and (step := self._store.backfill()) is not None:
            key, number = step
            looked_at[key] = looked_at.get(key, 0) + number
            self._stop_asked.wait(PAUSE_S)
        for key, number in looked_at.items():
            log.info("metadata index %r: looked at %d jobs", key, number)
