"""Dedup keys with real producers and workers: many at once, crashes, upkeep, and the typed side."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import Processes, wait_until
from servers import Server
from transitions.invariants import violations
from transitions.seed import raw
from worker.build import (
    Gate,
    finished,
    launch_worker,
    opened_after,
    outcomes,
    record,
    seen,
    start_worker,
    state,
    worker_of,
)

import mq
from mq.store import Store

PRODUCERS = 64
KEY = "one at a time"


def holder(store: Store, name: str, key: str = KEY) -> str | None:
    """The job that a key stands for; None when it is free."""
    found = raw(store).hget(store.keys.dedup(name, key), "id")
    return None if found is None else found.decode()


def all_at_once(server: Server, word: str) -> set[str]:
    """Let many producers, each with a store of its own, enqueue one key; the ids they were told."""
    start = threading.Barrier(PRODUCERS, timeout=60)
    apps = [mq.App(server.url) for _ in range(PRODUCERS)]

    def produce(app: mq.App) -> mq.JobId:
        job = app.define("stay", payload=str, result=str)
        app.store.check()
        start.wait()
        return job.enqueue(word, dedupe=KEY)

    with ThreadPoolExecutor(PRODUCERS) as producers:
        told = list(producers.map(produce, apps))
    for app in apps:
        app.close()
    assert sum(not one.duplicate for one in told) == 1
    return {str(one) for one in told}


def test_of_many_producers_one_enqueues_and_a_crash_leaves_the_key_true(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """Whatever becomes of the job and its worker, the key says what the job's state says."""
    store, stay = process_app.store, process_app.jobs["stay"]

    def began(*words: str) -> bool:
        return seen(one_server, "began") == list(words)

    (first,) = all_at_once(one_server, "a")
    assert holder(store, "stay") == first
    doomed = start_worker(proc, one_server, lock_duration="2s")
    wait_until(lambda: began("a"))
    assert stay.enqueue("b", dedupe=KEY) == first
    one_server.cli("RPUSH", "go:a", "")
    assert finished(store, first) == ["completed"]
    assert holder(store, "stay") is None

    (second,) = all_at_once(one_server, "b")
    assert second != first
    assert sum(store.counts(name="stay").values()) == 2
    wait_until(lambda: began("a", "b"))
    doomed.signal(signal.SIGKILL)
    assert doomed.wait() == -signal.SIGKILL
    again = stay.enqueue("lost?", dedupe=KEY)
    assert (again, again.duplicate, state(store, second)) == (second, True, "active")

    start_worker(proc, one_server)
    wait_until(lambda: began("a", "b", "b"))
    assert outcomes(store, second) == ["stalled"]
    again = stay.enqueue("while it runs again", dedupe=KEY)
    assert (again, again.duplicate, holder(store, "stay")) == (second, True, second)
    one_server.cli("RPUSH", "go:b", "")
    assert finished(store, second) == ["completed"]
    assert holder(store, "stay") is None

    third = stay.enqueue("c", dedupe=KEY)
    assert (third.duplicate, holder(store, "stay")) == (False, third)
    one_server.cli("RPUSH", "go:c", "")
    assert finished(store, third) == ["completed"]
    assert sum(store.counts(name="stay").values()) == 3
    assert violations(store) == []


def test_a_job_that_kills_its_workers_frees_its_key_when_it_is_given_up(
    process_app: mq.App, one_server: Server, proc: Processes
) -> None:
    """The stall limit is an end like any other: later jobs are not dropped for ever."""
    store, poison = process_app.store, process_app.jobs["poison"]
    job_id = poison.enqueue("x", dedupe=KEY)
    assert launch_worker(proc, one_server, lock_duration="1s").wait() == -signal.SIGKILL
    assert poison.enqueue("x", dedupe=KEY) == job_id
    start_worker(proc, one_server, queue="another", max_stalled_count=0)
    assert finished(store, job_id) == ["failed"]
    assert holder(store, "poison") is None
    assert not poison.enqueue("x", dedupe=KEY).duplicate
    assert violations(store) == []


