"""Fixtures that every test file may use: servers of each kind, and processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import Processes
from servers import Backend, Server, ServerPool, complaint, discover

from mq.clock import FakeClock
from mq.store import Store


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run in CI without a server that CI has to have."""
    problem = complaint(discover())
    if problem:
        raise pytest.UsageError(problem)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which servers the run uses and which it does without."""
    found = discover()
    lines = ["mq servers: " + ", ".join(one.described for one in found.backends)]
    if found.missing:
        told = ", ".join(f"{one.name} ({one.reason})" for one in found.missing)
        lines.append("mq servers missing: " + told)
    return lines


def _params(backends: tuple[Backend, ...]) -> list[object]:
    if not backends:
        nothing = pytest.mark.skip(reason="no such server in this run")
        return [pytest.param(None, id="none", marks=nothing)]
    return [pytest.param(one, id=one.name) for one in backends]


@pytest.fixture(scope="session")
def server_pool() -> Iterator[ServerPool]:
    """The real servers of the session, each started when a test first asks for it."""
    pool = ServerPool()
    yield pool
    pool.close()


@pytest.fixture(params=_params(discover().backends))
def server(request: pytest.FixtureRequest, server_pool: ServerPool) -> Server:
    """Every back end in turn, in memory too; empty."""
    return server_pool.get(request.param)


@pytest.fixture(params=_params(discover().real))
def real_server(request: pytest.FixtureRequest, server_pool: ServerPool) -> Server:
    """Every real server in turn; empty."""
    return server_pool.get(request.param)


@pytest.fixture
def one_server(server_pool: ServerPool) -> Server:
    """One real server, for tests in which the kind does not matter; empty."""
    preferred = discover().preferred
    if preferred is None:
        pytest.skip("no real server in this run")
    return server_pool.get(preferred)


@pytest.fixture
def proc(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes; those that a test leaves running are killed."""
    processes = Processes(tmp_path)
    yield processes
    processes.close()


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
