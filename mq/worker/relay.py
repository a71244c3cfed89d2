"""The relay: carries reports of finished children from this store's outbox to their parents."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from mq.errors import DefinitionError, StoreError
from mq.manifests import report_of
from mq.store import Store
from mq.store.families import ChildReport, OutboxEntry
from mq.worker.duty import Duty
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak

if TYPE_CHECKING:
    from mq.app import App

log = logging.getLogger("mq.worker")


class Relay(Duty):
    """Reads the outbox, records, then deletes; a report that is carried twice is ignored there.

    It looks when a child's ack has landed in this worker, and every interval. `done` counts what it
    has carried.

    Args:
        app: knows the parents' stores by name.
        store: whose outbox it is.
        options: the interval.
        streak: outages, as the other duties see them.
    """

    def __init__(self, app: App, store: Store, options: WorkerOptions, streak: Streak) -> None:
        super().__init__("mq-relay", "carrying reports", options.flow_ms, streak)
        self._app = app
        self._store = store
        self._complained: set[str] = set()
        self._strange: set[str] = set()
        self._failed: set[str] = set()
        self._looking = threading.Lock()
        self.done = 0

    failures_carried: Callable[[], None] = staticmethod(lambda: None)
    """Called when children that failed were reported: a parent may owe cancels for it."""

    def look(self) -> None:
        """Carry everything there is now; what cannot be carried holds up nothing else."""
        with self._looking:
            # A call to a store that is away takes as long as it is repeated for. So one is asked
            # once a look, and those that were away before come behind all others.
            away = set(self._complained)
            self._go_through(lambda name: name not in self._complained)
            if away:
                self._go_through(lambda name: name in away)

    def _go_through(self, wanted: Callable[[str], bool]) -> None:
        after: str | None = None
        self._failed = set[str]()
        while not self._stop_asked.is_set():
            entries = self._store.peek_outbox(after=after)
            if not entries:
                return
            # A report may settle a parent that is a child itself: its own comes behind.
            self._carry(entries, wanted)
            after = entries[-1].id

    def _carry(self, entries: list[OutboxEntry], wanted: Callable[[str], bool]) -> None:
        carried: list[str] = []
        by_store: dict[str, list[tuple[str, ChildReport]]] = {}
        for entry in entries:
            try:
                name, report = report_of(entry.parent, entry.outcome, entry.exit, entry.reason)
            except ValueError:
                log.warning("report %s names no parent (%r); it is dropped", entry.id, entry.parent)
                carried.append(entry.id)
                continue
            by_store.setdefault(name, []).append((entry.id, report))
        for name, reports in by_store.items():
            if name in self._failed or not wanted(name):
                continue
            try:
                self._record(name, [one for _, one in reports])
            except (DefinitionError, StoreError) as error:
                self._failed.add(name)
                self._complain(name, error)
                continue
            self._complained.discard(name)
            if any(report.outcome == "failed" for _, report in reports):
                self.failures_carried()
            carried += (entry_id for entry_id, _ in reports)
        self.done += len(carried)
        self._store.delete_outbox(carried)

    def _record(self, name: str, reports: list[ChildReport]) -> None:
        store = self._app.store_named(name)
        applied = store.record_child_results(reports)
        late = [one for one, taken in zip(reports, applied, strict=True) if not taken]
        if not late or name in self._strange:
            return
        states = store.get_states([one.parent for one in late])
        for one, state in zip(late, states, strict=True):
            if state is None:
                self._strange.add(name)
                log.warning(
                    "child %s reported to job %s in store %s, which has no such job: it was"
                    " removed, or the store has another name where its children are enqueued",
                    one.key, one.parent, name,
                )  # fmt: skip
                return

    def _complain(self, name: str, error: Exception) -> None:
        if name not in self._complained:
            self._complained.add(name)
            log.warning("reports to parents in store %s wait: %s", name, error)
