"""Declared metadata keys: a sorted set for each value, true at every instant, read when it pays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conformance.build import NAME, QUEUE, TOKEN, job, take
from conformance.crowd import (
    NAMES,
    QUEUES,
    all_records,
    calls_of,
    expected,
    fill,
    mixed,
    not_indexed,
    odd_ids,
    pages,
    walk,
)
from servers import Server
from transitions.invariants import violations
from transitions.seed import raw, snapshot

import mq
from mq import listing
from mq.clock import FakeClock
from mq.errors import StoreError
from mq.policies import Dedupe
from mq.states import JobState
from mq.store import Store

ORDERS = ("asc", "desc")
ODD_VALUES = (
    "", " ", "a", "ab", "a:b", "a:", ":", "A", "é", "e\u0301", "日本", "%s", "*", "[a]", "a b",
    "{mq}:meta", "0", "00", "-1", "nil", "x" * 512,
)  # fmt: skip
ODD_KEYS = (
    "c", "cu", "customer", "customer_id", "a.b", "a-b", "a_b", ".", "-", "A", "a", "indexed",
    "state", "dedup", "trace", "x" * 64,
)  # fmt: skip


def index(store: Store, key: str, value: str) -> dict[str, int]:
    """The sorted set of a value, as it is."""
    found = raw(store).execute_command(
        "ZRANGE", store.keys.metadata(key, value), 0, -1, "WITHSCORES"
    )
    if found and not isinstance(found[0], bytes):
        found = [part for pair in found for part in pair]
    return {found[at].decode(): int(found[at + 1]) for at in range(0, len(found), 2)}


def sets_of(store: Store) -> list[str]:
    """The names of all metadata sets there are."""
    return [key for key in snapshot(store) if key.startswith(store.keys.root + "metadata:")]


def by_index(store: Store, **options: Any) -> bool:
    """Whether a metadata index, not the sets of the states, answers the first page of a list."""
    query = listing.read_query(**options)
    return store._find(query, None, 50, store._pairs(query)).by_metadata


@pytest.fixture
def other_store(server: Server, clock: FakeClock) -> Iterator[Store]:
    """The same store, as a writer sees it that declares nothing."""
    opened = Store(server.url, clock=clock)
    yield opened
    opened.close()


# Declaring


def test_a_declaration_tells_how_many_keys_are_new(store: Store) -> None:
    """Repeated, in whole or in part, it changes nothing."""
    assert store.index_states() == {}
    assert store.declare_index([]) == 0
    with pytest.raises(TypeError, match=r"metadata keys must be a list, got .*customer"):
        store.declare_index("customer")
    assert snapshot(store) == {}
    assert store.declare_index(["a", "b"]) == 2
    before = snapshot(store)
    assert store.declare_index(["b", "a"]) == 0
    assert store.declare_index(["a"]) == 0
    assert store.declare_index([]) == 0
    assert snapshot(store) == before
    assert store.declare_index(["b", "c", "c"]) == 1
    assert store.index_states() == {"a": True, "b": True, "c": True}


@pytest.mark.parametrize("key", ["", "a b", "a:b", "é", "x" * 65, 5, None])
def test_a_key_that_is_no_name_is_refused(store: Store, key: Any) -> None:
    """And nothing is declared, those beside it neither."""
    with pytest.raises((ValueError, TypeError), match="metadata key"):
        store.declare_index(["good", key])
    assert store.index_states() == {}


def test_an_index_of_an_empty_store_is_ready_at_once(store: Store) -> None:
    """There is nothing to fill in."""
    store.declare_index(["customer"])
    assert store.index_states() == {"customer": True}
    assert store.backfill() is None
    store.enqueue(job("a", metadata={"customer": "c1"}))
    assert store.backfill() is None
    assert index(store, "customer", "c1") == {"a": store.clock.now_ms()}


def test_every_writer_keeps_the_index_whether_or_not_it_declared_the_key(
    store: Store, other_store: Store, clock: FakeClock
) -> None:
    """A rolling deploy of producers with and without it leaves no job out."""
    other_store.enqueue(job("warm", metadata={"other": "x"}))
    store.declare_index(["customer"])
    while store.backfill() is not None:
        pass
    for at in range(6):
        writer = (store, other_store)[at % 2]
        writer.enqueue_many([job(f"j{at}", metadata={"customer": f"c{at % 3}"}), job(f"no{at}")])
        clock.advance(1)
    assert not_indexed(store, "customer") == []
    assert list(index(store, "customer", "c1")) == ["j1", "j4"]
    for reader in (store, other_store):
        assert walk(reader, metadata={"customer": "c1"}) == ["j4", "j1"]
        assert by_index(reader, metadata={"customer": "c1"})
    assert violations(store) == []


def test_a_definition_declares_its_keys_before_its_first_job(server: Server) -> None:
    """Those of the app and its own; a definition without them indexes what another declared."""
    app = mq.App(server.url, indexed_metadata=["tenant"])
    plain = mq.App(server.url)
    bill = app.define(
        "bill", payload=str, result=None, indexed_metadata=["customer"],
        metadata=lambda text: {"customer": text, "tenant": "t", "other": "o"},
    )  # fmt: skip
    older = plain.define("bill", payload=str, result=None)
    first = bill.enqueue("c1")
    assert bill.store.index_states() == {"tenant": True, "customer": True}
    second = older.enqueue("c2", metadata={"customer": "c1"})
    third = bill.enqueue_many(["c1", "c2"])[0]
    found = walk(bill.store, metadata={"customer": "c1"}, order="asc")
    assert found == [first, second, third]
    assert by_index(bill.store, metadata={"customer": "c1"})
    assert len(sets_of(bill.store)) == 3
    app.close()
    plain.close()


# What stands in an index


def test_a_job_stands_in_its_index_through_its_whole_life(store: Store, clock: FakeClock) -> None:
    """By the instant of its enqueue, in whichever state; where it finished as well."""
    store.declare_index(["customer"])
    fill(store, clock, mixed(42))
    assert not_indexed(store, "customer") == []
    for record in all_records(store):
        customer = record.metadata.get("customer")
        if customer is not None:
            assert index(store, "customer", customer)[record.id] == record.enqueued_at
    clock.advance(5)
    before = {key: snapshot(store)[key] for key in sets_of(store)}
    for one in store.list(states=["failed"]).items:
        store.retry(one.id)
    for one in store.list(states=["delayed"]).items:
        store.promote(one.id)
    for one in store.list(states=["waiting"]).items[:4]:
        store.cancel(one.id)
    assert {key: snapshot(store)[key] for key in sets_of(store)} == before
    assert violations(store) == []


def test_a_job_that_is_removed_leaves_every_index(store: Store, clock: FakeClock) -> None:
    """In every state in which it can be; a set without members is gone."""
    store.declare_index(["customer", "tier"])
    fill(store, clock, mixed(42))
    removed = [one.id for one in all_records(store) if store.remove(one.id)]
    assert len(removed) == 30
    left = {one for key in sets_of(store) for one in snapshot(store)[key]}
    assert left == {one.id for one in all_records(store) if one.metadata}
    assert not_indexed(store, "customer", "tier") == []
    for one in all_records(store):
        if one.state is JobState.ACTIVE:
            store.ack_completed(one.id, TOKEN)
        else:
            store.cancel(one.id)
        assert store.remove(one.id)
    assert sets_of(store) == []


def test_a_replaced_job_stands_where_its_new_values_say(store: Store, clock: FakeClock) -> None:
    """Out of the old sets, into the new ones, by the instant of its first enqueue."""
    store.declare_index(["a", "b", "c"])
    began, key = clock.now_ms(), Dedupe("key", replace=True)

    def replace(**metadata: str) -> None:
        clock.advance(1)
        store.enqueue(job(delay_ms=1_000, metadata=metadata, dedupe=key))
        assert violations(store) == []
        assert not_indexed(store, "a", "b", "c") == []

    store.enqueue(job("j", delay_ms=1_000, metadata={"a": "1", "b": "1", "x": "1"}, dedupe=key))
    replace(a="2", c="1")
    assert sorted(sets_of(store)) == [store.keys.metadata("a", "2"), store.keys.metadata("c", "1")]
    assert index(store, "a", "2") == {"j": began}
    replace(a="2")
    assert sets_of(store) == [store.keys.metadata("a", "2")]
    replace()
    assert sets_of(store) == []
    replace(b="")
    assert index(store, "b", "") == {"j": began}
    assert walk(store, metadata={"b": ""}) == ["j"]
    assert walk(store, metadata={"a": "2"}) == []


def test_an_enqueue_that_adds_no_job_changes_no_index(store: Store) -> None:
    """A duplicate by id, and one by dedup key, with other values."""
    store.declare_index(["customer"])
    store.enqueue(job("a", metadata={"customer": "c1"}, dedupe=Dedupe("key")))
    before = snapshot(store)
    store.enqueue(job("a", metadata={"customer": "c2"}))
    store.enqueue(job("b", metadata={"customer": "c2"}, dedupe=Dedupe("key")))
    assert snapshot(store) == before


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_every_value_is_found_by_itself_alone(
    store: Store, clock: FakeClock, declared: bool
) -> None:
    """The empty one, beginnings of one another, and all that keys or patterns are made of."""
    if declared:
        store.declare_index(["customer"])
    store.enqueue(job("none"))
    for at, value in enumerate(ODD_VALUES * 2):
        store.enqueue(job(f"j{at:02}", metadata={"customer": value}))
        clock.advance(1)
    for at, value in enumerate(ODD_VALUES):
        wanted = [f"j{at:02}", f"j{at + len(ODD_VALUES):02}"]
        assert walk(store, metadata={"customer": value}, order="asc", limit=1) == wanted
        assert by_index(store, metadata={"customer": value}) == declared
    assert not declared or not_indexed(store, "customer") == []


def test_every_key_is_an_index_of_its_own(store: Store) -> None:
    """Keys that are beginnings of one another, that patterns are made of, that mq itself uses."""
    keys = list(dict.fromkeys(ODD_KEYS))
    for start in range(0, len(keys), 2):
        store.declare_index(keys[start : start + 2])
    assert list(store.index_states()) == keys
    for key in keys:
        store.enqueue(job(f"by {key}", metadata={key: "v", "free": "v", "ustome": "v", "_": "v"}))
    for key in keys:
        assert index(store, key, "v") == {f"by {key}": store.clock.now_ms()}
        assert walk(store, metadata={key: "v"}) == [f"by {key}"]
        assert by_index(store, metadata={key: "v"})
        assert walk(store, metadata={key: "w"}) == []
    assert len(walk(store, metadata={"free": "v", "ustome": "v", "_": "v"})) == len(keys)
    assert len(sets_of(store)) == len(keys)
    assert violations(store) == []


# Asking by them


@pytest.mark.parametrize("limit", [1, 7, 500])
@pytest.mark.parametrize("declared", [["customer"], ["tier", "customer"]], ids=",".join)
def test_lists_by_declared_keys_are_exact(
    store: Store, clock: FakeClock, declared: list[str], limit: int
) -> None:
    """With every other filter, in both orders: the index changes the cost, never the answer."""
    store.declare_index(declared)
    fill(store, clock, mixed(35 if limit == 1 else 84))
    records = all_records(store)
    driven = set()
    for metadata, states, queue, name, order in itertools.product(
        [{"customer": "c1"}, {"customer": "c2", "tier": ""}, {"tier": "gold"}],
        [None, ["failed", "waiting"]],
        [None, QUEUES[0]],
        [None, NAMES[0]],
        ORDERS,
    ):
        options: dict[str, Any] = {
            "metadata": metadata, "states": states, "queue": queue, "name": name, "order": order,
        }  # fmt: skip
        assert walk(store, limit=limit, **options) == expected(records, **options), options
        driven.add(by_index(store, **options))
    assert driven == {True, False}


def test_a_tie_of_one_value_longer_than_a_page_is_in_order(store: Store) -> None:
    """The index is read as the other sets are."""
    store.declare_index(["customer"])
    ids = odd_ids(300)
    store.enqueue_many(
        job(one, name=NAMES[at % 3], metadata={"customer": f"c{at % 2}"})
        for at, one in enumerate(ids)
    )
    ordered = sorted(ids[::2], key=str.encode)
    for limit in (7, 64, 500):
        asked: dict[str, Any] = {"metadata": {"customer": "c0"}, "limit": limit}
        assert walk(store, order="asc", **asked) == ordered
        assert walk(store, order="desc", **asked) == ordered[::-1]
    assert by_index(store, metadata={"customer": "c0"})


def test_a_job_without_a_key_is_in_no_list_by_it(store: Store) -> None:
    """An absent value is not the empty one."""
    store.declare_index(["customer"])
    store.enqueue_many([job("none"), job("empty", metadata={"customer": ""}), job("other")])
    assert walk(store, metadata={"customer": ""}) == ["empty"]
    assert walk(store, metadata={"customer": "none"}) == []


def test_all_pairs_have_to_match(store: Store, clock: FakeClock) -> None:
    """Two declared keys, and a declared one with one that is not."""
    store.declare_index(["a", "b"])
    for at in range(8):
        pairs = {"a": str(at & 1), "b": str(at >> 1 & 1), "c": str(at >> 2 & 1)}
        store.enqueue(job(f"j{at}", metadata=pairs))
        clock.advance(1)
    for a, b in itertools.product("01", "01"):
        wanted = [f"j{at}" for at in range(8) if (at & 1, at >> 1 & 1) == (int(a), int(b))]
        assert walk(store, metadata={"a": a, "b": b}, order="asc", limit=1) == wanted
        assert by_index(store, metadata={"a": a, "b": b})
    assert walk(store, metadata={"a": "1", "c": "1"}, order="asc", limit=1) == ["j5", "j7"]
    assert walk(store, metadata={"c": "1", "b": "0", "a": "1"}) == ["j5"]
    assert walk(store, metadata={"a": "1", "d": "1"}) == []


def test_of_two_declared_keys_the_rarer_one_is_read(real_store: Store, real_server: Server) -> None:
    """Whichever stands first in the question."""
    real_store.declare_index(["usual", "rare"])
    real_store.enqueue_many(
        job(f"{at:03}", metadata={"usual": "v", "rare": f"v{at // 5}"}) for at in range(400)
    )
    for metadata in ({"usual": "v", "rare": "v7"}, {"rare": "v7", "usual": "v"}):
        real_server.cli("CONFIG", "RESETSTAT")
        page = real_store.list(metadata=metadata, order="asc", bodies=False)
        assert [one.id for one in page.items] == [f"{at:03}" for at in range(35, 40)]
        (looked_up,) = calls_of(real_server, "hmget")
        assert looked_up < 40


def test_a_rare_value_among_many_jobs_fills_the_first_page(
    real_store: Store, real_server: Server
) -> None:
    """Found without stepping through the others: one call, a few commands a job."""
    real_store.declare_index(["customer"])
    real_store.enqueue_many(
        job(f"{at:04}", metadata={"customer": "rare" if at % 40 == 0 else "usual"})
        for at in range(2_000)
    )
    real_server.cli("CONFIG", "RESETSTAT")
    page = real_store.list(metadata={"customer": "rare"}, limit=50, bodies=False)
    assert [one.id for one in page.items] == [f"{at:04}" for at in range(1_960, -1, -40)]
    assert page.cursor is None
    scripts, looked_up, read = calls_of(real_server, "evalsha", "hmget", "zrange")
    assert scripts == 2
    assert looked_up <= 4 * 50 + 10
    assert read <= 5


def test_the_same_value_undeclared_needs_several_calls(store: Store) -> None:
    """The answer is the same, and a page is no longer full."""
    store.enqueue_many(
        job(f"{at:04}", metadata={"customer": "rare" if at % 40 == 0 else "usual"})
        for at in range(2_000)
    )
    assert not by_index(store, metadata={"customer": "rare"})
    got = list(pages(store, metadata={"customer": "rare"}, limit=50))
    assert len(got[0]) < 50
    assert [one.id for page in got for one in page] == [f"{at:04}" for at in range(1_960, -1, -40)]


def test_the_smaller_of_index_and_sets_of_states_is_read(store: Store, clock: FakeClock) -> None:
    """A popular value with a small set of states, a rare one with a large one."""
    store.declare_index(["customer"])
    jobs = [(job(f"w{at:03}", metadata={"customer": "big"}), JobState.WAITING) for at in range(200)]
    jobs += [(job(f"f{at}", metadata={"customer": "big"}), JobState.FAILED) for at in range(3)]
    jobs += [(job(f"s{at}", metadata={"customer": "small"}), JobState.WAITING) for at in range(4)]
    jobs += [(job("fs", metadata={"customer": "small"}), JobState.FAILED)]
    fill(store, clock, jobs, instants=1)
    big, small = {"customer": "big"}, {"customer": "small"}
    for options, index_drives, number in (
        ({"metadata": big, "states": ["failed"]}, False, 3),
        ({"metadata": small, "states": ["failed"]}, False, 1),
        ({"metadata": small, "states": ["waiting"]}, True, 4),
        ({"metadata": small}, True, 5),
        ({"metadata": big}, True, 203),
        ({"metadata": big, "queue": "other"}, False, 0),
    ):
        assert by_index(store, **options) == index_drives, options
        assert len(walk(store, **options)) == number


@pytest.mark.parametrize("order", ORDERS)
def test_a_walk_goes_on_when_another_set_becomes_the_smaller_one(
    store: Store, clock: FakeClock, order: str
) -> None:
    """Index and sets of states have one order, so that a cursor of one is a place in the other."""
    store.declare_index(["customer"])
    fill(store, clock, [
        (job(one, name=NAMES[at % 3], metadata={"customer": f"c{at % 2}"}),
         (JobState.FAILED, JobState.WAITING)[at % 4 == 0])
        for at, one in enumerate(odd_ids(80))
    ])  # fmt: skip
    options: dict[str, Any] = {"states": ["failed"], "metadata": {"customer": "c0"}, "order": order}
    wanted = expected(all_records(store), **options)
    assert by_index(store, **options)
    first = store.list(limit=5, **options)
    for one in walk(store, states=["failed"], metadata={"customer": "c1"}):
        assert store.remove(one)
    assert not by_index(store, **options)
    second = store.list(limit=5, cursor=first.cursor, **options)
    fill(store, clock, [(job(f"more{at}"), JobState.FAILED) for at in range(60)])
    assert by_index(store, **options)
    rest = walk(store, limit=5, cursor=second.cursor, **options)
    assert [one.id for one in (*first.items, *second.items)] + rest == wanted


def test_a_ready_index_answers_for_more_sets_than_one_call_merges(
    real_store: Store, real_server: Server
) -> None:
    """It holds the jobs of every queue and name: one call finds them, one reads them."""
    real_store.declare_index(["customer"])
    real_store.enqueue_many(
        job(one, name=f"n{at}", metadata={"customer": f"c{at % 10}"})
        for at, one in enumerate(odd_ids(300))
    )
    ordered = sorted(odd_ids(300)[3::10], key=str.encode)
    asked: dict[str, Any] = {"metadata": {"customer": "c3"}, "bodies": False}
    for order, wanted in (("asc", ordered), ("desc", ordered[::-1])):
        real_server.cli("CONFIG", "RESETSTAT")
        page = real_store.list(order=order, **asked)
        assert ([one.id for one in page.items], page.cursor) == (wanted, None)
        assert calls_of(real_server, "evalsha") == [2]
        assert walk(real_store, order=order, limit=7, **asked) == wanted
    assert walk(real_store, states=["failed"], **asked) == []
    assert walk(real_store, metadata={"customer": "c3", "x": "y"}) == []


def test_an_index_that_becomes_ready_within_one_question_does_not_repeat_jobs(
    server: Server, clock: FakeClock
) -> None:
    """The calls of one wide page see the index differently: every job still comes once."""

    class Hasty(Store):
        """Completes the index after the first call of a page."""

        armed = False

    store = Hasty(server.url, clock=clock)
    store.enqueue_many(
        job(one, name=f"n{at}", metadata={"customer": "c"}) for at, one in enumerate(odd_ids(300))
    )
    store.declare_index(["customer"])
    call_all = store._caller.call_all

    def between(calls: Callable[[bool], Any]) -> Any:
        replies = call_all(calls)
        while Hasty.armed and store.backfill(500) is not None:
            pass
        return replies

    store._caller.call_all = between  # type: ignore[method-assign]
    Hasty.armed = True
    got = walk(store, metadata={"customer": "c"}, limit=500)
    assert sorted(got) == sorted(odd_ids(300))
    assert store.index_states() == {"customer": True}
    store.close()


def test_what_an_index_holds_besides_takes_no_room_on_a_page(store: Store) -> None:
    """A page of jobs in one state and queue is full although the value has others."""
    store.declare_index(["customer"])
    store.enqueue_many(job(f"x{at}", queue="other") for at in range(60))
    store.enqueue_many(
        job(f"{at:02}", queue=("q1", "q2")[at % 2], metadata={"customer": "c1"}) for at in range(40)
    )
    assert len(take(store, 10, queues=("q1",))) == 10
    asked: dict[str, Any] = {"metadata": {"customer": "c1"}, "order": "asc", "limit": 10}
    for filters, wanted in (
        ({"queue": "q1", "states": None}, range(0, 20, 2)),
        ({"queue": None, "states": ["waiting"]}, (*range(1, 20, 2),)),
    ):
        page = store.list(**asked, **filters)
        assert [one.id for one in page.items] == [f"{at:02}" for at in wanted]


# Members that should not be there


STALE: dict[str, Callable[[Store, str], object]] = {
    "its record is gone": lambda store, one: raw(store).delete(
        store.keys.job(one), store.keys.extra(one), store.keys.payload(one)
    ),
    "it has another value": lambda store, one: raw(store).hset(
        store.keys.extra(one), "metadata:customer", "c2"
    ),
    "it has no value": lambda store, one: raw(store).hdel(
        store.keys.extra(one), "metadata:customer"
    ),
    "it never was a job": lambda store, one: (
        raw(store).delete(store.keys.job(one)),
        raw(store).zrem(store.keys.index(JobState.WAITING, QUEUE, NAME), one),
    ),
}


@pytest.mark.parametrize("how", STALE)
def test_a_member_of_an_index_that_is_stale_is_not_listed_and_dropped(
    store: Store, how: str
) -> None:
    """Out of the set that was read; nothing else of the store is touched."""
    store.declare_index(["customer"])
    store.enqueue_many(job(one, metadata={"customer": "c1"}) for one in "abcdef")
    store.enqueue_many(job(f"x{at}", metadata={"customer": "c2"}) for at in range(3))
    for one in "be":
        STALE[how](store, one)
    before = snapshot(store)
    assert by_index(store, metadata={"customer": "c1"})
    assert walk(store, metadata={"customer": "c1"}, limit=2, order="asc") == ["a", "c", "d", "f"]
    key = store.keys.metadata("customer", "c1")
    kept = {one: score for one, score in before[key].items() if one not in {"b", "e"}}
    assert snapshot(store) == {**before, key: kept}


def test_a_member_that_other_filters_leave_out_stays_in_its_index(
    store: Store, clock: FakeClock
) -> None:
    """State, queue, name and another pair that differ are no reason to drop it."""
    store.declare_index(["customer"])
    fill(store, clock, mixed(42))
    before = snapshot(store)
    for options in (
        {"states": ["failed"]}, {"queue": "q1"}, {"name": "a"}, {"states": ["active"], "name": "A"},
    ):  # fmt: skip
        walk(store, metadata={"customer": "c1"}, **options)
    walk(store, metadata={"customer": "c1", "tier": "none"})
    walk(store, metadata={"tier": "none", "customer": "c1"})
    assert snapshot(store) == before


# The question of every dashboard


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_failed_jobs_of_one_name_and_queue_with_one_value_newest_first(
    store: Store, clock: FakeClock, declared: bool
) -> None:
    """What a support desk asks: the failed invoices of this customer."""
    if declared:
        store.declare_index(["customer_id"])
    kinds = itertools.product(("billing", "mail"), ("invoice", "reminder"), ("c1", "c2"))
    jobs = []
    for queue, name, customer in kinds:
        for at in range(5):
            request = job(
                f"{queue}/{name}/{customer}/{at}", queue=queue, name=name,
                metadata={"customer_id": customer},
            )  # fmt: skip
            jobs.append((request, JobState.FAILED if at % 2 == 0 else JobState.COMPLETED))
    fill(store, clock, jobs, instants=len(jobs))
    options: dict[str, Any] = {
        "queue": "billing", "name": "invoice", "states": ["failed"],
        "metadata": {"customer_id": "c1"}, "order": "desc",
    }  # fmt: skip
    wanted = [f"billing/invoice/c1/{at}" for at in (4, 2, 0)]
    assert walk(store, **options) == wanted
    assert walk(store, limit=1, **options) == wanted
    assert store.list(**options).items[0].exit == b"exit"


def test_a_server_without_room_refuses_a_job_as_a_whole(
    real_store: Store, real_server: Server
) -> None:
    """No index member is left behind of a job that was not taken in."""
    real_store.declare_index(["customer"])
    real_store.enqueue(job("before", metadata={"customer": "c"}))
    real_server.cli("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(StoreError):
            real_store.enqueue(job("after", metadata={"customer": "c"}))
        assert real_store.get_job("after") is None
        assert index(real_store, "customer", "c").keys() == {"before"}
        assert walk(real_store, metadata={"customer": "c"}) == ["before"]
        assert take(real_store) == ["before"]
        assert real_store.release("before", TOKEN) == "released"
        assert real_store.remove("before")
    finally:
        real_server.cli("CONFIG", "SET", "maxmemory", "0")
    assert sets_of(real_store) == []
