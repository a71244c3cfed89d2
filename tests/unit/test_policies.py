"""Backoff: growth, limits and the text on the record. Dedup keys: text, window and mode."""

from __future__ import annotations

import math
import random
from datetime import timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mq
from mq.durations import MAX_DELAY_MS
from mq.policies import (
    IMMEDIATE,
    MAX_KEY_BYTES,
    MAX_TEXT_BYTES,
    Backoff,
    Dedupe,
    check_dedupe,
    check_key,
    exponential,
    fixed,
)


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


def test_a_dedup_key_alone_is_a_plain_one() -> None:
    """No window, and nothing is replaced."""
    plain = mq.Dedupe("order 5")
    assert (plain.key, plain.ttl_ms, plain.extend, plain.replace) == ("order 5", None, False, False)
    assert plain == Dedupe("order 5") != Dedupe("order 6")
    assert len({plain, Dedupe("order 5")}) == 1
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        plain.key = "another"  # type: ignore[misc] # the mistake


@pytest.mark.parametrize(
    ("ttl", "ms"),
    [("1h", 3_600_000), (2.5, 2_500), (timedelta(days=1), 86_400_000), (0, 0), ("1 ms", 1)],
)
def test_a_window_is_a_duration(ttl: Any, ms: int) -> None:
    """0 is one like any other, and not the same as none."""
    assert Dedupe("k", ttl=ttl).ttl_ms == ms
    assert Dedupe("k", ttl=ttl, extend=True, replace=True).extend is True


def test_a_mode_is_given_by_name() -> None:
    """A second value without its name would say nothing to a reader."""
    with pytest.raises(TypeError):
        Dedupe("k", "1h")  # type: ignore[misc] # the mistake


@pytest.mark.parametrize(
    "key", ["x", " ", "a:b", "{mq}:meta", "\u2028", "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 256]
)
def test_a_dedup_key_is_any_text(key: str) -> None:
    """Up to 512 bytes, kept as it is."""
    assert Dedupe(key).key == check_key(key) == key


class Loud(str):
    """Text that is not what it seems."""

    __slots__ = ()

    def __str__(self) -> str:
        """Shout."""
        return "LOUD"


def test_a_dedup_key_is_kept_as_plain_text() -> None:
    """What a subclass makes of itself is of no interest."""
    assert type(Dedupe(Loud("quiet")).key) is str
    assert Dedupe(Loud("quiet")).key == "quiet"


@pytest.mark.parametrize(
    ("key", "error", "says"),
    [
        ("", ValueError, "1 to 512 bytes, got 0"),
        ("x" * (MAX_KEY_BYTES + 1), ValueError, "at most 512 bytes, got 513"),
        ("\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 257, ValueError, "512 bytes, got 514"),
        ("a\nb", ValueError, "control character"),
        ("\x00", ValueError, "control character"),
        ("\x85", ValueError, "control character"),
        ("\ud83d", ValueError, "half a surrogate pair"),
        (b"bytes", TypeError, "text, got bytes"),
        (5, TypeError, "text, got int"),
        (None, TypeError, "text, got NoneType"),
        (("a", "b"), TypeError, "text, got tuple"),
    ],
    ids=ascii,
)
def test_what_is_no_dedup_key_is_refused(key: Any, error: type[Exception], says: str) -> None:
    """In one line that can be printed, where it is written."""
    for refusing in (Dedupe, check_key):
        with pytest.raises(error, match=says) as refused:
            refusing(key)
        message = str(refused.value)
        assert message.startswith("dedup key ")
        assert len(message.splitlines()) == 1
        message.encode()


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"ttl": -1}, ValueError, "dedupe ttl must not be negative"),
        ({"ttl": True}, TypeError, "dedupe ttl"),
        ({"ttl": math.nan}, ValueError, "dedupe ttl"),
        ({"ttl": math.inf}, ValueError, "dedupe ttl"),
        ({"ttl": "soon"}, ValueError, "dedupe ttl"),
        ({"ttl": "101 years"}, ValueError, "dedupe ttl"),
        ({"ttl": 10**12}, ValueError, "dedupe ttl must be at most 100 years"),
        ({"ttl": b"1h"}, TypeError, "dedupe ttl"),
        ({"extend": True}, ValueError, "give ttl= as well"),
        ({"extend": True, "replace": True}, ValueError, "give ttl= as well"),
        ({"window": "1h"}, TypeError, "window"),
    ],
    ids=str,
)
def test_a_mode_that_cannot_work_is_refused(
    options: dict[str, Any], error: type[Exception], says: str
) -> None:
    """In one line that names the option."""
    with pytest.raises(error, match=says) as refused:
        Dedupe("k", **options)
    assert len(str(refused.value).splitlines()) == 1


def test_dedupe_is_a_key_as_text_a_value_or_nothing() -> None:
    """Text is a plain key."""
    window = Dedupe("k", ttl="1h")
    assert check_dedupe(None) is None
    assert check_dedupe(window) is window
    assert check_dedupe("k") == Dedupe("k")
    with pytest.raises(ValueError, match="dedup key must be 1 to 512 bytes"):
        check_dedupe("")


@pytest.mark.parametrize("given", [5, b"k", True, ("k",), {"key": "k"}, Dedupe], ids=repr)
def test_anything_else_is_no_dedupe(given: Any) -> None:
    """The message says what is."""
    with pytest.raises(TypeError, match=r"dedupe must be mq.Dedupe\(...\) or a key as text, got"):
        check_dedupe(given)
