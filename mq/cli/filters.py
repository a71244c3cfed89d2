"""Which jobs a command is about: by queue, name, state and metadata; never by what they carry."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click

from mq.cli.failures import misuse
from mq.cli.parameters import JOB_NAME, PAIR, QUEUE_NAME
from mq.errors import PayloadError
from mq.states import JobState
from mq.validation import check_metadata

if TYPE_CHECKING:
    from mq.store import Store

_NAMES_TOLD = 10  # of the queues or job names there are, when one that is asked for is not there


@attrs.frozen(kw_only=True)
class Filters:
    """What was asked for; None for what was not."""

    queue: str | None = None
    name: str | None = None
    states: tuple[JobState, ...] | None = None
    metadata: dict[str, str] | None = None

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return any(value is not None for value in attrs.astuple(self, recurse=False))


def filter_options(
    states: Sequence[JobState],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that say which jobs; it is called with `filters` in their place.

    Args:
        states: which may be asked for.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def with_filters(
            *args: Any,
            queue: str | None,
            name: str | None,
            state: Sequence[str],
            metadata: Sequence[tuple[str, str]],
            **options: Any,
        ) -> Any:
            filters = Filters(
                queue=queue,
                name=name,
                states=tuple(map(JobState, state)) or None,
                metadata=_metadata(metadata) or None,
            )
            return command(*args, filters=filters, **options)

        for option in (
            click.option(
                "--metadata", type=PAIR, multiple=True, help="With this pair; repeatable, all hold."
            ),
            click.option(
                "--state",
                type=click.Choice([state.value for state in states]),
                multiple=True,
                help="In this state; repeatable, any of them.",
            ),
            click.option("--name", "-n", type=JOB_NAME, help="Of this job name."),
            click.option("--queue", "-q", type=QUEUE_NAME, help="Of this queue."),
        ):
            with_filters = option(with_filters)
        return with_filters

    return decorate


def _metadata(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    keys = [key for key, _ in pairs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise misuse(f"--metadata names {twice!r} twice: a job has one value of a key")
    try:
        return check_metadata(dict(pairs))
    except PayloadError as error:
        raise misuse(f"--metadata: {error.reason}") from None


def unseen(store: Store, queue: str | None, name: str | None = None) -> str | None:
    """Return a line about a queue or name that never held a job, it may be mistyped; or None."""
    pairs = store.seen_pairs()
    if not pairs:
        return "no job was ever enqueued here: check --url and --prefix"
    for what, asked, known in (
        ("in queue", queue, {queue for queue, _ in pairs}),
        ("of job name", name, {name for _, name in pairs}),
    ):
        if asked is not None and asked not in known:
            return f"no job was ever seen {what} {asked!r}; {those(known)}"
    return None


def those(known: Collection[str]) -> str:
    """Return which names there are, the first of them when there are many."""
    more = ", …" if len(known) > _NAMES_TOLD else ""
    return f"there are: {', '.join(sorted(known)[:_NAMES_TOLD])}{more}"
