"""What stores keep of a flow, as text and bytes: children, references to parents, exits.

The stores carry all of it without reading it. A child's id follows from parent and key, so that
whoever enqueues it, and however often, it is one job.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import attrs

from mq.errors import FlowError
from mq.records import Child, JobRecord, Request

if TYPE_CHECKING:
    from mq.flows import Flow
    from mq.store.families import ChildReport, ChildRow

MAX_DEPTH = 8
"""How deep flows may nest: a child may be a parent, and so on."""


@attrs.frozen
class ParentRef:
    """Where a child reports to; it stands on the child's record as text.

    Args:
        depth: how deep the child stands: 1 for a child of a job that is no child.
        store: name of the parent's store.
        job_id: the parent.
        key: the child's key.
        born: when the parent was enqueued, ms: an id that is used again is another parent.
    """

    depth: int
    store: str
    job_id: str
    key: str
    born: int | None = None

    def encode(self) -> str:
        """Return it as text; none of its parts holds a line end."""
        born = "" if self.born is None else self.born
        return f"{self.depth}\n{self.store}\n{self.job_id}\n{self.key}\n{born}"

    @classmethod
    def decode(cls, text: str) -> ParentRef:
        """Return what `encode` wrote, or raise ValueError."""
        depth, store, job_id, key, born = text.split("\n")
        return cls(int(depth), store, job_id, key, int(born) if born else None)


def encode_row(child: Child) -> bytes:
    """Return a child as bytes for the manifest: its store and its whole request."""
    from mq import codec  # late: it loads cattrs

    request = child.request
    if not request.id:
        raise ValueError(f"child {child.key[:80]!r} has no id: it must exist once")
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
                parent=ParentRef(depth, store, parent.id, child.key, parent.enqueued_at).encode(),
            ),
        )
        rows[child.key] = ChildRow(child.key, encode_row(named))
    return list(rows.values())


def _child_id(store: str, parent: str, key: str) -> str:
    from mq.validation import MAX_ID_BYTES

    # What stands behind the last slash is the key, so no two children come to one id.
    made = f"flow/{store}/{parent}/{key.replace('%', '%25').replace('/', '%2F')}"
    if len(made.encode()) > MAX_ID_BYTES:
        raise FlowError(
            f"child {key[:80]!r}: its id, made of its parent's and its key, would be longer than"
            f" {MAX_ID_BYTES} bytes; use shorter keys"
        )
    return made


def report_of(
    parent: str, child_outcome: str, exit_: bytes | None, reason: str = ""
) -> tuple[str, ChildReport]:
    """Return the store a report goes to, by name, and the report."""
    from mq.store.families import ChildReport

    ref = ParentRef.decode(parent)
    told = exit_told(child_outcome, exit_, reason)
    return ref.store, ChildReport(ref.job_id, ref.key, child_outcome, told, ref.born)


def id_taken(child: Child) -> ChildReport:
    """Return the report of a child that cannot be enqueued: a job of its id is another's.

    It is a child of an earlier parent of the same id, or was enqueued by hand.
    """
    reason = (
        f"its id {child.request.id} is that of a job of another parent: remove that one first, or"
        " give the parent an id of its own"
    )
    _, report = report_of(child.request.parent, "failed", None, reason)
    return report


def exit_told(outcome: str, exit_: bytes | None, reason: str | None) -> bytes | None:
    """Return what a parent is told as its child's exit.

    A child that the store failed has none: its workers died, or a child of its own failed. Its
    parent reads a defect that says so.
    """
    if exit_ is None and outcome == "failed" and reason:
        from mq import codec

        return codec.encode_defect("mq.errors.JobFailedError", reason, kind="store")
    return exit_
