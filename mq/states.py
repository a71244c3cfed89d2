"""The life of a job as data: states, and every change of state that exists.

`TRANSITIONS` is the one place where a transition is written down. The scripts under `lua/` carry
it out, `tests/transitions` tries every script on every state against it, and the table in
`docs/lifecycle.md` is generated from it. A pair of verb and state that has no row is refused and
leaves the store as it was.
"""

from __future__ import annotations

import enum

import attrs


class JobState(enum.StrEnum):
    """Where a job stands; the value is the word stored on the record."""

    WAITING = "waiting"
    """Runnable: the next free worker that serves its queue and name takes it."""
    DELAYED = "delayed"
    """Not runnable before `run_at`."""
    ACTIVE = "active"
    """Claimed by a worker, under a token and a lock that expires."""
    WAITING_CHILDREN = "waiting-children"
    """A flow parent, parked until its children settle."""
    COMPLETED = "completed"
    """Finished: the handler returned a value."""
    FAILED = "failed"
    """Finished: the budget is spent or was skipped, or the store gave the job up."""
    CANCELLED = "cancelled"
    """Finished: a cancel landed."""

    @property
    def finished(self) -> bool:
        """Whether no worker will touch the job again unless a person retries it."""
        return self in FINISHED


FINISHED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED})


class Outcome(enum.StrEnum):
    """How a run ended, as its ledger entry says it."""

    COMPLETED = "completed"
    """The handler succeeded; the exit is its value."""
    RETRIED = "retried"
    """The run failed and budget is left; the exit is the failure."""
    FAILED = "failed"
    """The run failed and no other follows; the exit is the failure, absent for a settle."""
    STALLED = "stalled"
    """The lock expired: the worker was lost. No exit."""
    CANCELLED = "cancelled"
    """A cancel landed. No exit."""
    FANNED_OUT = "fanned-out"
    """A flow parent's first phase ended. No exit."""


@attrs.frozen
class Transition:
    """One row of the table: what `verb` does to a job found in `source`.

    A row with `source` None begins with no record; one with `target` None ends with none. `word`
    is what the script answers for the job. A row whose `target` equals its `source` changes
    fields, not the state.
    """

    verb: str
    source: JobState | None
    target: JobState | None
    condition: str
    word: str
    outcome: Outcome | None = None
    built: bool = True


_W, _D, _A = JobState.WAITING, JobState.DELAYED, JobState.ACTIVE
_P, _C, _F, _X = (
    JobState.WAITING_CHILDREN,
    JobState.COMPLETED,
    JobState.FAILED,
    JobState.CANCELLED,
)

_HELD = "the token holds the job"
_PENDING = "the token holds the job, a cancel is pending"


TRANSITIONS: tuple[Transition, ...] = (
    Transition("enqueue", None, _W, "due now", "enqueued"),
    Transition("enqueue", None, _D, "due later", "enqueued"),
    *(Transition("enqueue", state, state, "the id exists", "duplicate") for state in JobState),
    *(
        Transition("enqueue", state, state, "its dedup key is live", "duplicate")
        for state in (_W, _D, _A, _P)
    ),
    *(
        Transition("enqueue", state, state, "its dedup window is open", "duplicate")
        for state in JobState
    ),
    Transition("claim", _D, _A, "due, its queue not paused", "claimed"),
    Transition("claim", _D, _W, "due, its queue paused or the claim full", "promoted"),
    Transition("claim", _W, _A, "its queue not paused, a free slot", "claimed"),
    Transition("extend", _A, _A, _HELD, "extended"),
    Transition("extend", _A, _A, _PENDING, "cancel_requested"),
    Transition("ack_completed", _A, _C, _HELD, "completed", Outcome.COMPLETED),
    Transition("ack_completed", _A, _C, _PENDING, "completed", Outcome.COMPLETED),
    Transition("ack_retried", _A, _D, f"{_HELD}, delay > 0", "retried", Outcome.RETRIED),
    Transition("ack_retried", _A, _W, f"{_HELD}, delay 0", "retried", Outcome.RETRIED),
    Transition("ack_retried", _A, _X, _PENDING, "cancelled", Outcome.CANCELLED),
    Transition("ack_failed", _A, _F, _HELD, "failed", Outcome.FAILED),
    Transition("ack_failed", _A, _F, _PENDING, "failed", Outcome.FAILED),
    Transition("ack_cancelled", _A, _X, _HELD, "cancelled", Outcome.CANCELLED),
    Transition("ack_cancelled", _A, _X, _PENDING, "cancelled", Outcome.CANCELLED),
    Transition("release", _A, _W, _HELD, "released"),
    Transition("release", _A, _X, _PENDING, "cancelled", Outcome.CANCELLED),
    Transition("stall_sweep", _A, _W, "lock expired, stalls left", "requeued", Outcome.STALLED),
    Transition("stall_sweep", _A, _F, "lock expired, no stalls left", "failed", Outcome.STALLED),
    Transition(
        "stall_sweep", _A, _X, "lock expired, a cancel is pending", "cancelled", Outcome.CANCELLED
    ),
    Transition("ack_fanned_out", _A, _P, f"{_HELD}, children", "fanned_out", Outcome.FANNED_OUT),
    Transition("ack_fanned_out", _A, _W, f"{_HELD}, no children", "fanned_out", Outcome.FANNED_OUT),
    Transition("ack_fanned_out", _A, _X, _PENDING, "cancelled", Outcome.CANCELLED),
    *(
        Transition("cancel", state, _X, "always", "cancelled", Outcome.CANCELLED)
        for state in (_W, _D, _P)
    ),
    Transition("cancel", _A, _A, "always", "cancel_requested"),
    *(
        Transition("cancel_by_key", state, _X, "the key names it", "cancelled", Outcome.CANCELLED)
        for state in (_W, _D, _P)
    ),
    Transition("cancel_by_key", _A, _A, "the key names it", "cancel_requested"),
    Transition("retry", _F, _W, "always", "retried"),
    Transition("promote", _D, _W, "always", "promoted"),
    Transition("replace", _D, _D, "its dedup key says replace", "replaced"),
    *(Transition("remove", state, None, "always", "removed") for state in (_W, _D, _C, _F, _X)),
    *(Transition("prune", state, None, "past its retention", "pruned") for state in (_C, _F, _X)),
    Transition("settle", _P, _W, "no child is open", "settled"),
    Transition("settle", _P, _F, "fail-fast, a child failed", "settled", Outcome.FAILED),
)
"""Every transition. Rows marked `built=False` are decided and have no script yet."""

SCRIPT_OF_VERB = {
    "cancel": "cancel_request",
    "replace": "enqueue",
    "settle": "record_child_results",
}
"""Verbs whose script has another name; any other verb is its script's name."""


def rows(verb: str, *, built: bool = True) -> tuple[Transition, ...]:
    """Return the rows of one verb, by default only those a script carries out."""
    return tuple(row for row in TRANSITIONS if row.verb == verb and (row.built or not built))
