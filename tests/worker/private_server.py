"""A server of one test, which the test may freeze, kill and start again with its data."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import redis
from helpers import wait_until
from servers import discover


class PrivateServer:
    """A real server on a Unix socket that keeps its data over a kill."""

    def __init__(self) -> None:
        found = discover().preferred
        assert found is not None
        assert found.binary is not None
        self._binary = str(found.binary.path)
        # Short: a socket's path has to stay below 100 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="mqt-", dir="/tmp"))
        self.path = str(self._folder / "s")
        self.url = f"unix://{self.path}"
        self.client = redis.Redis(unix_socket_path=self.path, socket_timeout=30)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ["--port", "0", "--unixsocket", self.path, "--save", ""]
        # Always: a kill must not cost what was answered, and what follows from it.
        options += ["--appendonly", "yes", "--appendfsync", "always"]
        options += ["--dir", str(self._folder), "--maxmemory-policy", "noeviction"]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binary, *options], stdout=log, stderr=log, start_new_session=True
            )
        wait_until(self._answers, what="the server to answer")

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self.client.ping())
        return False

    def freeze(self) -> None:
        """Let it hang: connections stay, nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it; connections break."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.client.connection_pool.disconnect()

    def close(self) -> None:
        """End it for good and remove its data."""
        self.client.close()
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
