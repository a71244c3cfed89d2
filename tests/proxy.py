"""A TCP proxy in front of a server's Unix socket that can lose replies."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

Fault = Literal["close", "hang"]


class Proxy:
    """Forwards bytes both ways, and swallows the next reply when told to.

    Args:
        path: the Unix socket of the server; may be changed, for connections made afterwards.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.swallowed = 0
        self.accepted = 0
        self._fault: Fault | None = None
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    @property
    def url(self) -> str:
        """The address of the proxy."""
        return f"redis://127.0.0.1:{self.port}/0"

    def swallow_next_reply(self, how: Fault) -> None:
        """Let the next request through and its reply not: close the connection, or fall silent."""
        with self._lock:
            self._fault = how

    def drop_all(self) -> None:
        """Cut every connection there is."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            _shut(one)

    def close(self) -> None:
        """Stop listening, cut what is open, and wait for the threads to end."""
        _shut(self._listener)
        self.drop_all()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.path)
            except OSError:
                _shut(client)
                _shut(server)
                continue
            with self._lock:
                self.accepted += 1
                self._sockets += (client, server)
            self._start(self._requests, client, server)
            self._start(self._replies, client, server)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        _shut(server)

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        silent = False
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                with self._lock:
                    fault, self._fault = self._fault, None
                    self.swallowed += fault is not None
                if fault == "close":
                    break
                silent = silent or fault == "hang"
                if not silent:
                    client.sendall(data)
        _shut(client)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
