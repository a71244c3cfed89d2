"""Every script on every state, against the table in ``mq/states.py``."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from transitions.invariants import violations
from transitions.seed import (
    CHILD,
    DELAY_MS,
    JOB,
    LOCK_MS,
    NAME,
    QUEUE,
    TOKEN,
    seed,
    snapshot,
    write_children,
)

from mq.clock import FakeClock
from mq.policies import Dedupe, Keep
from mq.records import Ack, Request
from mq.scripts import load_scripts, script_folder
from mq.states import SCRIPT_OF_VERB, TRANSITIONS, JobState, Transition
from mq.store import REFUSALS, Store
from mq.store.families import ChildReport, OnChildFailure
from mq.store.steering import Verb

STATES = (None, *JobState)
ACKS = ("ack_completed", "ack_retried", "ack_failed", "ack_cancelled", "release", "ack_fanned_out")
BUILT = tuple(dict.fromkeys(row.verb for row in TRANSITIONS if row.built))
PLANNED = tuple(dict.fromkeys(row.verb for row in TRANSITIONS if not row.built))
UNTOUCHED = "untouched"


@attrs.frozen
class Case:
    """How a condition of the table is brought about."""

    token: str = TOKEN
    cancel: bool = False
    delay_ms: int = 0
    elapsed_ms: int = 0
    paused: bool = False
    limit: int = 1
    ahead: bool = False
    max_stalled: int = 1
    dedupe: Dedupe | None = None
    keep: Keep | None = None
    children: tuple[str, ...] = ()
    on_child_failure: OnChildFailure = "continue"
    outcome: str = "completed"


CASES: dict[str, tuple[Case, ...]] = {
    "always": (Case(),),
    "due now": (Case(),),
    "due later": (Case(delay_ms=1),),
    "the id exists": (Case(), Case(delay_ms=1)),
    "its dedup key is live": (Case(dedupe=Dedupe("key")),),
    "its dedup window is open": (
        Case(dedupe=Dedupe("key", ttl="1m")),
        Case(dedupe=Dedupe("key", ttl="1m", extend=True)),
    ),
    "its dedup key says replace": (
        Case(dedupe=Dedupe("key", replace=True)),
        Case(dedupe=Dedupe("key", ttl="1m", replace=True), delay_ms=7),
    ),
    "the key names it": (Case(dedupe=Dedupe("key")), Case(dedupe=Dedupe("key", ttl="1m"))),
    "due, its queue not paused": (Case(elapsed_ms=DELAY_MS),),
    "due, its queue paused or the claim full": (
        Case(elapsed_ms=DELAY_MS, paused=True),
        Case(elapsed_ms=DELAY_MS, ahead=True),
    ),
    "its queue not paused, a free slot": (Case(),),
    "the token holds the job": (Case(), Case(elapsed_ms=LOCK_MS * 2)),
    "the token holds the job, a cancel is pending": (
        Case(cancel=True),
        Case(cancel=True, children=("a", "b")),
    ),
    "the token holds the job, children": (Case(children=("a",)), Case(children=("a", "b"))),
    "the token holds the job, no children": (Case(), Case(elapsed_ms=LOCK_MS * 2)),
    "no child is open": (
        Case(),
        Case(outcome="failed"),
        Case(outcome="cancelled", on_child_failure="fail"),
    ),
    "fail-fast, a child failed": (Case(outcome="failed", on_child_failure="fail"),),
    "past its retention": (Case(keep=Keep(age="1s"), elapsed_ms=1000),),
    "the token holds the job, delay > 0": (Case(delay_ms=1),),
    "the token holds the job, delay 0": (Case(),),
    "lock expired, stalls left": (Case(elapsed_ms=LOCK_MS),),
    "lock expired, no stalls left": (Case(elapsed_ms=LOCK_MS, max_stalled=0),),
    "lock expired, a cancel is pending": (Case(elapsed_ms=LOCK_MS, cancel=True, max_stalled=0),),
}


def _enqueue(store: Store, case: Case) -> str:
    delay = case.delay_ms or None
    again = Request(
        name=NAME, queue=QUEUE, payload=b"new", id=None if case.dedupe else JOB,
        delay_ms=delay, dedupe=case.dedupe,
    )  # fmt: skip
    return "duplicate" if store.enqueue(again).duplicate else "enqueued"


def _replace(store: Store, case: Case) -> str:
    before = store.get_job(JOB)
    word = _enqueue(store, case)
    after = store.get_job(JOB)
    if before is None or after is None or before.payload == after.payload:
        return UNTOUCHED
    return "replaced" if word == "duplicate" else word


def _claim(store: Store, case: Case) -> str:
    before = store.get_states([JOB])
    claim = store.claim([QUEUE], [NAME], "next-token", LOCK_MS, case.limit)
    if JOB in {job.id for job in claim.jobs}:
        return "claimed"
    promoted = before == [JobState.DELAYED] and store.get_states([JOB]) == [JobState.WAITING]
    return "promoted" if promoted else UNTOUCHED


def _extend(store: Store, case: Case) -> str:
    lost, cancel_requested = store.extend([(JOB, case.token)], LOCK_MS)
    return "lost" if lost else "cancel_requested" if cancel_requested else "extended"


def _ack(verb: str) -> Callable[[Store, Case], str]:
    def run(store: Store, case: Case) -> str:
        exit_ = None if verb in {"ack_cancelled", "release"} else b"exit"
        ack = Ack(JOB, case.token, exit_, summary="a line", delay_ms=case.delay_ms)
        return store.exchange([(verb, ack)], None)[0][0]

    return run


def _sweep(store: Store, case: Case) -> str:
    found = store.stall_sweep(case.max_stalled)
    return found[0].word if found else UNTOUCHED


def _steer(verb: Verb) -> Callable[[Store, Case], str]:
    def run(store: Store, case: Case) -> str:
        del case
        return store.steer(verb, [JOB])[0][0]

    return run


def _cancel_by_key(store: Store, case: Case) -> str:
    key = case.dedupe.key if case.dedupe else "key"
    if not store.cancel_by_key(NAME, key):
        return UNTOUCHED
    return "cancel_requested" if store.get_states([JOB]) == [JobState.ACTIVE] else "cancelled"


def _settle(store: Store, case: Case) -> str:
    report = ChildReport(JOB, CHILD, case.outcome, b"exit")
    before = store.get_states([JOB])
    (applied,) = store.record_child_results([report])
    if store.get_states([JOB]) == before:
        return UNTOUCHED
    return "settled" if applied else "moved by a report that was ignored"


def _prune(store: Store, case: Case) -> str:
    del case
    return "pruned" if store.prune() else UNTOUCHED


RUN: dict[str, Callable[[Store, Case], str]] = {
    "enqueue": _enqueue,
    "claim": _claim,
    "extend": _extend,
    "stall_sweep": _sweep,
    "retry": _steer("retry"),
    "promote": _steer("promote"),
    "cancel": _steer("cancel_request"),
    "remove": _steer("remove"),
    "cancel_by_key": _cancel_by_key,
    "replace": _replace,
    "settle": _settle,
    "prune": _prune,
    **{verb: _ack(verb) for verb in ACKS},
}


def _prepare(store: Store, clock: FakeClock, state: JobState | None, case: Case) -> None:
    seed(
        store, state, cancel=case.cancel, dedupe=case.dedupe, keep=case.keep,
        on_child_failure=case.on_child_failure,
    )  # fmt: skip
    if case.children:
        write_children(store, JOB, TOKEN, list(case.children), case.on_child_failure)
    if case.ahead:
        store.enqueue(Request(name=NAME, queue=QUEUE, payload=b"", id="ahead", priority=9))
    if case.paused:
        store.pause(QUEUE)
    clock.advance(case.elapsed_ms)


def _named(value: object) -> str | None:
    if isinstance(value, Transition):
        source = value.source.value if value.source else "absent"
        return f"{value.verb}-{source}-{value.word}"
    if isinstance(value, JobState):
        return value.value
    return "absent" if value is None else None


LISTED = [
    pytest.param(row, case, id=f"{_named(row)}-{nth}-{number}")
    for number, row in enumerate(TRANSITIONS)
    if row.built
    for nth, case in enumerate(CASES[row.condition])
]


@pytest.mark.parametrize(("row", "case"), LISTED)
def test_a_listed_transition_does_what_its_row_says(
    store: Store, clock: FakeClock, row: Transition, case: Case
) -> None:
    """Target state, outcome word and ledger outcome are those of the table."""
    _prepare(store, clock, row.source, case)
    ledger = store.get_attempts(JOB)

    word = RUN[row.verb](store, case)

    assert word == row.word
    assert store.get_states([JOB]) == [row.target]
    added = store.get_attempts(JOB)[len(ledger) :]
    assert [entry.outcome for entry in added] == ([row.outcome] if row.outcome else [])
    assert violations(store) == []


KEYED = {
    "replace": Case(dedupe=Dedupe("key", replace=True)),
    "cancel_by_key": Case(dedupe=Dedupe("key")),
    "prune": Case(keep=Keep(count=1, age="1s"), elapsed_ms=LOCK_MS),
}
"""How a verb is tried that reaches its job by something else than id and token."""


def _is_listed(verb: str, state: JobState | None) -> bool:
    if verb == "replace" and (state is None or state.finished):
        return True  # the key is free: the same call is an enqueue
    return any(row.verb == verb and row.source is state for row in TRANSITIONS)


UNLISTED = [
    pytest.param(verb, state, id=f"{verb}-{state.value if state else 'absent'}")
    for verb in BUILT
    for state in STATES
    if not _is_listed(verb, state)
]


@pytest.mark.parametrize(("verb", "state"), UNLISTED)
def test_a_pair_without_a_row_is_refused_and_changes_nothing(
    store: Store, clock: FakeClock, verb: str, state: JobState | None
) -> None:
    """A stranger's token is refused with a word, and every key is as it was."""
    case = KEYED.get(verb, Case(token="of-a-stranger"))
    _prepare(store, clock, state, case)
    clock.advance(1)
    before = snapshot(store)

    word = RUN[verb](store, case)

    assert word in {*REFUSALS, "not_removable", UNTOUCHED}
    assert snapshot(store) == before


