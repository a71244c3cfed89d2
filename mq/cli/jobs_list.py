"""`mq jobs list`: jobs in order, a page or all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import click

from mq import listing
from mq.cli.failures import CommandError, complain, misuse
from mq.cli.filters import Filters, filter_options, unseen
from mq.cli.job_data import bare_data
from mq.cli.output import Table, compact, distance, instant, narrow, on_terminal, print_json
from mq.cli.stores import reach, unreached_store_options
from mq.errors import ListOrderUnsupportedError, StoreError
from mq.states import FINISHED, JobState

if TYPE_CHECKING:
    from mq.records import JobRecord
    from mq.store import Store

DEFAULT_LIMIT = 50
ERROR_CHARACTERS = 48  # of an error on a terminal
WIDE = 160  # columns; a terminal with less has how long ago it was, without the instant

_HEADINGS = {"enqueued_at": "enqueued", "run_at": "runs from", "finished_at": "finished"}
_STATES = {
    "run_at": (JobState.DELAYED,),
    "finished_at": tuple(state for state in JobState if state in FINISHED),
}
"""What an order is of, when no state is asked for."""


@click.command("list")
@filter_options(tuple(JobState))
@click.option(
    "--order-by",
    type=click.Choice(list(_HEADINGS)),
    default="enqueued_at",
    show_default=True,
    help="run_at lists the delayed jobs of a --queue; finished_at the finished ones.",
)
@click.option(
    "--order",
    type=click.Choice(["desc", "asc"]),
    default="desc",
    show_default=True,
    help="desc has the latest first.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help=f"Most jobs to list.  [default: {DEFAULT_LIMIT}]"
)
@click.option("--cursor", help="Go on where a list with the same options ended.")
@click.option("--all", "everything", is_flag=True, help="List them to the end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times are ms since the epoch.")
@unreached_store_options
def list_jobs(
    filters: Filters,
    order_by: str,
    order: str,
    limit: int | None,
    cursor: str | None,
    everything: bool,
    as_json: bool,
    store: Store,
) -> None:
    """List jobs, the latest first, without their payloads.

    A list that ends early says how to go on. --json prints an object with `jobs` and `cursor`,
    which is null at the end; --all --json prints a line of JSON for each job.

    \b
    Example:
      mq jobs list --queue billing --name generate-invoice --state failed
      mq jobs list --metadata customer_id=4711 --json
      mq jobs list --queue billing --order-by run_at --order asc
      mq jobs list --state failed --all --json | jq -r .id
    """  # noqa: D301 click's mark: not to be wrapped
    if everything and limit is not None:
        raise misuse("--all lists jobs to the end: leave --limit out")
    question = _question(filters, order_by, order, cursor)
    reach(store)
    walk = Walk(store, question, cursor, None if everything else limit or DEFAULT_LIMIT)
    if not as_json:
        _print_rows(walk, filters, order_by)
    elif everything:
        walk.each(_print_lines)
    else:
        jobs: list[dict[str, Any]] = []
        walk.each(lambda page: jobs.extend(map(bare_data, page)))
        print_json({"jobs": jobs, "cursor": walk.cursor})
    if walk.found_nothing:
        hint = unseen(store, filters.queue, filters.name)
        if hint:
            complain(hint)


def _question(filters: Filters, order_by: str, order: str, cursor: str | None) -> dict[str, Any]:
    """Return the arguments of `Store.list`, checked before any server is asked."""
    asked = attrs.asdict(filters, recurse=False) | {"order_by": order_by, "order": order}
    asked["states"] = filters.states or _STATES.get(order_by)
    try:
        query = listing.read_query(**asked, bodies=False)
        listing.route(query)
        listing.read_cursor(query, cursor)
    except ListOrderUnsupportedError as error:
        raise misuse(_in_the_way(order_by, error.option)) from None
    except ValueError as error:  # a cursor: the filters were checked as they were read
        raise misuse(f"--{error}") from None
    return asked


def _in_the_way(order_by: str, option: str | None) -> str:
    needs = {
        "states": f"is of states {', '.join(_STATES.get(order_by, ()))}: leave other --state out",
        "queue": "is of one queue: give --queue",
        "metadata": "does not go with --metadata",
    }
    need = needs.get(option or "", "does not go with the other options")
    return f"--order-by {order_by} {need}; --order-by enqueued_at goes with every filter"


@attrs.define
class Walk:
    """Goes through a list, page by page.

    Args:
        store: where the jobs are.
        question: the arguments of `Store.list` that stay the same.
        cursor: where to begin; while it walks, where to go on behind what was used.
        limit: most jobs; None for all.
    """

    store: Store
    question: Mapping[str, Any]
    cursor: str | None
    limit: int | None
    met: int = 0
    """How many jobs there were so far."""

    @property
    def found_nothing(self) -> bool:
        """Whether it came to the end and there was no job."""
        return not self.met and self.cursor is None

    def each(self, use: Callable[[list[JobRecord]], None]) -> None:
        """Hand the jobs of each page on; it may hold none, for a call looks at so many jobs."""
        left = self.limit
        try:
            while left != 0:
                most = listing.MAX_LIMIT if left is None else min(left, listing.MAX_LIMIT)
                page = self.store.list(
                    **self.question, limit=most, cursor=self.cursor, bodies=False
                )
                use(page.items)
                self.met += len(page.items)
                self.cursor = page.cursor
                if page.cursor is None:
                    return
                left = None if left is None else left - len(page.items)
        except KeyboardInterrupt:
            if self.cursor is not None:
                complain(f"interrupted; to go on: {self.how_to_go_on}")
            raise
        except StoreError as error:
            if self.cursor is None:
                raise
            raise CommandError(f"{error.message}; to go on: {self.how_to_go_on}") from None

    @property
    def how_to_go_on(self) -> str:
        """What to call for the rest."""
        return f"the same command with --cursor {self.cursor}"


def _print_lines(page: list[JobRecord]) -> None:
    if page:
        click.echo("\n".join(compact(bare_data(record)) for record in page))


def _print_rows(walk: Walk, filters: Filters, order_by: str) -> None:
    """Print jobs as they are found, so that a search through many shows what it has."""
    short, time = narrow(WIDE), _HEADINGS[order_by]
    columns = ("id", "name", "queue", "state", "attempts", time, "last error")
    # An id is what the next command asks for, so it is never cut.
    table = Table(
        columns[:-1] if narrow() else columns,
        whole=("id",),
        cut=("name", "queue", "last error"),
        drop=("attempts", "last error", "queue", time, "name", "state"),
    )

    def show(page: list[JobRecord]) -> None:
        if page:
            table.add([_row(record, order_by, short=short) for record in page])

    walk.each(show)
    if walk.cursor is not None:
        complain(f"more may follow: {walk.how_to_go_on}")
    elif walk.found_nothing:
        click.echo("no job matches" if filters.given else "no jobs")


def _row(record: JobRecord, order_by: str, *, short: bool) -> tuple[Any, ...]:
    at = getattr(record, order_by)
    made = f"{record.attempts_made} of {record.attempts_max}"
    shared = (record.id, record.name, record.queue, record.state.value, made)
    time = instant(at) if not short else None if at is None else distance(at)
    error = record.failed_reason or record.error
    if error and on_terminal() and len(error) > ERROR_CHARACTERS:
        error = error[: ERROR_CHARACTERS - 1] + "…"
    return (*shared, time, *(() if narrow() else (error,)))
