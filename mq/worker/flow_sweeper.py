"""The flow sweeper: repairs flows from what stands in their store, and delivers owed cancels."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from mq.errors import DefinitionError, StoreError
from mq.manifests import decode_row, id_taken, report_of
from mq.records import Child
from mq.store import Store
from mq.store.families import ChildReport, ChildRow, SweepRow
from mq.worker.duty import Duty
from mq.worker.flow_starter import (
    call_off_if_settled,
    enqueue_children,
    is_of_another,
    report_taken,
)
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak

if TYPE_CHECKING:
    from mq.app import App

log = logging.getLogger("mq.worker")


@attrs.frozen
class Case:
    """A row that was handed out, and whom it is about.

    Args:
        row: as it was handed out.
        child: what stands in it.
    """

    row: SweepRow
    child: Child

    @property
    def job_id(self) -> str:
        """The child's id."""
        return str(self.child.request.id)

    def report(self, outcome: str, exit_: bytes | None = None, reason: str = "") -> ChildReport:
        """Return the report of the child to its parent."""
        return report_of(self.child.request.parent, outcome, exit_, reason)[1]


class FlowSweeper(Duty):
    """Looks into rows that are open for an interval, and into cancels that are owed.

    A child that nobody is known to have enqueued is enqueued; one that has finished is reported;
    one that an operator removed is reported cancelled; one that runs is left alone. Each row waits
    a full interval before it is looked into again, by any worker. Cancels do not wait for it:
    the sweeper looks as often as an idle worker does. Rows are dealt with in batches, one for each
    store that children live in: one that is away holds up its own alone.

    Args:
        app: knows the children's stores by name.
        store: the parents'.
        options: the intervals.
        streak: outages, as the other duties see them.
    """

    def __init__(self, app: App, store: Store, options: WorkerOptions, streak: Streak) -> None:
        often_ms = min(options.flow_ms, options.poll_ms)
        super().__init__("mq-flow-sweeper", "flow sweep", often_ms, streak)
        self._app = app
        self._store = store
        self._age_ms = options.flow_ms

    def look(self) -> None:
        """Do what there is to do now, in bounded calls."""
        # A store that does not answer is asked once a look, not once a batch: each time takes as
        # long as a call is repeated for, and rows of other stores come behind.
        away: set[str] = set()
        while not self._stop_asked.is_set():
            rows = self._store.flow_sweep_work(self._age_ms)
            if not rows:
                return
            for name, cases in _by_store(rows).items():
                if name not in away and not self._attend(name, cases):
                    away.add(name)

    def _attend(self, name: str, cases: list[Case]) -> bool:
        """Deal with the children of one store; False when it cannot be reached."""
        try:
            self._settle(self._app.store_named(name), cases)
        except (DefinitionError, StoreError) as error:
            if self._stop_asked.is_set():
                return False
            one, more = cases[0].row, len(cases) - 1
            also = f" and {more} more" if more else ""
            log.warning("child %s of %s%s waits: %s", one.key, one.parent, also, error)
            return False
        except Exception:
            if len(cases) > 1:  # one of them is to blame, and the others are not to wait for it
                return all(self._attend(name, [one]) for one in cases)
            row = cases[0].row
            log.exception("child %s of %s cannot be looked into", row.key, row.parent)
        return True

    def _settle(self, store: Store, cases: list[Case]) -> None:
        by_kind: dict[str, list[Case]] = {}
        for one in cases:
            by_kind.setdefault(one.row.kind, []).append(one)
        owed = by_kind.get("owed", []) + by_kind.get("owed_unstarted", [])
        unstarted = by_kind.get("unstarted", [])
        if owed:
            self._deliver(store, owed)
        # One that was enqueued, not noted, and taken away by its own retention has left a report.
        told = _in_outbox(store, unstarted)
        unstarted = [one for one in unstarted if one.child.request.parent not in told]
        if unstarted:
            self._enqueue(unstarted)
        reports = _reports_of(store, unstarted + by_kind.get("started", []))
        if reports := [*told.values(), *reports]:
            self._store.record_child_results(reports)

    def _deliver(self, store: Store, cases: list[Case]) -> None:
        # Nobody is known to have enqueued these: who has the id of one may be another's child.
        strangers = [
            one
            for one in cases
            if one.row.kind == "owed_unstarted" and is_of_another(store, one.child.request)
        ]
        mine = [one for one in cases if one not in strangers]
        answers = store.steer("cancel_request", [one.job_id for one in mine])
        delivered = [one.row for one in strangers] + [
            one.row
            for one, (word, _) in zip(mine, answers, strict=True)
            # Cancelled, flagged, finished or gone: nothing more is owed. One that was on its way
            # when its parent settled may come yet, so its row is left to be handed out again.
            if (one.row.kind, word) != ("owed_unstarted", "not_found")
        ]
        for parent, rows in _by_parent(delivered).items():
            self._store.mark_children_delivered(parent, [row.key for row in rows])

    def _enqueue(self, cases: list[Case]) -> None:
        by_parent = _by_parent([one.row for one in cases])
        taken = enqueue_children(self._app, [row for rows in by_parent.values() for row in rows])
        report_taken(self._store, taken)
        for parent, rows in by_parent.items():
            noted = [row for row in rows if row not in taken]
            self._store.next_children(parent, [row.key for row in noted], limit=0)
            call_off_if_settled(self._app, self._store, parent, noted)


