"""Families: manifests, reports, owed cancels, and the outbox, without any worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, outcomes, record, take
from servers import Server
from transitions.seed import snapshot

import mq
from mq.clock import FakeClock
from mq.policies import Keep, encode_keep
from mq.states import JobState
from mq.store import Store
from mq.store.families import (
    CHILDREN_PAGE,
    MANIFEST_BATCH,
    REPORT_BATCH,
    ChildCounts,
    ChildReport,
    ChildRow,
    OnChildFailure,
)

AGE_MS = 30_000
PARENT = "parent"
REF = "1\ndefault\nparent\nkey"


def rows(*keys: str) -> list[ChildRow]:
    """Rows as a fan-out would write them; what stands in them is opaque to the store."""
    return [ChildRow(key, b"row of " + key.encode()) for key in keys]


def fan_out(
    store: Store,
    *keys: str,
    mode: OnChildFailure = "continue",
    parent: str = PARENT,
    token: str = TOKEN,
    keep: object = None,
    ref: str = "",
) -> str:
    """Enqueue a parent, claim it, and ack its fan-out."""
    store.enqueue(job(parent, keep=encode_keep(keep), parent=ref))
    assert take(store, token=token) == [parent]
    store.write_manifest(parent, token, rows(*keys), mode)
    return store.ack_fanned_out(parent, token, worker="worker")


def report(key: str, outcome: str = "completed", exit_: bytes | None = b"exit") -> ChildReport:
    """A report to the parent."""
    return ChildReport(PARENT, key, outcome, exit_)


def state(store: Store, job_id: str = PARENT) -> str:
    """Where a job stands."""
    return record(store, job_id).state.value


def counts(store: Store, job_id: str = PARENT) -> ChildCounts:
    """The numbers of a parent, checked against its rows."""
    whole = store.list_child_results(job_id, 500)
    words = [one.outcome for one in whole.items]
    assert whole.counts == ChildCounts(
        len(words), *(words.count(word) for word in ("completed", "failed", "cancelled"))
    )
    return whole.counts


def seen(store: Store, job_id: str = PARENT) -> dict[str, str]:
    """Every child's outcome."""
    return {one.key: one.outcome for one in store.list_child_results(job_id, 500).items}


def owed(store: Store, age_ms: int = AGE_MS) -> list[str]:
    """Keys that a sweep hands out for their cancels."""
    work = store.flow_sweep_work(age_ms)
    assert {one.kind for one in work} <= {"owed", "owed_unstarted"}
    return [one.key for one in work]


def keys_of_flows(store: Store) -> list[str]:
    """Every key of a store that flows make."""
    kinds = ("flow", "children", "rows", "pending", "unstarted", "owed", "outcomes", "results")
    ours = tuple(f"{store.keys.root}{kind}:" for kind in kinds)
    registries = {store.keys.flows(), store.keys.owing()}
    return [key for key in snapshot(store) if key.startswith(ours) or key in registries]


def child(store: Store, job_id: str = "child", token: str = "child-token", **given: object) -> str:
    """Enqueue a job that has a parent, and claim it; returns its token."""
    store.enqueue(job(job_id, name="child", parent=REF, **given))
    assert take(store, names=("child",), token=token) == [job_id]
    return token


def sent(store: Store) -> list[tuple[str, str, bytes | None]]:
    """The outbox as (child, outcome, exit)."""
    return [(one.child, one.outcome, one.exit) for one in store.peek_outbox()]


# The manifest


@pytest.mark.parametrize("number", [1, MANIFEST_BATCH, MANIFEST_BATCH + 1, 350])
def test_a_manifest_is_written_in_steps_and_read_in_byte_order(store: Store, number: int) -> None:
    """However many children there are, whatever order they come in."""
    names = [f"{at:04}" for at in range(number)]
    assert fan_out(store, *reversed(names)) == "fanned_out"
    assert counts(store) == ChildCounts(number, 0, 0, 0)
    assert list(seen(store)) == names
    assert store.get_child_row(PARENT, names[0]) == b"row of 0000"
    assert store.get_child_row(PARENT, "none") is None


