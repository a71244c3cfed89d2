"""What commands print: tables for people, JSON for programs, and text that harms no terminal."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from mq.cli.fitting import kept, shared
from mq.durations import format_ms

if TYPE_CHECKING:
    from rich.console import Console

NARROW = 120  # columns; a terminal with less is shown less

STYLES = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "retried": "yellow",
    "stalled": "yellow",
    "active": "cyan",
    "yes": "green",
    "NO": "bold red",
}
"""Words that are coloured wherever they fill a cell."""


def tolerate_any_text() -> None:
    """Let stdout and stderr take any text: what the locale cannot show is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """Return text with every control character escaped, line ends and tabs excepted."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character in "\n\t"
        else character.encode("unicode_escape", "backslashreplace").decode()
        for character in text
    )


def on_terminal(stream: Any = None) -> bool:
    """Whether a stream, stdout by default, is a terminal; a closed one is none."""
    stream = stream or sys.stdout
    return stream is not None and bool(stream.isatty())


def console(*, err: bool = False) -> Console:
    """Return a rich console on a terminal, stdout or stderr; it honours NO_COLOR."""
    from rich.console import Console  # late: what prints into a pipe does without

    stream = sys.stderr if err else sys.stdout
    return Console(file=stream, highlight=False, markup=False, emoji=False)


def narrow(columns: int = NARROW) -> bool:
    """Whether a table of so many columns would not fit: on a terminal, never in a pipe."""
    return on_terminal() and console().width < columns


def print_json(value: Any) -> None:
    """Print one value as a line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False))


def compact(value: Any) -> str:
    """Return a value as JSON on one line, for a table."""
    return json.dumps(value, ensure_ascii=False)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Iterable[str] = (),
    fold: Iterable[str] = (),
) -> None:
    """Print a table; the arguments are those of `Table`, and its rows."""
    Table(columns, right=right, fold=fold).add(rows)


class Table:
    """A table that may grow while it is printed.

    Args:
        columns: headings; all empty for a table without.
        right: headings of the columns that are aligned to the right.
        fold: headings of the columns that may take several lines on a narrow terminal.
        whole: headings of the columns that are never cut, however narrow the terminal is.
        cut: headings of the columns that are cut on a narrow terminal.
        drop: headings of the columns that are left out on a narrow one, the first ones first. With
            any, every row is one line, unless a whole cell is wider than the terminal.
    """

    def __init__(
        self,
        columns: Sequence[str],
        *,
        right: Iterable[str] = (),
        fold: Iterable[str] = (),
        whole: Iterable[str] = (),
        cut: Iterable[str] = (),
        drop: Sequence[str] = (),
    ) -> None:
        self._columns = columns
        self._right, self._fold, self._whole = set(right), set(fold), set(whole)
        self._cut, self._drop = set(cut), drop
        self._kept: list[str] = []
        self._widths = [len(heading) for heading in columns]
        self._headed = any(columns)

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Print rows, below the headings the first time.

        Args:
            rows: cells; None is an empty one, numbers and text are shown as they are.
        """
        cells = [["" if value is None else printable(str(value)) for value in row] for row in rows]
        for at, width in enumerate(self._widths):
            # Rows that come later stand below the earlier ones.
            self._widths[at] = max([width, *(_width(row[at]) for row in cells)])
        text = self._framed(cells) if on_terminal() else self._plain(cells)
        self._headed = False
        lines = [line.rstrip() for line in text.splitlines()]
        shown = "\n".join(line for line in lines if line)
        if shown:
            click.echo(shown, color=True)

    def _plain(self, rows: Sequence[Sequence[str]]) -> str:
        """Return rows without frame and colour; rich would take a millisecond for each."""
        lines = []
        for row in [self._columns, *rows] if self._headed else rows:
            cells = [cell.split("\n") for cell in row]
            for level in range(max(map(len, cells))):
                parts = [cell[level] if level < len(cell) else "" for cell in cells]
                lines.append("  ".join(map(self._padded, range(len(parts)), parts)))
        return "\n".join(lines)

    def _padded(self, at: int, text: str) -> str:
        blanks = " " * (self._widths[at] - _width(text))
        return blanks + text if self._columns[at] in self._right else text + blanks

    def _framed(self, rows: Sequence[Sequence[str]]) -> str:
        from rich import box
        from rich import table as rich_table
        from rich.text import Text

        frame = box.SIMPLE_HEAD if any(self._columns) else None
        padding = (0, 1, 0, 0) if frame else (0, 2, 0, 0)
        table = rich_table.Table(
            box=frame, show_header=self._headed, pad_edge=False, padding=padding
        )
        out = console()
        fitted = self._fitted(out.width)
        for at, heading in enumerate(self._columns):
            if fitted and heading not in fitted:
                continue
            cut = heading in self._cut
            table.add_column(
                heading,
                justify="right" if heading in self._right else "left",
                overflow="ellipsis" if cut else "fold",
                no_wrap=cut
                if fitted
                else at < len(self._columns) - 1 and heading not in self._fold,
                width=fitted.get(heading),
                min_width=self._widths[at] if heading in self._whole and not fitted else None,
            )
        for row in rows:
            shown = [cell for at, cell in enumerate(row)
                     if not fitted or self._columns[at] in fitted]  # fmt: skip
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in shown))
        with out.capture() as captured:
            out.print(table)
        return captured.get()

    def _fitted(self, room: int) -> dict[str, int]:
        """Return the columns to show with their widths; none when it is rich that lays them out."""
        if not self._drop:
            return {}
        widths = dict(zip(self._columns, self._widths, strict=True))
        # Rows that come later have the columns of the earlier ones.
        self._kept = self._kept or kept(widths, self._cut, self._drop, room)
        return shared({one: widths[one] for one in self._kept}, self._cut, self._whole, room)


def _width(text: str) -> int:
    """Return how many columns a text takes, the longest of its lines."""
    if text.isascii() and "\n" not in text:
        return len(text)
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


def iso(at_ms: int | None) -> str | None:
    """Return an instant as ISO text in UTC, or None."""
    if at_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant(at_ms: int | None, now_ms: int | None = None) -> str | None:
    """Return an instant as ISO text and how far it is from now, or None."""
    return None if at_ms is None else f"{iso(at_ms)} ({distance(at_ms, now_ms)})"


def distance(at_ms: int, now_ms: int | None = None) -> str:
    """Return how far an instant is from now: `3s ago`, `in 2h`."""
    away_ms = at_ms - (time.time_ns() // 1_000_000 if now_ms is None else now_ms)
    if abs(away_ms) < 1_000:
        return "now"
    length = rough(abs(away_ms))
    return f"in {length}" if away_ms > 0 else f"{length} ago"


def rough(ms: int) -> str:
    """Return a duration with its two largest units at most."""
    for unit_ms, finest_ms in ((86_400_000, 3_600_000), (3_600_000, 60_000), (1_000, 1_000)):
        if ms >= unit_ms:
            return format_ms(ms - ms % finest_ms)
    return format_ms(ms)
