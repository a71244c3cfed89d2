"""Messages between a worker and its child processes: a length, then plain data as bytes."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any

from mq import codec

_LENGTH = struct.Struct(">I")


class Frames:
    """One end of the socket between a worker and a child.

    Args:
        end: a connected stream socket.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._read = end.makefile("rb")
        self._write_lock = threading.Lock()

    def send(self, *message: Any) -> None:
        """Send one message; OSError when the other end is gone."""
        data = codec.pack_plain(list(message))
        with self._write_lock:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)

    def receive(self) -> list[Any] | None:
        """Return the next message, or None when the other end is gone."""
        try:
            head = self._read.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return None
            size = _LENGTH.unpack(head)[0]
            data = self._read.read(size)
        except (OSError, ValueError):
            return None
        if len(data) < size:
            return None
        message: list[Any] = codec.unpack_plain(data)
        return message

    def forget(self) -> None:
        """Let go of this end in a forked process, which shares it with its parent."""
        self._socket.detach()

    def close(self) -> None:
        """Close this end."""
        # Another thread may be in a read, which holds the buffer's lock; this ends it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._read.close()
        self._socket.close()