@pytest.mark.parametrize("token", ["other", ""])
def test_a_manifest_is_written_under_the_token_alone(store: Store, token: str) -> None:
    """Who lost the parent cannot add to what its successor fans out."""
    store.enqueue(job(PARENT))
    take(store)
    before = snapshot(store)
    with pytest.raises(mq.LockLostError):
        store.write_manifest(PARENT, token, rows("a"), "continue")
    with pytest.raises(mq.JobNotFoundError):
        store.write_manifest("no-such-job", TOKEN, rows("a"), "continue")
    assert snapshot(store) == before


def test_nothing_of_a_manifest_counts_before_the_ack(store: Store, clock: FakeClock) -> None:
    """No child is handed out, counted, or takes a report."""
    store.enqueue(job(PARENT))
    take(store)
    store.write_manifest(PARENT, TOKEN, rows("a", "b"), "continue")
    clock.advance(AGE_MS)
    assert store.next_children(PARENT) == []
    assert store.flow_sweep_work(AGE_MS) == []
    assert store.record_child_results([report("a")]) == [False]
    assert store.list_child_results(PARENT).counts.total == 0


def test_another_token_begins_the_manifest_anew(store: Store, clock: FakeClock) -> None:
    """What a run wrote that was lost is no part of the next one's fan-out."""
    store.enqueue(job(PARENT))
    take(store)
    store.write_manifest(PARENT, TOKEN, rows("old", "both"), "fail")
    clock.advance(LOCK_MS)
    store.stall_sweep(1)
    take(store, token="second")
    store.write_manifest(PARENT, "second", rows("both", "new"), "continue")
    with pytest.raises(mq.LockLostError):
        store.write_manifest(PARENT, TOKEN, rows("late"), "fail")
    assert store.ack_fanned_out(PARENT, "second") == "fanned_out"
    assert list(seen(store)) == ["both", "new"]
    assert [one.key for one in store.next_children(PARENT)] == ["both", "new"]
    assert outcomes(store, PARENT) == ["stalled", "fanned-out"]


def test_a_run_without_children_drops_what_a_lost_run_had_written(
    store: Store, clock: FakeClock
) -> None:
    """It does not park for children that nobody enqueues."""
    store.enqueue(job(PARENT))
    take(store)
    store.write_manifest(PARENT, TOKEN, rows("old"), "fail")
    clock.advance(LOCK_MS)
    store.stall_sweep(1)
    take(store, token="second")
    assert store.ack_fanned_out(PARENT, "second") == "fanned_out"
    assert state(store) == "waiting"
    assert counts(store).total == 0


def test_a_manifest_that_was_never_acked_goes_with_its_job(store: Store) -> None:
    """Nothing is left behind when a fan-out fails between two steps."""
    store.enqueue(job(PARENT))
    take(store)
    store.write_manifest(PARENT, TOKEN, rows("a"), "fail")
    store.ack_failed(PARENT, TOKEN)
    assert store.remove(PARENT)
    assert keys_of_flows(store) == []


# The ack of a fan-out


def test_a_parent_parks_until_its_children_are_reported(store: Store) -> None:
    """The ledger has the phase, the budget is untouched, and nobody can claim or remove it."""
    assert fan_out(store, "a", "b") == "fanned_out"
    parked = record(store, PARENT)
    assert (parked.state, parked.attempts_made) == (JobState.WAITING_CHILDREN, 0)
    assert (parked.flow, parked.token, parked.finished_at) == ("collect", None, None)
    (entry,) = store.get_attempts(PARENT)
    assert (entry.outcome.value, entry.exit, entry.worker_id) == ("fanned-out", None, "worker")
    assert entry.started_at is not None
    assert take(store) == []
    assert not store.remove(PARENT)
    assert store.counts()[JobState.WAITING_CHILDREN] == 1


def test_a_parent_without_children_goes_to_the_back_of_the_line(store: Store) -> None:
    """It collects at once, behind what waits already."""
    store.enqueue(job(PARENT))
    take(store)
    store.enqueue(job("next"))
    store.write_manifest(PARENT, TOKEN, [], "continue")
    assert store.ack_fanned_out(PARENT, TOKEN) == "fanned_out"
    assert (state(store), outcomes(store, PARENT)) == ("waiting", ["fanned-out"])
    assert take(store, limit=2, token="second") == ["next", PARENT]
    assert record(store, PARENT).flow == "collect"


