"""Backoff: growth, limits and the text on the record."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.durations import MAX_DELAY_MS
from mq.policies import IMMEDIATE, MAX_TEXT_BYTES, Backoff, exponential, fixed


def never() -> float:
    """Chance that must not be asked."""
    raise AssertionError("no jitter, no chance")


def test_exponential_grows_by_its_factor_after_each_failed_run() -> None:
    """The first wait is the delay itself."""
    backoff = exponential("1s", factor=3)
    assert [backoff.delay_ms_for(n, never) for n in (1, 2, 3)] == [1_000, 3_000, 9_000]


def test_fixed_and_immediate_never_change() -> None:
    """Neither looks at how many runs failed."""
    assert [fixed("2s").delay_ms_for(n, never) for n in (1, 2, 10**6)] == [2_000] * 3
    assert [IMMEDIATE.delay_ms_for(n, never) for n in (1, 2, 10**6)] == [0] * 3


def test_max_bounds_the_wait_and_jitter_only_shortens_it() -> None:
    """The longest wait is max even at the largest chance."""
    backoff = exponential("1s", max="10s", jitter=0.5)
    assert backoff.delay_ms_for(9, lambda: 0.0) == 10_000
    assert backoff.delay_ms_for(9, lambda: 1.0) == 5_000


@pytest.mark.parametrize("ceiling", [None, "1h", "36500d"])
@pytest.mark.parametrize("jitter", [0, 0.3, 1])
@pytest.mark.parametrize("factor", [1, 1.0001, 5, 1_000])
def test_no_count_of_failures_overflows(ceiling: str | None, jitter: float, factor: float) -> None:
    """Two thousand attempts, a broken counter: always a whole number within 100 years."""
    backoff = exponential("5s", factor=factor, max=ceiling, jitter=jitter)
    for failed in (-1, 0, 1, 16, 17, 400, 1_000, 2_000, 10**6, 10**400):
        for chance in (0.0, 0.5, 1.0, random.random()):
            delay = backoff.delay_ms_for(failed, lambda chance=chance: chance)
            assert type(delay) is int
            assert 0 <= delay <= MAX_DELAY_MS


@settings(max_examples=60)
@given(
    st.integers(0, 10**8),
    st.floats(1, 100),
    st.none() | st.integers(0, 10**9),
    st.floats(0, 1),
)
def test_the_text_on_the_record_reads_back_equal(
    delay: int, factor: float, ceiling: int | None, jitter: float
) -> None:
    """It fits the record's limit or was refused when it was made."""
    try:
        backoff = exponential(
            delay / 1_000, factor, None if ceiling is None else ceiling / 1_000, jitter
        )
    except ValueError:
        assert len(str(delay)) + len(str(ceiling)) > 10, "short policies always fit"
        return
    text = backoff.encode()
    assert len(text) <= MAX_TEXT_BYTES
    assert Backoff.decode(text) == backoff


def test_the_text_is_readable() -> None:
    """Somebody looks at it in redis-cli."""
    assert IMMEDIATE.encode() == "immediate"
    assert fixed("1s").encode() == "fixed 1000"
    backoff = exponential("1s", max="1m", jitter=0.1)
    assert backoff.encode() == "exponential 1000 factor=2 max=60000 jitter=0.1"
    for made in (IMMEDIATE, fixed("1s"), backoff):
        assert Backoff.decode(made.encode()) == made


@pytest.mark.parametrize(
    "text",
    [
        "", "fixed", "fixed -1", "fixed 1 ", "fixed 1\n", "fixed \u0661", "exponential 1",
        "exponential 1 factor=0", "exponential 1 factor=nan", "exponential 1 factor=9999",
        "exponential 1 factor=2 jitter=1.5", "fixed " + "9" * 100, "\ud83d", "immediate x",
    ],
)  # fmt: skip
def test_other_text_is_no_backoff(text: str) -> None:
    """A record that was tampered with is an error, not a surprise."""
    with pytest.raises(ValueError, match="not a backoff"):
        Backoff.decode(text)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"factor": 0.5}, ValueError),
        ({"factor": math.nan}, ValueError),
        ({"factor": math.inf}, ValueError),
        ({"factor": 10**400}, ValueError),
        ({"factor": True}, TypeError),
        ({"factor": "2"}, TypeError),
        ({"jitter": -0.1}, ValueError),
        ({"jitter": 1.1}, ValueError),
        ({"jitter": math.nan}, ValueError),
        ({"max": -1}, ValueError),
        ({"delay": -1}, ValueError),
        ({"delay": True}, TypeError),
    ],
)
def test_a_backoff_out_of_range_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    """The message names the option."""
    with pytest.raises(error, match=f"backoff {next(iter(options))}"):
        exponential(**{"delay": "1s", **options})


def test_a_wait_over_a_hundred_years_is_a_hundred_years() -> None:
    """A backoff that long loses no job: it is clamped, not refused."""
    assert fixed(10**12).delay_ms_for(1, random.random) == MAX_DELAY_MS
    assert exponential(10**12, max=10**12).delay_ms_for(9, random.random) == MAX_DELAY_MS
