"""Metadata keys that are declared late: their indexes are filled in step by step, unnoticed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conformance.build import QUEUE, TOKEN, job, take
from conformance.crowd import (
    LATER_MS,
    NAMES,
    QUEUES,
    all_records,
    expected,
    fill,
    mixed,
    not_indexed,
    odd_ids,
    walk,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import Server
from transitions.invariants import violations
from transitions.seed import snapshot

from mq import listing
from mq.clock import FakeClock
from mq.policies import Dedupe
from mq.records import Ack
from mq.store import Store

KEY = "customer"
VALUES = ("c0", "c1", "c2")


def finish(store: Store, limit: int = 50) -> list[tuple[str, int]]:
    """Take steps until there is nothing left to do; what each of them told."""
    steps = []
    while (step := store.backfill(limit)) is not None:
        steps.append(step)
        assert len(steps) < 10_000
    return steps


def indexed_jobs(store: Store, key: str = KEY) -> set[str]:
    """The ids that stand in any set of a key."""
    prefix = f"{store.keys.root}metadata:{key}:"
    content = snapshot(store)
    return {one for name, members in content.items() if name.startswith(prefix) for one in members}


def with_key(store: Store, key: str = KEY) -> set[str]:
    """The ids of the jobs that have a key."""
    return {one.id for one in all_records(store) if key in one.metadata}


def assert_exact(store: Store, *, limit: int = 500) -> None:
    """Every list by the key is what the records call for, whoever serves it."""
    records = all_records(store)
    for value in VALUES:
        for order in ("asc", "desc"):
            options: dict[str, Any] = {"metadata": {KEY: value}, "order": order}
            assert walk(store, limit=limit, **options) == expected(records, **options)


@pytest.fixture
def second(server: Server, clock: FakeClock) -> Iterator[Store]:
    """The same store, as another process sees it."""
    opened = Store(server.url, clock=clock)
    yield opened
    opened.close()


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_jobs_in_every_state_are_added_in_bounded_steps(
    store: Store, clock: FakeClock, limit: int
) -> None:
    """No step looks at more than its limit; a list is right before, between and after them."""
    fill(store, clock, mixed(42))
    assert store.declare_index([KEY]) == 1
    assert store.index_states() == {KEY: False}
    assert indexed_jobs(store) == set()
    assert_exact(store)
    looked_at, steps = 0, 0
    while (step := store.backfill(limit)) is not None:
        assert step[0] == KEY
        assert 0 <= step[1] <= limit
        looked_at, steps = looked_at + step[1], steps + 1
        if steps % 12 == 1:
            assert_exact(store)
            assert violations(store) == []
    assert looked_at == 42
    assert steps <= 42 // limit + 2 * len(store.seen_pairs()) + 1
    assert store.index_states() == {KEY: True}
    assert not_indexed(store, KEY) == []
    assert indexed_jobs(store) == with_key(store)
    assert_exact(store, limit=3)
    assert [key for key in snapshot(store) if key.startswith(store.keys.backfill(""))] == []


def test_an_index_is_read_once_it_is_ready_and_not_before(store: Store) -> None:
    """A list by a key that is being filled in steps through the jobs of the states."""
    store.enqueue_many(job(f"{at:02}", metadata={KEY: VALUES[at % 3]}) for at in range(30))
    store.declare_index([KEY])
    query = listing.read_query(metadata={KEY: "c1"}, order="asc")
    wanted = [f"{at:02}" for at in range(1, 30, 3)]
    for ready in (False, False, False, True):
        assert store.index_states() == {KEY: ready}
        found = store._find(query, None, 50, store._pairs(query))
        assert found.by_metadata == ready
        assert [job_id for _, job_id in found.jobs] == wanted
        store.backfill(20)


def test_an_index_is_not_ready_before_its_last_step(store: Store) -> None:
    """Every job in it is not enough: somebody has to have seen that none is left."""
    store.enqueue_many(job(f"{at}", metadata={KEY: "c0"}) for at in range(4))
    store.declare_index([KEY])
    seen = []
    while (step := store.backfill(2)) is not None:
        seen.append((step[1], store.index_states()[KEY]))
    assert sum(number for number, _ in seen) == 4
    assert [ready for _, ready in seen] == [False] * (len(seen) - 1) + [True]


def test_declaring_again_neither_restarts_nor_loses_a_step(store: Store, second: Store) -> None:
    """Every worker and producer that starts says it again."""
    store.enqueue_many(job(f"{at}", metadata={KEY: "c0"}) for at in range(9))
    store.declare_index([KEY])
    looked_at = 0
    for _ in range(3):
        step = store.backfill(3)
        assert step is not None
        looked_at += step[1]
        before = snapshot(store)
        assert second.declare_index([KEY]) == 0
        assert snapshot(store) == before
    looked_at += sum(number for _, number in finish(second, 3))
    assert looked_at == 9
    assert second.declare_index([KEY]) == 0
    assert store.index_states() == {KEY: True}
    assert store.backfill() is None
    assert indexed_jobs(store) == with_key(store)


def test_a_step_with_nothing_to_do_changes_nothing(store: Store) -> None:
    """Of a store that declared nothing, and of one whose indexes are complete."""
    assert store.backfill() is None
    assert snapshot(store) == {}
    store.enqueue(job("a", metadata={KEY: "c0"}))
    before = snapshot(store)
    assert store.backfill() is None
    assert snapshot(store) == before
    store.declare_index([KEY])
    finish(store)
    before = snapshot(store)
    assert store.backfill() is None
    assert snapshot(store) == before


def test_jobs_without_the_key_and_with_the_empty_value_are_told_apart(store: Store) -> None:
    """The one is in no set, the other in that of the empty value."""
    store.enqueue_many(
        [job("none"), job("other", metadata={"x": "y"}), job("empty", metadata={KEY: ""})]
    )
    store.declare_index([KEY])
    finish(store, 1)
    assert indexed_jobs(store) == {"empty"}
    assert walk(store, metadata={KEY: ""}) == ["empty"]
    assert violations(store) == []


def test_several_keys_are_filled_in_one_after_the_other(store: Store, clock: FakeClock) -> None:
    """Each is ready by itself; a job stands under all of its keys in the end."""
    fill(store, clock, mixed(42))
    store.declare_index([KEY, "tier"])
    states = []
    while store.backfill(5) is not None:
        told = store.index_states()
        if not states or states[-1] != told:
            states.append(told)
            assert_exact(store)
    assert states == [
        {KEY: False, "tier": False}, {KEY: True, "tier": False}, {KEY: True, "tier": True},
    ]  # fmt: skip
    assert not_indexed(store, KEY, "tier") == []
    assert violations(store) == []


def test_a_key_declared_while_another_is_filled_in_comes_after_it(
    store: Store, clock: FakeClock
) -> None:
    """And jobs that stand under the first are added to the second."""
    fill(store, clock, mixed(42))
    store.declare_index([KEY])
    for _ in range(4):
        assert store.backfill(3) is not None
    store.declare_index(["tier"])
    store.enqueue(job("late", metadata={KEY: "c0", "tier": "gold"}))
    order = [key for key, _ in finish(store, 3)]
    assert order == sorted(order, key=[KEY, "tier"].index)
    assert set(order) == {KEY, "tier"}
    assert not_indexed(store, KEY, "tier") == []
    assert violations(store) == []


def test_jobs_enqueued_between_the_steps_index_themselves(
    store: Store, second: Store, clock: FakeClock
) -> None:
    """By a writer that declares the key and by one that does not; in old pairs and new ones."""
    fill(store, clock, mixed(42))
    store.declare_index([KEY])
    new: list[str] = []
    for step in itertools.count():
        if step < 12:
            one = job(
                f"new{step}", queue=(*QUEUES, "q3")[step % 3], name=(*NAMES, "other")[step % 4],
                metadata={KEY: VALUES[step % 3]}, delay_ms=step % 2,
            )  # fmt: skip
            (store, second)[step % 2].enqueue(one)
            new.append(f"new{step}")
            assert set(new) <= indexed_jobs(store)
            clock.advance(step % 2)
        if step % 4 == 0:
            assert_exact(store)
        if store.backfill(4) is None:
            break
    assert indexed_jobs(store) == with_key(store) >= set(new)
    assert not_indexed(store, KEY) == []
    assert violations(store) == []


def test_the_work_ends_although_jobs_keep_coming(store: Store, clock: FakeClock) -> None:
    """What is enqueued meanwhile is not looked at again: more jobs than a step takes, each time."""
    store.enqueue_many(job(f"old{at:02}", metadata={KEY: "c0"}) for at in range(10))
    store.declare_index([KEY])
    clock.advance(1)
    looked_at = 0
    for step in range(40):
        told = store.backfill(4)
        if told is None:
            break
        looked_at += told[1]
        store.enqueue_many(job(f"new{step:02}-{at}", metadata={KEY: "c1"}) for at in range(5))
        clock.advance(1)
    assert store.index_states() == {KEY: True}
    assert looked_at == 10
    assert indexed_jobs(store) == with_key(store)


def _complete(store: Store) -> None:
    for job_id in take(store, 5):
        store.ack_completed(job_id, TOKEN)


def _fail_and_retry(store: Store) -> None:
    for job_id in take(store, 5):
        store.ack_failed(job_id, TOKEN)
        store.retry(job_id)


def _remove(store: Store) -> None:
    for one in store.list(states=["waiting"], limit=5).items:
        assert store.remove(one.id)


def _run_again(store: Store) -> None:
    for job_id in take(store, 5):
        store.ack_retried(job_id, TOKEN, 10)


def _promote(store: Store) -> None:
    for one in store.list(states=["delayed"], limit=5).items:
        store.promote(one.id)


MOVES: dict[str, Callable[[Store], object]] = {
    "claimed": lambda store: take(store, 5),
    "completed": _complete,
    "failed and retried": _fail_and_retry,
    "retried with a delay": _run_again,
    "removed": _remove,
    "promoted": _promote,
    "cancelled": lambda store: [
        store.cancel(one.id) for one in store.list(states=["waiting"], limit=5).items
    ],
}


@pytest.mark.parametrize("instants", [1, 60])
@pytest.mark.parametrize("move", MOVES)
def test_a_job_that_moves_between_two_steps_is_met_all_the_same(
    store: Store, clock: FakeClock, move: str, instants: int
) -> None:
    """In whichever direction, before and behind the place that the work has got to."""
    run_at = clock.now_ms() + LATER_MS
    for at, job_id in enumerate(odd_ids(60)):
        delayed = {"run_at": run_at} if at % 3 == 0 else {}
        store.enqueue(job(job_id, metadata={KEY: VALUES[at % 3]}, **delayed))
        clock.advance(int(instants > 1))
    store.declare_index([KEY])
    steps = 0
    while store.backfill(7) is not None:
        MOVES[move](store)
        steps += 1
        assert violations(store) == []
    assert steps > 5
    assert not_indexed(store, KEY) == []
    assert indexed_jobs(store) == with_key(store)
    assert_exact(store)


def test_a_delayed_job_that_is_replaced_between_two_steps_has_its_new_value_alone(
    store: Store, clock: FakeClock
) -> None:
    """Before the work gets to it, and after it; the key may come and go with it."""
    keys = [Dedupe(f"k{at}", replace=True) for at in range(12)]
    for at, key in enumerate(keys):
        metadata = {KEY: "c0"} if at % 3 else {}
        store.enqueue(job(f"{at:02}", delay_ms=1_000, metadata=metadata, dedupe=key))
        clock.advance(1)
    store.declare_index([KEY])
    replaced = iter([1, 11, 0, 3, 10, 9, 2, 6])
    while store.backfill(2) is not None:
        at = next(replaced, None)
        if at is not None:
            metadata = {} if at % 5 == 0 else {KEY: "c1"}
            store.enqueue(job(delay_ms=500, metadata=metadata, dedupe=keys[at]))
        assert violations(store) == []
        assert_exact(store)
    assert next(replaced, None) is None
    assert walk(store, metadata={KEY: "c1"}, order="asc") == ["01", "02", "03", "06", "09", "11"]
    assert indexed_jobs(store) == with_key(store)


def test_an_id_that_is_removed_and_taken_again_is_indexed_as_what_it_is_now(
    store: Store, clock: FakeClock
) -> None:
    """Under its new value, by its new instant."""
    store.enqueue_many(job(f"{at}", metadata={KEY: "c0"}) for at in range(6))
    store.declare_index([KEY])
    store.backfill(3)
    clock.advance(1)
    for job_id in "05":
        store.remove(job_id)
        store.enqueue(job(job_id, metadata={KEY: "c1"}))
    finish(store, 3)
    assert walk(store, metadata={KEY: "c1"}) == ["5", "0"]
    assert indexed_jobs(store) == set("012345")
    assert violations(store) == []


def test_two_workers_share_the_steps(store: Store, second: Store, clock: FakeClock) -> None:
    """Each goes on where the other left it: no job is looked at twice."""
    fill(store, clock, mixed(60))
    store.declare_index([KEY])
    second.declare_index([KEY])
    looked_at = 0
    for worker in itertools.cycle([store, second, second]):
        step = worker.backfill(4)
        if step is None:
            break
        looked_at += step[1]
    assert looked_at == 60
    assert (store.backfill(), second.backfill()) == (None, None)
    assert not_indexed(store, KEY) == []
    assert violations(store) == []


def test_a_rolling_deploy_converges(store: Store, second: Store, clock: FakeClock) -> None:
    """Old and new producers write, workers move jobs and take steps: the index ends complete."""
    chance = random.Random(11)
    fill(store, clock, mixed(60))
    for turn in range(60):
        writer = (store, second)[turn % 2]
        if turn in {10, 25, 40}:
            store.declare_index([KEY])
        writer.enqueue(job(f"new{turn}", name=NAMES[turn % 3], metadata={KEY: VALUES[turn % 3]}))
        claimed = writer.claim([*QUEUES, QUEUE], NAMES, TOKEN, LATER_MS, 2).jobs
        ends = [(chance.choice(["ack_completed", "ack_failed", "release"]), Ack(one.id, TOKEN))
                for one in claimed]  # fmt: skip
        writer.exchange(ends, None)
        if turn > 12:
            writer.backfill(3)
        if turn % 10 == 0:
            assert_exact(store)
        clock.advance(turn % 2)
    finish(store)
    assert store.index_states() == {KEY: True}
    assert not_indexed(store, KEY) == []
    assert violations(store) == []
    assert_exact(store)


def test_an_index_is_declared_anew_after_the_store_was_emptied(store: Store) -> None:
    """Jobs that came in between are filled in like any others."""
    store.declare_index([KEY])
    store.destroy()
    assert store.index_states() == {}
    store.enqueue(job("between", metadata={KEY: "c0"}))
    assert indexed_jobs(store) == set()
    assert store.declare_index([KEY]) == 1
    assert store.index_states() == {KEY: False}
    finish(store)
    assert indexed_jobs(store) == {"between"}


@pytest.mark.parametrize("limit", [1, 2, 50])
def test_more_jobs_of_one_instant_than_a_step_takes_are_all_met(store: Store, limit: int) -> None:
    """Over all states of a pair, ids in byte order; and where a step ends exactly at the last."""
    ids = odd_ids(100)
    store.enqueue_many(job(one, metadata={KEY: "c0"}) for one in ids)
    for job_id in take(store, 60)[:30]:
        store.ack_completed(job_id, TOKEN)
    store.declare_index([KEY])
    assert sum(number for _, number in finish(store, limit)) == 100
    assert indexed_jobs(store) == set(ids)
    assert walk(store, metadata={KEY: "c0"}, order="asc") == sorted(ids, key=str.encode)


def test_a_step_on_a_full_server_is_done(real_store: Store, real_server: Server) -> None:
    """Declaring and filling in go on: they are no producers."""
    real_store.enqueue_many(job(f"{at}", metadata={KEY: "c0"}) for at in range(5))
    real_server.cli("CONFIG", "SET", "maxmemory", "1")
    try:
        real_store.declare_index([KEY])
        finish(real_store, 2)
    finally:
        real_server.cli("CONFIG", "SET", "maxmemory", "0")
    assert real_store.index_states() == {KEY: True}
    assert indexed_jobs(real_store) == set("01234")
    assert violations(real_store) == []


# Random walks

_prefixes = itertools.count(1)

WALK_IDS = tuple(odd_ids(9))
MOVE_KINDS = (
    "enqueue", "enqueue", "claim", "complete", "fail", "retry", "promote", "cancel", "remove",
    "replace", "advance", "step", "step", "declare",
)  # fmt: skip
STEERED: dict[str, Callable[[Store, list[str]], object]] = {
    "retry": lambda store, ids: store.steer("retry", ids),
    "promote": lambda store, ids: store.steer("promote", ids),
    "cancel": lambda store, ids: store.steer("cancel_request", ids),
}
moves = st.lists(
    st.tuples(st.sampled_from(MOVE_KINDS), st.sampled_from(WALK_IDS), st.integers(0, 5)),
    max_size=40,
)


def _one_move(store: Store, clock: FakeClock, kind: str, job_id: str, number: int) -> None:
    metadata = {} if number == 5 else {KEY: VALUES[number % 3], "tier": VALUES[number % 2]}
    name = NAMES[number % 2]
    if kind in {"enqueue", "replace"}:
        store.enqueue(
            job(
                job_id if kind == "enqueue" else None, name=name, metadata=metadata,
                delay_ms=number % 3 * 2, dedupe=Dedupe(f"key {job_id}", replace=True),
            )
        )  # fmt: skip
    elif kind == "claim":
        take(store, number + 1, names=NAMES)
    elif kind in {"complete", "fail"}:
        verb = "ack_completed" if kind == "complete" else "ack_failed"
        store.exchange([(verb, Ack(job_id, TOKEN))], None)
    elif kind == "advance":
        clock.advance(number)
    elif kind == "step":
        store.backfill(number + 1)
    elif kind == "declare":
        store.declare_index([KEY, "tier"][number % 2 :])
    elif kind == "remove":
        store.remove(job_id)
    else:
        STEERED[kind](store, [job_id])


def _walk(server: Server, before: list[Any], after: list[Any]) -> None:
    clock = FakeClock(0)
    store = Store(server.url, prefix=f"fill-{next(_prefixes)}", clock=clock)
    for move in before:
        _one_move(store, clock, *move)
    store.declare_index([KEY])
    for at, move in enumerate(after):
        _one_move(store, clock, *move)
        if at % 10 == 9:
            assert_exact(store, limit=3)
    finish(store, 2)
    declared = store.index_states()
    assert set(declared.values()) == {True}
    assert not_indexed(store, *declared) == []
    # A wake marker outlives the removal of the last job of its queue and name.
    assert [one for one in violations(store) if ":wake:" not in one] == []
    assert_exact(store, limit=3)
    store.destroy()
    store.close()


def test_however_jobs_move_between_the_steps_the_index_ends_complete(server: Server) -> None:
    """Exactly the jobs that have the key stand in its sets, under the value they have."""

    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(before=moves, after=moves)
    def run(before: list[Any], after: list[Any]) -> None:
        _walk(server, before, after)

    run()
