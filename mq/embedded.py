"""The embedded server: a real Redis or Valkey that this library finds, starts, shares and stops.

One server runs per data directory, however many processes use it. Three files in that directory
carry the agreement between them, held with ``flock``, so that a killed process lets go by itself:

=============  =========  ====================================================================
file           held by    meaning
=============  =========  ====================================================================
start.lock     a process  exclusive, while it looks for, starts or stops the server
users.lock     a process  shared, from open to close; whoever gets it exclusively is the last
server.lock    the server exclusive, inherited at its start and freed by its death, whatever
                          killed it: two servers never write the same append-only file
=============  =========  ====================================================================

``server.json`` says where the running server listens and what it is. A server whose users were all
killed keeps running; the next process that opens the directory takes it over.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import attrs

from mq import server_process
from mq.server_binary import EmbeddedUnavailable, ServerBinary, find_server
from mq.server_process import (
    LOADING,
    POLL_S,
    PONG,
    EmbeddedStartError,
    ask,
    await_answer,
    ping,
    spawn,
)

__all__ = [
    "EmbeddedServer",
    "EmbeddedStartError",
    "EmbeddedUnavailable",
    "ServerBinary",
    "find_server",
]

logger = logging.getLogger(__name__)

SOCKET_NAME = "redis.sock"
RUN_PREFIX = "mq-"  # of the directory for a socket whose data directory has too long a path
SOCKET_PATH_LIMIT = 100  # bytes; with its final NUL sockaddr_un takes 104 on macOS, 108 on Linux

STOP_TIMEOUT_S = 15.0  # from SHUTDOWN to the death of the server
LOCK_TIMEOUT_S = 60.0  # waiting for another process that starts or stops the server

STATE_FILE = "server.json"


@attrs.frozen
class _State:
    """What ``server.json`` holds: where the server listens, its process id and its binary."""

    socket: str
    pid: int
    binary: ServerBinary


@attrs.define(eq=False)
class EmbeddedServer:
    """A share in the server of one data directory; the last share that is closed stops it."""

    url: str
    binary: ServerBinary
    directory: Path
    pid: int
    _socket: str = attrs.field(repr=False)
    _users: int | None = attrs.field(repr=False)
    _owner: int = attrs.field(factory=os.getpid, init=False, repr=False)
    _closing: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)

    @classmethod
    def open(
        cls, directory: str | os.PathLike[str], binary: ServerBinary | None = None
    ) -> EmbeddedServer:
        """Join the server of a data directory, starting it when none answers.

        Args:
            directory: Where the data lives; made, for the current user alone, when missing.
            binary: What to start; found by `find_server` when None. A server that already runs is
                joined whatever it is.

        Raises:
            EmbeddedUnavailable: No usable binary.
            EmbeddedStartError: The server did not come up; says its last log lines.
        """
        root = Path(directory).expanduser().absolute()
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            users = os.open(root / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise EmbeddedStartError(
                f"cannot use {root} for an embedded server: {error.strerror}; "
                "choose a directory that you may write"
            ) from error
        try:
            with _start_lock(root):
                state = _running(root) or _start(root, binary)
                # Nobody can hold it exclusively: that is only tried under the start lock.
                fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BaseException:
            os.close(users)
            raise
        url = "unix://" + quote(state.socket)
        server = cls(url, state.binary, root, state.pid, state.socket, users)
        atexit.register(server.close)
        return server

    def close(self) -> None:
        """Give the share back and stop the server when it was the last one; twice is fine."""
        with self._closing:
            users, self._users = self._users, None
        if users is None:
            return
        atexit.unregister(self.close)
        try:
            # A forked child shares the lock with its parent, whose server this still is.
            if os.getpid() == self._owner:
                self._leave(users)
        finally:
            os.close(users)

    def _leave(self, users: int) -> None:
        with _start_lock(self.directory):
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            else:
                _stop(self.directory, self._socket)
            finally:
                # Without this a forked child would keep the lock held through its copy.
                fcntl.flock(users, fcntl.LOCK_UN)

    def __enter__(self) -> EmbeddedServer:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@contextlib.contextmanager
def _start_lock(root: Path) -> Iterator[None]:
    """Hold the start lock of a data directory, waiting for its holder within a limit."""
    handle = os.open(root / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise EmbeddedStartError(
                    f"another process has held {root / 'start.lock'} for {LOCK_TIMEOUT_S:.0f} s; "
                    "end it, then try again"
                )
            time.sleep(POLL_S)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _running(root: Path) -> _State | None:
    """The server of the directory, once it answers; None when there is none.

    A live server may be silent for a moment: it is loading its data or shutting down.
    """
    state = _read_state(root)
    handle = os.open(root / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + server_process.START_TIMEOUT_S
        while not _try_lock(handle):
            answer = ping(state.socket) if state else None
            if answer == PONG:
                return state
            if answer == LOADING:
                deadline = time.monotonic() + server_process.START_TIMEOUT_S
            if time.monotonic() > deadline:
                owner = f"process {state.pid}" if state else "a process"
                raise EmbeddedStartError(
                    f"{owner} is the embedded server of {root} and does not answer; "
                    "end it, then try again"
                )
            time.sleep(POLL_S)
        return None
    finally:
        os.close(handle)


def _start(root: Path, binary: ServerBinary | None) -> _State:
    """Start the server and wait for its first answer; called under the start lock."""
    chosen = binary or find_server()
    if chosen.version < (7,) and (root / "appendonlydir").exists():
        # An older server looks for another file, finds none and would start empty.
        raise EmbeddedStartError(
            f"{root} holds data of Redis 7 or later and {chosen} is older: name a newer server"
            " in MQ_REDIS_SERVER, or choose another directory"
        )
    path = _new_socket_path(root)
    lock = os.open(root / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _try_lock(lock):
            raise EmbeddedStartError(f"another process took {root / 'server.lock'}; try again")
        process = spawn(chosen, root, path, lock)
    finally:
        os.close(lock)
    state = _State(path, process.pid, chosen)
    try:
        # Before the first answer, so that a server whose starter is killed now can be joined.
        _write_state(root, state)
        await_answer(process, chosen, root, path)
    except BaseException:
        process.kill()
        process.wait()
        _forget_socket(root, path)
        raise
    # Another process may be the one that stops the server: somebody has to reap it here.
    threading.Thread(target=process.wait, name="mq-embedded-reaper", daemon=True).start()
    return state


def _stop(root: Path, path: str) -> None:
    """Stop the server and wait for its death; called under the start lock by the last user."""
    reply = ask(path, b"SHUTDOWN", STOP_TIMEOUT_S)
    handle = os.open(root / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while not _try_lock(handle):
            if reply or time.monotonic() > deadline:
                said = reply.decode(errors="replace") if reply else "nothing"
                logger.warning("the embedded server of %s refused to stop: %s", root, said)
                return
            time.sleep(POLL_S)
        _forget_socket(root, path)
    finally:
        os.close(handle)


def _new_socket_path(root: Path) -> str:
    """A path for the socket that the kernel takes: in the data directory, else in a short one."""
    old = _read_state(root)
    if old is not None:
        _forget_socket(root, old.socket)
    path = root / SOCKET_NAME
    if len(os.fsencode(path)) < SOCKET_PATH_LIMIT:
        return str(path)
    room = SOCKET_PATH_LIMIT - len(f"/{RUN_PREFIX}12345678/") - len(SOCKET_NAME)
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > room:
        parent = "/tmp"  # noqa: S108 - only the parent of a private directory
    return str(Path(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=parent)) / SOCKET_NAME)


def _forget_socket(root: Path, path: str) -> None:
    """Remove what a dead server leaves: its socket, the short directory it lay in, its state."""
    (root / STATE_FILE).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        Path(path).unlink()
    folder = Path(path).parent
    if folder != root and folder.name.startswith(RUN_PREFIX):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _read_state(root: Path) -> _State | None:
    try:
        raw = json.loads((root / STATE_FILE).read_text())
        binary = raw["binary"]
        version = tuple(int(part) for part in binary["version"])
        found = ServerBinary(Path(binary["path"]), binary["kind"], version, binary["source"])
        return _State(str(raw["socket"]), int(raw["pid"]), found)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_state(root: Path, state: _State) -> None:
    text = json.dumps(attrs.asdict(state), default=str)
    fresh = root / f"{STATE_FILE}.new"
    fresh.write_text(text)
    fresh.replace(root / STATE_FILE)
