"""The flow starter: enqueues the children of parents that have just fanned out."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from mq.errors import StoreError
from mq.manifests import decode_row, id_taken
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
        self._waiting: list[str] = []
        self._away: set[str] = set()
        self._looking = threading.Lock()
        self.done = 0

    def start_children(self, job_id: str) -> None:
        """Note a parent whose fan-out has landed."""
        self._parents.put(job_id)
        self.poke()

    def look(self) -> None:
        """Enqueue the children of every parent that was noted.

        Parents with children in a store that is away come behind all others, and one of them is
        tried a look: each try takes as long as a call is repeated for.

        Raises:
            StoreError: a store is away; parents wait for it.
        """
        with self._looking:
            self._begin_all()
            if self._waiting and not self._stop_asked.is_set():
                self._away.clear()
                waiting, self._waiting = self._waiting, []
                for job_id in waiting[1:]:
                    self._parents.put(job_id)
                try:
                    self._begin(waiting[0])
                except StoreError:
                    self._waiting.append(waiting[0])
                    raise
                self._begin_all()

    def _begin_all(self) -> None:
        while not self._stop_asked.is_set():
            try:
                job_id = self._parents.get_nowait()
            except queue.Empty:
                return
            try:
                self._begin(job_id)
            except StoreError:
                self._waiting.append(job_id)

    def _begin(self, job_id: str) -> None:
        try:
            self._start(job_id)
        except StoreError:
            raise
        except Exception:
            # One that cannot be enqueued must not end the thread that starts all others.
            log.exception("children of %s are left to the flow sweeper", job_id)
        self.done += 1

    def _start(self, job_id: str) -> None:
        noted: list[ChildRow] = []
        while not self._stop_asked.is_set():
            rows = self._store.next_children(job_id, [row.key for row in noted])
            if not rows:
                call_off_if_settled(self._app, self._store, job_id, noted)
                return
            stores = set(_by_store(rows))
            if stores & self._away:
                raise StoreError(f"store {min(stores & self._away)} is away")
            try:
                taken = enqueue_children(self._app, rows)
            except StoreError:
                self._away |= stores
                raise
            report_taken(self._store, taken)
            noted = [row for row in rows if row not in taken]


def call_off_if_settled(app: App, store: Store, parent: str, rows: list[ChildRow]) -> None:
    """Cancel children that were enqueued while their parent settled or was cancelled.

    The sweeper may have come to deliver their cancels before they were there.
    """
    if not rows or store.get_states([parent]) == [JobState.WAITING_CHILDREN]:
        return
    for name, requests in _by_store(rows).items():
        ids = [request.id for _, request in requests if request.id is not None]
        app.store_named(name).steer("cancel_request", ids)


def enqueue_children(app: App, rows: list[ChildRow]) -> list[ChildRow]:
    """Enqueue children into their stores, each store's in one call.

    Returns:
        Those that were not enqueued, because a job that is no child of this parent has the id.
    """
    taken = []
    for name, mine in _by_store(rows).items():
        store = app.store_named(name)
        answers = store.enqueue_many([request for _, request in mine])
        for (row, request), answer in zip(mine, answers, strict=True):
            if answer.duplicate and is_of_another(store, request):
                taken.append(row)
    return taken


def is_of_another(store: Store, request: Request) -> bool:
    """Whether a job that is no child of this one's parent has its id."""
    assert request.id is not None
    record = store.get_job(request.id, bodies=False)
    return record is not None and record.parent != request.parent


def report_taken(store: Store, rows: list[ChildRow]) -> None:
    """Report children that cannot be enqueued as failed."""
    if rows:
        store.record_child_results([id_taken(decode_row(row.key, row.row)) for row in rows])


def _by_store(rows: list[ChildRow]) -> dict[str, list[tuple[ChildRow, Request]]]:
    """Return the children with their requests by the names of their stores."""
    requests: dict[str, list[tuple[ChildRow, Request]]] = {}
    for row in rows:
        child = decode_row(row.key, row.row)
        requests.setdefault(child.store, []).append((row, child.request))
    return requests
