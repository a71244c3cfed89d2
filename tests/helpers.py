"""What several test files need: waiting with a deadline, processes that end with their test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

STEP_S = 0.01


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not, nor one that ends while we look."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until(predicate: Callable[[], T], timeout: float = 10, what: str = "") -> T:
    """Wait until the predicate is true and return its value; fail after ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not (value := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s for {what or predicate}")
        pause.wait(STEP_S)
    return value


class Running:
    """A started process whose output goes to files, so that no pipe can fill up."""

    def __init__(self, args: list[str], folder: Path, env: Mapping[str, str], cwd: Path) -> None:
        self.args = args
        self._stdout = folder / "stdout"
        self._stderr = folder / "stderr"
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self.process = subprocess.Popen(
                args,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its session."""
        return self.process.pid

    @property
    def stdout(self) -> str:
        """All it has printed so far."""
        return self._stdout.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        """All it has printed to the error stream so far."""
        return self._stderr.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self, timeout: float = 30) -> int:
        """Wait for its end and return the exit code; its output is in the failure."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.args} still runs after {timeout} s\n{self.stdout}\n{self.stderr}"
            ) from None

    def wait_for(self, text: str, timeout: float = 30) -> None:
        """Wait until the text stands in one of its outputs; fail at once when it ends first."""

        def seen() -> bool:
            ended = not self.alive
            if text in self.stdout or text in self.stderr:
                return True
            assert not ended, f"{self.args} ended first\n{self.stdout}\n{self.stderr}"
            return False

        wait_until(seen, timeout, f"{text!r} from {self.args}")

    def kill(self) -> None:
        """Kill it and all that it left in its process group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:  # macOS says so of a group of zombies
            pass
        self.process.wait()


class Processes:
    """Starts processes for one test and ends those that are left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Running] = []

    def start(
        self, *args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Running:
        """Start a command; ``env`` is added to the environment of the tests."""
        folder = self._folder / f"process-{len(self._started)}"
        folder.mkdir(parents=True)
        merged = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        running = Running(list(args), folder, merged, cwd or folder)
        self._started.append(running)
        return running

    def python(
        self, *args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Running:
        """Start this Python with the arguments given."""
        return self.start(sys.executable, *args, env=env, cwd=cwd)

    def close(self) -> None:
        """Kill whatever still runs."""
        for running in self._started:
            running.kill()
