"""Values from enqueue through a worker to the result, bit for bit; and what cannot travel."""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import pytest
from worker.build import PROMPT_S, finished, outcomes, record, worker_of

import mq
from mq.store import Store


class Colour(enum.Enum):
    """Two of them."""

    RED = "red"
    BLUE = 2


@attrs.frozen
class Everything:
    """One field of each kind."""

    number: int
    big: mq.BigInt
    real: float
    text: str
    raw: bytes
    array: bytearray
    unique: UUID
    zoned: datetime
    day: date
    span: timedelta
    exact: Decimal
    colour: Colour
    some: set[int]
    nested: dict[str, list[tuple[int, str | None]]]
    maybe: int | None = None


VALUES = [
    Everything(
        number=number,
        big=mq.BigInt(big),
        real=real,
        text=text,
        raw=b"\x8b\x08\x00\xff",
        array=bytearray(b"\x00\x01"),
        unique=UUID(int=2**127 + 1),
        zoned=zoned,
        day=date(9999, 12, 31),
        span=timedelta(days=-1, microseconds=1),
        exact=Decimal("1.10"),
        colour=colour,
        some={1, 2, 3},
        nested={text: [(1, None), (number, text)], "": []},
    )
    for number, big, real, text, zoned, colour in [
        (2**53 + 1, 10**30, 0.1, "\x00 \u2028 \U0001f600 \u202e", datetime.now(UTC), Colour.RED),
        (
            2**63 - 1,
            2**64,
            1e308,
            "e\u0301 is not \u00e9",
            datetime(1, 1, 1, tzinfo=UTC),
            Colour.BLUE,
        ),
        (
            -(2**63),
            -(10**100),
            -0.0,
            "",
            datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=timezone(timedelta(hours=1))),
            Colour.RED,
        ),
        (
            130775545883395173,
            0,
            5e-324,
            "x" * 1_000,
            datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30))),
            Colour.BLUE,
        ),
    ]
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_comes_back_as_it_was(app: mq.App, store: Store, value: Everything) -> None:
    """Through a delay, a retry, the record, the handler and the result."""
    seen: list[Everything] = []

    @app.job("echo", attempts=2, backoff=mq.fixed("10ms"))
    def echo(payload: Everything, ctx: mq.Context) -> Everything:
        """Give it back, the second time."""
        seen.append(payload)
        if ctx.attempt == 1:
            raise ValueError("once more")
        return payload

    with worker_of(app):
        job_id = echo.enqueue(value, delay="20ms")
        result = echo.await_result(job_id, timeout=PROMPT_S)
    for back in (*seen, result):
        assert back == value
        assert struct.pack(">d", back.real) == struct.pack(">d", value.real)
        assert type(back.array) is bytearray
        assert back.zoned.utcoffset() == value.zoned.utcoffset()
        assert back.zoned.fold == value.zoned.fold
        assert str(back.exact) == str(value.exact)
        assert back.text.encode() == value.text.encode()
    assert outcomes(store, job_id) == ["retried", "completed"]
    assert echo.payload_codec.decode(record(store, job_id).payload or b"") == value


@attrs.frozen
class Odd(Exception):
    """A declared error with fields."""

    number: int
    text: str
    colours: list[Colour]


def circle() -> list[Any]:
    """A list that holds itself."""
    made: list[Any] = []
    made.append(made)
    return made


def deep() -> list[Any]:
    """A list in a list in a list."""
    made: list[Any] = []
    for _ in range(100_000):
        made = [made]
    return made


RESULTS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "NaN": (float, lambda: math.nan),
    "infinity": (float, lambda: math.inf),
    "nested -infinity": (dict[str, list[float]], lambda: {"a": [-math.inf]}),
    "NaN as a key": (dict[float, int], lambda: {math.nan: 1}),
    "Decimal NaN": (Decimal, lambda: Decimal("NaN")),
    "half a surrogate pair": (str, lambda: "\ud83d"),
    "2**64": (int, lambda: 2**64),
    "10**30 in a list": (list[int], lambda: [1, 10**30]),
    "another type": (int, lambda: "1"),
    "a bool for an int": (int, lambda: True),
    "nothing": (int, lambda: None),
    "something": (type(None), lambda: 1),
    "an object": (Any, object),
    "memoryview": (bytes, lambda: memoryview(b"x")),
    "bytes for text": (list[str], lambda: [b"x"]),
    "a circle": (Any, circle),
    "a hundred thousand levels": (Any, deep),
    "too many bytes": (str, lambda: "x" * 2**20),
}


@pytest.mark.parametrize("which", RESULTS)
def test_a_result_that_cannot_be_stored_is_one_failed_attempt(
    app: mq.App, store: Store, which: str
) -> None:
    """Never an unreadable job; the budget applies, and the worker goes on."""
    declared, make = RESULTS[which]

    def give(payload: None) -> Any:
        """Return it."""
        return make()

    job = app.define("give", payload=type(None), result=declared, attempts=2)
    job.handler(give)
    with worker_of(app, concurrency=1):
        job_id = job.enqueue(None)
        assert finished(store, job_id) == ["failed"]
    assert outcomes(store, job_id) == ["retried", "failed"]
    with pytest.raises(mq.JobFailedError, match="result of job 'give'"):
        job.await_result(job_id)
    status = job.poll(job_id)
    assert status is not None
    assert isinstance(status.exit, mq.Defect)
    assert status.exit.kind == "unencodable"


def test_an_error_comes_back_as_its_own_class(app: mq.App, store: Store) -> None:
    """With the fields of the one that was raised."""

    @app.job("refuse", error=Odd | ValueError)
    def refuse(which: str) -> None:
        """Raise one of the declared."""
        if which == "odd":
            raise Odd(2**63 - 1, "\u2028", [Colour.RED])
        raise ValueError(which, 1, b"x")

    with worker_of(app):
        odd, plain = refuse.enqueue("odd"), refuse.enqueue("plain")
        finished(store, odd, plain)
    with pytest.raises(Odd) as caught:
        refuse.await_result(odd)
    error = caught.value
    assert (error.number, error.text, error.colours) == (2**63 - 1, "\u2028", [Colour.RED])
    with pytest.raises(ValueError, match="plain") as other:
        refuse.await_result(plain)
    assert other.value.args == ("plain", 1, b"x")
