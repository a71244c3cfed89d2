"""`mq worker` as a process: what it runs, what it logs, and what it tells its supervisor."""

from __future__ import annotations

import json
import signal

import pytest
from command_line import Cli
from helpers import Running, wait_until

from mq.states import JobState, Outcome
from mq.store import Store


def enqueue(cli: Cli, name: str, n: int = 1) -> str:
    """Enqueue a job from another process and return its id."""
    ran = cli.run("enqueue", "jobs:app", name, "--payload", f'{{"n": {n}}}')
    assert ran.code == 0, ran.err
    return ran.out.strip()


def insist(worker: Running) -> int:
    """Send SIGTERM again and again, as an impatient person would, until the worker is gone."""

    def ended() -> bool:
        if worker.alive:
            worker.signal()
        return not worker.alive

    wait_until(ended, timeout=20, what="the worker to end")
    return worker.wait()


def test_a_job_goes_from_enqueue_to_ledger_between_processes(cli: Cli, store: Store) -> None:
    """Enqueued by one process, run by another, read back by a third; SIGTERM ends it with 0."""
    worker = cli.worker()
    job_id = enqueue(cli, "double", 21)
    wait_until(lambda: store.get_states([job_id]) == [JobState.COMPLETED], what="the job")
    shown = json.loads(cli.run("jobs", "show", job_id, "--json").out)
    assert shown["exit"] == {"kind": "success", "value": 42}
    assert [entry["outcome"] for entry in shown["attempts"]] == ["completed"]
    worker.signal()
    assert worker.wait() == 0
    assert "Traceback" not in worker.stderr
    assert worker.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_its_repeat_at_once_changes_nothing(
    cli: Cli, store: Store, number: int
) -> None:
    """An init that signals the whole group delivers it twice; the running job still ends well."""
    job_id = enqueue(cli, "hold")
    worker = cli.worker()
    cli.wait_for_file("holding")
    worker.signal(number)
    worker.signal(number)
    worker.wait_for("draining: 1 running")
    (cli.folder / "go").touch()
    assert worker.wait() == 0
    assert store.get_states([job_id]) == [JobState.COMPLETED]


def test_a_later_second_signal_stops_at_once_with_3(cli: Cli, store: Store) -> None:
    """The job keeps its lock, and no ledger entry claims that it ended."""
    job_id = enqueue(cli, "deaf")
    worker = cli.worker()
    cli.wait_for_file("holding")
    assert insist(worker) == 3
    assert store.get_states([job_id]) == [JobState.ACTIVE]
    assert store.get_attempts(job_id) == []


def test_a_handler_that_never_ends_does_not_keep_the_process(cli: Cli, store: Store) -> None:
    """Its job is given back when the grace is over, without an attempt; the code is 0."""
    job_id = enqueue(cli, "deaf")
    worker = cli.worker("--shutdown-grace", "0.1")
    cli.wait_for_file("holding")
    worker.signal()
    assert worker.wait() == 0
    record = store.get_job(job_id)
    assert record is not None
    assert (record.state, record.attempts_made) == (JobState.WAITING, 0)


def test_a_thread_of_the_app_does_not_keep_the_process(cli: Cli) -> None:
    """One that is no daemon and never ends."""
    (cli.folder / "threads.py").write_text(
        "import threading\n"
        "from jobs import app\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
    )
    worker = cli.start("worker", "threads:app")
    worker.wait_for(" started: ")
    worker.signal()
    assert worker.wait() == 0


def test_exit_hooks_of_the_app_run(cli: Cli) -> None:
    """A clean stop is a clean end of the interpreter."""
    (cli.folder / "hooks.py").write_text(
        "import atexit, pathlib\n"
        "from jobs import app\n"
        "atexit.register(pathlib.Path('hooked').touch)\n"
    )
    worker = cli.start("worker", "hooks:app")
    worker.wait_for(" started: ")
    worker.signal()
    assert worker.wait() == 0
    assert (cli.folder / "hooked").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_app_is_imported_ends_cleanly(cli: Cli, number: int) -> None:
    """Nothing is held yet, so the worker just ends: no traceback, code 0."""
    (cli.folder / "slow.py").write_text(
        "import pathlib, threading\npathlib.Path('importing').touch()\nthreading.Event().wait()\n"
    )
    worker = cli.start("worker", "slow:app")
    cli.wait_for_file("importing")
    worker.signal(number)
    assert worker.wait() == 0
    assert worker.stderr == ""


