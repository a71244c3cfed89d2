"""What the command line asks of jobs: the verbs, and how their outcomes and refusals read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from mq.states import JobState, rows

if TYPE_CHECKING:
    from mq.store import steering


@attrs.frozen
class Verb:
    """A verb of `mq jobs`.

    Args:
        word: the command.
        script: the store's word for it.
        past: what has been done to a job.
        done: the words of the store that are no refusal, and what a person reads for each.
        running: what else is to be said of many jobs when running ones are among them.
    """

    word: str
    script: steering.Verb
    past: str
    done: Mapping[str, str]
    running: str = ""

    @property
    def states(self) -> tuple[JobState, ...]:
        """Where a job may stand for it."""
        sources = {row.source for row in rows(self.word)}
        return tuple(state for state in JobState if state in sources)


CANCEL = Verb(
    "cancel",
    "cancel_request",
    "cancelled",
    {"cancelled": "cancelled", "cancel_requested": "running, told to stop"},
    running="; those that were running are told to stop",
)
RETRY = Verb("retry", "retry", "retried", {"retried": "retried, waiting again"})
PROMOTE = Verb("promote", "promote", "promoted", {"promoted": "promoted, waiting now"})
REMOVE = Verb("remove", "remove", "removed", {"removed": "removed"})


def refusal(word: str, job_id: str, state: str | None) -> str:
    """Return the line about a job that was left as it was.

    Args:
        word: what the store answered.
        job_id: the job.
        state: where it stands, when that is known.
    """
    from mq.store.refusals import refused  # late: it loads redis

    if word == "not_removable":
        return f"job {job_id} is {state or 'active'}: cancel it first, then remove it"
    return refused(word, job_id, state).message
