"""The fenced blocks of a page, and how console sessions in them are read and compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))

_FENCE = re.compile(r"^```(?P<language>[\w-]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Block:
    """One fenced block.

    Args:
        language: the word behind the fence.
        text: what stands in it.
        line: number of its first line in the page.
    """

    language: str
    text: str
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
        Block(found["language"], found["text"], text.count("\n", 0, found.start()) + 2)
        for found in _FENCE.finditer(text)
    ]


def blocks_in(page: Path, language: str) -> list[Block]:
    """Return the blocks of one language."""
    return [block for block in blocks_of(page) if block.language == language]


def steps_of(text: str, prompt: str = "$ ") -> Iterator[Step]:
    """Yield commands with their output; a line that ends in a backslash goes on in the next."""
    command: str | None = None
    output: list[str] = []
    for line in text.splitlines():
        if command is not None and command.endswith("\\"):
            command = command[:-1] + line.strip()
        elif line.startswith(prompt):
            if command is not None:
                yield Step(command, "\n".join(output))
            command, output = line.removeprefix(prompt), []
        else:
            output.append(line)
    if command is not None:
        yield Step(command, "\n".join(output))