@pytest.mark.parametrize("token", ["other", ""])
def test_a_fan_out_is_acked_by_its_holder_alone(store: Store, token: str) -> None:
    """Anything else changes nothing."""
    store.enqueue(job(PARENT))
    take(store)
    store.write_manifest(PARENT, TOKEN, rows("a"), "fail")
    before = snapshot(store)
    with pytest.raises(mq.LockLostError):
        store.ack_fanned_out(PARENT, token)
    with pytest.raises(mq.JobNotFoundError):
        store.ack_fanned_out("no-such-job", TOKEN)
    assert snapshot(store) == before


def test_a_fan_out_acked_again_changes_nothing(store: Store) -> None:
    """Neither under the landed token nor as a manifest that comes late."""
    fan_out(store, "a")
    before = snapshot(store)
    assert store.ack_fanned_out(PARENT, TOKEN) == "fanned_out"
    assert store.ack_completed(PARENT, TOKEN, b"other") == "fanned_out"
    store.write_manifest(PARENT, TOKEN, rows("late"), "fail")
    assert snapshot(store) == before


def test_a_second_fan_out_is_accepted_and_its_children_are_ignored(store: Store) -> None:
    """The stored number of open rows decides where the parent goes."""
    fan_out(store, "a")
    store.record_child_results([report("a")])
    take(store, token="second")
    store.write_manifest(PARENT, "second", rows("b", "c"), "fail")
    assert store.ack_fanned_out(PARENT, "second") == "fanned_out"
    assert state(store) == "waiting"
    assert seen(store) == {"a": "completed"}
    assert outcomes(store, PARENT) == ["fanned-out", "fanned-out"]


def test_a_cancel_that_beats_a_fan_out_still_stores_the_manifest(store: Store) -> None:
    """Its rows are cancelled and owed, it reports upward once, and counts as an attempt."""
    store.enqueue(job(PARENT, parent="1\ndefault\nabove\nk"))
    take(store)
    store.write_manifest(PARENT, TOKEN, rows("a", "b"), "continue")
    assert store.cancel(PARENT) == "cancel_requested"
    for _ in range(2):
        assert store.ack_fanned_out(PARENT, TOKEN) == "cancelled"
    assert (state(store), outcomes(store, PARENT)) == ("cancelled", ["cancelled"])
    assert record(store, PARENT).attempts_made == 1
    assert counts(store) == ChildCounts(2, 0, 0, 2)
    assert sorted(owed(store)) == ["a", "b"]
    assert sent(store) == [(PARENT, "cancelled", None)]
    assert store.next_children(PARENT) == []


# Starting children


def test_children_are_handed_out_page_by_page(store: Store) -> None:
    """Those that were enqueued are noted with the call for the next page."""
    names = [f"{at:04}" for at in range(CHILDREN_PAGE + 3)]
    fan_out(store, *names)
    first = store.next_children(PARENT)
    assert [row.key for row in first] == names[:CHILDREN_PAGE]
    assert first[0].row == b"row of 0000"
    assert store.next_children(PARENT) == first
    rest = store.next_children(PARENT, [row.key for row in first])
    assert [row.key for row in rest] == names[CHILDREN_PAGE:]
    assert store.next_children(PARENT, [row.key for row in rest]) == []


def test_no_child_is_handed_out_of_a_parent_that_does_not_wait(store: Store) -> None:
    """Of one that was cancelled, one that is not there, one that is no parent."""
    fan_out(store, "a", "b")
    store.cancel(PARENT)
    store.enqueue(job("plain"))
    assert [store.next_children(one) for one in (PARENT, "none", "plain")] == [[], [], []]


# Reports


def test_the_last_report_sends_the_parent_to_the_back_of_the_line(store: Store) -> None:
    """Not one before it."""
    fan_out(store, "a", "b", "c")
    store.enqueue(job("next"))
    assert store.record_child_results([report("b", "failed"), report("a")]) == [True, True]
    assert state(store) == "waiting-children"
    assert counts(store) == ChildCounts(3, 1, 1, 0)
    assert store.record_child_results([report("c", "cancelled", None)]) == [True]
    assert counts(store) == ChildCounts(3, 1, 1, 1)
    assert record(store, PARENT).attempts_made == 0
    assert take(store, limit=2, token="second") == ["next", PARENT]


