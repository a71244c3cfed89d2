"""`mq queues`: how many jobs stand where."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mq.cli.output import print_json, print_table
from mq.cli.root import show_help_alone
from mq.cli.stores import store_options
from mq.states import JobState

if TYPE_CHECKING:
    from mq.store import Store


@click.group(invoke_without_command=True)
@click.pass_context
def queues(ctx: click.Context) -> None:
    """Look at queues.

    \b
    Example:
      mq queues counts
    """  # noqa: D301 click's mark: not to be wrapped
    show_help_alone(ctx)


@queues.command()
@click.argument("queue", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@store_options
def counts(queue: str | None, as_json: bool, store: Store) -> None:
    """Count the jobs of one queue, or of each, by state; the cost does not grow with their number.

    \b
    Example:
      mq queues counts
      mq queues counts billing --json
    """  # noqa: D301 click's mark: not to be wrapped
    found = {name: counts_of(store, name) for name in ([queue] if queue else queue_names(store))}
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("no job was ever enqueued here")
        return
    states = [state.value for state in JobState]
    rows = [(name, *(numbers[state] for state in states)) for name, numbers in found.items()]
    print_table(("queue", *states), rows, right=states)


def queue_names(store: Store) -> list[str]:
    """Return every queue that ever held a job, sorted."""
    return sorted({queue for queue, _ in store.seen_pairs()})


def counts_of(store: Store, queue: str | None = None) -> dict[str, int]:
    """Return the number of jobs by state's word, of one queue or of all."""
    return {state.value: number for state, number in store.counts(queue).items()}
