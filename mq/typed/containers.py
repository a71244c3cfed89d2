"""Shapes that hold other shapes: lists, tuples, sets, dicts, unions and secrets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mq.secret import Secret
from mq.typed.leaves import key_step
from mq.typed.shape import NONE, Part, Refusal, Sealed, Shape, expected


def sequence(kind: Any, item: Shape) -> Shape:
    """Return the shape of a list, set or frozenset of one type of item; stored as a list."""
    encode_item, decode_item = item.encode, item.decode
    name = f"{kind.__name__}[{item.name}]"
    ordered = kind is list or kind is tuple

    def encode(value: Any) -> list[Any]:
        if type(value) is not kind:
            raise expected(name, value)
        encoded = [encode_item(part) for part in value]
        # One set always makes the same bytes: its order would follow the process's hash seed.
        return encoded if ordered else sorted(encoded, key=_order)

    def decode(wire: Any) -> Any:
        if type(wire) is not list:
            raise expected(name, wire)
        decoded = [decode_item(part) for part in wire]
        return decoded if kind is list else kind(decoded)

    def parts(value: Any) -> Iterator[Part]:
        for index, part in enumerate(value if isinstance(value, kind) else ()):
            yield f"[{index}]", part, item

    return Shape(name, encode, decode, frozenset({list}), (kind,), parts, _items(item))


def _order(wire: Any) -> tuple[str, str]:
    return type(wire).__name__, repr(wire)


def _items(item: Shape) -> Callable[[Any], Iterator[Part]]:
    def wire_parts(wire: Any) -> Iterator[Part]:
        for index, part in enumerate(wire if isinstance(wire, list) else ()):
            yield f"[{index}]", part, item

    return wire_parts


def fixed_tuple(name: str, kind: Any, make: Callable[..., Any], items: list[Shape]) -> Shape:
    """Return the shape of a tuple with a shape for each place; `make` takes them all."""
    width = len(items)

    def encode(value: Any) -> list[Any]:
        if type(value) is not kind:
            raise expected(name, value)
        if len(value) != width:
            raise Refusal(f"expected {width} items, got {len(value)}")
        return [item.encode(part) for item, part in zip(items, value, strict=True)]

    def decode(wire: Any) -> Any:
        if type(wire) is not list:
            raise expected(name, wire)
        if len(wire) != width:
            raise Refusal(f"expected {width} items, got {len(wire)}")
        return make(item.decode(part) for item, part in zip(items, wire, strict=True))

    def parts(value: Any) -> Iterator[Part]:
        if isinstance(value, tuple | list) and len(value) == width:
            for index, (item, part) in enumerate(zip(items, value, strict=True)):
                yield f"[{index}]", part, item

    return Shape(name, encode, decode, frozenset({list}), (kind,), parts, parts)


def mapping(key: Shape, item: Shape, *, json: bool) -> Shape:
    """Return the shape of a dict; its order is kept."""
    name = f"dict[{key.name}, {item.name}]"
    read_key = _json_key(key) if json else key.decode
    key_shape = Shape(key.name, key.encode, read_key, key.kinds)

    def encode(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise expected(name, value)
        return {key.encode(k): item.encode(part) for k, part in value.items()}

    def decode(wire: Any) -> dict[Any, Any]:
        if type(wire) is not dict:
            raise expected(name, wire)
        return {read_key(k): item.decode(part) for k, part in wire.items()}

    def parts(value: Any) -> Iterator[Part]:
        for k, part in value.items() if type(value) is dict else ():
            yield f"{key_step(k)} (key)", k, key_shape
            yield key_step(k), part, item

    return Shape(name, encode, decode, frozenset({dict}), (dict,), parts, parts)


def _json_key(key: Shape) -> Callable[[Any], Any]:
    """Keys are always text in JSON: read them as their type, as text first."""

    def read(wire: Any) -> Any:
        try:
            return key.decode(wire)
        except Refusal:
            for kind in (int, float):
                if kind in key.kinds and isinstance(wire, str):
                    try:
                        return key.decode(kind(wire))
                    except ValueError:
                        continue
            raise

    return read


def secret(inner: Shape) -> Shape:
    """Return the shape of a Secret: its value in an envelope that says so."""
    name = f"Secret[{inner.name}]"

    def encode(value: Any) -> Sealed:
        if type(value) is not Secret:
            raise Refusal(f"expected {name}, got {type(value).__name__}; wrap it in mq.Secret(...)")
        if not value.persist:
            raise Refusal("is a Secret with persist=False, which is never stored; send a reference")
        return Sealed(inner.encode(value.reveal()))

    def decode(wire: Any) -> Any:
        if type(wire) is not Sealed:
            raise expected(name, wire)
        return Secret(inner.decode(wire.wire))

    def parts(value: Any) -> Iterator[Part]:
        if type(value) is Secret and value.persist:
            yield "", value.reveal(), inner

    def wire_parts(wire: Any) -> Iterator[Part]:
        if type(wire) is Sealed:
            yield "", wire.wire, inner

    return Shape(name, encode, decode, frozenset({Sealed}), (Secret,), parts, wire_parts)


def json_secret(inner: Shape) -> Shape:
    """Return the shape that reads a secret from JSON, where it stands without an envelope."""
    return Shape(
        f"Secret[{inner.name}]",
        inner.encode,
        lambda wire: Secret(inner.decode(wire)),
        inner.kinds,
        (Secret,),
        wire_parts=lambda wire: iter((("", wire, inner),)),
    )


def optional(inner: Shape) -> Shape:
    """Return the shape of `T | None`."""
    encode_inner, decode_inner = inner.encode, inner.decode

    def encode(value: Any) -> Any:
        return None if value is None else encode_inner(value)

    def decode(wire: Any) -> Any:
        return None if wire is None else decode_inner(wire)

    def through(value: Any) -> Iterator[Part]:
        if value is not None:
            yield "", value, inner

    name, kinds = f"{inner.name} | None", inner.kinds | {NONE}
    return Shape(name, encode, decode, kinds, (*inner.types, NONE), through, through, inner.scalar)


def union(arms: Iterable[Shape]) -> Shape:
    """Return the shape of a union whose arms differ by the kind of their plain data."""
    arms = tuple(arms)
    name = " | ".join(arm.name for arm in arms)
    by_type = {kind: arm for arm in reversed(arms) for kind in arm.types}
    # Stored kinds are disjoint. In JSON, where text may be base64 or a date, plain text wins.
    by_kind = {kind: arm for arm in reversed(arms) for kind in arm.kinds}
    by_kind |= {kind: arm for arm in arms for kind in arm.kinds.intersection(arm.types)}

    def encode(value: Any) -> Any:
        arm = by_type.get(type(value))
        return arm.encode(value) if arm else _first(arms, "encode", value, name)

    def decode(wire: Any) -> Any:
        arm = by_kind.get(type(wire))
        return arm.decode(wire) if arm else _first(arms, "decode", wire, name)

    def parts(value: Any) -> Iterator[Part]:
        arm = by_type.get(type(value))
        if arm:
            yield "", value, arm

    def wire_parts(wire: Any) -> Iterator[Part]:
        arm = by_kind.get(type(wire))
        if arm:
            yield "", wire, arm

    kinds = frozenset(by_kind)
    scalar = all(arm.scalar for arm in arms)
    return Shape(name, encode, decode, kinds, tuple(by_type), parts, wire_parts, scalar)


def _first(arms: Iterable[Shape], direction: str, value: Any, name: str) -> Any:
    for arm in arms:
        try:
            return getattr(arm, direction)(value)
        except Refusal:
            continue
    raise expected(name, value)


def tagged(arms: dict[type, tuple[str, Shape]], tag_field: str) -> Shape:
    """Return the shape of a union of classes: the class's name stands among its fields."""
    by_tag = dict(arms.values())
    name = " | ".join(by_tag)

    def encode(value: Any) -> dict[str, Any]:
        found = arms.get(type(value))
        if found is None:
            raise expected(name, value)
        return {tag_field: found[0], **found[1].encode(value)}

    def arm_of(wire: Any) -> tuple[Shape, dict[str, Any]]:
        if type(wire) is not dict:
            raise expected(name, wire)
        tag = wire.get(tag_field)
        arm = by_tag.get(tag) if isinstance(tag, str) else None
        if arm is None:
            raise Refusal(f"needs {tag_field!r}, one of {', '.join(by_tag)}")
        return arm, {key: part for key, part in wire.items() if key != tag_field}

    def decode(wire: Any) -> Any:
        arm, fields = arm_of(wire)
        return arm.decode(fields)

    def parts(value: Any) -> Iterator[Part]:
        if type(value) in arms:
            yield "", value, arms[type(value)][1]

    def wire_parts(wire: Any) -> Iterator[Part]:
        arm, fields = arm_of(wire)
        yield "", fields, arm

    return Shape(name, encode, decode, frozenset({dict}), tuple(arms), parts, wire_parts)
