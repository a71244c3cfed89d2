"""Addresses, settings, and what failures of a server mean."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from redis import exceptions as failures
from servers import Server

from mq.connection import DEFAULT_URL, endpoint_of, is_noscript, retryable, store_error
from mq.errors import StoreError
from mq.store import Store


@pytest.mark.parametrize(
    ("target", "settings", "label"),
    [
        (None, {}, "localhost:6379/0"),
        ("redis://h", {}, "h:6379/0"),
        ("redis://h:7000/3", {}, "h:7000/3"),
        ("redis://h:7000/3", {"db": 5}, "h:7000/5"),
        ("redis://user:s3cret@h:1/0", {}, "h:1/0"),
        ("rediss://h:6380/0?ssl_cert_reqs=none", {}, "h:6380/0"),
        ("redis://[::1]:6379/0", {}, "::1:6379/0"),
        ("unix:///run/redis.sock", {}, "unix:///run/redis.sock"),
        ("unix://user:s3cret@/run/redis.sock?db=2", {}, "unix:///run/redis.sock"),
        ("memory://name", {}, "memory://name"),
    ],
)
def test_the_label_of_an_address_has_no_secret(
    target: str | None, settings: dict[str, Any], label: str
) -> None:
    """It stands in messages and logs."""
    endpoint = endpoint_of(target, **settings)
    assert endpoint.label == label
    assert "s3cret" not in repr(endpoint)


def test_without_an_address_the_local_server_is_meant() -> None:
    """The same as the documented default."""
    assert endpoint_of(None).label == endpoint_of(DEFAULT_URL).label


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "no scheme"),
        ("localhost:6379", "no scheme"),
        ("http://h:6379", "scheme 'http'"),
        ("redis:/h", "no scheme"),
        ("redis://", "no host"),
        ("redis://:6379/0", "no host"),
        ("redis://h:0/0", "port 0"),
        ("redis://h:99999/0", "does not parse"),
        ("redis://h:port/0", "does not parse"),
        ("redis://h:6379/first", "database 'first'"),
        ("redis://h:6379/-1", "database '-1'"),
        ("redis://h/0?no_such_option=1", "option 'no_such_option' is not known"),
        ("redis://h/0?socket_timeout=soon", "does not parse"),
        ("unix://", "names no socket"),
        ("redis://[::1/0", "does not parse"),
    ],
)
def test_an_address_that_cannot_work_is_refused_with_the_reason(url: str, says: str) -> None:
    """In one line, when the store is made, before anything is sent."""
    with pytest.raises(StoreError, match=says) as caught:
        Store(url)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reserved", "#@:/%[]?&+ ")
@pytest.mark.parametrize("template", ["redis://:{}@h:6379/0", "redis://user:{}@h/0", "{}"])
def test_a_raw_password_works_or_is_refused_without_being_printed(
    reserved: str, template: str
) -> None:
    """Whatever reserved character stands in it."""
    password = f"s3cr{reserved}3tpart"
    try:
        endpoint = endpoint_of(template.format(password))
    except StoreError as error:
        causes = [error, error.__cause__, None if error.__suppress_context__ else error.__context__]
        shown = " ".join(str(cause) for cause in causes)
        assert "s3cr" not in shown
        assert "3tpart" not in shown
    else:
        assert endpoint.settings["password"] == password
        assert "s3cr" not in endpoint.label


@pytest.mark.parametrize(
    "settings", [{"no_such": 1}, {"ssl_no_such": 1}, {"ssl_certfile": "/x"}], ids=str
)
def test_a_setting_that_cannot_work_is_refused_by_its_name(settings: dict[str, Any]) -> None:
    """A TLS option needs rediss://, an unknown one is a misspelling."""
    with pytest.raises(StoreError, match=next(iter(settings))):
        Store("redis://h:6379/0", **settings)


def test_clients_that_cannot_be_copied_are_refused_by_kind() -> None:
    """The message says what to give instead."""
    client = redis.asyncio.Redis()
    with pytest.raises(TypeError, match=r"asyncio.*Redis is not a client a store can use: give"):
        Store(client)  # type: ignore[arg-type]
    asyncio.run(client.aclose())
    with pytest.raises(TypeError, match="int is not a client"):
        Store(5)  # type: ignore[arg-type]


def test_settings_beside_a_client_are_refused() -> None:
    """They belong to the client."""
    client = redis.Redis()
    with pytest.raises(TypeError, match="give password to the client"):
        Store(client, password="x")
    client.close()


def test_the_client_is_the_stores_own_whatever_was_given() -> None:
    """Bytes stay bytes, nothing is repeated silently, idle sockets are looked after."""
    given = redis.Redis(host="h", port=7, decode_responses=True, protocol=3, socket_timeout=None)
    settings = endpoint_of(given).settings
    assert (settings["host"], settings["port"], settings["protocol"]) == ("h", 7, 3)
    assert settings["decode_responses"] is False
    assert settings["retry"].get_retries() == 0
    assert settings["socket_timeout"] == 5
    assert settings["health_check_interval"] > 0
    given.close()


