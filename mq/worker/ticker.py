"""The ticker: makes jobs of schedules whose occurrence has come."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence

import attrs

from mq.records import ScheduleRecord
from mq.schedules import ScheduleSet
from mq.store import Store
from mq.store.scheduling import TICK_BATCH, Due, Tick
from mq.worker.duty import Duty
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak

log = logging.getLogger("mq.worker")

SHORTEST_S = 0.01
LEFT_MS = 100
"""After which a page that was left to another worker is looked at again."""
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
        self._unreadable: set[str] = set()
        self._warned: set[tuple[str, str]] = set()
        self._next_at_s: float | None = None
        self._looking = threading.Lock()

    def look(self) -> None:
        """Declare, and tick what is due, the longest overdue first.

        A burst looks as well before it ends: when its look is over, so is the other one.
        """
        with self._looking:
            self._declare()
            self._tick_due()

    def _tick_due(self) -> None:
        self._next_at_s = None
        reached: tuple[int, str] | None = None
        while not self._stop_asked.is_set():
            read_at_s = time.monotonic()
            due = self._store.due_schedules(after=reached)
            for label in due.unreadable:
                self._complain(label, "its record cannot be read")
            # What is ticked now falls due again, and perhaps before all that was not due yet.
            following = [*self._tick(due), *([] if due.next_at is None else [due.next_at])]
            for at in following:
                next_at_s = read_at_s + (at - due.now) / 1000
                self._next_at_s = min(self._next_at_s or next_at_s, next_at_s)
            reached = due.reached
            if reached is None:
                return

    def pause_s(self) -> float:
        """Until the next schedule falls due, a set is to be declared, or an interval is over."""
        graces = [one.prune_after_ms for one in self._sets if one.prune_after_ms is not None]
        usual_s = min(super().pause_s(), *(ms / DECLARE_SHARE / 1000 for ms in graces), math.inf)
        usual_s = max(usual_s, SHORTEST_S)
        if self._next_at_s is None:
            return usual_s
        return max(min(usual_s, self._next_at_s - time.monotonic()), SHORTEST_S)

    def _declare(self) -> None:
        if not self._sets:
            return
        now = self._store.now_ms()
        for one in self._sets:
            since = self._declared_at.get(one.group)
            grace_ms = one.prune_after_ms
            if since is not None and (grace_ms is None or now - since < grace_ms // DECLARE_SHARE):
                continue
            drift = one.apply(self._store)
            self._declared_at[one.group] = now
            if drift.created or drift.reset or drift.pruned or (drift.extra and since is None):
                # What is a warning is told as one.
                told = attrs.evolve(drift, taken={}, left={})
                log.info("schedules of %s: %s", one.group, told)
            for warning in drift.warnings():
                if (one.group, warning) not in self._warned:
                    self._warned.add((one.group, warning))
                    log.warning("schedules of %s: %s", one.group, warning)

    def _tick(self, due: Due) -> list[int]:
        """Tick what is due; returns the occurrences that come after, ms."""
        ticks, following = [], []
        for found in due.schedules:
            schedule = self._past_what_is_late(found, due.now)
            if schedule is None:
                continue
            next_run_at = self._next_of(schedule, due.now)
            if next_run_at is None:
                continue
            following.append(next_run_at)
            if schedule.next_run_at > due.now:
                continue
            why = self._held_up(schedule)
            if why is None:
                ticks.append(Tick(schedule, next_run_at))
            else:
                self._skip(schedule, next_run_at, why)
        for start in range(0, len(ticks), TICK_BATCH):
            made = self._store.tick_all(ticks[start : start + TICK_BATCH])
            self.ticked += sum(made)
            if sum(made) * 2 < len(made):
                # Another worker is at this page: leave the rest to it, and look whether it did.
                following.append(due.now + LEFT_MS)
                break
        return following

    def _past_what_is_late(self, schedule: ScheduleRecord, now: int) -> ScheduleRecord | None:
        """Return the schedule at the first occurrence that is not too late, perhaps one to come."""
        late_ms, most_ms = now - schedule.next_run_at, schedule.max_lateness_ms
        if most_ms is None or late_ms <= most_ms:
            return schedule
        in_time = self._next_of(schedule, now - most_ms - 1)
        why = f"its occurrence is {late_ms} ms late"
        if in_time is None or not self._skip(schedule, in_time, why):
            return None
        return attrs.evolve(schedule, next_run_at=in_time)

    def _skip(self, schedule: ScheduleRecord, next_run_at: int, why: str) -> bool:
        name, key, slot = schedule.name, schedule.key, schedule.next_run_at
        try:
            skipped = self._store.advance_schedule(name, key, slot, next_run_at)
        except ValueError as error:  # another program wrote what no schedule can be called
            self._complain(f"{name}:{key}", str(error))
            return False
        if skipped:
            log.info("schedule %s:%s: %s, no job", name, key, why)
        return skipped

    def _next_of(self, schedule: ScheduleRecord, now: int) -> int | None:
        """The first occurrence after now: those missed meanwhile become one job."""
        try:
            return schedule.next_after(max(now, schedule.next_run_at))
        except ValueError as error:
            self._complain(f"{schedule.name}:{schedule.key}", str(error))
            return None

    def _complain(self, label: str, why: str) -> None:
        if label not in self._unreadable:
            self._unreadable.add(label)
            log.error("schedule %s is left to other workers: %s", label, why)

    def _held_up(self, schedule: ScheduleRecord) -> str | None:
        if schedule.overlap == "skip" and schedule.last_job_id is not None:
            (state,) = self._store.get_states([schedule.last_job_id])
            if state is not None and not state.finished:
                return f"its last job is still {state.value}"
        return None
