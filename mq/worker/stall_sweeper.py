"""The stall sweeper: gives back, fails or cancels jobs whose lock expired."""

from __future__ import annotations

import logging
from collections.abc import Callable

from mq.records import Recovered
from mq.store import SWEEP_BATCH, Store
from mq.worker.duty import Duty
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak

log = logging.getLogger("mq.worker")


class StallSweeper(Duty):
    """Sweeps at start and then every interval. Any worker may run it.

    Args:
        store: what is swept; locks of all its queues.
        options: interval and how many stalls are allowed.
        streak: outages, as the other duties see them.
    """

    requeued: Callable[[], None] = staticmethod(lambda: None)
    """Called after a sweep that made jobs runnable: the wake-up may go to the very worker that
    hangs, whose connection still blocks on it."""

    def __init__(self, store: Store, options: WorkerOptions, streak: Streak) -> None:
        super().__init__("mq-stall-sweeper", "stall sweep", options.stalled_ms, streak)
        self.recovered: dict[str, int] = {}
        self._store = store
        self._options = options

    def look(self) -> None:
        """Deal with every expired lock there is now, in bounded calls."""
        while not self._stop_asked.is_set():
            found = self._store.stall_sweep(self._options.max_stalled_count)
            for job in found:
                self._report(job)
            if any(job.word == "requeued" for job in found):
                self.requeued()
            if len(found) < SWEEP_BATCH:
                return

    def _report(self, job: Recovered) -> None:
        self.recovered[job.word] = self.recovered.get(job.word, 0) + 1
        log.warning(
            "job %s (%s) stalled: worker %s did not extend its lock; %s",
            job.id, job.name, job.worker or "(unnamed)", job.word,
        )  # fmt: skip
