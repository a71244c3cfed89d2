"""How a store reaches Redis: addresses, settings, and what a failure of the server means.

The client is always our own. One that was handed in is copied from its settings, because what a
store depends on (bytes that stay bytes, no silent repetition of a script, a socket timeout longer
than a blocking read) must not depend on how somebody else configured it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import attrs
import redis
from redis import exceptions as failures
from redis.backoff import NoBackoff
from redis.retry import Retry

from mq.errors import StoreError

DEFAULT_URL = "redis://localhost:6379/0"
SOCKET_TIMEOUT_S = 5.0
HEALTH_CHECK_S = 30
OLDEST_SERVER = (6, 2)

# No CLIENT SETINFO on each connection. Newer redis-py warns of the older pair of settings.
_NAMELESS: dict[str, Any] = (
    {"driver_info": None}
    if importlib.util.find_spec("redis.driver_info")
    else {"lib_name": None, "lib_version": None}
)

_SCHEMES = ("redis", "rediss", "unix", "memory")
_KEPT = frozenset(
    "host port path db username password credential_provider protocol redis_connect_func "
    "socket_timeout socket_connect_timeout socket_keepalive socket_keepalive_options socket_type "
    "server server_key server_type version connected lua_modules".split()
)
"""Settings copied from a URL or a client beside every `ssl_…`; the last line is fakeredis's."""


class Pool(redis.ConnectionPool):
    """Connections, of which one whose call was interrupted is closed before anybody else has it."""

    def release(self, connection: Any) -> None:
        """Take a connection back."""
        # Ctrl-C, or the end of a handler's time, cuts a call short anywhere, and redis-py gives the
        # connection back as it is: half set up, or with a reply under way that the next call would
        # take for its own.
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, Exception):
            connection.disconnect()
        super().release(connection)


@attrs.frozen
class Endpoint:
    """One Redis server as a store uses it.

    Args:
        label: the address without secrets, for messages.
        connection_class: redis-py's class for the kind of socket.
        settings: what connections are made with.
        in_process: whether it is the in-process server of memory://.
    """

    label: str
    connection_class: type
    settings: Mapping[str, Any] = attrs.field(repr=False)
    in_process: bool = False

    def client(self, *, longest_block_ms: int | None = None) -> redis.Redis:
        """Return a client of its own pool.

        Args:
            longest_block_ms: the longest blocking read it will make. Its socket waits 5 s longer,
                so that a half-open connection is found and a healthy idle one is left alone.
        """
        settings = dict(self.settings)
        if longest_block_ms is not None:
            settings["socket_timeout"] = longest_block_ms / 1000 + SOCKET_TIMEOUT_S
        pool = Pool(connection_class=self.connection_class, **settings)
        return redis.Redis(connection_pool=pool)


def endpoint_of(target: str | redis.Redis | None, **settings: Any) -> Endpoint:
    """Return the endpoint a URL or a ready-made client names.

    Args:
        target: a URL (redis://, rediss://, unix://, memory://), a `redis.Redis`, or None for
            `redis://localhost:6379/0`.
        settings: username, password, db and redis-py's ssl and socket options; they win over the
            URL.

    Raises:
        StoreError: the URL or an option cannot work; says which and why, never the password.
        TypeError: the client is of a kind that a store cannot copy.
    """
    if target is None:
        target = DEFAULT_URL
    if isinstance(target, str):
        return _from_url(target, settings)
    if isinstance(target, redis.Redis):
        if settings:
            raise TypeError(
                f"give {', '.join(settings)} to the client, or give a URL instead of a client"
            )
        pool = target.connection_pool
        return _endpoint(pool.connection_class, pool.connection_kwargs)
    kind = f"{type(target).__module__}.{type(target).__qualname__}"
    raise TypeError(
        f"{kind} is not a client a store can use: give a URL or a synchronous redis.Redis"
        " (asyncio, cluster and Sentinel clients are not supported)"
    )


