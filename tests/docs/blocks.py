"""The fenced blocks of a page: what stands in them, and which file or command each one is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.rglob("*.md")),
)

_FENCE = re.compile(
    r"(?:`(?P<file>[\w/]+\.\w+)`[^`\n]*:\n\n)?^```(?P<language>[\w-]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@attrs.frozen
class Block:
    """One fenced block.

    Args:
        language: the word behind the fence.
        text: what stands in it.
        file: the file it is, when the line above names one.
        line: number of its first line in the page.
    """

    language: str
    text: str
    file: str | None
    line: int


@attrs.frozen
class Step:
    """A command of a console block, and the output that stands below it."""

    command: str
    output: str


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            found["language"],
            found["text"],
            found["file"],
            text.count("\n", 0, found.start("text")) + 1,
        )
        for found in _FENCE.finditer(text)
    ]


def named(page: Path) -> str:
    """Return a page's path inside the repository."""
    return str(page.relative_to(ROOT))


def steps_of(text: str) -> Iterator[Step]:
    """Yield the commands of a console block, each with the output below it."""
    command: str | None = None
    output: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield Step(command, "\n".join(output))
            command, output = line.removeprefix("$ "), []
        else:
            output.append(line)
    if command is not None:
        yield Step(command, "\n".join(output))