def test_a_worker_deletes_windows_that_are_over(app: mq.App, store: Store) -> None:
    """With its job run or not; a window that is open stays."""
    quick = app.define("quick", payload=str)
    quick.handler(lambda payload: None)
    ran = quick.enqueue("", dedupe=mq.Dedupe("short", ttl="50ms"))
    quick.enqueue("", queue="nobody", dedupe=mq.Dedupe("parked", ttl="50ms"))
    open_ = quick.enqueue("", dedupe=mq.Dedupe("long", ttl="1h"))
    with worker_of(app, history_interval="50ms"):
        assert finished(store, ran) == ["completed"]
        for key in ("short", "parked"):
            wait_until(lambda key=key: holder(store, "quick", key) is None, what=f"{key} to go")
    assert holder(store, "quick", "long") == open_
    assert raw(store).zrange(store.keys.windows(), 0, -1) == [b"quick:long"]
    assert violations(store) == []


def test_every_window_that_is_over_goes_in_one_look(app: mq.App, store: Store) -> None:
    """More than one call may delete: a worker that starts later clears all at once."""
    job = app.define("job", payload=str)
    job.handler(lambda payload: None)
    for at in range(120):
        job.enqueue("", queue="nobody", dedupe=mq.Dedupe(f"k{at}", ttl=0))
    with worker_of(app, history_interval="1h"):
        wait_until(lambda: not raw(store).exists(store.keys.windows()), what="the windows to go")
    assert violations(store) == []


def test_execute_under_a_key_awaits_the_job_that_has_it(app: mq.App, store: Store) -> None:
    """The result is the keyed job's, whatever was given."""
    gate = Gate()

    @app.job("gated")
    def gated(payload: str) -> str:
        gate.stop_here()
        return payload

    with opened_after(gate), worker_of(app), ThreadPoolExecutor(1) as waiter:
        first = gated.enqueue("first", dedupe=KEY)
        gate.await_entry()
        asked = waiter.submit(gated.execute, "second", wait=60, dedupe=KEY)
        wait_until(lambda: raw(store).hexists(store.keys.job(first), "awaited"))
        gate.opened.set()
        assert asked.result(30) == "first"
        assert gated.execute("third", wait=60, dedupe=KEY) == "third"
    assert sum(store.counts(name="gated").values()) == 2


def test_a_running_job_is_interrupted_by_its_key(app: mq.App, store: Store) -> None:
    """Its key is its own until it has ended, and free then."""
    gate = Gate()

    @app.job("long", interrupt=False, interrupt_grace="60s")
    def long(payload: str, ctx: mq.Context) -> None:
        gate.stop_here()
        ctx.cancelled.wait(60)
        ctx.check()

    with opened_after(gate), worker_of(app):
        job_id = long.enqueue("", dedupe=KEY)
        gate.await_entry()
        assert long.cancel_by_key(KEY)
        assert record(store, job_id).cancel_requested
        assert long.enqueue("", dedupe=KEY) == job_id
        assert long.cancel_by_key(KEY)
        gate.opened.set()
        with pytest.raises(mq.JobCancelledError):
            long.await_result(job_id, timeout=30)
        assert long.cancel_by_key(KEY) is False
        assert holder(store, "long") is None
    assert outcomes(store, job_id) == ["cancelled"]


def test_a_debounced_job_runs_once_with_what_came_last(app: mq.App, store: Store) -> None:
    """The delayed job carries the latest payload when a worker gets to it."""
    ran: list[str] = []

    @app.job("reindex", dedupe=lambda _: mq.Dedupe(KEY, replace=True))
    def reindex(payload: str) -> str:
        ran.append(payload)
        return payload

    ids = {reindex.enqueue(str(n), delay="1h") for n in range(3)}
    ids |= set(reindex.enqueue_many(["3", "4"], delay="1h"))
    with worker_of(app):
        ids.add(reindex.enqueue("last", delay=0))
        (job_id,) = ids
        assert reindex.await_result(job_id, timeout=30) == "last"
    assert ran == ["last"]
    assert outcomes(store, job_id) == ["completed"]
    assert violations(store) == []
