"""The thread executor: one long-lived thread a slot."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable

from mq.worker.run import Run
from mq.worker.runner import Ended, Runner


class ThreadExecutor:
    """Runs handlers on threads of this process.

    The threads are daemons: a handler that never returns must not keep a stopped worker alive; its
    job has been given back by then.

    Args:
        runner: runs one job.
        slots: how many threads.
        finished: told the end of each run.
        stray_ended: told when a run ended that had been given up.
    """

    def __init__(
        self,
        runner: Runner,
        slots: int,
        finished: Callable[[Run, Ended], None],
        stray_ended: Callable[[Run], None],
    ) -> None:
        self._runner = runner
        self._slots = slots
        self._finished = finished
        self._stray_ended = stray_ended
        self._claimed: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Start the threads."""
        for _ in range(self._slots):
            self._start_thread()

    def _start_thread(self) -> None:
        name = f"mq-run-{next(self._numbers)}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def submit(self, run: Run) -> None:
        """Give a run to the next free thread."""
        self._claimed.put(run)

    def replace(self, run: Run) -> None:
        """Give the slot of a run that was given up to a new thread."""
        del run
        self._start_thread()

    def stop(self) -> None:
        """Let each thread end after the run it is in."""
        for _ in range(self._slots):
            self._claimed.put(None)

    def _serve(self) -> None:
        while (run := self._claimed.get()) is not None:
            if run.over:
                continue
            ended = self._runner.run(run)
            if run.end():
                self._finished(run, ended)
            elif not run.lost:
                # The slot has a new thread already.
                self._stray_ended(run)
                return
