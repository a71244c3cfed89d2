"""Shapes of closed sets of values: enumerations by value, and literals."""

from __future__ import annotations

import enum
from typing import Any

from mq.typed.leaves import LEAVES
from mq.typed.shape import NONE, Refusal, Shape, expected

_SIMPLE = (str, int, float, bool, bytes)


def enumeration(kind: type[enum.Enum]) -> Shape:
    """Return the shape of an Enum, stored as the value of its member."""
    if issubclass(kind, enum.Flag):
        return _flags(kind)
    name = kind.__name__
    to_wire = {member: _simple(member.value, name) for member in kind}
    members = {(type(wire), wire): member for member, wire in to_wire.items()}
    choices = ", ".join(ascii(wire) for wire in to_wire.values())[:120]

    def encode(value: Any) -> Any:
        if type(value) is not kind:
            raise expected(name, value)
        return to_wire[value]

    def decode(wire: Any) -> Any:
        if isinstance(wire, _SIMPLE) and (type(wire), wire) in members:
            return members[type(wire), wire]
        raise Refusal(f"is not a {name}: one of {choices}")

    kinds = frozenset(type(wire) for wire in to_wire.values())
    return Shape(name, encode, decode, kinds, (kind,), scalar=True)


def _simple(value: Any, name: str) -> Any:
    for base in (bool, int, float, str, bytes):
        if type(value) is base:
            return LEAVES[base].encode(value)
    raise Refusal(f"{name} has a member whose value is not plain; give it text or a small number")


def _flags(kind: type[enum.Flag]) -> Shape:
    name = kind.__name__

    def encode(value: Any) -> int:
        if type(value) is not kind:
            raise expected(name, value)
        return int(value.value)

    def decode(wire: Any) -> Any:
        if type(wire) is not int:
            raise expected(name, wire)
        try:
            return kind(wire)
        except ValueError:
            raise Refusal(f"is not a combination of {name}") from None

    return Shape(name, encode, decode, frozenset({int}), (kind,), scalar=True)


def literal(values: tuple[Any, ...]) -> Shape:
    """Return the shape of a Literal; each value counts with its type, so 1 is not True."""
    members: dict[tuple[type, Any], Any] = {}
    wires: dict[tuple[type, Any], Any] = {}
    for value in values:
        wire = value.value if isinstance(value, enum.Enum) else value
        if type(wire) not in (*_SIMPLE, NONE) or (type(wire), wire) in members:
            raise Refusal(
                f"Literal has two values stored as {wire!r:.40}, or one that is not plain"
            )
        members[type(wire), wire] = value
        wires[type(value), value] = wire
    name = f"Literal[{', '.join(ascii(value) for value in values)}]"[:120]

    def encode(value: Any) -> Any:
        try:
            return wires[type(value), value]
        except (KeyError, TypeError):
            raise Refusal(f"is not one of {name}") from None

    def decode(wire: Any) -> Any:
        try:
            return members[type(wire), wire]
        except (KeyError, TypeError):
            raise Refusal(f"is not one of {name}") from None

    kinds = frozenset(kind for kind, _ in members)
    types = tuple({type(value) for value in values if isinstance(value, enum.Enum)}) or tuple(kinds)
    return Shape(name, encode, decode, kinds, types, scalar=NONE not in kinds)
