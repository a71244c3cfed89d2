"""Durations: what people write, in milliseconds."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.durations import MAX_DELAY_MS, format_ms, to_ms


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (2, 2_000),
        (0.25, 250),
        (1e-320, 0),
        (timedelta(minutes=1, microseconds=1_000), 60_001),
        ("1s", 1_000),
        ("2 minutes", 120_000),
        ("1h30m", 5_400_000),
        ("1 hour, 30 min", 5_400_000),
        ("1 day and 2 hours", 93_600_000),
        ("500ms", 500),
        ("1.5s", 1_500),
        (" 2W ", 1_209_600_000),
        ("36500d", MAX_DELAY_MS),
    ],
)
def test_a_duration_becomes_whole_milliseconds(value: Any, expected: int) -> None:
    """Numbers are seconds; text carries its units."""
    actual = to_ms(value, "delay")
    assert (actual, type(actual)) == (expected, int)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((value, TypeError) for value in (True, False, None, b"1s", [1], object())),
        *((value, ValueError) for value in (math.nan, math.inf, -math.inf, -1, -0.5, 10**400)),
        *((value, ValueError) for value in (timedelta(seconds=-1), 10**12, "1000000000000s")),
        *((value, ValueError) for value in ("", " ", "5", "s", "1x", "1s 2", "1s,", "-1s", "1e3s")),
        *(
            (value, ValueError)
            for value in ("\uff11s", "\ud83d", "1s\n\x00", "1.s", "9" * 5_000 + "s")
        ),
    ],
)
def test_what_is_no_duration_is_refused_in_one_line(value: Any, error: type[Exception]) -> None:
    """The message names the option and shows how to write one."""
    with pytest.raises(error) as caught:
        to_ms(value, "lock_duration")
    message = str(caught.value)
    assert message.startswith("lock_duration")
    assert '"30s"' in message
    assert len(message.splitlines()) == 1
    assert len(message) < 200


@settings(max_examples=50)
@given(st.integers(0, MAX_DELAY_MS))
def test_formatted_milliseconds_read_back(ms: int) -> None:
    """What format_ms writes, to_ms reads."""
    assert to_ms(format_ms(ms), "delay") == ms


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0s"), (90_000, "1m30s"), (86_400_001, "1d1ms"), (-5, "-5ms")]
)
def test_milliseconds_are_shown_for_people(ms: int, text: str) -> None:
    """Units that are zero are left out."""
    assert format_ms(ms) == text
