"""Shapes of single values: numbers, text, bytes, dates, and plain data of no declared type."""

from __future__ import annotations

import base64
import binascii
import enum
import math
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from mq.durations import to_ms
from mq.typed.shape import NONE, Part, Refusal, Shape, expected

_LOW, _HIGH = -(2**63), 2**64 - 1
_BEYOND = "is an integer beyond 64 bits; declare it mq.BigInt to send it as text"
_NOT_FINITE = "is NaN or infinite; send None or text instead"
_SURROGATE = "holds half a surrogate pair, which is not text; send bytes, or replace it"
_FOLD = ";fold=1"
_DURATION = re.compile(r"(-?)(\d{1,15})\.(\d{6})s", re.ASCII)
_DIGITS = re.compile(r"-?\d{1,4300}", re.ASCII)


def encode_none(value: Any) -> None:
    """Return None, which is all there is."""
    if value is not None:
        raise expected("None", value)


def encode_bool(value: Any) -> bool:
    """Return a bool; 0 and 1 are none."""
    if value is True or value is False:
        return bool(value)
    raise expected("bool", value)


def encode_int(value: Any) -> int:
    """Return an int of at most 64 bits; a bool or an Enum member is none."""
    if type(value) is not int:
        value = _base(value, int, "int")
    if _LOW <= value <= _HIGH:
        return value  # type: ignore[no-any-return] # checked two lines above
    raise Refusal(_BEYOND)


def encode_float(value: Any) -> float:
    """Return a finite float; an int counts when a float holds it exactly."""
    if type(value) is not float:
        value = _as_float(value)
    if math.isfinite(value):
        return value  # type: ignore[no-any-return] # checked above
    raise Refusal(_NOT_FINITE)


def encode_str(value: Any) -> str:
    """Return text that utf-8 can carry."""
    if type(value) is not str:
        value = _base(value, str, "str")
    if value.isascii():
        return value  # type: ignore[no-any-return] # checked above
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refusal(_SURROGATE) from None
    return value  # type: ignore[no-any-return] # checked above


def encode_bytes(value: Any) -> bytes:
    """Return bytes as they are."""
    if type(value) is bytes:
        return value
    if isinstance(value, memoryview | bytearray):
        raise Refusal(f"expected bytes, got {type(value).__name__}; pass bytes(value)")
    raise expected("bytes", value)


def _base(value: Any, base: type, name: str) -> Any:
    # Subclasses such as JobId come back as their base; an Enum has a type of its own to declare.
    if isinstance(value, enum.Enum):
        raise Refusal(f"expected {name}, got a member of {type(value).__name__}; declare the Enum")
    if not isinstance(value, base) or isinstance(value, bool):
        raise expected(name, value)
    return str.__str__(value) if isinstance(value, str) else base.__int__(value)  # type: ignore[attr-defined]


def _as_float(value: Any) -> float:
    if isinstance(value, float):
        return float.__float__(value)
    exact = _base(value, int, "float")
    try:
        converted = float(exact)
    except OverflowError:
        raise Refusal("is an integer that no float holds exactly; declare int") from None
    if converted != exact:
        raise Refusal("is an integer that no float holds exactly; declare int")
    return converted


def _shape(kind: type, encode: Callable[[Any], Any]) -> Shape:
    return Shape(kind.__name__, encode, encode, frozenset({kind}), (kind,), scalar=True)


LEAVES: dict[Any, Shape] = {
    NONE: Shape("None", encode_none, encode_none, frozenset({NONE}), (NONE,)),
    bool: _shape(bool, encode_bool),
    int: _shape(int, encode_int),
    float: _shape(float, encode_float),
    str: _shape(str, encode_str),
    bytes: _shape(bytes, encode_bytes),
}


def _texts(
    kind: type, to_text: Callable[[Any], str], from_text: Callable[[str], Any], example: str
) -> Shape:
    def encode(value: Any) -> str:
        if type(value) is kind:
            return to_text(value)
        # A subclass (a frozen clock's datetime, say) is fine if nothing of it gets lost.
        if not isinstance(value, kind) or (kind is date and isinstance(value, datetime)):
            raise expected(kind.__name__, value)
        text = to_text(value)
        if from_text(text) != value:
            raise Refusal(f"is a {type(value).__name__} that a {kind.__name__} cannot hold")
        return text

    def decode(wire: Any) -> Any:
        if type(wire) is not str:
            raise Refusal(f"expected {kind.__name__} as text such as {example!r}")
        try:
            return from_text(wire)
        except (ValueError, ArithmeticError):
            raise Refusal(f"is not a {kind.__name__} such as {example!r}") from None

    return Shape(kind.__name__, encode, decode, frozenset({str}), (kind,), scalar=True)


def _moment_text(value: datetime | time) -> str:
    if value.tzinfo is not None and value.utcoffset() is None:
        raise Refusal("has a zone without a fixed offset; give it a datetime.timezone")
    # ISO text has no place for the second pass through a repeated hour.
    return value.isoformat() + _FOLD * value.fold


