"""Flows: a parent job that fans out children, parks, and resumes with their results.

The first run of the parent calls `fan_out`, which returns children; its ack parks the parent and
the children are enqueued, each under an id that follows from parent and key, so that nothing is
done twice. When the last of them is reported, the parent runs again and `collect` gets the results.
Children may live in other stores: what a flow needs to go on stands in the parent's store alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import attrs

from mq.definitions import Job, JobId
from mq.durations import Duration
from mq.errors import DefinitionError, FlowError, JobNotFoundError
from mq.manifests import decode_row
from mq.signatures import takes_context
from mq.validation import check_count

if TYPE_CHECKING:
    from mq.app import App
    from mq.codec import Exit
    from mq.results import JobStatus
    from mq.schedules import Scheduled
    from mq.store import Store
    from mq.store.families import ChildCounts, ChildResult

P = TypeVar("P")
R = TypeVar("R")

PAGE = 100
MODES = ("continue", "fail")
OnChildFailure = Literal["continue", "fail"]


@attrs.frozen
class ChildOutcome:
    """One child as `collect` sees it.

    Args:
        key: its key.
        outcome: completed, failed or cancelled; pending in a parent that has not settled.
        exit: `Success`, `Failure` or `Defect`, decoded; None for one without. A child that the
            store failed, because its workers died or a child of its own failed, has a `Defect` of
            kind `store` that says so.
    """

    key: str
    outcome: str
    exit: Exit | None

    @property
    def value(self) -> Any:
        """What a completed child returned; None for any other."""
        return getattr(self.exit, "value", None)


class FlowResults:
    """The children of a parent: their numbers, and each one's outcome in byte order of the keys.

    Args:
        store: the parent's.
        job_id: the parent.
        counts: total, completed, failed and cancelled; no read is made for them.
        decode: gives the exits of a page of children their types.
    """

    def __init__(
        self,
        store: Store,
        job_id: str,
        counts: ChildCounts,
        decode: Callable[[Sequence[ChildResult]], Sequence[Exit | None]],
    ) -> None:
        self.counts = counts
        self._store = store
        self._job_id = job_id
        self._decode = decode

    def iter(self, page: int = PAGE) -> Iterator[ChildOutcome]:
        """Go through the children, `page` of them a read, 1 to 500."""
        from mq.store.families import MAX_LIST  # late: it loads redis

        return self._pages(check_count(page, "page", 1, MAX_LIST))

    def _pages(self, page: int) -> Iterator[ChildOutcome]:
        cursor: str | None = None
        while True:
            found = self._store.list_child_results(self._job_id, page, cursor)
            for item, exit_ in zip(found.items, self._decode(found.items), strict=True):
                yield ChildOutcome(item.key, item.outcome, exit_)
            cursor = found.cursor
            if cursor is None:
                return

    def all(self) -> list[ChildOutcome]:
        """Return every child."""
        return list(self.iter())


def check_members(app: App, name: str, parent: object, children: object) -> None:
    """Refuse a flow of this name and of these: definitions of the app, and no flow has its name.

    Raises:
        DefinitionError: says which of them cannot be.
    """
    if any(job.flow is not None and job.flow.name == name for job in app.jobs.values()):
        raise DefinitionError(f"a flow {name!r} is declared already")
    if isinstance(children, str | Job) or not isinstance(children, Sequence) or not children:
        raise DefinitionError(
            f"flow {name!r}: children must be a list of definitions, got {children!r}"
        )
    for what, job in [("parent", parent), *(("each of children", child) for child in children)]:
        if not isinstance(job, Job):
            raise DefinitionError(f"flow {name!r}: {what} must be a definition, got {job!r}")
        if app.jobs.get(job.name) is not job:
            raise DefinitionError(f"flow {name!r}: {job!r} is a definition of another App")


class Flow(Generic[P, R]):
    """A flow; made by `App.flow`, never by hand.

    Args:
        name: of the flow, for messages.
        parent: definition of the parent; its handlers are `fan_out` and `collect`.
        children: definitions its children may have.
        on_child_failure: `continue`, or `fail`: the first child that fails fails the parent.
    """

    def __init__(
        self,
        name: str,
        parent: Job[P, R],
        children: Sequence[Job[Any, Any]],
        on_child_failure: OnChildFailure,
    ) -> None:
        if on_child_failure not in MODES:
            raise DefinitionError(
                f"flow {name!r}: on_child_failure must be 'continue' or 'fail',"
                f" got {on_child_failure!r}"
            )
        if parent.flow is not None:
            raise DefinitionError(
                f"flow {name!r}: {parent.name!r} is the parent of flow {parent.flow.name!r} already"
            )
        if parent.function is not None:
            raise DefinitionError(
                f"flow {name!r}: {parent.name!r} has a handler already; define it with App.define"
            )
        if parent.conduct.executor == "process":
            raise DefinitionError(
                f"flow {name!r}: {parent.name!r} has executor='process', but fan_out and collect"
                " run in threads of the worker: leave it out, and give it to the children"
            )
        self.name: str = name
        self.parent = parent
        self.on_child_failure: OnChildFailure = on_child_failure
        self.children = {job.name: job for job in children}
        self.child_names = frozenset(self.children)
        self.fan_out_function: Callable[..., Any] | None = None
        self.collect_function: Callable[..., Any] | None = None
        parent.flow = self

    @property
    def complete(self) -> bool:
        """Whether both handlers are there, so that a worker can run the parent."""
        return self.fan_out_function is not None and self.collect_function is not None

    def fan_out(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Set the function that returns the children, from payload and context; a decorator."""
        if self.fan_out_function is not None:
            raise DefinitionError(f"flow {self.name!r} has a fan_out already")
        self.fan_out_takes_context = takes_context(function, 1, f"fan_out of {self.name}")
        self.fan_out_function = function
        return function

    def collect(self, function: Callable[..., R]) -> Callable[..., R]:
        """Set the function that makes the result of payload, results, context; a decorator."""
        if self.collect_function is not None:
            raise DefinitionError(f"flow {self.name!r} has a collect already")
        self.collect_takes_context = takes_context(function, 2, f"collect of {self.name}")
        self.collect_function = function
        return function

    def results_of(self, store: Store, job_id: str) -> FlowResults:
        """Return the children of one parent."""
        counts = store.list_child_results(job_id, limit=0).counts
        return FlowResults(store, job_id, counts, lambda page: self._exits(store, job_id, page))

    def _exits(self, store: Store, job_id: str, items: Sequence[ChildResult]) -> list[Exit | None]:
        """Return the exits of a page of children, each by its own definition."""
        told = [item.key for item in items if item.exit is not None]
        if len(self.children) == 1:
            names = dict.fromkeys(told, next(iter(self.children)))
        else:
            rows = zip(told, store.get_child_rows(job_id, told), strict=True)
            names = {key: decode_row(key, row).request.name if row else "" for key, row in rows}
        exits: list[Exit | None] = []
        for item in items:
            if item.exit is None:
                exits.append(None)
                continue
            name = names[item.key]
            job = self.children.get(name)
            if job is None:
                raise FlowError(
                    f"child {item.key!r} of {job_id} is a {name!r} job, which no flow names"
                )
            exits.append(job.exit_codec.decode(item.exit))
        return exits

    # The parent's verbs

    def enqueue(self, payload: P, **options: Any) -> JobId:
        """Enqueue a parent; the options are those of `Job.enqueue`."""
        return self.parent.enqueue(payload, **options)

    def execute(self, payload: P, *, wait: Duration | None = None, **options: Any) -> R:
        """Enqueue a parent and await its result."""
        return self.parent.execute(payload, wait=wait, **options)

    def poll(self, job_id: str) -> JobStatus[R] | None:
        """Return where a parent stands."""
        return self.parent.poll(job_id)

    def await_result(self, job_id: str, timeout: Duration | None = None) -> R:
        """Wait for a parent to finish and return its result; see `Job.await_result`."""
        return self.parent.await_result(job_id, timeout)

    def cancel(self, job_id: str) -> str:
        """Cancel a parent, and every child of it that has not finished."""
        return self.parent.cancel(job_id)

    def retry(self, job_id: str) -> None:
        """Retry a failed parent: its children stay as they are, and it collects again."""
        self.parent.retry(job_id)

    def schedule(self, key: str, **options: Any) -> Scheduled:
        """Register a schedule of parents; the arguments are those of `Job.schedule`."""
        return self.parent.schedule(key, **options)

    def unschedule(self, key: str) -> bool:
        """Delete a schedule; False when there is none."""
        return self.parent.unschedule(key)

    def child_results(self, job_id: str) -> FlowResults:
        """Return the children of a parent, as they stand now; JobNotFoundError without one."""
        if self.parent.store.get_states([job_id]) == [None]:
            raise JobNotFoundError(
                f"no job has the id {job_id!r} in store {self.parent.store_name!r}", job_id=job_id
            )
        return self.results_of(self.parent.store, job_id)
