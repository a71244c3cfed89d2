"""The listener: blocks on Redis so that nobody else has to.

It always waits on the worker's control key, through which cancels of running jobs are pushed.
While the worker is hungry (free slots, nothing to fill them) it waits on the wake markers of
every queue and name it can run as well, so a new job starts within milliseconds. A worker that is
full must not take markers: they belong to the next idle one. A marker taken in that case is put
back.
"""

from __future__ import annotations

import logging
import threading

from mq.errors import StoreError
from mq.store import Store
from mq.worker.fetcher import Fetcher
from mq.worker.interrupter import Interrupter
from mq.worker.options import WorkerOptions
from mq.worker.outage import Outage, Streak
from mq.worker.run import Runs

log = logging.getLogger("mq.worker")


class Listener(threading.Thread):
    """Waits for pushes until stopped.

    Args:
        store: where pushes come from.
        pairs: every (queue, name) the worker can run.
        options: the worker's id and poll interval.
        runs: the runs the worker holds.
        fetcher: told when there may be work.
        interrupter: told of pushed cancels.
        streak: outages, as the other duties see them.
    """

    def __init__(
        self,
        store: Store,
        pairs: list[tuple[str, str]],
        options: WorkerOptions,
        runs: Runs,
        fetcher: Fetcher,
        interrupter: Interrupter,
        streak: Streak,
    ) -> None:
        super().__init__(name="mq-listener", daemon=True)
        self._store = store
        self._control = store.keys.control(options.id)
        self._wake = [store.keys.wake(queue, name) for queue, name in pairs]
        self._options = options
        self._runs = runs
        self._fetcher = fetcher
        self._interrupter = interrupter
        self._stop_asked = threading.Event()
        self._waiter = store.waiter(options.poll_ms)
        self._outage = Outage("listening for pushes", self._stop_asked, streak)
        # Whether it blocks, or is about to, on the control key alone.
        self._deaf = False

    def stop(self) -> None:
        """End the thread: at once when Redis can be reached, else within its block."""
        self._stop_asked.set()
        # In an outage it does not block, and nobody can be reached.
        if not self._outage.on:
            self._interrupt()

    def became_hungry(self) -> None:
        """Listen for new jobs again; called by the fetcher after it found nothing more."""
        if self._deaf:
            self._interrupt()

    def _interrupt(self) -> None:
        try:
            self._store.poke(self._options.id)
        except StoreError as error:
            log.debug("the listener was not interrupted: %s", error)

    def run(self) -> None:
        """Listen until stopped."""
        while not self._stop_asked.is_set():
            try:
                self._listen()
                self._outage.worked()
            except StoreError as error:
                self._outage.failed(error)
                # A marker may have been popped for it, and the answer lost with the connection.
                self._fetcher.look()
        self._waiter.close()

    def _listen(self) -> None:
        # The flag goes up before the question: the fetcher becomes hungry first and reads the flag
        # then, so one of the two always sees the other.
        self._deaf = True
        if self._fetcher.hungry:
            self._deaf = False
        keys = [self._control] if self._deaf else [self._control, *self._wake]
        popped = self._waiter.wait(keys, self._options.poll_ms)
        self._deaf = False
        if popped is None:
            return
        key, member = popped
        if key != self._control:
            # A claim made after the pop has set or cleared the marker as the queue is; without one
            # the marker belongs to another worker.
            if not self._fetcher.woken(patience_s=self._options.poll_ms / 1000):
                self._store.rearm(key)
        elif member:
            token, _, job_id = member.partition(" ")
            run = self._runs.told_to_cancel(job_id, token)
            if run is not None:
                self._interrupter.cancel(run)
