"""Cadences: the grid of an interval, and the cron rule against a search through every minute."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.cadence import Cadence, read_cadence

ZONES = (
    "Europe/Paris",
    "America/Los_Angeles",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Antarctica/Troll",
    "Africa/Casablanca",
)
"""Changes of an hour, of half an hour, of two; at odd minutes; backwards for a month a year."""

FIXED = (
    "30 2 * * *", "0 2 * * *", "59 1 * * *", "0 3 * * *", "50 3 * * *", "15 1,2,3 * * *",
    "10 2 * * *", "0-59/10 1-3 * * *", "5,35 0,1,2,3,4 * * *", "0/20 2 * * *", "0 0 * * *",
    "30 23 * * *", "45 2 * * 0", "45 2 1-7 * 0", "30 2 */2 * 0", "20 1,2 * 2,3,4,10 *",
    "0 2-4 * * 6,7", "1 3 28-31 * 1",
)  # fmt: skip
"""Minute and hour are given: wall-clock times."""

FLOWING = (
    "* * * * *", "*/15 * * * *", "*/7 * * * *", "0 * * * *", "30 * * * *", "* 2 * * *",
    "0 */2 * * *", "45 */3 * * 0", "*/20 1-3 * * *", "30 * 25-31 * 6",
)  # fmt: skip
"""One of them begins with `*`: the time that passes."""

MINUTE = timedelta(minutes=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(at: datetime) -> int:
    """An instant, ms."""
    return round((at - EPOCH) / timedelta(milliseconds=1))


def shown(at_ms: int, zone: str = "UTC") -> str:
    """An instant by the wall clock of a zone, with the offset that it has then."""
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).isoformat(timespec="minutes")


# A matcher that shares nothing with the code under test


def values_of(field: str, low: int, high: int) -> frozenset[int]:
    """The numbers that a field of a cron expression names."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            start, end = low, high
        elif last:
            start, end = int(first), int(last)
        else:
            start, end = int(first), high if step else int(first)
        found.update(range(start, end + 1, int(step or 1)))
    return frozenset(found)


