"""The typed edge: what is accepted comes back bit for bit, what is not is refused by path."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import pathlib
import typing
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.codec import BigInt, codec_for, pack_plain, to_json, unpack_plain
from mq.errors import DecodeError, PayloadError
from mq.secret import Secret

T = TypeVar("T")
UserId = NewType("UserId", int)


class Color(enum.Enum):
    """Members of two kinds."""

    RED = "red"
    BLUE = 2


class Rights(enum.Flag):
    """Members that combine."""

    READ = 1
    WRITE = 2


@attrs.frozen
class Line:
    """A line of an invoice."""

    amount: int
    price: float = 0.0


@dataclasses.dataclass
class Email:
    """A dataclass."""

    to: str
    body: bytes = b""


@attrs.frozen
class Invoice:
    """Fields of many kinds."""

    lines: list[Line]
    notes: dict[str, float] = attrs.field(factory=dict)
    source: Line | Email | None = None
    _private: str = "p"


@attrs.define
class Node:
    """A tree."""

    value: int
    children: list[Node] = attrs.field(factory=list)
    parent: Node | None = None


@attrs.frozen
class Page(Generic[T]):
    """A generic class."""

    items: list[T]


@attrs.frozen
class LinePage(Page[Line]):
    """A class whose base is generic."""

    number: int = 0


@attrs.frozen
class Late:
    """A field that `__init__` does not set."""

    value: int
    seen: int = attrs.field(init=False, default=0)


@attrs.frozen
class Awkward:
    """Field names that a code generator might take for its own."""

    cl: int
    converter: str
    cls: int = 0
    value: int = 0


class Options(TypedDict):
    """A typed dict."""

    a: int
    b: typing.NotRequired[str]


class Point(NamedTuple):
    """A named tuple."""

    x: int
    label: str = ""


def _with(instance: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        object.__setattr__(instance, name, value)
    return instance


NAIVE = datetime(2024, 10, 27, 2, 30, 1, 1)  # noqa: DTZ001 naive stays naive

ROUND_TRIPS: list[tuple[Any, list[Any]]] = [
    (None, [None]),
    (bool, [True, False]),
    (int, [0, 2**53 + 1, 2**63 - 1, 2**64 - 1, -(2**63), 130775545883395173]),
    (BigInt, [10**30, -(10**30), 2**64, 0]),
    (float, [0.1, 1e308, -0.0, 5e-324]),
    (str, ["", "\x00", "\u2028", "😀", "é", "e\u0301", "\u202eabc"]),
    (bytes, [b"", b"\x8b\x08"]),
    (bytearray, [bytearray(b"\x8b")]),
    (datetime, [
        NAIVE, datetime.max.replace(tzinfo=UTC), NAIVE.replace(fold=1),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30, microseconds=1))),
        datetime(2024, 1, 1, tzinfo=UTC, fold=1),
    ]),
    (date, [date.min, date.max]),
    (time, [time(1, 2, 3, 4), time(1, tzinfo=UTC), time(2, 30, fold=1)]),
    (timedelta, [timedelta.min, timedelta.max, timedelta(microseconds=-1), timedelta()]),
    (Decimal, [Decimal(text) for text in ("1", "1.00", "-0", "1E+1000", "0E-10")]),
    (uuid.UUID, [uuid.UUID(int=5)]),
    (Color, list(Color)),
    (Rights, [Rights.READ, Rights.READ | Rights.WRITE, Rights(0)]),
    (Literal["a", 1, None], ["a", 1, None]),
    (Literal[Color.RED, "x"], [Color.RED, "x"]),
    (UserId, [5]),
    (Annotated[int, "seconds"], [5]),
    (list[int], [[], [1, 2]]),
    (tuple[int, str], [(1, "a")]),
    (tuple[int, ...], [(), (1, 2)]),
    (tuple[()], [()]),
    (set[int], [set(), {3, 1, 2}]),
    (frozenset[str], [frozenset("abc")]),
    (set[tuple[int, str]], [{(1, "a"), (2, "b")}]),
    (dict[str, int], [{}, {"b": 1, "a": 2}, {"e\u0301": 1, "é": 2}]),
    (dict[int, str], [{5: "a", 2**64 - 1: "b"}]),
    (dict[float, int], [{1.5: 1}]),
    (dict[bool, int], [{True: 1, False: 0}]),
    (dict[bytes, int], [{b"\x00": 1}]),
    (dict[Color, int], [{Color.RED: 1, Color.BLUE: 2}]),
    (dict[uuid.UUID, Line], [{uuid.UUID(int=5): Line(1)}]),
    (dict[date, int], [{date(2024, 1, 1): 1}]),
    (dict[int | str, int], [{1: 1, "1": 2}]),
    (int | None, [None, 5]),
    (int | float, [1, 1.0]),
    (str | bytes | int | None, ["a", b"a", 1, None]),
    (Line | Email, [Line(1), Email("a")]),
    (Line | Email | str | None, [Line(1), Email("a"), "Line", None]),
    (list[Line | Email], [[Line(1), Email("a", b"\x00")]]),
    (Invoice, [Invoice([]), Invoice([Line(1, 0.1)], {"a": 1.5}, Email("x"), "q")]),
    (Node, [Node(1, [Node(2, [Node(3)])], Node(4))]),
    (Page[Line], [Page([Line(1)])]),
    (Page[int] | None, [Page([1]), None]),
    (LinePage, [LinePage([Line(1)], 2)]),
    (Late, [Late(1), _with(Late(1), seen=7)]),
    (Awkward, [Awkward(1, "c", 2, 3)]),
    (Options, [{"a": 1}, {"a": 1, "b": "x"}]),
    (Point, [Point(1), Point(2, "x")]),
    (Secret[str], [Secret("s")]),
    (Secret[Line] | None, [Secret(Line(1)), None]),
    (Any, [None, True, 1, 1.5, "x", b"\x00", [1, [None]], {"a": {1: b""}}]),
    (dict, [{"a": 1, 1: [2]}]),
    (list, [[1, "a"]]),
    (tuple, [(1, "a")]),
    (set, [{1, "a"}]),
    (pathlib.Path, [pathlib.Path("/tmp/x")]),
    (collections.deque[int], [collections.deque([1, 2])]),
]  # fmt: skip


def exact(value: Any) -> Any:
    """Return what tells two values apart that Python calls equal: types, signs, folds."""
    if isinstance(value, dict):
        return [(exact(key), exact(part)) for key, part in value.items()]
    if isinstance(value, Secret):
        return Secret, exact(value.reveal())
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(part) for part in value)
    return type(value), repr(value)


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        pytest.param(declared, value, id=f"{getattr(declared, '__name__', declared)}-{n}")
        for declared, values in ROUND_TRIPS
        for n, value in enumerate(values)
    ],
)
def test_what_is_accepted_comes_back_bit_for_bit(declared: Any, value: Any) -> None:
    """Equal, of the same type, with the same sign, fold, order and precision."""
    codec = codec_for(declared, "payload of x")
    back = codec.decode(codec.encode(value))
    assert back == value
    assert exact(back) == exact(value)


class Pandas(datetime):
    """A datetime that says more than a datetime can."""

    def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
        """Show less than there is."""
        return "2020-01-01T00:00:00"


class Broken(tzinfo):
    """A zone that raises."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """Raise."""
        raise RuntimeError("no zone today")


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)
TREE = Node(1)
TREE.children.append(TREE)

REFUSALS: list[tuple[Any, Any, str, str]] = [
    (int, 2**64, "$", "mq.BigInt"),
    (int, 10**30, "$", "mq.BigInt"),
    (int, -(2**63) - 1, "$", "mq.BigInt"),
    (int, True, "$", "expected int, got bool"),
    (int, "5", "$", "expected int, got str"),
    (int, 5.0, "$", "expected int, got float"),
    (int, Color.BLUE, "$", "declare the Enum"),
    (BigInt, True, "$", "got bool"),
    (BigInt, 10**5000, "$", "4300 digits"),
    (bool, 1, "$", "expected bool"),
    (float, math.nan, "$", "NaN"),
    (float, math.inf, "$", "infinite"),
    (float, -math.inf, "$", "infinite"),
    (float, 2**53 + 1, "$", "no float holds"),
    (float, 10**400, "$", "no float holds"),
    (str, 5, "$", "expected str, got int"),
    (str, "\ud83d", "$", "surrogate"),
    (str, b"x", "$", "expected str"),
    (bytes, memoryview(b"x"), "$", "bytes(value)"),
    (bytes, bytearray(b"x"), "$", "bytes(value)"),
    (Decimal, Decimal("NaN"), "$", "NaN"),
    (Decimal, Decimal("sNaN"), "$", "NaN"),
    (Decimal, Decimal("-Infinity"), "$", "infinite"),
    (Decimal, 5, "$", "expected Decimal"),
    (date, datetime(2020, 1, 1, tzinfo=UTC), "$", "expected date"),
    (datetime, Pandas(2020, 1, 2), "$", "cannot hold"),
    (datetime, datetime(2020, 1, 1, tzinfo=Broken()), "$", "no zone today"),
    (time, time(1, tzinfo=ZoneInfo("Europe/Paris")), "$", "fixed offset"),
    (Color, "red", "$", "expected Color"),
    (Literal["a", 1], True, "$", "not one of"),
    (Literal["a", 1], [], "$", "not one of"),
    (list[int], (1, 2), "$", "expected list[int], got tuple"),
    (list[int], [1, "2"], "$[1]", "expected int, got str"),
    (tuple[int, str], (1,), "$", "expected 2 items"),
    (tuple[int, str], (1, 2), "$[1]", "expected str"),
    (set[float], {1.5, math.inf}, "$[", "infinite"),
    (dict[str, int], {5: 1}, "$[5] (key)", "expected str, got int"),
    (dict[float, int], {math.nan: 1}, "$[nan] (key)", "NaN"),
    (dict[str, float], {"a": math.nan}, "$['a']", "NaN"),
    (Line, Email("x"), "$", "expected Line, got Email"),
    (Line | Email, 5, "$", "expected Line | Email"),
    (Line | str, 5, "$", "expected"),
    (Invoice, Invoice([Line("x")]), "$.lines[0].amount", "expected int"),  # type: ignore[arg-type]
    (Invoice, Invoice([Line(2**70)]), "$.lines[0].amount", "mq.BigInt"),
    (Invoice, Invoice([], {"a": math.inf}), "$.notes['a']", "infinite"),
    (Invoice, Invoice([], {}, Email("\udfff")), "$.source.to", "surrogate"),
    (LinePage, LinePage([5]), "$.items[0]", "expected Line"),  # type: ignore[list-item]
    (Node, TREE, "$.children[0].children[0]", "64 levels"),
    (Options, {}, "$.a", "missing"),
    (Options, {"a": 1, "c": 2}, "$.c", "no key of Options"),
    (Point, (1, "x"), "$", "expected Point"),
    (Secret[str], "bare", "$", "wrap it in mq.Secret"),
    (Secret[str], Secret(5), "$", "expected str"),
    (Secret[str], Secret("s", persist=False), "$", "persist=False"),
    (Any, (1,), "$", "declare its type"),
    (Any, {1}, "$", "declare its type"),
    (Any, [Line(1)], "$[0]", "declare its type"),
    (Any, {"a": [math.nan]}, "$['a'][0]", "NaN"),
    (Any, {"a": "\ud83d"}, "$['a']", "surrogate"),
    (Any, {1.5: 1}, "$", "key of type float"),
    (Any, {True: 1}, "$", "key of type bool"),
    (Any, memoryview(b""), "$", "declare its type"),
    (Any, Decimal(1), "$", "declare its type"),
    (Any, CIRCLE, "$[0][0]", "64 levels"),
    (dict, {"a": {2**64: 1}}, "$['a']", "mq.BigInt"),
]


@pytest.mark.parametrize(
    ("declared", "value", "path", "reason"),
    [pytest.param(*row, id=f"{n}-{row[3]}") for n, row in enumerate(REFUSALS)],
)
def test_what_cannot_come_back_is_refused_naming_the_field(
    declared: Any, value: Any, path: str, reason: str
) -> None:
    """In the caller's stack, on one line, with the definition's name in front."""
    with pytest.raises(PayloadError) as caught:
        codec_for(declared, "payload of x").encode(value)
    error = caught.value
    assert error.path.startswith(path)
    assert reason in error.reason
    assert str(error).startswith("payload of x $")
    assert len(str(error).splitlines()) == 1
    assert len(str(error)) < 500


def test_sixty_four_levels_are_the_limit() -> None:
    """The last that is accepted comes back; one more is refused."""
    value: Any = 1
    for _ in range(64):
        value = [value]
    codec = codec_for(Any, "payload of x")
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(PayloadError, match="64 levels"):
        codec.encode([value])


def test_a_payload_over_the_limit_is_refused_with_sizes_and_setting() -> None:
    """Exactly the limit is fine."""
    codec = codec_for(bytes, "payload of x")
    data = codec.encode(b"x" * 100, 102)
    assert len(data) == 102
    with pytest.raises(PayloadError, match=r"102 bytes, the limit is 101;.*max_payload_bytes"):
        codec.encode(b"x" * 100, 101)
    with pytest.raises(PayloadError, match="10000005 bytes"):
        codec.encode(b"x" * 10_000_000)


def test_a_subclass_of_text_or_number_comes_back_as_its_base() -> None:
    """The id that enqueue returned can be sent in another job's payload."""

    class JobId(str):
        __slots__ = ()

    codec = codec_for(dict[str, Any], "payload of x")
    back = codec.decode(codec.encode({JobId("a"): JobId("b")}))
    assert [(type(k), type(v)) for k, v in back.items()] == [(str, str)]


