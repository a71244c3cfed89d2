"""Metadata indexes declared when jobs are there: workers complete them, and lists stay true."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from helpers import wait_until
from servers import Server
from transitions.invariants import violations
from worker.build import all_finished, finished, state, worker_of

import mq
from mq.store import Store
from mq.store.upkeep import BACKFILL_BATCH

READY = {"customer": True}
SOON = "0.05s"


@pytest.fixture
def app(server: Server) -> Iterator[mq.App]:
    """An app of the release before, on each back end: it declares no metadata key."""
    made = mq.App(server.url)
    yield made
    made.close()


@pytest.fixture
def newer(server: Server) -> Iterator[mq.App]:
    """The app of the next release: `customer` is declared."""
    made = mq.App(server.url, indexed_metadata=["customer"])
    yield made
    made.close()


def noop(app: mq.App, name: str = "noop", **options: Any) -> mq.Job[str, None]:
    """Define a job that does nothing; its payload is the customer, or empty for none."""

    @app.job(name, metadata=lambda word: {"customer": word} if word else {}, **options)
    def job(word: str) -> None:
        """Nothing."""

    return job


def listed(store: Store, customer: str, **options: Any) -> list[str]:
    """The ids of every page of a list by customer, sorted."""
    found: list[str] = []
    cursor = None
    while True:
        page = store.list(metadata={"customer": customer}, cursor=cursor, bodies=False, **options)
        found += [record.id for record in page.items]
        cursor = page.cursor
        if cursor is None:
            return sorted(found)


def indexed(server: Server, store: Store, customer: str) -> list[str]:
    """The ids that the index of a customer holds, sorted."""
    members = server.cli("ZRANGE", store.keys.metadata("customer", customer), 0, -1)
    return sorted(member.decode() for member in members)


def in_every_state(store: Store, job: mq.Job[str, None]) -> dict[str, str]:
    """Enqueue and treat jobs until some of three customers stand in each state; ids and customers.

    What is active stays so for the length of any test.
    """
    model: dict[str, str] = {}

    def enqueue(count: int, **options: Any) -> list[str]:
        words = ["c-1", "c-2", "c-3", ""] * (count // 4)
        job_ids = [job.enqueue(word, **options) for word in words]
        model.update(zip(job_ids, words, strict=True))
        return job_ids

    enqueue(40)
    claimed = store.claim(["default", "side"], [job.name], "token", 3_600_000, limit=40).jobs
    for record in claimed[:8]:
        store.ack_completed(record.id, "token", b"")
    for record in claimed[8:16]:
        store.ack_failed(record.id, "token", b"")
    for record in claimed[16:24]:
        store.ack_retried(record.id, "token", 3_600_000)
    for record in claimed[24:32]:
        store.cancel(record.id)
        store.ack_cancelled(record.id, "token")
    enqueue(40, delay="1h")
    enqueue(40, delay="1h", queue="side")
    return model


def test_a_worker_completes_the_index_of_jobs_that_were_there(
    app: mq.App, newer: mq.App, store: Store, server: Server
) -> None:
    """In every state and queue; the lists are the same before, and then read from the index."""
    model = in_every_state(store, noop(app))
    wanted = {
        customer: sorted(job_id for job_id, word in model.items() if word == customer)
        for customer in ("c-1", "c-2", "c-3", "nobody")
    }
    noop(newer)
    assert store.index_states() == {}
    assert {customer: listed(store, customer) for customer in wanted} == wanted
    with worker_of(newer):
        wait_until(lambda: store.index_states() == READY, what="the index")
    assert {customer: indexed(server, store, customer) for customer in wanted} == wanted
    assert {customer: listed(store, customer) for customer in wanted} == wanted
    assert {customer: listed(store, customer, order="asc") for customer in wanted} == wanted
    # A list that is read from the index finds nothing in an empty one.
    server.cli("DEL", store.keys.metadata("customer", "c-1"))
    assert listed(store, "c-1") == []


def test_a_worker_that_declares_nothing_completes_what_others_declared(
    app: mq.App, newer: mq.App, store: Store, server: Server
) -> None:
    """Workers of the release before take part."""
    job = noop(app)
    job_ids = [job.enqueue("c-1", delay="1h") for _ in range(3 * BACKFILL_BATCH)]
    job_ids.append(noop(newer).enqueue("c-1", delay="1h"))
    assert store.index_states() == {"customer": False}
    with worker_of(app):
        wait_until(lambda: store.index_states() == READY, what="the index")
    assert indexed(server, store, "c-1") == sorted(job_ids)
    assert violations(store) == []


def test_a_worker_goes_on_where_another_stopped(
    app: mq.App, newer: mq.App, store: Store, server: Server, lines: Callable[..., list[str]]
) -> None:
    """No job is looked at twice."""
    job = noop(app)
    job_ids = job.enqueue_many(["c-1"] * (4 * BACKFILL_BATCH), delay="1h")
    store.declare_index(["customer"])
    steps = [store.backfill(), store.backfill()]
    assert steps == [("customer", BACKFILL_BATCH)] * 2
    assert len(indexed(server, store, "c-1")) == 2 * BACKFILL_BATCH
    noop(newer)
    with worker_of(newer):
        wait_until(lambda: store.index_states() == READY, what="the index")
        wait_until(lambda: any("metadata index" in line for line in lines()), what="the report")
    told = [line for line in lines(logging.INFO) if "metadata index" in line]
    assert told == [f"metadata index 'customer': looked at {2 * BACKFILL_BATCH} jobs"]
    assert indexed(server, store, "c-1") == sorted(job_ids)
    assert violations(store) == []


def test_lists_are_true_while_an_index_is_built(app: mq.App, newer: mq.App, store: Store) -> None:
    """Asked after each step and all the while: a rare value is complete at any moment."""
    job = noop(app)
    words = ["rare" if nth % 90 == 7 else "common" for nth in range(900)]
    job_ids = job.enqueue_many(words, delay="1h")
    rare = sorted(job_id for job_id, word in zip(job_ids, words, strict=True) if word == "rare")
    store.declare_index(["customer"])
    for _ in range(4):
        assert listed(store, "rare", limit=500) == rare
        assert store.backfill() == ("customer", BACKFILL_BATCH)
    assert store.index_states() == {"customer": False}
    noop(newer)
    with worker_of(newer):
        while store.index_states() != READY:
            assert listed(store, "rare", limit=500) == rare
        assert listed(store, "rare", limit=500) == rare
    assert len(listed(store, "common", limit=500)) == 900 - len(rare)


def test_a_rolling_deploy_of_writers_converges(
    app: mq.App, newer: mq.App, store: Store, server: Server
) -> None:
    """Writers and workers of both releases at once, jobs in motion: each list equals the model."""
    releases = [noop(app), noop(newer)]
    slow = [noop(app, "slow", queue="slow"), noop(newer, "slow", queue="slow")]
    values = [f"c-{nth}" for nth in range(7)] + [""]
    before = dict.fromkeys(releases[0].enqueue_many(["c-0"] * 200), "c-0")
    started = threading.Barrier(4)

    def write(release: int, seed: int) -> dict[str, str]:
        """Enqueue for now and later, replace and remove; returns what is there, by id."""
        draw, mine = random.Random(seed), {}
        job, later = releases[release], slow[release]
        started.wait(30)
        for nth in range(60):
            word = draw.choice(values)
            mine[job.enqueue(word)] = word
            word = draw.choice(values)
            dedupe = mq.Dedupe(f"{seed}-{nth // 3}", replace=True)
            job_id = later.enqueue(word, delay="1h", dedupe=dedupe)
            mine[job_id] = word
            if nth % 10 == 9:
                assert later.remove(job_id)
                del mine[job_id]
        return mine

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(4))
        written = [pool.submit(write, nth % 2, nth) for nth in range(4)]
        for release in (app, newer, newer):
            stack.enter_context(worker_of(release, history_interval=SOON, concurrency=4))
        model = dict(before)
        for one in written:
            model.update(one.result(60))
        wait_until(lambda: store.index_states() == READY, 30, "the index")
        all_finished(store, 200 + 4 * 60, 30)
    for value in values[:-1]:
        wanted = sorted(job_id for job_id, word in model.items() if word == value)
        assert indexed(server, store, value) == wanted
        assert listed(store, value, limit=500) == wanted
    assert sum(store.counts().values()) == len(model)
    assert violations(store) == []


def test_after_the_store_was_emptied_the_next_look_declares_again(
    app: mq.App, newer: mq.App, store: Store, server: Server
) -> None:
    """A FLUSHALL under running workers: what comes before the look is back-filled, too."""
    plain = noop(app)
    noop(newer)
    with worker_of(newer, history_interval=SOON):
        wait_until(lambda: store.index_states() == READY, what="the index")
        for _ in range(5):
            server.cli("FLUSHALL")
            job_ids = [plain.enqueue("c-1") for _ in range(20)]
            wait_until(lambda: store.index_states() == READY, what="the index")
            job_ids += [plain.enqueue("c-1") for _ in range(20)]
            assert indexed(server, store, "c-1") == sorted(job_ids)
            assert listed(store, "c-1") == sorted(job_ids)
            finished(store, *job_ids)
        assert violations(store) == []


def test_a_key_that_a_later_release_declares_is_built_beside_those_that_are_ready(
    newer: mq.App, store: Store, server: Server
) -> None:
    """Jobs then stand under both, and leave both."""
    older = noop(newer)
    both = {"customer": "c-1", "region": "north"}
    job_ids = [older.enqueue("c-1", delay="1h", metadata={"region": "north"}) for _ in range(120)]
    assert store.index_states() == READY
    newest = mq.App(server.url)
    noop(newest, indexed_metadata=["region", "customer"])
    with worker_of(newest):
        wait_until(lambda: store.index_states() == {**READY, "region": True}, what="the index")
    assert indexed(server, store, "c-1") == sorted(job_ids)
    region = store.keys.metadata("region", "north")
    assert server.cli("ZCARD", region) == 120
    assert sorted(one.id for one in store.list(metadata=both, limit=500).items) == sorted(job_ids)
    assert violations(store) == []
    assert len(store.remove_where(metadata=both).ids) == 120
    assert server.cli("EXISTS", region, store.keys.metadata("customer", "c-1")) == 0
    newest.close()


def test_only_keys_of_the_store_that_is_served_are_declared_there(server: Server) -> None:
    """With or without a handler; a definition bound to another store is no affair of this one."""
    audit = Store(server.url, prefix="audit")
    app = mq.App(server.url, stores={"audit": audit})
    noop(app, indexed_metadata=["customer"])
    app.define("elsewhere-run", payload=str, indexed_metadata=["region"])
    noop(app, "audited", store="audit", indexed_metadata=["actor"], queue="audits")
    with worker_of(app), worker_of(app, store="audit"):
        wait_until(lambda: app.store.index_states() == {"customer": True, "region": True})
        wait_until(lambda: audit.index_states() == {"actor": True})
    app.close()


def test_jobs_go_on_while_an_index_is_built(app: mq.App, newer: mq.App, store: Store) -> None:
    """The back-fill is one duty among others: what is enqueued meanwhile runs."""
    noop(app).enqueue_many(["c-1"] * 1_000, delay="1h")
    job = noop(newer)
    with worker_of(newer):
        job_ids = [job.enqueue("c-2") for _ in range(50)]
        assert set(finished(store, *job_ids)) == {"completed"}
        wait_until(lambda: store.index_states() == READY, what="the index")
        assert listed(store, "c-2") == sorted(job_ids)
        assert {state(store, job_id) for job_id in listed(store, "c-2")} == {"completed"}
