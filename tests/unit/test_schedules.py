"""Schedules of definitions: what is refused where it is written, and sets of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from transitions.seed import snapshot

import mq
from mq.clock import FakeClock
from mq.records import ScheduleRecord

HOUR_MS = 3_600_000
START_MS = 1_767_225_600_000
"""2026-01-01T00:00Z, a Thursday."""


@pytest.fixture
def clock() -> FakeClock:
    """Begins with a year."""
    return FakeClock(START_MS)


@pytest.fixture
def app(clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[mq.App]:
    """An app whose store is in this process, of this test alone."""
    made = mq.App(f"memory://{request.node.name}", clock=clock)
    yield made
    made.close()


@pytest.fixture
def report(app: mq.App) -> mq.Job[str, None]:
    """A definition with options of its own."""
    return app.define(
        "report", payload=str, queue="reports", attempts=3, metadata=lambda word: {"word": word}
    )


def found(job: mq.Job[Any, Any], key: str) -> ScheduleRecord:
    """A schedule that exists."""
    record = job.store.get_schedule(job.name, key)
    assert record is not None
    return record


def test_a_schedule_is_a_record_with_the_whole_request(report: mq.Job[str, None]) -> None:
    """Defaults of the definition, options of the call over them."""
    made = report.schedule(
        "nightly", cron="30 2 * * *", tz="Europe/Paris", payload="a", group="billing",
        overlap="skip", max_lateness="1h", attempts=5, priority=7, metadata={"more": "b"},
        timeout="2m", backoff=mq.fixed("1s"), keep=mq.Keep(count=3),
    )  # fmt: skip
    assert made.change == "created"
    assert made.next_run_at == START_MS + HOUR_MS + HOUR_MS // 2
    record = found(report, "nightly")
    assert record.cadence.encode() == "cron Europe/Paris 30 2 * * *"
    assert (record.next_run_at, record.created_at) == (made.next_run_at, START_MS)
    assert (record.group, record.overlap, record.max_lateness_ms) == ("billing", "skip", HOUR_MS)
    request = record.request
    assert (request.queue, request.attempts_max, request.priority) == ("reports", 5, 7)
    assert request.metadata == {"word": "a", "more": "b"}
    assert (request.timeout_ms, request.backoff) == (120_000, "fixed 1000")
    assert request.keep != ""
    assert (request.id, request.dedupe, request.delay_ms) == (None, None, None)


def test_an_interval_begins_at_the_registration(report: mq.Job[str, None]) -> None:
    """The first occurrence is one interval away."""
    assert report.schedule("hourly", every="1h", payload="a").next_run_at == START_MS + HOUR_MS


def test_an_occurrence_has_an_id_of_its_own_and_says_its_instant(
    report: mq.Job[str, None],
) -> None:
    """Whoever makes the job of an instant makes the same one."""
    report.schedule("a/b", every="1h", payload="a")
    request = found(report, "a/b").occurrence(123)
    assert request.id == "sched/report/a/b/123"
    assert request.metadata == {"word": "a", "scheduled_for": "123"}


def test_a_definition_with_an_idempotency_key_may_be_scheduled(app: mq.App) -> None:
    """The id of an occurrence goes before it; a default delay goes with the cadence."""
    job: mq.Job[Any, Any] = app.define(
        "keyed", payload=str, delay="5m", idempotency_key=lambda word: f"always-{word}"
    )
    job.schedule("k", every="1h", payload="a")
    request = found(job, "k").request
    assert (request.id, request.delay_ms) == (None, None)


def test_an_occurrence_runs_at_its_instant_whatever_delay_the_definition_has(app: mq.App) -> None:
    """The cadence says when; the delay of a definition is for what is enqueued."""
    job: mq.Job[Any, Any] = app.define("slow", payload=str, delay="5m")
    slot = job.schedule("k", every="1h", payload="a").next_run_at
    assert job.store.tick("slow", "k", slot, slot + 1, found(job, "k").occurrence(slot))
    at_once = job.store.run_schedule_now("slow", "k")
    for job_id in (f"sched/slow/k/{slot}", at_once or ""):
        made = job.store.get_job(job_id)
        assert made is not None
        assert made.state is mq.JobState.WAITING


def test_an_occurrence_has_its_instant_beside_all_the_metadata_there_may_be(
    app: mq.App, clock: FakeClock
) -> None:
    """Sixteen pairs of the job's own; a pair of that name gives way."""
    job: mq.Job[Any, Any] = app.define("full", payload=str)
    pairs = {**{f"k{at}": str(at) for at in range(15)}, "scheduled_for": "mine"}
    others = {f"k{at}": str(at) for at in range(16)}
    for key, metadata in (("a", pairs), ("b", others)):
        job.schedule(key, every="1h", payload="a", metadata=metadata)
        record = found(job, key)
        request = record.occurrence(record.next_run_at)
        assert job.store.tick("full", key, record.next_run_at, 2 * record.next_run_at, request)
        made = app.store.get_job(request.id or "")
        assert made is not None
        assert made.metadata == {**metadata, "scheduled_for": str(record.next_run_at)}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, TypeError),
        ({"cron": "* * * * *", "every": "1h"}, TypeError),
        ({"cron": "* * * *"}, ValueError),
        ({"cron": "61 * * * *"}, ValueError),
        ({"cron": "0 0 31 2 *"}, ValueError),
        ({"cron": "* * * * *", "tz": "Mars/Olympus"}, ValueError),
        ({"cron": "* * * * *", "tz": ""}, ValueError),
        ({"every": 0}, ValueError),
        ({"every": "1h", "dedupe": "k"}, ValueError),
        ({"every": "1h", "dedupe": mq.Dedupe("k", ttl="1h")}, ValueError),
        ({"every": "1h", "job_id": "mine"}, ValueError),
        ({"every": "1h", "at": datetime(2026, 1, 1, tzinfo=UTC)}, ValueError),
        ({"every": "1h", "at": datetime(2026, 1, 1)}, ValueError),  # noqa: DTZ001 the point
        ({"every": "1h", "delay": "1s"}, ValueError),
        ({"every": "1h", "overlap": "wait"}, ValueError),
        ({"every": "1h", "max_lateness": "-1s"}, ValueError),
        ({"every": "1h", "priority": 1001}, ValueError),
        ({"every": "1h", "unheard_of": 1}, TypeError),
        ({"every": "1h", "payload": 5}, mq.PayloadError),
    ],
)
def test_what_cannot_work_is_refused_with_nothing_written(
    report: mq.Job[str, None], given: dict[str, Any], error: type[Exception]
) -> None:
    """Where it is written, and alike by a call and by a set."""
    given = {"payload": "a", **given}
    with pytest.raises(error):
        report.schedule("k", **given)
    declared = report.app.schedules("owner")
    with pytest.raises(error):
        declared.add(report, "k", **given)
    assert snapshot(report.store) == {}


