"""The flow sweeper: repairs flows from what stands in their store, and delivers owed cancels."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mq.errors import DefinitionError, StoreError
from mq.flows import decode_row
from mq.records import Child
from mq.store import Store
from mq.store.families import ChildReport, ChildRow, SweepRow
from mq.worker.duty import Duty
from mq.worker.flow_starter import call_off_if_settled, enqueue_children
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak

if TYPE_CHECKING:
    from mq.app import App

log = logging.getLogger("mq.worker")


class FlowSweeper(Duty):
    """Looks into rows that are open for an interval, and into cancels that are owed.

    A child that nobody is known to have enqueued is enqueued; one that has finished is reported;
    one that an operator removed is reported cancelled; one that runs is left alone. Each row waits
    a full interval before it is looked into again, by whichever worker.

    Args:
        app: knows the children's stores by name.
        store: the parents'.
        options: the interval.
        streak: outages, as the other duties see them.
    """

    def __init__(self, app: App, store: Store, options: WorkerOptions, streak: Streak) -> None:
        super().__init__("mq-flow-sweeper", "flow sweep", options.flow_ms, streak)
        self._app = app
        self._store = store
        self._age_ms = options.flow_ms

    def look(self) -> None:
        """Do what there is to do now, in bounded calls."""
        while not self._stop_asked.is_set():
            rows = self._store.flow_sweep_work(self._age_ms)
            if not rows:
                return
            for row in rows:
                try:
                    self._settle_row(row, decode_row(row.key, row.row))
                except (DefinitionError, StoreError) as error:
                    log.warning("child %s of %s waits: %s", row.key, row.parent, error)
                except Exception:
                    log.exception("child %s of %s cannot be looked into", row.key, row.parent)

    def _settle_row(self, row: SweepRow, child: Child) -> None:
        job_id = child.request.id
        assert job_id is not None
        store = self._app.store_named(child.store)
        if row.kind == "owed":
            # Cancelled, flagged, finished or not there: in each case nothing more is owed.
            store.steer("cancel_request", [job_id])
            self._store.mark_children_delivered(row.parent, [row.key])
            return
        if row.kind == "unstarted":
            rows = [ChildRow(row.key, row.row)]
            enqueue_children(self._app, rows)
            self._store.next_children(row.parent, [row.key], limit=0)
            call_off_if_settled(self._app, self._store, row.parent, rows)
        record = store.get_job(job_id)
        if record is None:
            report = _left_behind(store, row, job_id)
        elif record.state.finished:
            report = ChildReport(row.parent, row.key, record.state.value, record.exit)
        else:
            return
        self._store.record_child_results([report])


def _left_behind(store: Store, row: SweepRow, job_id: str) -> ChildReport:
    """Return the report of a child that is gone: its own, when it left one, else cancelled.

    A policy may remove a child in its own ack. Its report is then in the outbox, or has been
    carried, and whatever comes behind is ignored.
    """
    after: str | None = None
    while entries := store.peek_outbox(after=after):
        for entry in entries:
            if entry.child == job_id:
                return ChildReport(row.parent, row.key, entry.outcome, entry.exit)
        after = entries[-1].id
    return ChildReport(row.parent, row.key, "cancelled")
