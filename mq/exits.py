"""Exits: how a run ended, as plain data: a success value, a typed failure, or a defect."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal

import attrs

from mq.errors import DecodeError, DefinitionError, MQError
from mq.failures import (
    MAX_MESSAGE_BYTES,
    MAX_TRACEBACK_BYTES,
    MAX_TYPE_BYTES,
    truncate,
    truncate_head,
)
from mq.typed.classes import is_record_class
from mq.typed.value import ValueCodec
from mq.unrecoverable import MARK

_SUCCESS, _FAILURE, _DEFECT = "success", "failure", "defect"
_FIX = "make it an attrs or dataclass exception"

DefectKind = Literal["raised", "timeout", "undecodable", "unencodable", "exited", "store"]
_KINDS: tuple[DefectKind, ...] = typing.get_args(DefectKind)


@attrs.frozen
class Success:
    """The handler returned `value`."""

    value: Any


@attrs.frozen
class Failure:
    """The handler raised `error`, one of the declared types, rebuilt as its own class."""

    error: BaseException


@attrs.frozen
class Defect:
    """The run failed outside its declared errors; all text, nothing is rebuilt.

    Args:
        type: type path of the error.
        message: its text.
        traceback: the formatted traceback, or the stack of a run that did not end.
        kind: who found it: a handler's own TimeoutError is `raised`, the runtime's limit `timeout`,
            and `store` is a child of a flow that no handler's exit ended.
    """

    type: str
    message: str
    traceback: str = ""
    kind: DefectKind = "raised"


Exit = Success | Failure | Defect


def defect_wire(
    error_type: str, message: str, traceback_text: str, kind: DefectKind = "raised"
) -> list[str]:
    """Return the plain data of a defect, each of its texts bounded."""
    return [
        _DEFECT,
        truncate(error_type, MAX_TYPE_BYTES),
        truncate(message, MAX_MESSAGE_BYTES),
        truncate_head(traceback_text, MAX_TRACEBACK_BYTES),
        kind,
    ]


def exit_shown(wire: Any) -> Any:
    """Return an exit's plain data with its parts named, for display."""
    match wire:
        case ["success", value]:
            return {"kind": _SUCCESS, "value": value}
        case ["failure", str(name), fields]:
            return {"kind": _FAILURE, "type": name, "error": fields}
        case ["defect", str(name), str(message), str(text), str(kind)]:
            return {
                "kind": _DEFECT,
                "type": name,
                "message": message,
                "traceback": text,
                "found": kind,
            }
    return wire


class ExitWires:
    """Turns the exits of one definition into plain data and back.

    Args:
        result: the codec of the result type.
        errors: the declared error types, as `check_error_types` returned them.
        what: how messages name the definition.
    """

    def __init__(
        self, result: ValueCodec, errors: tuple[type, ...] = (), what: str = "exit"
    ) -> None:
        self.result = result
        self.errors = errors
        self.what = what
        self._arms = {kind: _arm(kind) for kind in errors}
        self._by_tag = {kind.__name__: arm for kind, arm in self._arms.items()}

    def success_wire(self, value: Any) -> list[Any]:
        """Return the plain data of a returned value; raises PayloadError naming the field."""
        return [_SUCCESS, self.result.to_wire(value)]

    def failure_wire(self, error: BaseException) -> list[Any] | None:
        """Return the plain data of a typed failure, or None when it is to be a defect.

        It is a failure when the type is exactly a declared one and the instance can be rebuilt.
        """
        arm = self._arms.get(type(error))
        if arm is None:
            return None
        # Whatever the declared class does here, the failure must be recorded.
        try:
            wire = arm.to_wire(error)
            rebuilt = arm.from_wire(wire)
        except Exception:  # noqa: BLE001
            return None
        # Some classes keep what their args do not say: OSError its filename.
        same = type(rebuilt) is type(error) and str(rebuilt) == str(error)
        return [_FAILURE, type(error).__name__, wire] if same else None

    def read(self, wire: Any) -> Exit:
        """Return the exit of plain data; raises DecodeError when it no longer fits."""
        match wire:
            case ["success", value]:
                return Success(self.result.from_wire(value))
            case ["failure", str(tag), fields]:
                return Failure(self._failure(tag, fields))
            case ["defect", str(name), str(message), str(text), kind] if kind in _KINDS:
                return Defect(name, message, text, kind)
        raise DecodeError(f"{self.what}: the stored bytes are no exit; another program wrote them?")

    def _failure(self, tag: str, fields: Any) -> BaseException:
        arm = self._by_tag.get(tag)
        if arm is None:
            known = ", ".join(self._by_tag) or "none"
            raise DecodeError(
                f"{self.what}: the stored error {tag!r:.80} is not among the declared ({known})"
            )
        try:
            return arm.from_wire(fields)
        except MQError:
            raise
        # The class may have changed since, and its initialiser may raise anything.
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise DecodeError(f"{self.what}: {tag} cannot be rebuilt: {reason:.200}") from error


