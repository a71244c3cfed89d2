"""Tables, times, and text that harms no terminal."""

from __future__ import annotations

import pytest

from mq.cli.output import Table, instant, iso, print_table, printable, rough


def test_a_piped_table_is_aligned_and_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """No frame, no colour, no trailing blanks; what looks like markup stays as it is."""
    long = "x" * 500
    print_table(
        ("name", "number"), [("[red]a", 1), (long, None), ("b\x1b[0m", 10)], right=["number"]
    )
    heading, first, second, third = capsys.readouterr().out.splitlines()
    assert heading == "name".ljust(500) + "  number"
    assert first == "[red]a".ljust(500) + "       1"
    assert second == long
    assert third == "b\\x1b[0m".ljust(500) + "      10"


def test_a_table_that_grows_keeps_its_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """One heading, and rows that come later stand below the first ones."""
    table = Table(("name", "number", "rest"), right=["number"])
    table.add([("a-long-name", 1000, "x"), ("two\nlines", 2, None)])
    table.add([("日本", 3, "x")])
    assert capsys.readouterr().out.splitlines() == [
        "name         number  rest",
        "a-long-name    1000  x",
        "two               2",
        "lines",
        "日本              3  x",
    ]


def test_control_characters_are_escaped() -> None:
    """Line ends and tabs are left, half a surrogate pair is not."""
    assert printable("plain é") == "plain é"
    assert printable("a\x1b\x9b\x00\rb\n\t") == "a\\x1b\\x9b\\x00\\rb\n\t"
    assert printable("\ud83d\u202e") == "\\ud83d\\u202e"


@pytest.mark.parametrize(
    ("away_ms", "told"),
    [
        (0, "now"),
        (-999, "now"),
        (3_500, "in 3s"),
        (-61_000, "1m1s ago"),
        (-3_725_000, "1h2m ago"),
        (90_061_000, "in 1d1h"),
    ],
)
def test_an_instant_is_told_with_its_distance(away_ms: int, told: str) -> None:
    """In UTC, to the millisecond; 0 is an instant like any other."""
    now = 1_700_000_000_000
    assert instant(now + away_ms, now) == f"{iso(now + away_ms)} ({told})"
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert instant(None) is None
    assert iso(10**18) == f"{10**18} ms"


def test_short_lengths_keep_their_milliseconds() -> None:
    """Runs often take a few."""
    assert [rough(ms) for ms in (0, 7, 999, 1_500)] == ["0s", "7ms", "999ms", "1s"]
