"""Exits: typed failures come back as themselves, everything else as bounded text."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import attrs
import pytest

from mq.codec import (
    Defect,
    ExitCodec,
    Failure,
    Success,
    check_error_types,
    codec_for,
    encode_defect,
    exit_to_json,
    pack_plain,
)
from mq.errors import DecodeError, DefinitionError, PayloadError
from mq.secret import Secret

LIMIT = 1024 * 1024


@attrs.frozen
class InvoiceError(Exception):
    """A frozen attrs exception."""

    reason: str
    amount: int = 0


@dataclasses.dataclass
class EmailError(Exception):
    """A dataclass exception."""

    to: str


class Plain(Exception):
    """Rebuilt from its args."""


class WithCode(Exception):
    """Passes on what it takes, and sets what it was not given."""

    def __init__(self, code: int, text: str = "t") -> None:
        super().__init__(code)
        self.text = text


class Swallows(Exception):
    """Takes two, passes on one."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


class NeedsKeyword(Exception):
    """Cannot be called with args alone."""

    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


class SubError(InvoiceError):
    """Another type than the declared one."""


def codec(*errors: Any, result: Any = str) -> ExitCodec:
    """Return the codec of a job with these errors."""
    return ExitCodec(codec_for(result, "result of x"), check_error_types(errors or None), "job x")


def test_a_success_comes_back_with_its_value() -> None:
    """An encoded None is a value too."""
    made = codec(result=str | None)
    for value in ("ok", "", None):
        assert made.decode(made.encode_success(value, LIMIT)) == Success(value)


@pytest.mark.parametrize("value", [5, math.nan, "\ud83d", "x" * 200])
def test_a_result_that_cannot_be_stored_is_refused(value: Any) -> None:
    """The worker records it as a failed attempt."""
    with pytest.raises(PayloadError, match=r"result of x \$"):
        codec().encode_success(value, 100)


@pytest.mark.parametrize(
    "error",
    [
        InvoiceError("voided", 5),
        EmailError("a@b"),
        Plain(),
        Plain("text", 5, None, [1.5]),
        WithCode(5, "other"),
        KeyError("x"),
    ],
)
def test_a_declared_error_comes_back_as_its_own_class_with_its_fields(error: Exception) -> None:
    """Raised first, as it would be: frozen classes survive that."""
    made = codec(InvoiceError, EmailError, Plain, WithCode, KeyError)
    with pytest.raises(type(error)) as caught:
        raise error
    data, kind = made.encode_failure(caught.value, LIMIT)
    assert kind == "failure"
    back = made.decode(data)
    assert isinstance(back, Failure)
    assert type(back.error) is type(error)
    if attrs.has(type(error)) or dataclasses.is_dataclass(error):
        assert repr(back.error) == repr(error)
    else:
        assert (back.error.args, vars(back.error)) == (error.args, vars(error))


class Unbuildable(Exception):
    """Refuses some of its own instances when they are rebuilt."""

    def __init__(self, text: str) -> None:
        if text == "rebuilt":
            raise ValueError(text)
        super().__init__("rebuilt" if text == "trap" else text)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("undeclared"),
        SubError("a subclass"),
        InvoiceError(5),  # type: ignore[arg-type]
        InvoiceError("\ud83d"),
        Plain(lambda: 5),
        Plain((1, 2)),
        Plain("x" * (LIMIT + 1)),
        Unbuildable("trap"),
    ],
)
def test_what_cannot_travel_as_itself_is_a_defect(error: Exception) -> None:
    """The failure is recorded all the same, as text."""
    made = codec(InvoiceError, Plain, Unbuildable)
    data, kind = made.encode_failure(error, LIMIT)
    back = made.decode(data)
    assert kind == "defect"
    assert isinstance(back, Defect)
    assert back.type.endswith(type(error).__name__)
    assert len(data) < 64 * 1024


def test_a_defect_of_the_runtime_is_bounded_text() -> None:
    """A time-out has no exception of its own."""
    assert codec().decode(encode_defect("TimeoutError", "over 2 s\ud83d")) == Defect(
        "TimeoutError", "over 2 s\\ud83d", ""
    )
    huge = encode_defect("T" * 10**6, "m" * 10**6, "t" * 10**6)
    assert len(huge) < 42 * 1024
    back = codec().decode(huge)
    assert isinstance(back, Defect)
    assert "... [truncated " in back.message
    assert back.traceback.startswith("... [truncated ")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (pack_plain(5), "no exit"),
        (pack_plain(["success"]), "no exit"),
        (pack_plain(["defect", 1, 2, 3]), "no exit"),
        (pack_plain(["success", 5]), "expected str"),
        (pack_plain(["failure", "Gone", {}]), "'Gone' is not among the declared"),
        (pack_plain(["failure", "InvoiceError", {}]), "$.reason"),
        (pack_plain(["failure", "Plain", 5]), "cannot be rebuilt"),
        (pack_plain(["failure", "Unbuildable", [["rebuilt"], {}]]), "cannot be rebuilt"),
    ],
)
def test_an_exit_that_no_longer_fits_is_a_decode_error(data: bytes, reason: str) -> None:
    """The declared types may have changed since."""
    with pytest.raises(DecodeError) as caught:
        codec(InvoiceError, Plain, Unbuildable).decode(data)
    assert reason in str(caught.value)


def test_exits_are_shown_without_their_definition() -> None:
    """Secrets stay masked."""
    made = codec(InvoiceError, result=Secret[str])
    failure, _ = made.encode_failure(InvoiceError("voided"), LIMIT)
    assert exit_to_json(made.encode_success(Secret("s"), LIMIT)) == {
        "kind": "success",
        "value": "***",
    }
    assert exit_to_json(failure) == {
        "kind": "failure",
        "type": "InvoiceError",
        "error": {"reason": "voided", "amount": 0},
    }
    assert exit_to_json(encode_defect("T", "m", "t")) == {
        "kind": "defect",
        "found": "raised",
        "type": "T",
        "message": "m",
        "traceback": "t",
    }


def test_declared_errors_are_an_exception_or_a_union_of_them() -> None:
    """In the order in which they stand."""
    assert check_error_types(None) == ()
    assert check_error_types(InvoiceError) == (InvoiceError,)
    assert check_error_types(InvoiceError | Plain | KeyError) == (InvoiceError, Plain, KeyError)


@attrs.define
class Unstorable(Exception):
    """A field with no plain form."""

    cause: object


def _twin() -> Any:
    return type("Plain", (Exception,), {})


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (5, "not an exception class"),
        (str, "str is not an exception class"),
        (InvoiceError("x"), "not an exception class"),
        (SystemExit, "derives from BaseException"),
        (ExceptionGroup, "attrs or dataclass exception"),
        (Swallows, "all arguments on to super"),
        (NeedsKeyword, "needs the keyword code"),
        (Unstorable, "$.cause"),
        (Plain | _twin(), "two of the types are called Plain"),
        (Plain | None, "NoneType is not an exception"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_at_definition(error: Any, reason: str) -> None:
    """With the fix in the message."""
    with pytest.raises(DefinitionError) as caught:
        check_error_types(error)
    assert reason in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