def test_an_integer_in_a_float_field_becomes_that_float() -> None:
    """Only when a float holds it exactly."""
    codec = codec_for(float, "payload of x")
    assert exact(codec.decode(codec.encode(3))) == exact(3.0)


def test_a_set_is_stored_in_one_order() -> None:
    """The bytes do not depend on the process's hash seed."""
    codec = codec_for(set[str], "payload of x")
    assert to_json(codec.encode({"b", "c", "a"})) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("data", "path", "reason"),
    [
        (b"", "$", "not msgpack"),
        (b"\xc1", "$", "not msgpack"),
        (b"\x93\x01", "$", "not msgpack"),
        (b"\x01\x02", "$", "not msgpack"),
        (b"\xa1\xff", "$", "not msgpack"),
        (b"\x91" * 5_000, "$", "not msgpack"),
        (pack_plain(5), "$", "expected Invoice, got int"),
        (pack_plain({}), "$.lines", "missing"),
        (pack_plain({"lines": [{"amount": "5"}]}), "$.lines[0].amount", "expected int, got str"),
        (pack_plain({"lines": [], "source": {"to": "x"}}), "$.source", "'_type', one of"),
        (pack_plain({"lines": [], "source": {"_type": "Zork"}}), "$.source", "'_type', one of"),
    ],
)
def test_bytes_that_no_longer_fit_are_a_decode_error(data: bytes, path: str, reason: str) -> None:
    """Nothing is coerced; the field is named."""
    with pytest.raises(DecodeError) as caught:
        codec_for(Invoice, "payload of x").decode(data)
    assert caught.value.path == path
    assert reason in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_fields_that_a_newer_release_stored_are_ignored_and_missing_ones_take_defaults() -> None:
    """A rolling deploy runs both releases at once."""
    codec = codec_for(Invoice, "payload of x")
    wire = {"lines": [{"amount": 1, "tax": 5}], "currency": "EUR"}
    assert codec.decode(pack_plain(wire)) == Invoice([Line(1)])


