"""The command line: one module for each noun, and none of them is loaded before it is asked for."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # nothing is loaded here that Ctrl-C could interrupt before `main` runs

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130  # that of mq.cli.failures, which may not be loaded yet


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process.

    Args:
        arguments: what stands behind `mq`; those of this process by default.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["worker"]:
            return _worker(given)
        from mq.cli.failures import run_command

        return run_command(given)
    except KeyboardInterrupt:
        # While modules were loaded: a command that runs answers for itself.
        return _INTERRUPTED


def _worker(given: list[str]) -> int:
    from mq.worker.signals import StartUpStopped, StopSignals

    # Before anything else is loaded: a supervisor may change its mind while the app is imported,
    # and a worker that has claimed nothing ends with 0.
    signals = StopSignals(starting=True)
    try:
        signals.install()
        from mq.cli.failures import run_command

        return run_command(given, signals)
    except StartUpStopped:
        return 0
