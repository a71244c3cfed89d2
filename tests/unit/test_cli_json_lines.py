"""Cutting a stream into lines, wherever its reads end."""

from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mq.cli.json_lines import BLOCK_BYTES, Line, read_batches


class Pieces:
    """A source whose reads give what a list says."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        """Give the next piece."""
        return next(self._pieces, b"")


def lines_of(*pieces: bytes, limit: int = 1000) -> list[Line]:
    """All lines of a source."""
    found = read_batches(Pieces(list(pieces)), limit)
    return [line for batch in found for line in batch.lines]


@given(
    st.lists(st.one_of(st.integers(), st.text(), st.none(), st.lists(st.integers()))),
    st.lists(st.integers(1, 7), min_size=1),
)
def test_lines_do_not_depend_on_where_reads_end(values: list[Any], sizes: list[int]) -> None:
    """Any cut of the bytes gives the same values with the same numbers."""
    text = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    pieces, at, turn = [], 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        pieces.append(text[at : at + size])
        at, turn = at + size, turn + 1
    expected = [Line(number, value) for number, value in enumerate(values, 1)]
    assert lines_of(*pieces, limit=100_000) == expected


def test_each_read_makes_a_batch_of_the_lines_it_completed() -> None:
    """A line that is complete is not kept until the next read."""
    batches = list(read_batches(Pieces([b"1\n2", b"3\n", b"4"]), 100))
    values = [[line.value for line in batch.lines] for batch in batches]
    assert values == [[1], [23], [], [4]]
    assert [batch.size for batch in batches] == [3, 2, 1, 0]


def test_empty_lines_count_and_are_left_out() -> None:
    """Numbers are those an editor shows."""
    assert lines_of(b"\n1\n \r\n2\r\n") == [Line(2, 1), Line(4, 2)]


def test_a_long_line_is_reported_and_what_follows_is_read() -> None:
    """However many reads it takes, also at the end of the file."""
    too_long = "longer than 5 bytes"
    assert lines_of(b"12345\n", limit=5) == [Line(1, 12345)]
    found = lines_of(b"1\n123", b"456", b"7" * 50, b"\n2\n", b"7777777", limit=5)
    assert found == [Line(1, 1), Line(2, reason=too_long), Line(3, 2), Line(4, reason=too_long)]


def test_reads_are_of_one_block() -> None:
    """Memory is bounded by a block and a line."""
    source = io.BufferedReader(io.BytesIO(b"1\n" * BLOCK_BYTES))  # type: ignore[arg-type]
    sizes = [batch.size for batch in read_batches(source, 100)]
    assert max(sizes) <= BLOCK_BYTES
    assert sum(sizes) == 2 * BLOCK_BYTES