@attrs.frozen
class Positive:
    """A class with a check of its own."""

    value: int = attrs.field(validator=attrs.validators.gt(0))


JSON: list[tuple[Any, Any, Any]] = [
    (Invoice, {"lines": [{"amount": 5, "price": 1}]}, Invoice([Line(5, 1.0)])),
    (Invoice, {"lines": [], "source": {"_type": "Email", "to": "a", "body": "AAE="}},
     Invoice([], {}, Email("a", b"\x00\x01"))),
    (dict[int, bytes], {"5": "AAE="}, {5: b"\x00\x01"}),
    (dict[int | str, int], {"5": 1}, {"5": 1}),
    (dict[float, int], {"1.5": 1}, {1.5: 1}),
    (Decimal, 5, Decimal(5)),
    (Decimal, "5.00", Decimal("5.00")),
    (BigInt, 10**30, 10**30),
    (timedelta, "1h30m", timedelta(hours=1, minutes=30)),
    (timedelta, 1.5, timedelta(seconds=1.5)),
    (datetime, "2030-01-01T00:00:00Z", datetime(2030, 1, 1, tzinfo=UTC)),
    (Color, 2, Color.BLUE),
    (set[int], [1, 2], {1, 2}),
    (Secret[str], "s", Secret("s")),
    (bytes | str, "plain", "plain"),
    (Point, [1, "x"], Point(1, "x")),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "value", "expected"), JSON)
