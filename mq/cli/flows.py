"""`mq flows`: a flow parent as a tree, with its children and what flows below them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs
import click

from mq.cli.failures import CommandError
from mq.cli.output import Table, narrow, print_json
from mq.cli.parameters import JOB_ID
from mq.cli.root import show_help_alone
from mq.cli.stores import store_options

if TYPE_CHECKING:
    from mq.records import Child
    from mq.store import Store
    from mq.store.families import ChildCounts

DEFAULT_LIMIT = 20
MOST_CHILDREN = 500
"""Of one flow: as many as one read returns."""
MOST_SHOWN = 2_000
"""Of the whole tree: flows may nest, and each level multiplies."""

OUTCOMES = ("completed", "failed", "cancelled", "pending")


@click.group(invoke_without_command=True)
@click.pass_context
def flows(ctx: click.Context) -> None:
    """See how the children of a flow stand.

    \b
    Example:
      mq flows show daily-digest/2026-01-05
    """  # noqa: D301 click's mark: not to be wrapped
    show_help_alone(ctx)


@flows.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option(
    "--limit",
    type=click.IntRange(min=0, max=MOST_CHILDREN),
    default=DEFAULT_LIMIT,
    show_default=True,
    help="Most children to show of each flow; 0 for their numbers alone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@store_options
def show(job_id: str, limit: int, as_json: bool, store: Store) -> None:
    """Show a flow as a tree: the parent, its children and how each ended, flows below them.

    Children come in the order of their keys. What happens in a flow whose parent lives in another
    store is shown by the same command there. --json prints an object with `counts`, `children`, and
    in `more` how many of them are left out; a child that is a parent has the same in `flow`.

    \b
    Example:
      mq flows show daily-digest/2026-01-05
      mq flows show daily-digest/2026-01-05 --limit 500 --json
    """  # noqa: D301 click's mark: not to be wrapped
    record = store.get_job(job_id)
    where = f"{store.endpoint.label} under prefix {store.keys.prefix!r}"
    if record is None:
        raise CommandError(f"no job has the id {job_id!r} at {where}: check id, --url and --prefix")
    tree = Reader(store, limit).flow(job_id)
    if record.flow is None and not tree.counts.total:
        raise CommandError(
            f"job {job_id} has no children, or has not fanned out yet: see mq jobs show {job_id}"
        )
    if as_json:
        shown = {"id": job_id, "name": record.name, "state": record.state.value}
        print_json(shown | _data(tree))
        return
    rows = [(job_id, record.state.value, record.name, _told(tree.counts), None), *_rows(tree)]
    _print(rows)


@attrs.frozen
class Tree:
    """A flow as far as it is shown.

    Args:
        counts: of all its children.
        nodes: the children that are shown.
        more: how many are left out.
    """

    counts: ChildCounts
    nodes: list[Node]
    more: int


@attrs.frozen
class Node:
    """A child that is shown.

    Args:
        key: its key.
        outcome: completed, failed, cancelled or pending.
        child: its store and request, from its row; None when it has none.
        here: whether it lives in the store of its parent.
        flow: what is below it; None when it is no parent that has fanned out in this store.
    """

    key: str
    outcome: str
    child: Child | None = None
    here: bool = True
    flow: Tree | None = None

    @property
    def below(self) -> str | None:
        """What is told of its own children."""
        if self.child is not None and not self.here:
            return f"(in store {self.child.store})"
        return _told(self.flow.counts) if self.flow else None


@attrs.define
class Reader:
    """Reads a flow and those below it.

    Args:
        store: the parents'.
        limit: most children of each flow.
        left: how many more may be shown in the whole tree.
    """

    store: Store
    limit: int
    left: int = MOST_SHOWN

    def flow(self, job_id: str) -> Tree:
        """Return a parent's children, and theirs."""
        page = self.store.list_child_results(job_id, min(self.limit, self.left))
        self.left -= len(page.items)
        nodes = [self._node(job_id, item.key, item.outcome) for item in page.items]
        return Tree(page.counts, nodes, page.counts.total - len(nodes))

    def _node(self, parent: str, key: str, outcome: str) -> Node:
        from mq.manifests import ParentRef, decode_row  # late: it loads what definitions need

        row = self.store.get_child_row(parent, key)
        if row is None:  # the parent is removed while it is read
            return Node(key, outcome)
        child = decode_row(key, row)
        here = child.store == ParentRef.decode(child.request.parent).store
        below = self.flow(child.request.id) if here and child.request.id else None
        return Node(key, outcome, child, here, below if below and below.counts.total else None)


def _data(tree: Tree) -> dict[str, Any]:
    counts = tree.counts
    return {
        "counts": {"total": counts.total, **{word: getattr(counts, word) for word in OUTCOMES}},
        "children": [
            {
                "key": node.key,
                "outcome": node.outcome,
                "name": node.child.request.name if node.child else None,
                "id": node.child.request.id if node.child else None,
                "store": node.child.store if node.child else None,
                "flow": None if node.flow is None else _data(node.flow),
            }
            for node in tree.nodes
        ],
        "more": tree.more,
    }


def _told(counts: ChildCounts) -> str:
    """Return the numbers of a flow as people read them."""
    parts = [f"{getattr(counts, word)} {word}" for word in OUTCOMES if getattr(counts, word)]
    return f"{counts.total}: {', '.join(parts)}" if parts else "none"


def _rows(tree: Tree, margin: str = "") -> Iterator[tuple[Any, ...]]:
    for at, node in enumerate(tree.nodes):
        last = at == len(tree.nodes) - 1 and not tree.more
        request = node.child.request if node.child else None
        yield (
            f"{margin}{'└─' if last else '├─'} {node.key}",
            node.outcome,
            request.name if request else None,
            node.below,
            request.id if request else None,
        )
        if node.flow is not None:
            yield from _rows(node.flow, f"{margin}{'   ' if last else '│  '}")
    if tree.more:
        yield f"{margin}└─ … {tree.more} more: --limit shows others", None, None, None, None


def _print(rows: list[tuple[Any, ...]]) -> None:
    """Print the rows; an id that ends with its key is left out where there is no room for it."""
    columns: tuple[str, ...] = ("job", "outcome", "name", "children", "id")
    if narrow():
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    Table(columns, fold=("name", "children"), whole=("job",)).add(rows)
