"""Retention: finished jobs go by their own policy, by the ceiling of the store, or at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, take
from servers import Server
from transitions.invariants import violations
from transitions.seed import snapshot

import mq
from mq.clock import FakeClock
from mq.policies import Dedupe, Keep, encode_keep
from mq.records import Ack
from mq.states import JobState
from mq.store import PRUNE_BATCH, Store
from mq.store.families import ChildReport, ChildRow

HOUR_MS = 3_600_000


def finish(store: Store, job_id: str, keep: object = None, verb: str = "ack_completed") -> None:
    """Run one job to its end."""
    store.enqueue(job(job_id, keep=encode_keep(keep)))
    assert take(store) == [job_id]
    store.exchange([(verb, Ack(job_id, TOKEN, b"exit"))], None)


def ids(store: Store, *states: str) -> list[str]:
    """Finished jobs, oldest first."""
    asked = states or ("completed", "failed", "cancelled")
    page = store.list(states=asked, order_by="finished_at", order="asc", limit=500)
    return [one.id for one in page.items]


def test_nothing_goes_by_default(store: Store, clock: FakeClock) -> None:
    """However long ago it ended."""
    finish(store, "a")
    clock.advance(1000 * HOUR_MS)
    assert store.prune() == 0
    assert ids(store) == ["a"]


def test_a_count_keeps_the_newest_of_its_queue_name_and_state(
    store: Store, clock: FakeClock
) -> None:
    """Others are untouched."""
    store.enqueue(job("other", name="other"))
    take(store, names=("other",))
    store.ack_completed("other", TOKEN)
    finish(store, "failed", verb="ack_failed")
    for at in range(5):
        clock.advance(1)
        finish(store, f"j{at}", Keep(count=2))
    assert ids(store, "completed") == ["other", "j3", "j4"]
    assert ids(store, "failed") == ["failed"]
    assert violations(store) == []


def test_ties_of_a_count_go_by_place_in_line(store: Store) -> None:
    """Not by the bytes of the id."""
    for job_id in ("z", "m", "a", "k"):
        finish(store, job_id, Keep(count=2))
    assert sorted(ids(store)) == ["a", "k"]


def test_the_newest_are_those_that_ended_last_then_those_last_in_line(
    store: Store, clock: FakeClock
) -> None:
    """Wherever the cut falls; what ended late is newer than all that are behind it in line."""
    line = ["y", "c", "x", "a", "w", "b"]
    store.enqueue_many(job(one) for one in line)
    assert take(store, len(line)) == line
    for together in (("b", "w", "a"), ("x", "c", "y")):
        clock.advance(1)
        for job_id in together:
            store.ack_completed(job_id, TOKEN)
    oldest_first = ["a", "w", "b", "y", "c", "x"]
    for others in range(5, -1, -1):
        finish(store, "last", Keep(count=others + 1))
        assert store.remove("last")
        assert set(ids(store)) == set(oldest_first[len(line) - others :])
    assert violations(store) == []


@pytest.mark.parametrize("keep", [Keep(count=0), Keep(age=0), Keep(count=5, age=0)])
def test_zero_removes_the_job_in_its_own_ack(store: Store, keep: Keep) -> None:
    """Nothing of it stays."""
    finish(store, "a", keep)
    assert store.get_job("a") is None
    assert violations(store) == []


def test_an_age_is_over_when_it_is_reached(store: Store, clock: FakeClock) -> None:
    """One millisecond before it is not; a name that went quiet is pruned all the same."""
    finish(store, "a", Keep(age="1h"))
    clock.advance(HOUR_MS - 1)
    assert store.prune() == 0
    clock.advance(1)
    assert store.prune() == 1
    assert ids(store) == []


def test_a_policy_may_be_split_by_state(store: Store) -> None:
    """A state that it does not name is kept."""
    keep = {"completed": Keep(count=0), "failed": Keep(count=1)}
    finish(store, "c", keep)
    for job_id in ("f1", "f2"):
        finish(store, job_id, keep, "ack_failed")
    finish(store, "x", keep, "ack_cancelled")
    assert sorted(ids(store)) == ["f2", "x"]


def test_the_stricter_of_ceiling_and_policy_wins(server: Server, clock: FakeClock) -> None:
    """For each record by itself."""
    store = Store(server.url, clock=clock, history_ttl={"completed": "1h", "failed": "2h"})
    finish(store, "long", Keep(age="9h"))
    finish(store, "short", Keep(age="1m"))
    finish(store, "none")
    finish(store, "failed", verb="ack_failed")
    finish(store, "cancelled", verb="ack_cancelled")
    clock.advance(60_000)
    store.prune()
    assert sorted(ids(store)) == ["cancelled", "failed", "long", "none"]
    clock.advance(HOUR_MS)
    store.prune()
    assert sorted(ids(store)) == ["cancelled", "failed"]
    clock.advance(HOUR_MS)
    store.prune()
    assert ids(store) == ["cancelled"]
    store.close()


@pytest.mark.parametrize("ttl", [0, "0s", 60, "1m", timedelta(minutes=1)])
def test_one_ceiling_is_for_every_state(server: Server, clock: FakeClock, ttl: Any) -> None:
    """0 is a ceiling like any other: what has finished goes in the next round of pruning."""
    store = Store(server.url, clock=clock, history_ttl=ttl)
    for verb in ("ack_completed", "ack_failed", "ack_cancelled"):
        finish(store, verb, verb=verb)
    store.enqueue(job("waiting"))
    if ttl not in (0, "0s"):
        clock.advance(59_999)
        assert store.prune() == 0
        clock.advance(1)
    assert store.prune() == 3
    assert store.counts()[JobState.WAITING] == 1
    assert violations(store) == []
    store.close()


@pytest.mark.parametrize(
    ("ttl", "said"),
    [
        ({}, "history_ttl is empty: use completed, failed, cancelled"),
        ({"done": "1h"}, "history_ttl names 'done': use completed, failed, cancelled"),
        ({"waiting": "1h"}, "history_ttl names 'waiting'"),
        ({JobState.FAILED: "1h", "*": "1h"}, "history_ttl names '*'"),
        ({None: "1h"}, "history_ttl names None"),
        ({"completed": "soon"}, "history_ttl completed: cannot read 'soon' as a duration"),
        ({"completed": None}, "history_ttl completed must be a duration, got NoneType"),
        ({"failed": {}}, "history_ttl failed must be a duration, got dict"),
        ("", "history_ttl completed: cannot read '' as a duration"),
        ("1 fortnight", "history_ttl completed: cannot read '1 fortnight'"),
        ("-1h", "must not be negative"),
        (-1, "must not be negative"),
        (-0.0001, "must not be negative"),
        (timedelta(days=-1), "must not be negative"),
        (float("nan"), "must be finite"),
        (float("inf"), "must be finite"),
        ("101 years", "history_ttl completed: cannot read '101 years'"),
        (10**12, "must be at most 100 years"),
        (True, "must be a duration, got True"),
        ({"cancelled": False}, "history_ttl cancelled must be a duration, got False"),
        (["1h"], "must be a duration, got list"),
        (b"1h", "must be a duration, got bytes"),
        (Keep(age="1h"), "must be a duration, got Keep"),
    ],
    ids=repr,
)
def test_a_ceiling_that_means_nothing_is_refused(ttl: Any, said: str) -> None:
    """Where it is written, of a store and of an app, in one line that names the option."""
    for make in (Store, mq.App):
        with pytest.raises((ValueError, TypeError), match="history_ttl") as caught:
            make("memory://", history_ttl=ttl)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


# In the script that finishes a job


def _by_ack(verb: str, *, cancelled: bool = False) -> Callable[[Store, FakeClock, Any], None]:
    def end(store: Store, clock: FakeClock, request: Any) -> None:
        store.enqueue(request)
        assert take(store) == [request.id]
        if cancelled:
            store.cancel(request.id)
        store.exchange([(verb, Ack(request.id, TOKEN, b"exit"))], None)

    return end


def _by_stall(*, cancelled: bool = False) -> Callable[[Store, FakeClock, Any], None]:
    def end(store: Store, clock: FakeClock, request: Any) -> None:
        store.enqueue(request)
        assert take(store) == [request.id]
        if cancelled:
            store.cancel(request.id)
        clock.advance(LOCK_MS)
        assert len(store.stall_sweep(0)) == 1

    return end


def _by_cancel(
    cancel: Callable[[Store, str], object], **given: Any
) -> Callable[[Store, FakeClock, Any], None]:
    def end(store: Store, clock: FakeClock, request: Any) -> None:
        store.enqueue(attrs.evolve(request, **given))
        cancel(store, request.id)

    return end


def _park(store: Store, job_id: str) -> None:
    assert take(store) == [job_id]
    store.write_manifest(job_id, TOKEN, [ChildRow("a", b"row")], "fail")
    store.ack_fanned_out(job_id, TOKEN)


def _settled_as_failed(store: Store, clock: FakeClock, request: Any) -> None:
    store.enqueue(request)
    _park(store, request.id)
    store.record_child_results([ChildReport(request.id, "a", "failed")])


def _parked_and_cancelled(store: Store, clock: FakeClock, request: Any) -> None:
    store.enqueue(request)
    _park(store, request.id)
    store.cancel(request.id)
    store.mark_children_delivered(request.id, ["a"])


def _cancelled_while_fanning_out(store: Store, clock: FakeClock, request: Any) -> None:
    store.enqueue(request)
    assert take(store) == [request.id]
    store.write_manifest(request.id, TOKEN, [], "fail")
    store.cancel(request.id)
    assert store.ack_fanned_out(request.id, TOKEN) == "cancelled"


def _replaced_and_cancelled(store: Store, clock: FakeClock, request: Any) -> None:
    key = Dedupe("key", replace=True)
    store.enqueue(attrs.evolve(request, keep=encode_keep(Keep(count=99)), dedupe=key, delay_ms=50))
    replacing = attrs.evolve(request, id=None, dedupe=key, delay_ms=60)
    assert store.enqueue(replacing).id == request.id
    store.cancel_by_key(NAME, "key")


def _retried_then_failed(store: Store, clock: FakeClock, request: Any) -> None:
    store.enqueue(request)
    assert take(store) == [request.id]
    store.ack_retried(request.id, TOKEN, 0)
    assert take(store, token="second") == [request.id]
    store.ack_failed(request.id, "second")


ENDS: dict[str, Callable[[Store, FakeClock, Any], None]] = {
    "ack_completed": _by_ack("ack_completed"),
    "ack_failed": _by_ack("ack_failed"),
    "ack_failed of a second run": _retried_then_failed,
    "ack_cancelled": _by_ack("ack_cancelled", cancelled=True),
    "ack_retried with a cancel pending": _by_ack("ack_retried", cancelled=True),
    "release with a cancel pending": _by_ack("release", cancelled=True),
    "ack_fanned_out with a cancel pending": _cancelled_while_fanning_out,
    "stalled too often": _by_stall(),
    "stalled with a cancel pending": _by_stall(cancelled=True),
    "cancel of a waiting job": _by_cancel(lambda s, one: s.cancel(one)),
    "cancel of a delayed job": _by_cancel(lambda s, one: s.cancel(one), delay_ms=50),
    "cancel of many": _by_cancel(lambda s, one: s.cancel_where(queue=QUEUE)),
    "cancel of a parked parent": _parked_and_cancelled,
    "cancel of a job that was replaced": _replaced_and_cancelled,
    "settled as failed": _settled_as_failed,
}
"""Every way into a finished state."""


@pytest.mark.parametrize("end", ENDS)
def test_whatever_finishes_a_job_applies_its_policy(
    store: Store, clock: FakeClock, end: str
) -> None:
    """In its own step: peers that are too many or too old go, and the job where none stay."""
    bystanders = [job("other-queue", queue="other"), job("other-name", name="other")]
    store.enqueue_many(bystanders)
    assert len(take(store, 2, names=(NAME, "other"), queues=(QUEUE, "other"))) == 2
    for one in bystanders:
        store.ack_completed(str(one.id), TOKEN)

    def finish_one(job_id: str, keep: Keep | None) -> list[str]:
        ENDS[end](store, clock, job(job_id, keep=encode_keep(keep)))
        assert store.get_job("other-queue"), "it is of another queue"
        assert store.get_job("other-name"), "it has another name"
        page = store.list(queue=QUEUE, name=NAME, order_by="finished_at", order="asc",
                          states=["completed", "failed", "cancelled"])  # fmt: skip
        assert violations(store) == []
        return [one.id for one in page.items]

    for at in range(3):
        assert finish_one(f"z{at}", None)[-1] == f"z{at}"
        clock.advance(1)
    assert finish_one("by-count", Keep(count=2)) == ["z2", "by-count"]
    clock.advance(2 * HOUR_MS)
    assert finish_one("by-age", Keep(age="1h")) == ["by-age"]
    if end not in {"cancel of a parked parent"}:
        assert finish_one("none", Keep(count=0)) == []
        assert finish_one("none", Keep(age=0)) == []


def test_either_rule_removes_a_job(store: Store, clock: FakeClock) -> None:
    """One too many goes at once, the others with time."""
    keep = Keep(count=2, age="1h")
    for at in range(3):
        clock.advance(1)
        finish(store, f"j{at}", keep)
    assert ids(store) == ["j1", "j2"]
    clock.advance(HOUR_MS - 1)
    store.prune()
    assert ids(store) == ["j2"]
    clock.advance(1)
    store.prune()
    assert ids(store) == []


def test_a_peer_that_is_exactly_as_old_as_the_age_goes_with_the_next_end(
    store: Store, clock: FakeClock
) -> None:
    """By the policy of the job that ends, whatever the peer's own."""
    finish(store, "old", Keep(age="9h"))
    clock.advance(1)
    finish(store, "younger")
    clock.advance(HOUR_MS - 1)
    finish(store, "now", Keep(age="1h"))
    assert ids(store) == ["younger", "now"]