def _by_store(rows: Sequence[SweepRow]) -> dict[str, list[Case]]:
    """Return the rows by the store their children live in; one that cannot be read is told."""
    cases: dict[str, list[Case]] = {}
    for row in rows:
        try:
            child = decode_row(row.key, row.row)
            if not isinstance(child.request.id, str):
                raise TypeError(f"its request has the id {child.request.id!r}")
            cases.setdefault(child.store, []).append(Case(row, child))
        except Exception:
            log.exception("child %s of %s cannot be looked into", row.key, row.parent)
    return cases


def _by_parent(rows: Sequence[SweepRow]) -> dict[str, list[ChildRow]]:
    found: dict[str, list[ChildRow]] = {}
    for row in rows:
        found.setdefault(row.parent, []).append(ChildRow(row.key, row.row))
    return found


def _reports_of(store: Store, cases: Sequence[Case]) -> list[ChildReport]:
    """Return the reports of those children that have finished or are gone."""
    reports, gone = [], []
    states = store.get_states([one.job_id for one in cases]) if cases else []
    for one, state in zip(cases, states, strict=True):
        if state is not None and not state.finished:
            continue
        record = store.get_job(one.job_id) if state else None
        if record is None:
            gone.append(one)
        elif record.parent != one.child.request.parent:
            reports.append(id_taken(one.child))
        elif record.state.finished:
            reports.append(one.report(record.state.value, record.exit, record.failed_reason or ""))
    return reports + _left_behind(store, gone)


def _left_behind(store: Store, gone: Sequence[Case]) -> list[ChildReport]:
    """Return the reports of children that are gone: their own, when they left one, else cancelled.

    A policy may remove a child in its own ack. Its report is then in the outbox, or has been
    carried, and whatever comes behind is ignored.
    """
    told = _in_outbox(store, gone)
    return [told.get(one.child.request.parent) or one.report("cancelled") for one in gone]


def _in_outbox(store: Store, cases: Sequence[Case]) -> dict[str, ChildReport]:
    """Return the first report of each child that stands in the outbox, by its parent reference."""
    told: dict[str, ChildReport] = {}
    by_parent = {one.child.request.parent: one for one in cases}
    after: str | None = None
    while len(told) < len(by_parent) and (entries := store.peek_outbox(after=after)):
        for entry in entries:
            one = by_parent.get(entry.parent)
            if one is not None and entry.parent not in told:
                told[entry.parent] = one.report(entry.outcome, entry.exit, entry.reason)
        after = entries[-1].id
    return told
