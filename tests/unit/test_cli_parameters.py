"""Values on the command line: durations, pairs, queues, JSON."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
import pytest

from mq.cli.parameters import DURATION, PAIR, QUEUE, JSONError, read_json


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("2.5", 2.5), ("0", 0), ("1h30m", 5400), ("250ms", 0.25)]
)
def test_a_duration_is_text_with_units_or_plain_seconds(text: str, seconds: float) -> None:
    """As in Python, where a number is seconds."""
    assert DURATION.convert(text, None, None) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["-1", "-5s", "nan", "inf", "1e99", "", "soon", "5y", "200000w"])
def test_a_duration_that_cannot_be_is_refused_with_an_example(text: str) -> None:
    """The example is one for the command line."""
    with pytest.raises(
        click.BadParameter, match=r"write it such as 30s, 1h30m, or 2\.5 for seconds"
    ):
        DURATION.convert(text, None, None)


def test_a_pair_is_cut_at_its_first_equal_sign() -> None:
    """The value may hold more of them, or nothing."""
    assert PAIR.convert("a=b=c", None, None) == ("a", "b=c")
    assert PAIR.convert("a=", None, None) == ("a", "")
    for text in ("a", "=b", ""):
        with pytest.raises(click.BadParameter, match="write key=value"):
            PAIR.convert(text, None, None)


def test_a_queue_may_have_a_weight() -> None:
    """A name cannot hold a colon, so nothing is ambiguous."""
    assert QUEUE.convert("mail", None, None) == ("mail", None)
    assert QUEUE.convert("mail:3", None, None) == ("mail", 3)
    for text in ("mail:", "mail:x", "mail:-1", "mail:1.5", "a:b:c"):
        with pytest.raises(click.BadParameter, match="a weight is a whole number"):
            QUEUE.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON at column 1: expecting value"),
        ("{} {}", "not JSON at column 4: extra data"),
        ('{"a":\n1,}', "not JSON at line 2 column 3"),
        ("-Infinity", "-Infinity is no JSON value"),
        ('[{"a": 1, "b": 2, "a": 3}]', "the key 'a' stands twice"),
        (b"\xc3", "not UTF-8 at byte 1"),
        ("[" * 200_000, "not "),
        ("9" * 5000, "not usable: "),
    ],
)
def test_json_is_read_strictly(text: str | bytes, said: str) -> None:
    """What is wrong is said in one line, without the text, which may be secret."""
    with pytest.raises(JSONError, match=said) as caught:
        read_json(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "value"),
    [("null", None), (' [1, 2.5, "é"] ', [1, 2.5, "é"]), (b'{"a": {}}', {"a": {}})],
)
def test_json_values_come_as_they_are(text: str | bytes, value: Any) -> None:
    """Text or bytes."""
    assert read_json(text) == value