def test_one_call_removes_a_bounded_number_whatever_it_finishes(store: Store) -> None:
    """So many, and one for each job that it ends; the pruner does the rest."""
    old = [f"old{at:03}" for at in range(300)]
    store.enqueue_many(job(one) for one in old)
    for _ in range(3):
        batch = take(store, 100)
        store.exchange([("ack_completed", Ack(one, TOKEN)) for one in batch], None)
    ending = [f"new{at}" for at in range(20)]
    store.enqueue_many(job(one, keep=encode_keep(Keep(count=5))) for one in ending)
    assert take(store, 20) == ending
    store.exchange([("ack_completed", Ack(one, TOKEN)) for one in ending], None)
    assert store.counts()[JobState.COMPLETED] == 300 + 20 - (PRUNE_BATCH + 20)
    while store.prune():
        pass
    assert sorted(ids(store)) == sorted(ending[-5:])
    assert violations(store) == []


def test_jobs_that_end_together_apply_the_strictest_of_their_policies(store: Store) -> None:
    """Each of them applies its own, and all of them are there by then."""
    policies = [Keep(count=9), Keep(count=2), None, Keep(count=9)]
    store.enqueue_many(job(f"j{at}", keep=encode_keep(keep)) for at, keep in enumerate(policies))
    taken = take(store, 4)
    store.exchange([("ack_completed", Ack(one, TOKEN)) for one in taken], None)
    assert sorted(ids(store)) == ["j2", "j3"]