@pytest.mark.parametrize("verb", ACKS)
@pytest.mark.parametrize(
    ("state", "landed"),
    [
        (JobState.COMPLETED, "completed"),
        (JobState.FAILED, "failed"),
        (JobState.CANCELLED, "cancelled"),
        (JobState.WAITING_CHILDREN, "fanned_out"),
    ],
    ids=_named,
)
def test_any_ack_under_a_landed_token_tells_what_landed_and_changes_nothing(
    store: Store, clock: FakeClock, verb: str, state: JobState, landed: str
) -> None:
    """A repeat is recognised whatever outcome it carries."""
    _prepare(store, clock, state, Case())
    clock.advance(1)
    before = snapshot(store)

    assert RUN[verb](store, Case(delay_ms=5)) == landed
    assert snapshot(store) == before


CONDITION_FAILS = [
    *((verb, JobState.ACTIVE, Case(token="of-a-stranger")) for verb in ("extend", *ACKS)),
    *(
        (verb, JobState.ACTIVE, Case(token="of-a-stranger", cancel=True))
        for verb in ("extend", *ACKS)
    ),
    *((verb, JobState.ACTIVE, Case(token="")) for verb in ("extend", *ACKS)),
    ("claim", JobState.WAITING, Case(paused=True)),
    ("claim", JobState.DELAYED, Case(elapsed_ms=DELAY_MS - 1)),
    ("claim", JobState.DELAYED, Case(elapsed_ms=DELAY_MS - 1, paused=True)),
    ("claim", JobState.ACTIVE, Case(elapsed_ms=LOCK_MS * 9)),
    ("stall_sweep", JobState.ACTIVE, Case(elapsed_ms=LOCK_MS - 1)),
    ("stall_sweep", JobState.ACTIVE, Case(elapsed_ms=LOCK_MS - 1, cancel=True)),
    *(
        ("prune", state, Case(keep=Keep(count=1, age="1s"), elapsed_ms=999))
        for state in JobState
        if state.finished
    ),
]


