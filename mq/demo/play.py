"""Runs the demo: start, enqueue, watch, and compare what became of the jobs with the plan."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import attrs

from mq.cli.failures import CommandError
from mq.cli.job_data import print_ledger
from mq.cli.output import print_table
from mq.demo.place import Place, Stop
from mq.demo.plan import Planned, read_plan
from mq.records import JobRecord
from mq.states import JobState
from mq.store import Store

APP = "mq.demo.jobs:app"
LIMIT_S = 20.0
LOOK_S = 0.1
Say = Callable[[str], None]
Watch = Callable[[int, dict[JobState, int]], None]


@attrs.frozen
class Enqueued:
    """One job of the demo: its id, and the line it came from."""

    id: str
    planned: Planned


@attrs.define
class Play:
    """One performance.

    Args:
        say: prints a line.
        stop: whether the user has seen enough.
    """

    say: Say
    stop: Stop
    jobs: list[Enqueued] = attrs.field(factory=list)

    def run(self, place: Place, watch: Watch) -> int:
        """Run from start to end and return the exit code.

        Args:
            place: where.
            watch: told the number of finished jobs, and the jobs in each state.
        """
        # For the worker, and for the app where this process is the worker.
        os.environ["MQ_URL"] = place.url
        store = Store(place.url)
        with ExitStack() as left:
            left.callback(store.close)
            self._start_worker(place, left)
            self._enqueue(store)
            finished = self._wait(store, place, watch)
            if self.stop:
                return self.stop.code
            problem = place.stop_worker()
            if not finished:
                problem = f"not everything was finished after {LIMIT_S:.0f} s"
            return self._report(store, problem)

    def _start_worker(self, place: Place, left: ExitStack) -> None:
        if place.alone is None:
            self.say(f"worker   process {place.start_worker(APP)}: mq worker {APP}")
            return
        from mq.demo.jobs import app
        from mq.worker.pool import Worker

        left.enter_context(Worker(app))
        self.say("worker   10 threads of this process")

    def _enqueue(self, store: Store) -> None:
        from mq.demo.jobs import app

        for planned in read_plan():
            answers = store.enqueue_many(planned.requests(app))
            self.jobs += (Enqueued(answer.id, planned) for answer in answers)
        names = {job.planned.job for job in self.jobs}
        self.say(f"enqueued {len(self.jobs)} jobs of {len(names)} kinds")

    def _wait(self, store: Store, place: Place, watch: Watch) -> bool:
        """Watch until everything is finished; False when it takes too long, or is stopped."""
        until = time.monotonic() + LIMIT_S
        pause = threading.Event()
        while not self.stop:
            problem = place.complaint()
            if problem is not None:
                raise CommandError(problem)
            counts = store.counts()
            finished = sum(number for state, number in counts.items() if state.finished)
            watch(finished, counts)
            if finished >= len(self.jobs):
                return True
            if time.monotonic() > until:
                return False
            pause.wait(LOOK_S)
        return False

    def _report(self, store: Store, problem: str | None) -> int:
        records = {job.id: store.get_job(job.id) for job in self.jobs}
        self.say("")
        self._print_outcomes(records)
        shown = max(self.jobs, key=lambda job: (job.planned.runs, job.planned.job == "sync-feed"))
        ledger = store.get_attempts(shown.id)
        self.say(f"\nThe ledger of one {shown.planned.job} job, {shown.id}:\n")
        print_ledger(ledger)
        wrong = [job for job in self.jobs if not job.planned.met_by(records[job.id])]
        if wrong:
            kinds = ", ".join(sorted({job.planned.job for job in wrong}))
            raise CommandError(f"{len(wrong)} jobs did not end as planned: {kinds}")
        if problem is not None:
            raise CommandError(problem)
        self.say(f"\nAll {len(self.jobs)} jobs ended as they should.")
        return 0

    def _print_outcomes(self, records: dict[str, JobRecord | None]) -> None:
        rows = []
        for name in dict.fromkeys(job.planned.job for job in self.jobs):
            mine = [job for job in self.jobs if job.planned.job == name]
            found = [record for job in mine if (record := records[job.id]) is not None]
            ended = [sum(record.state is state for record in found) for state in _SHOWN]
            runs = sum(record.attempts_made for record in found)
            met = all(job.planned.met_by(records[job.id]) for job in mine)
            rows.append((name, len(mine), *ended, runs, "yes" if met else "NO"))
        numbers = ("enqueued", *(state.value for state in _SHOWN), "runs")
        print_table(("job", *numbers, "as planned"), rows, right=numbers)


_SHOWN = (JobState.COMPLETED, JobState.FAILED)
