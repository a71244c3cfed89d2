"""One server process: how it is started, asked and heard out. Who shares it is not its business."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

from mq.errors import StoreError
from mq.server_binary import ServerBinary

ANSWER_TIMEOUT_S = 1.0  # one reply to PING
START_TIMEOUT_S = 15.0  # from the start to the first answer; loading data extends it
POLL_S = 0.005

LOG_FILE = "server.log"
LOG_TAIL_BYTES = 4096
LOG_TAIL_LINES = 3

PONG = b"+PONG"
LOADING = b"-LOADING"


class EmbeddedStartError(StoreError):
    """An embedded server was found, and did not come up or does not answer."""


def spawn(binary: ServerBinary, root: Path, path: str, lock: int) -> subprocess.Popen[bytes]:
    """Start a server on a data directory.

    Args:
        binary: What to start.
        root: Where its data and its log go.
        path: Of its Unix socket; it listens nowhere else.
        lock: A locked file descriptor, handed on to be held for the server's life.

    Raises:
        EmbeddedStartError: It could not be executed.
    """
    settings = {
        "port": "0",
        "unixsocket": path,
        "unixsocketperm": "600",
        "save": "",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "dir": str(root),
    }
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    try:
        with (root / LOG_FILE).open("wb") as log:
            return subprocess.Popen(
                [str(binary.path), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal must not reach the server
                pass_fds=(lock,),
                umask=0o077,
            )
    except OSError as error:
        raise EmbeddedStartError(f"cannot start {binary.path}: {error.strerror}") from error


def await_answer(
    process: subprocess.Popen[bytes], binary: ServerBinary, root: Path, path: str
) -> None:
    """Wait until a started server serves.

    Raises:
        EmbeddedStartError: It ended, or was silent for too long; with the end of its log.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while (answer := ping(path)) != PONG:
        if answer == LOADING:
            deadline = time.monotonic() + START_TIMEOUT_S
        code = process.poll()
        if code is not None or time.monotonic() > deadline:
            what = f"ended with code {code}" if code is not None else "did not answer"
            raise EmbeddedStartError(
                f"the embedded server {binary} {what} in {root}; its log ends: {_log_tail(root)}"
            )
        time.sleep(POLL_S)


def ping(path: str) -> bytes | None:
    """`PONG` from a server that serves, `LOADING` from one that reads its data, else None."""
    answer = ask(path, b"PING", ANSWER_TIMEOUT_S) or b""
    return next((known for known in (PONG, LOADING) if answer.startswith(known)), None)


def ask(path: str, command: bytes, timeout: float) -> bytes | None:
    """One command without arguments and the line it is answered with; None when there is none."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(path)
            connection.sendall(command + b"\r\n")
            with connection.makefile("rb") as replies:
                return replies.readline().strip() or None
    except OSError:
        return None


def _log_tail(root: Path) -> str:
    try:
        with (root / LOG_FILE).open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return "(no log)"
    told = [line.strip() for line in lines if line.strip()]
    return " | ".join(told[-LOG_TAIL_LINES:]) or "(empty)"