def test_a_signal_that_an_import_swallows_still_ends_it(cli: Cli) -> None:
    """A module that catches everything goes on, and the worker ends when it is through."""
    (cli.folder / "greedy.py").write_text(
        "import pathlib, threading\n"
        "pathlib.Path('importing').touch()\n"
        "try:\n"
        "    threading.Event().wait()\n"
        "except BaseException:\n"
        "    pass\n"
        "from jobs import app\n"
    )
    worker = cli.start("worker", "greedy:app")
    cli.wait_for_file("importing")
    worker.signal()
    assert worker.wait() == 0


def test_a_burst_ends_with_0_when_all_went_well(cli: Cli, store: Store) -> None:
    """It runs what is there and does not wait for more."""
    ids = [enqueue(cli, "double", n) for n in (1, 2)]
    worker = cli.start("worker", "jobs:app", "--burst")
    assert worker.wait() == 0
    assert store.get_states(ids) == [JobState.COMPLETED] * 2


def test_a_burst_ends_with_5_when_jobs_failed(cli: Cli, store: Store) -> None:
    """The others are run all the same."""
    ids = [enqueue(cli, "double", n) for n in (5000, 1)]
    worker = cli.start("worker", "jobs:app", "--burst")
    assert worker.wait() == 5
    assert store.get_states(ids) == [JobState.FAILED, JobState.COMPLETED]
    assert [entry.outcome for entry in store.get_attempts(ids[0])] == [Outcome.FAILED]


def test_a_worker_serves_the_queues_it_is_told(cli: Cli, store: Store) -> None:
    """Weights are accepted; a queue that is not named is left alone."""
    mail = cli.run(
        "enqueue", "jobs:app", "double", "--payload", '{"n": 1}', "--queue", "mail"
    ).out.strip()
    other = enqueue(cli, "double")
    worker = cli.start("worker", "jobs:app", "-q", "mail:3", "-q", "slow", "--burst")
    assert worker.wait() == 0
    assert store.get_states([mail, other]) == [JobState.COMPLETED, JobState.WAITING]


def test_logs_are_lines_of_json_without_payloads(cli: Cli) -> None:
    """One line at the start and one at the end of each run, with the job's id."""
    job_id = enqueue(cli, "double", 987654321)
    worker = cli.start("worker", "jobs:app", "--burst", "--log-format", "json")
    assert worker.wait() == 5
    lines = [json.loads(line) for line in worker.stderr.splitlines()]
    mine = [line["message"] for line in lines if job_id in line["message"]]
    assert [message.partition(":")[0] for message in mine] == ["run started", "run failed"]
    assert {"time", "level", "logger", "message"} == set(lines[0])
    assert "987654321" not in worker.stderr


def test_the_log_level_is_that_of_mq(cli: Cli) -> None:
    """Warnings and what is worse, and nothing else."""
    enqueue(cli, "double")
    worker = cli.start("worker", "jobs:app", "--burst", "--log-level", "error")
    assert worker.wait() == 0
    assert worker.stderr == ""


def test_an_app_that_sets_up_logging_keeps_it(cli: Cli) -> None:
    """Its handlers get the lines of mq, once each, unless a format is asked for."""
    (cli.folder / "logs.py").write_text(
        "import logging\nlogging.basicConfig(format='MINE %(message)s')\nfrom jobs import app\n"
    )
    worker = cli.start("worker", "logs:app", "--burst")
    assert worker.wait() == 0
    started = [line for line in worker.stderr.splitlines() if " started: " in line]
    assert len(started) == 1
    assert started[0].startswith("MINE worker ")
    asked = cli.start("worker", "logs:app", "--burst", "--log-format", "text")
    assert asked.wait() == 0
    assert "MINE" not in asked.stderr
