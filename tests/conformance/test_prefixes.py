"""Stores side by side: prefixes, databases, destroy."""

from __future__ import annotations

import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, record, take
from servers import Server
from transitions.seed import raw, snapshot

from mq.clock import FakeClock
from mq.states import JobState
from mq.store import Store


def test_two_prefixes_on_one_database_never_meet(server: Server, clock: FakeClock) -> None:
    """Same queues, names, ids and tokens; whatever one does, the other is untouched."""
    mine = Store(server.url, prefix="mq", clock=clock)
    other = Store(server.url, prefix="mq.2", clock=clock)
    for store in (mine, other):
        store.enqueue_many([job("a"), job("b"), job("c"), job("later", delay_ms=1)])
    listener = other.endpoint.client().pubsub(ignore_subscribe_messages=True)
    listener.psubscribe(other.keys.root + "*")
    listener.get_message(timeout=1)
    before = snapshot(other)

    clock.advance(1)
    assert take(mine, 4) == ["a", "b", "c", "later"]
    for job_id in "abc":
        mine.watch(job_id)
    mine.progress("a", TOKEN, b"1")
    mine.extend([("a", TOKEN)], 1)
    mine.ack_completed("a", TOKEN, b"x" * 99)
    mine.ack_failed("b", TOKEN)
    mine.cancel("c")
    mine.release("c", TOKEN)
    clock.advance(LOCK_MS)
    mine.stall_sweep(0)
    mine.poke("worker")
    mine.wait([QUEUE], [NAME], 1)
    assert mine.counts()[JobState.WAITING] == 0
    mine.destroy()

    assert snapshot(other) == before
    assert listener.get_message(timeout=0.1) is None
    assert snapshot(mine) == {}
    assert other.counts()[JobState.WAITING] == 3
    listener.close()
    listener.connection_pool.disconnect()
    mine.close()
    other.close()


@pytest.mark.parametrize(("mine", "other"), [("mq", "mq2"), ("a", "a.a"), ("x.y", "xay")])
def test_destroy_deletes_one_prefix(
    server: Server, clock: FakeClock, mine: str, other: str
) -> None:
    """All of it, in bounded steps, and nothing else in the database."""
    stores = {prefix: Store(server.url, prefix=prefix, clock=clock) for prefix in (mine, other)}
    for store in stores.values():
        store.enqueue_many(job(f"j{at}") for at in range(1_200))
    raw(stores[mine]).set(f"{mine}:not-ours", "1")
    before = snapshot(stores[other])
    assert stores[mine].destroy() == len(before)
    assert snapshot(stores[mine]) == {}
    assert snapshot(stores[other]) == before
    assert raw(stores[mine]).get(f"{mine}:not-ours") == b"1"
    assert stores[mine].destroy() == 0
    assert stores[mine].enqueue(job("again")).duplicate is False
    for store in stores.values():
        store.close()


def test_two_databases_never_meet(real_server: Server) -> None:
    """Same prefix, another database."""
    first, second = Store(real_server.url), Store(real_server.url, db=13)
    first.enqueue(job("a"))
    assert second.get_job("a") is None
    assert second.enqueue(job("a")).duplicate is False
    assert record(first, "a").state is JobState.WAITING
    first.close()
    second.close()


def test_two_queues_with_the_same_names_keep_apart(store: Store) -> None:
    """Queue is part of every set."""
    store.enqueue_many([job("a", queue="q1"), job("b", queue="q2")])
    assert take(store, 5, queues=("q1",)) == ["a"]
    store.ack_completed("a", TOKEN)
    assert store.counts("q2")[JobState.WAITING] == 1
    assert store.counts("q1")[JobState.COMPLETED] == 1
