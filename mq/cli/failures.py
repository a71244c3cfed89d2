"""What went wrong, as one line on stderr and an exit code, without a traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import TextIO

import click

from mq.cli.output import printable, tolerate_any_text
from mq.errors import MQError, one_line

FAILED = 1
USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class CommandError(Exception):
    """A command cannot do what was asked: its line names the thing and the fix."""

    def __init__(self, line: str, code: int = FAILED) -> None:
        super().__init__(line)
        self.code = code


def misuse(line: str) -> CommandError:
    """Return the failure of a command line that cannot mean anything, whatever the store holds."""
    return CommandError(line, USAGE)


def complain(text: str) -> None:
    """Write one line for the user to stderr; nothing where that is closed."""
    if sys.stderr is None:
        return
    try:
        print(f"mq: {printable(one_line(text))}", file=sys.stderr, flush=True)
    except OSError:
        # Nobody can be told that nobody can be told.
        _mute(sys.stderr)


def _mute(stream: TextIO) -> None:
    """Drop what a stream still holds: Python would write it at its exit, and complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run_command(arguments: Sequence[str], obj: object = None) -> int:
    """Run a command line and return the exit code.

    Args:
        arguments: what stands behind `mq`.
        obj: handed to the command as its context object.
    """
    from mq.cli.root import root

    tolerate_any_text()
    try:
        code = root.main(list(arguments), prog_name="mq", standalone_mode=False, obj=obj)
    except click.UsageError as error:
        complain(_usage_line(error))
        return USAGE
    except CommandError as error:
        complain(str(error))
        return error.code
    except MQError as error:
        complain(error.message)
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, `head` perhaps, has what it wants.
        _mute(sys.stdout)
        return FAILED
    except OSError as error:
        # A file that is at fault has a name.
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        _mute(sys.stdout)
        complain(f"cannot write the output: {error.strerror}")
        return FAILED
    return code if isinstance(code, int) else 0


def _usage_line(error: click.UsageError) -> str:
    text = error.format_message().strip().rstrip(".")
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        return text  # it says what to write instead
    where = error.ctx.command_path if error.ctx else "mq"
    return f"{text}; see {where} --help"
