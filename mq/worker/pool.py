"""The worker: owns the threads; starts, drains and stops them."""

from __future__ import annotations

import enum
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from mq.durations import format_ms
from mq.errors import DefinitionError, StoreError
from mq.records import Ack
from mq.worker.duty import Duty
from mq.worker.executors.process import CHILD_MARK, ProcessExecutor, reference_of
from mq.worker.executors.thread import ThreadExecutor
from mq.worker.fetcher import Fetcher
from mq.worker.flow_starter import FlowStarter
from mq.worker.flow_sweeper import FlowSweeper
from mq.worker.heartbeat import Heartbeat
from mq.worker.hooks import FailureHooks
from mq.worker.indexer import Indexer
from mq.worker.interrupter import Interrupter
from mq.worker.listener import Listener
from mq.worker.options import WorkerOptions, read_options
from mq.worker.outage import Streak
from mq.worker.pruner import Pruner
from mq.worker.queue_order import QueueOrder
from mq.worker.relay import Relay
from mq.worker.run import Run, Runs
from mq.worker.runner import Ended, Runner
from mq.worker.signals import StopSignals
from mq.worker.stall_sweeper import StallSweeper
from mq.worker.ticker import Ticker
from mq.worker.timekeeper import Timekeeper
from mq.worker.window_sweeper import WindowSweeper

if TYPE_CHECKING:
    from types import TracebackType

    from mq.app import App
    from mq.definitions import Job

log = logging.getLogger("mq.worker")

LOOK_S = 0.1
"""How often the main thread looks whether the worker should end for a reason of its own."""
LAST_WORDS_S = 1.0
"""How long a drained worker waits for the last acks, and for handlers it told to end."""


class ExitCode(enum.IntEnum):
    """What the process of a worker tells its supervisor."""

    CLEAN = 0
    """Stopped as asked; nothing it held was lost."""
    NOT_STARTED = 1
    """The app could not be imported, or Redis could not be reached."""
    USAGE = 2
    """The command line is wrong."""
    FORCED = 3
    """Stopped at once by a second signal; locks expire and the sweep recovers."""
    STRAYS = 4
    """More handlers ignored their interrupt than allowed; only a new process gets rid of them."""
    BURST_FAILED = 5
    """A burst ended, and jobs failed in it."""


