"""Scheduling: schedules as records of the store, and the steps that make jobs of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from mq import ids, wire
from mq.errors import DecodeError
from mq.records import Request, ScheduleRecord
from mq.store.producing import Producing
from mq.validation import check_instant_ms, check_name, check_schedule_key
from mq.wire import Argument

SCHEDULE_BATCH = 100
TICK_BATCH = 10
"""Scripts in one round trip: the server runs them all before it serves another client."""


@attrs.frozen
class Due:
    """Schedules whose occurrence has come.

    Args:
        schedules: by their occurrence, then by name and key.
        now: the instant of the reading by the store's clock, ms.
        unreadable: `<name>:<key>` of records that are none; they are left where they stand.
        next_at: when the next one falls due, ms; None when none will, or when there are more now.
        reached: where the reading ended, to go on from; None when there are no more.
    """

    schedules: list[ScheduleRecord]
    now: int
    unreadable: list[str]
    next_at: int | None
    reached: tuple[int, str] | None


@attrs.frozen
class Tick:
    """One occurrence to be made a job.

    Args:
        schedule: as it was read; what expects another occurrence by now is left alone.
        next_run_at: the occurrence it moves on to, ms.
    """

    schedule: ScheduleRecord
    next_run_at: int


@attrs.frozen
class Declared:
    """What declaring a schedule did.

    Args:
        change: `created`, `kept`, `reset`, or `left`: it has another cadence and was left alone.
        next_run_at: the next occurrence, ms.
        group: the group it had; empty for none.
        cadence: the cadence it had, as text; empty when it was created.
    """

    change: str
    next_run_at: int
    group: str
    cadence: str


class Scheduling(Producing):
    """The verbs of schedules."""

    def upsert_schedule(self, schedule: ScheduleRecord) -> tuple[str, int]:
        """Register a schedule, or take over what has changed of it.

        Returns:
            `created`, `kept` (the same cadence: its next occurrence stays) or `reset` (another one:
            its next occurrence is the one given), and the next occurrence.
        """
        made = self.declare_schedule(schedule, reset=True)
        return made.change, made.next_run_at

    def declare_schedule(self, schedule: ScheduleRecord, *, reset: bool) -> Declared:
        """Register a schedule as `upsert_schedule` does, and tell what was there.

        Args:
            schedule: what is registered.
            reset: whether another cadence begins anew; if not, a schedule that has one is left as
                it is, and only noted as registered at this instant.
        """
        name, key = _checked(schedule.name, schedule.key)
        word, next_run_at, group, cadence = self._asked(
            "upsert_schedule", name, key, schedule.cadence.encode(),
            check_instant_ms(schedule.next_run_at, "next_run_at"), int(reset),
            *wire.schedule_fields(schedule),
        )  # fmt: skip
        return Declared(
            word.decode(),
            int(next_run_at),
            group.decode(errors="replace"),
            cadence.decode(errors="replace"),
        )

    def remove_schedule(self, name: str, key: str, updated_at: int | None = None) -> bool:
        """Delete a schedule; False when it was left alone or is not there. Its jobs stay.

        Args:
            name: job name of the schedule.
            key: its key.
            updated_at: delete it only if this is when it was last registered, ms; None in any case.
        """
        name, key = _checked(name, key)
        if_of = "" if updated_at is None else check_instant_ms(updated_at, "updated_at")
        return bool(self._asked("remove_schedule", name, key, if_of)[0] == b"removed")

    def pause_schedule(self, name: str, key: str) -> bool:
        """Let a schedule make no jobs until it is resumed; False when there is none."""
        name, key = _checked(name, key)
        return bool(self._asked("pause_schedule", name, key, 1, "", "")[0] == b"ok")

    def resume_schedule(self, name: str, key: str) -> bool:
        """Let a schedule make jobs again, from its next occurrence on; False when there is none.

        What fell due while it was paused is not made up for; one that is not paused stays as it is.
        """
        while (found := self.get_schedule(name, key)) is not None:
            if found.paused_at is None:
                return True
            next_run_at = max(found.next_run_at, found.next_after(self.now_ms()))
            word = self._asked("pause_schedule", name, key, 0, found.cadence.encode(), next_run_at)[
                0
            ]
            # Registered with another cadence since it was read: its occurrences are others.
            if word != b"changed":
                return bool(word == b"ok")
        return False

    def _asked(self, verb: str, *args: Argument) -> list[Any]:
        """Run a script that recognises itself when it is sent again because its reply was lost."""
        return self._caller.call_told(verb, [self._now(), ids.new_nonce()], args)

    def run_schedule_now(self, name: str, key: str) -> str | None:
        """Enqueue the job of a schedule at once, beside its occurrences, and return the job's id.

        The schedule, paused or not, stays where it is. None when there is none. Two calls within a
        millisecond come to one job.
        """
        found = self.get_schedule(name, key)
        if found is None:
            return None
        job_id = f"sched/{name}/{key}/now-{self.now_ms()}"
        return self.enqueue(attrs.evolve(found.request, id=job_id)).id

    def tick(self, name: str, key: str, expected: int, next_run_at: int, request: Request) -> bool:
        """Make one occurrence a job and move the schedule on; False when nothing was inserted.

        Nothing happens when the schedule is not there, stands at another occurrence or is paused.
        An id that exists inserts nothing, and the schedule moves on all the same.

        Args:
            name: job name of the schedule.
            key: its key.
            expected: the occurrence it must still stand at.
            next_run_at: the occurrence it moves on to.
            request: the job, with its id.

        Raises:
            ValueError, TypeError: the request has no id, or an argument cannot be one.
        """
        name, key = _checked(name, key)
        expected = check_instant_ms(expected, "expected")
        next_run_at = check_instant_ms(next_run_at, "next_run_at")
        if not request.id:
            raise ValueError("a tick needs a request with an id: its occurrence must exist once")
        args = _tick_args(name, key, expected, next_run_at, request)
        return bool(self._caller.call_told("tick", [self._now()], args)[0] == b"ticked")

    def tick_all(self, ticks: Sequence[Tick]) -> list[bool]:
        """Make many occurrences jobs, some in each round trip; whether each one was inserted."""
        answers: list[bool] = []
        for start in range(0, len(ticks), TICK_BATCH):
            batch = [
                _tick_args(
                    one.schedule.name, one.schedule.key, one.schedule.next_run_at,
                    one.next_run_at, one.schedule.occurrence(one.schedule.next_run_at),
                )
                for one in ticks[start : start + TICK_BATCH]
            ]  # fmt: skip
            replies = self._caller.call_all(
                lambda again, batch=batch: [  # type: ignore[misc]
                    ("tick", (self._now(), int(again), *args)) for args in batch
                ]
            )
            answers += (reply[0] == b"ticked" for reply in replies)
        return answers

    def advance_schedule(self, name: str, key: str, expected: int, next_run_at: int) -> bool:
        """Move a schedule on without a job; False when it no longer stands at `expected`.

        Args:
            name: job name of the schedule.
            key: its key.
            expected: the occurrence it must still stand at, ms.
            next_run_at: the occurrence it moves on to, ms.

        Raises:
            ValueError, TypeError: an argument cannot be one; nothing was sent.
        """
        name, key = _checked(name, key)
        expected = check_instant_ms(expected, "expected")
        next_run_at = check_instant_ms(next_run_at, "next_run_at")
        reply = self._asked("advance_schedule", name, key, expected, next_run_at)
        return bool(reply[0] == b"advanced")

    def due_schedules(
        self, limit: int = SCHEDULE_BATCH, after: tuple[int, str] | None = None
    ) -> Due:
        """Return schedules whose occurrence has come, the longest overdue first."""
        now, next_at, rows, reached = self._schedules("due", limit, after)
        found, unreadable = _read(rows)
        return Due(found, now, unreadable, next_at, reached)

    def get_schedule(self, name: str, key: str) -> ScheduleRecord | None:
        """Return one schedule, or None.

        Raises:
            DecodeError: its record is there and cannot be read; `remove_schedule` deletes it.
        """
        name, key = _checked(name, key)
        fields = self._caller.repeat(
            lambda _: self._caller.client.execute_command("HGETALL", self.keys.schedule(name, key))
        )
        pairs = (
            fields.items()
            if isinstance(fields, dict)
            else zip(fields[::2], fields[1::2], strict=True)
        )
        flat = [part for pair in pairs for part in pair]
        try:
            return wire.schedule_of((b"", f"{name}:{key}".encode(), flat))
        except (KeyError, ValueError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise DecodeError(
                f"schedule {name}:{key} cannot be read: {why}; another program or version wrote it?"
                " remove it and register it again"
            ) from None

    def list_schedules(
        self, name: str | None = None, queue: str | None = None, group: str | None = None
    ) -> list[ScheduleRecord]:
        """Return schedules by their next occurrence, then by key; paused ones among them.

        Those whose record cannot be read are left out: see `unreadable_schedules`. The group `""`
        is that of schedules without an owner.
        """
        for asked, what in (
            (name, "job name"),
            (queue, "queue"),
            (None if group == "" else group, "group"),
        ):
            if asked is not None:
                check_name(asked, what)
        found, _ = self._everything()
        return sorted(
            (
                one
                for one in found
                if (name is None or one.name == name)
                and (queue is None or one.request.queue == queue)
                and (group is None or one.group == group)
            ),
            key=lambda one: (one.next_run_at, one.key.encode(), one.name),
        )

    def unreadable_schedules(self) -> list[str]:
        """Return `<name>:<key>` of schedules whose record cannot be read; they make no jobs."""
        return sorted(self._everything()[1])

    def _everything(self) -> tuple[list[ScheduleRecord], list[str]]:
        """Read all schedules, a page at a time."""
        found: list[ScheduleRecord] = []
        unreadable: list[str] = []
        for kind in ("live", "paused"):
            reached: tuple[int, str] | None = None
            while True:
                _, _, rows, reached = self._schedules(kind, SCHEDULE_BATCH, reached)
                read, left = _read(rows)
                found += read
                unreadable += left
                if reached is None:
                    break
        return found, unreadable

    def _schedules(
        self, kind: str, limit: int, after: tuple[int, str] | None
    ) -> tuple[int, int | None, list[Any], tuple[int, str] | None]:
        score, member = after or ("", "")
        reply = self._caller.call("schedules", self._now(), kind, limit, score, member)
        rows = reply[3:]
        last = (int(rows[-1][0]), rows[-1][1].decode()) if len(rows) == limit else None
        return int(reply[1]), int(reply[2]) if reply[2] else None, rows, last

    def now_ms(self) -> int:
        """Return the instant by the store's clock, ms: of the server, unless a test says."""
        own = self.clock.now_ms()
        if own is not None:
            return own
        seconds, micros = self._caller.repeat(lambda _: self._caller.client.execute_command("TIME"))
        return int(seconds) * 1000 + int(micros) // 1000


def _checked(name: object, key: object) -> tuple[str, str]:
    """Return what names a schedule."""
    return check_name(name, "job name"), check_schedule_key(key)


def _read(rows: Sequence[Any]) -> tuple[list[ScheduleRecord], list[str]]:
    """Return the schedules of a reply, and the members whose record cannot be read."""
    found, unreadable = [], []
    for row in rows:
        try:
            schedule = wire.schedule_of(row)
        except (KeyError, ValueError):
            unreadable.append(row[1].decode(errors="replace"))
            continue
        if schedule is not None:
            found.append(schedule)
    return found, unreadable


def _tick_args(
    name: str, key: str, expected: int, next_run_at: int, request: Request
) -> list[Argument]:
    assert request.id is not None
    item = wire.enqueue_item(request, request.id, ids.new_nonce()[:11])
    return [name, key, expected, next_run_at, *item]