@pytest.mark.parametrize("key", ["", "k" * 257, "a\nb", "a\x00b", "\ud83d", 5, None])
def test_a_key_is_bounded_text(report: mq.Job[str, None], key: Any) -> None:
    """It stands in the ids of the jobs; nothing is written, and nothing removed."""
    with pytest.raises((ValueError, TypeError), match="schedule key"):
        report.schedule(key, every="1h", payload="a")
    with pytest.raises((ValueError, TypeError), match="schedule key"):
        report.unschedule(key)
    assert snapshot(report.store) == {}


def test_a_definition_with_dedupe_cannot_be_scheduled(app: mq.App) -> None:
    """Two rules for one job would meet; the message says what to do."""
    job: mq.Job[Any, Any] = app.define("deduped", payload=str, dedupe=lambda word: word)
    with pytest.raises(ValueError, match="schedule a definition without"):
        job.schedule("k", every="1h", payload="a")
    assert snapshot(job.store) == {}


def test_the_longest_key_makes_a_job(app: mq.App, clock: FakeClock) -> None:
    """With the longest name and an instant of the far future."""
    job: mq.Job[Any, Any] = app.define("n" * 64, payload=str)
    key = "\u20ac" * 85 + "k"
    clock.set(9_999_999_999_999)
    job.schedule(key, every="1h", payload="a")
    record = found(job, key)
    request = record.occurrence(record.next_run_at)
    assert job.store.tick(job.name, key, record.next_run_at, record.next_run_at + 1, request)
    assert request.id is not None
    assert app.store.get_job(request.id) is not None


