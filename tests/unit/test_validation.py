"""Names, ids, counts, metadata and instants: what is taken and what is refused."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from mq.errors import PayloadError
from mq.validation import (
    check_attempts,
    check_instant,
    check_job_id,
    check_job_name,
    check_metadata,
    check_name,
    check_priority,
)


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 64])
def test_a_name_is_short_plain_ascii(name: str) -> None:
    """Such a name can stand in a key of Redis."""
    assert check_name(name, "queue") == name


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a:b", "é", "a\n", "\x00", "\ud83d", "{a}"])
def test_another_name_is_refused(name: str) -> None:
    """The message names what it was for, on one line."""
    with pytest.raises(ValueError, match="queue") as caught:
        check_name(name, "queue")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["sched", "flow"])
def test_reserved_job_names_are_refused(name: str) -> None:
    """Ids that begin with these words are mq's own."""
    with pytest.raises(ValueError, match="reserved"):
        check_job_name(name)
    assert check_name(name, "queue") == name


@pytest.mark.parametrize("job_id", ["a", "é" * 256, "x" * 512, "a b/c:{d}\u2028😀"])
def test_a_job_id_is_any_text_of_512_bytes(job_id: str) -> None:
    """Bytes count, not characters."""
    assert check_job_id(job_id) == job_id


@pytest.mark.parametrize(
    "job_id", ["", "é" * 257, "x" * 513, "a\n", "\x00", "\x7f", "\x85", "\ud83d"]
)
def test_another_job_id_is_refused(job_id: str) -> None:
    """Control characters and half surrogates have no place in a key."""
    with pytest.raises(ValueError, match="job id"):
        check_job_id(job_id)


@pytest.mark.parametrize("job_id", [None, 5, b"a", True])
def test_a_job_id_is_text(job_id: Any) -> None:
    """Numbers are not turned into text behind one's back."""
    with pytest.raises(TypeError, match="job id must be text"):
        check_job_id(job_id)


@pytest.mark.parametrize("check", [check_attempts, check_priority])
@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_counts_are_whole_numbers(check: Any, value: Any) -> None:
    """A bool is none."""
    with pytest.raises(TypeError):
        check(value)


def test_counts_have_bounds_that_are_allowed_themselves() -> None:
    """One beyond is refused, whatever its size."""
    assert [check_attempts(n) for n in (1, 1_000_000)] == [1, 1_000_000]
    assert [check_priority(n) for n in (-1_000, 0, 1_000)] == [-1_000, 0, 1_000]
    for check, value in (
        (check_attempts, 0),
        (check_attempts, 1_000_001),
        (check_attempts, 10**5_000),
        (check_priority, 1_001),
        (check_priority, -1_001),
    ):
        with pytest.raises(ValueError, match="must be"):
            check(value)


def test_metadata_is_up_to_sixteen_pairs_of_text() -> None:
    """Values may be empty; the result is a dict of its own."""
    metadata = {f"k{n}": "é" * 256 for n in range(15)} | {"e": ""}
    checked = check_metadata(metadata)
    assert checked == metadata
    assert checked is not metadata


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({f"k{n}": "" for n in range(17)}, "metadata"),
        ({"a": math.nan}, "metadata['a']"),
        ({"a": 5}, "metadata['a']"),
        ({"a": "\ud83d"}, "metadata['a']"),
        ({"a": "\n"}, "metadata['a']"),
        ({"a": "x" * 513}, "metadata['a']"),
        ({"a b": "x"}, "metadata"),
        ({5: "x"}, "metadata"),
        ([("a", "b")], "metadata"),
        (None, "metadata"),
    ],
)
def test_other_metadata_is_refused_naming_the_key(metadata: Any, path: str) -> None:
    """It is refused where it is enqueued."""
    with pytest.raises(PayloadError) as caught:
        check_metadata(metadata)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 5, tzinfo=timezone(timedelta(hours=5))), 0),
        (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), -1_000),
        (datetime(2030, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC), 1_893_456_000_001),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_799_999),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))), 253_402_343_999_999),
        (datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris")), 1_729_989_000_000),
        (datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1), 1_729_992_600_000),
    ],
)
def test_an_aware_instant_is_exact(at: datetime, expected: int) -> None:
    """Zones, folds, the past and the year 9999."""
    assert check_instant(at) == expected


class NoOffset(tzinfo):
    """A zone that knows nothing, which Python counts as naive."""

    def utcoffset(self, dt: datetime | None) -> None:
        """Answer nothing."""


@pytest.mark.parametrize(
    "at",
    [datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=NoOffset())],  # noqa: DTZ001 the point
)
def test_a_naive_instant_is_refused_with_the_fix(at: datetime) -> None:
    """No zone is guessed."""
    with pytest.raises(ValueError, match=r"must have a zone.*timezone\.utc"):
        check_instant(at)


@pytest.mark.parametrize("at", [None, 5, "2030-01-01T00:00:00Z"])
def test_an_instant_is_a_datetime(at: Any) -> None:
    """Numbers and text are not read as one."""
    with pytest.raises(TypeError, match="at must be a datetime"):
        check_instant(at)