def test_a_childs_first_report_stands(store: Store) -> None:
    """A second one, in the same call or later, one of a stranger and one too late do nothing."""
    fan_out(store, "a", "b")
    assert store.record_child_results([report("a"), report("a", "failed", b"x")]) == [True, False]
    assert store.record_child_results([report("a", "failed", b"x"), report("?")]) == [False, False]
    assert store.record_child_results([ChildReport("no-such-job", "a", "completed")]) == [False]
    store.enqueue(job("plain"))
    assert store.record_child_results([ChildReport("plain", "a", "completed")]) == [False]
    # A child of another job that had the parent's id says nothing to this one.
    born = record(store, PARENT).enqueued_at
    for other in (born - 1, born + 1, 10 * born + 1):
        late = attrs.evolve(report("b"), born=other)
        assert store.record_child_results([late]) == [False]
    assert seen(store) == {"a": "completed", "b": "pending"}
    store.cancel(PARENT)
    assert store.record_child_results([attrs.evolve(report("b"), born=born)]) == [False]
    assert seen(store) == {"a": "completed", "b": "cancelled"}


@pytest.mark.parametrize("exit_", [None, b"", b"\x00\xff", b"x" * 100_000])
def test_an_exit_comes_as_it_was_reported(store: Store, exit_: bytes | None) -> None:
    """None is no exit, empty bytes are a value."""
    fan_out(store, "a")
    store.record_child_results([report("a", exit_=exit_)])
    assert store.list_child_results(PARENT).items[0].exit == exit_


def test_many_reports_settle_each_parent_once(store: Store) -> None:
    """Rows of a call are written first, in calls of any number of reports."""
    names = [f"{at:03}" for at in range(REPORT_BATCH + 10)]
    for parent in ("p1", "p2"):
        fan_out(store, *names, parent=parent)
    reports = [ChildReport(parent, key, "completed") for key in names for parent in ("p1", "p2")]
    assert store.record_child_results(reports) == [True] * len(reports)
    assert store.record_child_results(reports) == [False] * len(reports)
    assert store.get_states(["p1", "p2"]) == [JobState.WAITING] * 2
    assert outcomes(store, "p1") == ["fanned-out"]
    assert take(store, limit=3, token="second") == ["p1", "p2"]


def test_a_settled_parent_wakes_a_worker(store: Store) -> None:
    """The marker of its queue and name is there."""
    fan_out(store, "a")
    store.waiter(100).wait([store.keys.wake(QUEUE, NAME)], 1)
    store.record_child_results([report("a")])
    assert store.wait([QUEUE], [NAME], 1_000)


@pytest.mark.parametrize("order", [("bad", "good"), ("good", "bad")])
def test_the_first_failure_fails_the_parent_and_wins_ties(
    store: Store, order: Sequence[str]
) -> None:
    """Also when the same call brings the last result: no exit, and the reason names the child."""
    fan_out(store, "bad", "good", mode="fail")
    words = {"bad": "failed", "good": "completed"}
    store.record_child_results([report(key, words[key]) for key in order])
    failed = record(store, PARENT)
    assert (failed.state, failed.exit) == (JobState.FAILED, None)
    assert failed.failed_reason == "child bad failed"
    assert (failed.attempts_made, outcomes(store, PARENT)) == (0, ["fanned-out", "failed"])
    entry = store.get_attempts(PARENT)[-1]
    assert (entry.started_at, entry.exit, entry.worker_id) == (None, None, None)
    assert counts(store) == ChildCounts(2, 1, 1, 0)
    assert owed(store) == []


def test_the_first_of_two_failures_in_one_call_is_named(store: Store) -> None:
    """Whichever key comes first in the bytes."""
    fan_out(store, "a", "b", "c", mode="fail")
    store.record_child_results([report("b", "failed"), report("a", "failed")])
    assert record(store, PARENT).failed_reason == "child b failed"
    assert counts(store) == ChildCounts(3, 0, 2, 1)


def test_a_child_that_was_reported_is_not_handed_out_any_more(store: Store) -> None:
    """Also when nobody has noted that it was enqueued."""
    fan_out(store, "a", "b")
    store.record_child_results([report("a")])
    assert [one.key for one in store.next_children(PARENT)] == ["b"]


