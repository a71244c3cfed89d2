"""Refusals: the outcome words that are one, and the error each becomes."""

from __future__ import annotations

from mq.errors import (
    JobNotCancellableError,
    JobNotFoundError,
    JobNotPromotableError,
    JobNotRetryableError,
    LockLostError,
    MQError,
)

REFUSALS: dict[str, type[MQError]] = {
    "lost": LockLostError,
    "not_found": JobNotFoundError,
    "not_cancellable": JobNotCancellableError,
    "not_retryable": JobNotRetryableError,
    "not_promotable": JobNotPromotableError,
}
"""Outcome words that are refusals, and the error the single form of a verb raises for each."""

_TEXTS = {
    "lost": "job {id} is no longer held under this token: its lock expired and it was taken over",
    "not_found": "no job has the id {id!r}",
    "not_cancellable": "job {id} is {state}: only a job that is not finished can be cancelled",
    "not_promotable": "job {id} is {state}: only a delayed job can be promoted",
    "not_retryable": "job {id} is {state}: only a failed job can be retried",
}


MOST_SHOWN = 200
"""Characters of an id that a message shows."""


def refused(word: str, job_id: str, state: str | None = None) -> MQError:
    """Return the error that a refusal becomes, for the caller to raise.

    Args:
        word: the outcome word, one of `REFUSALS`.
        job_id: the job that was asked about.
        state: where the script found it, for a refusal that tells.
    """
    shown = job_id if len(job_id) <= MOST_SHOWN else job_id[: MOST_SHOWN - 3] + "..."
    text = _TEXTS[word].format(id=shown, state=state)
    return REFUSALS[word](text, job_id=job_id, state=state or None)
