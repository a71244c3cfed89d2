"""Instants given by `at`: exact in every zone, refused without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from helpers import Processes
from servers import Server
from transitions.seed import snapshot
from worker.build import finished, record, start_worker

import mq
from mq.clock import FakeClock
from mq.states import JobState

START_MS = 1_793_000_000_000
"""2026-10-26T07:33:20Z."""
PARIS = ZoneInfo("Europe/Paris")


@pytest.fixture
def clock() -> FakeClock:
    """Begins behind every instant of the tests."""
    return FakeClock(START_MS - 10 * 86_400_000)


@pytest.fixture
def app(server: Server, clock: FakeClock) -> Iterator[mq.App]:
    """An app on each back end, by a clock of the test."""
    made = mq.App(server.url, clock=clock)
    yield made
    made.close()


@pytest.fixture
def note(app: mq.App) -> mq.Job[str, Any]:
    """A definition."""
    return app.define("note", payload=str)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (datetime(2026, 10, 26, 7, 33, 20, tzinfo=UTC), START_MS),
        (
            datetime(2026, 10, 26, 13, 3, 20, tzinfo=timezone(timedelta(hours=5, minutes=30))),
            START_MS,
        ),
        (datetime(2026, 10, 25, 2, 30, tzinfo=PARIS), 1_792_888_200_000),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=PARIS), 1_792_891_800_000),
        (datetime(2026, 10, 26, 7, 33, 20, 999_999, tzinfo=UTC), START_MS + 999),
        (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), 253_402_300_799_999),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))), 253_402_383_599_999),
    ],
)
def test_an_instant_with_a_zone_is_exact(
    app: mq.App, clock: FakeClock, note: mq.Job[str, Any], at: datetime, expected: int
) -> None:
    """It waits for its millisecond, in either passage of a repeated hour, however far away."""
    job_id = note.enqueue("a", at=at)
    read = record(app.store, job_id)
    assert (read.state, read.run_at) == (JobState.DELAYED, expected)
    soon = note.enqueue("b", delay=1)
    listed = app.store.list(
        queue="default", states=["delayed"], order_by="run_at", order="asc"
    ).items
    assert [one.id for one in listed] == [soon, job_id]
    assert app.store.remove(soon)
    clock.set(expected - 1)
    assert app.store.claim(["default"], ["note"], "token", 1_000).jobs == ()
    clock.set(expected)
    (claimed,) = app.store.claim(["default"], ["note"], "token", 1_000).jobs
    assert claimed.id == job_id


@pytest.mark.parametrize(
    "at",
    [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 10, 1, tzinfo=PARIS),
    ],
)
def test_an_instant_that_has_passed_is_now(
    app: mq.App, clock: FakeClock, note: mq.Job[str, Any], at: datetime
) -> None:
    """Runnable at once, behind what was there before."""
    before = note.enqueue("a")
    job_id = note.enqueue("b", at=at)
    read = record(app.store, job_id)
    assert (read.state, read.run_at) == (JobState.WAITING, clock.now_ms())
    claimed = app.store.claim(["default"], ["note"], "token", 1_000, 5).jobs
    assert [one.id for one in claimed] == [before, job_id]


@pytest.mark.parametrize("fold", [0, 1])
def test_an_instant_without_a_zone_is_refused(note: mq.Job[str, Any], fold: int) -> None:
    """By everything that takes one, before anything is written."""
    naive = datetime(2026, 10, 25, 2, 30, fold=fold)  # noqa: DTZ001 the point
    for take in (
        lambda: note.enqueue("a", at=naive),
        lambda: note.enqueue_many(["a", "b"], at=naive),
        lambda: note.execute("a", at=naive, timeout=1),
        lambda: note.schedule("k", every="1h", payload="a", at=naive),
        lambda: note.schedule("k", every=naive, payload="a"),  # type: ignore[arg-type]
    ):
        with pytest.raises((ValueError, TypeError)):
            take()
    assert snapshot(note.store) == {}


PRODUCER = """
import json, time, sys
from datetime import datetime, timedelta, timezone
import mq

app = mq.App()
note = app.define("note", payload=str)
now = datetime.now(timezone.utc) + timedelta(seconds=1)
given = {
    "utc": now,
    "kolkata": now.astimezone(timezone(timedelta(hours=5, minutes=30))),
    "local": now.astimezone(),
}
made = {word: note.enqueue(word, at=at) for word, at in given.items()}
note.schedule("k", every="1h", payload="tick")
cron = note.schedule("c", cron="30 2 * * *", tz="Europe/Paris", payload="tick").next_run_at
epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
print(json.dumps({
    "made": made, "due": (now - epoch) // timedelta(milliseconds=1), "cron": cron,
    "zone": time.tzname[0],
}))
"""


def test_the_zones_of_producer_and_worker_do_not_matter(
    one_server: Server, proc: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dozen hours apart, and both far from the server's."""
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    monkeypatch.setenv("MQ_URL", one_server.url)
    producer = proc.python("-c", PRODUCER)
    assert producer.wait() == 0, producer.stderr
    told = json.loads(producer.stdout)
    assert told["zone"] in {"NZST", "NZDT"}
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    start_worker(proc, one_server)
    with closing(mq.App(one_server.url)) as app:
        made = list(told["made"].values())
        assert finished(app.store, *made) == ["completed"] * 3
        for job_id in made:
            read = record(app.store, job_id)
            assert read.run_at == told["due"]
            (entry,) = app.store.get_attempts(job_id)
            assert told["due"] <= (entry.started_at or 0) <= entry.finished_at
        wall = datetime.fromtimestamp(told["cron"] / 1000, PARIS)
        assert (wall.hour, wall.minute) in {(2, 30), (3, 0)}
