"""Retention: finished jobs go by their own policy, by the ceiling of the store, or at once."""

from __future__ import annotations

import pytest
from conformance.build import NAME, QUEUE, TOKEN, job, take
from servers import Server
from transitions.invariants import violations
from transitions.seed import snapshot

from mq.clock import FakeClock
from mq.policies import Keep, encode_keep
from mq.records import Ack
from mq.states import JobState
from mq.store import PRUNE_BATCH, Store

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


@pytest.mark.parametrize(
    "ttl", [{}, {"done": "1h"}, {"completed": "soon"}, -1, True, "1 fortnight"]
)
def test_a_ceiling_that_means_nothing_is_refused(ttl: object) -> None:
    """Where it is written."""
    with pytest.raises((ValueError, TypeError), match="history_ttl"):
        Store("memory://", history_ttl=ttl)  # type: ignore[arg-type]


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
