"""What the tests of the command line share: a small app in a folder, and `mq` run beside it."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from command_line import Cli
from helpers import Processes, wait_until
from servers import Server, discover

from mq.store import Store


@pytest.fixture
def cli(proc: Processes, tmp_path: Path, one_server: Server) -> Cli:
    """`mq` on a real server that is empty."""
    folder = tmp_path / "project"
    folder.mkdir()
    return Cli(proc, folder, one_server.url)


@pytest.fixture
def store(one_server: Server) -> Iterator[Store]:
    """The store that `cli` works on, to look inside."""
    opened = Store(one_server.url)
    yield opened
    opened.close()


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Starts a real server with options of the test's own and returns its socket."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str, password: str | None = None) -> str:
        backend = discover().preferred
        if backend is None or backend.binary is None:
            pytest.skip("no real server in this run")
        path = Path(tmp_path_factory.mktemp("s", numbered=True)) / "s"
        args = ["--port", "0", "--unixsocket", str(path), "--save", "", *options]
        if password is not None:
            args += ["--requirepass", password]
        started.append(
            subprocess.Popen(
                [str(backend.binary.path), *args],
                cwd=path.parent,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        with redis.Redis(unix_socket_path=str(path), password=password) as client:
            wait_until(lambda: _answers(client), what="a server of the test's own")
        return str(path)

    yield start
    for process in started:
        process.kill()
        process.wait()


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.fixture
def old_server() -> Iterator[str]:
    """The URL of something that speaks as a Redis 6.0 would."""
    told = (b"server", b"redis", b"version", b"6.0.9", b"role", b"master")
    hello = b"*6\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in told)

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as commands:
            while line := commands.readline():
                words = [_word(commands) for _ in range(int(line[1:]))]
                connection.sendall(
                    {b"HELLO": hello, b"PING": b"+PONG\r\n"}.get(words[0], b"+OK\r\n")
                )

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threads: list[threading.Thread] = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
                threads[-1].start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
        listening.shutdown(socket.SHUT_RDWR)
    accepting.join(5)
    for thread in threads:
        thread.join(5)


def _word(commands: Any) -> bytes:
    size = int(commands.readline()[1:])
    return bytes(commands.read(size + 2)[:-2])


@pytest.fixture
def closed_port() -> str:
    """The URL of a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"redis://127.0.0.1:{listening.getsockname()[1]}/0"
