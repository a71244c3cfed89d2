"""The ticker: one job an occurrence whoever looks, policies for late ones, declared sets."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
from helpers import wait_until
from servers import Server
from transitions.invariants import violations
from transitions.seed import raw
from worker.build import worker_of

import mq
from mq import cadence
from mq.clock import FakeClock
from mq.records import ScheduleRecord
from mq.schedules import Drift, ScheduleSet
from mq.store import Store
from mq.store.scheduling import SCHEDULE_BATCH, TICK_BATCH, Due, Tick
from mq.worker.options import read_options
from mq.worker.outage import Streak
from mq.worker.ticker import LEFT_MS, Ticker

HOUR_MS = 3_600_000
START_MS = 1_767_225_600_000
"""2026-01-01T00:00Z."""


@pytest.fixture
def clock() -> FakeClock:
    """Begins with a year."""
    return FakeClock(START_MS)


@pytest.fixture
def app(server: Server, clock: FakeClock) -> Iterator[mq.App]:
    """An app on each back end, by a clock of the test."""
    made = mq.App(server.url, clock=clock)
    yield made
    made.close()


@pytest.fixture
def report(app: mq.App) -> mq.Job[str, None]:
    """A definition to schedule."""
    return report_of(app)


def report_of(app: mq.App) -> mq.Job[str, None]:
    """The same definition in any app."""
    return app.define("report", payload=str, result=None)


def ticker_of(store: Store, *sets: ScheduleSet, interval: str = "15s") -> Ticker:
    """A ticker whose thread is the test's own."""
    return Ticker(store, sets, read_options(schedule_interval=interval), Streak())


def slots(store: Store) -> list[int]:
    """The occurrences that jobs were made of, in order."""
    items = store.list(name="report", limit=500).items
    return sorted(int(one.metadata["scheduled_for"]) for one in items)


def found(store: Store, key: str = "k") -> ScheduleRecord:
    """A schedule that exists."""
    record = store.get_schedule("report", key)
    assert record is not None
    return record


