"""Kinds of values on the command line: durations, JSON, ids, names, metadata pairs, queues."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from mq.durations import Duration, to_ms
from mq.errors import one_line
from mq.validation import check_job_id, check_name

if TYPE_CHECKING:
    _Type = click.ParamType[Any]
else:
    _Type = click.ParamType  # generic since click 8.2 only

_DURATIONS = "write it such as 30s, 1h30m, or 2.5 for seconds"
_SHOWN = 60  # characters of a bad value that a message repeats


class DurationType(_Type):
    """A duration as people write it, or a plain number of seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Return the duration, or fail naming what is wrong with it."""
        if isinstance(value, timedelta):
            return value
        read: Duration = value
        with contextlib.suppress(ValueError):  # no plain number: text with a unit
            read = float(value)
        try:
            return timedelta(milliseconds=to_ms(read, "duration"))
        except (ValueError, TypeError) as error:
            # What it says after the semicolon is for people who write Python.
            self.fail(f"{str(error).partition('; ')[0]}; {_DURATIONS}", param, ctx)


class PairType(_Type):
    """`key=value`; the value may hold further equal signs, or be empty."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the pair."""
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not equals or not key:
            self.fail(f"{value[:_SHOWN]!r} is no pair: write key=value", param, ctx)
        return key, rest


class QueueType(_Type):
    """`queue`, or `queue:weight`."""

    name = "queue[:weight]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return name and weight; None for no weight."""
        if isinstance(value, tuple):
            return value
        name, colon, weight = str(value).partition(":")
        if not colon:
            return name, None
        if not weight.isascii() or not weight.isdigit():
            self.fail(
                f"{value[:_SHOWN]!r}: a weight is a whole number, such as {name}:3", param, ctx
            )
        return name, int(weight)


class CheckedType(_Type):
    """Text that a check of the contract accepts.

    Args:
        name: what the help calls it.
        check: returns the text, or raises ValueError saying what is wrong with it.
    """

    def __init__(self, name: str, check: Callable[[str], str]) -> None:
        self.name = name
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, or fail with what the check says."""
        try:
            return self._check(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = DurationType()
PAIR = PairType()
QUEUE = QueueType()
JOB_ID = CheckedType("id", check_job_id)
QUEUE_NAME = CheckedType("queue", lambda text: check_name(text, "queue"))
JOB_NAME = CheckedType("name", lambda text: check_name(text, "job name"))


class JSONError(ValueError):
    """Text that is not one JSON value; never repeats the text, which may be secret."""


def read_json(text: str | bytes) -> Any:
    """Return the value of a JSON text, strictly: no NaN, no key twice, nothing behind it.

    Raises:
        JSONError: saying what is wrong, and where.
    """
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(decoded, parse_constant=_no_constant, object_pairs_hook=_no_twins)
    except UnicodeDecodeError as error:
        raise JSONError(f"not UTF-8 at byte {error.start + 1}") from None
    except json.JSONDecodeError as error:
        place = (
            f"line {error.lineno} column {error.colno}"
            if error.lineno > 1
            else f"column {error.colno}"
        )
        raise JSONError(f"not JSON at {place}: {_lower(error.msg)}") from None
    except RecursionError:
        raise JSONError("not usable: nested too deep") from None
    except JSONError:
        raise
    # Python limits the digits of a number.
    except ValueError as error:
        raise JSONError(f"not usable: {one_line(str(error))}") from None


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _no_constant(name: str) -> Any:
    raise JSONError(f"not JSON: {name} is no JSON value, write null or text")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twin = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value] # adds on the way
        raise JSONError(f"not usable: the key {twin[:_SHOWN]!r} stands twice in one object")
    return made
