"""`mq worker`: the process that runs jobs."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from mq.cli.apps import find_store, load_app
from mq.cli.failures import misuse
from mq.cli.parameters import DURATION, QUEUE
from mq.cli.stores import reach
from mq.cli.worker_logging import configure_logging
from mq.worker.signals import StopSignals

if TYPE_CHECKING:
    from mq.app import App

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LAST_MOMENTS_S = 3.0
"""How long the interpreter may take to end after a drain: exit hooks, threads of the app's own."""


@click.command()
@click.argument("app_name", metavar="MODULE:APP")
@click.option(
    "--queue",
    "-q",
    "queues",
    type=QUEUE,
    multiple=True,
    help="Serve it; repeatable.  [default: all]",
)
@click.option("--strict", is_flag=True, help="Serve queues in the order given, not by weight.")
@click.option("--concurrency", "-c", type=int, help="Runs at a time, a thread each.  [default: 10]")
@click.option(
    "--store", default="default", metavar="NAME", help="Serve this named store of the app."
)
@click.option("--burst", is_flag=True, help="End when nothing is runnable; 5 when jobs failed.")
@click.option(
    "--lock-duration",
    type=DURATION,
    help="A claim lasts this long unless extended.  [default: 30s]",
)
@click.option(
    "--shutdown-grace", type=DURATION, help="A stop waits this long for runs.  [default: 25s]"
)
@click.option(
    "--poll-interval", type=DURATION, help="Longest idle wait without a wake-up.  [default: 5s]"
)
@click.option(
    "--stalled-interval", type=DURATION, help="Look for expired locks this often.  [default: 30s]"
)
@click.option(
    "--schedule-interval", type=DURATION, help="Look for due schedules this often.  [default: 15s]"
)
@click.option(
    "--flow-interval", type=DURATION, help="Look after open children this often.  [default: 30s]"
)
@click.option(
    "--history-interval", type=DURATION, help="Prune finished jobs this often.  [default: 60s]"
)
@click.option(
    "--max-stalled-count", type=int, help="A job that stalls more often is failed.  [default: 1]"
)
@click.option(
    "--lock-renew-interval", type=DURATION, help="Heartbeat.  [default: half the lock duration]"
)
@click.option(
    "--max-strays", type=int, help="Unresponsive threads before it exits with 4.  [default: -c]"
)
@click.option(
    "--executor",
    type=click.Choice(["thread", "process"]),
    help="Where handlers run whose definitions do not say.  [default: thread]",
)
@click.option(
    "--child-max-runs", type=int, help="Runs before a child process is replaced.  [default: no end]"
)
@click.option("--id", help="Name in ledgers and locks.  [default: host:pid:random]")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Least severe lines that are logged; a run logs two at INFO.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), help="Even if the app sets up logging."
)
@click.pass_obj
def worker(
    signals: StopSignals | None,
    /,
    app_name: str,
    queues: tuple[tuple[str, int | None], ...],
    store: str,
    log_level: str,
    log_format: str | None,
    **options: Any,
) -> int:
    """Run the jobs of an app until told to stop. The current directory is on the import path.

    SIGTERM or SIGINT stops claiming, waits for running jobs and gives back those that take too
    long; a second signal, more than a second later, stops at once.

    Exit codes: 0 stopped as asked; 1 not started (import, connection); 2 usage; 3 stopped at once;
    4 too many handlers that ignore their interrupt; 5 a burst ended and jobs failed in it.

    \b
    Example:
      mq worker myapp.jobs:app
      mq worker myapp.jobs:app -q mail:3 -q reports -c 20 --log-format json
      mq worker myapp.jobs:app --burst
    """  # noqa: D301 click's mark: not to be wrapped
    signals = signals or StopSignals()
    checked = _check_options({**options, "queues": _weights(queues, strict=options["strict"])})
    app = load_app(app_name)
    configure_logging(log_level.upper(), log_format)
    code = _run(app, store, checked, signals)
    _end(app, code)
    return code


def _weights(queues: Sequence[tuple[str, int | None]], *, strict: bool) -> dict[str, int] | None:
    names = [name for name, _ in queues]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise misuse(f"queue {twice!r} is named twice; write {twice}:2 for a weight")
    if strict and not queues:
        raise misuse("--strict needs the order: name the queues with -q")
    if strict and any(weight is not None for _, weight in queues):
        raise misuse("--strict serves queues in order, so weights mean nothing: leave one out")
    return {name: 1 if weight is None else weight for name, weight in queues} or None


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    from mq.worker.options import read_options

    try:
        read_options(**options)
    except (ValueError, TypeError) as error:
        raise misuse(str(error)) from None
    return options


def _run(app: App, store: str, options: dict[str, Any], signals: StopSignals) -> int:
    reach(find_store(app, store), to_write=True)
    from mq.worker.pool import Worker  # late: it loads redis, which a wrong option can do without

    made = Worker(app, store=store, **options)
    signals.started()
    return int(made.run(signals))


def _end(app: App, code: int) -> None:
    """See to it that the process ends with this code, whatever its threads do.

    A handler that never returns was given up by the drain, but its thread is still there: C code
    that it is in could crash the interpreter's end, and threads that it started could keep it from
    ending at all. A supervisor would see a wrong code, or wait for its own time limit and kill what
    has long stopped.
    """
    from mq.worker.pool import ExitCode

    if code == ExitCode.FORCED:
        _end_now(code)
    try:
        app.close()
    except Exception:
        logging.getLogger("mq.worker").warning("closing the app failed", exc_info=True)
    if _runs_left():
        _end_now(code)
    # Exit hooks of the app may run now, within a limit.
    threading.Thread(target=_end_late, args=(code,), name="mq-exit", daemon=True).start()


def _runs_left() -> bool:
    """Whether a run thread is still in a handler; idle ones end in a moment."""
    until = time.monotonic() + 0.5
    for thread in threading.enumerate():
        if thread.name.startswith("mq-run-"):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                return True
    return False


def _end_late(code: int) -> None:
    threading.Event().wait(LAST_MOMENTS_S)
    _end_now(code)


def _end_now(code: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
