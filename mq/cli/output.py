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

from mq.durations import format_ms

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIPED_WIDTH = 10_000  # columns; nothing is cut or wrapped for a program that reads along

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
    """Whether a stream, stdout by default, is a terminal."""
    return bool((stream or sys.stdout).isatty())


def console(*, err: bool = False) -> Console:
    """Return a rich console on stdout or stderr; it honours NO_COLOR."""
    from rich.console import Console  # late: commands that print JSON do without

    stream = sys.stderr if err else sys.stdout
    width = None if on_terminal(stream) else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


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
    """Print a table.

    Args:
        columns: headings; all empty for a table without.
        rows: cells; None is an empty one, numbers and text are shown as they are.
        right: headings of the columns that are aligned to the right.
        fold: headings of the columns that may take several lines on a narrow terminal.
    """
    from rich import box
    from rich.table import Table

    out = console()
    headed = any(columns)
    frame = box.SIMPLE_HEAD if on_terminal() and headed else None
    padding = (0, 1, 0, 0) if frame else (0, 2, 0, 0)
    table = Table(box=frame, show_header=headed, pad_edge=False, padding=padding)
    aligned, folded = set(right), set(fold)
    for at, heading in enumerate(columns):
        table.add_column(
            heading,
            justify="right" if heading in aligned else "left",
            overflow="fold",
            no_wrap=at < len(columns) - 1 and heading not in folded,
        )
    for row in rows:
        table.add_row(*map(_cell, row))
    with out.capture() as captured:
        out.print(table)
    # A frame comes with an empty line above and below.
    for line in captured.get().strip("\n").splitlines():
        if line.strip():
            click.echo(line.rstrip(), color=True)


def _cell(value: Any) -> Text:
    from rich.text import Text

    text = "" if value is None else printable(str(value))
    return Text(text, style=STYLES.get(text, ""))


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
    if at_ms is None:
        return None
    away_ms = at_ms - (time.time_ns() // 1_000_000 if now_ms is None else now_ms)
    if abs(away_ms) < 1_000:
        told = "now"
    else:
        length = rough(abs(away_ms))
        told = f"in {length}" if away_ms > 0 else f"{length} ago"
    return f"{iso(at_ms)} ({told})"


def rough(ms: int) -> str:
    """Return a duration with its two largest units at most."""
    for unit_ms, finest_ms in ((86_400_000, 3_600_000), (3_600_000, 60_000), (1_000, 1_000)):
        if ms >= unit_ms:
            return format_ms(ms - ms % finest_ms)
    return format_ms(ms)
