"""The page beside the scripts knows every fragment and every key, and its example is real."""

from __future__ import annotations

import re

from docs.blocks import ROOT, blocks_of

from mq.keys import Keys
from mq.scripts import script_folder

PAGE = ROOT / "lua" / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")


def first_cells(heading: str) -> list[str]:
    """Return the names in the first column of a section's table."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def test_every_fragment_is_on_the_page() -> None:
    """A reader finds what a script includes."""
    folder = script_folder() / "fragments"
    assert sorted(first_cells("Includes")) == sorted(file.stem for file in folder.glob("*.lua"))


def test_every_key_is_on_the_page() -> None:
    """As mq/keys.py has them, by what stands before the part a caller fills in."""
    made = [
        function(Keys(), *("" for _ in range(function.__code__.co_argcount - 1)))
        for name, function in vars(Keys).items()
        if callable(function) and not name.startswith("_") and name not in {"index", "finished"}
    ]
    kinds = {key.removeprefix(Keys().root).partition(":")[0] for key in made}
    told = {key.partition(":")[0] for key in first_cells("Keys")}
    assert told == kinds | {"index", "finished"}


def test_the_example_of_a_verb_is_the_script_of_that_verb() -> None:
    """Whoever copies it copies what runs."""
    (block,) = (one for one in blocks_of(PAGE) if one.language == "lua")
    assert block.text in (script_folder() / "promote.lua").read_text(encoding="utf-8")
