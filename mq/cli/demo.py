"""`mq demo`: a queue at work, on a server of its own that is gone afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from mq.cli.output import console, on_terminal
from mq.states import JobState

if TYPE_CHECKING:
    from mq.demo.play import Play, Watch

PLAIN_EVERY_S = 1.0


@click.command()
def demo() -> int:
    """See a few hundred jobs of several kinds run, in seconds; needs no server and leaves nothing.

    A Redis or Valkey found on this machine is started in a temporary folder, and a worker process
    beside it. With none to be found, everything runs in one process, in memory.

    \b
    Example:
      mq demo
    """  # noqa: D301 click's mark: not to be wrapped
    from mq.demo.place import Place, Stop
    from mq.demo.play import Play

    stop = Stop()
    with Place() as place:
        if place.alone is None:
            click.echo(f"server   {place.described}, in a temporary folder")
        else:
            click.echo(f"server   none: {place.alone}")
            click.echo(
                "         so the jobs are kept in memory and this process works on them itself"
            )
        play = Play(click.echo, stop)
        with _watching(play) as watch:
            code = play.run(place, watch)
    if stop:
        click.echo("stopped; the server, the worker and their folder are gone", err=True)
    return code


@contextmanager
def _watching(play: Play) -> Iterator[Watch]:
    """Yield what shows how far the jobs are: a bar on a terminal, else a line now and then."""
    if not on_terminal():
        yield _lines(play)
        return
    from rich import progress

    columns = (
        progress.BarColumn(),
        progress.TextColumn("{task.completed} of {task.total} finished"),
        progress.TextColumn("{task.fields[states]}"),
        progress.TimeElapsedColumn(),
    )
    bar = progress.Progress(*columns, console=console())
    task = bar.add_task("", total=None, states="", start=True)

    def watch(finished: int, counts: dict[JobState, int]) -> None:
        bar.start()
        total = len(play.jobs)
        bar.update(task, completed=finished, total=total, states=_open(counts))
        if finished >= total:
            bar.stop()

    try:
        yield watch
    finally:
        bar.stop()


def _lines(play: Play) -> Watch:
    started = time.monotonic()
    told = [started - PLAIN_EVERY_S]

    def watch(finished: int, counts: dict[JobState, int]) -> None:
        now = time.monotonic()
        if now - told[0] < PLAIN_EVERY_S and finished < len(play.jobs):
            return
        told[0] = now
        states = f" ({left})" if (left := _open(counts)) else ""
        click.echo(f"{now - started:5.1f} s  {finished} of {len(play.jobs)} finished{states}")

    return watch


def _open(counts: dict[JobState, int]) -> str:
    """Return the unfinished states and how many are in each."""
    return ", ".join(
        f"{number} {state.value}"
        for state, number in counts.items()
        if number and not state.finished
    )
