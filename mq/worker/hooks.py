"""Failure hooks: a definition's `on_failure`, called on its own thread after the ack landed.

A hook can neither change the outcome (it has landed) nor delay a slot or an ack; what it raises is
logged.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mq.context import enter
from mq.worker.run import Run
from mq.worker.runner import Ended

if TYPE_CHECKING:
    from mq.definitions import Job

log = logging.getLogger("mq.worker")

FAILED_WORDS = frozenset({"retried", "failed"})


class FailureHooks(threading.Thread):
    """Calls hooks one after the other until stopped.

    Args:
        jobs: definitions by name.
    """

    def __init__(self, jobs: Mapping[str, Job[Any, Any]]) -> None:
        super().__init__(name="mq-hooks", daemon=True)
        self._jobs = jobs
        self._landed: queue.SimpleQueue[tuple[Run, BaseException] | None] = queue.SimpleQueue()

    def landed(self, run: Run, ended: Ended, word: str) -> None:
        """Note what the store answered to an ack."""
        wanted = word in FAILED_WORDS and ended.error is not None
        if wanted and self._jobs[run.name].conduct.on_failure is not None:
            assert ended.error is not None
            self._landed.put((run, ended.error))

    def stop(self) -> None:
        """End the thread after the hooks that are owed."""
        self._landed.put(None)

    def run(self) -> None:
        """Call hooks until stopped."""
        while (owed := self._landed.get()) is not None:
            self._call(*owed)

    def _call(self, run: Run, error: BaseException) -> None:
        hook = self._jobs[run.name].conduct.on_failure
        if hook is None or run.context is None:
            return
        enter(run.context)
        try:
            hook(error, run.context)
        except BaseException:
            log.exception("on_failure of job %s (%s) raised", run.name, run.job_id)
        finally:
            enter(None)
