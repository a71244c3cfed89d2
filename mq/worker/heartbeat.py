"""The heartbeat: one call an interval extends every lock the worker holds.

Its answer also carries the cancels that are pending, which makes it the guarantee behind the
pushed ones.
"""

from __future__ import annotations

import logging
import threading

from mq.errors import StoreError
from mq.store import Store
from mq.worker.interrupter import Interrupter
from mq.worker.options import WorkerOptions
from mq.worker.outage import Outage, Streak
from mq.worker.run import Run, Runs

log = logging.getLogger("mq.worker")


class Heartbeat(threading.Thread):
    """Extends locks until stopped.

    Args:
        store: where the locks are.
        options: interval and length of a lock.
        runs: the runs the worker holds.
        interrupter: told of pending cancels.
        streak: outages, as the other duties see them.
    """

    def __init__(
        self,
        store: Store,
        options: WorkerOptions,
        runs: Runs,
        interrupter: Interrupter,
        streak: Streak,
    ) -> None:
        super().__init__(name="mq-heartbeat", daemon=True)
        self.locks_lost = 0
        self._store = store
        self._options = options
        self._runs = runs
        self._interrupter = interrupter
        self._stop_asked = threading.Event()
        self._outage = Outage("heartbeat", self._stop_asked, streak)

    def stop(self) -> None:
        """End the thread."""
        self._stop_asked.set()

    def run(self) -> None:
        """Beat every interval until stopped."""
        while not self._stop_asked.wait(self._options.lock_renew_ms / 1000):
            try:
                if self.beat():
                    self._outage.worked()
            except StoreError as error:
                self._outage.failed(error)

    def beat(self) -> bool:
        """Extend all locks once and tell the runs what the answer says; False if there are none."""
        held = self._runs.held()
        if not held:
            return False
        told = self._store.extend([(run.job_id, run.token) for run in held], self._options.lock_ms)
        by_id = {run.job_id: run for run in held}
        for job_id in told.lost:
            self.lost(by_id[job_id])
        for job_id in told.cancel_requested:
            self._interrupter.cancel(by_id[job_id])
        return True

    def lost(self, run: Run) -> None:
        """Tell a run that another one has its job."""
        # A run that is over may have been acked between the call and its answer.
        if run.over or run.lost:
            return
        run.lost = True
        self.locks_lost += 1
        log.warning(
            "job %s: the lock of run #%d is lost; its handler is told to end, its ack is void",
            run.job_id, run.attempt,
        )  # fmt: skip
        run.tell()
