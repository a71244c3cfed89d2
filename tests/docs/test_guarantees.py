"""Every promise names a test that exists, on this page and on every other."""

from __future__ import annotations

import ast
import re

import pytest
from docs.blocks import DOCS, ROOT

PAGE = (DOCS / "guarantees.md").read_text(encoding="utf-8")
SECTIONS = re.findall(r"^## \d+\. (.+)$", PAGE, re.MULTILINE)
NAMED = sorted(
    {
        found
        for page in DOCS.rglob("*.md")
        for found in re.findall(
            r"`(tests/[\w/]+\.py)::(test_\w+)`", page.read_text(encoding="utf-8")
        )
    }
)


def test_promises_are_numbered_without_gaps() -> None:
    """A promise can be cited by its number."""
    numbers = [int(number) for number in re.findall(r"^## (\d+)\. ", PAGE, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("promise", SECTIONS)
def test_a_promise_names_its_tests(promise: str) -> None:
    """A promise that nothing holds is a wish."""
    section = PAGE.partition(f". {promise}\n")[2].partition("\n## ")[0]
    assert re.search(r"^- `tests/[\w/]+\.py::test_\w+`$", section, re.MULTILINE)


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(path: str, name: str) -> None:
    """A test that was renamed takes its promise along."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_at_least_once_stands_first() -> None:
    """On this page, on the first page of the docs and in the readme."""
    assert "at least once" in PAGE.split("\n\n")[1]
    for page in (DOCS / "index.md", ROOT / "README.md"):
        assert "at least once" in page.read_text(encoding="utf-8").lower()
