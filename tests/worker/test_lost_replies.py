"""A call that Redis ran and whose answer never came: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers import wait_until
from proxy import Fault, Proxy
from servers import Server
from worker.build import all_finished, idle, outcomes, record, worker_of

import mq
from mq.store import Store

RETRIES = pytest.mark.parametrize("retry_for", ["5s", "0s"], ids=["by the store", "by the fetcher"])
FAULTS = pytest.mark.parametrize("how", ["close", "hang"])


@pytest.fixture
def proxy(one_server: Server) -> Iterator[Proxy]:
    """What stands between the worker and its server."""
    made = Proxy(one_server.url.removeprefix("unix://"))
    yield made
    made.close()


def behind(proxy: Proxy, retry_for: str) -> mq.App:
    """An app that reaches its server through the proxy."""
    return mq.App(proxy.url, retry_for=retry_for, socket_timeout=0.3)


def swallow(
    monkeypatch: pytest.MonkeyPatch, store: Store, proxy: Proxy, how: Fault, *, acks: bool
) -> None:
    """Let the answer to the first call with acks, or with a claim alone, be lost."""
    exchange = store.exchange

    def losing(given: Any, claim: Any, **options: Any) -> Any:
        if bool(given) is acks and not proxy.swallowed and not options.get("repeated"):
            proxy.swallow_next_reply(how)
        return exchange(given, claim, **options)

    monkeypatch.setattr(store, "exchange", losing)


@RETRIES
@FAULTS
@pytest.mark.parametrize("acks", [False, True], ids=["claim", "acks"])
def test_a_lost_answer_costs_neither_a_job_nor_a_run(
    app: mq.App,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    lines: Callable[..., list[str]],
    retry_for: str,
    how: Fault,
    acks: bool,
) -> None:
    """The worker asks again and gets the same jobs; an ack sent again is recognised."""
    behind_it = behind(proxy, retry_for)
    ran: list[int] = []

    @behind_it.job("note")
    def note(number: int) -> int:
        """Note the number."""
        ran.append(number)
        return number

    producer = app.define("note", payload=int, result=int)
    with worker_of(behind_it, concurrency=4, lock_duration="30s", stalled_interval="60s") as worker:
        wait_until(lambda: idle(worker))
        swallow(monkeypatch, worker.store, proxy, how, acks=acks)
        ids = producer.enqueue_many(range(12))
        assert all_finished(app.store, 12) == {"completed": 12}
        assert proxy.swallowed == 1
        # Acks of the last runs may still be on their second way.
        wait_until(lambda: not len(worker.runs))
    assert sorted(ran) == list(range(12))
    assert {tuple(outcomes(app.store, job_id)) for job_id in ids} == {("completed",)}
    assert {record(app.store, job_id).stalled_count for job_id in ids} == {0}
    assert [line for line in lines(logging.WARNING) if "refused" in line] == []
    behind_it.close()


def test_connections_that_are_cut_again_and_again_cost_nothing(app: mq.App, proxy: Proxy) -> None:
    """Each job runs once, and those that were started late start all the same."""
    behind_it = behind(proxy, "5s")
    ran: list[int] = []

    @behind_it.job("note")
    def note(number: int) -> int:
        """Note the number."""
        ran.append(number)
        return number

    producer = app.define("note", payload=int, result=int)
    with worker_of(behind_it, concurrency=4, lock_duration="30s"):
        for round_ in range(10):
            producer.enqueue_many(range(round_ * 20, round_ * 20 + 20))
            proxy.drop_all()
            wait_until(lambda round_=round_: len(ran) > round_ * 20)
        assert all_finished(app.store, 200) == {"completed": 200}
    assert sorted(ran) == list(range(200))
    behind_it.close()