def test_a_failure_cancels_the_others_at_once(store: Store) -> None:
    """They read as cancelled, whatever is reported later, and their cancels are owed."""
    fan_out(store, "a", "b", "c", mode="fail")
    store.record_child_results([report("a")])
    store.record_child_results([report("b", "failed")])
    assert state(store) == "failed"
    assert seen(store) == {"a": "completed", "b": "failed", "c": "cancelled"}
    assert store.record_child_results([report("c")]) == [False]
    assert counts(store) == ChildCounts(3, 1, 1, 1)
    assert owed(store) == ["c"]


def test_a_cancelled_child_never_fails_its_parent(store: Store) -> None:
    """It is one of those that did not complete."""
    fan_out(store, "a", "b", mode="fail")
    store.record_child_results([report("a", "cancelled", None), report("b")])
    assert (state(store), counts(store)) == ("waiting", ChildCounts(2, 1, 0, 1))


def test_failures_do_not_matter_in_the_other_mode(store: Store) -> None:
    """The parent collects them."""
    fan_out(store, "a", "b")
    store.record_child_results([report("a", "failed"), report("b", "failed")])
    assert (state(store), counts(store)) == ("waiting", ChildCounts(2, 0, 2, 0))


@pytest.mark.parametrize("key", ["k" * 256, "é" * 128, "x" + "é" * 100, "\U0001f600" * 60])
def test_a_reason_with_a_long_key_stays_readable(store: Store, key: str) -> None:
    """It names the beginning of the key, no character cut in two."""
    fan_out(store, key, mode="fail")
    store.record_child_results([report(key, "failed")])
    reason = record(store, PARENT).failed_reason
    assert reason is not None
    named = reason.removeprefix("child ").removesuffix(" failed")
    assert key.startswith(named)
    assert 36 < len(named.encode()) <= 40


# Cancelling and settling


def test_a_cancelled_parent_cancels_all_open_rows_in_one_step(store: Store) -> None:
    """However many there are; rows, numbers and late reports say the same at once."""
    names = [f"{at:04}" for at in range(400)]
    fan_out(store, *names)
    store.record_child_results([report("0000"), report("0001", "failed")])
    assert store.cancel(PARENT) == "cancelled"
    assert outcomes(store, PARENT) == ["fanned-out", "cancelled"]
    assert counts(store) == ChildCounts(400, 1, 1, 398)
    assert store.record_child_results([report(key) for key in names]) == [False] * 400
    assert counts(store) == ChildCounts(400, 1, 1, 398)


def test_numbers_add_up_while_cancels_are_delivered(store: Store, clock: FakeClock) -> None:
    """Each is delivered once; one that is not owed is ignored."""
    names = [f"{at:03}" for at in range(120)]
    fan_out(store, *names)
    store.cancel(PARENT)
    delivered = 0
    while keys := owed(store):
        for _ in range(2):
            store.mark_children_delivered(PARENT, [*keys, "?"])
        delivered += len(keys)
        assert counts(store) == ChildCounts(120, 0, 0, 120)
    assert delivered == 120
    clock.advance(AGE_MS)
    assert owed(store) == []
    before = snapshot(store)
    store.mark_children_delivered("no-such-job", ["a"])
    assert snapshot(store) == before


def test_a_retried_parent_keeps_its_manifest_and_collects(store: Store) -> None:
    """With the rows as they were when it failed; its ledger goes on."""
    fan_out(store, "a", "b", "c", mode="fail")
    store.record_child_results([report("a"), report("b", "failed")])
    store.retry(PARENT)
    assert record(store, PARENT).failed_reason is None
    assert take(store, token="second") == [PARENT]
    assert record(store, PARENT).flow == "collect"
    assert counts(store) == ChildCounts(3, 1, 1, 1)
    assert owed(store) == ["c"]
    store.ack_completed(PARENT, "second", b"result")
    assert outcomes(store, PARENT) == ["fanned-out", "failed", "completed"]
    assert (record(store, PARENT).attempts_made, record(store, PARENT).exit) == (1, b"result")