def test_json_is_read_as_the_declared_type(declared: Any, value: Any, expected: Any) -> None:
    """What people type on a command line, checked as strictly as what is stored."""
    codec = codec_for(declared, "payload of x")
    assert codec.from_json(value) == expected


@pytest.mark.parametrize(
    ("declared", "value", "path", "reason"),
    [
        (Invoice, {"lines": [{"amount": "5"}]}, "$.lines[0].amount", "expected int"),
        (Invoice, {"lines": [], "typo": 1}, "$.typo", "it has lines, notes"),
        (Invoice, {}, "$.lines", "missing"),
        (Invoice, [], "$", "expected Invoice"),
        (float, math.nan, "$", "NaN"),
        (int, 2**64, "$", "mq.BigInt"),
        (bytes, "%%", "$", "base64"),
        (Decimal, 1.5, "$", "as text"),
        (timedelta, "soon", "$", '"30s"'),
        (Color, "green", "$", "one of 'red', 2"),
        (Positive, {"value": 0}, "$", "must be > 0"),
    ],
)
def test_json_that_does_not_fit_is_refused_naming_the_field(
    declared: Any, value: Any, path: str, reason: str
) -> None:
    """Unknown fields too: they are typing mistakes."""
    with pytest.raises(PayloadError) as caught:
        codec_for(declared, "payload of x").from_json(value)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_stored_bytes_are_shown_without_their_class_and_without_secrets() -> None:
    """Bytes become base64, keys become text; nothing raises."""
    codec = codec_for(dict[int, Line | Email | Secret[str]], "payload of x")
    data = codec.encode({1: Email("a", b"\x00"), 2: Secret("hush")})
    assert codec.to_json(data) == {"1": {"_type": "Email", "to": "a", "body": "AA=="}, "2": "***"}
    assert to_json(b"\xc1") == {"undecodable": "wQ==", "bytes": 1}