def test_a_set_that_is_full_stays_as_it_is_under_load(store: Store) -> None:
    """Every end removes one, so that nothing is left to the pruner."""
    for at in range(4):
        store.enqueue_many(job(f"{at}-{n}", keep=encode_keep(Keep(count=7))) for n in range(100))
        store.exchange([("ack_completed", Ack(one, TOKEN)) for one in take(store, 100)], None)
        assert store.counts()[JobState.COMPLETED] == 7
    assert store.prune() == 0
    assert violations(store) == []


@pytest.mark.parametrize("keep", [Keep(count=0), Keep(age=0), Keep(age="1h"), Keep(count=1)])
def test_parents_that_owe_cancels_hold_up_no_other(
    store: Store, clock: FakeClock, keep: Keep
) -> None:
    """However many stand at the old end, jobs behind them go; they go when they owe no more."""
    owing = [f"p{at:02}" for at in range(PRUNE_BATCH + 10)]
    for parent in owing:
        store.enqueue(job(parent, keep=encode_keep(keep)))
        _park(store, parent)
        store.cancel(parent)
    plain = [f"x{at}" for at in range(5)]
    for one in plain:
        clock.advance(1)
        store.enqueue(job(one, keep=encode_keep({"cancelled": Keep(age="1h")})))
        store.cancel(one)
    store.enqueue(job("last", keep=encode_keep(keep)))
    store.cancel("last")
    clock.advance(HOUR_MS)
    while store.prune():
        pass
    assert set(ids(store)) - {"last"} == set(owing)
    for parent in owing:
        store.mark_children_delivered(parent, ["a"])
    while store.prune():
        pass
    assert set(ids(store)) <= {"last"}
    assert violations(store) == []


