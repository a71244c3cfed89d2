"""The process executor: handlers run in child processes, which can be killed.

A slot that runs such a job keeps one long-lived child (a fresh interpreter, never a fork of this
threaded process) and waits for it. A handler told to end gets SIGTERM, which raises in it; after
its grace the child's whole process group gets SIGKILL. A child that dies by itself (a crash in C,
os._exit, an out-of-memory kill) is one failed run that says how it died; the worker starts
another.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from mq.context import Context, Interrupted
from mq.errors import DefinitionError
from mq.worker.executors.frames import Frames
from mq.worker.invocation import Report, defect
from mq.worker.run import Run

if TYPE_CHECKING:
    from mq.app import App
    from mq.definitions import Job

log = logging.getLogger("mq.worker")

REAP_S = 5.0
CHILD_MARK = "MQ_CHILD"
"""Set in the environment of a child, where no worker may start: it would start children in turn."""


class ChildDied(Exception):
    """A child process ended while it ran a handler."""


class ChildNotStarted(Exception):
    """A child process could not import the app."""


class ChildProcess:
    """One child; used by one slot.

    Args:
        setup: what it must import, and limits.
    """

    def __init__(self, setup: tuple[Any, ...]) -> None:
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mq.worker.executors.child", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path, CHILD_MARK: "1"},
                start_new_session=True,
            )
        self._frames = Frames(ours)
        self._lock = threading.Lock()
        self._current = 0
        self.runs = 0
        with contextlib.suppress(OSError):
            self._frames.send("setup", *setup)
        answer = self._frames.receive()
        if answer is None or answer[0] != "ready":
            self.close()
            raise ChildNotStarted(answer[1] if answer else self.end())

    def begin(self) -> ChildRun:
        """Take the next run; what is said of an earlier one does not reach it."""
        with self._lock:
            self.runs += 1
            self._current = self.runs
        return ChildRun(self, self.runs)

    def invoke(self, payload: bytes | None, context: Context, fields: dict[str, Any]) -> Report:
        """Run the handler of the run that began, to its end or to the child's."""
        try:
            self._frames.send("run", self._current, payload, fields)
            while (message := self._frames.receive()) is not None:
                kind, number, *rest = message
                if number != self._current:
                    # Nobody knows whose answers come next from a child that has lost count.
                    self.kill()
                elif kind == "progress":
                    context.progress(rest[0])
                else:
                    return Report(*rest)
        except OSError:
            pass
        finally:
            with self._lock:
                self._current = 0
        return defect(ChildDied(self.end()), "exited")

    def say(self, kind: str, number: int) -> None:
        """Say something about a run."""
        with contextlib.suppress(OSError):
            self._frames.send(kind, number)

    def kill_run(self, number: int) -> None:
        """Kill the child if that run is the one it is in."""
        with self._lock:
            if self._current == number:
                self.kill()

    def end(self) -> str:
        """Reap a dead child and say how it died."""
        try:
            code = self._process.wait(REAP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        if code >= 0:
            return f"the child process exited with code {code} during the run"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"the child process was killed by {name} during the run"

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the child and all it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the child; a slot that waits for it sees it die."""
        self.kill()
        self._process.wait()
        self._frames.close()


@attrs.frozen
class ChildRun:
    """One run in a child, as those see it who may end it."""

    _child: ChildProcess
    _number: int

    def tell(self) -> None:
        """Set the handler's `ctx.cancelled`."""
        self._child.say("told", self._number)

    def interrupt(self) -> None:
        """Raise Interrupted in the handler."""
        self._child.say("interrupt", self._number)

    def kill(self) -> None:
        """Kill the child's process group."""
        self._child.kill_run(self._number)


class ProcessExecutor:
    """Calls handlers in children, one child a slot.

    Args:
        app: whose handlers they are.
        jobs: the definitions the worker runs.
        max_bytes: size limit of an encoded result or error.
        max_runs: how many runs a child serves before it is replaced; None for no limit.
    """

    def __init__(
        self, app: App, jobs: Mapping[str, Job[Any, Any]], max_bytes: int, max_runs: int | None
    ) -> None:
        self._app = app
        self._jobs = jobs
        self._max_bytes = max_bytes
        self._max_runs = max_runs
        self._of_slot = threading.local()
        self._lock = threading.Lock()
        self._children: set[ChildProcess] = set()

    def invoke(self, run: Run, begin: Callable[[], Context]) -> Report:
        """Run the handler of a run in this slot's child, once that is ready."""
        try:
            child = self._child()
        except ChildNotStarted as error:
            log.warning("no child process for job %s: %s", run.name, error)
            begin()
            return defect(error, "exited")
        if run.over or run.reason is not None or run.cancel_requested:
            # Told to end while the child was starting: nothing has run, and nothing will.
            return attrs.evolve(defect(Interrupted(), "exited"), interrupted=True)
        context = begin()
        run.in_child(child.begin())
        fields = {
            "job_id": context.job_id,
            "name": context.name,
            "queue": context.queue,
            "attempt": context.attempt,
            "attempts_max": context.attempts_max,
            "enqueued_at": context.enqueued_at,
            "metadata": dict(context.metadata),
            "time_limit_ms": run.record.timeout_ms,
        }
        report = child.invoke(run.record.payload, context, fields)
        if not child.alive or (self._max_runs is not None and child.runs >= self._max_runs):
            self._drop(child)
        return report

    def _child(self) -> ChildProcess:
        child: ChildProcess | None = getattr(self._of_slot, "child", None)
        if child is not None and child.alive:
            return child
        if child is not None:
            self._drop(child)
        child = ChildProcess(self._setup())
        self._of_slot.child = child
        with self._lock:
            self._children.add(child)
        return child

    def _drop(self, child: ChildProcess) -> None:
        self._of_slot.child = None
        with self._lock:
            self._children.discard(child)
        child.close()

    def _setup(self) -> tuple[Any, ...]:
        module, name, script = reference_of(self._app)
        handlers = {
            job.function.__module__
            for job in self._jobs.values()
            if job.function is not None and job.function.__module__ != "__main__"
        }
        level = log.getEffectiveLevel()
        return module, name, script, sorted(handlers), self._max_bytes, level

    def stop(self) -> None:
        """Kill every child; what they still run has been given back."""
        with self._lock:
            children = list(self._children)
            self._children.clear()
        for child in children:
            child.close()


def reference_of(app: App) -> tuple[str, str, str]:
    """Return module, attribute and script path by which another process finds the app.

    Raises:
        DefinitionError: the app is not an attribute of any imported module.
    """
    # The script last: running it again in a child is right only when nothing else has the app.
    loaded: list[object] = list(sys.modules.values())
    modules = [module for module in loaded if isinstance(module, ModuleType)]
    for module in sorted(modules, key=lambda module: module.__name__ == "__main__"):
        for name, value in list(vars(module).items()):
            if value is app:
                main = module.__name__ == "__main__"
                return module.__name__, name, str(module.__file__) if main else ""
    raise DefinitionError(
        'executor="process" needs the app at the top level of a module, where a child process can'
        " import it"
    )