def _from_url(url: str, settings: Mapping[str, Any]) -> Endpoint:
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in _SCHEMES:
        shown = f"scheme {scheme!r}" if scheme.isalnum() else "no scheme"
        raise StoreError(
            f"Redis URL has {shown}: use redis://host:port/db, rediss://, unix:///path or memory://"
        )
    if scheme == "memory":
        return _memory(url.partition("://")[2])
    _check_url(url, scheme)
    pool: redis.ConnectionPool | None = None
    with contextlib.suppress(ValueError, TypeError):
        pool = redis.ConnectionPool.from_url(url)
    if pool is None:
        raise _bad_url("it does not parse")
    return _endpoint(pool.connection_class, {**pool.connection_kwargs, **settings})


def _bad_url(reason: str) -> StoreError:
    # The text of the URL, and of urllib's own error, may hold the password or a part of it: neither
    # is shown, and the error is raised where no other is being handled that could be shown with it.
    return StoreError(
        f"Redis URL is not usable, {reason}: percent-encode reserved characters such as # / ? @ : %"
        " in user and password, or pass username= and password= as settings"
    )


def _split(url: str) -> tuple[SplitResult | None, int | None]:
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError:
        return None, None


def _check_url(url: str, scheme: str) -> None:
    parts, port = _split(url)
    if parts is None:
        raise _bad_url("what stands before the database does not parse")
    if "@" in parts.path + parts.query + parts.fragment or parts.fragment:
        raise _bad_url("it has an @ or # behind the host")
    if scheme == "unix":
        if not parts.path:
            raise StoreError("Redis URL unix:// names no socket: write unix:///path/to/redis.sock")
        return
    if not parts.hostname:
        raise StoreError(f"Redis URL names no host: write {scheme}://host:6379/0")
    if port == 0:
        raise StoreError(
            "Redis URL has port 0: write the port the server listens on, 6379 by default"
        )
    database = parts.path.strip("/")
    if database and not database.isdigit():
        raise StoreError(f"Redis URL has database {database[:20]!r}: write a number, such as /0")


def _endpoint(connection_class: type, given: Mapping[str, Any]) -> Endpoint:
    settings = {
        name: value for name, value in given.items() if name in _KEPT or name.startswith("ssl_")
    }
    unknown = sorted(set(given) - set(settings) - _replaced())
    if unknown:
        raise StoreError(
            f"Redis option {unknown[0]!r} is not known: remove it from the URL or settings"
        )
    if settings.get("socket_timeout") is None:
        settings["socket_timeout"] = SOCKET_TIMEOUT_S
    if settings.get("socket_connect_timeout") is None:
        settings["socket_connect_timeout"] = SOCKET_TIMEOUT_S
    settings.update(
        decode_responses=False,
        encoding="utf-8",
        retry=Retry(NoBackoff(), 0),
        health_check_interval=HEALTH_CHECK_S,
        **_NAMELESS,
    )
    settings.setdefault("protocol", 2)
    if settings["protocol"] is None:
        settings["protocol"] = 2
    endpoint = Endpoint(_label(settings), connection_class, settings)
    try:
        endpoint.client().connection_pool.make_connection()
    except (TypeError, ValueError, failures.RedisError) as error:
        raise StoreError(f"Redis settings are not usable: {error}") from None
    return endpoint


def _replaced() -> frozenset[str]:
    """Return redis-py's settings that a store decides by itself, whatever was given."""
    return frozenset(
        "decode_responses encoding encoding_errors encoder_class retry retry_on_error "
        "retry_on_timeout health_check_interval lib_name lib_version driver_info client_name "
        "parser_class "
        "socket_read_size legacy_responses command_packer event_dispatcher max_connections "
        "himport_registry maint_notifications_config maint_notifications_pool_handler "
        "oss_cluster_maint_notifications_handler maintenance_state maintenance_notification_hash "
        "orig_host_address orig_socket_timeout orig_socket_connect_timeout cache "
        "cache_config".split()
    )


def _label(settings: Mapping[str, Any]) -> str:
    if settings.get("path"):
        return f"unix://{settings['path']}"
    if "host" not in settings:
        return "memory://"
    return f"{settings['host']}:{settings.get('port', 6379)}/{settings.get('db', 0)}"


_memory_servers: dict[str, Any] = {}
_memory_lock = threading.Lock()