def test_plain_values_are_packed_within_a_limit() -> None:
    """Progress of a job, say."""
    assert unpack_plain(pack_plain({"done": 1}, 100, "progress")) == {"done": 1}
    with pytest.raises(PayloadError, match=r"progress.*limit is 10"):
        pack_plain("x" * 20, 10, "progress")
    with pytest.raises(PayloadError, match=r"progress \$\[0\]: is NaN"):
        pack_plain([math.nan], 100, "progress")
    with pytest.raises(DecodeError, match="progress"):
        unpack_plain(b"\xc1", "progress")


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(PLAIN)
def test_any_plain_value_round_trips(value: Any) -> None:
    """Whatever Hypothesis thinks of."""
    codec = codec_for(Any, "payload of x")
    assert exact(codec.decode(codec.encode(value))) == exact(value)


@settings(max_examples=60, deadline=None)
@given(
    st.builds(
        Invoice,
        st.lists(st.builds(Line, st.integers(-(2**63), 2**64 - 1), st.floats(-1e9, 1e9))),
        st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False)),
        st.none() | st.builds(Email, st.text(), st.binary()),
    )
)
def test_any_invoice_round_trips(invoice: Invoice) -> None:
    """Nested classes, unions and floats."""
    codec = codec_for(Invoice, "payload of x")
    assert exact(codec.decode(codec.encode(invoice))) == exact(invoice)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(
        st.datetimes(timezones=st.none() | st.just(UTC)),
        st.timedeltas(),
        st.decimals(allow_nan=False, allow_infinity=False),
        st.uuids(),
        st.frozensets(st.dates()),
    )
)
def test_any_moment_and_amount_round_trips(value: Any) -> None:
    """Microseconds, offsets and exponents."""
    declared = tuple[datetime, timedelta, Decimal, uuid.UUID, frozenset[date]]
    codec = codec_for(declared, "payload of x")
    back = codec.decode(codec.encode(value))
    assert back == value
    assert repr(back[:3]) == repr(value[:3])