def _moment(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text.endswith(_FOLD):
            return parse(text[: -len(_FOLD)]).replace(fold=1)
        return parse(text)

    return read


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise Refusal(_NOT_FINITE)
    return str(value)


def _read_decimal(text: str) -> Decimal:
    value = Decimal(text)
    if not value.is_finite():
        raise Refusal(_NOT_FINITE)
    return value


def _duration_text(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    seconds, rest = divmod(abs(micros), 1_000_000)
    return f"{'-' if micros < 0 else ''}{seconds}.{rest:06}s"


def _read_duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    value = timedelta(seconds=int(match[2]), microseconds=int(match[3]))
    return -value if match[1] else value


for _kind, _to, _from, _example in (
    (datetime, _moment_text, _moment(datetime.fromisoformat), "2030-01-31T12:00:00+00:00"),
    (time, _moment_text, _moment(time.fromisoformat), "12:00:00"),
    (date, date.isoformat, date.fromisoformat, "2030-01-31"),
    (timedelta, _duration_text, _read_duration, "90.000000s"),
    (Decimal, _decimal_text, _read_decimal, "12.50"),
    (UUID, str, UUID, "12345678-1234-5678-1234-567812345678"),
):
    LEAVES[_kind] = _texts(_kind, _to, _from, _example)


def _encode_big(value: Any) -> str:
    exact = value if type(value) is int else _base(value, int, "int")
    try:
        return str(exact)
    except ValueError:
        raise Refusal("is an integer of more than 4300 digits") from None


def _decode_big(wire: Any) -> int:
    if type(wire) is not str or _DIGITS.fullmatch(wire) is None:
        raise Refusal("expected an integer as decimal text")
    return int(wire)


BIG = Shape("BigInt", _encode_big, _decode_big, frozenset({str}), (int,), scalar=True)

BYTEARRAY = Shape(
    "bytearray",
    lambda value: bytes(value) if type(value) is bytearray else _raise("bytearray", value),
    lambda wire: bytearray(encode_bytes(wire)),
    frozenset({bytes}),
    (bytearray,),
)


def _raise(name: str, value: Any) -> Any:
    raise expected(name, value)


def encode_plain(value: Any) -> Any:
    """Return a value of no declared type, if it is plain data through and through."""
    kind = type(value)
    if kind is dict:
        return {_plain_key(key): encode_plain(item) for key, item in value.items()}
    if kind is list:
        return [encode_plain(item) for item in value]
    for leaf in _PLAIN:
        if isinstance(value, leaf):
            return LEAVES[leaf].encode(value)
    raise Refusal(f"a {kind.__name__} has no plain form here; declare its type")


# bool before int, whose subclass it is.
_PLAIN = (str, bool, int, float, bytes, NONE)


def _plain_key(key: Any) -> Any:
    if isinstance(key, str):
        return encode_str(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return encode_int(key)
    raise Refusal(f"has a key of type {type(key).__name__}; use text, or declare the dict's types")


def _plain_parts(value: Any) -> Iterator[Part]:
    if type(value) is list:
        for index, item in enumerate(value):
            yield f"[{index}]", item, ANY
    elif type(value) is dict:
        for key, item in value.items():
            yield key_step(key), item, ANY


def key_step(key: object) -> str:
    """Return the step into a dict, without showing more than 40 characters of the key."""
    text = ascii(key) if isinstance(key, str | int | float | bytes) else type(key).__name__
    return f"[{text if len(text) <= 40 else text[:37] + '...'}]"


ANY = Shape(
    "Any",
    encode_plain,
    encode_plain,
    frozenset({NONE, bool, int, float, str, bytes, list, dict}),
    parts=_plain_parts,
    wire_parts=_plain_parts,
)


def _json_bytes(wire: Any) -> bytes:
    if type(wire) is not str:
        raise Refusal("expected bytes as base64 text")
    try:
        return base64.b64decode(wire, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal("expected bytes as base64 text") from None


def _json_int_like(shape: Shape, convert: Callable[[int], Any]) -> Shape:
    def decode(wire: Any) -> Any:
        return convert(wire) if type(wire) is int else shape.decode(wire)

    return Shape(shape.name, shape.encode, decode, shape.kinds | {int}, shape.types, scalar=True)


def _json_duration(wire: Any) -> timedelta:
    if isinstance(wire, str):
        try:
            return _read_duration(wire)
        except (ValueError, ArithmeticError):
            pass
    try:
        return timedelta(milliseconds=to_ms(wire, "it"))
    except (TypeError, ValueError) as error:
        raise Refusal(str(error)) from None


JSON_LEAVES: dict[Any, Shape] = {
    bytes: Shape("bytes", encode_bytes, _json_bytes, frozenset({str}), (bytes,), scalar=True),
    bytearray: Shape(
        "bytearray", BYTEARRAY.encode, lambda wire: bytearray(_json_bytes(wire)), frozenset({str})
    ),
    timedelta: Shape(
        "timedelta",
        LEAVES[timedelta].encode,
        _json_duration,
        frozenset({str, int, float}),
        (timedelta,),
        scalar=True,
    ),
    Decimal: _json_int_like(LEAVES[Decimal], Decimal),
    BIG: _json_int_like(BIG, int),
}
"""What JSON writes in another way: bytes as base64, durations as people write them, exact numbers
as plain integers too."""
