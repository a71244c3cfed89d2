"""Cadences: when a schedule falls due, as values and pure functions.

`every` stays on the grid of its first registration. A cron expression is read by cronsim; what it
means when the clocks of its zone change is decided here, by the rule of Debian's cron:

- An expression whose minute and hour both are given (neither begins with `*`) names wall-clock
  times. Each that the clocks skip is made up for in the first minute after the gap; each that they
  pass twice counts the first time.
- Any other expression goes by the time that passes: it falls due in every minute whose wall-clock
  time matches, in both passages of a repeated hour, and in none that is skipped.

Source of the rule: cron(8) of Debian, "Daylight Saving Time and other time changes".
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import attrs

from mq.durations import Duration, to_ms

MINUTE = timedelta(minutes=1)
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 a wall-clock time of no zone
AROUND = timedelta(hours=6)
"""The stretch that is looked at minute by minute where the clocks change."""
LONGEST = timedelta(days=1) + AROUND
"""Longer than any zone's clocks were ever set on: one that crosses the date line loses a day."""
MAX_CRON_BYTES = 200
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NO_PLACE = frozenset({"localtime", "posixrules", "factory"})
"""Files of the zone database that are set up for one machine."""


@attrs.frozen
class Cadence:
    """When a schedule falls due.

    Args:
        cron: five fields: minute, hour, day of month, month, day of week; empty for `every`.
        tz: name of the zone whose wall clock the expression means.
        every_ms: the interval; 0 for a cron expression.
    """

    cron: str = ""
    tz: str = "UTC"
    every_ms: int = 0

    def encode(self) -> str:
        """Return the cadence as text; two cadences are the same when their texts are."""
        return f"cron {self.tz} {self.cron}" if self.cron else f"every {self.every_ms}"

    @classmethod
    def decode(cls, text: str) -> Cadence:
        """Return the cadence that `encode` wrote, or raise ValueError for any other text."""
        kind, _, rest = text.partition(" ")
        if kind == "every" and rest.isascii() and rest.isdigit() and int(rest) > 0:
            return cls(every_ms=int(rest))
        tz, _, cron = rest.partition(" ")
        if kind == "cron" and tz and cron:
            return cls(cron=cron, tz=tz)
        raise ValueError(f"not a cadence: {ascii(text)[:80]}")

    def next_after(self, at_ms: int, anchor_ms: int = 0) -> int:
        """Return the first occurrence after an instant, ms.

        Args:
            at_ms: the instant.
            anchor_ms: an instant of the grid of `every`.

        Raises:
            ValueError: zone or expression cannot be read here.
        """
        if self.cron:
            return _next_cron(self.cron, self.tz, at_ms // 60_000)
        return anchor_ms + ((at_ms - anchor_ms) // self.every_ms + 1) * self.every_ms


def read_cadence(cron: str | None, tz: str | ZoneInfo, every: Duration | None) -> Cadence:
    """Return a cadence from what a user writes; ValueError or TypeError names what is wrong."""
    if isinstance(tz, ZoneInfo):
        if tz.key is None:
            raise ValueError("zone read from a file has no name: use one such as 'Europe/Paris'")
        tz = tz.key
    if (cron is None) == (every is None):
        raise TypeError("give cron= or every=, one of them")
    if every is not None:
        if tz != "UTC":
            raise TypeError("tz= goes with cron=: an interval has no zone")
        every_ms = to_ms(every, "every")
        if every_ms == 0:
            raise ValueError("every must be longer than 0")
        return Cadence(every_ms=every_ms)
    if not isinstance(cron, str):
        raise TypeError(f"cron must be text, got {type(cron).__name__}")
    fields = cron.split()
    if cron.strip().lower() in _NICKNAMES:
        written = _NICKNAMES[cron.strip().lower()]
        raise ValueError(f"cron {cron.strip()!r} must have five fields: write {written!r}")
    if len(fields) != 5 or len(cron) > MAX_CRON_BYTES:
        raise ValueError(f"cron {cron[:80]!r} must have five fields: minute hour day month weekday")
    cadence = Cadence(" ".join(fields), tz)
    cadence.next_after(0)
    return cadence


# Thousands of schedules may share an expression, and fall due together.
@functools.lru_cache(maxsize=1024)
def _next_cron(cron: str, tz: str, at_minute: int) -> int:
    zone = _zone(tz)
    spec = _parsed(cron, _ANY_DAY)
    fixed = not any(field.startswith("*") for field in cron.split()[:2])
    now = datetime.fromtimestamp(at_minute * 60, UTC)
    while True:
        if _is_near_change(zone, now):
            found = _scan(spec, zone, now, fixed)
            if found is not None:
                return int(found.timestamp()) * 1000
            now += AROUND
            continue
        wall = now.astimezone(zone).replace(tzinfo=None)
        candidate = now + (_next_wall(cron, wall) - wall)
        # No wall-clock time before it matches. But clocks that are set on by then show it sooner,
        # or skip it in a gap that lies before it.
        if candidate - now > LONGEST:
            now = candidate - LONGEST
            continue
        while now < candidate and not _is_near_change(zone, now):
            now += AROUND
        if now >= candidate:
            return int(candidate.timestamp()) * 1000


def _is_near_change(zone: ZoneInfo, now: datetime) -> bool:
    around = [(now + AROUND * step / 2).astimezone(zone) for step in range(-2, 3)]
    # A passage that is repeated may be longer than what is looked at around it.
    return around[2].fold == 1 or len({at.utcoffset() for at in around}) > 1


def _scan(spec: Any, zone: ZoneInfo, start: datetime, fixed: bool) -> datetime | None:
    """Look at each minute of the next hours by itself: the rule as it is written above."""
    at = start
    before = at.astimezone(zone)
    while at < start + AROUND:
        at += MINUTE
        local = at.astimezone(zone)
        if fixed:
            wall, last = local.replace(tzinfo=None, fold=0), before.replace(tzinfo=None, fold=0)
            skipped = last + MINUTE
            while skipped < wall:
                if _matches(spec, skipped):
                    return at
                skipped += MINUTE
            if local.fold == 0 and _matches(spec, wall):
                return at
        elif _matches(spec, local):
            return at
        before = local
    return None


def _matches(spec: Any, at: datetime) -> bool:
    return bool(
        at.minute in spec.minutes
        and at.hour in spec.hours
        and at.month in spec.months
        and spec.match_day(at.date())
    )


def _next_wall(cron: str, local: datetime) -> datetime:
    """The next wall-clock time that matches, as if no clock ever changed."""
    try:
        found = next(_parsed(cron, local))
    except StopIteration:
        raise ValueError(f"cron {cron!r} never falls due") from None
    assert isinstance(found, datetime)
    return found


def _parsed(cron: str, start: datetime) -> Any:
    from cronsim import CronSim, CronSimError  # late: few processes read a cron expression

    try:
        return CronSim(cron, start)
    except CronSimError as error:
        raise ValueError(f"cron {cron!r} cannot be read: {error}") from None


def _zone(tz: str) -> ZoneInfo:
    # Some file systems take a name in any case.
    if str(tz).casefold() in _NO_PLACE:
        raise ValueError(
            f"zone {tz!r} means something else on each machine: use a name such as 'Europe/Paris'"
        )
    try:
        return ZoneInfo(tz)
    except (KeyError, OSError, ValueError, TypeError):
        raise ValueError(
            f"zone {tz!r} is not known: use a name such as 'Europe/Paris'"
            " (the tzdata package brings them where the system has none)"
        ) from None
