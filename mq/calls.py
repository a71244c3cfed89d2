"""Calls a script by its SHA and outlives what can happen on the way.

The client repeats nothing by itself: a script whose reply was lost has run. This module repeats
whole operations instead, within a limit of time, and every operation of a store is built so that
a repeat is recognised. NOSCRIPT is a normal answer (restart, SCRIPT FLUSH, failover): nothing
ran, so the text is loaded with SCRIPT LOAD, never EVAL, and the call is made again; in a pipeline
only the calls that failed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from mq import scripts
from mq.connection import (
    OLDEST_SERVER,
    REDIS_FAILURES,
    Endpoint,
    is_noscript,
    not_permitted,
    retryable,
    store_error,
)
from mq.errors import StoreError
from mq.wire import Argument

T = TypeVar("T")
Call = tuple[str, Sequence[Argument]]

_PROBES: tuple[tuple[str, ...], ...] = (
    ("TIME",),
    ("GET", "KEY"),
    ("MGET", "KEY"),
    ("EXISTS", "KEY"),
    ("HGET", "KEY", "field"),
    ("HMGET", "KEY", "field"),
    ("HGETALL", "KEY"),
    ("HKEYS", "KEY"),
    ("ZRANGE", "KEY", "0", "0"),
    ("ZCARD", "KEY"),
    ("ZCOUNT", "KEY", "0", "0"),
)
"""Commands of the scripts that change nothing; a read-only replica takes them too."""

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0


@attrs.frozen
class ServerInfo:
    """What a server says of itself; empty text for what this user may not ask.

    Args:
        kind: Redis or Valkey.
        version: its own version, such as 7.2.5.
        mode: standalone, cluster or sentinel.
        role: master or replica.
    """

    kind: str
    version: str
    mode: str
    role: str


class ScriptCaller:
    """Runs scripts of one store on one server.

    Args:
        endpoint: the server.
        meta_key: KEYS[1] of every script.
        retry_for_ms: how long a failed operation is repeated before StoreError is raised; 0 for
            once.
    """

    def __init__(self, endpoint: Endpoint, meta_key: str, retry_for_ms: int) -> None:
        self.endpoint = endpoint
        self.client = endpoint.client()
        self._meta_key = meta_key
        self._retry_for_s = retry_for_ms / 1000
        self._scripts = scripts.load_scripts()
        self._checked = endpoint.in_process

    def call(self, name: str, *args: Argument) -> list[Any]:
        """Run one script and return its reply."""
        return self.repeat(lambda _: self._call_once(name, args))

    def call_told(
        self, name: str, before: Sequence[Argument], after: Sequence[Argument]
    ) -> list[Any]:
        """Run one script that is told, between these arguments, whether it is a repetition."""
        return self.repeat(lambda repeated: self._call_once(name, (*before, int(repeated), *after)))

    def call_all(self, calls: Callable[[bool], Sequence[Call]]) -> list[list[Any]]:
        """Run several scripts in one round trip and return their replies in order.

        Args:
            calls: gives the calls; told whether this is a repetition, which some calls must say.
        """
        return self.repeat(lambda repeated: self._pipeline(calls(repeated)))

    def repeat(self, operation: Callable[[bool], T]) -> T:
        """Run an operation, again after failures that may pass, within the time limit.

        Raises:
            StoreError: the failure will not pass, or did not in time.
        """
        give_up_at = time.monotonic() + self._retry_for_s
        pause_s = _FIRST_PAUSE_S
        repeated = False
        while True:
            try:
                if not self._checked:
                    self.check_server()
                return operation(repeated)
            except REDIS_FAILURES as error:
                left_s = give_up_at - time.monotonic()
                if not retryable(error) or left_s <= 0:
                    raise store_error(error, self.endpoint.label) from error
                # A replica that answered READONLY, or a half-open socket, must not be asked again.
                self.client.connection_pool.disconnect(inuse_connections=False)
                time.sleep(min(pause_s * random.uniform(0.5, 1), left_s))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                repeated = True

    def check_server(self) -> None:
        """Check once that the server can do the work and its keyspace is one this release speaks.

        Raises:
            StoreError: the server is older than 6.2, or another mq wrote the keyspace.
        """
        # fakeredis gives its own version, and is as new as this release needs.
        version = None if self.endpoint.in_process else self._server_version()
        if version is not None and version < OLDEST_SERVER:
            found = ".".join(map(str, version))
            raise StoreError(
                f"Redis at {self.endpoint.label} is {found}: mq needs 6.2 or later (or Valkey)"
            )
        self._check_rights()
        self._call_once("counts", ("",))
        self._checked = True

    def _check_rights(self) -> None:
        """Name the first right that scripts need and this user lacks.

        A right missing inside a script is told without its name, so each is tried by itself, with
        calls that change nothing.
        """
        nowhere = f"{self._meta_key}:rights"
        pipe = self.client.pipeline(transaction=False)
        for command in _PROBES:
            pipe.execute_command(*(nowhere if part == "KEY" else part for part in command))
        for command, reply in zip(_PROBES, pipe.execute(raise_on_error=False), strict=True):
            if isinstance(reply, Exception):
                if not not_permitted(reply):
                    raise reply
                raise StoreError(
                    f"Redis at {self.endpoint.label} denies {command[0]} to this user: {reply};"
                    f" grant it with ACL SETUSER <user> +{command[0].lower()} (see SECURITY.md)"
                )

    def server_info(self) -> ServerInfo:
        """Ask the server what it is; HELLO or INFO alone will do where one is not permitted."""
        told = _if_permitted(self._hello)
        hello = {
            key: value.decode(errors="replace")
            for key, value in told.items()
            if isinstance(value, bytes)
        }
        info = _if_permitted(lambda: self.client.info("server"))
        # To clients of Redis, Valkey's HELLO gives the version of the Redis it is compatible with.
        valkey = str(info.get("valkey_version", ""))
        version = valkey or str(info.get("redis_version", "")) or hello.get("version", "")
        kind = "Valkey" if valkey or hello.get("server") == "valkey" else "Redis"
        return ServerInfo(kind, version, hello.get("mode", ""), hello.get("role", ""))

    def _hello(self) -> dict[str, Any]:
        hello = self.client.execute_command("HELLO")
        pairs = (
            hello.items() if isinstance(hello, dict) else zip(hello[::2], hello[1::2], strict=True)
        )
        return {bytes(key).decode(): value for key, value in pairs}

    def _server_version(self) -> tuple[int, ...] | None:
        try:
            hello = self._hello()
        except REDIS_FAILURES as error:
            if "unknown command" in str(error).lower():
                return (5, 0)
            if retryable(error) or not not_permitted(error):
                raise
            return None
        parts = bytes(hello.get("version", b"")).decode(errors="replace").split(".")[:2]
        return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else None

    def _evalsha(self, name: str, args: Sequence[Argument]) -> tuple[Argument, ...]:
        # Texts only: hiredis 3.5 crashes the process when a signal handler raises (Ctrl-C) while it
        # turns a number into text.
        texts = (str(one) if isinstance(one, int) else one for one in args)
        return ("EVALSHA", self._scripts[name].sha, "1", self._meta_key, *texts)

    def _load(self, name: str) -> None:
        self.client.execute_command("SCRIPT LOAD", self._scripts[name].text)

    def _call_once(self, name: str, args: Sequence[Argument]) -> list[Any]:
        command = self._evalsha(name, args)
        try:
            reply = self.client.execute_command(*command)
        except REDIS_FAILURES as error:
            if not is_noscript(error):
                raise
            self._load(name)
            reply = self.client.execute_command(*command)
        return list(reply)

    def _pipeline(self, calls: Sequence[Call]) -> list[list[Any]]:
        replies: list[Any] = self._send(calls)
        lost = [at for at, reply in enumerate(replies) if is_noscript(reply)]
        if lost:
            for name in {calls[at][0] for at in lost}:
                self._load(name)
            for at, reply in zip(lost, self._send([calls[at] for at in lost]), strict=True):
                replies[at] = reply
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _send(self, calls: Sequence[Call]) -> list[Any]:
        pipe = self.client.pipeline(transaction=False)
        for name, args in calls:
            pipe.execute_command(*self._evalsha(name, args))
        return list(pipe.execute(raise_on_error=False))


def _if_permitted(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return ask()
    except REDIS_FAILURES as error:
        if not not_permitted(error):
            raise
        return {}


class Waiter:
    """Blocks on sorted sets, on a connection of its own.

    Args:
        endpoint: the server.
        longest_block_ms: the longest wait it will be asked for.
    """

    def __init__(self, endpoint: Endpoint, longest_block_ms: int) -> None:
        self.longest_block_ms = longest_block_ms
        self._endpoint = endpoint
        self._client = endpoint.client(longest_block_ms=longest_block_ms)

    def wait(self, keys: Sequence[str], timeout_ms: int) -> tuple[str, str] | None:
        """Pop the first member of the first key that has one; (key, member), or None in time.

        Raises:
            StoreError: the connection failed; the caller looks for work by itself and comes back.
        """
        try:
            # 0 is for ever, and so is 0.001 to Redis 6.2, which cuts it down to 0.
            seconds = f"{max(timeout_ms, 2) / 1000:.3f}"
            popped = self._client.execute_command("BZPOPMIN", *keys, seconds)
        except REDIS_FAILURES as error:
            self.close()
            raise store_error(error, self._endpoint.label) from error
        return None if popped is None else (popped[0].decode(), popped[1].decode())

    def close(self) -> None:
        """Close the connection; the next wait opens another."""
        self._client.connection_pool.disconnect()
