"""A terminal of a test's own: what a person at it would see, and what they type."""

from __future__ import annotations

import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fcntl import ioctl

from command_line import Cli
from helpers import wait_until


class Terminal:
    """A command whose stdin, stdout and stderr are one terminal.

    Args:
        process: the command.
        end: our end of the terminal.
    """

    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self.process = process
        self._end = end
        self._shown = bytearray()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        while True:
            try:
                block = os.read(self._end, 4096)
            except OSError:  # Linux says so at the end
                return
            if not block:
                return
            self._shown += block

    @property
    def shown(self) -> str:
        """All that was written so far."""
        return self._shown.decode(errors="replace")

    def wait_for(self, text: str) -> None:
        """Wait until a text is shown."""
        wait_until(lambda: text in self.shown, timeout=30, what=f"{text!r} on the terminal")

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._end, text.encode())

    def wait(self) -> int:
        """Wait for the command's end and return its exit code."""
        code = self.process.wait(30)
        self._reading.join(10)
        return code


@contextmanager
def at_terminal(
    cli: Cli, *args: str, columns: int = 200, env: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run a command at a terminal of so many columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    merged = {**os.environ, "MQ_URL": cli.url, "TERM": "xterm", **(env or {})}
    merged.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "mq", *args],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=cli.folder, env=merged,
    )  # fmt: skip
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        yield terminal
    finally:
        process.kill()
        terminal.wait()
        os.close(ours)