class Worker:
    """Runs the jobs of one store of an app.

    Args:
        app: whose definitions are run.
        store: name of the store it serves; definitions bound to others are ignored.
        options: concurrency, queues, lock_duration, ...: see `WorkerOptions`.

    Raises:
        DefinitionError: no definition of that store has a handler, or a queue belongs to another
            store.
        ValueError, TypeError: an option cannot work; names it.
    """

    def __init__(self, app: App, *, store: str = "default", **options: Any) -> None:
        self.options: WorkerOptions = read_options(**options)
        self.store = app.store_named(store)
        jobs = _runnable(app, store)
        queues = self.options.queues or dict.fromkeys(
            sorted({job.queue for job in jobs.values()}), 1
        )
        _check_queues(app, store, queues)
        in_process = frozenset(
            name
            for name, job in jobs.items()
            if (job.conduct.executor or self.options.executor) == "process" and job.flow is None
        )
        if in_process:
            reference_of(app)
        self.names = tuple(sorted(jobs))
        self.queues = tuple(queues)
        self.runs = Runs()
        streak = Streak()
        self._too_many_strays = threading.Event()
        self.timekeeper = Timekeeper()
        self.children = ProcessExecutor(
            app, jobs, app.max_payload_bytes, self.options.child_max_runs
        )
        runner = Runner(
            jobs,
            self.store,
            self.options.id,
            app.max_payload_bytes,
            self._began,
            self.children,
            in_process,
        )
        self.interrupter = Interrupter(
            jobs,
            runner,
            self.timekeeper,
            self._finished,
            self.options.max_strays,
            self._overrun,
        )
        self.executor = ThreadExecutor(
            runner, self.options.concurrency, self._finished, self.interrupter.stray_ended
        )
        self.interrupter.executor = self.executor
        self.fetcher = Fetcher(
            self.store,
            self.names,
            QueueOrder(queues, strict=self.options.strict),
            self.options,
            self.runs,
            self.executor.submit,
            streak,
        )
        pairs = [(queue, name) for queue in queues for name in self.names]
        self.listener = Listener(
            self.store, pairs, self.options, self.runs, self.fetcher, self.interrupter, streak
        )
        self.hooks = FailureHooks(jobs)
        self.fetcher.landed = self._landed
        self.fetcher.became_hungry = self.listener.became_hungry
        self.heartbeat = Heartbeat(self.store, self.options, self.runs, self.interrupter, streak)
        self.fetcher.displaced = self.heartbeat.lost
        self.fetcher.foretold = self.interrupter.cancel
        self.sweeper = StallSweeper(self.store, self.options, streak)
        self.sweeper.requeued = self.fetcher.look
        self.starter = FlowStarter(app, self.store, self.options, streak)
        self.relay = Relay(app, self.store, self.options, streak)
        flow_sweeper = FlowSweeper(app, self.store, self.options, streak)
        self.relay.failures_carried = flow_sweeper.poke
        self.ticker = Ticker(self.store, app.schedule_sets, self.options, streak)
        self._upkeep: tuple[Duty, ...] = (
            self.sweeper,
            WindowSweeper(self.store, self.options, streak),
            Pruner(self.store, self.options, streak),
            self.starter,
            self.relay,
            flow_sweeper,
            self.ticker,
            Indexer(self.store, _declared(app, store), self.options, streak),
        )
        self._duties: tuple[threading.Thread, ...] = (
            self.timekeeper,
            self.fetcher,
            self.listener,
            self.heartbeat,
            self.hooks,
            *self._upkeep,
        )
        self._started = False
        self._made = 0

    def _overrun(self) -> None:
        self.fetcher.stop_claiming()
        self._too_many_strays.set()

    @property
    def strays(self) -> int:
        """How many threads of handlers that did not end are left behind."""
        return self.interrupter.strays

    @property
    def locks_lost(self) -> int:
        """How many runs have lost their lock."""
        return self.heartbeat.locks_lost

    def _began(self, run: Run) -> None:
        self.interrupter.started(run)

    def _finished(self, run: Run, ended: Ended) -> None:
        self.fetcher.finished(run, ended)

    def _landed(self, run: Run, ended: Ended, word: str) -> None:
        self.hooks.landed(run, ended, word)
        if word == "fanned_out":
            self.starter.start_children(run.job_id)
        if run.record.parent:
            self.relay.poke()

    def start(self) -> None:
        """Check the server and start the threads; StoreError when Redis cannot be reached."""
        if os.environ.get(CHILD_MARK):
            raise DefinitionError(
                "a worker was started while a child process imported the app: put the start under"
                ' if __name__ == "__main__":'
            )
        self.store.check()
        log.info(
            "worker %s started: %d threads, queues %s, jobs %s, %s",
            self.options.id, self.options.concurrency, ",".join(self.queues),
            ",".join(self.names), self.store,
        )  # fmt: skip
        self._started = True
        self.executor.start()
        for duty in self._duties:
            duty.start()

    def run(self, signals: StopSignals | None = None) -> ExitCode:
        """Work until a signal, or in a burst until nothing is runnable; returns the exit code.

        Args:
            signals: what the process was asked; without any, a burst alone ends it.
        """
        signals = signals or StopSignals()
        self.start()
        broken: list[str] = []
        while not signals.drain.wait(LOOK_S) and not self._too_many_strays.is_set() and not broken:
            # A duty that dies of a bug leaves a worker that looks alive and does half its work.
            broken = [duty.name for duty in self._duties if not duty.is_alive()]
            if self.options.burst and self.fetcher.is_dry and self._is_quiet():
                break
        if broken:
            log.critical("worker %s stops: its %s has died", self.options.id, ", ".join(broken))
        if not self.stop(force=signals.force) or broken:
            return ExitCode.FORCED
        if self._too_many_strays.is_set():
            return ExitCode.STRAYS
        if self.options.burst and self.fetcher.tally["failed"]:
            return ExitCode.BURST_FAILED
        return ExitCode.CLEAN

    def _is_quiet(self) -> bool:
        """Whether flows and schedules have made nothing runnable since a burst ran dry last."""
        try:
            self.ticker.look()
            self.starter.look()
            self.relay.look()
        except StoreError:
            return True
        done = self.starter.done + self.relay.done + self.ticker.ticked
        if done == self._made:
            return True
        self._made = done
        self.fetcher.look_again()
        return False

    def stop(self, *, force: threading.Event | None = None) -> bool:
        """Stop claiming, let runs finish for the grace, and give back what is left.

        Args:
            force: when set, everything ends at once and locks are left to expire.

        Returns:
            Whether it ended in order; False when it was forced.
        """
        if not self._started:
            return True
        self._started = False
        self.fetcher.stop_claiming()
        for duty in self._upkeep:
            duty.stop()
        if len(self.runs):
            log.info("worker %s draining: %d running", self.options.id, len(self.runs))
        grace_s = self.options.shutdown_grace_ms / 1000
        if not self._wait_for_runs(grace_s, force) and not _is_set(force):
            self._give_back()
        self.fetcher.halt()
        self.heartbeat.stop()
        self.timekeeper.stop()
        self.children.stop()
        self.executor.stop()
        if _is_set(force):
            log.warning("worker %s forced to stop: %d jobs keep their locks until they expire",
                        self.options.id, len(self.runs))  # fmt: skip
            return False
        self.fetcher.join(LAST_WORDS_S)
        self.listener.stop()
        self.listener.join(LAST_WORDS_S)
        self.hooks.stop()
        self.hooks.join(LAST_WORDS_S)
        give_up_at = time.monotonic() + LAST_WORDS_S
        for thread in (self.heartbeat, *self._upkeep):
            thread.join(max(0.0, give_up_at - time.monotonic()))
        log.info("worker %s stopped: %s", self.options.id, self._summary())
        return True

    def _wait_for_runs(self, limit_s: float, force: threading.Event | None) -> bool:
        give_up_at = time.monotonic() + limit_s
        while not _is_set(force):
            left_s = give_up_at - time.monotonic()
            pause_s = max(0.0, min(left_s, 0.1))
            if self.fetcher.wait_until_settled(pause_s) and self.runs.wait_until_empty(pause_s):
                return True
            if left_s <= 0:
                return False
        return False

    def _give_back(self) -> None:
        """Tell the handlers to end, give them a moment, and release what still runs."""
        for run in self.runs:
            self.interrupter.interrupt(run, "stop")
        if self.runs.wait_until_empty(LAST_WORDS_S):
            return
        # Whatever these handlers still do is their own affair: no ack will be sent for it.
        left = [run for run in self.runs if run.end()]
        if not left:
            return
        for run in left:
            run.lost = True
        acks = [("release", Ack(run.job_id, run.token)) for run in left]
        try:
            self.store.exchange(acks, None)
        except StoreError as error:
            log.warning(
                "%d jobs were not given back, their locks will expire: %s", len(left), error
            )
            return
        log.warning(
            "%d jobs still ran after %s and were given back: %s", len(left),
            format_ms(self.options.shutdown_grace_ms), ", ".join(run.job_id for run in left),
        )  # fmt: skip
        for run in left:
            self.runs.drop(run)

    def _summary(self) -> str:
        counts = dict(sorted(self.fetcher.tally.words.items()))
        return ", ".join(f"{count} {word}" for word, count in counts.items()) or "nothing was run"

    def __enter__(self) -> Worker:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()


