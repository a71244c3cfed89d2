"""Durations as people write them, turned into integer milliseconds and back."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction

Duration = timedelta | int | float | str

# 100 years: far beyond any use, and still far inside what a double (a Redis score) holds exactly.
MAX_DELAY_MS = 100 * 365 * 86_400_000

_UNIT_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_SPELLINGS = {
    "ms": "ms msec msecs millisecond milliseconds",
    "s": "s sec secs second seconds",
    "m": "m min mins minute minutes",
    "h": "h hr hrs hour hours",
    "d": "d day days",
    "w": "w week weeks",
}
_UNITS = {word: _UNIT_MS[unit] for unit, words in _SPELLINGS.items() for word in words.split()}

_PART = re.compile(
    r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([a-z]+)\s*(?:(?:,|and\b)(?=\s*[0-9]))?", re.ASCII
)
_EXAMPLE = 'write it such as "30s", "1h30m", 2.5 (seconds) or a timedelta'


def to_ms(value: Duration, what: str, *, clamp: bool = False) -> int:
    """Return a duration in whole milliseconds.

    Args:
        value: a timedelta, a number of seconds, or text such as "2 minutes".
        what: how messages name the value.
        clamp: whether one over 100 years becomes 100 years instead of an error.

    Raises:
        TypeError: for anything that is not a duration (a bool included).
        ValueError: for one that is negative, not finite, unreadable or over 100 years.
    """
    exact = _exact_ms(value, what)
    if exact < 0:
        raise ValueError(f"{what} must not be negative, got {_shown(value)}; {_EXAMPLE}")
    if exact > MAX_DELAY_MS and clamp:
        return MAX_DELAY_MS
    if exact > MAX_DELAY_MS:
        raise ValueError(f"{what} must be at most 100 years, got {_shown(value)}; {_EXAMPLE}")
    return round(exact)


def format_ms(ms: int) -> str:
    """Return milliseconds as short text for people, such as `1m30s` or `250ms`."""
    sign, rest = ("-", -ms) if ms < 0 else ("", ms)
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNIT_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts) if parts else "0s"


def _exact_ms(value: Duration, what: str) -> Fraction | int:
    # bool is an int to Python, and True is no duration to anybody.
    if isinstance(value, bool):
        raise TypeError(f"{what} must be a duration, got {value!r}; {_EXAMPLE}")
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1), 1_000)
    if isinstance(value, int):
        return value * 1_000
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{what} must be finite, got {value!r}; {_EXAMPLE}")
        return Fraction(value) * 1_000
    if isinstance(value, str):
        return _parse(value, what)
    raise TypeError(f"{what} must be a duration, got {type(value).__name__}; {_EXAMPLE}")


def _parse(text: str, what: str) -> Fraction:
    lowered = text.strip().lower()
    if lowered.startswith("-"):
        raise ValueError(f"{what} must not be negative, got {_shown(text)}; {_EXAMPLE}")
    total, position = Fraction(0), 0
    while position < len(lowered):
        part = _PART.match(lowered, position)
        unit = _UNITS.get(part[2]) if part else None
        if part is None or unit is None:
            raise ValueError(f"{what}: cannot read {_shown(text)} as a duration; {_EXAMPLE}")
        total += Fraction(part[1]) * unit
        position = part.end()
    if not lowered:
        raise ValueError(f"{what}: cannot read {_shown(text)} as a duration; {_EXAMPLE}")
    return total


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) > 10**30:
        return "a number of more than 30 digits"
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
