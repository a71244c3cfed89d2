"""Redis goes away and comes back: the worker says so once, waits, and carries on by itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest
import redis
from helpers import wait_until
from worker.build import LONG, PROMPT_S, Gate, finished, idle, opened_after, outcomes, worker_of
from worker.private_server import PrivateServer

import mq
from mq.worker.outage import Outage, Streak

Lines = Callable[..., list[str]]


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    """A server that the test may kill."""
    made = PrivateServer()
    yield made
    made.close()


@pytest.fixture
def app(server: PrivateServer) -> Iterator[mq.App]:
    """An app that does not repeat a call for long before it says so."""
    made = mq.App(server.url, retry_for="0.3s")
    yield made
    made.close()


def interrupted(lines: Lines) -> list[str]:
    """The lines that tell of an outage."""
    return [line for line in lines(logging.WARNING) if "interrupted" in line]


def resumed(lines: Lines) -> list[str]:
    """The lines that tell of its end."""
    return [line for line in lines() if "goes on" in line]


class NoPause(threading.Event):
    """A stop that nobody asks for, and that nobody waits for."""

    def wait(self, timeout: float | None = None) -> bool:
        """Return at once."""
        return self.is_set()


def cut_off() -> mq.StoreError:
    """What a store raises when its server is gone."""
    error = mq.StoreError("cannot reach Redis")
    error.__cause__ = redis.ConnectionError("refused")
    return error


def test_an_outage_that_several_duties_notice_is_told_once(lines: Lines) -> None:
    """Also when it comes again before all of them have noticed that it was over."""
    streak = Streak()
    one, other, third = (Outage(duty, NoPause(), streak) for duty in ("one", "other", "third"))
    for _ in range(3):
        one.failed(cut_off())
        other.failed(cut_off())
    one.worked()
    assert [line.split()[:2] for line in lines()] == [["one", "interrupted,"], ["one", "goes"]]
    third.failed(cut_off())
    other.worked()  # by a call that was answered before the second outage
    one.failed(cut_off())
    third.worked()
    one.worked()
    assert [line.split()[0] for line in lines()[2:]] == ["third", "third"]
    assert not any(duty.on for duty in (one, other, third))


def test_what_concerns_one_duty_alone_hides_no_outage(lines: Lines) -> None:
    """A right that is missing for good: told once, and an outage is told beside it."""
    streak = Streak()
    one, other = (Outage(duty, NoPause(), streak) for duty in ("one", "other"))
    for _ in range(3):
        one.failed(mq.StoreError("denies a right"))
    other.failed(cut_off())
    other.worked()
    assert [line.split()[:2] for line in lines()] == [
        ["one", "interrupted,"],
        ["other", "interrupted,"],
        ["other", "goes"],
    ]


def test_a_duty_that_is_stopped_tells_of_no_outage(lines: Lines) -> None:
    """Its store may be gone by then, and that is as it should be."""
    stop = NoPause()
    outage = Outage("one", stop, Streak())
    stop.set()
    outage.failed(cut_off())
    assert not outage.on
    assert lines() == []


@pytest.mark.parametrize("how", ["killed", "frozen, then killed"])
def test_an_idle_worker_outlives_a_restart(
    server: PrivateServer, app: mq.App, lines: Lines, how: str
) -> None:
    """Longer than its poll interval; what is enqueued afterwards starts at once."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    with worker_of(app, poll_interval="0.3s", stalled_interval="0.3s") as worker:
        wait_until(lambda: idle(worker))
        for streak in (1, 2):
            if how != "killed":
                server.freeze()
                wait_until(lambda: worker.fetcher._claim_out, what="a claim that hangs")
            server.kill()
            wait_until(lambda: worker.fetcher._outage.on, what="the fetcher to notice")
            wait_until(lambda: worker.fetcher._outage._pause_s > 0.5, what="several tries to fail")
            server.start()
            assert finished(app.store, noop.enqueue(None)) == ["completed"]
            wait_until(lambda streak=streak: len(resumed(lines)) == streak)
            assert len(interrupted(lines)) == streak, interrupted(lines)


def test_a_run_that_ends_during_an_outage_is_acked_after_it(
    server: PrivateServer, app: mq.App, lines: Lines
) -> None:
    """Once: the result is kept until there is somebody to take it."""
    gate = Gate()

    @app.job("slow")
    def slow(word: str) -> str:
        """End when the test says so."""
        gate.stop_here()
        return word

    with worker_of(app, lock_duration="30s", lock_renew_interval="0.2s") as worker:
        with opened_after(gate):
            job_id = slow.enqueue("kept")
            gate.await_entry()
            server.kill()
            wait_until(lambda: worker.heartbeat._outage.on, what="the heartbeat to notice")
        wait_until(lambda: worker.fetcher._outage.on, what="the fetcher to notice")
        server.start()
        assert slow.await_result(job_id, timeout=PROMPT_S) == "kept"
        wait_until(lambda: resumed(lines))
    assert outcomes(app.store, job_id) == ["completed"]
    assert len(interrupted(lines)) == 1, interrupted(lines)


def test_a_run_whose_lock_expired_during_an_outage_counts_once(
    server: PrivateServer, app: mq.App
) -> None:
    """It is acked late, or it stalled and runs again: never both counted as done."""
    gate = Gate()
    runs: list[int] = []

    @app.job("slow")
    def slow(payload: None) -> int:
        """End when the test says so."""
        runs.append(1)
        gate.stop_here()
        return len(runs)

    with worker_of(app, lock_duration="0.5s", lock_renew_interval="0.1s") as worker:
        with opened_after(gate):
            job_id = slow.enqueue(None)
            gate.await_entry()
            server.kill()
            wait_until(lambda: worker.heartbeat._outage.on, what="the heartbeat to notice")
            threading.Event().wait(0.6)
            server.start()
            wait_until(
                lambda: not worker.heartbeat._outage.on and not worker.upkeep.sweeper._outage.on
            )
        assert finished(app.store, job_id) == ["completed"]
    words = outcomes(app.store, job_id)
    assert words in (["completed"], ["stalled", "completed"])
    assert len(words) == len(runs)


def test_a_worker_that_starts_without_redis_says_so_in_one_line(
    server: PrivateServer, app: mq.App
) -> None:
    """At start nobody waits: the supervisor is told."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    server.kill()
    with pytest.raises(mq.StoreError, match="cannot reach Redis at unix://"):
        worker_of(app).start()


def test_a_stop_during_an_outage_ends(server: PrivateServer, app: mq.App) -> None:
    """It holds nothing, so it waits for nothing: not for an answer, and not for the grace."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    worker = worker_of(app, poll_interval="0.2s", shutdown_grace=LONG)
    worker.start()
    wait_until(lambda: idle(worker))
    server.kill()
    wait_until(lambda: worker.fetcher._outage.on)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    stopping.join(PROMPT_S)
    assert not stopping.is_alive()
