"""Handlers in child processes: the same contract, and a real kill."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from helpers import Processes, alive, wait_until
from servers import Server
from worker import child_jobs, slow_child_jobs
from worker.build import finished, outcomes, start_worker, worker_of

import mq


@pytest.fixture
def jobs(one_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[mq.App]:
    """The app of child_jobs on this test's server."""
    monkeypatch.setenv("MQ_URL", one_server.url)
    app = child_jobs.app
    app._stores.clear()
    yield app
    app.close()
    app._stores.clear()


def defect_of(job: mq.Job, job_id: str) -> mq.Defect:
    """The defect the first attempt ended in."""
    exit_ = job.attempts(job_id)[0].exit
    assert isinstance(exit_, mq.Defect)
    return exit_


def test_results_typed_errors_and_progress_cross_the_process(jobs: mq.App) -> None:
    """The handler contract is the same as in a thread."""
    with worker_of(jobs):
        pid = child_jobs.where.execute("x", wait=30)
        assert pid != os.getpid()
        with pytest.raises(child_jobs.Refused) as raised:
            child_jobs.refuses.execute("because", wait=30)
        assert raised.value.why == "because"
        job_id = child_jobs.reports.enqueue("x")
        child_jobs.reports.await_result(job_id, timeout=30)
        assert child_jobs.reports.poll(job_id).progress == {"half": True}


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("exit", "exited with code 3"),
        ("segfault", "killed by SIGSEGV"),
        ("kill", "killed by SIGKILL"),
    ],
)
def test_a_child_that_dies_is_one_failed_attempt(jobs: mq.App, how: str, cause: str) -> None:
    """The ledger says how it died, and the worker goes on with another child."""
    with worker_of(jobs, concurrency=1):
        job_id = child_jobs.dies.enqueue(how)
        assert finished(jobs.store, job_id, timeout=30) == ["failed"]
        ended = defect_of(child_jobs.dies, job_id)
        assert ended.kind == "exited"
        assert cause in ended.message
        assert child_jobs.where.execute("next", wait=30) != os.getpid()
    assert outcomes(jobs.store, job_id) == ["failed"]


def test_a_handler_stuck_in_c_is_killed_after_its_grace(jobs: mq.App) -> None:
    """TERM, grace, KILL: no thread is left behind, and what it started is gone as well."""
    with worker_of(jobs, concurrency=1) as worker:
        job_id = child_jobs.stuck.enqueue("x")
        assert finished(jobs.store, job_id, timeout=30) == ["failed"]
        assert defect_of(child_jobs.stuck, job_id).kind == "timeout"
        assert worker.interrupter.strays == 0
        grandchild = int(child_jobs.stuck.poll(job_id).progress)
        wait_until(lambda: not alive(grandchild), what="the grandchild to be gone")
        assert child_jobs.where.execute("next", wait=30)


def test_clean_up_runs_when_a_child_is_told_to_end(jobs: mq.App) -> None:
    """SIGTERM raises in the handler; the child outlives it and serves the next job."""
    with worker_of(jobs, concurrency=1):
        before = child_jobs.where.execute("x", wait=30)
        job_id = child_jobs.spins.enqueue("x")
        assert finished(jobs.store, job_id, timeout=30) == ["failed"]
        assert child_jobs.spins.poll(job_id).progress == "cleaned up"
        assert child_jobs.where.execute("x", wait=30) == before


def test_the_time_of_a_run_counts_from_when_its_child_is_ready(
    one_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app that takes longer to import than the time limit still has all of it to run."""
    monkeypatch.setenv("MQ_URL", one_server.url)
    app = slow_child_jobs.app
    with worker_of(app, concurrency=2, executor="process") as worker:
        pids = {slow_child_jobs.where.execute("x", wait=30) for _ in range(2)}
        assert os.getpid() not in pids
        assert worker.strays == 0
    app.close()
    app._stores.clear()


def test_what_is_said_of_an_earlier_run_does_not_reach_the_next(jobs: mq.App) -> None:
    """A child outlives its runs; a late interrupt or kill of one must not touch another."""
    with worker_of(jobs, concurrency=1) as worker:
        child_jobs.where.execute("x", wait=30)
        child = next(iter(worker.children._children))
        late = child.begin()
        child_jobs.where.execute("x", wait=30)
        late.tell()
        late.interrupt()
        late.kill()
        before = child_jobs.where.execute("x", wait=30)
        assert child_jobs.where.execute("x", wait=30) == before
        assert child.alive


def test_a_handler_that_forks_does_not_answer_twice(jobs: mq.App) -> None:
    """The copy has lost the socket: every later answer is still that of its own run."""
    with worker_of(jobs, concurrency=1):
        for payload in (1, 9, 3, 4, 9, 5):
            assert child_jobs.forks.execute(payload, wait=30) == payload


def test_children_recycle_after_so_many_runs(jobs: mq.App) -> None:
    """A leak lives no longer than `child_max_runs` runs."""
    with worker_of(jobs, concurrency=1, child_max_runs=2):
        pids = [child_jobs.where.execute("x", wait=30) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_children_end_with_their_worker(jobs: mq.App, one_server: Server, proc: Processes) -> None:
    """A worker killed with -9 leaves no child behind that goes on with its job."""
    worker = start_worker(proc, one_server, "child_jobs:app", concurrency=1)
    job_id = child_jobs.waits.enqueue("x")
    wait_until(
        lambda: child_jobs.waits.poll(job_id).progress is not None, 30, "the handler to start"
    )
    child = int(child_jobs.waits.poll(job_id).progress)
    worker.kill()
    wait_until(lambda: not alive(child), 15, "the child to end")


def test_an_app_that_no_module_holds_is_refused(one_server: Server) -> None:
    """A child could not import it: said when the worker is made, with the fix."""
    app = mq.App(one_server.url)

    @app.job("local", executor="process")
    def local(payload: str) -> None: ...

    with pytest.raises(mq.DefinitionError, match="top level of a module"):
        worker_of(app)
