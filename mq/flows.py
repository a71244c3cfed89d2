"""Flows: a parent job that fans out children, parks, and resumes with their results.

The first run of the parent calls `fan_out`, which returns children; its ack parks the parent and
the children are enqueued, each under an id that follows from parent and key, so that nothing is
done twice. When the last of them is reported, the parent runs again and `collect` gets the results.
Children may live in other stores: what a flow needs to go on stands in the parent's store alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import attrs

from mq.definitions import Job, JobId
from mq.durations import Duration
from mq.errors import DefinitionError, MQError
from mq.records import Child, JobRecord, Request
from mq.signatures import takes_context

if TYPE_CHECKING:
    from mq.codec import Exit
    from mq.results import JobStatus
    from mq.schedules import Scheduled
    from mq.store import Store
    from mq.store.families import ChildCounts, ChildReport, ChildRow

P = TypeVar("P")
R = TypeVar("R")

MAX_DEPTH = 8
"""How deep flows may nest: a child may be a parent, and so on."""
PAGE = 100
MODES = ("continue", "fail")
OnChildFailure = Literal["continue", "fail"]


class FlowError(MQError):
    """What a fan-out returned cannot be carried out; names the child."""


@attrs.frozen
class ParentRef:
    """Where a child reports to; it stands on the child's record as text.

    Args:
        depth: how deep the child stands: 1 for a child of a job that is no child.
        store: name of the parent's store.
        job_id: the parent.
        key: the child's key.
    """

    depth: int
    store: str
    job_id: str
    key: str

    def encode(self) -> str:
        """Return it as text; none of its parts holds a line end."""
        return f"{self.depth}\n{self.store}\n{self.job_id}\n{self.key}"

    @classmethod
    def decode(cls, text: str) -> ParentRef:
        """Return what `encode` wrote, or raise ValueError."""
        depth, store, job_id, key = text.split("\n")
        return cls(int(depth), store, job_id, key)


def encode_row(child: Child) -> bytes:
    """Return a child as bytes for the manifest: its store and its whole request."""
    from mq import codec  # late: it loads cattrs

    request = child.request
    fields = attrs.asdict(request, filter=lambda at, _: at.name != "dedupe")
    return codec.pack_plain([child.store, {**fields, "metadata": dict(request.metadata)}])


def decode_row(key: str, row: bytes) -> Child:
    """Return the child of a row of a manifest."""
    from mq import codec

    store, fields = codec.unpack_plain(row, "row of a flow")
    return Child(key, store, Request(**fields))


def manifest_of(flow: Flow[Any, Any], parent: JobRecord, children: object) -> list[ChildRow]:
    """Return the rows for what a fan-out returned.

    Raises:
        FlowError: it is no list of children, two have one key, or they stand too deep.
    """
    from mq.store.families import ChildRow  # late: it loads redis

    if isinstance(children, str | bytes) or not isinstance(children, Iterable):
        raise FlowError(f"fan_out of {flow.name} returned {type(children).__name__}: return a list")
    depth = ParentRef.decode(parent.parent).depth + 1 if parent.parent else 1
    rows: dict[str, ChildRow] = {}
    for child in children:
        if not isinstance(child, Child):
            raise FlowError(
                f"fan_out of {flow.name} returned {type(child).__name__} among its children:"
                " make each with definition.child(key=..., payload=...)"
            )
        if child.key in rows:
            raise FlowError(f"fan_out of {flow.name} returned two children with key {child.key!r}")
        if child.request.name not in flow.child_names:
            raise FlowError(
                f"fan_out of {flow.name} returned a {child.request.name!r} child, which"
                " App.flow(children=[...]) does not name"
            )
        if depth > MAX_DEPTH:
            raise FlowError(
                f"child {child.key!r} of {flow.name} would stand {depth} flows deep;"
                f" {MAX_DEPTH} are allowed"
            )
        store = flow.parent.store_name
        named = attrs.evolve(
            child,
            request=attrs.evolve(
                child.request,
                id=_child_id(store, parent.id, child.key),
                parent=ParentRef(depth, store, parent.id, child.key).encode(),
            ),
        )
        rows[child.key] = ChildRow(child.key, encode_row(named))
    return list(rows.values())


def _child_id(store: str, parent: str, key: str) -> str:
    from mq.validation import MAX_ID_BYTES

    made = f"flow/{store}/{parent}/{key}"
    if len(made.encode()) > MAX_ID_BYTES:
        raise FlowError(
            f"child {key[:80]!r}: its id, made of its parent's and its key, would be longer than"
            f" {MAX_ID_BYTES} bytes; use shorter keys"
        )
    return made


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
        decode: gives a child's exit its types.
    """

    def __init__(
        self,
        store: Store,
        job_id: str,
        counts: ChildCounts,
        decode: Callable[[str, bytes], Exit],
    ) -> None:
        self.counts = counts
        self._store = store
        self._job_id = job_id
        self._decode = decode

    def iter(self, page: int = PAGE) -> Iterator[ChildOutcome]:
        """Go through the children, `page` of them a read."""
        cursor: str | None = None
        while True:
            found = self._store.list_child_results(self._job_id, page, cursor)
            for item in found.items:
                exit_ = None if item.exit is None else self._decode(item.key, item.exit)
                yield ChildOutcome(item.key, item.outcome, exit_)
            cursor = found.cursor
            if cursor is None:
                return

    def all(self) -> list[ChildOutcome]:
        """Return every child."""
        return list(self.iter())


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
        if parent.function is not None or parent.flow is not None:
            raise DefinitionError(
                f"flow {name!r}: {parent.name!r} has a handler already; define it with App.define"
            )
        self.name = name
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
        self.fan_out_function = function
        self.fan_out_takes_context = takes_context(function, 1, f"fan_out of {self.name}")
        return function

    def collect(self, function: Callable[..., R]) -> Callable[..., R]:
        """Set the function that makes the result of payload, results, context; a decorator."""
        self.collect_function = function
        self.collect_takes_context = takes_context(function, 2, f"collect of {self.name}")
        return function

    def results_of(self, store: Store, job_id: str) -> FlowResults:
        """Return the children of one parent."""
        counts = store.list_child_results(job_id, limit=0).counts
        return FlowResults(store, job_id, counts, self._decoder(store, job_id))

    def _decoder(self, store: Store, job_id: str) -> Callable[[str, bytes], Exit]:
        if len(self.children) == 1:
            (only,) = self.children.values()
            return lambda _, data: only.exit_codec.decode(data)

        def decode(key: str, data: bytes) -> Exit:
            row = store.get_child_row(job_id, key)
            name = decode_row(key, row).request.name if row else ""
            job = self.children.get(name)
            if job is None:
                raise FlowError(f"child {key!r} of {job_id} is a {name!r} job, which no flow names")
            return job.exit_codec.decode(data)

        return decode

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
        """Return the children of a parent, as they stand now."""
        return self.results_of(self.parent.store, job_id)


def report_of(
    parent: str, child_outcome: str, exit_: bytes | None, reason: str = ""
) -> tuple[str, ChildReport]:
    """Return the store a report goes to, by name, and the report."""
    from mq.store.families import ChildReport

    ref = ParentRef.decode(parent)
    told = exit_told(child_outcome, exit_, reason)
    return ref.store, ChildReport(ref.job_id, ref.key, child_outcome, told)


def exit_told(outcome: str, exit_: bytes | None, reason: str | None) -> bytes | None:
    """Return what a parent is told as its child's exit.

    A child that the store failed has none: its workers died, or a child of its own failed. Its
    parent reads a defect that says so.
    """
    if exit_ is None and outcome == "failed" and reason:
        from mq import codec

        return codec.encode_defect("mq.errors.JobFailedError", reason, kind="store")
    return exit_
