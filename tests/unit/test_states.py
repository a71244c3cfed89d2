"""The table of transitions as data."""

from __future__ import annotations

import pytest

from mq.states import FINISHED, TRANSITIONS, JobState, Outcome, rows


def test_the_seven_states_are_named_as_the_records_spell_them() -> None:
    """The words on the records are part of the keyspace and do not change."""
    assert [state.value for state in JobState] == [
        "waiting", "delayed", "active", "waiting-children", "completed", "failed", "cancelled",
    ]  # fmt: skip


def test_finished_states_are_the_three_no_worker_touches() -> None:
    """A finished job stays as it is unless a person retries it."""
    assert {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED} == FINISHED
    assert [state for state in JobState if state.finished] == [
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
    ]


def test_the_outcomes_are_named_as_the_ledger_spells_them() -> None:
    """The words in ledger entries are part of the keyspace and do not change."""
    assert [outcome.value for outcome in Outcome] == [
        "completed", "retried", "failed", "stalled", "cancelled", "fanned-out",
    ]  # fmt: skip


def test_every_state_can_be_reached_and_left() -> None:
    """No state is a dead end, and none is only written down."""
    assert {row.target for row in TRANSITIONS} >= set(JobState)
    assert {row.source for row in TRANSITIONS} >= set(JobState)


def test_only_retry_and_enqueue_touch_a_finished_job_that_stays() -> None:
    """What is finished is left alone, removed, or retried by a person."""
    verbs = {row.verb for row in TRANSITIONS if row.source in FINISHED and row.target}
    assert verbs == {"enqueue", "retry"}


def test_every_way_out_of_active_writes_a_ledger_entry_but_release() -> None:
    """A run that ended is in the ledger."""
    silent = {
        row.verb
        for row in TRANSITIONS
        if row.source is JobState.ACTIVE and row.target is not row.source and row.outcome is None
    }
    assert silent == {"release"}


def test_a_verb_answers_one_word_for_one_target() -> None:
    """The word tells where the job went, but for the few that a delay or the children decide."""
    for verb in {row.verb for row in TRANSITIONS}:
        targets: dict[str, set[JobState | None]] = {}
        for row in rows(verb, built=False):
            if row.source is not row.target:
                targets.setdefault(row.word, set()).add(row.target)
        doubled = {word for word, states in targets.items() if len(states) > 1}
        assert doubled <= {"retried", "fanned_out", "enqueued", "settled"}


@pytest.mark.parametrize(
    ("verb", "built"),
    [("cancel", True), ("settle", True), ("enqueue", True), ("no-such-verb", False)],
)
def test_rows_leaves_out_what_is_not_built(verb: str, built: bool) -> None:
    """By default only what a script carries out is returned."""
    assert bool(rows(verb)) == built
    assert all(row.built for row in rows(verb))
    assert len(rows(verb, built=False)) >= len(rows(verb))
