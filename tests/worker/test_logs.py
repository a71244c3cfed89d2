"""What a worker says of its runs: one line at the start and one at the end, and no payload."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import attrs
import pytest
from helpers import wait_until
from servers import Server
from worker.build import Gate, finished, opened_after, worker_of

import mq
from mq.records import Request
from mq.store import Store

SECRET = "hunter2"


@attrs.frozen
class Login:
    """A payload with something to hide."""

    user: str
    password: str


@attrs.frozen
class Refused(Exception):
    """A declared error that hides it: what a handler itself writes in an error is shown."""

    password: mq.Secret[str]


def test_each_run_has_one_line_at_its_start_and_one_at_its_end(
    app: mq.App, store: Store, lines: Callable[..., list[str]]
) -> None:
    """With name, id and number of the run; of a failed one the end says why."""

    @app.job("odd", attempts=2)
    def odd(number: int, ctx: mq.Context) -> int:
        """Fail for odd ones, the first time."""
        if number % 2 and ctx.attempt == 1:
            raise ValueError("odd")
        return number

    with worker_of(app) as worker:
        ids = odd.enqueue_many(range(6))
        finished(store, *ids)
    told = lines()
    assert told[0].startswith(f"worker {worker.options.id} started: 2 threads")
    assert told[-1] == f"worker {worker.options.id} stopped: 6 completed, 3 retried"
    for number, job_id in enumerate(ids):
        mine = [re.sub(r" in \d+ ms", "", line) for line in told if job_id in line]
        assert mine == [
            f"run started: odd {job_id} #1 (default)",
            *(
                [
                    f"run failed, will retry: odd {job_id} #1 (ValueError)",
                    f"run started: odd {job_id} #2 (default)",
                    f"run completed: odd {job_id} #2",
                ]
                if number % 2
                else [f"run completed: odd {job_id} #1"]
            ),
        ]
    assert lines(logging.WARNING) == []


def test_no_line_has_anything_of_a_payload_or_a_result(
    app: mq.App, store: Store, one_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever goes wrong with it, at the most talkative level."""
    caplog.set_level(logging.DEBUG, logger="mq")
    gate = Gate()

    @app.job("login", error=Refused, attempts=2)
    def login(payload: Login) -> dict[str, str]:
        """Return it, or raise it."""
        if payload.user == "refused":
            raise Refused(mq.Secret(payload.password))
        return {"password": payload.password}

    @app.job("unencodable")
    def unencodable(payload: Login) -> int:
        """Return what is no number."""
        return payload.password  # type: ignore[return-value]

    @app.job("sealed")
    def sealed(payload: mq.Secret[str]) -> mq.Secret[str]:
        """Give it back."""
        return payload

    @app.job("stay")
    def stay(payload: Login) -> str:
        """Wait for the test."""
        gate.stop_here()
        return payload.password

    shapes = [
        b"\x82\xa4user\xa1x\xa8password" + b"\x91\xa7" + SECRET.encode(),
        b"\xa7" + SECRET.encode(),
        b"\x81\xa7" + SECRET.encode() + b"\x01",
        SECRET.encode(),
    ]
    with worker_of(app, lock_renew_interval="0.1s"), opened_after(gate):
        ids = [login.enqueue(Login(user, SECRET)) for user in ("fine", "refused")]
        ids += [unencodable.enqueue(Login("x", SECRET)), sealed.enqueue(mq.Secret(SECRET))]
        ids += [store.enqueue(Request(name="login", queue="default", payload=p)).id for p in shapes]
        staying = stay.enqueue(Login("x", SECRET))
        gate.await_entry()
        one_server.cli("ZADD", store.keys.active(), 0, staying)
        store.stall_sweep(0)
        states = finished(store, *ids, staying)
        wait_until(lambda: any("lock of run" in one.getMessage() for one in caplog.records))
    assert states == ["completed", "failed", "failed", "completed", *["failed"] * 5]
    text = "\n".join(logging.Formatter().format(one) + repr(one.args) for one in caplog.records)
    assert "run started" in text
    assert SECRET not in text
