"""ValueCodec: values of one declared type to plain data and back, with the field named."""

from __future__ import annotations

from typing import Any

from mq.errors import DecodeError, PayloadError
from mq.typed.compiler import Compiler
from mq.typed.shape import MAX_DEPTH, Direction, Refusal, Shape, locate, too_deep


class ValueCodec:
    """Checks and converts the values of one declared type; knows nothing of bytes.

    Args:
        declared: the type, as written in an annotation; None stands for NoneType.
        what: how messages name the part of the definition it serves.

    Raises:
        DefinitionError: naming the field whose type cannot be stored.
    """

    def __init__(self, declared: Any, what: str) -> None:
        compiler = Compiler(what)
        self.declared = declared
        self.what = what
        self.shape: Shape = compiler.shape(declared)
        self._encode = self.shape.encode
        self._unbounded = compiler.unbounded
        self._json: Shape | None = None

    def to_wire(self, value: Any) -> Any:
        """Return the value as plain data.

        Raises:
            PayloadError: naming the field, when the value is not of the type, cannot come back as
                it is, or is nested too deep.
        """
        try:
            wire = self._encode(value)
        # Properties, iterators and zones of the caller's own may raise anything.
        except Exception as error:  # noqa: BLE001
            raise self._refused(self.shape, value, "encode", error) from None
        if self._unbounded and too_deep(wire):
            reason = f"is nested more than {MAX_DEPTH} levels deep; flatten it"
            raise PayloadError("$", reason, what=self.what)
        return wire

    def _refused(
        self, shape: Shape, value: Any, direction: Direction, error: Exception
    ) -> PayloadError:
        path, reason = locate(shape, value, direction)
        if not reason:
            # The second look found nothing, so the value changed meanwhile: report the first.
            reason = str(error) if isinstance(error, Refusal) else type(error).__name__
        return PayloadError(path, reason, what=self.what)

    def from_wire(self, wire: Any) -> Any:
        """Return the value of plain data.

        Raises:
            DecodeError: naming the field that no longer fits the declared type.
        """
        try:
            return self.shape.decode(wire)
        # Validators and initialisers of the declared classes may raise anything.
        except Exception as error:  # noqa: BLE001
            refused = self._refused(self.shape, wire, "decode", error)
        message = f"{self.what} {refused.path}: stored bytes no longer fit: {refused.reason}"
        raise DecodeError(message, path=refused.path)

    def from_json(self, value: Any) -> Any:
        """Return the value that a person wrote as JSON: `value` is what json.loads gave.

        Bytes are base64 text, unknown fields are refused.

        Raises:
            PayloadError: naming the field that does not fit.
        """
        if self._json is None:
            self._json = Compiler(self.what, json=True).shape(self.declared)
        try:
            return self._json.decode(value)
        # Validators of the declared classes may raise anything.
        except Exception as error:  # noqa: BLE001
            raise self._refused(self._json, value, "decode", error) from None
