"""Records that were changed by hand."""

from __future__ import annotations

import logging

import pytest
from helpers import wait_until
from servers import Server
from worker.build import finished, worker_of

import mq
from mq.store import Store


@pytest.mark.parametrize("field", ["attempts_max", "attempts_made", "timeout_ms", "enqueued_at"])
def test_a_record_with_a_field_that_is_no_number_costs_no_thread(
    app: mq.App, store: Store, one_server: Server, field: str
) -> None:
    """Written by hand: whatever becomes of that job, the worker goes on in all its slots."""

    @app.job("plain", attempts=2)
    def plain(number: int) -> int:
        """Fail for odd ones."""
        if number % 2:
            raise ValueError("odd")
        return number

    broken = plain.enqueue(1)
    one_server.cli("HSET", store.keys.job(broken), field, "many")
    with worker_of(app, concurrency=1):
        assert finished(store, plain.enqueue(2)) == ["completed"]
        assert finished(store, plain.enqueue(3)) == ["failed"]


def test_a_log_line_of_a_handler_takes_any_id(
    app: mq.App, caplog: pytest.LogCaptureFixture
) -> None:
    """A percent sign in an id is no formatting, with arguments or without."""
    caplog.set_level(logging.INFO, logger="mq.job")

    @app.job("says")
    def says(payload: str, ctx: mq.Context) -> None:
        ctx.log.info("50% done")
        ctx.log.info("part %d of %d", 1, 2)

    with worker_of(app):
        job_id = says.enqueue("", job_id="100%s")
        wait_until(lambda: says.poll(job_id).state.finished, what="the job")
    said = [one.getMessage() for one in caplog.records if one.name == "mq.job"]
    assert said == ["says 100%s #1: 50% done", "says 100%s #1: part 1 of 2"]
