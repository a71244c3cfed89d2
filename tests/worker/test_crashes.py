"""Workers that die without a word: what they held is recovered, and told truthfully."""

from __future__ import annotations

import signal

import pytest
from helpers import Processes, Running, wait_until
from servers import Server
from worker.build import (
    all_finished,
    finished,
    id_of,
    launch_worker,
    outcomes,
    record,
    seen,
    start_worker,
)

import mq
from mq.states import JobState

DONE = (JobState.COMPLETED, JobState.FAILED)


def test_a_job_whose_worker_was_killed_runs_once_more(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """The ledger has the lost run as stalled, with the worker's own id, and then the second run."""
    store = process_app.store
    first = start_worker(proc, one_server)
    job_id = process_app.jobs["stay"].enqueue("a")
    wait_until(lambda: seen(one_server, "began") == ["a"])
    first.signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    second = start_worker(proc, one_server)
    wait_until(lambda: seen(one_server, "began") == ["a", "a"])
    one_server.cli("RPUSH", "go:a", "")
    assert finished(store, job_id) == ["completed"]
    lost, ran = store.get_attempts(job_id)
    assert (lost.attempt, lost.outcome.value, lost.worker_id) == (1, "stalled", id_of(first))
    assert (ran.attempt, ran.outcome.value, ran.worker_id) == (2, "completed", id_of(second))
    assert lost.exit is None
    assert (record(store, job_id).stalled_count, record(store, job_id).attempts_made) == (1, 1)
    assert len(seen(one_server, "began")) == 2


def test_a_worker_that_was_frozen_comes_back_too_late(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """Stopped for longer than its lock: its successor's run counts, its own ack is refused."""
    store = process_app.store
    frozen = start_worker(proc, one_server, lock_duration="1s")
    job_id = process_app.jobs["stay"].enqueue("a")
    wait_until(lambda: seen(one_server, "began") == ["a"])
    frozen.signal(signal.SIGSTOP)
    heir = start_worker(proc, one_server)
    wait_until(lambda: seen(one_server, "began") == ["a", "a"])
    one_server.cli("RPUSH", "go:a", "for the frozen", "for its heir")
    assert finished(store, job_id) == ["completed"]
    heir.signal(signal.SIGTERM)
    heir.wait()
    frozen.signal(signal.SIGCONT)
    next_one = process_app.jobs["note"].enqueue("next")
    assert finished(store, next_one) == ["completed"]
    assert [(one.outcome.value, one.worker_id) for one in store.get_attempts(job_id)] == [
        ("stalled", id_of(frozen)),
        ("completed", id_of(heir)),
    ]
    told = [line for line in frozen.stderr.splitlines() if job_id in line and "WARN" in line]
    assert len(told) == 1, frozen.stderr


def test_jobs_behind_those_of_a_killed_worker_are_neither_lost_nor_charged(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """Two long runs are lost; twenty quick ones behind them spend no attempt on it."""
    store = process_app.store
    long = [process_app.jobs["stay"].enqueue(word, priority=10) for word in "ab"]
    quick = process_app.jobs["note"].enqueue_many([str(n) for n in range(20)])
    first = start_worker(proc, one_server, concurrency=2)
    wait_until(lambda: sorted(seen(one_server, "began")) == ["a", "b"])
    first.signal(signal.SIGKILL)
    first.wait()
    start_worker(proc, one_server, concurrency=4)
    one_server.cli("RPUSH", "go:a", "")
    one_server.cli("RPUSH", "go:b", "")
    assert all_finished(store, 22) == {"completed": 22}
    assert {tuple(outcomes(store, job_id)) for job_id in quick} == {("completed",)}
    assert [outcomes(store, job_id) for job_id in long] == [["stalled", "completed"]] * 2
    assert sorted(seen(one_server, "ran"), key=int) == [str(n) for n in range(20)]


def test_scripts_that_the_server_forgets_are_loaded_again(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """SCRIPT FLUSH between calls and inside pipelines: every job runs once."""
    start_worker(proc, one_server, concurrency=4)
    for _ in range(20):
        process_app.jobs["note"].enqueue_many([str(n) for n in range(20)])
        one_server.cli("SCRIPT", "FLUSH")
    assert all_finished(process_app.store, 400) == {"completed": 400}
    assert len(seen(one_server, "ran")) == 400


def test_a_handler_that_calls_sys_exit_has_failed_an_attempt(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """The worker lives on."""
    store = process_app.store
    worker = start_worker(proc, one_server)
    job_id = process_app.jobs["die"].enqueue("exit")
    assert finished(store, job_id) == ["completed"]
    assert outcomes(store, job_id) == ["retried", "completed"]
    assert worker.alive


@pytest.mark.parametrize(
    ("how", "codes"),
    [
        ("os-exit", {3}),
        ("kill", {-signal.SIGKILL}),
        ("overflow", {-signal.SIGSEGV, -signal.SIGBUS}),
    ],
)
def test_a_job_that_ends_the_process_is_recovered_by_another_worker(
    process_app: mq.App, one_server: Server, proc: Processes, how: str, codes: set[int]
) -> None:
    """The supervisor sees a code that is not 0, and the ledger has the crash."""
    job_id = process_app.jobs["die"].enqueue(how)
    assert launch_worker(proc, one_server, lock_duration="1s").wait() in codes
    start_worker(proc, one_server)
    assert finished(process_app.store, job_id) == ["completed"]
    assert outcomes(process_app.store, job_id) == ["stalled", "completed"]


def test_a_poison_job_does_not_hold_up_those_behind_it(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """A supervisor restarts what dies: the job is failed in the end, the others get through."""
    store = process_app.store
    poison = process_app.jobs["poison"].enqueue("x", priority=1)
    behind = process_app.jobs["note"].enqueue_many([str(n) for n in range(10)])
    options = {"concurrency": 1, "lock_duration": "1s", "max_stalled_count": 1}

    def restarted() -> Running:
        return launch_worker(proc, one_server, **options)

    workers = [restarted()]

    def supervised() -> bool:
        if not workers[-1].alive:
            workers.append(restarted())
        return sum(store.get_states([poison, *behind]).count(word) for word in DONE) == 11

    wait_until(supervised, 40, "the queue to get through")
    assert [worker.process.poll() for worker in workers] == [-signal.SIGKILL] * 2 + [None]
    assert len(seen(one_server, "died")) == 2
    assert outcomes(store, poison) == ["stalled"] * 2
    assert record(store, poison).failed_reason == "stalls: 2, allowed: 1"
    with pytest.raises(mq.JobFailedError, match="stalls: 2, allowed: 1"):
        process_app.jobs["poison"].await_result(poison, timeout="5s")
