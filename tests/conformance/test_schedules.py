"""Schedules of a store: registered, listed, paused, and made jobs of, one an occurrence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest
from conformance.build import NAME, QUEUE, TOKEN, act_before_repeats, job, record, take
from proxy import Fault, Proxy
from servers import Server
from transitions.invariants import violations
from transitions.seed import raw, snapshot

from mq.cadence import Cadence
from mq.clock import FakeClock
from mq.errors import DecodeError
from mq.policies import Dedupe, Keep, encode_keep
from mq.records import Request, ScheduleRecord
from mq.states import JobState
from mq.store import Store
from mq.store.scheduling import Tick

HOUR_MS = 3_600_000
KEY = "k"
HOURLY = Cadence(every_ms=HOUR_MS)


def schedule(key: str = KEY, next_run_at: int = 0, **given: Any) -> ScheduleRecord:
    """A schedule that falls due every hour, unless told otherwise."""
    given.setdefault("name", NAME)
    given.setdefault("cadence", HOURLY)
    given.setdefault("request", job(name=given["name"]))
    return ScheduleRecord(key=key, next_run_at=next_run_at, **given)


def found(store: Store, key: str = KEY, name: str = NAME) -> ScheduleRecord:
    """A schedule that exists."""
    read = store.get_schedule(name, key)
    assert read is not None
    return read


def due(store: Store) -> list[tuple[int, str]]:
    """Occurrence and key of all that is due, read page by page."""
    read, reached = [], None
    while True:
        page = store.due_schedules(limit=3, after=reached)
        read += [(one.next_run_at, one.key) for one in page.schedules]
        reached = page.reached
        if reached is None:
            return read


def occurrence(slot: int, key: str = KEY) -> Request:
    """The job of one occurrence."""
    return schedule(key).occurrence(slot)


def ids(store: Store) -> list[str]:
    """Every job, oldest first."""
    listed = store.list(order="asc", limit=500, bodies=False).items
    return [one.id for one in listed]


# Registering


def test_a_schedule_reads_back_as_it_was_registered(store: Store, clock: FakeClock) -> None:
    """Every field, and the instants of the registration."""
    request = job(
        payload=b"\x00\xffraw", priority=-5, attempts_max=4, backoff="fixed 10", timeout_ms=99,
        metadata={"customer": "\u00e9", "k": ""}, keep="5",
    )  # fmt: skip
    given = schedule(
        "k:/ \u20ac", clock.now_ms() + 5, request=request, group="owner", overlap="skip",
        max_lateness_ms=0, anchor=77, cadence=Cadence(cron="*/5 * * * *", tz="Europe/Paris"),
    )  # fmt: skip
    assert store.upsert_schedule(given) == ("created", clock.now_ms() + 5)
    now = clock.now_ms()
    expected = attrs.evolve(given, created_at=now, updated_at=now)
    assert store.get_schedule(NAME, "k:/ \u20ac") == expected
    assert store.list_schedules() == [expected]


def test_the_same_cadence_keeps_the_next_occurrence_and_takes_everything_else(
    store: Store, clock: FakeClock
) -> None:
    """What the second registration does not name is gone."""
    first = schedule(
        next_run_at=100, group="a", overlap="skip", max_lateness_ms=9, anchor=40,
        request=job(priority=3, metadata={"a": "1"}),
    )  # fmt: skip
    store.upsert_schedule(first)
    made_at = clock.now_ms()
    clock.advance(10)
    second = schedule(
        next_run_at=999, anchor=50, request=job(payload=b"new", queue="other", metadata={"b": "2"})
    )
    assert store.upsert_schedule(second) == ("kept", 100)
    assert found(store) == attrs.evolve(
        second, next_run_at=100, anchor=40, created_at=made_at, updated_at=made_at + 10
    )


@pytest.mark.parametrize(
    "other",
    [
        Cadence(every_ms=HOUR_MS + 1),
        Cadence(cron="0 * * * *"),
        Cadence(cron="0 * * * *", tz="Europe/Paris"),
    ],
    ids=Cadence.encode,
)
def test_another_cadence_begins_anew(store: Store, other: Cadence) -> None:
    """A zone is part of it."""
    store.upsert_schedule(schedule(next_run_at=100, anchor=40))
    assert store.upsert_schedule(schedule(next_run_at=999, cadence=other)) == ("reset", 999)
    assert (found(store).cadence, found(store).next_run_at, found(store).anchor) == (other, 999, 0)
    assert store.upsert_schedule(schedule(next_run_at=1_000, cadence=other)) == ("kept", 999)


@pytest.mark.parametrize("cadence", [HOURLY, Cadence(every_ms=5)], ids=["kept", "reset"])
def test_a_pause_and_what_has_run_outlive_a_registration(
    store: Store, clock: FakeClock, cadence: Cadence
) -> None:
    """Whatever the cadence; deploying does not start what a person has stopped."""
    slot = clock.now_ms()
    store.upsert_schedule(schedule(next_run_at=slot))
    assert store.tick(NAME, KEY, slot, slot + HOUR_MS, occurrence(slot))
    store.pause_schedule(NAME, KEY)
    clock.advance(1)
    store.upsert_schedule(schedule(next_run_at=slot + 5, cadence=cadence))
    read = found(store)
    assert (read.paused_at, read.created_at, read.updated_at) == (slot, slot, slot + 1)
    assert (read.last_run_at, read.last_job_id) == (slot, f"sched/{NAME}/{KEY}/{slot}")
    clock.advance(2 * HOUR_MS)
    assert due(store) == []
    assert [one.key for one in store.list_schedules()] == [KEY]


def test_an_interval_that_began_at_0_stays_on_its_grid(server: Server) -> None:
    """0 is an instant like any other: the first grid is kept however often it is registered."""
    clock = FakeClock(0)
    store = Store(server.url, clock=clock)
    assert store.upsert_schedule(schedule(next_run_at=HOUR_MS, anchor=0)) == ("created", HOUR_MS)
    clock.advance(7)
    again = schedule(next_run_at=HOUR_MS + 7, anchor=7)
    assert store.upsert_schedule(again) == ("kept", HOUR_MS)
    assert found(store).anchor == 0
    assert found(store).next_after(HOUR_MS) == 2 * HOUR_MS
    clock.set(HOUR_MS)
    assert due(store) == [(HOUR_MS, KEY)]
    assert store.tick(NAME, KEY, HOUR_MS, 2 * HOUR_MS, occurrence(HOUR_MS))
    store.close()


def test_an_occurrence_at_0_is_one(server: Server) -> None:
    """Due, made a job, and noted as the last."""
    store = Store(server.url, clock=FakeClock(0))
    store.upsert_schedule(schedule(next_run_at=0))
    assert due(store) == [(0, KEY)]
    assert store.tick(NAME, KEY, 0, HOUR_MS, occurrence(0)) is True
    assert (found(store).last_run_at, found(store).next_run_at) == (0, HOUR_MS)
    assert take(store) == [f"sched/{NAME}/{KEY}/0"]
    store.close()


def test_many_processes_that_register_at_once_make_one_schedule(
    server: Server, clock: FakeClock
) -> None:
    """One is told that it created it, all others that they kept it."""
    stores = [Store(server.url, clock=clock) for _ in range(6)]
    start = threading.Barrier(len(stores))

    def register(at: int) -> tuple[str, int]:
        start.wait(30)
        return stores[at].upsert_schedule(schedule(next_run_at=100 + at))

    with ThreadPoolExecutor(len(stores)) as pool:
        told = list(pool.map(register, range(len(stores))))
    assert sorted(word for word, _ in told) == ["created"] + ["kept"] * (len(stores) - 1)
    assert {next_run_at for _, next_run_at in told} == {found(stores[0]).next_run_at}
    for one in stores:
        one.close()


# Ticking


def test_a_tick_makes_the_job_and_moves_the_schedule_on(store: Store, clock: FakeClock) -> None:
    """The job is the whole request, under the id of the occurrence."""
    slot = clock.now_ms()
    request = job(payload=b"p", priority=2, attempts_max=3, metadata={"customer": "c"})
    store.upsert_schedule(schedule(next_run_at=slot, request=request))
    made = found(store).occurrence(slot)
    assert store.tick(NAME, KEY, slot, slot + HOUR_MS, made) is True
    assert made.id == f"sched/{NAME}/{KEY}/{slot}"
    read = record(store, made.id)
    assert (read.state, read.payload, read.priority) == (JobState.WAITING, b"p", 2)
    assert (read.attempts_max, read.enqueued_at) == (3, slot)
    assert read.metadata == {"customer": "c", "scheduled_for": str(slot)}
    assert found(store).next_run_at == slot + HOUR_MS
    assert (found(store).last_run_at, found(store).last_job_id) == (slot, made.id)
    assert due(store) == []
    assert violations(store) == []


def _without_its_own(value: Any) -> Any:
    """What stands in a key of a job, but for its place in line and the nonce of its call."""
    if not isinstance(value, dict):
        return value
    return {field: found for field, found in value.items() if field not in ("seq", "nonce")}


def test_a_tick_makes_what_enqueue_would_have_made(store: Store, clock: FakeClock) -> None:
    """Field by field, and in the same indexes: the request decides alone, not the schedule."""
    store.declare_index(["customer"])
    request = job(
        payload=b"\x00\xff", priority=-7, attempts_max=4, backoff="fixed 10", timeout_ms=9,
        metadata={"customer": "c", "long": "v" * 200}, keep=encode_keep(Keep(count=5)),
    )  # fmt: skip
    store.upsert_schedule(schedule(next_run_at=1, request=job(queue="else", metadata={"a": "b"})))
    assert store.tick(NAME, KEY, 1, 2, attrs.evolve(request, id="ticked"))
    store.enqueue(attrs.evolve(request, id="enqueued"))
    content = snapshot(store)
    for of in (store.keys.job, store.keys.payload, store.keys.extra):
        made, other = (_without_its_own(content[of(one)]) for one in ("ticked", "enqueued"))
        assert made == other
    listed = store.list(metadata={"customer": "c"}).items
    assert {one.id for one in listed} == {"ticked", "enqueued"}
    assert take(store, 2) == ["ticked", "enqueued"]
    assert violations(store) == []


def test_a_job_of_a_tick_may_be_delayed(store: Store, clock: FakeClock) -> None:
    """It is exactly the request that is given."""
    store.upsert_schedule(schedule(next_run_at=1))
    assert store.tick(NAME, KEY, 1, 2, job("later", delay_ms=50))
    assert record(store, "later").state is JobState.DELAYED
    assert record(store, "later").run_at == clock.now_ms() + 50


def test_a_tick_without_an_id_is_an_error(store: Store) -> None:
    """Before anything else is looked at, and nothing changes."""
    store.upsert_schedule(schedule(next_run_at=1))
    before = snapshot(store)
    for key in (KEY, "unknown"):
        with pytest.raises(ValueError, match="an id"):
            store.tick(NAME, key, 1, 2, job())
        with pytest.raises(ValueError, match="an id"):
            store.tick(NAME, key, 1, 2, job(""))
    assert snapshot(store) == before


@pytest.mark.parametrize(
    ("name", "key", "expected"),
    [(NAME, KEY, 99), (NAME, KEY, 0), (NAME, "other", 100), ("other", KEY, 100)],
)
def test_a_tick_that_expects_something_else_changes_nothing(
    store: Store, name: str, key: str, expected: int
) -> None:
    """Another occurrence, or no such schedule."""
    store.upsert_schedule(schedule(next_run_at=100))
    store.enqueue(job("taken"))
    before = snapshot(store)
    assert store.tick(name, key, expected, 200, job("made")) is False
    # Whether the id exists is asked last: the schedule of another view does not move on.
    assert store.tick(name, key, expected, 200, job("taken")) is False
    assert store.advance_schedule(name, key, expected, 200) is False
    assert snapshot(store) == before


@pytest.mark.parametrize("name", [NAME, "other"])
def test_an_id_that_exists_inserts_nothing_and_the_schedule_goes_on(
    store: Store, name: str
) -> None:
    """Whoever has it, in whatever state; the answer is False."""
    store.enqueue(job("taken", name=name, payload=b"first"))
    take(store, names=(name,))
    store.ack_completed("taken", TOKEN)
    store.upsert_schedule(schedule(next_run_at=100))
    assert store.tick(NAME, KEY, 100, 200, job("taken", payload=b"second")) is False
    assert found(store).next_run_at == 200
    assert found(store).last_run_at == 100
    assert record(store, "taken").payload == b"first"
    assert record(store, "taken").state is JobState.COMPLETED
    assert ids(store) == ["taken"]
    assert violations(store) == []


@pytest.mark.parametrize("keep", ["at once", "later"])
def test_an_occurrence_whose_job_was_pruned_is_not_made_again(
    store: Store, clock: FakeClock, keep: str
) -> None:
    """By its own acknowledgement, or by the pruner."""
    slot = clock.now_ms()
    policy = Keep(count=0) if keep == "at once" else Keep(age="1s")
    request = job(keep=encode_keep(policy))
    store.upsert_schedule(schedule(next_run_at=slot, request=request))
    (view,) = store.due_schedules().schedules
    made = view.occurrence(slot)
    assert store.tick(NAME, KEY, slot, slot + HOUR_MS, made)
    assert take(store) == [made.id]
    assert made.id is not None
    store.ack_completed(made.id, TOKEN)
    clock.advance(1_000)
    store.prune()
    assert store.get_job(made.id) is None
    assert store.tick(NAME, KEY, slot, slot + HOUR_MS, made) is False
    assert store.tick_all([Tick(view, slot + HOUR_MS)]) == [False]
    assert ids(store) == []
    assert found(store).next_run_at == slot + HOUR_MS


def test_an_occurrence_exists_once_whatever_became_of_its_job(
    store: Store, clock: FakeClock
) -> None:
    """The record is removed, and yet the occurrence does not come again: retention has no part."""
    slot = clock.now_ms()
    store.upsert_schedule(schedule(next_run_at=slot))
    stale = store.due_schedules().schedules
    made = occurrence(slot)
    assert store.tick(NAME, KEY, slot, slot + HOUR_MS, made) is True
    store.remove(made.id or "")
    assert store.tick(NAME, KEY, slot, slot + HOUR_MS, made) is False
    assert store.tick_all([Tick(one, slot + HOUR_MS) for one in stale]) == [False]
    assert ids(store) == []


def test_a_dedup_key_of_a_tick_is_asked_as_enqueue_asks_it(store: Store) -> None:
    """A store takes any request; a definition refuses to be scheduled with one."""
    store.enqueue(job("keyed", dedupe=Dedupe("key")))
    store.upsert_schedule(schedule(next_run_at=1))
    assert store.tick(NAME, KEY, 1, 2, job("made", dedupe=Dedupe("key"))) is False
    assert found(store).next_run_at == 2
    assert ids(store) == ["keyed"]


def test_many_stores_that_tick_at_once_make_one_job_an_occurrence(
    server: Server, clock: FakeClock
) -> None:
    """Occurrence after occurrence: each has one job, and one store was told that it made it."""
    first = Store(server.url, clock=clock)
    keys = [f"k{at}" for at in range(20)]
    start, rounds = clock.now_ms(), 8
    for key in keys:
        first.upsert_schedule(schedule(key, start))
    stores = [Store(server.url, clock=clock) for _ in range(5)]

    def move_on() -> None:
        clock.advance(HOUR_MS)

    ready = threading.Barrier(len(stores), action=move_on)
    done = threading.Barrier(len(stores))

    def tick(store: Store) -> int:
        made = 0
        for nth in range(rounds):
            view = store.due_schedules(limit=len(keys)).schedules
            # Every store has read the same occurrences before the first one ticks.
            ready.wait(60)
            ticks = [Tick(one, one.next_run_at + HOUR_MS) for one in view]
            assert {one.schedule.next_run_at for one in ticks} == {start + nth * HOUR_MS}
            made += sum(store.tick_all(ticks))
            done.wait(60)
        return made

    with ThreadPoolExecutor(len(stores)) as pool:
        made = list(pool.map(tick, stores))
    expected = {
        f"sched/{NAME}/{key}/{start + nth * HOUR_MS}" for key in keys for nth in range(rounds)
    }
    assert sum(made) == len(expected)
    assert set(ids(first)) == expected
    assert violations(first) == []
    for one in [first, *stores]:
        one.close()


def test_a_schedule_moves_on_without_a_job(store: Store) -> None:
    """From the occurrence that was judged, once."""
    store.upsert_schedule(schedule(next_run_at=100))
    assert store.advance_schedule(NAME, KEY, 100, 200) is True
    assert store.advance_schedule(NAME, KEY, 100, 200) is False
    assert found(store).next_run_at == 200
    assert found(store).last_run_at is None
    assert store.tick(NAME, KEY, 100, 300, job("made")) is False
    assert ids(store) == []


# Looking


def test_what_is_due_comes_by_its_occurrence_and_the_next_one_is_told(
    store: Store, clock: FakeClock
) -> None:
    """From its exact instant on, and not a millisecond sooner."""
    now = clock.now_ms()
    for key, at in {"c": 0, "b": -5, "a": 0, "d": 1, "e": 90, "z": -5, "B": 0}.items():
        store.upsert_schedule(schedule(key, now + at))
    expected = [(now - 5, "b"), (now - 5, "z"), (now, "B"), (now, "a"), (now, "c")]
    assert due(store) == expected
    page = store.due_schedules()
    assert (page.now, page.next_at, page.reached) == (now, now + 1, None)
    clock.advance(1)
    assert due(store) == [*expected, (now + 1, "d")]
    assert store.due_schedules().next_at == now + 90


def test_nothing_is_due_in_an_empty_store(store: Store) -> None:
    """And looking leaves it empty."""
    page = store.due_schedules()
    assert (page.schedules, page.next_at, page.reached) == ([], None, None)
    assert store.list_schedules() == []
    assert store.get_schedule(NAME, KEY) is None
    assert snapshot(store) == {}


def test_a_list_is_ordered_by_occurrence_and_key_with_paused_ones_among_them(
    store: Store,
) -> None:
    """However many there are; the bytes of the key decide, then the name."""
    places = [(at % 7, f"{'Zaz'[at % 3]}{at % 50}") for at in range(230)]
    expected = []
    for at, (next_run_at, key) in enumerate(places):
        name = f"n{at}"
        store.upsert_schedule(schedule(key, next_run_at, name=name))
        expected.append((next_run_at, key.encode(), name))
        if at % 3 == 0:
            store.pause_schedule(name, key)
    listed = store.list_schedules()
    assert [(one.next_run_at, one.key.encode(), one.name) for one in listed] == sorted(expected)
    assert sum(one.paused_at is not None for one in listed) == 77


def test_a_list_may_be_of_a_name_a_queue_and_a_group(store: Store) -> None:
    """Each by itself and together."""
    for nth, name, queue, group in (
        (1, "a", "q1", ""), (2, "a", "q2", "g"), (3, "b", "q1", "g"), (4, "b", "q2", ""),
    ):  # fmt: skip
        request = job(name=name, queue=queue)
        store.upsert_schedule(schedule(f"k{nth}", nth, name=name, request=request, group=group))

    def keys(**asked: str) -> list[str]:
        return [one.key for one in store.list_schedules(**asked)]

    assert keys() == ["k1", "k2", "k3", "k4"]
    assert keys(name="a") == ["k1", "k2"]
    assert keys(queue="q1") == ["k1", "k3"]
    assert keys(group="g") == ["k2", "k3"]
    assert keys(name="a", queue="q2", group="g") == ["k2"]
    assert keys(group="nobody") == []


@pytest.mark.parametrize(
    ("field", "value"), [("cadence", "daily"), ("next_run_at", "soon"), ("cadence", "every 0")]
)
def test_a_record_that_cannot_be_read_hides_no_other(
    store: Store, clock: FakeClock, field: str, value: str
) -> None:
    """It is told by its name, stays where it is, and can be removed."""
    for key in ("a", "b", "c"):
        store.upsert_schedule(schedule(key, clock.now_ms()))
    raw(store).hset(store.keys.schedule(NAME, "b"), field, value)
    page = store.due_schedules()
    assert [one.key for one in page.schedules] == ["a", "c"]
    assert page.unreadable == [f"{NAME}:b"]
    assert [one.key for one in store.list_schedules()] == ["a", "c"]
    assert store.unreadable_schedules() == [f"{NAME}:b"]
    for look in (store.get_schedule, store.resume_schedule, store.run_schedule_now):
        with pytest.raises(DecodeError, match=rf"schedule {NAME}:b cannot be read"):
            look(NAME, "b")
    assert store.remove_schedule(NAME, "b") is True
    assert store.unreadable_schedules() == []
    assert store.due_schedules().unreadable == []


def test_a_place_without_a_record_is_dropped(store: Store) -> None:
    """Somebody deleted the hash by hand."""
    store.upsert_schedule(schedule(next_run_at=1))
    raw(store).delete(store.keys.schedule(NAME, KEY))
    assert due(store) == []
    assert store.keys.schedules() not in snapshot(store)


# Pausing and removing


def test_a_paused_schedule_falls_due_when_it_is_resumed_and_not_before(
    store: Store, clock: FakeClock
) -> None:
    """What it missed is not made up for; it goes on on its grid."""
    start = clock.now_ms()
    store.upsert_schedule(schedule(next_run_at=start + 10, anchor=start + 10))
    assert store.pause_schedule(NAME, KEY) is True
    assert found(store).paused_at == start
    clock.advance(3 * HOUR_MS)
    assert due(store) == []
    assert store.pause_schedule(NAME, KEY) is True
    assert found(store).paused_at == start
    assert store.resume_schedule(NAME, KEY) is True
    assert found(store).paused_at is None
    assert found(store).next_run_at == start + 10 + 3 * HOUR_MS
    assert due(store) == []
    clock.advance(10)
    assert due(store) == [(start + 10 + 3 * HOUR_MS, KEY)]


def test_what_happens_at_0_is_remembered(server: Server) -> None:
    """A pause since 0 is a pause, a registration at 0 has an instant, and 0 ms late is late."""
    clock = FakeClock(0)
    store = Store(server.url, clock=clock)
    store.upsert_schedule(schedule(next_run_at=0, max_lateness_ms=0))
    store.pause_schedule(NAME, KEY)
    read = found(store)
    assert (read.paused_at, read.created_at, read.updated_at) == (0, 0, 0)
    assert read.max_lateness_ms == 0
    assert due(store) == []
    clock.advance(1)
    store.upsert_schedule(schedule(next_run_at=9))
    assert (found(store).paused_at, found(store).created_at) == (0, 0)
    assert store.remove_schedule(NAME, KEY, 0) is False
    store.resume_schedule(NAME, KEY)
    assert found(store).paused_at is None
    assert store.remove_schedule(NAME, KEY, 1) is True
    store.close()


def test_a_short_pause_leaves_the_next_occurrence_alone(store: Store, clock: FakeClock) -> None:
    """It had not come yet."""
    at = clock.now_ms() + 5
    store.upsert_schedule(schedule(next_run_at=at, anchor=at))
    store.pause_schedule(NAME, KEY)
    store.resume_schedule(NAME, KEY)
    assert found(store).next_run_at == at


def test_a_cadence_that_changes_while_it_is_resumed_is_the_one_it_goes_on_by(
    store: Store, clock: FakeClock
) -> None:
    """The occurrence counted by the one before it is not taken."""
    now = clock.now_ms()
    store.upsert_schedule(schedule(next_run_at=now + 10, anchor=now + 10))
    store.pause_schedule(NAME, KEY)
    other = schedule(next_run_at=now + 777, anchor=now + 777, cadence=Cadence(every_ms=1_000))
    read = store.get_schedule

    def registered_meanwhile(name: str, key: str) -> ScheduleRecord | None:
        before = read(name, key)
        if before is not None and before.cadence == HOURLY:
            store.upsert_schedule(other)
        return before

    store.get_schedule = registered_meanwhile  # type: ignore[method-assign]
    assert store.resume_schedule(NAME, KEY) is True
    store.get_schedule = read  # type: ignore[method-assign]
    assert (found(store).paused_at, found(store).next_run_at) == (None, now + 777)


def test_to_resume_what_is_not_paused_skips_nothing(store: Store, clock: FakeClock) -> None:
    """An occurrence that is due is still to come."""
    at = clock.now_ms() - 5
    store.upsert_schedule(schedule(next_run_at=at, anchor=at))
    assert store.resume_schedule(NAME, KEY) is True
    assert due(store) == [(at, KEY)]


def test_a_pause_wins_over_a_tick_that_read_the_schedule_before(store: Store) -> None:
    """Once it is answered the schedule makes no job."""
    store.upsert_schedule(schedule(next_run_at=100))
    (view,) = store.due_schedules().schedules
    store.pause_schedule(NAME, KEY)
    before = snapshot(store)
    assert store.tick_all([Tick(view, 200)]) == [False]
    assert snapshot(store) == before
    assert ids(store) == []


def test_a_schedule_that_is_removed_leaves_its_jobs(store: Store, clock: FakeClock) -> None:
    """Of the schedule itself nothing stays, paused or not."""
    for key in ("a", "b"):
        store.upsert_schedule(schedule(key, 1))
    assert store.tick(NAME, "a", 1, 2, job("made"))
    store.pause_schedule(NAME, "b")
    assert [store.remove_schedule(NAME, key) for key in ("a", "b", "a")] == [True, True, False]
    assert store.list_schedules() == []
    assert due(store) == []
    assert ids(store) == ["made"]
    assert not [key for key in snapshot(store) if "schedule" in key]
    assert store.tick(NAME, "a", 2, 3, job("late")) is False


@pytest.mark.parametrize("paused", [False, True])
def test_a_schedule_is_removed_as_it_was_registered_or_not_at_all(
    store: Store, clock: FakeClock, paused: bool
) -> None:
    """One that was registered again since it was read stays, with its place."""
    at = clock.now_ms()
    store.upsert_schedule(schedule(next_run_at=100))
    if paused:
        store.pause_schedule(NAME, KEY)
    clock.advance(1)
    store.upsert_schedule(schedule(next_run_at=100))
    before = snapshot(store)
    assert store.remove_schedule(NAME, KEY, at) is False
    assert snapshot(store) == before
    assert store.remove_schedule(NAME, KEY, at + 1) is True
    assert store.remove_schedule(NAME, KEY, at + 1) is False
    assert not [key for key in snapshot(store) if "schedule" in key]


def test_what_is_unknown_is_neither_paused_nor_resumed_nor_removed(store: Store) -> None:
    """And leaves nothing behind."""
    assert store.pause_schedule(NAME, KEY) is False
    assert store.resume_schedule(NAME, KEY) is False
    assert store.remove_schedule(NAME, KEY) is False
    assert store.remove_schedule(NAME, KEY, 0) is False
    assert snapshot(store) == {}


@pytest.mark.parametrize("instant", ["soon", None, True, 1.5, -1, 2**62, b"1", 253_402_300_800_000])
def test_what_is_no_instant_is_refused_before_anything_is_sent(store: Store, instant: Any) -> None:
    """A script cannot undo its first write when the second one fails."""
    store.upsert_schedule(schedule(next_run_at=100))
    before = snapshot(store)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("expected", lambda: store.advance_schedule(NAME, KEY, instant, 200)),
        ("next_run_at", lambda: store.advance_schedule(NAME, KEY, 100, instant)),
        ("expected", lambda: store.tick(NAME, KEY, instant, 200, occurrence(100))),
        ("next_run_at", lambda: store.tick(NAME, KEY, 100, instant, occurrence(100))),
    ]
    if instant is not None:
        calls.append(("updated_at", lambda: store.remove_schedule(NAME, KEY, instant)))
    for what, call in calls:
        with pytest.raises((TypeError, ValueError), match=f"^{what} must be [^\n]*$"):
            call()
    assert snapshot(store) == before


@pytest.mark.parametrize("wrong", [None, 1, True, b"a", "", "a\nb", ["a"]])
def test_what_can_name_no_schedule_is_refused(store: Store, wrong: Any) -> None:
    """In one line, about the argument; nothing is sent."""
    for verb, more in (
        ("pause_schedule", ()),
        ("resume_schedule", ()),
        ("remove_schedule", ()),
        ("get_schedule", ()),
        ("run_schedule_now", ()),
        ("advance_schedule", (1, 2)),
        ("tick", (1, 2, occurrence(1))),
    ):
        act = getattr(store, verb)
        with pytest.raises((TypeError, ValueError), match=r"^job name [^\n]*$"):
            act(wrong, KEY, *more)
        with pytest.raises((TypeError, ValueError), match=r"^schedule key [^\n]*$"):
            act(NAME, wrong, *more)
    for asked, what in (("name", "job name"), ("queue", "queue"), ("group", "group")):
        if wrong is None or (asked, wrong) == ("group", ""):
            continue  # every one, and those of no group
        with pytest.raises((TypeError, ValueError), match=f"^{what} [^\n]*$"):
            store.list_schedules(**{asked: wrong})
    assert snapshot(store) == {}


# Lost replies


def seeded(server: Server, prefix: str, clock: FakeClock) -> Store:
    """A store with schedules that are due and one that is paused, and all its scripts loaded."""
    store = Store(server.url, prefix=prefix, clock=clock)
    for name in store._caller._scripts:
        store._caller._load(name)
    store.enqueue(job("taken"))
    for key in ("a", "b", "paused"):
        store.upsert_schedule(schedule(key, 100))
    store.pause_schedule(NAME, "paused")
    return store


def behind(proxy: Proxy, clock: FakeClock) -> Store:
    """The same store through the proxy, connected; it waits for a reply but briefly."""
    store = Store(proxy.url, prefix="faulty", clock=clock, socket_timeout=0.2)
    store.list_schedules()
    return store


Verb = Callable[[Store], Any]

VERBS: dict[str, Verb] = {
    "upsert created": lambda s: s.upsert_schedule(schedule("new", 300)),
    "upsert kept": lambda s: s.upsert_schedule(schedule("a", 300)),
    "declare left": lambda s: s.declare_schedule(
        schedule("a", 300, cadence=Cadence(every_ms=1)), reset=False
    ),
    "upsert reset": lambda s: s.upsert_schedule(schedule("a", 300, cadence=Cadence(every_ms=1))),
    "tick": lambda s: s.tick(NAME, "a", 100, 200, occurrence(100, "a")),
    "tick of a taken id": lambda s: s.tick(NAME, "a", 100, 200, job("taken")),
    "stale tick": lambda s: s.tick(NAME, "a", 99, 200, job("made")),
    "tick_all": lambda s: s.tick_all([Tick(one, 200) for one in s.due_schedules().schedules]),
    "advance": lambda s: s.advance_schedule(NAME, "a", 100, 200),
    "stale advance": lambda s: s.advance_schedule(NAME, "a", 99, 200),
    "remove": lambda s: s.remove_schedule(NAME, "a"),
    "remove of what was read": lambda s: s.remove_schedule(NAME, "a", found(s, "a").updated_at),
    "remove of what has changed": lambda s: s.remove_schedule(NAME, "a", 1),
    "remove unknown": lambda s: s.remove_schedule(NAME, "unknown"),
    "pause": lambda s: s.pause_schedule(NAME, "a"),
    "pause paused": lambda s: s.pause_schedule(NAME, "paused"),
    "pause unknown": lambda s: s.pause_schedule(NAME, "unknown"),
    "resume": lambda s: s.resume_schedule(NAME, "paused"),
    "due": lambda s: [one.key for one in s.due_schedules().schedules],
    "list": lambda s: [one.key for one in s.list_schedules()],
    "get": lambda s: s.get_schedule(NAME, "a"),
}


def kept(store: Store) -> dict[str, Any]:
    """All that a store holds, without its prefix, the nonces, and answers that expire."""
    content = {}
    for key, value in snapshot(store).items():
        bare = key.removeprefix(store.keys.root)
        if isinstance(value, dict):
            value.pop("nonce", None)
        if not bare.startswith("answered:"):
            content[bare] = value
    return content


@pytest.mark.parametrize("how", ["close", "hang"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_whose_reply_is_lost_answers_and_acts_as_if_it_were_not(
    proxy: Proxy, real_server: Server, clock: FakeClock, verb: str, how: Fault
) -> None:
    """Same answer and same keyspace as beside a store whose replies all came."""
    other, sound = (seeded(real_server, prefix, clock) for prefix in ("faulty", "sound"))
    faulty = behind(proxy, clock)
    proxy.swallow_next_reply(how)
    answer = VERBS[verb](faulty)
    assert proxy.swallowed == 1
    assert answer == VERBS[verb](sound)
    assert kept(other) == kept(sound)
    assert violations(other) == []
    for one in (faulty, other, sound):
        one.close()


MEANWHILE: dict[str, tuple[Verb, Verb, Any, Verb, Any]] = {
    "registered again after a remove": (
        lambda s: s.remove_schedule(NAME, "a"),
        lambda s: s.upsert_schedule(schedule("a", 700)),
        True,
        lambda s: found(s, "a").next_run_at,
        700,
    ),
    "declared again after a prune": (
        lambda s: s.remove_schedule(NAME, "a", s.clock.now_ms()),
        lambda s: s.upsert_schedule(schedule("a", 700)),
        True,
        lambda s: found(s, "a").next_run_at,
        700,
    ),
    "removed after a registration": (
        lambda s: s.upsert_schedule(schedule("new", 300)),
        lambda s: s.remove_schedule(NAME, "new"),
        ("created", 300),
        lambda s: s.get_schedule(NAME, "new"),
        None,
    ),
    "resumed after a pause": (
        lambda s: s.pause_schedule(NAME, "a"),
        lambda s: s.resume_schedule(NAME, "a"),
        True,
        lambda s: found(s, "a").paused_at,
        None,
    ),
    "moved on after a tick": (
        lambda s: s.tick(NAME, "a", 100, 200, occurrence(100, "a")),
        lambda s: s.tick(NAME, "a", 200, 300, occurrence(200, "a")),
        True,
        lambda s: (found(s, "a").next_run_at, len(ids(s))),
        (300, 3),
    ),
}


@pytest.mark.parametrize("story", MEANWHILE)
def test_what_happened_before_the_call_was_sent_again_stands(
    proxy: Proxy,
    real_server: Server,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    story: str,
) -> None:
    """The call is told what its first way has done, and does not do it twice."""
    verb, act, answer, look, left = MEANWHILE[story]
    other, faulty = seeded(real_server, "faulty", clock), behind(proxy, clock)
    acted = act_before_repeats(faulty, lambda: act(other), monkeypatch)
    proxy.swallow_next_reply("close")
    assert verb(faulty) == answer
    assert (proxy.swallowed, len(acted)) == (1, 1)
    assert look(other) == left
    assert violations(other) == []
    faulty.close()
    other.close()


def test_a_paused_queue_holds_the_jobs_of_a_schedule(store: Store, clock: FakeClock) -> None:
    """They are made on time, and wait."""
    store.pause(QUEUE)
    store.upsert_schedule(schedule(next_run_at=1))
    assert store.tick(NAME, KEY, 1, 2, job("made")) is True
    assert take(store) == []
    store.resume(QUEUE)
    assert take(store) == ["made"]
