"""Lists: jobs in order, a page at a time, and verbs done to every job of a list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs

from mq import listing
from mq.calls import Call
from mq.listing import Found, ListQuery, Position
from mq.records import BulkResult, JobRecord, Page
from mq.states import FINISHED, JobState
from mq.store.reading import Reading
from mq.store.steering import STEER_BATCH, Steering, Verb

GET_BATCH = 100
"""Records one call reads for a page."""

CANCELLABLE = tuple(state for state in JobState if state not in FINISHED)
REMOVABLE = (JobState.WAITING, JobState.DELAYED, *sorted(FINISHED))
_DONE = {"cancelled", "cancel_requested", "retried", "removed"}

_PAST_TENSE: dict[Verb, str] = {
    "cancel_request": "cancelled", "retry": "retried", "promote": "promoted", "remove": "removed",
}  # fmt: skip

OnPage = Callable[[BulkResult], None]
Pairs = Sequence[tuple[str, str]]


class Lists(Reading, Steering):
    """Questions about many jobs."""

    def _find(self, query: ListQuery, position: Position | None, limit: int, pairs: Pairs) -> Found:
        """Return the places from one place on; fewer than `limit` when the budget is spent."""
        found = self._look(query, position, limit, pairs)
        for _ in range(listing.CALLS - 1):
            if found.reached is None or len(found.jobs) >= limit:
                break
            more = self._look(query, found.reached, limit - len(found.jobs), pairs)
            found = attrs.evolve(found, jobs=found.jobs + more.jobs, reached=more.reached)
        return found

    def _look(self, query: ListQuery, position: Position | None, limit: int, pairs: Pairs) -> Found:
        per_call = max(1, listing.MAX_SETS // len(query.states))
        kind = listing.route(query).kind
        if kind == "delayed":
            pairs = ()
        groups = [pairs[at : at + per_call] for at in range(0, len(pairs), per_call)] or [()]
        wide = len(groups) > 1

        def call(group: Pairs) -> Call:
            flat = [text for pair in group for text in pair]
            value, job_id = position or ("", "")
            pairs_asked = [text for pair in query.metadata.items() for text in pair]
            budget = listing.budget(len(group) * len(query.states))
            order = "desc" if query.descending else "asc"
            return "list", (
                self._now(), kind, order, limit, budget, int(wide),
                int(position is not None), value, job_id, query.queue or "", query.name or "",
                len(query.states), *query.states, len(query.metadata), *pairs_asked, *flat,
            )  # fmt: skip

        parts: list[Found] = []
        if wide and query.metadata:
            # A metadata index holds the jobs of every queue: then one call says it all.
            (reply,) = self._caller.call_all(lambda _: [call(groups[0])])
            parts.append(listing.found_of(reply))
            if parts[0].by_metadata:
                return parts[0]
            groups = groups[1:]
        replies = self._caller.call_all(lambda _: [call(group) for group in groups])
        parts += map(listing.found_of, replies)
        # An index that was completed between two calls answers for all of them.
        for part in parts:
            if part.by_metadata:
                return part
        return listing.merge(parts, query, limit)

    def _pairs(self, query: ListQuery) -> Pairs:
        if query.queue is not None and query.name is not None:
            return [(query.queue, query.name)]
        return self.seen_pairs(query.queue, query.name)

    def _records(self, query: ListQuery, found: Found) -> tuple[list[JobRecord], Position | None]:
        """Read the jobs of a page, and how far it got; it ends early when it grows too large."""
        records: list[JobRecord] = []
        left = listing.PAGE_BYTES
        for start in range(0, len(found.jobs), GET_BATCH):
            batch = found.jobs[start : start + GET_BATCH]
            kind: Literal["body", "bare"] = "body" if query.bodies else "bare"
            # A page of one job may be larger than allowed: it has to come on some page.
            read = self._get([at[1] for at in batch], kind, left, all_must_fit=bool(records))
            for whole in read:
                if whole is not None:
                    left = max(left - _size(whole[0]), 0)
                    if query.matches(whole[0]):
                        records.append(whole[0])
            if len(read) < len(batch):
                return records, found.jobs[start + len(read) - 1]
        return records, found.reached

    # Verbs done to every job of a list

    def cancel_where(
        self,
        *,
        queue: str | None = None,
        name: str | None = None,
        states: Iterable[JobState | str] | None = None,
        metadata: Mapping[str, str] | None = None,
        dry_run: bool = False,
        on_page: OnPage | None = None,
    ) -> BulkResult:
        """Cancel every job of a list that has not finished.

        The jobs are those that are there when it begins: it does not chase what is enqueued
        meanwhile. It works a page at a time, so it may be interrupted and begun again.

        Args:
            queue: of this queue alone.
            name: of this job name alone.
            states: in these states alone; all four that are not finished by default.
            metadata: with every one of these pairs.
            dry_run: tell which jobs they are, and change nothing.
            on_page: called after each page with what was done on it.

        Raises:
            ValueError: no filter is given, or a state in which a job cannot be cancelled.
        """
        return self._all("cancel_request", CANCELLABLE, dry_run, on_page,
                         queue=queue, name=name, states=states, metadata=metadata)  # fmt: skip

    def retry_where(
        self,
        *,
        queue: str | None = None,
        name: str | None = None,
        states: Iterable[JobState | str] | None = None,
        metadata: Mapping[str, str] | None = None,
        dry_run: bool = False,
        on_page: OnPage | None = None,
    ) -> BulkResult:
        """Retry every failed job of a list; the arguments are those of `cancel_where`."""
        return self._all("retry", (JobState.FAILED,), dry_run, on_page,
                         queue=queue, name=name, states=states, metadata=metadata)  # fmt: skip

    def remove_where(
        self,
        *,
        queue: str | None = None,
        name: str | None = None,
        states: Iterable[JobState | str] | None = None,
        metadata: Mapping[str, str] | None = None,
        dry_run: bool = False,
        on_page: OnPage | None = None,
    ) -> BulkResult:
        """Delete every job of a list that no worker holds; the arguments are `cancel_where`'s."""
        return self._all("remove", REMOVABLE, dry_run, on_page,
                         queue=queue, name=name, states=states, metadata=metadata)  # fmt: skip

    def _all(
        self,
        verb: Verb,
        allowed: Sequence[JobState],
        dry_run: bool,
        on_page: OnPage | None,
        **filters: Any,
    ) -> BulkResult:
        query = _bulk_query(verb, allowed, filters)
        total = BulkResult([], {}, dry_run)
        if not query.states:
            return total
        pairs = self._pairs(query)
        position: Position | None = None
        began: int | None = None
        while True:
            found = self._find(query, position, STEER_BATCH, pairs)
            began = found.now if began is None else began
            job_ids = [job_id for at, job_id in found.jobs if at <= began]
            page = (
                BulkResult(job_ids, {}, dry_run)
                if dry_run
                else self._page_of(verb, job_ids, query.states)
            )
            total.ids.extend(page.ids)
            total.refused.update(page.refused)
            if on_page is not None:
                on_page(page)
            position = found.reached
            if position is None or position[0] > began:
                return total

    def _page_of(
        self, verb: Verb, job_ids: Sequence[str], states: Sequence[JobState]
    ) -> BulkResult:
        words = [word for word, _ in self.steer(verb, job_ids, states)]
        answered = list(zip(job_ids, words, strict=True))
        return BulkResult(
            [job_id for job_id, word in answered if word in _DONE],
            {job_id: word for job_id, word in answered if word not in _DONE},
        )

    # The last of its class: below it the name means this verb.
    def list(
        self,
        *,
        queue: str | None = None,
        name: str | None = None,
        states: Iterable[JobState | str] | None = None,
        metadata: Mapping[str, str] | None = None,
        order_by: str = "enqueued_at",
        order: str = "desc",
        limit: int = 50,
        cursor: str | None = None,
        bodies: bool = True,
    ) -> Page[JobRecord]:
        """Return one page of jobs, from sorted sets alone.

        A call looks at a bounded number of jobs. Where filters let few of them through, a page may
        be short, or empty with a cursor: go on until the cursor is None.

        Args:
            queue: of this queue alone.
            name: of this job name alone.
            states: in one of these states; all by default, none for an empty list.
            metadata: with every one of these pairs.
            order_by: `enqueued_at` with any filters; `run_at` for states ["delayed"] in a queue;
                `finished_at` for finished states.
            order: `desc`, the latest first, or `asc`; ties by the id's bytes, likewise.
            limit: most jobs of the page, 1 to 500.
            cursor: where the page before ended; with the same options, `limit` apart.
            bodies: whether payloads and exits are read; with them a page ends early at 4 MiB.

        Raises:
            ListOrderUnsupportedError: no index serves it; says what would.
            ValueError: an option or the cursor is wrong.
        """
        query = listing.read_query(
            queue=queue, name=name, states=states, metadata=metadata,
            order_by=order_by, order=order, bodies=bodies,
        )  # fmt: skip
        listing.check_limit(limit)
        position = listing.read_cursor(query, cursor)
        if not query.states:
            return Page([], None)
        listing.route(query)
        found = self._find(query, position, limit, self._pairs(query))
        records, reached = self._records(query, found)
        return Page(records, reached and listing.write_cursor(query, reached))


def _size(record: JobRecord) -> int:
    return len(record.payload or b"") + len(record.exit or b"")


def _bulk_query(verb: Verb, allowed: Sequence[JobState], filters: Mapping[str, Any]) -> ListQuery:
    if not any(value is not None and value != {} for value in filters.values()):
        raise ValueError(
            "a verb for many jobs needs a filter: give queue, name, states or metadata"
        )
    query = listing.read_query(**filters, order="asc", bodies=False)
    if filters["states"] is None:
        return attrs.evolve(query, states=tuple(s for s in JobState if s in allowed))
    wrong = [state for state in query.states if state not in allowed]
    if wrong:
        word = _PAST_TENSE[verb]
        raise ValueError(
            f"a job that is {wrong[0]} cannot be {word}: use states {', '.join(allowed)}"
        )
    return query