def _memory(name: str) -> Endpoint:
    """Return an in-process server: a new one, or the one of that name shared by this process."""
    try:
        fakeredis = importlib.import_module("fakeredis")
        importlib.import_module("lupa")
    except ImportError:
        raise StoreError('memory:// needs fakeredis with Lua: pip install "mq[memory]"') from None
    with _memory_lock:
        server = _memory_servers.get(name) if name else None
        if server is None:
            server = fakeredis.FakeServer(version=(7, 0))
            if name:
                _memory_servers[name] = server
    pool = fakeredis.FakeRedis(server=server, decode_responses=False).connection_pool
    settings = {k: v for k, v in pool.connection_kwargs.items() if k not in _replaced()}
    settings.pop("socket_timeout", None)
    return Endpoint(f"memory://{name}", pool.connection_class, settings, in_process=True)


def retryable(error: Exception) -> bool:
    """Whether the same call may succeed shortly: nothing ran, or a repeat is recognised."""
    if isinstance(error, failures.AuthenticationError | failures.AuthorizationError):
        return False
    if isinstance(
        error,
        failures.ConnectionError
        | failures.TimeoutError
        | failures.ReadOnlyError
        | failures.ClusterDownError
        | failures.MasterDownError
        | failures.TryAgainError,
    ):
        return not isinstance(error, failures.MaxConnectionsError)
    if not isinstance(error, failures.ResponseError):
        return False
    text = str(error)
    # Redis 6.2 wraps what a script's write was answered: "Error running script ... -READONLY ...".
    return "-READONLY " in text or text.startswith(
        ("BUSY ", "LOADING ", "UNBLOCKED ", "MASTERDOWN ", "TRYAGAIN ", "CLUSTERDOWN ")
    )


def is_noscript(error: object) -> bool:
    """Whether the server does not have the script: it ran nothing, so load and repeat."""
    return isinstance(error, failures.NoScriptError) or (
        isinstance(error, failures.ResponseError) and "NOSCRIPT" in str(error)
    )


def not_permitted(error: object) -> bool:
    """Whether the user lacks a right; redis-py cuts the code off the text of its own class."""
    return isinstance(error, failures.NoPermissionError) or "NOPERM" in str(error)


def store_error(error: Exception, label: str) -> StoreError:
    """Return what a failure of redis-py at `label` means and what to do, in one line."""
    text = str(error)
    where = f"Redis at {label}"
    if isinstance(error, failures.AuthenticationError) or "WRONGPASS" in text or "NOAUTH" in text:
        return StoreError(f"{where} refused the user or password: check MQ_URL or password=")
    if not_permitted(error):
        return StoreError(
            f"{where} denies a right this user needs: {text}; grant it with ACL SETUSER"
        )
    if isinstance(error, failures.ReadOnlyError) or "READONLY" in text:
        return StoreError(f"{where} is a read-only replica: give the address of the primary")
    if isinstance(error, failures.OutOfMemoryError) or "OOM" in text:
        return StoreError(
            f"{where} is out of memory (maxmemory): nothing was written; free memory or raise it"
        )
    if "MQSCHEMA" in text:
        found = text.partition("MQSCHEMA ")[2]
        return StoreError(
            f"keyspace version {found}: run the mq release that wrote it, or another prefix"
        )
    if "MQSEQ" in text:
        return StoreError(
            f"{where}: the enqueue order of this prefix is used up; go on under a new prefix"
        )
    if isinstance(error, failures.TimeoutError):
        return StoreError(f"{where} did not answer in time: check that it is up and not overloaded")
    if isinstance(error, failures.ConnectionError):
        return StoreError(
            f"cannot reach {where}: {_plain(text)}; check the address and that it is running"
        )
    return StoreError(f"{where} answered: {text}")


def _plain(text: str) -> str:
    # redis-py's "Error 111 connecting to host:port. Connection refused." names the address again.
    return text.rpartition("connecting to ")[2].partition(". ")[2].rstrip(".") or text.rstrip(".")


REDIS_FAILURES: tuple[type[Exception], ...] = (failures.RedisError, OSError)
"""What a call through redis-py may raise when the server or the way to it fails."""
