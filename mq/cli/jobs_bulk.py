"""A verb done to every job that filters let through: asked for, shown, stopped in the middle."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import click

from mq.cli.failures import FAILED, CommandError, complain
from mq.cli.filters import Filters, unseen
from mq.cli.output import console, on_terminal, print_json, printable
from mq.cli.verbs import Verb
from mq.errors import StoreError
from mq.records import BulkResult
from mq.states import JobState

if TYPE_CHECKING:
    from mq.store import Store

MOST_COUNTED = 10_000
"""A question tells the number of jobs up to here: counting more would keep the person waiting."""


def can_ask() -> bool:
    """Whether there is a person to answer a question."""
    return on_terminal(sys.stdin) and on_terminal(sys.stderr)


class _EnoughError(Exception):
    """There are more jobs than are counted."""


@attrs.define
class Bulk:
    """Does a verb to many jobs."""

    store: Store
    verb: Verb
    filters: Filters
    as_json: bool
    met: int = 0
    """How many jobs it was done to so far; in a dry run, would be."""

    def run(self, *, yes: bool, dry_run: bool) -> int:
        """Do it and return the exit code.

        Args:
            yes: do not ask.
            dry_run: tell which jobs they are, and change nothing.
        """
        if dry_run:
            return self._tell()
        total = None
        if not yes:
            total = self._count()
            if total != 0 and not self._confirmed(total):
                complain("nothing was changed")
                return FAILED
        return self._work(total) if total != 0 else self._report(BulkResult([], {}))

    def _where(self, on_page: Callable[[BulkResult], None], *, dry_run: bool) -> BulkResult:
        given: dict[str, Any] = attrs.asdict(self.filters, recurse=False)
        verb_where = getattr(self.store, f"{self.verb.word}_where")
        found: BulkResult = verb_where(**given, dry_run=dry_run, on_page=on_page)
        return found

    def _tell(self) -> int:
        def show(page: BulkResult) -> None:
            self.met += len(page.ids)
            if page.ids and not self.as_json:
                click.echo("\n".join(map(printable, page.ids)))

        result = self._where(show, dry_run=True)
        if self.as_json:
            print_json(_data(result))
        if not self.met:
            self._none()
        elif not self.as_json:
            complain(f"{_jobs(self.met)} would be {self.verb.past}; nothing was changed")
        return 0

    def _count(self) -> int | None:
        """Return how many jobs there are, or None for more than are counted."""
        number = 0

        def count(page: BulkResult) -> None:
            nonlocal number
            number += len(page.ids)
            if number > MOST_COUNTED:
                raise _EnoughError

        try:
            self._where(count, dry_run=True)
        except _EnoughError:
            return None
        return number

    def _confirmed(self, total: int | None) -> bool:
        number = f"more than {MOST_COUNTED} jobs" if total is None else _jobs(total)
        where = f"{self.store.endpoint.label} under prefix {self.store.keys.prefix!r}"
        asked = f"{self.verb.word.capitalize()} {number} at {where}? [y/N] "
        try:
            click.echo(asked, nl=False, err=True)
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            click.echo(err=True)
            complain("nothing was changed")
            raise
        if not answer:
            click.echo(err=True)
        return answer.strip().lower() in {"y", "yes"}

    def _work(self, total: int | None) -> int:
        try:
            with _progress(total) as advance:

                def note(page: BulkResult) -> None:
                    self.met += len(page.ids)
                    advance(self.met)

                result = self._where(note, dry_run=False)
        except KeyboardInterrupt:
            complain(f"interrupted; {self._so_far}, of the batch under way some may be")
            raise
        except StoreError as error:
            raise CommandError(f"{error.message}; {self._so_far}, some more may be") from None
        return self._report(result)

    def _report(self, result: BulkResult) -> int:
        if self.as_json:
            print_json(_data(result))
        elif result.ids:
            states = self.filters.states or self.verb.states
            running = self.verb.running if JobState.ACTIVE in states else ""
            click.echo(f"{_jobs(len(result.ids))} {self.verb.past}{running}")
        if not result.ids:
            self._none()
        if result.refused:
            complain(f"{_jobs(len(result.refused))} changed meanwhile and stayed as they were")
        return 0

    @property
    def _so_far(self) -> str:
        return f"{_jobs(self.met)} were {self.verb.past}"

    def _none(self) -> None:
        if not self.as_json:
            click.echo(f"no job matches, none was {self.verb.past}")
        hint = unseen(self.store, self.filters.queue, self.filters.name)
        if hint:
            complain(hint)


def _jobs(number: int) -> str:
    return f"{number} job" if number == 1 else f"{number} jobs"


def _data(result: BulkResult) -> dict[str, Any]:
    return {
        "dry_run": result.dry_run,
        "count": len(result.ids),
        "ids": result.ids,
        "refused": result.refused,
    }


@contextlib.contextmanager
def _progress(total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal; yields what is told how many jobs are done."""
    if not on_terminal(sys.stderr):
        yield lambda _: None
        return
    from rich import progress

    columns = (
        progress.BarColumn(),
        progress.TextColumn("{task.completed} jobs"),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)
