"""Reads JSON Lines as they arrive, however long the file is, with bounded memory.

What one read returns makes one batch: full blocks from a file, single lines from a program that
writes one at a time. So nothing waits for a batch to fill up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import attrs

from mq.cli.parameters import JSONError, read_json

BLOCK_BYTES = 64 * 1024
_BOM = b"\xef\xbb\xbf"


class Source(Protocol):
    """What is read: a file or a pipe, opened for bytes."""

    def read1(self, size: int = -1, /) -> bytes:
        """Return what one read gives, at most `size` bytes; nothing at the end."""
        ...


@attrs.frozen
class Line:
    """One line that is not empty.

    Args:
        number: counted from 1.
        value: the JSON value; None when there is a reason.
        reason: why the line is not usable.
    """

    number: int
    value: Any = None
    reason: str | None = None


@attrs.frozen
class Batch:
    """The lines that one read completed.

    Args:
        size: how many bytes were read.
        lines: may be none.
    """

    size: int
    lines: list[Line]


def read_batches(source: Source, max_line_bytes: int) -> Iterator[Batch]:
    """Yield the lines of a source, a batch for each read; a longer line is reported, not kept."""
    reader = _Lines(max_line_bytes)
    while block := source.read1(BLOCK_BYTES):
        yield Batch(len(block), reader.feed(block))
    yield Batch(0, reader.end())


class _Lines:
    """Cuts blocks into lines."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max = max_line_bytes
        self._number = 0
        self._rest = bytearray()
        self._skipping = False

    def feed(self, block: bytes) -> list[Line]:
        found = []
        *whole, rest = block.split(b"\n")
        for part in whole:
            self._keep(part)
            found += self._line()
        self._keep(rest)
        return found

    def end(self) -> list[Line]:
        return self._line() if self._rest or self._skipping else []

    def _keep(self, part: bytes) -> None:
        if len(self._rest) + len(part) > self._max:
            self._skipping = True
            self._rest.clear()
        elif not self._skipping:
            self._rest += part

    def _line(self) -> list[Line]:
        self._number += 1
        text, skipped = bytes(self._rest), self._skipping
        self._rest.clear()
        self._skipping = False
        if skipped:
            return [Line(self._number, reason=f"longer than {self._max} bytes")]
        if self._number == 1:
            text = text.removeprefix(_BOM)
        if not text.strip():
            return []
        try:
            return [Line(self._number, read_json(text))]
        except JSONError as error:
            return [Line(self._number, reason=str(error))]
