"""The thread executor: one long-lived thread a slot."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from mq.worker.run import Run
from mq.worker.runner import Ended, Runner

log = logging.getLogger("mq.worker")


class ThreadExecutor:
    """Runs handlers on threads of this process.

    The threads are daemons: a handler that never returns must not keep a stopped worker alive;
    its job has been given back by then.

    Args:
        runner: runs one job.
        slots: how many threads.
        finished: told the end of each run.
    """

    def __init__(self, runner: Runner, slots: int, finished: Callable[[Run, Ended], None]) -> None:
        self._runner = runner
        self._finished = finished
        self._claimed: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"mq-run-{slot}", daemon=True)
            for slot in range(slots)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def submit(self, run: Run) -> None:
        """Give a run to the next free thread."""
        self._claimed.put(run)

    def stop(self) -> None:
        """Let each thread end after the run it is in."""
        for _ in self._threads:
            self._claimed.put(None)

    def _serve(self) -> None:
        while (run := self._claimed.get()) is not None:
            if run.over:
                continue
            ended = self._runner.run(run)
            run.over = True
            self._finished(run, ended)
