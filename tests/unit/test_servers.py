"""The servers that tests run against are what their names say, and empty."""

from __future__ import annotations

import os
import signal

import pytest
from servers import LOCALE_SUFFIX, Found, Missing, Server, ServerPool, complaint, discover


def test_every_server_is_empty_and_answers(server: Server) -> None:
    """A test starts with no keys and may leave some."""
    assert server.cli("DBSIZE") == 0
    assert server.cli("SET", "left", "behind") == b"OK"
    assert server.cli("GET", "left") == b"behind"
    assert server.cli("ZADD", "scores", "1", "one") == 1
    assert server.cli("HGETALL", "nothing") == []


def test_locale_server_disagrees_with_bytes(real_server: Server) -> None:
    """Lua's ``<`` follows the locale there, as it does nowhere else; that is why it is run."""
    by_bytes = real_server.cli("EVAL", "return tostring('B' < 'a')", "0") == b"true"
    assert by_bytes is not real_server.name.endswith(LOCALE_SUFFIX)


def test_name_tells_the_version(real_server: Server) -> None:
    """The test id is made of what the server says of itself."""
    info = real_server.cli("INFO", "server").decode()
    binary = real_server.backend.binary
    assert binary is not None
    assert f"{binary.kind}_version:{binary.version_text}" in info


def test_server_killed_by_a_test_is_started_again(server_pool: ServerPool) -> None:
    """One violent test does not take the server from the others."""
    preferred = discover().preferred
    if preferred is None:
        pytest.skip("no real server in this run")
    server = server_pool.get(preferred)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    server_pool.process_of(server).wait(10)
    again = server_pool.get(preferred)
    assert again.cli("PING") == b"PONG"


@pytest.mark.parametrize(
    ("environment", "required", "refused"),
    [
        ({"CI": "true"}, True, True),
        ({"CI": "true"}, False, False),
        ({}, True, False),
        ({"MQ_TEST_SERVERS": "redis-9.9"}, True, True),
    ],
)
def test_missing_server_fails_where_it_must_be(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], required: bool, refused: bool
) -> None:
    """CI and an explicit wish do not run without a server; a laptop does."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("MQ_TEST_SERVERS", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = Found((), (Missing("redis-9.9", "not installed", required),))
    assert (complaint(found) is not None) is refused
