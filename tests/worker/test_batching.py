"""What a job costs Redis: batches form by themselves, with logging on and off."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from helpers import wait_until
from servers import Server
from worker.build import calls, info, worker_of

import mq
from mq.states import JobState
from mq.store import Store

JOBS = 5_000
MOST_COMMANDS = 14
MOST_SCRIPTS = 0.4
MOST_READS = 0.3


@pytest.fixture
def log_stream() -> Iterator[io.StringIO]:
    """Where the worker's lines go, set up as a plain program does it."""
    logger, stream = logging.getLogger("mq"), io.StringIO()
    handler = logging.StreamHandler(stream)
    before = logger.level, logger.propagate
    logger.propagate = False  # pytest's own handler keeps every record
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)
    logger.level, logger.propagate = before


def reads(server: Server) -> int:
    """How often the server has read from a socket."""
    return int(info(server, "stats")["total_reads_processed"])


@pytest.mark.parametrize(
    ("level", "lines"), [(logging.INFO, JOBS), (logging.WARNING, 0)], ids=["logged", "silent"]
)
def test_a_backlog_costs_few_commands_scripts_and_reads_a_job(
    app: mq.App, store: Store, one_server: Server, log_stream: io.StringIO, level: int, lines: int
) -> None:
    """Ten threads that do nothing: acks travel together, with the next claim."""
    logging.getLogger("mq").setLevel(level)

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    noop.enqueue_many([None] * JOBS)
    before = calls(one_server)
    reads_before = reads(one_server)
    with worker_of(app, concurrency=10, lock_duration="30s") as worker:
        wait_until(lambda: worker.fetcher.tally["completed"] == JOBS, 60, "the backlog to end")
        reads_spent = reads(one_server) - reads_before
        spent = {name: n - before.get(name, 0) for name, n in calls(one_server).items()}
    scripts = spent["evalsha"]
    assert store.counts()[JobState.COMPLETED] == JOBS
    assert sum(spent.values()) / JOBS <= MOST_COMMANDS, spent
    assert scripts / JOBS <= MOST_SCRIPTS
    assert reads_spent / JOBS <= MOST_READS
    assert "eval" not in spent
    assert log_stream.getvalue().count("run started") == lines


def test_a_plain_enqueue_is_one_round_trip(app: mq.App, one_server: Server) -> None:
    """One read of the server, and at most ten commands with the script's own counted."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    noop.enqueue(None)  # connects, and loads the script
    before, reads_before = calls(one_server), reads(one_server)
    noop.enqueue(None)
    # The second INFO is a read of its own.
    assert reads(one_server) - reads_before == 1 + 1
    spent = {name: n - before.get(name, 0) for name, n in calls(one_server).items()}
    assert spent["evalsha"] == 1
    assert sum(spent.values()) <= 10, spent


def test_a_thousand_enqueued_together_are_a_few_round_trips(
    app: mq.App, one_server: Server
) -> None:
    """One script call a chunk."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    noop.enqueue(None)
    before = calls(one_server)
    noop.enqueue_many([None] * 1_000)
    assert calls(one_server)["evalsha"] - before["evalsha"] <= 10
