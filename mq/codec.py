"""The typed edge: values of declared types to stored bytes and back, bit for bit or not at all.

This is the one module that imports msgpack. A definition makes one `TypeCodec` per declared type;
types that cannot be stored are refused there, values that do not fit are refused at `encode`, in
the caller's stack, with the path of the field.
"""

from __future__ import annotations

import base64
from typing import Any, Literal

import msgpack  # type: ignore[import-untyped] # ships no stubs

from mq.errors import DecodeError, PayloadError
from mq.exits import (
    Defect,
    DefectKind,
    Exit,
    ExitWires,
    Failure,
    Success,
    check_error_types,
    defect_wire,
    exit_shown,
)
from mq.failures import describe, error_summary, summary
from mq.secret import MASK
from mq.typed.compiler import BigInt
from mq.typed.shape import Sealed
from mq.typed.value import ValueCodec

__all__ = [
    "BigInt",
    "Defect",
    "DefectKind",
    "Exit",
    "ExitCodec",
    "Failure",
    "Success",
    "TypeCodec",
    "check_error_types",
    "codec_for",
    "encode_defect",
    "error_summary",
    "exit_to_json",
    "pack_plain",
    "summary",
    "to_json",
    "unpack_plain",
]

DEFAULT_MAX_PAYLOAD_BYTES = 1024 * 1024
# The msgpack extension type of a sealed secret: data is the packed value.
_SEALED = 1


def _pack(wire: Any) -> bytes:
    packed: bytes = msgpack.packb(wire, default=_seal)
    return packed


def _pack_within(wire: Any, limit_bytes: int, what: str) -> bytes:
    data = _pack(wire)
    if len(data) > limit_bytes:
        reason = (
            f"is {len(data)} bytes, the limit is {limit_bytes}; "
            "store it elsewhere and send a reference, or raise max_payload_bytes"
        )
        raise PayloadError("$", reason, what=what)
    return data


def _unpack(data: bytes, what: str) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=False, ext_hook=_unseal)
    # Every way in which bytes can fail to be msgpack has a class of its own.
    except Exception as error:
        reason = f"the stored bytes are not msgpack ({type(error).__name__})"
        raise DecodeError(f"{what} $: {reason}; another program wrote them?") from error


def _seal(value: Any) -> msgpack.ExtType:
    if isinstance(value, Sealed):
        return msgpack.ExtType(_SEALED, _pack(value.wire))
    raise TypeError(f"{type(value).__name__} is not plain data")


def _unseal(code: int, data: bytes) -> Any:
    return Sealed(_unpack(data, "secret")) if code == _SEALED else msgpack.ExtType(code, data)


class TypeCodec(ValueCodec):
    """Encodes and decodes the values of one declared type; made by `codec_for`."""

    def encode(self, value: Any, limit_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES) -> bytes:
        """Return the stored form of a value.

        Raises:
            PayloadError: naming the field, when the value is not of the type, cannot come back as
                it is, is nested too deep, or is larger than `limit_bytes`.
        """
        return _pack_within(self.to_wire(value), limit_bytes, self.what)

    def decode(self, data: bytes) -> Any:
        """Return the value that was stored.

        Raises:
            DecodeError: naming the field, when the bytes no longer fit the declared type.
        """
        return self.from_wire(_unpack(data, self.what))

    def to_json(self, data: bytes) -> Any:
        """Return stored bytes as JSON-able data for display; see the function `to_json`."""
        return to_json(data)


def codec_for(declared: Any, what: str) -> TypeCodec:
    """Return the codec of a declared type.

    Args:
        declared: the type, as written in an annotation; None stands for NoneType.
        what: how messages name it, such as "payload of send-invite".

    Raises:
        DefinitionError: naming the field whose type cannot be stored.
    """
    return TypeCodec(declared, what)


class ExitCodec(ExitWires):
    """Encodes and decodes the exits of one definition."""

    def encode_success(self, value: Any, limit_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES) -> bytes:
        """Return the exit of a returned value; raises PayloadError when it cannot be stored."""
        return _pack_within(self.success_wire(value), limit_bytes, self.result.what)

    def encode_failure(
        self, error: BaseException, limit_bytes: int = DEFAULT_MAX_PAYLOAD_BYTES
    ) -> tuple[bytes, Literal["failure", "defect"]]:
        """Return the exit of a raised exception, and whether it is a typed failure.

        What cannot be one (undeclared, a subclass, not to be rebuilt, over the limit) is a defect,
        which is bounded whatever the limit.
        """
        wire = self.failure_wire(error)
        if wire is not None and len(data := _pack(wire)) <= limit_bytes:
            return data, "failure"
        text = describe(error)
        # A declared error that cannot travel as itself says so.
        kind: DefectKind = "unencodable" if type(error) in self.errors else "raised"
        return encode_defect(text.type, text.message, text.traceback, kind), "defect"

    def decode(self, data: bytes) -> Exit:
        """Return a stored exit; raises DecodeError when it no longer fits the declared types."""
        return self.read(_unpack(data, self.what))


def encode_defect(
    error_type: str, message: str, traceback_text: str = "", kind: DefectKind = "raised"
) -> bytes:
    """Return the exit of a failure that the runtime itself found, such as a time-out."""
    return _pack(defect_wire(error_type, message, traceback_text, kind))


_PLAIN = ValueCodec(Any, "value")


def pack_plain(value: Any, limit_bytes: int | None = None, what: str = "value") -> bytes:
    """Return a value of no declared type as bytes.

    Raises:
        PayloadError: when it is not plain data (None, bool, int, float, text, bytes, lists, dicts)
            or is larger than `limit_bytes`.
    """
    try:
        wire = _PLAIN.to_wire(value)
    except PayloadError as error:
        raise PayloadError(error.path, error.reason, what=what) from None
    return _pack(wire) if limit_bytes is None else _pack_within(wire, limit_bytes, what)


def unpack_plain(data: bytes, what: str = "value") -> Any:
    """Return what `pack_plain` packed; raises DecodeError for other bytes."""
    return _unpack(data, what)


def exit_to_json(data: bytes) -> Any:
    """Return a stored exit as JSON-able data, without its definition; never raises."""
    return exit_shown(to_json(data))


def to_json(data: bytes) -> Any:
    """Return stored bytes as JSON-able data, without the class they came from; never raises.

    Bytes become base64 text, keys become text, secrets are masked.
    """
    try:
        return _shown(_unpack(data, "value"))
    except (DecodeError, RecursionError):
        return {"undecodable": base64.b64encode(data[:64]).decode(), "bytes": len(data)}


def _shown(wire: Any) -> Any:
    if isinstance(wire, dict):
        return {_shown_key(key): _shown(part) for key, part in wire.items()}
    if isinstance(wire, list):
        return [_shown(part) for part in wire]
    if isinstance(wire, bytes):
        return base64.b64encode(wire).decode()
    if isinstance(wire, Sealed):
        return MASK
    if isinstance(wire, str | int | float | None):
        return wire
    return f"<{type(wire).__name__}>"


def _shown_key(key: Any) -> str:
    return str(_shown(key)) if not isinstance(key, str) else key
