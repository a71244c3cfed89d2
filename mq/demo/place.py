"""Where the demo runs: a server and a worker process of its own, gone when it ends.

With no server at hand it is this process alone, on memory://.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO

from mq.embedded import EmbeddedServer, EmbeddedUnavailable
from mq.errors import StoreError

WORKER_GRACE_S = 5.0
MEMORY_URL = "memory://mq-demo"
_LOG_LINES = 3


class Stop:
    """Notes a signal that asks the demo to end; looked at between steps, so nothing is torn."""

    def __init__(self) -> None:
        self.code = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._received)

    def _received(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.code = 128 + number  # as shells have it

    def __bool__(self) -> bool:
        """Whether a signal came."""
        return self.code != 0


class Place:
    """A store's address and somebody who works there; use it in a `with`.

    Attributes:
        url: the store's address.
        described: what it is, for people.
        alone: why everything runs in this process; None when there is a worker process.
    """

    def __init__(self) -> None:
        self.url = MEMORY_URL
        self.described = "memory://"
        self.alone: str | None = None
        self._left = ExitStack()
        self._worker: subprocess.Popen[bytes] | None = None
        self._log: Path | None = None

    def __enter__(self) -> Place:
        """Start the server, when one is found."""
        folder = Path(self._left.enter_context(tempfile.TemporaryDirectory(prefix="mq-demo-")))
        self._log = folder / "worker.log"
        try:
            server = self._left.enter_context(EmbeddedServer.open(folder / "data"))
        except EmbeddedUnavailable as error:
            if not (find_spec("fakeredis") and find_spec("lupa")):
                self._left.close()
                raise StoreError(
                    f'{error.message}; or pip install "mq[memory]" to run it in memory'
                ) from None
            self.alone = error.message
        except BaseException:
            self._left.close()
            raise
        else:
            self.url, self.described = server.url, str(server.binary)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop what was started, the last first, and remove the folder."""
        self._left.close()

    def start_worker(self, target: str) -> int:
        """Start a worker process for `module:app` and return its process id."""
        assert self._log is not None
        log = self._left.enter_context(self._log.open("wb"))
        self._worker = _start(target, self.url, log, self._log.parent)
        self._left.callback(self.stop_worker)
        return self._worker.pid

    def stop_worker(self) -> str | None:
        """Drain the worker, or kill it when it takes too long; returns what was wrong, or None."""
        process, self._worker = self._worker, None
        if process is None:
            return None
        process.terminate()
        try:
            code = process.wait(WORKER_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return "the worker did not stop when it was asked to"
        return f"the worker ended with code {code}" if code else None

    def complaint(self) -> str | None:
        """Why the worker is gone, or None while it is there."""
        if self._worker is None or self._worker.poll() is None or self._log is None:
            return None
        told = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return f"the worker ended with code {self._worker.returncode}: {' | '.join(told)}"


def _start(target: str, url: str, log: IO[bytes], folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "MQ_URL": url}
    sources = Path(__file__).resolve().parents[2]
    if (sources / "pyproject.toml").is_file():
        # A checkout need not be installed, and the worker starts in another folder.
        found = [str(sources), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(found)
    return subprocess.Popen(
        [sys.executable, "-m", "mq", "worker", target],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        cwd=folder,
        start_new_session=True,  # Ctrl-C is for the demo, which then stops its worker
    )