@pytest.mark.parametrize("end", ["completed", "cancelled", "failed"])
def test_a_removed_parent_leaves_nothing_behind(store: Store, end: str) -> None:
    """Whether it has collected or still owes cancels."""
    fan_out(store, "a", "b", mode="fail")
    if end == "completed":
        store.record_child_results([report("a"), report("b")])
        take(store, token="second")
        store.ack_completed(PARENT, "second")
    elif end == "cancelled":
        store.record_child_results([report("a")])
        store.cancel(PARENT)
    else:
        store.record_child_results([report("a", "failed")])
    assert store.remove(PARENT)
    assert keys_of_flows(store) == []
    assert store.flow_sweep_work(AGE_MS) == []
    assert store.record_child_results([report("b")]) == [False]
    assert store.list_child_results(PARENT).counts == ChildCounts(0, 0, 0, 0)


@pytest.mark.parametrize("keep", [Keep(count=0), Keep(age=0), Keep(age="1h")])
def test_a_parent_is_not_pruned_while_it_owes_cancels(
    server: Server, clock: FakeClock, keep: Keep
) -> None:
    """By no policy and no ceiling; once they are delivered it goes."""
    store = Store(server.url, clock=clock, history_ttl="2h")
    fan_out(store, "a", "b", keep=keep)
    store.cancel(PARENT)
    clock.advance(3 * 3_600_000)
    assert store.prune() == 0
    assert state(store) == "cancelled"
    store.mark_children_delivered(PARENT, owed(store))
    store.prune()
    assert store.get_job(PARENT) is None
    assert keys_of_flows(store) == []
    store.close()


def test_a_pruned_parent_takes_its_rows_along(store: Store) -> None:
    """In its own ack, when it is to be gone at once."""
    fan_out(store, "a", keep=Keep(count=0))
    store.record_child_results([report("a")])
    take(store, token="second")
    store.ack_completed(PARENT, "second")
    assert store.get_job(PARENT) is None
    assert keys_of_flows(store) == []


def test_ids_with_odd_names_do_not_meet(store: Store) -> None:
    """A parent whose id looks like a key of another one's flow."""
    ids = [PARENT, "parent:children", "parent:pending", "flow:parent", "children:parent"]
    for at, parent in enumerate(ids):
        fan_out(store, f"key-{at}", parent=parent)
    for at, parent in enumerate(ids):
        assert seen(store, parent) == {f"key-{at}": "pending"}


# Pages


def test_children_are_paged_in_byte_order(store: Store) -> None:
    """A cursor is the last key of a page; there is none when nothing follows."""
    names = sorted(["a", "B", "aa", "é", "z", "-", "10", "9"], key=str.encode)
    fan_out(store, *names)
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = store.list_child_results(PARENT, 3, cursor)
        found += (one.key for one in page.items)
        assert page.counts.total == 8
        cursor = page.cursor
        if cursor is None:
            break
    assert found == names
    assert store.list_child_results(PARENT, 8).cursor is None
    assert store.list_child_results(PARENT, 0).items == []


@pytest.mark.parametrize("limit", [-1, 501, True])
def test_a_page_has_a_size_that_can_be(store: Store, limit: int) -> None:
    """Refused before the store is asked."""
    with pytest.raises((ValueError, TypeError), match="limit"):
        store.list_child_results(PARENT, limit)


# The sweep


def test_a_row_waits_a_full_age_before_and_after_it_is_handed_out(
    store: Store, clock: FakeClock
) -> None:
    """Exactly the age counts as over."""
    fan_out(store, "a", "b")
    store.next_children(PARENT, ["a"], limit=0)
    clock.advance(AGE_MS - 1)
    assert store.flow_sweep_work(AGE_MS) == []
    clock.advance(1)
    work = store.flow_sweep_work(AGE_MS)
    assert [(one.parent, one.key, one.kind, one.row) for one in work] == [
        (PARENT, "a", "started", b"row of a"),
        (PARENT, "b", "unstarted", b"row of b"),
    ]
    clock.advance(AGE_MS - 1)
    assert store.flow_sweep_work(AGE_MS) == []
    clock.advance(1)
    assert len(store.flow_sweep_work(AGE_MS)) == 2