def test_a_blocking_client_waits_longer_than_its_longest_read() -> None:
    """Whatever the socket's time-out was."""
    endpoint = endpoint_of("redis://h/0?socket_timeout=1")
    assert endpoint.settings["socket_timeout"] == 1
    client = endpoint.client(longest_block_ms=7_000)
    assert client.connection_pool.connection_kwargs["socket_timeout"] == 12
    client.close()


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (failures.ConnectionError("x"), True),
        (failures.TimeoutError("x"), True),
        (failures.BusyLoadingError("x"), True),
        (failures.ReadOnlyError("x"), True),
        (failures.ResponseError("Error running script: -READONLY You can't write"), True),
        (failures.ResponseError("BUSY Redis is busy running a script"), True),
        (failures.ResponseError("UNBLOCKED force unblock"), True),
        (failures.ClusterDownError("x"), True),
        (failures.MasterDownError("x"), True),
        (failures.TryAgainError("x"), True),
        (failures.AuthenticationError("x"), False),
        (failures.AuthenticationWrongNumberOfArgsError("x"), False),
        (failures.NoPermissionError("x"), False),
        (failures.OutOfMemoryError("x"), False),
        (failures.ResponseError("WRONGTYPE x"), False),
        (failures.ResponseError("MQSCHEMA 2 found"), False),
        (failures.MaxConnectionsError("x"), False),
        (ValueError("x"), False),
    ],
    ids=lambda value: f"{type(value).__name__}-{value}"[:40],
)
def test_only_what_may_pass_is_tried_again(error: Exception, again: bool) -> None:
    """A refusal is told at once."""
    assert retryable(error) is again


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (failures.AuthenticationError("WRONGPASS bad"), "refused the user or password"),
        (failures.ResponseError("NOAUTH Authentication required."), "refused the user or password"),
        (failures.NoPermissionError("NOPERM no evalsha"), "denies a right .* no evalsha"),
        (failures.ReadOnlyError("READONLY x"), "read-only replica: give the address"),
        (failures.OutOfMemoryError("OOM x"), "out of memory .*: nothing was written"),
        (failures.ResponseError("call to f_1: -OOM command not allowed"), "out of memory"),
        (failures.ResponseError("MQSCHEMA 7 found, this mq speaks 1"), "keyspace version 7 found"),
        (failures.ResponseError("MQSEQ used up"), "go on under a new prefix"),
        (failures.TimeoutError("Timeout reading from socket"), "did not answer in time"),
        (
            failures.ConnectionError("Error 111 connecting to h:1. Connection refused."),
            "cannot reach Redis at h:1/0: Connection refused; check",
        ),
        (failures.ResponseError("something else\nentirely"), "answered: something else entirely"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_failure_says_which_server_and_what_to_do(error: Exception, says: str) -> None:
    """In one line."""
    found = store_error(error, "h:1/0")
    assert "h:1/0" in str(found) or "MQSCHEMA" in str(error)
    assert "\n" not in str(found)
    with pytest.raises(StoreError, match=says):
        raise found


def test_a_script_that_is_not_there_is_recognised() -> None:
    """As redis-py's own error, and as plain text."""
    assert is_noscript(failures.NoScriptError("x"))
    assert is_noscript(failures.ResponseError("NOSCRIPT No matching script."))
    assert not is_noscript(failures.ResponseError("ERR x"))
    assert not is_noscript([b"ok"])


@pytest.mark.parametrize(("version", "fine"), [("6.0.16", False), ("6.2.0", True), ("7.4", True)])
def test_a_server_that_is_too_old_is_refused_with_its_version(
    one_server: Server, monkeypatch: pytest.MonkeyPatch, version: str, fine: bool
) -> None:
    """Before the first script is sent to it."""
    store = Store(one_server.url)
    caller = store._caller
    monkeypatch.setattr(caller, "_hello", lambda: {"version": version.encode()})
    if fine:
        store.check()
    else:
        with pytest.raises(StoreError, match=r"is 6\.0: mq needs 6\.2 or later"):
            store.check()
    store.close()


def test_a_server_that_knows_no_hello_is_too_old(
    one_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis 5 and older."""

    def hello() -> dict[str, Any]:
        raise failures.ResponseError("unknown command `HELLO`, with args beginning with: ")

    store = Store(one_server.url)
    monkeypatch.setattr(store._caller, "_hello", hello)
    with pytest.raises(StoreError, match=r"mq needs 6\.2 or later"):
        store.check()
    store.close()


def test_memory_servers_are_told_apart_by_name() -> None:
    """The same name is the same server in this process; no name is a new one."""
    one, two, other = Store("memory://shared-x"), Store("memory://shared-x"), Store("memory://")
    one.rearm("{mq}:wake:q:n")
    assert two.wait(["q"], ["n"], 1) is True
    one.rearm("{mq}:wake:q:n")
    assert other.wait(["q"], ["n"], 1) is False
    for store in (one, two, other):
        assert store.in_process
        store.close()
