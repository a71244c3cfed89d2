"""`mq jobs cancel|retry|promote|remove`: what is asked of jobs, by id or by filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from mq.cli.failures import FAILED, complain, misuse
from mq.cli.filters import Filters, filter_options
from mq.cli.jobs_bulk import Bulk, can_ask
from mq.cli.output import print_json, printable
from mq.cli.parameters import JOB_ID
from mq.cli.stores import reach, unreached_store_options
from mq.cli.verbs import CANCEL, PROMOTE, REMOVE, RETRY, Verb, refusal

if TYPE_CHECKING:
    from mq.store import Store


def _by_id_or_filter(verb: Verb) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command ids, filters and what goes with both."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            unreached_store_options,
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option(
                "--dry-run", is_flag=True, help="With filters: print the ids, change nothing."
            ),
            click.option("--yes", "-y", is_flag=True, help="With filters: do not ask."),
            filter_options(verb.states),
            click.argument("job_ids", metavar="[ID]...", type=JOB_ID, nargs=-1),
        ):
            command = option(command)
        return command

    return decorate


@click.command()
@_by_id_or_filter(CANCEL)
def cancel(**given: Any) -> int:
    """Cancel jobs: those with these ids, or all that the filters let through.

    A job that is not running is cancelled at once. A running one is told to stop; a result that it
    returns all the same stands. Filters ask before they do anything, and need --yes where nobody
    can be asked.

    Exit code 1: a job of an id was refused, or the question was not answered with yes. --json
    prints a list of ids with their `outcome`; with filters an object with `count`, `ids`, and in
    `refused` those that changed meanwhile.

    \b
    Example:
      mq jobs cancel generate-invoice/1234 generate-invoice/1235
      mq jobs cancel --queue billing --metadata customer_id=4711 --dry-run
      mq jobs cancel --queue billing --metadata customer_id=4711 --yes
    """  # noqa: D301 click's mark: not to be wrapped
    return _run(CANCEL, **given)


@click.command()
@_by_id_or_filter(RETRY)
def retry(**given: Any) -> int:
    """Retry failed jobs: those with these ids, or all that the filters let through.

    Each gets a fresh budget and goes to the back of the line; its ledger stays. Filters ask before
    they do anything, and need --yes where nobody can be asked.

    Exit codes and JSON are those of `mq jobs cancel`.

    \b
    Example:
      mq jobs retry generate-invoice/1234
      mq jobs retry --queue billing --name generate-invoice --yes
    """  # noqa: D301 click's mark: not to be wrapped
    return _run(RETRY, **given)


@click.command()
@_by_id_or_filter(REMOVE)
def remove(**given: Any) -> int:
    """Delete jobs with their ledgers: those with these ids, or all that the filters let through.

    One that a worker holds stays: cancel it first. Filters ask before they do anything, and need
    --yes where nobody can be asked.

    Exit codes and JSON are those of `mq jobs cancel`.

    \b
    Example:
      mq jobs remove generate-invoice/1234
      mq jobs remove --queue billing --state completed --state cancelled
    """  # noqa: D301 click's mark: not to be wrapped
    return _run(REMOVE, **given)


@click.command()
@click.argument("job_ids", metavar="ID...", type=JOB_ID, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@unreached_store_options
def promote(job_ids: Sequence[str], as_json: bool, store: Store) -> int:
    """Make delayed jobs runnable now, each at its place in line.

    Exit code 1: a job was refused. --json prints a list of ids with their `outcome`.

    \b
    Example:
      mq jobs promote generate-invoice/1234
    """  # noqa: D301 click's mark: not to be wrapped
    reach(store, to_write=True)
    return ById(store, PROMOTE, as_json).run(job_ids)


def _run(
    verb: Verb,
    *,
    job_ids: Sequence[str],
    filters: Filters,
    yes: bool,
    dry_run: bool,
    as_json: bool,
    store: Store,
) -> int:
    if job_ids and filters.given:
        raise misuse("give ids or filters, not both")
    if not job_ids and not filters.given:
        raise misuse(
            "say which jobs: give ids, or filters: --queue, --name, --state, --metadata key=value"
        )
    if job_ids and dry_run:
        raise misuse("--dry-run goes with filters: an id is one job, see mq jobs show")
    if not job_ids and not yes and not dry_run and not can_ask():
        raise misuse(
            f"nobody can be asked here whether to {verb.word} all jobs that match:"
            " give --yes, or --dry-run to see which"
        )
    reach(store, to_write=not dry_run)
    if job_ids:
        return ById(store, verb, as_json).run(job_ids)
    return Bulk(store, verb, filters, as_json).run(yes=yes, dry_run=dry_run)


@attrs.define
class ById:
    """Does a verb to jobs one knows by id, and tells of each."""

    store: Store
    verb: Verb
    as_json: bool
    outcomes: list[dict[str, Any]] = attrs.field(factory=list)
    refused: int = 0

    def run(self, job_ids: Iterable[str]) -> int:
        """Do it and return the exit code."""
        from mq.store.steering import STEER_BATCH  # late: it loads redis

        left = list(dict.fromkeys(job_ids))
        total = len(left)
        try:
            while left:
                batch, left = left[:STEER_BATCH], left[STEER_BATCH:]
                self._steer(batch)
        except KeyboardInterrupt:
            complain(
                f"interrupted after {len(self.outcomes)} of {total} ids,"
                " of the batch under way some may be done too"
            )
            raise
        finally:
            if self.as_json:
                print_json(self.outcomes)
        return FAILED if self.refused else 0

    def _steer(self, batch: Sequence[str]) -> None:
        answers = self.store.steer(self.verb.script, batch)
        held = [job_id for job_id, (word, _) in zip(batch, answers, strict=True)
                if word == "not_removable"]  # fmt: skip
        # The script does not say where it found those.
        states = dict(zip(held, self.store.get_states(held), strict=True))
        for job_id, (word, state) in zip(batch, answers, strict=True):
            self._tell(job_id, word, states.get(job_id) or state or None)

    def _tell(self, job_id: str, word: str, state: str | None) -> None:
        done = self.verb.done.get(word)
        outcome: dict[str, Any] = {"id": job_id, "outcome": word}
        if done is None:
            self.refused += 1
            outcome |= {"state": state}
            complain(refusal(word, job_id, state))
        elif not self.as_json:
            click.echo(f"{printable(job_id)}: {done}")
        self.outcomes.append(outcome)