@pytest.mark.parametrize(("verb", "state", "case"), CONDITION_FAILS)
def test_a_row_whose_condition_fails_changes_nothing(
    store: Store, clock: FakeClock, verb: str, state: JobState, case: Case
) -> None:
    """Being in the right state is not enough."""
    _prepare(store, clock, state, case)
    before = snapshot(store)

    assert RUN[verb](store, case) in {*REFUSALS, UNTOUCHED}
    assert snapshot(store) == before


@pytest.mark.parametrize("state", JobState, ids=_named)
def test_reading_changes_nothing(store: Store, state: JobState) -> None:
    """Readers leave every key as it was, for a job in any state."""
    seed(store, state)
    before = snapshot(store)

    found, ledger = store.get_whole(JOB) or (None, [])

    assert found is not None
    assert found.state is state
    ended = state.finished or state is JobState.WAITING_CHILDREN
    assert len(ledger) == (1 if ended else 0)
    assert store.list_child_results(JOB).counts.pending == (state is JobState.WAITING_CHILDREN)
    assert store.peek_outbox() == []
    assert store.list_schedules() == []
    assert store.counts()[state] == 1
    assert sum(store.counts().values()) == 1
    assert snapshot(store) == before


@pytest.mark.parametrize("state", STATES, ids=_named)
def test_progress_and_watch_mark_only_what_they_may(store: Store, state: JobState | None) -> None:
    """Progress needs the holder, watching an unfinished job; nothing else is touched."""
    seed(store, state)
    before = snapshot(store)

    assert store.progress(JOB, "of-a-stranger", b"1") in REFUSALS
    if state is not JobState.ACTIVE:
        assert store.progress(JOB, TOKEN, b"1") in REFUSALS
    assert snapshot(store) == before
    if state is None or state.finished:
        assert store.watch(JOB) == ("finished" if state else "not_found")
        assert snapshot(store) == before
    else:
        assert store.watch(JOB) == "awaited"
        marked = snapshot(store)
        assert marked[store.keys.job(JOB)].pop("awaited") == "1"
        assert marked == before


