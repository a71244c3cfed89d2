"""Types that cannot be stored are refused when a job is defined, naming the field."""

import collections.abc
import dataclasses
import enum
import re
import threading
from collections.abc import Callable
from datetime import date, datetime
from typing import Any, Generic, Literal, TypeVar

import attrs
import pytest

from mq.codec import BigInt, codec_for
from mq.errors import DefinitionError
from mq.secret import Secret

T = TypeVar("T")


class Plain:
    """Nobody knows what it holds."""


@attrs.frozen
class Holder:
    """Holds it deep down."""

    rows: list[dict[str, Plain | None]]


@attrs.frozen
class Locked:
    """Holds a lock."""

    lock: type(threading.Lock())  # type: ignore[valid-type]


@attrs.frozen
class Lost:
    """An annotation that nothing resolves."""

    field: "Nowhere"  # type: ignore[name-defined]  # noqa: F821 the point


@attrs.frozen
class Clash:
    """A field that unions need."""

    _type: str = ""


@attrs.frozen
class Other:
    """Something else."""

    value: int = 0


@dataclasses.dataclass
class Initial:
    """An argument that is not kept."""

    value: int
    seed: dataclasses.InitVar[int]


@attrs.define
class Base:
    """Decorated."""

    value: int


class Undecorated(Base):
    """Sets more than its fields."""

    def __init__(self, value: int, more: int) -> None:
        super().__init__(value)
        self.more = more


class Odd(enum.Enum):
    """A value that has no plain form."""

    A = (1, 2)


@attrs.frozen
class Grows(Generic[T]):
    """Another type at every level."""

    inner: "Grows[list[T]] | None" = None


def _twin() -> type:
    return attrs.make_class("Other", {"name": attrs.field(type=str)})


REFUSED: list[tuple[Any, str, str]] = [
    (Plain, "$", "Plain cannot be stored; make it an attrs class"),
    (Holder, "$.rows[][]", "Plain"),
    (Locked, "$.lock", "lock"),
    (Lost, "$", "cannot resolve the annotations of Lost"),
    (list[Lost], "$[]", "cannot resolve"),
    (Callable[[int], int], "$", "Callable"),
    (memoryview, "$", "memoryview"),
    (object, "$", "object"),
    (complex, "$", "complex"),
    (type[int], "$", "type"),
    (re.Pattern[str], "$", "Pattern"),
    (collections.abc.Iterator[int], "$", "Iterator"),
    ("Invoice", "$", "not resolved"),
    (dict[tuple[int, int], str], "$ (key)", "list of pairs"),
    (dict[Other, int], "$ (key)", "list of pairs"),
    (set[list[int]], "$", "not hashable"),
    (Odd, "$", "Odd has a member"),
    (Literal[1, b"x", Odd.A], "$", "not plain"),
    (Initial, "$", "cannot be rebuilt"),
    (Undecorated, "$", "decorate it"),
    (Secret[Plain], "$", "Plain"),
    (Grows[int], "$", "refers to itself without end"),
    (str | datetime, "$", "str and datetime are both stored as str"),
    (date | datetime, "$", "both stored as str"),
    (list[int] | tuple[int, ...], "$", "both stored as list"),
    (dict[str, int] | Other, "$", "both stored as dict"),
    (bytes | bytearray, "$", "both stored as bytes"),
    (str | BigInt, "$", "both stored as str"),
    (Any | int, "$", "both stored as int"),
    (Clash | Other, "$", "_type"),
    (Other | _twin(), "$", "two arms of the union are called Other"),
]


@pytest.mark.parametrize(
    ("declared", "path", "reason"),
    [pytest.param(*row, id=f"{n}-{row[2]}") for n, row in enumerate(REFUSED)],
)
def test_a_type_that_cannot_be_stored_is_refused_at_once(
    declared: Any, path: str, reason: str
) -> None:
    """Before any job exists, on one line, with the definition's name in front."""
    with pytest.raises(DefinitionError) as caught:
        codec_for(declared, "payload of x")
    message = str(caught.value)
    assert message.startswith(f"payload of x {path}: ")
    assert reason in message
    assert len(message.splitlines()) == 1


def test_classes_defined_inside_functions_work_when_their_annotations_are_types() -> None:
    """As in most tests and notebooks."""

    @attrs.frozen
    class Inner:
        value: int

    @attrs.frozen
    class Outer:
        inner: list[Inner]

    codec = codec_for(Outer, "payload of x")
    assert codec.decode(codec.encode(Outer([Inner(1)]))) == Outer([Inner(1)])
