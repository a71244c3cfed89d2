"""`mq queues`: how many jobs stand where, and which queues are held."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from mq.cli.failures import complain
from mq.cli.filters import unseen
from mq.cli.output import distance, instant, narrow, print_json, print_table
from mq.cli.parameters import QUEUE_NAME
from mq.cli.root import show_help_alone
from mq.cli.stores import reach, store_options, unreached_store_options
from mq.states import JobState

if TYPE_CHECKING:
    from mq.store import Store

STATES = [state.value for state in JobState]
NOTHING_YET = "no job was ever enqueued here"

_TOLD = {
    "paused": "paused",
    "paused_before": "was paused before",
    "resumed": "resumed",
    "not_paused": "was not paused",
}


@click.group(invoke_without_command=True)
@click.pass_context
def queues(ctx: click.Context) -> None:
    """Look at queues, pause and resume them.

    \b
    Example:
      mq queues list
      mq queues pause billing
    """  # noqa: D301 click's mark: not to be wrapped
    show_help_alone(ctx)


@queues.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times are ms since the epoch.")
@store_options
def list_queues(as_json: bool, store: Store) -> None:
    """List the queues: whether each is paused, its job names, and its jobs by state.

    \b
    Example:
      mq queues list
    """  # noqa: D301 click's mark: not to be wrapped
    paused = store.paused_since()
    names: dict[str, list[str]] = {queue: [] for queue in paused}
    for queue, name in store.seen_pairs():
        names.setdefault(queue, []).append(name)
    numbers = {queue: counts_of(store, queue) for queue in sorted(names)}
    if as_json:
        print_json(
            [
                {
                    "queue": queue,
                    "paused": queue in paused,
                    "paused_since": paused.get(queue),
                    "names": names[queue],
                    "counts": counts,
                }
                for queue, counts in numbers.items()
            ]
        )
        return
    if not numbers:
        click.echo(NOTHING_YET)
        return
    _print_queues(numbers, paused, names)


def _print_queues(
    numbers: Mapping[str, Mapping[str, int]],
    paused: Mapping[str, int],
    names: Mapping[str, Sequence[str]],
) -> None:
    short = narrow()
    states = _states(numbers)
    rows = [
        (
            queue,
            _since(paused.get(queue), short=short),
            *(() if short else (", ".join(names[queue]),)),
            *(counts[state] for state in states),
        )
        for queue, counts in numbers.items()
    ]
    columns = ("queue", "paused", *(() if short else ("job names",)), *states)
    print_table(columns, rows, right=states, fold=("paused", "job names"))


def _since(at_ms: int | None, *, short: bool) -> str:
    if at_ms is None:
        return "no"
    return distance(at_ms) if short else f"since {instant(at_ms)}"


def _states(numbers: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return the states that make a column: on a narrow terminal those alone that hold jobs."""
    held = [state for state in STATES if any(counts[state] for counts in numbers.values())]
    return held if held and narrow() else STATES


@queues.command()
@click.argument("queue", required=False, type=QUEUE_NAME)
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
    elif found:
        states = _states(found)
        rows = [(name, *(numbers[state] for state in states)) for name, numbers in found.items()]
        print_table(("queue", *states), rows, right=states)
    else:
        click.echo(NOTHING_YET)
    if queue and not any(found[queue].values()):
        _hint(store, [queue])


@queues.command()
@click.argument("names", metavar="QUEUE...", type=QUEUE_NAME, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@unreached_store_options
def pause(names: Sequence[str], as_json: bool, store: Store) -> None:
    """Hold queues for every worker, until they are resumed.

    Jobs come in and fall due, and none of them starts; those that are running go on. --json prints
    a list of queues with their `outcome`: paused or paused_before.

    \b
    Example:
      mq queues pause billing
    """  # noqa: D301 click's mark: not to be wrapped
    _do(store, names, as_json, lambda name: "paused" if store.pause(name) else "paused_before")


@queues.command()
@click.argument("names", metavar="QUEUE...", type=QUEUE_NAME, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@unreached_store_options
def resume(names: Sequence[str], as_json: bool, store: Store) -> None:
    """Let workers take from queues again, idle ones at once.

    --json prints a list of queues with their `outcome`: resumed or not_paused.

    \b
    Example:
      mq queues resume billing
    """  # noqa: D301 click's mark: not to be wrapped
    _do(store, names, as_json, lambda name: "resumed" if store.resume(name) else "not_paused")


def _do(store: Store, names: Sequence[str], as_json: bool, change: Callable[[str], str]) -> None:
    reach(store, to_write=True)
    names = list(dict.fromkeys(names))
    outcomes = []
    for name in names:
        word = change(name)
        outcomes.append({"queue": name, "outcome": word})
        if not as_json:
            click.echo(f"{name}: {_TOLD[word]}")
    if as_json:
        print_json(outcomes)
    _hint(store, names)


def _hint(store: Store, names: Sequence[str]) -> None:
    for hint in dict.fromkeys(unseen(store, name) for name in names):
        if hint:
            complain(hint)


def queue_names(store: Store) -> list[str]:
    """Return every queue that ever held a job, sorted."""
    return sorted({queue for queue, _ in store.seen_pairs()})


def counts_of(store: Store, queue: str | None = None) -> dict[str, int]:
    """Return the number of jobs by state's word, of one queue or of all."""
    return {state.value: number for state, number in store.counts(queue).items()}
