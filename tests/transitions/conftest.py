"""Fixtures for tests of single transitions: a clock that stands still and a store on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Server

from mq.clock import FakeClock
from mq.store import Store


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves only when told."""
    return FakeClock()


@pytest.fixture
def store(server: Server, clock: FakeClock) -> Iterator[Store]:
    """An empty store on each back end."""
    opened = Store(server.url, clock=clock)
    yield opened
    opened.close()
