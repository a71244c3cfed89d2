"""Families: what the store keeps of flow parents and their children, and the outbox of reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import attrs

from mq import ids
from mq.records import Ack
from mq.store.refusals import refused
from mq.store.running import Running
from mq.validation import check_count
from mq.wire import Argument

MANIFEST_BATCH = 100
REPORT_BATCH = 50
CHILDREN_PAGE = 100
MAX_LIST = 500
SWEEP_ROWS = 50
OUTBOX_PAGE = 50

OnChildFailure = Literal["continue", "fail"]


@attrs.frozen
class ChildRow:
    """One child in a parent's manifest.

    Args:
        key: names it among the children of the parent.
        row: its store and whole request, encoded; opaque here.
    """

    key: str
    row: bytes


@attrs.frozen
class ChildReport:
    """How a child ended, on its way to its parent.

    Args:
        parent: id of the parent.
        key: the child's key.
        outcome: completed, failed or cancelled.
        exit: its exit, None without one.
        born: when the parent was enqueued, ms; one of another instant is another parent. None
            takes whichever has the id.
    """

    parent: str
    key: str
    outcome: str
    exit: bytes | None = None
    born: int | None = None


@attrs.frozen
class ChildCounts:
    """How many children a parent has, and how they ended."""

    total: int
    completed: int
    failed: int
    cancelled: int

    @property
    def pending(self) -> int:
        """How many have not been reported."""
        return self.total - self.completed - self.failed - self.cancelled


@attrs.frozen
class ChildResult:
    """One child as its parent sees it.

    Args:
        key: the child's key.
        outcome: completed, failed, cancelled, or pending.
        exit: its exit as it was reported, None without one.
    """

    key: str
    outcome: str
    exit: bytes | None


@attrs.frozen
class ChildResults:
    """A page of children, by the bytes of their keys.

    Args:
        counts: of all children.
        items: the page.
        cursor: the last key of the page when more follow, else None.
    """

    counts: ChildCounts
    items: list[ChildResult]
    cursor: str | None


@attrs.frozen
class SweepRow:
    """A row that needs a look.

    Args:
        parent: id of the parent.
        key: the child's key.
        kind: `owed`, its cancel is to be delivered; `owed_unstarted`, that too, and somebody may be
            about to enqueue it: when it is not there the row comes again after a full age, as
            `owed`; `unstarted`, nobody is known to have enqueued it; `started`, it was enqueued and
            has not been reported for long.
        row: its store and request, encoded.
    """

    parent: str
    key: str
    kind: str
    row: bytes


@attrs.frozen
class OutboxEntry:
    """A report that waits to be carried to a parent.

    Args:
        id: of the entry.
        parent: reference of the parent, as the child's record has it; opaque here.
        child: id of the child.
        outcome: completed, failed or cancelled.
        exit: the child's exit, None without one.
        reason: why the store failed it, empty when it did not.
    """

    id: str
    parent: str
    child: str
    outcome: str
    exit: bytes | None
    reason: str = ""


class Families(Running):
    """The verbs of flows; callers are the worker's runner, relay and sweeper."""

    def write_manifest(
        self, job_id: str, token: str, rows: Sequence[ChildRow], on_child_failure: OnChildFailure
    ) -> None:
        """Note the children of a parent that is about to ack its fan-out, in bounded steps.

        Nothing of it counts before `ack_fanned_out` lands under the same token. After one that has
        landed nothing is written.

        Raises:
            LockLostError, JobNotFoundError: the token does not hold the parent.
        """
        for start in range(0, len(rows), MANIFEST_BATCH):
            flat = [
                part for row in rows[start : start + MANIFEST_BATCH] for part in (row.key, row.row)
            ]
            args: list[Argument] = [self._now(), job_id, token, on_child_failure, *flat]
            word = self._caller.call("write_manifest", *args)[0].decode()
            if word in ("lost", "not_found"):
                raise refused(word, job_id)

    def next_children(
        self, job_id: str, started: Sequence[str] = (), limit: int = CHILDREN_PAGE
    ) -> list[ChildRow]:
        """Note children as enqueued, and return the next that are not; empty when none are left."""
        flat = self._caller.call("next_children", self._now(), job_id, limit, *started)[1:]
        return [ChildRow(flat[at].decode(), flat[at + 1]) for at in range(0, len(flat), 2)]

    def record_child_results(self, reports: Sequence[ChildReport]) -> list[bool]:
        """Write reports to their parents' rows, and settle each parent that is due.

        Returns:
            For each report whether it was applied; a duplicate, a late and an unknown one is not.
        """
        answers: list[bool] = []
        for start in range(0, len(reports), REPORT_BATCH):
            args: list[Argument] = []
            for one in reports[start : start + REPORT_BATCH]:
                exit_ = b"" if one.exit is None else one.exit
                born = "" if one.born is None else one.born
                args += (one.parent, born, one.key, one.outcome, int(one.exit is not None), exit_)
            before: list[Argument] = [self._now(), ids.new_nonce()]
            words = self._caller.call_told("record_child_results", before, args)[1:]
            answers += (word == b"applied" for word in words)
        return answers

    def list_child_results(
        self, job_id: str, limit: int = CHILDREN_PAGE, cursor: str | None = None
    ) -> ChildResults:
        """Return a page of a parent's children, by the bytes of their keys, and the numbers.

        Args:
            job_id: the parent.
            limit: most rows, 0 to 500; 0 for the numbers alone.
            cursor: where the page before ended.
        """
        check_count(limit, "limit", 0, MAX_LIST)
        reply = self._caller.call(
            "list_child_results", self._now(), job_id, limit, int(cursor is not None), cursor or ""
        )
        counts = ChildCounts(*(int(number) for number in reply[1:5]))
        flat = reply[6:]
        items = [
            ChildResult(
                flat[at].decode(),
                flat[at + 1].decode(),
                flat[at + 3] if flat[at + 2] == b"1" else None,
            )
            for at in range(0, len(flat), 4)
        ]
        return ChildResults(counts, items, items[-1].key if reply[5] == b"1" and items else None)

    def get_child_row(self, job_id: str, key: str) -> bytes | None:
        """Return the row of one child, or None."""
        return self.get_child_rows(job_id, [key])[0]

    def get_child_rows(self, job_id: str, keys: Sequence[str]) -> list[bytes | None]:
        """Return the rows of some children, aligned; None where there is none."""
        if not keys:
            return []
        found: list[bytes | None] = self._caller.repeat(
            lambda _: self._caller.client.execute_command("HMGET", self.keys.rows(job_id), *keys)
        )
        return found

    def flow_sweep_work(self, pending_age_ms: int, limit: int = SWEEP_ROWS) -> list[SweepRow]:
        """Hand out rows that need a look; one that is handed out waits a full age again.

        A call whose reply was lost is no exception: its repeat hands out the rows that come next,
        and those of the lost reply come again after a full age.
        """
        flat = self._caller.call("flow_sweep_work", self._now(), pending_age_ms, limit)[1:]
        return [
            SweepRow(flat[at].decode(), flat[at + 1].decode(), flat[at + 2].decode(), flat[at + 3])
            for at in range(0, len(flat), 4)
        ]

    def mark_children_delivered(self, job_id: str, keys: Sequence[str]) -> None:
        """Note that the cancels of these children have reached their stores.

        A child whose cancel is not owed is ignored.
        """
        for start in range(0, len(keys), CHILDREN_PAGE):
            batch = keys[start : start + CHILDREN_PAGE]
            self._caller.call("mark_children_delivered", self._now(), job_id, *batch)

    def peek_outbox(self, limit: int = OUTBOX_PAGE, after: str | None = None) -> list[OutboxEntry]:
        """Return reports that wait, oldest first; `after` may be an entry that is gone."""
        flat = self._caller.call("peek_outbox", self._now(), limit, after or "")[1:]
        return [
            OutboxEntry(
                flat[at].decode(),
                flat[at + 1].decode(),
                flat[at + 2].decode(),
                flat[at + 3].decode(),
                flat[at + 5] if flat[at + 4] == b"1" else None,
                flat[at + 6].decode(errors="replace"),
            )
            for at in range(0, len(flat), 7)
        ]

    def delete_outbox(self, entries: Sequence[str]) -> None:
        """Delete reports that were carried; unknown ids are ignored."""
        for start in range(0, len(entries), CHILDREN_PAGE):
            batch = entries[start : start + CHILDREN_PAGE]
            self._caller.call("delete_outbox", self._now(), *batch)

    def ack_fanned_out(self, job_id: str, token: str, *, worker: str = "") -> str:
        """End the first phase of a flow parent: it parks until its children are reported.

        Its children are those of `write_manifest`; without any it is runnable at once, to collect.
        `cancelled` when a cancel was pending. Accepted again, the first manifest stands.
        """
        return self._ack("ack_fanned_out", Ack(job_id, token, None, worker))