def test_to_unschedule_tells_whether_there_was_one(report: mq.Job[str, None]) -> None:
    """Of this definition: another's key is another schedule."""
    other: mq.Job[Any, Any] = report.app.define("other", payload=str)
    other.schedule("k", every="1h", payload="a")
    assert report.unschedule("k") is False
    assert other.unschedule("k") is True
    assert other.unschedule("k") is False
    assert report.store.list_schedules() == []


def test_a_set_refuses_a_schedule_that_is_declared_twice(report: mq.Job[str, None]) -> None:
    """One key of a job is one schedule; a group is declared once in an app."""
    declared = report.app.schedules("owner")
    declared.add(report, "k", every="1h", payload="a")
    with pytest.raises(ValueError, match="declared twice"):
        declared.add(report, "k", every="2h", payload="a")
    with pytest.raises(mq.DefinitionError, match="declared already"):
        report.app.schedules("owner")
    with pytest.raises(ValueError, match="group"):
        report.app.schedules("not a name")


def test_two_sets_refuse_the_same_schedule(report: mq.Job[str, None]) -> None:
    """It has one owner; the message names both."""
    report.app.schedules("billing").add(report, "k", every="1h", payload="a")
    other = report.app.schedules("mail")
    with pytest.raises(ValueError, match="declared twice, by groups 'billing' and 'mail'"):
        other.add(report, "k", every="1h", payload="a")
    other.add(report, "l", every="1h", payload="a")


@pytest.mark.parametrize("given", [None, "report", 5, lambda word: None, mq.Keep(count=1)])
def test_a_set_says_what_it_takes(app: mq.App, given: Any) -> None:
    """In one line, where it is written."""
    with pytest.raises(TypeError, match=r"^add\(\) takes a definition[^\n]*$"):
        app.schedules("owner").add(given, "k", every="1h")


def test_a_set_takes_a_flow_as_its_parent(app: mq.App, report: mq.Job[str, None]) -> None:
    """Its schedule makes parents."""
    parent: mq.Job[Any, Any] = app.define("digest", payload=str)
    flow = app.flow("digests", parent=parent, children=[report])
    owned = app.schedules("owner")
    owned.add(flow, "k", every="1h", payload="a")
    assert owned.apply(app.store).created == ["digest:k"]


def test_a_set_refuses_a_definition_of_another_app(report: mq.Job[str, None]) -> None:
    """Even one of the same name: it may be bound to another store."""
    other = mq.App("memory://")
    with pytest.raises(mq.DefinitionError, match="'report' is defined by another App"):
        other.schedules("owner").add(report, "k", every="1h", payload="a")
    other.define("report", payload=str)
    with pytest.raises(mq.DefinitionError, match="'report' is defined by another App"):
        other.schedules("more").add(report, "k", every="1h", payload="a")


@pytest.mark.parametrize("value", [3, None])
def test_an_option_that_is_not_known_is_named_with_its_verb(
    report: mq.Job[str, None], value: Any
) -> None:
    """And what there is instead."""
    known = "queue, priority, attempts, backoff, timeout, keep, metadata"
    with pytest.raises(TypeError, match=rf"^schedule\(\) has no option 'retries': use {known}$"):
        report.schedule("k", every="1h", payload="a", retries=value)
    with pytest.raises(TypeError, match=rf"^schedule\(\) has no option 'retries': use {known}$"):
        report.app.schedules("owner").add(report, "k", every="1h", payload="a", retries=value)
    with pytest.raises(TypeError, match=rf"^child\(\) has no option 'retries': use {known}"):
        report.child("k", "a", retries=value)
    assert snapshot(report.store) == {}


def test_declaring_a_set_needs_no_server() -> None:
    """Modules declare when they are imported."""
    app = mq.App("redis://localhost:1/0")
    job: mq.Job[Any, Any] = app.define("noop", payload=type(None), result=None)
    app.schedules("owner").add(job, "k", every="1h")
