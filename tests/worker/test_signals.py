"""Signals to a worker process, and the codes it ends with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
from helpers import Processes, Running, wait_until
from servers import Server
from worker.build import (
    HERE,
    all_finished,
    launch_worker,
    outcomes,
    seen,
    start_worker,
    state,
)
from worker.private_server import PrivateServer

import mq

CLEAN, FORCED = 0, 3


def busy_worker(
    proc: Processes, server: Server, app: mq.App, name: str = "stay", **options: object
) -> tuple[Running, str]:
    """A worker in the middle of a run, and the id of its job."""
    worker = start_worker(proc, server, **options)
    job_id = app.jobs[name].enqueue("a")
    wait_until(lambda: seen(server, "began") == ["a"])
    return worker, job_id


def test_a_later_signal_of_the_other_kind_stops_at_once(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """INT, as from a terminal, then TERM: the job keeps its lock, and the sweep recovers it."""
    worker, job_id = busy_worker(proc, one_server, process_app, "hang", shutdown_grace="50s")
    worker.signal(signal.SIGINT)
    worker.wait_for("draining")
    threading.Event().wait(1.2)  # longer than a repeat that is ignored
    assert worker.alive
    worker.signal(signal.SIGTERM)
    assert worker.wait(5) == FORCED
    assert state(process_app.store, job_id) == "active"
    one_server.cli("ZADD", process_app.store.keys.active(), 0, job_id)  # its lock expires
    assert [one.id for one in process_app.store.stall_sweep(1)] == [job_id]
    assert outcomes(process_app.store, job_id) == ["stalled"]


def test_a_signal_during_start_up_ends_it(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """Whenever it comes, before the first claim or after: it ends, and nothing is left active."""
    process_app.jobs["note"].enqueue_many([str(n) for n in range(50)])
    for delay in (0, 0.1, 0.2, 0.3):
        worker = launch_worker(proc, one_server)
        worker.wait_for("importing")
        threading.Event().wait(delay)
        worker.signal(signal.SIGTERM)
        assert worker.wait(10) == CLEAN
        assert "Traceback" not in worker.stderr
    counts = {state.value: n for state, n in process_app.store.counts().items() if n}
    assert set(counts) <= {"waiting", "completed"}


def test_a_signal_to_the_whole_group_is_one_stop(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """With a parent that passes it on, as an init does."""
    parent = proc.start(
        sys.executable, str(HERE / "pass_on_signals.py"), one_server.url,
        env={"MQ_URL": one_server.url}, cwd=HERE,
    )  # fmt: skip
    parent.wait_for("started")
    process_app.jobs["stay"].enqueue("a")
    wait_until(lambda: seen(one_server, "began") == ["a"])
    os.killpg(parent.pid, signal.SIGTERM)
    parent.wait_for("draining")
    one_server.cli("RPUSH", "go:a", "")
    assert parent.wait(10) == CLEAN
    assert all_finished(process_app.store, 1) == {"completed": 1}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes give up a call sooner than by default."""
    monkeypatch.setenv("STORE_SETTINGS", '{"retry_for": 0.3, "socket_timeout": 1}')


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_signal_during_an_outage_ends_an_idle_worker(
    proc: Processes, impatient: None, how: str
) -> None:
    """It holds nothing, so there is nothing to wait for."""
    server = PrivateServer()
    try:
        worker = start_worker(proc, server.url, poll_interval="0.3s")
        if how == "killed":
            server.kill()
            worker.wait_for("interrupted")
        else:
            server.freeze()
        worker.signal(signal.SIGTERM)
        assert worker.wait(20) == CLEAN
        assert "Traceback" not in worker.stderr
    finally:
        server.close()


def test_a_signal_during_an_outage_gives_a_running_job_its_grace(
    proc: Processes, impatient: None
) -> None:
    """Nothing can be given back, so its lock expires; the process ends all the same."""
    server = PrivateServer()
    app = mq.App(server.url)
    try:
        worker = start_worker(proc, server.url, shutdown_grace="0.5s")
        hang = app.define("hang", payload=str, result=str)
        job_id = hang.enqueue("a")
        wait_until(lambda: server.client.lrange("began", 0, -1) == [b"a"])
        server.kill()
        worker.wait_for("interrupted")
        worker.signal(signal.SIGTERM)
        assert worker.wait(25) in (CLEAN, FORCED)
        assert "were not given back" in worker.stderr
        server.start()
        assert state(app.store, job_id) == "active"
    finally:
        app.close()
        server.close()


def test_a_signal_may_come_at_any_moment_of_the_wait_for_it() -> None:
    """The handler runs between two bytecodes of the wait itself, and must not wait for its lock."""
    done = subprocess.run(
        [sys.executable, str(HERE / "signal_at_each_step.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10
