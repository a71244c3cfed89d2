"""Shape: what one declared type looks like in Python and in the store.

`encode` turns a value into plain data that msgpack takes, `decode` turns that back. Both check
everything and know nothing of paths: the fast way through a good value pays for no bookkeeping.
When one of them refuses, `locate` walks down again, asking each part in turn, and finds the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import attrs

NONE = type(None)
# Deeper values are refused: readers in other languages and msgpack itself give up soon after.
MAX_DEPTH = 64

Direction = Literal["encode", "decode"]
Part = tuple[str, Any, "Shape"]


class Refusal(Exception):
    """A value does not fit its declared type; the text says why, never what the value was."""


@attrs.frozen
class Sealed:
    """The plain form of a secret: stored in an envelope, so that any reader knows to mask it."""

    wire: Any


def _no_parts(_: Any) -> Iterator[Part]:
    return iter(())


@attrs.define(eq=False)
class Shape:
    """One declared type, compiled.

    Args:
        name: the type as messages show it.
        encode: value to plain data; raises when the value is not of the type.
        decode: plain data to value; raises when the data does not fit.
        kinds: types of the plain data; the arms of a union must not share one.
        types: runtime types whose values belong here; a union asks them first.
        parts: the parts of a value, for finding the one that was refused.
        wire_parts: the same for plain data.
        scalar: whether the plain data can be a key of a dict.
    """

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    kinds: frozenset[type]
    types: tuple[type, ...] = ()
    parts: Callable[[Any], Iterator[Part]] = _no_parts
    wire_parts: Callable[[Any], Iterator[Part]] = _no_parts
    scalar: bool = False


def locate(shape: Shape, value: Any, direction: Direction, path: str = "$") -> tuple[str, str]:
    """Return the path and the reason of the innermost refusal; `value` was refused by `shape`."""
    for _ in range(MAX_DEPTH):
        found = _first_refused(shape, value, direction)
        if found is None:
            return path, reason_of(shape, value, direction)
        step, value, shape = found
        path += step
    return path[:200], f"is nested more than {MAX_DEPTH} levels deep"


def _first_refused(shape: Shape, value: Any, direction: Direction) -> Part | None:
    walk = shape.parts if direction == "encode" else shape.wire_parts
    try:
        for part in walk(value):
            if reason_of(part[2], part[1], direction):
                return part
    except Exception:  # noqa: BLE001 not even walkable: then it is this level that is wrong
        return None
    return None


def reason_of(shape: Shape, value: Any, direction: Direction) -> str:
    """Return why the shape refuses the value, or an empty text when it does not."""
    try:
        shape.encode(value) if direction == "encode" else shape.decode(value)
    except Refusal as refusal:
        return str(refusal)
    except RecursionError:
        return f"is nested more than {MAX_DEPTH} levels deep"
    except Exception as error:  # noqa: BLE001 user code (validators, properties) raises anything
        return f"{shape.name} refused it: {type(error).__name__}: {error}"[:200]
    return ""


def expected(name: str, value: object) -> Refusal:
    """Return the refusal of a value of another type."""
    return Refusal(f"expected {name}, got {type(value).__name__}")


def refusing(reason: str) -> Shape:
    """Return a shape that refuses everything: how a missing or unknown field is reported."""

    def refuse(_: Any) -> Any:
        raise Refusal(reason)

    return Shape("nothing", refuse, refuse, frozenset())


def too_deep(wire: Any, left: int = MAX_DEPTH) -> bool:
    """Return whether plain data is nested more than 64 levels deep."""
    kind = type(wire)
    if kind is list:
        return left == 0 or any(too_deep(item, left - 1) for item in wire)
    if kind is dict:
        return left == 0 or any(too_deep(item, left - 1) for item in wire.values())
    return kind is Sealed and too_deep(wire.wire, left)