def test_time_may_begin_at_0(server: Server) -> None:
    """0 is an instant like any other, of an end and of an age."""
    clock = FakeClock(0)
    store = Store(server.url, clock=clock, history_ttl={"failed": 1})
    finish(store, "none", Keep(age=0))
    finish(store, "aged", Keep(age="1h"))
    finish(store, "failed", verb="ack_failed")
    assert store.prune() == 0
    assert sorted(ids(store)) == ["aged", "failed"]
    clock.set(1_000)
    assert store.prune() == 1
    clock.set(HOUR_MS - 1)
    assert store.prune() == 0
    clock.set(HOUR_MS)
    assert store.prune() == 1
    assert ids(store) == []
    assert violations(store) == []
    store.close()


@pytest.mark.parametrize("keep", [Keep(count=0), Keep(count=1)])
def test_pruning_takes_all_that_belongs_to_a_job(
    store: Store, clock: FakeClock, keep: Keep
) -> None:
    """Record, ledger, payload, long exits, its extra hash, and every index member."""
    store.declare_index(["customer"])
    finish(store, "newer", verb="ack_completed")
    store.remove("newer")
    before = snapshot(store)
    store.enqueue(
        job("a", payload=b"p" * 9_000, metadata={"customer": "c", "k": "v" * 300}, trace="t" * 99,
            keep=encode_keep(keep))
    )  # fmt: skip
    assert take(store) == ["a"]
    store.progress("a", TOKEN, b"half")
    store.ack_retried("a", TOKEN, 0, b"e" * 900, summary="no")
    assert take(store, token="second") == ["a"]
    store.ack_completed("a", "second", b"r" * 900)
    finish(store, "b", Keep(count=0))
    assert store.get_job("a") is None
    left = {key for key in snapshot(store) if key not in before}
    assert {key.removeprefix(store.keys.root).partition(":")[0] for key in left} <= {
        "claims", "answered", "wake",
    }  # fmt: skip
    assert violations(store) == []


