"""Fixtures for tests of the pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.session import Session
from helpers import Processes
from servers import Server


@pytest.fixture
def session(one_server: Server, proc: Processes, tmp_path: Path) -> Session:
    """A folder in which a page is played, on an empty server."""
    folder = tmp_path / "page"
    folder.mkdir()
    return Session(one_server, proc, folder)
