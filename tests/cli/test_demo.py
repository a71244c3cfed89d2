"""`mq demo`: on a server of its own or in memory, and nothing is left of it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from helpers import Processes, Running, wait_until
from servers import discover

from mq.demo.plan import read_plan
from mq.states import JobState

TOTAL = sum(planned.times for planned in read_plan())


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder for temporary files."""
    return tmp_path_factory.mktemp("t")


@pytest.fixture
def with_server(temporary: Path) -> Mapping[str, str]:
    """The environment of a demo with a server at hand, which MQ_URL must not lead astray."""
    backend = discover().preferred
    if backend is None or backend.binary is None:
        pytest.skip("no real server in this run")
    return {
        "MQ_REDIS_SERVER": str(backend.binary.path),
        "MQ_URL": "redis://127.0.0.1:1/0",
        "TMPDIR": str(temporary),
    }


def start(proc: Processes, env: Mapping[str, str]) -> Running:
    """Start the demo."""
    return proc.python("-m", "mq", "demo", env=env)


def worker_pid(demo: Running) -> int:
    """The process id of the demo's worker, from what it says."""
    demo.wait_for("mq worker mq.demo.jobs:app")
    found = re.search(r"^worker +process (\d+):", demo.stdout, re.M)
    assert found is not None
    return int(found[1])


def is_gone(pid: int) -> bool:
    """Whether no process has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def server_pid(temporary: Path) -> int:
    """The process id of the demo's server."""

    def found() -> str:
        for path in temporary.glob("mq-demo-*/data/server.json"):
            match = re.search(r'"pid": (\d+)', path.read_text())
            return match[1] if match else ""
        return ""

    return int(wait_until(found, what="the server's process id"))


def test_the_demo_runs_a_few_hundred_jobs_and_leaves_nothing(
    proc: Processes, with_server: Mapping[str, str], temporary: Path
) -> None:
    """It says which server, shows the outcomes and a ledger, and cleans up after itself."""
    demo = start(proc, with_server)
    worker, server = worker_pid(demo), server_pid(temporary)
    assert demo.wait() == 0, demo.stderr
    backend = discover().preferred
    assert backend is not None
    assert backend.binary is not None
    told = demo.stdout
    assert f"server   {backend.binary.kind} {backend.binary.version_text}" in told
    assert f"{TOTAL} of {TOTAL} finished" in told
    rows = re.findall(r"^([a-z-]+) +(\d+) +(\d+) +(\d+) +(\d+)  yes$", told, re.M)
    assert sum(int(row[1]) for row in rows) == TOTAL
    assert ("sync-feed", "1", "0", "1", "3") in rows
    assert [outcome for _, outcome in re.findall(r"^ +(\d)  (\w+) ", told, re.M)] == [
        "retried",
        "retried",
        "retried",
        "completed",
    ]
    assert f"All {TOTAL} jobs ended as they should." in told
    assert "\x1b" not in told
    assert demo.stderr == ""
    assert is_gone(worker)
    wait_until(lambda: is_gone(server), what="the server to be gone")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_demo_and_nothing_is_left(
    proc: Processes, with_server: Mapping[str, str], temporary: Path, number: int, code: int
) -> None:
    """No traceback, no server, no worker, no folder; a second Ctrl-C while it cleans up is fine."""
    demo = start(proc, with_server)
    worker, server = worker_pid(demo), server_pid(temporary)
    demo.signal(number)
    demo.signal(number)
    assert demo.wait() == code
    assert demo.stderr == "stopped; the server, the worker and their folder are gone\n"
    assert is_gone(worker)
    wait_until(lambda: is_gone(server), what="the server to be gone")
    assert list(temporary.iterdir()) == []


def test_a_worker_that_dies_ends_the_demo_with_1(
    proc: Processes, with_server: Mapping[str, str], temporary: Path
) -> None:
    """It is said how the worker ended."""
    demo = start(proc, with_server)
    os.kill(worker_pid(demo), signal.SIGKILL)
    assert demo.wait() == 1
    assert "mq: the worker ended with code -9" in demo.stderr
    assert list(temporary.iterdir()) == []


def test_without_a_server_the_demo_runs_in_memory(proc: Processes, temporary: Path) -> None:
    """It says so, and why, and ends all the same."""
    demo = start(proc, {"MQ_REDIS_SERVER": str(temporary / "none"), "TMPDIR": str(temporary)})
    assert demo.wait() == 0, demo.stderr
    assert demo.stdout.startswith("server   none: the server binary")
    assert "the jobs are kept in memory" in demo.stdout
    assert f"All {TOTAL} jobs ended as they should." in demo.stdout
    assert list(temporary.iterdir()) == []


def test_the_plan_has_jobs_of_every_kind() -> None:
    """Successes, retries, a spent budget, a defect, a delay, a priority; a few hundred in all."""
    plan = read_plan()
    assert 200 <= TOTAL <= 500
    assert any(one.expect is JobState.COMPLETED and one.runs > 1 for one in plan)
    assert any(one.expect is JobState.FAILED and one.runs > 1 for one in plan)
    assert any(one.expect is JobState.FAILED and one.runs == 1 for one in plan)
    assert any("delay" in one.options for one in plan)
    assert any("priority" in one.options for one in plan)