def _script_of(verb: str) -> str:
    return SCRIPT_OF_VERB.get(verb, verb)


@pytest.mark.parametrize("verb", BUILT)
def test_a_built_verb_has_a_script_and_a_way_to_run_it_here(verb: str) -> None:
    """What the table calls built is tried above."""
    assert _script_of(verb) in load_scripts()
    assert verb in RUN


def test_a_planned_verb_has_no_script_yet() -> None:
    """A script that appears must take the mark off its rows, and so join the tests above."""
    planned = [_script_of(verb) for verb in PLANNED if _script_of(verb) not in BUILT]
    assert [name for name in planned if (script_folder() / f"{name}.lua").exists()] == []


def test_a_report_that_leaves_a_child_open_does_not_settle(store: Store) -> None:
    """The parent stays parked, and the next report of the same child is ignored."""
    seed(store, JobState.ACTIVE)
    write_children(store, JOB, TOKEN, [CHILD, "other"])
    store.ack_fanned_out(JOB, TOKEN)

    assert _settle(store, Case()) == UNTOUCHED
    assert store.list_child_results(JOB).counts.completed == 1
    before = snapshot(store)
    assert _settle(store, Case(outcome="failed")) == UNTOUCHED
    assert snapshot(store) == before
    assert violations(store) == []


def test_no_row_stands_twice() -> None:
    """Verb, source and condition name one row."""
    found = [(row.verb, row.source, row.target, row.condition) for row in TRANSITIONS]
    assert len(found) == len(set(found))
