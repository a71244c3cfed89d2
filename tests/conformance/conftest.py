"""Fixtures for the behaviour of a store: the same story on every back end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from proxy import Proxy
from servers import Server

from mq.clock import FakeClock
from mq.store import Store


@pytest.fixture
def real_store(real_server: Server, clock: FakeClock) -> Iterator[Store]:
    """An empty store on each real server."""
    opened = Store(real_server.url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def proxy(real_server: Server) -> Iterator[Proxy]:
    """A proxy in front of each real server."""
    opened = Proxy(real_server.url.removeprefix("unix://"))
    yield opened
    opened.close()
