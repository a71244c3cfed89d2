"""`mq` run as a command in a folder with a small app; for the tests of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
from helpers import Processes, Running, wait_until

JOBS = '''
import pathlib
import threading

import attrs
import mq

app = mq.App()


@attrs.frozen
class Number:
    n: int


@attrs.frozen
class TooBig(Exception):
    limit: int


@app.job("double", error=TooBig)
def double(number: Number) -> int:
    if number.n > 1000:
        raise TooBig(1000)
    return number.n * 2


@app.job("hold")
def hold(number: Number) -> None:
    """Run until a file called `go` is there."""
    pathlib.Path("holding").touch()
    while not pathlib.Path("go").exists():
        threading.Event().wait(0.01)


@app.job("deaf")
def deaf(number: Number) -> None:
    """Never end, whatever it is told."""
    pathlib.Path("holding").touch()
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass


later = app.define("later", payload=Number)
keyed = app.define("keyed", payload=Number, idempotency_key=lambda p: str(p.n))
'''


@attrs.frozen
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on stderr, without `mq: `; fails when there is another number of lines."""
        assert "Traceback" not in self.err, self.err
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("mq: ")
        return lines[0].removeprefix("mq: ")


class Cli:
    """Runs `mq` in a folder with a `jobs.py`, on one store."""

    def __init__(self, processes: Processes, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self._processes = processes
        (folder / "jobs.py").write_text(JOBS)

    def run(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Ran:
        """Run a command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "mq", *args],
            input=stdin,
            capture_output=True,
            env={**os.environ, "MQ_URL": self.url, **(env or {})},
            cwd=self.folder,
            timeout=60,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> Running:
        """Start a command."""
        return self._processes.python(
            "-m", "mq", *args, env={"MQ_URL": self.url, **(env or {})}, cwd=self.folder
        )

    def worker(self, *args: str) -> Running:
        """Start a worker and wait until it claims."""
        running = self.start("worker", "jobs:app", *args)
        running.wait_for(" started: ")
        return running

    def wait_for_file(self, name: str) -> None:
        """Wait until a handler or module has left a file."""
        wait_until((self.folder / name).exists, what=f"the file {name}")