def _is_set(event: threading.Event | None) -> bool:
    return event is not None and event.is_set()


def _runnable(app: App, store: str) -> dict[str, Job[Any, Any]]:
    bound = {name: job for name, job in app.jobs.items() if job.store_name == store}
    jobs = {
        name: job
        for name, job in bound.items()
        if job.function is not None or (job.flow is not None and job.flow.complete)
    }
    for name in sorted(set(bound) - set(jobs)):
        log.warning("job %s has no handler here; its jobs are left to other workers", name)
    if not jobs:
        found = f"{len(bound)} without a handler" if bound else "none"
        raise DefinitionError(
            f"nothing to run: of the app's jobs on store {store!r}, {found};"
            " define one with @app.job or import the module that has the handlers"
        )
    return jobs


def _declared(app: App, store: str) -> list[str]:
    """The metadata keys that definitions of a store declare, handler or not."""
    bound = (job for job in app.jobs.values() if job.store_name == store)
    return list(dict.fromkeys(key for job in bound for key in job.indexed_metadata))


def _check_queues(app: App, store: str, queues: dict[str, int]) -> None:
    for queue in queues:
        if queue not in {job.queue for job in app.jobs.values()}:
            log.warning("queue %s is the default of no job here; only jobs sent to it come", queue)
        owners = {job.store_name for job in app.jobs.values() if job.queue == queue}
        if owners and store not in owners:
            raise DefinitionError(
                f"queue {queue!r} belongs to store {min(owners)!r}, this worker serves"
                f" store {store!r}: run it with --store {min(owners)}"
            )
