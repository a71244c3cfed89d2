"""The ticker: makes jobs of schedules whose occurrence has come."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from mq.records import ScheduleRecord
from mq.schedules import ScheduleSet
from mq.store import Store
from mq.store.scheduling import Due, Tick
from mq.worker.duty import Duty
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak

log = logging.getLogger("mq.worker")

SHORTEST_S = 0.01
DECLARE_SHARE = 4
"""A set whose schedules are pruned after a grace is declared again this often within it."""


class Ticker(Duty):
    """Looks when the next schedule falls due, at the latest every interval. Any worker may tick.

    Args:
        store: whose schedules they are.
        sets: schedules that the app declares.
        options: the interval.
        streak: outages, as the other duties see them.
    """

    def __init__(
        self, store: Store, sets: Sequence[ScheduleSet], options: WorkerOptions, streak: Streak
    ) -> None:
        super().__init__("mq-ticker", "ticking schedules", options.schedule_ms, streak)
        self.ticked = 0
        self._store = store
        self._sets = sets
        self._declared_at: dict[str, int] = {}
        self._unreadable: set[tuple[str, str]] = set()
        self._next_s: float | None = None

    def look(self) -> None:
        """Declare, and tick what is due, the longest overdue first."""
        self._declare()
        reached: tuple[int, str] | None = None
        while not self._stop_asked.is_set():
            due = self._store.due_schedules(after=reached)
            self._tick(due)
            reached = due.reached
            if reached is None:
                self._next_s = None if due.next_at is None else (due.next_at - due.now) / 1000
                return

    def pause_s(self) -> float:
        """Until the next schedule falls due, or an interval is over."""
        usual_s = super().pause_s()
        return usual_s if self._next_s is None else max(min(usual_s, self._next_s), SHORTEST_S)

    def _declare(self) -> None:
        now = self._store.now_ms()
        for one in self._sets:
            since = self._declared_at.get(one.group)
            grace_ms = one.prune_after_ms
            if since is not None and (grace_ms is None or now - since < grace_ms // DECLARE_SHARE):
                continue
            drift = one.apply(self._store)
            self._declared_at[one.group] = now
            if drift.created or drift.reset or drift.pruned or (drift.extra and since is None):
                log.info("schedules of %s: %s", one.group, drift)

    def _tick(self, due: Due) -> None:
        ticks = []
        for schedule in due.schedules:
            next_run_at = self._next_of(schedule, due.now)
            if next_run_at is None:
                continue
            why = self._skipped(schedule, due.now)
            if why is None:
                ticks.append(Tick(schedule, next_run_at))
                continue
            slot = schedule.next_run_at
            if self._store.advance_schedule(schedule.name, schedule.key, slot, next_run_at):
                log.info("schedule %s:%s: %s, no job", schedule.name, schedule.key, why)
        self.ticked += sum(self._store.tick_all(ticks))

    def _next_of(self, schedule: ScheduleRecord, now: int) -> int | None:
        """The first occurrence after now: those missed meanwhile become one job."""
        try:
            return schedule.next_after(max(now, schedule.next_run_at))
        except ValueError as error:
            at = (schedule.name, schedule.key)
            if at not in self._unreadable:
                self._unreadable.add(at)
                # The text says it all, on one line.
                log.error("schedule %s:%s is left to other workers: %s", *at, error)  # noqa: TRY400
            return None

    def _skipped(self, schedule: ScheduleRecord, now: int) -> str | None:
        late_ms = now - schedule.next_run_at
        if schedule.max_lateness_ms is not None and late_ms > schedule.max_lateness_ms:
            return f"its occurrence is {late_ms} ms late"
        if schedule.overlap == "skip" and schedule.last_job_id is not None:
            (state,) = self._store.get_states([schedule.last_job_id])
            if state is not None and not state.finished:
                return f"its last job is still {state.value}"
        return None
