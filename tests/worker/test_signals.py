"""Signals to a worker process, and the codes it ends with."""

from __future__ import annotations

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
    record,
    start_worker,
    state,
)

import mq

CLEAN, FORCED = 0, 3


def seen(server: Server, key: str) -> list[str]:
    """What handlers have told so far."""
    return [word.decode() for word in server.cli("LRANGE", key, 0, -1)]


def busy_worker(
    proc: Processes, server: Server, app: mq.App, name: str = "stay", **options: object
) -> tuple[Running, str]:
    """A worker in the middle of a run, and the id of its job."""
    worker = start_worker(proc, server, **options)
    job_id = app.jobs[name].enqueue("a")
    wait_until(lambda: seen(server, "began") == ["a"])
    return worker, job_id


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_ends_cleanly(
    process_app: mq.App, one_server: Server, proc: Processes, number: int
) -> None:
    """Code 0, and it says so."""
    worker = start_worker(proc, one_server)
    worker.signal(number)
    assert worker.wait(10) == CLEAN
    assert "stopped: nothing was run" in worker.stderr
    assert "Traceback" not in worker.stderr


def test_a_stop_waits_for_the_run_and_acks_it(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """Twice within milliseconds is once: an init that signals the whole group does that."""
    worker, job_id = busy_worker(proc, one_server, process_app)
    worker.signal(signal.SIGTERM)
    threading.Event().wait(0.005)
    worker.signal(signal.SIGTERM)
    worker.wait_for("draining")
    one_server.cli("RPUSH", "go:a", "")
    assert worker.wait(10) == CLEAN
    assert (state(process_app.store, job_id), outcomes(process_app.store, job_id)) == (
        "completed",
        ["completed"],
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM)],
    ids=["TERM twice", "INT then TERM"],
)
def test_a_later_second_signal_stops_at_once(
    process_app: mq.App, one_server: Server, proc: Processes, first: int, second: int
) -> None:
    """The job keeps its lock until that expires, and is recovered by the sweep."""
    worker, job_id = busy_worker(proc, one_server, process_app, "hang", shutdown_grace="50s")
    worker.signal(first)
    worker.wait_for("draining")
    threading.Event().wait(1.2)  # longer than a repeat that is ignored
    assert worker.alive
    worker.signal(second)
    assert worker.wait(5) == FORCED
    assert state(process_app.store, job_id) == "active"
    wait_until(lambda: process_app.store.stall_sweep(1))
    assert outcomes(process_app.store, job_id) == ["stalled"]


def test_a_stop_that_runs_out_of_patience_gives_the_job_back(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """Clean all the same; the process does not wait for the handler."""
    worker, job_id = busy_worker(proc, one_server, process_app, "hang", shutdown_grace="0.2s")
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == CLEAN
    found = record(process_app.store, job_id)
    assert (found.state.value, found.attempts_made, found.runs) == ("waiting", 0, 0)


def test_a_signal_during_start_up_ends_it(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """Whenever it comes after the handlers were installed: it ends, and nothing is left active."""
    process_app.jobs["note"].enqueue_many([str(n) for n in range(50)])
    for delay in (0, 0.1, 0.25, 0.4):
        worker = launch_worker(proc, one_server)
        worker.wait_for("signals handled")
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
    import os

    os.killpg(parent.pid, signal.SIGTERM)
    parent.wait_for("draining")
    one_server.cli("RPUSH", "go:a", "")
    assert parent.wait(10) == CLEAN
    assert all_finished(process_app.store, 1) == {"completed": 1}


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
