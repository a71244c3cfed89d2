"""Waiting for results: pushed, with polling as the safeguard."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import wait_until
from servers import Server
from worker.build import Gate, calls, opened_after, worker_of

import mq
from mq import results
from mq.records import Ack


@pytest.fixture
def only_pushes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter that hears pushes does not look by itself within any test."""
    monkeypatch.setattr(results, "PUSHED_LOOK_S", 600.0)


def test_a_result_is_pushed_to_every_waiter_over_one_subscription(
    app: mq.App, one_server: Server, only_pushes: None
) -> None:
    """Twenty waiters of one process cost one subscribed connection and no polling."""
    gate = Gate()

    @app.job("gated")
    def gated(payload: str) -> str:
        gate.stop_here()
        return payload

    with opened_after(gate), worker_of(app), ThreadPoolExecutor(20) as waiters:
        job_id = gated.enqueue("x")
        gate.await_entry()
        asked = [waiters.submit(gated.await_result, job_id, 60) for _ in range(20)]
        channel = app.store.keys.done()
        wait_until(lambda: _subscribers(one_server, channel) == 1, what="the subscription")
        gate.opened.set()
        assert [one.result(30) for one in asked] == ["x"] * 20
        assert _subscribers(one_server, channel) == 1


def test_a_job_nobody_awaits_announces_nothing(app: mq.App, one_server: Server) -> None:
    """Only the mark that a waiter leaves makes a finishing script publish."""

    @app.job("quiet")
    def quiet(payload: str) -> None: ...

    before = _published(one_server)
    with worker_of(app):
        job_id = quiet.enqueue("")
        wait_until(lambda: quiet.poll(job_id).state.finished, what="the job")
    assert _published(one_server) == before


def test_waiting_goes_on_when_the_channel_is_lost(
    app: mq.App, one_server: Server, only_pushes: None
) -> None:
    """A killed subscription costs time, never a result."""
    gate = Gate()

    @app.job("gated")
    def gated(payload: str) -> str:
        gate.stop_here()
        return payload

    with opened_after(gate), worker_of(app), ThreadPoolExecutor(1) as waiter:
        job_id = gated.enqueue("x")
        gate.await_entry()
        asked = waiter.submit(gated.await_result, job_id, 60)
        wait_until(lambda: app.store.doorbell.connected, what="the subscription")
        one_server.cli("CLIENT", "KILL", "TYPE", "pubsub")
        wait_until(lambda: not app.store.doorbell.connected, what="the loss to be seen")
        gate.opened.set()
        assert asked.result(30) == "x"


def test_waiting_without_rights_to_the_channel_polls(app: mq.App, one_server: Server) -> None:
    """A user who may not subscribe still gets results."""
    one_server.cli("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "resetchannels", "+@all")
    try:
        narrow = mq.App(one_server.url, username="narrow", password="pw")

        @narrow.job("plain")
        def plain(payload: str) -> str:
            return payload

        with worker_of(narrow):
            assert plain.execute("x", wait=30) == "x"
        narrow.close()
    finally:
        one_server.cli("ACL", "DELUSER", "narrow")


def test_each_way_a_wait_can_end(app: mq.App) -> None:
    """Typed errors for each: its own time over, cancelled, unknown, another name, a defect."""

    @app.job("plain")
    def plain(payload: str) -> str:
        return payload

    @app.job("other")
    def other(payload: str) -> str:
        raise ValueError("broken")

    job_id = plain.enqueue("x")
    with pytest.raises(mq.AwaitTimeoutError, match="still waiting"):
        plain.await_result(job_id, timeout=0.05)
    with pytest.raises(TimeoutError):
        plain.await_result(job_id, timeout=0)
    with pytest.raises(mq.JobNotFoundError):
        plain.await_result("no-such-job", timeout=1)
    with pytest.raises(mq.JobNotFoundError, match="'plain' job"):
        other.await_result(job_id, timeout=1)
    claim = app.store.claim(["default"], ["plain"], "token", 60_000)
    app.store.ack_cancelled(claim.jobs[0].id, "token")
    with pytest.raises(mq.JobCancelledError):
        plain.await_result(job_id, timeout=1)
    with worker_of(app), pytest.raises(mq.JobFailedError, match="ValueError: broken") as failed:
        other.execute("x", wait=30)
    assert failed.value.error_type == "ValueError"
    assert "in other" in (failed.value.remote_traceback or "")


def test_a_waiter_hears_of_a_job_that_the_store_failed(app: mq.App, only_pushes: None) -> None:
    """A stall past the limit ends the wait with the store's reason."""

    @app.job("lost")
    def lost(payload: str) -> str:
        return payload

    job_id = lost.enqueue("x")
    app.store.claim(["default"], ["lost"], "token", 1)
    with ThreadPoolExecutor(1) as waiter:
        asked = waiter.submit(lost.await_result, job_id, 60)
        wait_until(lambda: app.store.doorbell.connected, what="the subscription")
        wait_until(lambda: app.store.stall_sweep(0) != [], what="the lock to expire")
        with pytest.raises(mq.JobFailedError, match="stalls: 1, allowed: 0") as failed:
            asked.result(30)
    assert failed.value.failed_reason == "stalls: 1, allowed: 0"


def test_the_doorbell_ends_when_nobody_has_waited_for_long(
    app: mq.App, one_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread and no connection stay behind, and the next waiter gets new ones."""
    monkeypatch.setattr("mq.doorbell.QUIET_S", 0.0)
    monkeypatch.setattr("mq.doorbell.READ_S", 0.05)

    @app.job("plain")
    def plain(payload: str) -> str:
        return payload

    with worker_of(app):
        for _ in range(2):
            assert plain.execute("x", wait=30) == "x"
            wait_until(
                lambda: all(one.name != "mq-doorbell" for one in threading.enumerate()),
                what="the doorbell to end",
            )


def test_completion_wins_over_a_pending_cancel_and_cancel_over_retries(app: mq.App) -> None:
    """In the worker: a value is acked completed, an exception after the cancel is cancelled."""
    gate = Gate()

    @app.job("returns", interrupt=False)
    def returns(payload: str) -> str:
        gate.stop_here()
        return "value"

    @app.job("raises", attempts=5)
    def raises(payload: str, ctx: mq.Context) -> str:
        gate.stop_here()
        raise ValueError("no")

    with opened_after(gate), worker_of(app) as worker:
        ids = [returns.enqueue(""), raises.enqueue("")]
        gate.await_entry(2)
        for job_id in ids:
            app.store.cancel(job_id)
        worker.heartbeat.beat()
        gate.opened.set()
        assert returns.await_result(ids[0], timeout=30) == "value"
        with pytest.raises(mq.JobCancelledError):
            raises.await_result(ids[1], timeout=30)
    assert [entry.outcome for entry in raises.attempts(ids[1])] == [mq.Outcome.CANCELLED]


def test_ack_words_of_the_store_are_the_same_for_a_repeat(app: mq.App) -> None:
    """An ack sent twice under one token answers the same and changes nothing."""
    job = app.define("job", payload=str, result=str)
    job_id = job.enqueue("x")
    app.store.claim(["default"], ["job"], "token", 60_000)
    ack = ("ack_completed", Ack(job_id, "token", b"x"))
    assert app.store.exchange([ack, ack], None)[0] == ["completed", "completed"]
    assert len(app.store.get_attempts(job_id)) == 1


def _subscribers(server: Server, channel: str) -> int:
    return int(server.cli("PUBSUB", "NUMSUB", channel)[1])


def _published(server: Server) -> int:
    return calls(server).get("publish", 0)