def test_a_retried_job_is_not_pruned(store: Store, clock: FakeClock) -> None:
    """Its age counts from its next end."""
    finish(store, "a", Keep(age="1h"), "ack_failed")
    store.retry("a")
    clock.advance(2 * HOUR_MS)
    assert store.prune() == 0
    assert store.get_states(["a"]) == [JobState.WAITING]


def test_what_a_bounded_finish_leaves_is_pruned_in_steps(store: Store, clock: FakeClock) -> None:
    """By the policy of the newest job; each step is bounded."""
    for at in range(3 * PRUNE_BATCH):
        finish(store, f"{at:03}")
    finish(store, "last", Keep(count=10))
    steps = []
    while step := store.prune():
        steps.append(step)
    assert max(steps) <= PRUNE_BATCH
    assert len(ids(store)) == 10
    assert violations(store) == []


def test_a_policy_is_applied_however_late_one_looks(store: Store, clock: FakeClock) -> None:
    """Also when the job that carries it is past its age: it goes behind those it is for."""
    for at in range(2 * PRUNE_BATCH + 5):
        finish(store, f"{at:03}")
    clock.advance(1)
    finish(store, "last", Keep(age="1h"))
    store.enqueue(job("other", name="other"))
    store.cancel("other")
    clock.advance(2 * HOUR_MS)
    steps = []
    while step := store.prune():
        steps.append(step)
    assert steps == [PRUNE_BATCH, PRUNE_BATCH, 6]
    assert ids(store) == ["other"]


@pytest.mark.parametrize("limit", [0, -1, 501, True, 1.5, "x", None])
def test_a_step_takes_a_number_that_can_be(store: Store, limit: Any) -> None:
    """Anything else is refused here, and not by a script."""
    with pytest.raises((ValueError, TypeError), match="limit must be"):
        store.prune(limit)


def test_everything_that_can_expire_leaves_an_empty_store(store: Store, clock: FakeClock) -> None:
    """After any mix of outcomes: the store's hash and its counter, and claims that expire."""
    keep = Keep(age="1h")
    for verb in ("ack_completed", "ack_failed", "ack_cancelled"):
        finish(store, verb, keep, verb)
    store.enqueue(job("direct", keep=encode_keep(keep), metadata={"k": "v"}))
    store.cancel("direct")
    clock.advance(HOUR_MS)
    while store.prune():
        pass
    keys = store.keys
    left = {key for key in snapshot(store) if not key.startswith(keys.claims(""))}
    assert left == {keys.meta(), keys.seq()}
    assert f"seen:{QUEUE}:{NAME}" not in snapshot(store)[keys.meta()]
