"""Schedules of definitions: records in the store from which workers make one job per occurrence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from mq.cadence import read_cadence
from mq.durations import Duration, to_ms
from mq.records import ScheduleRecord
from mq.validation import check_name, check_schedule_key

if TYPE_CHECKING:
    from mq.definitions import Job
    from mq.store import Store

_REFUSED = {
    "dedupe": "an occurrence exists once by its own id",
    "job_id": "the id of an occurrence is made from schedule and instant",
    "at": "the cadence says when",
    "delay": "the cadence says when",
}


@attrs.frozen
class Scheduled:
    """What registering a schedule did.

    Args:
        change: `created`; `kept`, the same cadence, whose next occurrence stays; or `reset`.
        next_run_at: the next occurrence, ms.
    """

    change: str
    next_run_at: int


def schedule_record(
    job: Job[Any, Any],
    key: str,
    *,
    cron: str | None,
    tz: str,
    every: Duration | None,
    payload: Any,
    group: str,
    overlap: str,
    max_lateness: Duration | None,
    options: dict[str, Any],
) -> ScheduleRecord:
    """Return a schedule, checked; when it begins is left open, see `begun`.

    Raises:
        ValueError, TypeError: cadence, key or an option cannot work; nothing was written.
        PayloadError: the payload does not fit its type.
    """
    for option, why in _REFUSED.items():
        if options.get(option) is not None:
            raise ValueError(f"a schedule takes no {option}=: {why}")
    if overlap not in ("allow", "skip"):
        raise ValueError(f"overlap must be 'allow' or 'skip', got {overlap!r}")
    cadence = read_cadence(cron, tz, every)
    request = job.request(payload, **options)
    if request.dedupe is not None:
        raise ValueError(
            f"job {job.name!r} is defined with dedupe=: an occurrence exists once by its own id;"
            " schedule a definition without"
        )
    return ScheduleRecord(
        name=job.name,
        key=check_schedule_key(key),
        cadence=cadence,
        request=attrs.evolve(request, id=None, delay_ms=None),
        next_run_at=0,
        group=check_name(group, "group") if group else "",
        overlap=overlap,
        max_lateness_ms=None if max_lateness is None else to_ms(max_lateness, "max_lateness"),
    )


def begun(schedule: ScheduleRecord, now: int) -> ScheduleRecord:
    """Return a schedule as it stands when it is first registered at this instant, ms."""
    return attrs.evolve(
        schedule,
        next_run_at=schedule.cadence.next_after(now, now),
        anchor=now if schedule.cadence.every_ms else 0,
    )


@attrs.frozen
class Drift:
    """How the store differed from what a set declares; keys as `<name>:<key>`.

    Args:
        created: schedules that were missing.
        reset: schedules that had another cadence.
        extra: schedules of the group that are not declared (any more), and are left alone.
        pruned: those of them that were deleted, because nobody has declared them for long enough.
    """

    created: list[str]
    reset: list[str]
    extra: list[str]
    pruned: list[str]


class ScheduleSet:
    """The schedules that one owner declares; made by `App.schedules`.

    Workers of the app register them when they start, and again while they run. What else stands in
    the store under this group is reported, and deleted only when `prune_after` says so: a schedule
    that no process has declared for that long. So while a deploy rolls, old workers keep theirs.

    Args:
        group: name of the owner.
        prune_after: the grace before a schedule that is no longer declared is deleted; None never
            deletes any.
    """

    def __init__(self, group: str, prune_after: Duration | None = None) -> None:
        self.group = check_name(group, "group")
        self.prune_after_ms = None if prune_after is None else to_ms(prune_after, "prune_after")
        self._declared: dict[tuple[str, str], tuple[Job[Any, Any], ScheduleRecord]] = {}

    def add(
        self,
        job: Job[Any, Any],
        key: str,
        *,
        cron: str | None = None,
        tz: str = "UTC",
        every: Duration | None = None,
        payload: Any = None,
        overlap: str = "allow",
        max_lateness: Duration | None = None,
        **options: Any,
    ) -> None:
        """Declare one schedule; the arguments are those of `Job.schedule`.

        Raises:
            ValueError, TypeError: cadence, key or an option cannot work, or the set has a schedule
                of this job and key.
            PayloadError: the payload does not fit its type.
        """
        record = schedule_record(
            job, key, cron=cron, tz=tz, every=every, payload=payload, group=self.group,
            overlap=overlap, max_lateness=max_lateness, options=options,
        )  # fmt: skip
        if (job.name, record.key) in self._declared:
            raise ValueError(f"schedule {key!r} of job {job.name!r} is declared twice")
        self._declared[job.name, record.key] = (job, record)

    def apply(self, store: Store) -> Drift:
        """Register what is declared for a store, and tell how it differed."""
        drift = Drift([], [], [], [])
        mine = {at: record for at, (job, record) in self._declared.items() if job.store is store}
        now = store.now_ms()
        for (name, key), record in mine.items():
            word, _ = store.upsert_schedule(begun(record, now))
            if word in ("created", "reset"):
                getattr(drift, word).append(f"{name}:{key}")
        if not mine and self._declared:
            return drift
        for found in store.list_schedules(group=self.group):
            if (found.name, found.key) in mine:
                continue
            label = f"{found.name}:{found.key}"
            grace_ms = self.prune_after_ms
            if grace_ms is None or found.updated_at + grace_ms > now:
                drift.extra.append(label)
            elif store.remove_schedule(found.name, found.key, found.updated_at):
                drift.pruned.append(label)
            elif store.get_schedule(found.name, found.key) is not None:
                # Another process has declared it since the list was read.
                drift.extra.append(label)
        return drift