def test_the_work_of_the_sweep_rotates(store: Store, clock: FakeClock) -> None:
    """Of many parents with many rows each row is handed out once an age, in bounded calls."""
    for at in range(30):
        fan_out(store, *(f"{key}" for key in range(3)), parent=f"p{at}")
    clock.advance(AGE_MS)
    handed: list[tuple[str, str]] = []
    while work := store.flow_sweep_work(AGE_MS, 20):
        assert len(work) <= 20
        handed += ((one.parent, one.key) for one in work)
    assert len(handed) == len(set(handed)) == 90


def test_one_row_of_each_of_many_parents_is_found_in_one_call(
    store: Store, clock: FakeClock
) -> None:
    """A limit is one of rows, not of parents."""
    for at in range(40):
        fan_out(store, "only", parent=f"p{at}")
    clock.advance(AGE_MS)
    assert len(store.flow_sweep_work(AGE_MS, 40)) == 40


def test_owed_cancels_come_first_and_at_once(store: Store, clock: FakeClock) -> None:
    """They wait no age before, and a full one after they were handed out."""
    fan_out(store, "old", parent="other")
    fan_out(store, "a", "b")
    clock.advance(AGE_MS)
    store.cancel(PARENT)
    first = store.flow_sweep_work(AGE_MS, 2)
    assert [one.key for one in first] == ["a", "b"]
    assert [one.kind for one in store.flow_sweep_work(AGE_MS)] == ["unstarted"]
    clock.advance(AGE_MS)
    assert [one.kind for one in store.flow_sweep_work(AGE_MS)] == ["owed", "owed", "unstarted"]


def test_a_cancel_is_owed_twice_where_the_child_may_be_on_its_way(
    store: Store, clock: FakeClock
) -> None:
    """A row that nobody has noted as started says so once, and not when its cancel is delivered."""
    fan_out(store, "noted", "unsure", "well")
    store.next_children(PARENT, ["noted"], limit=0)
    store.cancel(PARENT)
    assert {one.key: one.kind for one in store.flow_sweep_work(AGE_MS, 2)} == {
        "noted": "owed",
        "unsure": "owed_unstarted",
    }
    store.mark_children_delivered(PARENT, ["well"])
    clock.advance(AGE_MS)
    assert {one.key: one.kind for one in store.flow_sweep_work(AGE_MS)} == {
        "noted": "owed",
        "unsure": "owed",
    }
    store.mark_children_delivered(PARENT, ["noted", "unsure"])
    assert store.keys.unstarted(PARENT) not in snapshot(store)


def test_no_child_is_on_its_way_of_a_fan_out_that_a_cancel_beats(store: Store) -> None:
    """Its rows were handed to nobody."""
    store.enqueue(job(PARENT))
    take(store)
    store.write_manifest(PARENT, TOKEN, rows("a"), "continue")
    store.cancel(PARENT)
    assert store.ack_fanned_out(PARENT, TOKEN) == "cancelled"
    assert [one.kind for one in store.flow_sweep_work(AGE_MS)] == ["owed"]


def test_a_settled_parent_needs_no_look(store: Store, clock: FakeClock) -> None:
    """Nor one whose children are all delivered."""
    fan_out(store, "a")
    store.record_child_results([report("a")])
    clock.advance(10 * AGE_MS)
    assert store.flow_sweep_work(AGE_MS) == []
    registries = {store.keys.flows(), store.keys.owing()}
    assert registries & set(snapshot(store)) == set()


# The outbox

