"""The flow starter: enqueues the children of parents that have just fanned out."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from mq.errors import StoreError
from mq.manifests import decode_row
from mq.records import Request
from mq.states import JobState
from mq.store import Store
from mq.store.families import ChildRow
from mq.worker.duty import Duty
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak

if TYPE_CHECKING:
    from mq.app import App

log = logging.getLogger("mq.worker")


class FlowStarter(Duty):
    """Enqueues children page by page, into whatever stores they live in.

    What it does not get to, because it dies or a store is away, the flow sweeper does: a child's id
    follows from its parent and key, so doing it twice does nothing. `done` counts the parents.

    Args:
        app: knows the stores by name.
        store: the parents'.
        options: the interval.
        streak: outages, as the other duties see them.
    """

    def __init__(self, app: App, store: Store, options: WorkerOptions, streak: Streak) -> None:
        super().__init__("mq-flow-starter", "starting children", options.flow_ms, streak)
        self._app = app
        self._store = store
        self._parents: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._looking = threading.Lock()
        self.done = 0

    def start_children(self, job_id: str) -> None:
        """Note a parent whose fan-out has landed."""
        self._parents.put(job_id)
        self.poke()

    def look(self) -> None:
        """Enqueue the children of every parent that was noted."""
        with self._looking:
            while not self._stop_asked.is_set():
                try:
                    job_id = self._parents.get_nowait()
                except queue.Empty:
                    return
                self.done += 1
                try:
                    self._start(job_id)
                except StoreError:
                    raise
                except Exception:
                    # One that cannot be enqueued must not end the thread that starts all others.
                    log.exception("children of %s are left to the flow sweeper", job_id)

    def _start(self, job_id: str) -> None:
        started: list[ChildRow] = []
        while not self._stop_asked.is_set():
            rows = self._store.next_children(job_id, [row.key for row in started])
            if not rows:
                call_off_if_settled(self._app, self._store, job_id, started)
                return
            enqueue_children(self._app, rows)
            started = rows


def call_off_if_settled(app: App, store: Store, parent: str, rows: list[ChildRow]) -> None:
    """Cancel children that were enqueued while their parent settled or was cancelled.

    The sweeper may have come to deliver their cancels before they were there.
    """
    if not rows or store.get_states([parent]) == [JobState.WAITING_CHILDREN]:
        return
    for name, requests in _by_store(rows).items():
        ids = [request.id for request in requests if request.id is not None]
        app.store_named(name).steer("cancel_request", ids)


def enqueue_children(app: App, rows: list[ChildRow]) -> None:
    """Enqueue children into their stores, each store's in one call."""
    for name, requests in _by_store(rows).items():
        app.store_named(name).enqueue_many(requests)


def _by_store(rows: list[ChildRow]) -> dict[str, list[Request]]:
    """Return the children's requests by the names of their stores."""
    requests: dict[str, list[Request]] = {}
    for row in rows:
        child = decode_row(row.key, row.row)
        requests.setdefault(child.store, []).append(child.request)
    return requests