@attrs.frozen
class _Arm:
    """How one declared error type travels."""

    to_wire: Callable[[BaseException], Any]
    from_wire: Callable[[Any], BaseException]


def _arm(kind: Any) -> _Arm:
    if is_record_class(kind):
        codec = ValueCodec(kind, f"error {kind.__name__}")
        return _Arm(codec.to_wire, codec.from_wire)
    plain = ValueCodec(typing.Any, f"error {kind.__name__}")

    def to_wire(error: BaseException) -> Any:
        return plain.to_wire([list(error.args), _state(error)])

    def from_wire(wire: Any) -> BaseException:
        args, state = plain.from_wire(wire)
        error: BaseException = kind(*args)
        # An initialiser may pass on fewer arguments than it took, or set more than it was given.
        error.args = tuple(args)
        vars(error).update(state)
        return error

    return _Arm(to_wire, from_wire)


_NOT_STATE = frozenset({"__notes__", MARK})


def _state(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in vars(error).items() if name not in _NOT_STATE}


def check_error_types(error: Any) -> tuple[type, ...]:
    """Return the declared error types: none for None, else each arm of the union.

    Raises:
        DefinitionError: for what is no exception that can be rebuilt, with the fix.
    """
    if error is None:
        return ()
    if typing.get_origin(error) in (typing.Union, types.UnionType):
        arms = typing.get_args(error)
    elif isinstance(error, tuple):
        arms = error
    else:
        arms = (error,)
    names: set[str] = set()
    for kind in arms:
        _check_error_type(kind)
        if kind.__name__ in names:
            raise DefinitionError(f"error: two of the types are called {kind.__name__}; rename one")
        names.add(kind.__name__)
    return arms


def _check_error_type(kind: Any) -> None:
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        shown = getattr(kind, "__name__", None) or f"a {type(kind).__name__}"
        raise DefinitionError(f"error: {shown} is not an exception class; {_FIX}")
    if not issubclass(kind, Exception):
        raise DefinitionError(
            f"error: {kind.__name__} derives from BaseException, which stops programs; "
            "derive it from Exception"
        )
    if issubclass(kind, BaseExceptionGroup):
        raise DefinitionError(f"error: {kind.__name__} is a group of exceptions; {_FIX}")
    if is_record_class(kind):
        ValueCodec(kind, f"error {kind.__name__}")
    elif inspect.isfunction(kind.__init__):
        _check_init(kind)


def _check_init(kind: type[Exception]) -> None:
    """Raise unless the class can be called with its own `args`, tried with text for each."""
    needed = []
    for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:
        if parameter.default is not parameter.empty:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY:
            raise DefinitionError(
                f"error: {kind.__name__} needs the keyword {parameter.name}, so it cannot be "
                f"rebuilt from its args; {_FIX}"
            )
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            needed.append(f"<{parameter.name}>")
    try:
        args = kind(*needed).args
        kind(*args)
    except TypeError as error:
        raise DefinitionError(
            f"error: {kind.__name__} cannot be rebuilt from its args ({error}); {_FIX}, or pass "
            "all arguments on to super().__init__"
        ) from None
    except Exception:  # noqa: BLE001, S110 it wants other values than text: each instance is tried when raised
        pass