def test_an_occurrence_becomes_a_job_at_its_instant(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """Not a millisecond sooner, and once however often one looks."""
    report.schedule("k", every="1h", payload="a")
    ticker = ticker_of(app.store)
    clock.advance(HOUR_MS - 1)
    ticker.look()
    assert slots(app.store) == []
    clock.advance(1)
    for _ in range(3):
        ticker.look()
    assert slots(app.store) == [START_MS + HOUR_MS]
    assert ticker.ticked == 1
    (made,) = app.store.list(name="report").items
    assert made.id == f"sched/report/k/{START_MS + HOUR_MS}"
    read = report.get_job(made.id)
    assert read is not None
    assert read.payload == "a"


def test_missed_occurrences_become_one_job(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """The oldest of them; then the schedule goes on on its grid."""
    report.schedule("k", every="1h", payload="a")
    report.schedule("daily", cron="30 2 * * *", tz="Europe/Paris", payload="a")
    clock.advance(100 * HOUR_MS + 5)
    ticker = ticker_of(app.store)
    ticker.look()
    ticker.look()
    assert slots(app.store) == [START_MS + HOUR_MS, START_MS + HOUR_MS * 3 // 2]
    assert found(app.store).next_run_at == START_MS + 101 * HOUR_MS
    assert found(app.store, "daily").next_run_at == START_MS + HOUR_MS * (96 * 2 + 3 + 48) // 2
    clock.set(START_MS + 101 * HOUR_MS)
    ticker.look()
    assert slots(app.store)[-1] == START_MS + 101 * HOUR_MS


def test_a_late_schedule_with_a_key_that_none_can_have_holds_up_no_other(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None], lines: Callable[..., list[str]]
) -> None:
    """Another program wrote it: it is complained of once, and left where it stands."""
    store, odd = app.store, "k" * 257
    report.schedule("k", every="1h", payload="a", max_lateness="1m")
    report.schedule("fine", every="2h", payload="a")
    client = store._caller.client
    client.execute_command(
        "RENAME", store.keys.schedule("report", "k"), store.keys.schedule("report", odd)
    )
    client.execute_command("ZREM", store.keys.schedules(), "report:k")
    client.execute_command("ZADD", store.keys.schedules(), START_MS + HOUR_MS, f"report:{odd}")
    clock.advance(2 * HOUR_MS)
    ticker = ticker_of(store)
    ticker.look()
    ticker.look()
    assert slots(store) == [START_MS + 2 * HOUR_MS]
    assert len([line for line in lines(logging.ERROR) if odd in line]) == 1


def test_an_interval_stays_on_its_first_grid_whatever_happens(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """Registered again, with no worker for a while, paused, paused while it was registered."""
    ticker = ticker_of(app.store)

    def register() -> None:
        assert report.schedule("k", every="1h", payload="a").change in ("created", "kept")

    register()
    for away_ms, act in (
        (HOUR_MS // 3, register),
        (HOUR_MS, register),
        (7 * HOUR_MS + 123, register),
        (HOUR_MS // 7, lambda: app.store.pause_schedule("report", "k")),
        (5 * HOUR_MS // 2, register),
        (HOUR_MS // 11, lambda: app.store.resume_schedule("report", "k")),
        (HOUR_MS, register),
        (HOUR_MS, register),
    ):
        clock.advance(away_ms)
        ticker.look()
        act()
        assert (found(app.store).next_run_at - START_MS) % HOUR_MS == 0
    assert [(slot - START_MS) / HOUR_MS for slot in slots(app.store)] == [1, 2, 12, 13]


def test_an_occurrence_that_is_too_late_makes_no_job(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None], lines: Callable[..., list[str]]
) -> None:
    """Exactly as late as allowed is not too late."""
    report.schedule("k", every="1h", payload="a", max_lateness="10m")
    ticker = ticker_of(app.store)
    clock.advance(HOUR_MS + 600_000)
    ticker.look()
    assert slots(app.store) == [START_MS + HOUR_MS]
    clock.advance(HOUR_MS + 1)
    ticker.look()
    assert slots(app.store) == [START_MS + HOUR_MS]
    assert found(app.store).next_run_at == START_MS + 3 * HOUR_MS
    assert [line for line in lines() if "schedule report:k" in line] == [
        "schedule report:k: its occurrence is 600001 ms late, no job"
    ]


def test_of_missed_occurrences_the_first_that_is_not_too_late_is_made(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """Those before it are skipped, and no more."""
    report.schedule("k", every="1h", payload="a", max_lateness="90m")
    report.schedule("none", every="1h", payload="a", max_lateness=0)
    clock.advance(5 * HOUR_MS + 60_000)
    ticker = ticker_of(app.store)
    ticker.look()
    assert slots(app.store) == [START_MS + 4 * HOUR_MS]
    assert found(app.store).next_run_at == START_MS + 6 * HOUR_MS
    assert found(app.store, "none").next_run_at == START_MS + 6 * HOUR_MS
    clock.set(START_MS + 8 * HOUR_MS)
    ticker.look()
    late = [START_MS + 7 * HOUR_MS, START_MS + 8 * HOUR_MS]
    assert slots(app.store) == [START_MS + 4 * HOUR_MS, *late]


@pytest.mark.parametrize("end", ["ack_completed", "ack_failed", "removed", "cancelled"])
def test_an_overlap_is_skipped_until_the_last_job_has_finished(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None], end: str
) -> None:
    """While it waits and while it runs; a job that is gone is finished."""
    store = app.store
    report.schedule("k", every="1h", payload="a", overlap="skip")
    ticker = ticker_of(store)
    for _ in range(2):
        clock.advance(HOUR_MS)
        ticker.look()
    assert slots(store) == [START_MS + HOUR_MS]
    job_id = found(store).last_job_id
    assert job_id is not None
    if end.startswith("ack"):
        store.claim(["default"], ["report"], "token", 9 * HOUR_MS)
        clock.advance(HOUR_MS)
        ticker.look()
        assert slots(store) == [START_MS + HOUR_MS]
        getattr(store, end)(job_id, "token", b"")
    elif end == "removed":
        store.remove(job_id)
    else:
        store.cancel(job_id)
    clock.advance(HOUR_MS)
    ticker.look()
    last = (clock.now_ms() - START_MS) // HOUR_MS * HOUR_MS + START_MS
    assert slots(store)[-1] == last
    assert found(store).next_run_at == last + HOUR_MS


def test_overlaps_are_allowed_unless_told_otherwise(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """Each occurrence has its job."""
    report.schedule("k", every="1h", payload="a")
    ticker = ticker_of(app.store)
    for _ in range(3):
        clock.advance(HOUR_MS)
        ticker.look()
    assert slots(app.store) == [START_MS + HOUR_MS * n for n in (1, 2, 3)]


def test_a_paused_schedule_makes_no_jobs(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """And does not make up for them when it is resumed."""
    report.schedule("k", every="1h", payload="a")
    app.store.pause_schedule("report", "k")
    ticker = ticker_of(app.store)
    clock.advance(5 * HOUR_MS + 1)
    ticker.look()
    app.store.resume_schedule("report", "k")
    ticker.look()
    assert slots(app.store) == []
    clock.advance(HOUR_MS)
    ticker.look()
    assert slots(app.store) == [START_MS + 6 * HOUR_MS]


def test_time_begins_at_0(server: Server) -> None:
    """The first occurrence of an interval that was registered then, and the second."""
    clock = FakeClock(0)
    app = mq.App(server.url, clock=clock)
    report = report_of(app)
    report.schedule("k", every="1h", payload="a")
    ticker = ticker_of(app.store)
    for hour in (0, 1, 2):
        clock.set(hour * HOUR_MS)
        report.schedule("k", every="1h", payload="a")
        ticker.look()
    assert slots(app.store) == [HOUR_MS, 2 * HOUR_MS]
    app.close()


def test_the_next_look_is_when_the_next_schedule_falls_due(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """At the latest after an interval, give or take a tenth, and never without a pause."""
    ticker = ticker_of(app.store)
    ticker.look()
    assert 13 < ticker.pause_s() < 17
    report.schedule("k", every="1h", payload="a")
    ticker.look()
    assert 13 < ticker.pause_s() < 17
    clock.advance(HOUR_MS - 250)
    ticker.look()
    assert 0 < ticker.pause_s() <= 0.25
    clock.advance(250)
    ticker.look()
    assert 13 < ticker.pause_s() < 17
    report.schedule("brisk", every="1s", payload="a")
    clock.advance(1_000)
    ticker.look()
    assert ticker.ticked == 2
    assert 0 < ticker.pause_s() <= 1


def test_a_schedule_that_cannot_be_read_here_is_left_to_others(
    app: mq.App,
    clock: FakeClock,
    report: mq.Job[str, None],
    lines: Callable[..., list[str]],
) -> None:
    """A zone that this host does not have, a record somebody spoilt: told once, others go on."""
    for key in ("a", "b", "c"):
        report.schedule(key, every="1h", payload="a")
    spoil = raw(app.store)
    spoil.hset(app.store.keys.schedule("report", "a"), "cadence", "cron Mars/Olympus 0 0 * * *")
    spoil.hset(app.store.keys.schedule("report", "b"), "cadence", "daily")
    clock.advance(HOUR_MS)
    ticker = ticker_of(app.store)
    for _ in range(3):
        ticker.look()
        assert ticker.pause_s() > 10
    made = [one.id for one in app.store.list(name="report").items]
    assert made == [f"sched/report/c/{clock.now_ms()}"]
    told = [line for line in lines(logging.ERROR) if "is left to other workers" in line]
    assert [line.partition(" is left")[0] for line in sorted(told)] == [
        "schedule report:a",
        "schedule report:b",
    ]
    assert found(app.store, "a").next_run_at == clock.now_ms()


@pytest.fixture
def other_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Called, it gives every zone the rules of UTC, as in a process with newer zone data."""

    def change() -> None:
        known = cadence._zone
        monkeypatch.setattr(cadence, "_zone", lambda tz: known("UTC"))
        cadence._next_cron.cache_clear()

    yield change
    cadence._next_cron.cache_clear()


def test_a_zone_whose_rules_change_under_a_schedule_counts_from_the_next_occurrence(
    app: mq.App,
    clock: FakeClock,
    report: mq.Job[str, None],
    other_rules: Callable[[], None],
) -> None:
    """The one that stands is kept; the ones after it go by the new rules."""
    report.schedule("k", cron="30 2 * * *", tz="Europe/Paris", payload="a")
    stood = START_MS + HOUR_MS * 3 // 2
    assert found(app.store).next_run_at == stood
    other_rules()
    report.schedule("k", cron="30 2 * * *", tz="Europe/Paris", payload="a")
    clock.set(stood)
    ticker_of(app.store).look()
    assert slots(app.store) == [stood]
    assert found(app.store).next_run_at == START_MS + HOUR_MS * 5 // 2
    clock.set(START_MS + HOUR_MS * 5 // 2)
    ticker_of(app.store).look()
    assert slots(app.store) == [stood, clock.now_ms()]
    assert found(app.store).next_run_at == clock.now_ms() + 24 * HOUR_MS


# Many who look


def test_ten_thousand_that_are_due_together_are_made_once_each(one_server: Server) -> None:
    """By two tickers at once, a bounded number read at a time."""
    clock, number = FakeClock(START_MS), 10_000
    apps = [mq.App(one_server.url, clock=clock) for _ in range(2)]
    report = report_of(apps[0])
    report.schedule("first", every="1h", payload="a")
    first = found(apps[0].store, "first")
    with ThreadPoolExecutor(4) as pool:
        records = (attrs.evolve(first, key=f"k{at:05}") for at in range(number - 1))
        list(pool.map(apps[0].store.upsert_schedule, records))
    clock.advance(HOUR_MS)
    pages: list[int] = []

    def watched(store: Store) -> Ticker:
        look = store.due_schedules

        def noted(*args: Any, **given: Any) -> Due:
            page = look(*args, **given)
            pages.append(len(page.schedules))
            return page

        store.due_schedules = noted  # type: ignore[method-assign]
        return ticker_of(store)

    tickers = [watched(app.store) for app in apps]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Ticker.look, tickers))
    assert sum(ticker.ticked for ticker in tickers) == number
    assert max(pages) <= SCHEDULE_BATCH
    counts = apps[0].store.counts()
    assert {state.value: count for state, count in counts.items() if count} == {"waiting": number}
    assert apps[0].store.due_schedules().schedules == []
    assert found(apps[0].store, "k00077").last_job_id == (
        f"sched/report/k00077/{START_MS + HOUR_MS}"
    )
    for app in apps:
        app.close()


@pytest.mark.parametrize("hours", [0, 2])
def test_a_ticker_that_is_stopped_in_mid_pass_makes_nothing_twice(
    app: mq.App, server: Server, clock: FakeClock, report: mq.Job[str, None], hours: int
) -> None:
    """It has read what is due; another does it, time goes on, and then it comes back.

    It leaves each page to the other as soon as it finds it there, and soon looks again.
    """
    for at in range(101):
        report.schedule(f"k{at:03}", every="1h", payload="a")
    clock.advance(HOUR_MS)
    other = Store(server.url, clock=clock)
    stopped, awake = ticker_of(app.store), ticker_of(other)
    tick_all = app.store.tick_all
    passes: list[int] = []

    def held(ticks: list[Tick]) -> list[bool]:
        if not passes:
            awake.look()
            for _ in range(hours):
                clock.advance(HOUR_MS)
                awake.look()
        passes.append(len(ticks))
        return tick_all(ticks)

    app.store.tick_all = held  # type: ignore[method-assign,assignment]
    stopped.look()
    assert passes == [TICK_BATCH]
    assert stopped.pause_s() <= LEFT_MS / 1000
    awake.look()
    assert (stopped.ticked, awake.ticked) == (0, 101 * (1 + hours))
    assert sum(app.store.counts().values()) == 101 * (1 + hours)
    assert violations(app.store) == []
    other.close()


def test_a_ticker_that_was_stopped_alone_catches_up(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """It makes what it had read, and what was missed since then once."""
    report.schedule("k", every="1h", payload="a")
    clock.advance(HOUR_MS)
    ticker, tick_all = ticker_of(app.store), app.store.tick_all

    def held(ticks: list[Tick]) -> list[bool]:
        clock.advance(9 * HOUR_MS)
        app.store.tick_all = tick_all  # type: ignore[method-assign]
        return tick_all(ticks)

    app.store.tick_all = held  # type: ignore[method-assign,assignment]
    ticker.look()
    ticker.look()
    assert slots(app.store) == [START_MS + HOUR_MS, START_MS + 2 * HOUR_MS]
    assert found(app.store).next_run_at == START_MS + 11 * HOUR_MS


@pytest.mark.parametrize("skew_s", [-300, 300])
def test_the_clock_of_a_host_does_not_matter(
    one_server: Server, monkeypatch: pytest.MonkeyPatch, skew_s: int
) -> None:
    """What is due is judged by the server, and an interval begins by it."""
    app = mq.App(one_server.url)
    report = report_of(app)
    before = app.store.now_ms()
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + skew_s)
    made = report.schedule("k", every="60s", payload="a")
    assert before + 60_000 <= made.next_run_at <= app.store.now_ms() + 60_000
    ticker = ticker_of(app.store)
    ticker.look()
    assert slots(app.store) == []
    assert ticker.pause_s() < 17
    app.close()


def test_a_servers_clock_that_is_set_back_makes_no_occurrence_twice(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """After a failover the new server may be behind: what was made stays made."""
    report.schedule("k", every="1h", payload="a")
    ticker = ticker_of(app.store)
    for at in (HOUR_MS, HOUR_MS - 300_000, 0, HOUR_MS, HOUR_MS + 1):
        clock.set(START_MS + at)
        ticker.look()
        report.schedule("k", every="1h", payload="a")
    assert slots(app.store) == [START_MS + HOUR_MS]
    assert found(app.store).next_run_at == START_MS + 2 * HOUR_MS


# Sets


def declared(
    app: mq.App, report: mq.Job[str, None], *keys: str, every: str = "1h", grace: str | None = None
) -> ScheduleSet:
    """A set of one group with these schedules."""
    made = ScheduleSet(app, "owner", prune_after=grace)
    for key in keys:
        made.add(report, key, every=every, payload="a")
    return made


def keys_of(store: Store) -> list[str]:
    """The keys of every schedule."""
    return sorted(one.key for one in store.list_schedules())


def test_a_set_is_registered_and_its_drift_is_told(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None], lines: Callable[..., list[str]]
) -> None:
    """What was missing, what had another cadence, what nobody declares any more."""
    store = app.store
    assert declared(app, report, "a", "b").apply(store) == Drift(
        created=["report:a", "report:b"], reset=[], extra=[], pruned=[]
    )
    assert declared(app, report, "a", "b").apply(store) == Drift([], [], [], [])
    report.schedule("by hand", every="1h", payload="a")
    clock.advance(5)
    newer = declared(app, report, "b", "c", every="2h")
    assert newer.apply(store) == Drift(
        created=["report:c"], reset=["report:b"], extra=["report:a"], pruned=[]
    )
    assert found(store, "b").next_run_at == clock.now_ms() + 2 * HOUR_MS
    assert {one.group for one in store.list_schedules()} == {"", "owner"}
    ticker_of(store, newer).look()
    assert [line for line in lines() if "schedules of owner" in line] == [
        "schedules of owner: not declared any more report:a"
    ]


def test_nothing_is_pruned_without_a_grace(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """However long ago it was declared."""
    declared(app, report, "a", "b").apply(app.store)
    clock.advance(10_000 * HOUR_MS)
    assert declared(app, report, "b").apply(app.store).extra == ["report:a"]
    assert keys_of(app.store) == ["a", "b"]


def test_what_nobody_declares_for_the_grace_is_pruned(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """Of this group alone; exactly the grace is long enough."""
    store = app.store
    declared(app, report, "a", "b").apply(store)
    report.schedule("other", every="1h", payload="a", group="elsewhere")
    report.schedule("by hand", every="1h", payload="a")
    newer = declared(app, report, "b", grace="1h")
    clock.advance(HOUR_MS - 1)
    assert newer.apply(store) == Drift([], [], ["report:a"], [])
    clock.advance(1)
    assert newer.apply(store) == Drift([], [], [], ["report:a"])
    assert keys_of(store) == ["b", "by hand", "other"]


@pytest.mark.parametrize("other", ["declares it", "has pruned it"])
def test_what_another_process_does_between_the_list_and_the_removal_stands(
    app: mq.App, server: Server, clock: FakeClock, report: mq.Job[str, None], other: str
) -> None:
    """Declared again it stays, with its next occurrence; pruned already, it is not this one's."""
    theirs = Store(server.url, clock=clock)
    old = mq.App(server.url, clock=clock)
    old_set = declared(old, report_of(old), "a")
    old_set.apply(old.store)
    next_run_at = found(theirs, "a").next_run_at
    clock.advance(HOUR_MS)
    list_schedules = app.store.list_schedules

    def listed(**asked: Any) -> list[ScheduleRecord]:
        read = list_schedules(**asked)
        if other == "declares it":
            clock.advance(1)
            old_set.apply(old.store)
        else:
            assert theirs.remove_schedule("report", "a")
        return read

    app.store.list_schedules = listed  # type: ignore[method-assign,assignment]
    drift = declared(app, report, "b", grace="1h").apply(app.store)
    if other == "declares it":
        assert drift == Drift(["report:b"], [], ["report:a"], [])
        assert found(theirs, "a").next_run_at == next_run_at
        assert keys_of(theirs) == ["a", "b"]
    else:
        assert drift == Drift(["report:b"], [], [], [])
        assert keys_of(theirs) == ["b"]
    old.close()
    theirs.close()


def test_a_set_that_declares_nothing_any_more_prunes_the_last_one(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """An empty set still owns its group."""
    declared(app, report, "a").apply(app.store)
    clock.advance(HOUR_MS)
    assert declared(app, report, grace="1h").apply(app.store).pruned == ["report:a"]
    assert keys_of(app.store) == []


def test_a_set_registers_in_each_store_what_is_bound_to_it(
    app: mq.App, server: Server, clock: FakeClock
) -> None:
    """A worker of one store leaves the schedules of another alone."""
    audit = Store(server.url, prefix="audit", clock=clock)
    both = mq.App(server.url, clock=clock, stores={"audit": audit})
    here: mq.Job[str, Any] = both.define("here", payload=str)
    there: mq.Job[str, Any] = both.define("there", payload=str, store="audit")
    owned = both.schedules("owner", prune_after="1h")
    owned.add(here, "k", every="1h", payload="a")
    owned.add(there, "k", every="1h", payload="a")
    assert owned.apply(both.store).created == ["here:k"]
    assert owned.apply(audit).created == ["there:k"]
    clock.advance(HOUR_MS)
    assert owned.apply(both.store) == Drift([], [], [], [])
    both.close()


def test_while_a_deploy_rolls_old_and_new_workers_keep_theirs(
    app: mq.App, server: Server, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """The old ones declare again within the grace; when they are gone, what was theirs goes."""
    other = Store(server.url, clock=clock)
    old_app = mq.App(server.url, clock=clock)
    old_report = report_of(old_app)
    old = ticker_of(old_app.store, declared(old_app, old_report, "old", "both", grace="1h"))
    new = ticker_of(app.store, declared(app, report, "both", "new", grace="1h"))
    old.look()
    next_run_at = found(other, "both").next_run_at
    for _ in range(3 * 4):
        clock.advance(HOUR_MS // 4 - 1)
        new.look()
        assert "old" in keys_of(other)
        old.look()
        assert keys_of(other) == ["both", "new", "old"]
    made = [one for one in other.list(name="report", limit=500).items if "/both/" in one.id]
    assert len(made) == (clock.now_ms() - next_run_at) // HOUR_MS + 1
    for _ in range(5):
        clock.advance(HOUR_MS // 4)
        new.look()
    assert keys_of(other) == ["both", "new"]
    old_app.close()
    other.close()


def test_two_releases_with_different_cadences_let_the_schedule_fire(
    app: mq.App,
    server: Server,
    clock: FakeClock,
    report: mq.Job[str, None],
    lines: Callable[..., list[str]],
) -> None:
    """Each process resets it once; the older one then leaves it alone, and says so once."""
    old_app = mq.App(server.url, clock=clock)
    old = ticker_of(old_app.store, declared(old_app, report_of(old_app), "k", grace="1h"))
    new = ticker_of(app.store, declared(app, report, "k", every="2h", grace="1h"))
    old.look()
    clock.advance(1_000)
    new.look()
    began = clock.now_ms()
    assert found(app.store).next_run_at == began + 2 * HOUR_MS
    for _ in range(4 * 4):
        clock.advance(HOUR_MS // 4)
        old.look()
        assert found(app.store).updated_at == clock.now_ms()
        new.look()
    assert found(app.store).cadence.every_ms == 2 * HOUR_MS
    assert slots(app.store) == [began + 2 * HOUR_MS, began + 4 * HOUR_MS]
    (told,) = [line for line in lines(logging.WARNING) if "report:k" in line]
    assert told == (
        "schedules of owner: report:k is declared as 'every 3600000', another process has made it"
        " 'every 7200000': it is left so"
    )
    old_app.close()


def test_a_schedule_that_is_left_alone_counts_as_declared(
    app: mq.App, server: Server, clock: FakeClock, report: mq.Job[str, None]
) -> None:
    """Nothing else of it changes, and nobody prunes it meanwhile."""
    mine = declared(app, report, "k", grace="1h")
    mine.apply(app.store)
    report.schedule("k", every="2h", payload="theirs", group="owner", overlap="skip")
    before = found(app.store)
    clock.advance(HOUR_MS)
    assert mine.apply(app.store) == Drift(left={"report:k": ("every 3600000", "every 7200000")})
    assert found(app.store) == attrs.evolve(before, updated_at=clock.now_ms())
    assert declared(app, report, grace="1h").apply(app.store) == Drift(extra=["report:k"])
    assert declared(app, report, "k").apply(app.store).reset == ["report:k"]


def test_a_schedule_that_is_taken_over_is_told(
    app: mq.App, clock: FakeClock, report: mq.Job[str, None], lines: Callable[..., list[str]]
) -> None:
    """From another owner and from nobody, once; created ones are nobody's."""
    report.schedule("a", every="1h", payload="a", group="billing")
    report.schedule("b", every="2h", payload="a")
    ticker = ticker_of(app.store, declared(app, report, "a", "b", "c", grace="1h"))
    for _ in range(3):
        ticker.look()
        clock.advance(HOUR_MS // 4)
    assert {one.group for one in app.store.list_schedules()} == {"owner"}
    assert [line for line in lines(logging.WARNING) if "report:" in line] == [
        "schedules of owner: report:a was of group billing, and is taken over",
        "schedules of owner: report:b was of no group, and is taken over",
    ]


def test_a_drift_reads_as_one_line() -> None:
    """What there is none of is not named."""
    assert str(Drift()) == "as declared"
    told = Drift(["a:1", "a:2"], ["b:1"], ["c:1"], ["d:1"], {"e:1": ""}, {"f:1": ("x", "y")})
    assert str(told) == (
        "created a:1, a:2; reset to the declared cadence b:1; not declared any more c:1;"
        " pruned d:1; e:1 was of no group, and is taken over;"
        " f:1 is declared as 'x', another process has made it 'y': it is left so"
    )


def test_a_set_with_a_grace_is_declared_again_within_it(
    app: mq.App, report: mq.Job[str, None], clock: FakeClock
) -> None:
    """However long the interval between two looks is."""
    ticker = ticker_of(app.store, declared(app, report, "k", grace="20s"), interval="1h")
    ticker.look()
    assert ticker.pause_s() == 5
    clock.advance(5_000)
    ticker.look()
    assert found(app.store).updated_at == START_MS + 5_000


# Workers


def test_a_burst_makes_and_runs_what_is_due(app: mq.App, clock: FakeClock) -> None:
    """Before it ends, however soon its queues are empty; and it declares the sets."""
    ran: list[str] = []

    @app.job("report")
    def report(word: str) -> None:
        """Note the word."""
        ran.append(word)

    report.schedule("k", every="1h", payload="a")
    app.schedules("owner").add(report, "declared", every="1h", payload="b")
    for _ in range(3):
        clock.advance(HOUR_MS)
        assert mq.Worker(app, burst=True).run() == 0
    assert sorted(ran) == ["a", "a", "a", "b", "b"]


def test_a_worker_makes_and_runs_the_jobs_of_a_schedule_on_time(one_server: Server) -> None:
    """One after the other on the grid, by several workers, one run each."""
    app = mq.App(one_server.url)
    ran: list[tuple[str, int]] = []

    @app.job("report")
    def report(word: str, ctx: mq.Context) -> None:
        """Note the occurrence."""
        ran.append((ctx.job_id, int(ctx.metadata["scheduled_for"])))

    made = report.schedule("k", every="0.1s", payload="a")
    # An interval that no test waits out: the ticker knows when the next occurrence comes.
    with worker_of(app, schedule_interval="60s"), worker_of(app, schedule_interval="60s"):
        wait_until(lambda: len(ran) >= 5, what="five occurrences")
    app.store.pause_schedule("report", "k")
    at = [slot for _, slot in sorted(ran)]
    assert len(set(at)) == len(at)
    assert {(slot - made.next_run_at) % 100 for slot in at} == {0}
    for job_id, slot in ran:
        assert job_id == f"sched/report/k/{slot}"
        record = app.store.get_job(job_id)
        assert record is not None
        assert record.enqueued_at >= slot
        assert len(app.store.get_attempts(job_id)) == 1
    app.close()


def test_a_worker_finds_a_schedule_that_was_registered_after_it_started(
    one_server: Server,
) -> None:
    """At its next look."""
    app = mq.App(one_server.url)
    ran: list[str] = []

    @app.job("report")
    def report(word: str) -> None:
        """Note the word."""
        ran.append(word)

    with worker_of(app, schedule_interval="0.05s"):
        report.schedule("k", every="0.2s", payload="a")
        wait_until(lambda: len(ran) >= 2, what="two occurrences")
        report.schedule("k", every="0.2s", payload="b")
        wait_until(lambda: "b" in ran, what="the new payload")
    app.close()


def test_a_worker_registers_the_sets_of_its_app(
    one_server: Server, lines: Callable[..., list[str]]
) -> None:
    """When it starts; a year of notice later it would still be there."""
    app = mq.App(one_server.url)

    @app.job("report")
    def report(word: str) -> None:
        """Nothing."""

    app.schedules("owner").add(report, "k", cron="0 0 1 1 *", payload="a")
    with worker_of(app):
        wait_until(lambda: app.store.get_schedule("report", "k"), what="the schedule")
        wait_until(lambda: any("schedules of owner" in line for line in lines()), what="the log")
    record = found(app.store)
    assert record.group == "owner"
    assert datetime.fromtimestamp(record.next_run_at / 1000, UTC).strftime("%m-%d") == "01-01"
    app.close()
