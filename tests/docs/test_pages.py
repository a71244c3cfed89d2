"""What holds for every page: blocks are run, links lead somewhere, nothing local is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs.blocks import DOCS, PAGES, ROOT, blocks_of, named
from docs.session import Session

PLAYED_HERE = (
    "docs/architecture.md",
    "docs/guides/cancellation-and-admin.md",
    "docs/guides/deduplication.md",
    "docs/guides/flows.md",
    "docs/guides/retention.md",
    "docs/guides/schedules.md",
)
"""Pages whose commands the test below runs."""
PLAYED = {"README.md", "docs/quickstart.md", "docs/redis-cli.md", *PLAYED_HERE}
"""Pages whose commands some test runs."""
TEMPLATES = {"CONTRIBUTING.md"}
"""Pages whose blocks are tried by a test of their own."""
SPOKEN = {"text", "python", "console", "redis", "lua"}

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

each_page = pytest.mark.parametrize("page", PAGES, ids=named)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that a page's headings get."""
    headings = _HEADING.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PLAYED_HERE)
def test_a_page_runs_as_it_stands(session: Session, page: str) -> None:
    """Its files are written, its commands run in order, and they print what it says."""
    session.play(ROOT / page)


@each_page
def test_every_block_is_run_by_some_test(page: Path) -> None:
    """A program has a file to be written to, and its page is one that is played."""
    blocks = blocks_of(page)
    assert {block.language for block in blocks} <= SPOKEN
    runnable = [block for block in blocks if block.language in {"python", "console", "redis"}]
    if named(page) in TEMPLATES or not runnable:
        return
    assert named(page) in PLAYED
    assert [block.line for block in runnable if block.language == "python" and not block.file] == []


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    """To a file of this repository and a heading in it; what is on the net is not followed."""
    broken = []
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in (link["target"] for link in _LINK.finditer(text)):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        found = file.exists() and file.is_relative_to(ROOT)
        if not found or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert broken == []


def test_every_decision_is_listed() -> None:
    """Numbered without gaps, and on the index."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    assert [page.name for page in pages if f"(decisions/{page.name})" not in index] == []


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("*.md")), ids=lambda p: p.name)
def test_a_decision_is_a_page_with_question_choice_and_what_was_left(page: Path) -> None:
    """At most one page, with its parts in order."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[:2] == ["Question", "Choice"]
    assert "Left" in headings
    assert len(text.splitlines()) <= 60
