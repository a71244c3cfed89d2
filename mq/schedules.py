"""Schedules of definitions: records in the store from which workers make one job per occurrence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attrs

from mq.cadence import read_cadence
from mq.durations import Duration, to_ms
from mq.errors import DefinitionError
from mq.job_options import check_options
from mq.job_verbs import JobVerbs
from mq.records import ScheduleRecord
from mq.validation import check_name, check_schedule_key

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from mq.app import App
    from mq.definitions import Job
    from mq.flows import Flow
    from mq.store import Store

Mine = dict[tuple[str, str], ScheduleRecord]
"""The schedules of a set that are for one store, by job name and key."""

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
    tz: str | ZoneInfo,
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
    check_options(options, "schedule", refused=_REFUSED)
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
    """How the store differed from what a set declares; schedules as `<name>:<key>`.

    Args:
        created: schedules that were missing.
        reset: schedules that had another cadence.
        extra: schedules of the group that are not declared (any more), and are left alone.
        pruned: those of them that were deleted, because nobody has declared them for long enough.
        taken: schedules that were another group's, and whose; empty for no group.
        left: schedules that have another cadence than the declared one, and were left alone,
            because this set has reset them before: the cadence as it is declared, and as it is.
    """

    created: list[str] = attrs.field(factory=list)
    reset: list[str] = attrs.field(factory=list)
    extra: list[str] = attrs.field(factory=list)
    pruned: list[str] = attrs.field(factory=list)
    taken: dict[str, str] = attrs.field(factory=dict)
    left: dict[str, tuple[str, str]] = attrs.field(factory=dict)

    def __str__(self) -> str:
        """Return one line for people."""
        parts = [
            f"{what} {', '.join(labels)}"
            for what, labels in (
                ("created", self.created),
                ("reset to the declared cadence", self.reset),
                ("not declared any more", self.extra),
                ("pruned", self.pruned),
            )
            if labels
        ]
        return "; ".join([*parts, *self.warnings()]) or "as declared"

    def warnings(self) -> list[str]:
        """Return a line for each schedule that another owner or process sees otherwise."""
        taken = [
            f"{label} was {f'of group {group}' if group else 'of no group'}, and is taken over"
            for label, group in self.taken.items()
        ]
        left = [
            f"{label} is declared as {declared!r}, another process has made it {found!r}:"
            " it is left so"
            for label, (declared, found) in self.left.items()
        ]
        return taken + left


class ScheduleSet:
    """The schedules that one owner declares; made by `App.schedules`.

    Workers of the app register them when they start, and again while they run. What else stands in
    the store under this group is reported, and deleted only when `prune_after` says so: a schedule
    that no process has declared for that long. So while a deploy rolls, old workers keep theirs.

    Args:
        app: whose definitions are scheduled.
        group: name of the owner.
        prune_after: the grace before a schedule that is no longer declared is deleted; None never
            deletes any.
    """

    def __init__(self, app: App, group: str, prune_after: Duration | None = None) -> None:
        self.group = check_name(group, "group")
        self.prune_after_ms = None if prune_after is None else to_ms(prune_after, "prune_after")
        self._app = app
        self._declared: dict[tuple[str, str], tuple[Job[Any, Any], ScheduleRecord]] = {}
        self._registered: set[tuple[str, str]] = set()

    def add(
        self,
        job: Job[Any, Any] | Flow[Any, Any],
        key: str,
        *,
        cron: str | None = None,
        tz: str | ZoneInfo = "UTC",
        every: Duration | None = None,
        payload: Any = None,
        overlap: str = "allow",
        max_lateness: Duration | None = None,
        **options: Any,
    ) -> None:
        """Declare one schedule; a definition or a flow, and the arguments of its `schedule`.

        Raises:
            DefinitionError: the definition is another app's.
            ValueError, TypeError: cadence, key or an option cannot work, or a set of the app has a
                schedule of this job and key.
            PayloadError: the payload does not fit its type.
        """
        definition = self._definition(job)
        record = schedule_record(
            definition, key, cron=cron, tz=tz, every=every, payload=payload, group=self.group,
            overlap=overlap, max_lateness=max_lateness, options=options,
        )  # fmt: skip
        at = (record.name, record.key)
        for other in [self, *self._app.schedule_sets]:
            if other.declares(*at):
                twice = f"schedule {record.key!r} of job {record.name!r} is declared twice"
                where = f"groups {other.group!r} and {self.group!r}: leave it to one of them"
                raise ValueError(twice if other is self else f"{twice}, by {where}")
        self._declared[at] = (definition, record)

    def declares(self, name: str, key: str) -> bool:
        """Whether the set has a schedule of this job name and key."""
        return (name, key) in self._declared

    def _definition(self, given: object) -> Job[Any, Any]:
        job: Any = given
        parent = getattr(given, "parent", None)
        if isinstance(parent, JobVerbs) and getattr(parent, "flow", None) is given:
            job = parent
        if not isinstance(job, JobVerbs):
            raise TypeError(
                "add() takes a definition, as app.define and @app.job return it, or a flow, got"
                f" {type(given).__name__}"
            )
        if self._app.jobs.get(job.name) is not job:
            raise DefinitionError(
                f"job {job.name!r} is defined by another App than the one whose"
                f" schedules({self.group!r}) this is: use the definition of the same app"
            )
        return cast("Job[Any, Any]", job)

    def apply(self, store: Store) -> Drift:
        """Register what is declared for a store, and tell how it differed.

        A cadence that differs is reset the first time; when it differs again, another process has
        reset it since, and it is left alone.
        """
        drift = Drift()
        mine = {at: record for at, (job, record) in self._declared.items() if job.store is store}
        now = store.now_ms()
        self._register(store, mine, now, drift)
        self._look_for_others(store, mine, now, drift)
        return drift

    def _register(self, store: Store, mine: Mine, now: int, drift: Drift) -> None:
        for at, record in mine.items():
            label = f"{record.name}:{record.key}"
            made = store.declare_schedule(begun(record, now), reset=at not in self._registered)
            self._registered.add(at)
            if made.change == "left":
                drift.left[label] = (record.cadence.encode(), made.cadence)
                continue
            if made.change != "kept":
                getattr(drift, made.change).append(label)
            if made.change != "created" and made.group != self.group:
                drift.taken[label] = made.group

    def _look_for_others(self, store: Store, mine: Mine, now: int, drift: Drift) -> None:
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