ENDS: dict[str, tuple[Callable[[Store, FakeClock, str], object], str, bytes | None]] = {
    "ack_completed": (lambda s, _, t: s.ack_completed("child", t, b"v"), "completed", b"v"),
    "ack_completed with a long exit": (
        lambda s, _, t: s.ack_completed("child", t, b"v" * 500),
        "completed",
        b"v" * 500,
    ),
    "ack_completed with an empty exit": (
        lambda s, _, t: s.ack_completed("child", t, b""),
        "completed",
        b"",
    ),
    "ack_failed": (lambda s, _, t: s.ack_failed("child", t, b"e"), "failed", b"e"),
    "ack_cancelled": (lambda s, _, t: s.ack_cancelled("child", t), "cancelled", None),
    "a retry that a cancel beats": (
        lambda s, _, t: (s.cancel("child"), s.ack_retried("child", t, 0, b"e")),
        "cancelled",
        None,
    ),
    "a release that a cancel beats": (
        lambda s, _, t: (s.cancel("child"), s.release("child", t)),
        "cancelled",
        None,
    ),
    "a stall that a cancel beats": (
        lambda s, c, _: (s.cancel("child"), c.advance(LOCK_MS), s.stall_sweep(1)),
        "cancelled",
        None,
    ),
    "the stall limit": (lambda s, c, _: (c.advance(LOCK_MS), s.stall_sweep(0)), "failed", None),
    "a direct cancel": (
        lambda s, _, t: (s.release("child", t), s.cancel("child")),
        "cancelled",
        None,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_every_end_of_a_child_is_reported_once(store: Store, clock: FakeClock, end: str) -> None:
    """In the same script, whichever transition it is."""
    act, outcome, exit_ = ENDS[end]
    token = child(store)
    assert sent(store) == []
    act(store, clock, token)
    assert record(store, "child").state.value == outcome
    assert sent(store) == [("child", outcome, exit_)]
    (entry,) = store.peek_outbox()
    assert entry.parent == REF
    assert entry.reason == ("stalls: 1, allowed: 0" if end == "the stall limit" else "")


def test_a_key_that_is_cancelled_reports_its_child(store: Store) -> None:
    """Whoever asks for the cancel."""
    store.enqueue(job("child", parent=REF, dedupe=mq.Dedupe("key")))
    assert store.cancel_by_key(NAME, "key")
    assert sent(store) == [("child", "cancelled", None)]


def test_what_does_not_finish_a_child_reports_nothing(store: Store, clock: FakeClock) -> None:
    """Nor does its removal, nor parking, nor the end of a job without a parent."""
    token = child(store)
    store.ack_retried("child", token, 0, b"e")
    assert take(store, names=("child",), token="second") == ["child"]
    store.release("child", "second")
    assert take(store, names=("child",), token="third") == ["child"]
    clock.advance(LOCK_MS)
    store.stall_sweep(5)
    assert store.remove("child")
    fan_out(store, "a", ref=REF)
    store.enqueue(job("plain"))
    take(store, token="plain")
    store.ack_completed("plain", "plain", b"v")
    assert sent(store) == []


def test_the_settle_of_a_nested_parent_is_reported(store: Store) -> None:
    """With no exit, and no second time when it is reported again."""
    fan_out(store, "a", mode="fail", ref=REF)
    for _ in range(2):
        store.record_child_results([report("a", "failed")])
    assert sent(store) == [(PARENT, "failed", None)]
    assert store.peek_outbox()[0].reason == "child a failed"


def test_a_child_that_is_retried_by_hand_reports_again(store: Store) -> None:
    """Its parent ignores the second one."""
    store.ack_failed("child", child(store), b"e")
    store.retry("child")
    take(store, names=("child",), token="second")
    store.ack_completed("child", "second", b"v")
    assert [outcome for _, outcome, _ in sent(store)] == ["failed", "completed"]


def test_a_child_that_is_gone_in_its_own_ack_leaves_its_report(store: Store) -> None:
    """Retention takes the job, not what its parent waits for."""
    token = child(store, keep=encode_keep(Keep(count=0)))
    store.ack_completed("child", token, b"v")
    assert store.get_job("child") is None
    assert sent(store) == [("child", "completed", b"v")]


def test_the_outbox_is_one_line_that_looking_does_not_consume(store: Store) -> None:
    """Oldest first, in pages; `after` may be gone, and unknown ids do nothing."""
    names = [f"c{at}" for at in (3, 1, 2, 0, 4)]
    for name in names:
        store.enqueue(job(name, name="child", parent=REF))
        store.cancel(name)
    first = store.peek_outbox(2)
    assert [one.child for one in first] == names[:2]
    assert [one.child for one in store.peek_outbox(2, after=first[0].id)] == names[1:3]
    assert store.peek_outbox(2) == first
    for _ in range(2):
        store.delete_outbox([first[0].id, first[1].id, "999999", "no-number"])
    rest = store.peek_outbox(after=first[1].id)
    assert [one.child for one in rest] == names[2:]
    assert store.peek_outbox() == rest
    store.delete_outbox([one.id for one in rest])
    assert store.peek_outbox() == []
    reports = store.keys.report("")
    assert [key for key in snapshot(store) if key.startswith(reports)] == []
