"""Lists of jobs: which index serves a question, and where a page ends.

`ROUTES` is the one table of what can be asked for. A list is read from sorted sets alone, in the
order of (value, id) with ties by the id's bytes, so that a page begins behind a place given by
value, whether or not the job that stood there still exists.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs

from mq.errors import ListOrderUnsupportedError
from mq.records import JobRecord
from mq.states import FINISHED, JobState
from mq.validation import check_count, check_metadata, check_name

MAX_LIMIT = 500
"""Most items of a page."""
BUDGET = 250
"""Most index members one script looks at; some 2 ms of a server."""
CALLS = 4
"""Most times a list runs its script to fill a page."""
FEW_SETS = 64
"""Up to here merging costs little beside looking; above it a script looks at fewer members."""
MAX_SETS = 256
"""Most sorted sets one script call merges."""
PAGE_BYTES = 4 * 1024 * 1024
"""Payloads and exits of a page; one that would be larger ends early."""

OrderBy = Literal["enqueued_at", "run_at", "finished_at"]
Position = tuple[int, str]
"""A place in a list: value and id of the last job looked at."""


@attrs.frozen
class Route:
    """One kind of list and the structure that serves it.

    Args:
        order_by: the value the list is ordered by.
        kind: which sorted sets are read: `index`, `delayed` or `finished`.
        states: which states may be asked for: `any`, `delayed` alone, or those that are `finished`.
        queue: whether a queue must be given.
        metadata: whether metadata may be filtered by.
        reads: the structure, as keys name it.
        checks: what is looked up for each member that is read.
    """

    order_by: OrderBy
    kind: str
    states: Literal["any", "delayed", "finished"]
    queue: bool
    metadata: bool
    reads: str
    checks: str


ROUTES: tuple[Route, ...] = (
    Route(
        "enqueued_at",
        "index",
        "any",
        queue=False,
        metadata=True,
        reads="metadata:<key>:<value>, of declared keys that are ready the smallest;"
        " index:<state>:<queue>:<name> merged, when those together are smaller or no key is ready",
        checks="the metadata that is asked for, and state, queue and name",
    ),
    Route(
        "run_at",
        "delayed",
        "delayed",
        queue=True,
        metadata=False,
        reads="delayed:<queue>",
        checks="state, queue and name",
    ),
    Route(
        "finished_at",
        "finished",
        "finished",
        queue=False,
        metadata=False,
        reads="finished:<state>:<queue>:<name> merged",
        checks="state, queue and name",
    ),
)
"""Every order and what it can be combined with; anything else is refused."""


@attrs.frozen(kw_only=True)
class ListQuery:
    """A question, checked; made by `read_query`."""

    queue: str | None
    name: str | None
    states: tuple[JobState, ...]
    metadata: Mapping[str, str]
    order_by: str
    descending: bool
    bodies: bool

    def matches(self, record: JobRecord) -> bool:
        """Whether a record, read after its place was found, still is what was asked for."""
        if record.state not in self.states or self.queue not in (None, record.queue):
            return False
        if self.name not in (None, record.name):
            return False
        metadata = record.metadata if self.metadata else {}
        return all(metadata.get(key) == value for key, value in self.metadata.items())


def read_query(
    *,
    queue: str | None = None,
    name: str | None = None,
    states: Iterable[JobState | str] | None = None,
    metadata: Mapping[str, str] | None = None,
    order_by: str = "enqueued_at",
    order: str = "desc",
    bodies: bool = True,
) -> ListQuery:
    """Return a question, checked; ValueError or TypeError names the option that is wrong.

    Raises:
        ListOrderUnsupportedError: nothing is ordered by what is asked for, whatever the filters.
    """
    known = [row.order_by for row in ROUTES]
    if order_by not in known:
        raise ListOrderUnsupportedError(
            f"no index is ordered by {order_by!r}: use order_by {', '.join(known)}",
            option="order_by",
        )
    return ListQuery(
        queue=None if queue is None else check_name(queue, "queue"),
        name=None if name is None else check_name(name, "job name"),
        states=tuple(JobState) if states is None else check_states(states),
        metadata=check_metadata({} if metadata is None else metadata),
        order_by=order_by,
        descending=_descending(order),
        bodies=bool(bodies),
    )


def _descending(order: str) -> bool:
    if order not in ("asc", "desc"):
        raise ValueError(f"order must be 'asc' or 'desc', got {order!r}")
    return order == "desc"


def check_states(states: Iterable[JobState | str]) -> tuple[JobState, ...]:
    """Return states in the order of their life, each once."""
    if isinstance(states, str):
        raise TypeError(f"states must be a list, got the text {states!r}: use [{states!r}]")
    if not isinstance(states, Iterable):
        raise TypeError(f"states must be a list, got {type(states).__name__}")
    asked = set()
    for state in states:
        try:
            asked.add(JobState(state))
        except ValueError:
            known = ", ".join(JobState)
            raise ValueError(f"{state!r} is not a state: use {known}") from None
    return tuple(state for state in JobState if state in asked)


def budget(sets: int) -> int:
    """Return how many index members one script may look at when it merges so many sets."""
    if sets <= FEW_SETS:
        return BUDGET
    return max(BUDGET - sets * 2 // 3, min(BUDGET, 50))


def check_limit(limit: object) -> int:
    """Return the number of items of a page."""
    return check_count(limit, "limit", 1, MAX_LIMIT)


def route(query: ListQuery) -> Route:
    """Return the structure that serves a question.

    Raises:
        ListOrderUnsupportedError: none does; names the option and what would serve it.
    """
    found = next(row for row in ROUTES if row.order_by == query.order_by)
    wrong = _in_the_way(query, found)
    if wrong:
        option, need = wrong
        raise ListOrderUnsupportedError(
            f"order_by={query.order_by!r} {need}; order_by='enqueued_at' serves any filters",
            option=option,
        )
    return found


def _in_the_way(query: ListQuery, found: Route) -> tuple[str, str] | None:
    """The option that keeps a route from serving, and what it would have to be."""
    if found.states == "delayed" and query.states != (JobState.DELAYED,):
        return "states", "is served for states=['delayed'] alone"
    if found.states == "finished" and not set(query.states) <= FINISHED:
        return "states", "is served for states among completed, failed and cancelled alone"
    if found.queue and query.queue is None:
        return "queue", "is served for one queue: give queue="
    if query.metadata and not found.metadata:
        return "metadata", "is not served together with metadata="
    return None


# Cursors


def write_cursor(query: ListQuery, position: Position) -> str:
    """Return an opaque text for a place, bound to the question it belongs to."""
    value, job_id = position
    body = f"{value} {job_id}".encode()
    options = _digest(query)
    return base64.urlsafe_b64encode(options + _seal(options + body) + body).decode()


def read_cursor(query: ListQuery, cursor: str | None) -> Position | None:
    """Return the place of a cursor.

    Raises:
        ValueError: it is no cursor, was altered, or belongs to a list with other options.
    """
    if cursor is None:
        return None
    if not isinstance(cursor, str):
        raise TypeError(f"cursor must be text, got {type(cursor).__name__}")
    try:
        found = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
        options, seal, body = found[:8], found[8:16], found[16:]
        # A lenient decoder would take more than one text for the same bytes.
        if _seal(options + body) != seal or base64.urlsafe_b64encode(found).decode() != cursor:
            raise ValueError
        value, _, job_id = body.decode().partition(" ")
        position = int(value), job_id
    except (binascii.Error, ValueError, UnicodeError):
        raise ValueError("cursor is not one that a list gave, or was altered") from None
    if options != _digest(query):
        raise ValueError(
            "cursor belongs to a list with other options: only limit may change between pages"
        )
    return position


def _digest(query: ListQuery) -> bytes:
    options = attrs.asdict(query)
    options["states"] = [state.value for state in query.states]
    text = json.dumps(options, sort_keys=True)
    return _seal(text.encode())


def _seal(content: bytes) -> bytes:
    """Eight bytes that tell an altered text; no secret, for a cursor opens nothing."""
    return hashlib.blake2b(content, digest_size=8).digest()


# Merging what several calls found


@attrs.frozen
class Found:
    """What was found from one place on.

    Args:
        jobs: places in order, one a job.
        reached: how far the reading got; None when nothing more can follow.
        now: the instant of the reading, ms.
        by_metadata: whether a metadata index was read, which holds the jobs of every queue.
    """

    jobs: list[Position]
    reached: Position | None
    now: int
    by_metadata: bool = False


def found_of(reply: Sequence[Any]) -> Found:
    """Return what one call found."""
    _, now, driver, more, value, job_id = reply[:6]
    flat = reply[6:]
    return Found(
        [(int(flat[at + 1]), flat[at].decode()) for at in range(0, len(flat), 2)],
        (int(value), job_id.decode()) if more == b"1" else None,
        int(now),
        driver == b"metadata",
    )


def merge(parts: Sequence[Found], query: ListQuery, limit: int) -> Found:
    """Return what several calls found as one, no further than the one that got least far."""

    def place(position: Position) -> tuple[int, bytes]:
        return position[0], position[1].encode()

    if len(parts) == 1:
        return parts[0]
    nearest = max if query.descending else min
    ends = [part.reached for part in parts if part.reached is not None]
    end = nearest(ends, key=place) if ends else None
    jobs = sorted((job for part in parts for job in part.jobs), key=place, reverse=query.descending)
    if end is not None:
        jobs = [job for job in jobs if job == end or nearest(job, end, key=place) == job]
    if len(jobs) > limit:
        jobs, end = jobs[:limit], jobs[limit - 1]
    return Found(jobs, end, parts[0].now)
