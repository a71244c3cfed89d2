"""The quickstart does what it says, from its first file to its last output."""

from __future__ import annotations

from docs.blocks import DOCS
from docs.session import Session


def test_the_quickstart_runs_as_it_stands(session: Session) -> None:
    """Every file is written, every command is run, every output is what is printed."""
    session.play(DOCS / "quickstart.md")
