"""Plays a page: writes its files, runs its commands in order, and compares what they print."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from pathlib import Path

import attrs
from docs.blocks import Block, Step, blocks_of, steps_of
from helpers import Processes, Running, wait_until
from servers import Server

ELSEWHERE = re.compile(r"^(make|pip) ")
"""Commands that CI runs by itself: the targets of the Makefile, and installing what was built."""
WORKER = re.compile(r"^mq worker (?!.*--burst)")
"""A command that goes on until the session ends."""
LOOKING = re.compile(r"^(mq (jobs (list|show|attempts)|queues (list|counts)|info)|redis-cli)\b")
"""A command that a reader repeats until the worker is through."""

_UNSTABLE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "<instant>"),
    (re.compile(r"\((\d+[dhms]+)+ ago\)|\(in (\d+[dhms]+)+\)|\(now\)"), "<ago>"),
    (re.compile(r"\b1\d{12}\b"), "<ms>"),
    (re.compile(r"\b[0-9a-v]{26}\b"), "<id>"),
    (re.compile(r"\b[\w.-]+:\d+:[0-9a-f]{8}\b"), "<worker>"),
    (re.compile(r"<Store \S+ prefix"), "<Store prefix"),
    (re.compile(r"\b\d+(\.\d+)? ?m?s\b"), "<time>"),
    (re.compile(r"\bprocess \d+"), "process <pid>"),
    (re.compile(r" {2,}"), "  "),
)


def stable(text: str) -> str:
    """Return output without what differs from run to run: instants, ids, names, durations."""
    for pattern, word in _UNSTABLE:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def redis_cli() -> str | None:
    """Return where redis-cli is; it must be there in CI, and may be missing elsewhere."""
    found = shutil.which("redis-cli")
    assert found or os.environ.get("CI", "").lower() != "true", "CI needs redis-cli"
    return found


@attrs.define
class Session:
    """A folder, a server and the commands that have run.

    Args:
        server: what the page calls its Redis.
        processes: starts and ends them.
        folder: where they run.
    """

    server: Server
    processes: Processes
    folder: Path
    workers: list[Running] = attrs.field(factory=list)
    expected_of_workers: list[str] = attrs.field(factory=list)

    def play(self, page: Path) -> None:
        """Run every block of a page; fails at the first that does not print what it says."""
        self._make_commands()
        for block in blocks_of(page):
            self.play_block(block)
        self._check_workers()

    def play_block(self, block: Block) -> None:
        """Run one block: a file is written, a console's commands are run."""
        if block.file is not None:
            (self.folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for step in steps_of(block.text):
                self._run(step, block)

    def _run(self, step: Step, block: Block) -> None:
        if ELSEWHERE.match(step.command):
            return
        if step.command.startswith("redis-cli ") and not redis_cli():
            return
        if WORKER.match(step.command):
            self._run_worker(step)
            return
        found, said = self._output_of(step.command, block), stable(step.output)
        if LOOKING.match(step.command) and found != said:
            found = self._looked_for(step.command, block, said)
        assert found == said, f"{block.line}: {step.command} printed\n{found}\ninstead of\n{said}"

    def _output_of(self, command: str, block: Block) -> str:
        running = self._start(command)
        code = running.wait()
        assert code == 0, f"{block.line}: {command}\n{running.stdout}{running.stderr}"
        return stable(running.stdout)

    def _looked_for(self, command: str, block: Block, said: str) -> str:
        seen: list[str] = []

        def found() -> bool:
            seen.append(self._output_of(command, block))
            return seen[-1] == said

        with contextlib.suppress(AssertionError):
            wait_until(found, what=command)
        return seen[-1]

    def _run_worker(self, step: Step) -> None:
        self.expected_of_workers += stable(step.output).splitlines()
        # A page may show more of a worker's log further down.
        if all(step.command not in worker.args for worker in self.workers):
            worker = self._start(step.command)
            worker.wait_for(" started: ")
            self.workers.append(worker)

    def _check_workers(self) -> None:
        for worker in self.workers:
            worker.signal()
        for worker in self.workers:
            assert worker.wait() == 0, worker.stderr
        logged = {line for worker in self.workers for line in stable(worker.stderr).splitlines()}
        missing = [line for line in self.expected_of_workers if line not in logged]
        assert missing == [], logged

    def _start(self, command: str) -> Running:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        env = {"MQ_URL": self.server.url, "PATH": path, "COLUMNS": "120"}
        # `exec` where it can be: a signal must reach the worker, not its shell.
        line = f"exec {command}" if WORKER.match(command) else command
        return self.processes.start("sh", "-c", line, command, env=env, cwd=self.folder)

    def _make_commands(self) -> None:
        """Make `mq`, `python` and `redis-cli` mean the ones under test."""
        folder = self.folder / "bin"
        folder.mkdir()
        commands = {"mq": f'"{sys.executable}" -m mq "$@"', "python": f'"{sys.executable}" "$@"'}
        cli = redis_cli()
        if cli:
            socket = self.server.url.removeprefix("unix://")
            commands["redis-cli"] = f'"{cli}" -s "{socket}" "$@"'
        for name, line in commands.items():
            script = folder / name
            script.write_text(f"#!/bin/sh\nexec {line}\n", encoding="utf-8")
            script.chmod(0o755)
