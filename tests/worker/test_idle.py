"""A worker with nothing to do: quiet on the wire, and awake all the same."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest
import redis
from helpers import wait_until
from servers import Server
from worker.build import PROMPT_S, calls, idle, worker_of

import mq

MOST_COMMANDS_A_SECOND = 3


def watch_for(seconds: float) -> float:
    """Let an idle worker be idle; how long that was in fact."""
    started = time.monotonic()
    threading.Event().wait(seconds)
    return time.monotonic() - started


def test_an_idle_worker_sends_a_handful_of_commands(app: mq.App, one_server: Server) -> None:
    """With the default intervals, and whatever its scripts call counted."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    with mq.Worker(app) as worker:
        wait_until(lambda: idle(worker) and calls(one_server).get("bzpopmin"))
        before = calls(one_server)
        seconds = watch_for(5)
        spent = {name: n - before.get(name, 0) for name, n in calls(one_server).items()}
    assert sum(spent.values()) <= MOST_COMMANDS_A_SECOND * seconds, spent


@pytest.mark.parametrize("socket_timeout", [1, 5, None])
def test_a_socket_timeout_shorter_than_the_block_does_no_harm(
    one_server: Server, lines: Callable[..., list[str]], socket_timeout: float | None
) -> None:
    """No restart, no error, no busy loop, and a late job starts at once."""
    path = one_server.url.removeprefix("unix://")
    app = mq.App(redis.Redis(unix_socket_path=path, socket_timeout=socket_timeout))
    ran = threading.Event()

    @app.job("noop")
    def noop(payload: None) -> None:
        """Say that it ran."""
        ran.set()

    with worker_of(app, stalled_interval="60s") as worker:
        wait_until(lambda: idle(worker))
        before = sum(calls(one_server).values())
        watch_for(2.5 if socket_timeout == 1 else 0.5)
        # What is left of the start, and not a call each time that a socket gives up.
        assert sum(calls(one_server).values()) - before <= 60
        noop.enqueue(None)
        assert ran.wait(PROMPT_S)
    assert lines(logging.WARNING) == []
    app.close()