@attrs.frozen
class Expression:
    """A cron expression, read the plain way."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    fixed: bool

    @classmethod
    def read(cls, text: str) -> Expression:
        """Split into fields; 0 and 7 are Sunday."""
        minute, hour, day, month, weekday = text.split()
        return cls(
            values_of(minute, 0, 59),
            values_of(hour, 0, 23),
            values_of(day, 1, 31),
            values_of(month, 1, 12),
            frozenset(number % 7 for number in values_of(weekday, 0, 7)),
            day.startswith("*") or weekday.startswith("*"),
            not minute.startswith("*") and not hour.startswith("*"),
        )

    def names_day(self, day: date) -> bool:
        """Both day fields must match when one begins with `*`, else one of them is enough."""
        matches = (day.day in self.days, day.isoweekday() % 7 in self.weekdays)
        in_month = day.month in self.months
        return in_month and (all(matches) if self.both_days else any(matches))

    def names(self, wall: datetime) -> bool:
        """Whether a wall-clock time matches."""
        return wall.minute in self.minutes and wall.hour in self.hours and self.names_day(wall)


@attrs.frozen
class Minute:
    """A minute that passes: the wall-clock time it shows, and those skipped just before it."""

    at: datetime
    wall: datetime
    again: bool
    skipped: tuple[datetime, ...]


def minutes_from(zone: str, start: datetime, end: datetime) -> Iterator[Minute]:
    """Each minute after one instant, up to another."""
    tz, at = ZoneInfo(zone), start
    highest = last = at.astimezone(tz).replace(tzinfo=None, fold=0)
    while at < end:
        at += MINUTE
        wall = at.astimezone(tz).replace(tzinfo=None, fold=0)
        gap = range(1, max((wall - last) // MINUTE, 1))
        yield Minute(at, wall, wall <= highest, tuple(last + MINUTE * step for step in gap))
        last, highest = wall, max(highest, wall)


def due_in(expression: Expression, minutes: list[Minute]) -> list[int]:
    """The minutes in which an expression falls due, by the rule as its page writes it."""

    def is_due(one: Minute) -> bool:
        if not expression.fixed:
            return expression.names(one.wall)
        made_up = any(map(expression.names, one.skipped))
        return made_up or (not one.again and expression.names(one.wall))

    return [instant(one.at) for one in minutes if is_due(one)]


@cache
def changes_of(zone: str) -> tuple[datetime, ...]:
    """The first instants of 2025 to 2027 at which the clocks of a zone stand otherwise."""
    tz = ZoneInfo(zone)
    start, found = datetime(2025, 1, 1, tzinfo=UTC), []
    for hours in range(3 * 365 * 24):
        low, high = (start + timedelta(hours=hours + more) for more in (0, 1))
        if low.astimezone(tz).utcoffset() == high.astimezone(tz).utcoffset():
            continue
        offset = low.astimezone(tz).utcoffset()
        found.append(
            next(
                at
                for at in (low + MINUTE * step for step in range(1, 61))
                if at.astimezone(tz).utcoffset() != offset
            )
        )
    return tuple(found)


def walk(cadence: Cadence, start: datetime, end: datetime) -> list[int]:
    """The occurrences after one instant, up to another."""
    found, at = [], instant(start)
    while (at := cadence.next_after(at)) <= instant(end):
        found.append(at)
    return found


def test_every_zone_has_its_changes() -> None:
    """Two a year: the tests below look at thirty-six of them."""
    assert {zone: len(changes_of(zone)) for zone in ZONES} == dict.fromkeys(ZONES, 6)


@pytest.mark.parametrize("zone", ZONES)
def test_around_every_change_of_the_clocks_no_minute_is_due_but_by_the_rule(zone: str) -> None:
    """From seven hours before to seven hours after, expression by expression."""
    for change in changes_of(zone):
        start, end = change - timedelta(hours=7), change + timedelta(hours=7)
        minutes = list(minutes_from(zone, start, end))
        for text in FIXED + FLOWING:
            expected = due_in(Expression.read(text), minutes)
            assert walk(Cadence(text, zone), start, end) == expected, (text, change)


@pytest.mark.parametrize("zone", ZONES)
def test_a_change_is_met_from_days_before(zone: str) -> None:
    """The search jumps over days that it need not look at, and lands before the change."""
    for change in changes_of(zone)[:2]:
        start, end = change - timedelta(days=4), change + timedelta(days=3)
        minutes = list(minutes_from(zone, start, end))
        for text in FIXED:
            expected = due_in(Expression.read(text), minutes)
            assert walk(Cadence(text, zone), start, end) == expected, (text, change)


CROSSINGS = {
    "Pacific/Apia": datetime(2011, 12, 30, 10, tzinfo=UTC),
    "Pacific/Kwajalein": datetime(1993, 8, 21, 12, tzinfo=UTC),
    "America/Caracas": datetime(2016, 5, 1, 7, tzinfo=UTC),
    "Asia/Pyongyang": datetime(2018, 5, 4, 15, tzinfo=UTC),
    "Antarctica/Casey": datetime(2020, 10, 3, 16, tzinfo=UTC),
}
"""Clocks that were set once and for all: two of them skipped a day."""


@pytest.mark.parametrize("zone", [*CROSSINGS, "back over the date line"])
def test_a_zone_that_skips_or_repeats_a_day_is_met_by_the_rule(zone: str) -> None:
    """What the lost day had is made up for once; what a day has that comes twice, comes once."""
    change = CROSSINGS.get(zone, datetime(1969, 9, 30, 13, tzinfo=UTC))
    zone = zone if zone in CROSSINGS else "Pacific/Kwajalein"
    start, end = change - timedelta(days=2), change + timedelta(days=2)
    minutes = list(minutes_from(zone, start, end))
    for text in (*FIXED, *FLOWING[3:], "0 12 * * *", "0 18 * * *", "0 12 30 12 *", "0 0 30 12 *"):
        expected = due_in(Expression.read(text), minutes)
        assert walk(Cadence(text, zone), start, end) == expected, text


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("year", [2028, 2032])
def test_around_the_29th_of_february_no_minute_is_due_but_by_the_rule(zone: str, year: int) -> None:
    """By date, by weekday, by both; found from a day before, and from a year before."""
    start, end = datetime(year, 2, 28, tzinfo=UTC), datetime(year, 3, 2, tzinfo=UTC)
    minutes = list(minutes_from(zone, start, end))
    for text in ("30 2 29 2 *", "*/30 * 29 2 *", "0 0 29 2 1", "0 12 29 * */2", "15 3 28,29 2 0"):
        expected = due_in(Expression.read(text), minutes)
        assert walk(Cadence(text, zone), start, end) == expected, text
    (leap,) = due_in(Expression.read("30 2 29 2 *"), minutes)
    year_before = instant(start - timedelta(days=366))
    assert Cadence("30 2 29 2 *", zone).next_after(year_before) == leap


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("30 2 * * *", "Europe/Paris", "2026-03-28T12:00Z", "2026-03-29T03:00+02:00"),
        ("30 2 * * *", "Europe/Paris", "2026-03-29T01:00Z", "2026-03-30T02:30+02:00"),
        ("30 2 * * *", "Europe/Paris", "2026-10-24T12:00Z", "2026-10-25T02:30+02:00"),
        ("30 2 * * *", "Europe/Paris", "2026-10-25T00:30Z", "2026-10-26T02:30+01:00"),
        ("30 * * * *", "Europe/Paris", "2026-10-25T00:30Z", "2026-10-25T02:30+01:00"),
        ("30 * * * *", "Europe/Paris", "2026-03-29T00:30Z", "2026-03-29T03:30+02:00"),
        ("10 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00Z", "2026-10-04T02:30+11:00"),
        ("0 3 * * *", "Pacific/Chatham", "2026-09-26T12:00Z", "2026-09-27T03:45+13:45"),
        ("50 3 * * *", "Pacific/Chatham", "2026-09-26T12:00Z", "2026-09-27T03:50+13:45"),
        ("0 2 * * *", "Antarctica/Troll", "2026-03-28T12:00Z", "2026-03-29T03:00+02:00"),
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T23:00Z", "2011-12-31T00:00+14:00"),
        ("0 9 * * 0", "Pacific/Apia", "2011-12-29T00:00Z", "2012-01-01T09:00+14:00"),
    ],
)
def test_occurrences_that_can_be_looked_up(cron: str, zone: str, after: str, expected: str) -> None:
    """A skipped time is made up for right behind the gap; a repeated one counts the first time."""
    at = Cadence(cron, zone).next_after(instant(datetime.fromisoformat(after)))
    assert shown(at, zone) == expected


def test_several_skipped_times_are_made_up_for_once() -> None:
    """All in the first minute after the gap, which is one occurrence."""
    start = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)
    found = walk(Cadence("0-59/10 2 * * *", "Europe/Paris"), start, start + timedelta(hours=12))
    assert [shown(at, "Europe/Paris") for at in found] == ["2026-03-29T03:00+02:00"]


def test_the_29th_of_february_comes_in_leap_years() -> None:
    """Over a century that has none at its turn as well."""
    cadence, found = Cadence("0 12 29 2 *"), []
    at = instant(datetime(2025, 1, 1, tzinfo=UTC))
    for _ in range(3):
        at = cadence.next_after(at)
        found.append(shown(at)[:10])
    assert found == ["2028-02-29", "2032-02-29", "2036-02-29"]
    assert shown(cadence.next_after(instant(datetime(2097, 1, 1, tzinfo=UTC))))[:4] == "2104"


@pytest.mark.parametrize(
    "cron",
    ["0 0 13 * 5", "0 0 1,15 * 1-3", "0 0 */2 * 1", "0 0 1-7 * */3", "0 0 * * 0", "0 0 * * 7",
     "0 0 31 * *", "0 0 29 2 3"],
)  # fmt: skip
def test_the_day_of_week_and_the_day_of_month(cron: str) -> None:
    """Either of them when both are given, both of them when one begins with `*`."""
    expression = Expression.read(cron)
    first = date(2025, 1, 1)
    days = [day for n in range(3 * 365) if expression.names_day(day := first + timedelta(days=n))]
    start = datetime(2024, 12, 31, 12, tzinfo=UTC)
    found = walk(Cadence(cron), start, start + timedelta(days=3 * 365))
    assert [shown(at)[:10] for at in found] == [day.isoformat() for day in days]


def test_an_occurrence_is_not_its_own_successor() -> None:
    """After the exact instant comes the next one; one millisecond before it, itself."""
    cadence = Cadence("0 * * * *")
    assert cadence.next_after(3_600_000) == 7_200_000
    assert cadence.next_after(3_599_999) == 3_600_000
    assert cadence.next_after(3_600_001) == 7_200_000


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu", "Etc/GMT+12", "UTC"])
def test_zones_without_changes(zone: str) -> None:
    """Offsets of odd minutes are only an offset."""
    start = datetime(2026, 5, 1, 0, 7, tzinfo=UTC)
    minutes = list(minutes_from(zone, start, start + timedelta(days=2)))
    for text in FIXED[:8] + FLOWING[3:6]:
        found = walk(Cadence(text, zone), start, start + timedelta(days=2))
        assert found == due_in(Expression.read(text), minutes)


@given(st.integers(0, 4 * 10**12), st.integers(0, 4 * 10**12), st.integers(1, 400 * 86_400_000))
def test_an_interval_stays_on_its_grid(at: int, anchor: int, every: int) -> None:
    """The first instant of the grid that lies behind, wherever the grid began."""
    found = Cadence(every_ms=every).next_after(at, anchor)
    assert at < found <= at + every
    assert (found - anchor) % every == 0


def test_names_of_months_and_days_are_read() -> None:
    """In any case of letters."""
    after = instant(datetime(2026, 1, 1, tzinfo=UTC))
    assert shown(read_cadence("0 6 * MAR mon", "UTC", None).next_after(after)) == (
        "2026-03-02T06:00+00:00"
    )


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (("30 2 * * *", "Europe/Paris", None), "cron Europe/Paris 30 2 * * *"),
        (("  30\t2 *  * * ", "UTC", None), "cron UTC 30 2 * * *"),
        ((None, "UTC", "1h30m"), "every 5400000"),
        ((None, "UTC", timedelta(seconds=1)), "every 1000"),
        ((None, "UTC", 0.001), "every 1"),
    ],
)
def test_the_text_of_a_cadence_reads_back_equal(written: tuple[Any, ...], text: str) -> None:
    """Somebody looks at it in redis-cli."""
    cadence = read_cadence(*written)
    assert cadence.encode() == text
    assert Cadence.decode(text) == cadence


@pytest.mark.parametrize(
    "text",
    ["", "every", "every x", "every -1", "every 0", "every \u0661", "daily", "cron", "cron UTC"],
)
def test_other_text_is_no_cadence(text: str) -> None:
    """A record that was tampered with is an error, not a surprise."""
    with pytest.raises(ValueError, match="not a cadence"):
        Cadence.decode(text)


@pytest.mark.parametrize(
    "cron",
    [
        "", "* * * *", "* * * * * *", "@daily", "60 * * * *", "* 24 * * *", "* * 0 * *",
        "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *", "a b c d e", "-1 * * * *",
        "\u0663 * * * *", "* * * * \x00", f"{'0,' * 200}0 * * * *",
    ],
)  # fmt: skip
def test_an_expression_that_cannot_be_read_is_refused(cron: str) -> None:
    """On one line that names it."""
    with pytest.raises(ValueError, match=r"^cron ") as caught:
        read_cadence(cron, "UTC", None)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31 4 *"])
def test_an_expression_that_never_falls_due_is_refused(cron: str) -> None:
    """Without a search that does not end."""
    with pytest.raises(ValueError, match=r"^cron "):
        read_cadence(cron, "UTC", None)


@pytest.mark.parametrize(
    "zone", ["", "Nowhere/City", "Europe", "../etc/passwd", "/etc/localtime", "a\x00b", None, 5]
)
def test_a_zone_that_is_not_known_is_refused(zone: Any) -> None:
    """The message says what a name looks like."""
    with pytest.raises(ValueError, match=r"^zone .* is not known: use a name such as"):
        read_cadence("0 0 * * *", zone, None)


@pytest.mark.parametrize("zone", ["localtime", "posixrules", "Factory", "Localtime", "FACTORY"])
def test_a_zone_that_is_another_one_on_each_machine_is_refused(zone: str) -> None:
    """Two workers would make two occurrences of one."""
    with pytest.raises(ValueError, match=r"^zone .* on each machine: use a name[^\n]*$"):
        read_cadence("0 0 * * *", zone, None)


def test_a_zone_may_be_given_as_zoneinfo() -> None:
    """It stands for its name; one that has none cannot travel."""
    given = read_cadence("0 0 * * *", ZoneInfo("Europe/Paris"), None)
    assert given == read_cadence("0 0 * * *", "Europe/Paris", None)
    data = b"TZif" + bytes(16) + bytes(16) + bytes([0, 0, 0, 1, 0, 0, 0, 4]) + bytes(6) + b"UTC\0"
    with pytest.raises(ValueError, match="has no name"):
        read_cadence("0 0 * * *", ZoneInfo.from_file(io.BytesIO(data)), None)


@pytest.mark.parametrize(
    ("nickname", "fields"),
    [("@daily", "0 0 * * *"), ("@Hourly", "0 * * * *"), (" @weekly", "0 0 * * 0")],
)
def test_a_nickname_is_refused_with_what_to_write(nickname: str, fields: str) -> None:
    """The five fields that cron(8) has for it."""
    with pytest.raises(ValueError, match=re.escape(f"write {fields!r}")):
        read_cadence(nickname, "UTC", None)


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ((None, "UTC", None), TypeError),
        (("* * * * *", "UTC", "1m"), TypeError),
        ((None, "Europe/Paris", "1m"), TypeError),
        ((5, "UTC", None), TypeError),
        ((None, "UTC", True), TypeError),
        ((None, "UTC", 0), ValueError),
        ((None, "UTC", "-1s"), ValueError),
        ((None, "UTC", 0.0001), ValueError),
        ((None, "UTC", "fortnightly"), ValueError),
        ((None, "UTC", float("nan")), ValueError),
        ((None, "UTC", "101y"), ValueError),
    ],
)
def test_one_of_cron_and_every_is_given_and_means_something(
    written: tuple[Any, ...], error: type[Exception]
) -> None:
    """An interval has no zone, and is longer than nothing."""
    with pytest.raises(error):
        read_cadence(*written)


def test_occurrences_never_come_twice_or_backwards() -> None:
    """A whole year in each zone, of an expression that meets every change."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for zone in ZONES:
        found = walk(Cadence("30 2,3 * * *", zone), start, start + timedelta(days=365))
        assert all(low < high for low, high in itertools.pairwise(found))
        assert len(found) in range(729, 731), zone
