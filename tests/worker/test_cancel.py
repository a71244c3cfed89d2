"""Cancelling jobs that a worker holds: how it hears of it, what the handler does, what lands."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from unittest import mock

import pytest
from helpers import Processes, wait_until
from servers import Server
from transitions.invariants import violations
from worker import slow_child_jobs
from worker.build import (
    PROMPT_S,
    Gate,
    all_finished,
    finished,
    opened_after,
    outcomes,
    record,
    seen,
    start_worker,
    state,
    worker_of,
)

import mq
from mq import results
from mq.clock import FakeClock
from mq.store import Store
from mq.worker.run import Run

NAP = threading.Event()
"""Never set: a wait for it is a short nap of a handler, in a call that blocks."""

RARE = {"lock_duration": "600s", "lock_renew_interval": "599s"}
"""No heartbeat comes within any test."""
OFTEN = {"lock_duration": "30s", "lock_renew_interval": "0.05s"}
HOUR_MS = 3_600_000


@pytest.fixture
def app(server: Server) -> Iterator[mq.App]:
    """An app without jobs, on each back end."""
    made = mq.App(server.url)
    yield made
    made.close()


@pytest.fixture
def remote(one_server: Server) -> Iterator[mq.App]:
    """The app of cancel_jobs, as its producer sees it."""
    made = mq.App(one_server.url)
    for name in ("goes-on", "looks", "blocks", "ignores"):
        made.define(name, payload=str, result=str, attempts=5)
    for name in ("frees", "noop"):
        made.define(name, payload=type(None), result=None)
    yield made
    made.close()


def cancelled_once(store: Store, *job_ids: str) -> None:
    """Assert that each was cancelled in its first run, which left one entry and no exit."""
    for job_id in job_ids:
        found = record(store, job_id)
        assert (found.state.value, found.exit, found.cancel_requested) == ("cancelled", None, False)
        assert (found.attempts_made, found.stalled_count) == (1, 0)
        (entry,) = store.get_attempts(job_id)
        assert (entry.attempt, entry.outcome.value, entry.exit) == (1, "cancelled", None)
        assert entry.started_at == found.processed_at


def cancel_silently(store: Store, job_id: str) -> None:
    """Cancel a running job, and take back the push before anybody can hear it."""
    with pytest.raises(mq.JobNotFoundError):
        store.cancel("the script is loaded by this")
    worker = record(store, job_id).worker
    assert worker is not None
    caller = store._caller

    def call_and_take_back(name: str, args: Sequence[Any]) -> list[Any]:
        pipe = caller.client.pipeline(transaction=True)
        pipe.execute_command(*caller._evalsha(name, args))
        pipe.execute_command("DEL", store.keys.control(worker))
        reply, deleted = pipe.execute()
        assert deleted == 1
        return list(reply)

    with mock.patch.object(caller, "_call_once", call_and_take_back):
        assert store.cancel(job_id) == "cancel_requested"


def flag_by_hand(server: Server, store: Store, job_id: str) -> None:
    """Leave a cancel pending of which nobody is told."""
    server.cli("HSET", store.keys.job(job_id), "cancel_requested", "1")


def swept_an_hour_later(server: Server) -> list[str]:
    """What a stall sweep finds when every lock there may be is over."""
    later = Store(server.url, clock=FakeClock(int(time.time() * 1000) + HOUR_MS))
    swept = [one.id for one in later.stall_sweep(5)]
    later.close()
    return swept


# From another process


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_running_jobs_are_cancelled_from_another_process(
    remote: mq.App, one_server: Server, proc: Processes, executor: str
) -> None:
    """Those that poll, sleep or spin: each cleans up and lands once, and nothing revives it.

    The worker's heartbeat comes once a minute: all of them hear by the push. One that is not to be
    interrupted may also end with a value, which then stands.
    """
    store = remote.store
    ways = {
        "goes-on": ["polls", "checks", "sleeps", "naps", "spins"],
        "looks": ["polls", "checks", "sleeps"],
    }
    if executor == "process":
        # A signal interrupts a wait for a lock; a thread is not so lucky, see below.
        ways["goes-on"].append("blocks_in_c")
    words = [f"{name}/{how}" for name, hows in ways.items() for how in hows]
    every = [*words, "looks/stops"]
    start_worker(
        proc, one_server, "cancel_jobs:app",
        concurrency=len(every), executor=executor, lock_duration="120s",
    )  # fmt: skip
    *job_ids, stopped = [remote.jobs[word.partition("/")[0]].enqueue(word) for word in every]
    wait_until(lambda: sorted(seen(one_server, "began")) == sorted(every), 40, "all to begin")
    assert {store.cancel(job_id) for job_id in (*job_ids, stopped)} == {"cancel_requested"}
    assert finished(store, *job_ids) == ["cancelled"] * len(words)
    cancelled_once(store, *job_ids)
    assert finished(store, stopped) == ["completed"]
    told = [f"{word}: {part}" for word in every for part in ("with", "finally")]
    assert sorted(seen(one_server, "told")) == sorted(told)
    # One that waited to be run again would be run before this.
    assert finished(store, remote.jobs["noop"].enqueue(None)) == ["completed"]
    assert swept_an_hour_later(one_server) == []
    assert sorted(seen(one_server, "began")) == sorted(every)
    cancelled_once(store, *job_ids)
    assert outcomes(store, stopped) == ["completed"]
    assert remote.jobs["looks"].await_result(stopped) == "as if nothing had happened"
    with pytest.raises(mq.JobCancelledError):
        remote.jobs["goes-on"].await_result(job_ids[0])
    assert violations(store) == []


def test_whoever_cancels_need_not_be_the_producer(
    remote: mq.App, one_server: Server, proc: Processes
) -> None:
    """A third process, which knows no more than the address and the id."""
    start_worker(proc, one_server, "cancel_jobs:app", lock_duration="120s")
    job_id = remote.jobs["goes-on"].enqueue("goes-on/naps")
    wait_until(lambda: seen(one_server, "began") == ["goes-on/naps"], what="the job to begin")
    third = proc.python(
        "-c", f"import mq; print(mq.Store({one_server.url!r}).cancel({str(job_id)!r}))"
    )
    assert (third.wait(), third.stdout.strip()) == (0, "cancel_requested"), third.stderr
    assert finished(remote.store, job_id) == ["cancelled"]
    cancelled_once(remote.store, job_id)


def test_what_a_thread_that_ignores_its_cancel_returns_later_is_refused(
    remote: mq.App, one_server: Server, proc: Processes
) -> None:
    """It is given up after its grace: cancelled, its slot goes on, its result does not count."""
    store = remote.store
    worker = start_worker(
        proc, one_server, "cancel_jobs:app", concurrency=1, max_strays=1, lock_duration="120s"
    )
    job_id = remote.jobs["ignores"].enqueue("it")
    wait_until(lambda: seen(one_server, "began") == ["it"], what="the job to begin")
    assert store.cancel(job_id) == "cancel_requested"
    assert finished(store, job_id) == ["cancelled"]
    cancelled_once(store, job_id)
    assert seen(one_server, "told") == ["it: swallowed"]
    with pytest.raises(mq.JobNotCancellableError):
        store.cancel(job_id)
    assert finished(store, remote.jobs["noop"].enqueue(None)) == ["completed"]
    assert swept_an_hour_later(one_server) == []
    one_server.cli("RPUSH", "go:it", "")
    worker.wait_for("ended after it was given up")
    assert finished(store, remote.jobs["noop"].enqueue(None)) == ["completed"]
    cancelled_once(store, job_id)
    assert seen(one_server, "began") == ["it"]
    with pytest.raises(mq.JobCancelledError):
        remote.jobs["ignores"].await_result(job_id)


def test_a_child_process_that_ignores_its_cancel_is_killed(
    remote: mq.App, one_server: Server, proc: Processes
) -> None:
    """Cancelled, not failed for the death of its child, and the next job gets a new one."""
    store = remote.store
    worker = start_worker(
        proc, one_server, "cancel_jobs:app",
        concurrency=1, executor="process", lock_duration="120s",
    )  # fmt: skip
    job_id = remote.jobs["ignores"].enqueue("it")
    wait_until(lambda: seen(one_server, "began") == ["it"], 40, "the job to begin")
    assert store.cancel(job_id) == "cancel_requested"
    assert finished(store, job_id) == ["cancelled"]
    cancelled_once(store, job_id)
    assert seen(one_server, "told") == ["it: swallowed"]
    assert "its child process is killed" in worker.stderr
    assert finished(store, remote.jobs["noop"].enqueue(None), timeout=40) == ["completed"]
    assert swept_an_hour_later(one_server) == []
    cancelled_once(store, job_id)


def test_a_thread_that_blocks_is_cancelled_after_its_grace_and_cleans_up_when_it_can(
    remote: mq.App, one_server: Server, proc: Processes
) -> None:
    """The exception surfaces when the lock is free: the handler's clean-up runs, and no more."""
    store = remote.store
    worker = start_worker(
        proc, one_server, "cancel_jobs:app", concurrency=1, max_strays=1, lock_duration="120s"
    )
    job_id = remote.jobs["blocks"].enqueue("it/blocks_in_c")
    wait_until(lambda: seen(one_server, "began") == ["it/blocks_in_c"], what="the job to begin")
    store.cancel(job_id)
    assert finished(store, job_id) == ["cancelled"]
    assert seen(one_server, "told") == []
    assert finished(store, remote.jobs["frees"].enqueue(None)) == ["completed"]
    worker.wait_for("ended after it was given up")
    assert seen(one_server, "told") == ["it/blocks_in_c: with", "it/blocks_in_c: finally"]
    cancelled_once(store, job_id)


def test_a_cancel_is_not_outlived_by_the_death_of_its_worker(
    remote: mq.App, one_server: Server, proc: Processes
) -> None:
    """Killed with -9 while a cancel is pending: the sweep of another lands it, nobody runs it."""
    store = remote.store
    first = start_worker(proc, one_server, "cancel_jobs:app", lock_duration="1s")
    job_id = remote.jobs["ignores"].enqueue("it")
    wait_until(lambda: seen(one_server, "began") == ["it"], what="the job to begin")
    first.kill()
    assert store.cancel(job_id) == "cancel_requested"
    start_worker(proc, one_server, "cancel_jobs:app")
    assert finished(store, job_id) == ["cancelled"]
    assert outcomes(store, job_id) == ["cancelled"]
    assert record(store, job_id).stalled_count == 0
    assert finished(store, remote.jobs["noop"].enqueue(None)) == ["completed"]
    assert seen(one_server, "began") == ["it"]
    assert violations(store) == []


# How the worker hears of it


@pytest.mark.parametrize("concurrency", [1, 2], ids=["full", "hungry"])
def test_a_cancel_is_pushed(app: mq.App, store: Store, concurrency: int) -> None:
    """No heartbeat comes within the test; the worker listens while it is full, too."""
    gate = Gate()

    @app.job("wait", attempts=5, interrupt_grace="60s")
    def wait(payload: None, ctx: mq.Context) -> None:
        """Sleep for a minute, unless told otherwise."""
        gate.entered.release()
        ctx.sleep(60)

    with worker_of(app, concurrency=concurrency, **RARE):
        for _ in range(3):
            job_id = wait.enqueue(None)
            gate.await_entry()
            assert wait.cancel(job_id) == "cancel_requested"
            assert finished(store, job_id) == ["cancelled"]
            cancelled_once(store, job_id)
    assert violations(store) == []


def test_a_cancel_by_key_is_pushed(app: mq.App, store: Store) -> None:
    """And the key is free when it has landed."""
    gate = Gate()

    @app.job("wait", attempts=5, interrupt_grace="60s")
    def wait(payload: None, ctx: mq.Context) -> None:
        """Sleep for a minute, unless told otherwise."""
        gate.entered.release()
        ctx.sleep(60)

    with worker_of(app, **RARE):
        job_id = wait.enqueue(None, dedupe="key")
        gate.await_entry()
        assert wait.cancel_by_key("key") is True
        assert finished(store, job_id) == ["cancelled"]
        cancelled_once(store, job_id)
        assert wait.cancel_by_key("key") is False
        assert violations(store) == []
        again = wait.enqueue(None, dedupe="key")
        assert (again.duplicate, again == job_id) == (False, False)
        gate.await_entry()
        assert wait.cancel_by_key("key") is True
        assert finished(store, again) == ["cancelled"]


def test_a_cancel_whose_push_is_lost_is_told_by_the_heartbeat(app: mq.App, store: Store) -> None:
    """The guarantee behind the push."""
    gate = Gate()

    @app.job("wait", attempts=5, interrupt_grace="60s")
    def wait(payload: None, ctx: mq.Context) -> None:
        """Sleep for a minute, unless told otherwise."""
        gate.entered.release()
        ctx.sleep(60)

    with worker_of(app, **OFTEN):
        job_id = wait.enqueue(None)
        gate.await_entry()
        cancel_silently(store, job_id)
        assert finished(store, job_id) == ["cancelled"]
    cancelled_once(store, job_id)


def test_one_heartbeat_is_enough(app: mq.App, store: Store, server: Server) -> None:
    """Without push and heartbeat nobody knows; then one beat tells, of every job it holds."""
    gate = Gate()

    @app.job("wait", attempts=5, interrupt_grace="60s")
    def wait(number: int, ctx: mq.Context) -> None:
        """Sleep for a minute, unless told otherwise."""
        gate.entered.release()
        ctx.sleep(60)

    with worker_of(app, concurrency=6, **RARE) as worker:
        job_ids = wait.enqueue_many(range(6))
        gate.await_entry(6)
        for job_id in job_ids[:4]:
            flag_by_hand(server, store, job_id)
        assert not any(run.cancel_requested for run in worker.runs)
        assert worker.heartbeat.beat()
        assert finished(store, *job_ids[:4]) == ["cancelled"] * 4
        assert {state(store, job_id) for job_id in job_ids[4:]} == {"active"}
        assert store.cancel_where(name="wait").ids == job_ids[4:]
        assert finished(store, *job_ids) == ["cancelled"] * 6
    cancelled_once(store, *job_ids)


def test_a_push_that_overtakes_the_answer_of_the_claim_is_kept_for_the_run(
    app: mq.App, store: Store, server: Server
) -> None:
    """The worker does not know yet that it holds the job; no heartbeat comes to make up for it."""
    gate = Gate()
    claimed, go_on = threading.Event(), threading.Event()

    @app.job("wait", attempts=5, interrupt_grace="60s")
    def wait(first: bool, ctx: mq.Context) -> None:
        """The first waits for the test, the second for its cancel."""
        if first:
            gate.stop_here()
        else:
            ctx.sleep(60)

    worker = worker_of(app, concurrency=1, **RARE)
    take = worker.fetcher._take

    def take_late(claim: Any, request: Any) -> None:
        if gate.opened.is_set() and claim.jobs:
            claimed.set()
            go_on.wait(PROMPT_S)
        take(claim, request)

    worker.fetcher._take = take_late  # type: ignore[method-assign] # an answer that is slow to come
    with worker, opened_after(gate):
        first, second = wait.enqueue(True), wait.enqueue(False)
        gate.await_entry()
        # Claimed with the ack of the first, while the listener waits for pushes alone.
        gate.opened.set()
        assert claimed.wait(PROMPT_S)
        assert wait.cancel(second) == "cancel_requested"
        control = store.keys.control(worker.options.id)
        wait_until(lambda: not server.cli("EXISTS", control), what="the push to be taken")
        go_on.set()
        assert finished(store, first, second) == ["completed", "cancelled"]
    cancelled_once(store, second)


def test_a_push_that_is_heard_late_does_not_reach_a_later_run(app: mq.App, store: Store) -> None:
    """The run it was meant for has failed for good, and the job was retried: nobody cancelled that.

    The listener took the push from Redis and was slow to act, as after a lost connection.
    """
    taken, go_on, acted = threading.Event(), threading.Event(), threading.Event()
    gates = [Gate(), Gate()]

    @app.job("job", interrupt_grace="60s", interrupt=False)
    def job(payload: None, ctx: mq.Context) -> bool:
        """Fail the first time; then tell whether it was cancelled."""
        gates[ctx.attempt - 1].stop_here()
        if ctx.attempt == 1:
            raise ValueError("for good")
        return bool(ctx.cancelled)

    worker = worker_of(app, concurrency=1, **RARE)
    wait, control = worker.listener._waiter.wait, store.keys.control(worker.options.id)

    def wait_and_dawdle(keys: Any, timeout_ms: int) -> tuple[str, str] | None:
        if go_on.is_set():
            acted.set()
        popped = wait(keys, timeout_ms)
        if popped is not None and popped[0] == control and popped[1]:
            taken.set()
            go_on.wait(PROMPT_S)
        return popped

    worker.listener._waiter.wait = wait_and_dawdle  # type: ignore[method-assign]
    with worker, opened_after(gates[0]), opened_after(gates[1]):
        job_id = job.enqueue(None)
        gates[0].await_entry()
        assert job.cancel(job_id) == "cancel_requested"
        assert taken.wait(PROMPT_S)
        gates[0].opened.set()
        assert finished(store, job_id) == ["failed"]
        job.retry(job_id)
        worker.fetcher.look()
        gates[1].await_entry()
        go_on.set()
        assert acted.wait(PROMPT_S)
        gates[1].opened.set()
        assert job.await_result(job_id, timeout=PROMPT_S) is False
    assert outcomes(store, job_id) == ["failed", "completed"]


@pytest.mark.parametrize("interrupt", [True, False])
def test_a_cancel_between_claim_and_start_keeps_the_handler_from_running(
    app: mq.App, store: Store, interrupt: bool
) -> None:
    """The worker holds the job and knows of the cancel before a slot takes it up."""
    ran: list[int] = []
    held: queue.SimpleQueue[Run] = queue.SimpleQueue()

    @app.job("note", attempts=5, interrupt=interrupt)
    def note(number: int) -> None:
        """Tell the number."""
        ran.append(number)

    worker = worker_of(app, **RARE)
    start_run = worker.fetcher._start_run
    worker.fetcher._start_run = held.put  # a slot that takes its time
    with worker:
        first, second = note.enqueue(1), note.enqueue(2)
        runs = {run.job_id: run for run in (held.get(timeout=PROMPT_S), held.get(timeout=PROMPT_S))}
        assert note.cancel(first) == "cancel_requested"
        wait_until(lambda: runs[first].cancel_requested, what="the push")
        for run in runs.values():
            start_run(run)
        assert finished(store, first, second) == ["cancelled", "completed"]
    assert ran == [2]
    cancelled_once(store, first)
    assert outcomes(store, second) == ["completed"]


def test_a_cancel_while_a_child_process_starts_keeps_the_handler_from_running(
    one_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its app takes a second to import; the job lands cancelled, and the child serves the next."""
    monkeypatch.setenv("MQ_URL", one_server.url)
    app = slow_child_jobs.app
    app._stores.clear()
    where = slow_child_jobs.where
    with worker_of(app, concurrency=1, executor="process", **RARE) as worker:
        job_id = where.enqueue("x", attempts=5)
        wait_until(lambda: any(run.elsewhere for run in worker.runs), what="the slot to take it up")
        assert where.cancel(job_id) == "cancel_requested"
        (run,) = worker.runs
        assert not run.started
        assert finished(app.store, job_id, timeout=30) == ["cancelled"]
        assert not run.started
        cancelled_once(app.store, job_id)
        assert where.execute("x", wait=30)
    app.close()
    app._stores.clear()


def test_asked_for_twice_it_lands_once(app: mq.App, store: Store) -> None:
    """The same answer while it is pending, a refusal once it has landed."""
    gate = Gate()

    @app.job("stubborn", attempts=5, interrupt=False, interrupt_grace="60s")
    def stubborn(payload: None) -> None:
        """Fail when the test says so."""
        gate.stop_here()
        raise ValueError("at last")

    with worker_of(app, **RARE), opened_after(gate):
        job_id = stubborn.enqueue(None)
        gate.await_entry()
        assert [store.cancel(job_id) for _ in range(3)] == ["cancel_requested"] * 3
        gate.opened.set()
        assert finished(store, job_id) == ["cancelled"]
        with pytest.raises(mq.JobNotCancellableError, match="is cancelled"):
            store.cancel(job_id)
    cancelled_once(store, job_id)


# What the handler does about it


def test_without_interrupt_the_flag_alone_tells(app: mq.App, store: Store) -> None:
    """Nothing is raised in the handler: it ends in its own way, or is cancelled for an error."""
    gate = Gate()
    raised: list[str] = []

    @app.job("looks", attempts=5, interrupt=False, interrupt_grace="60s")
    def looks(then: str, ctx: mq.Context) -> str:
        """Look at the flag until it is set, and a while longer."""
        gate.entered.release()
        try:
            while not ctx.cancelled:
                sum(range(50))
            for _ in range(2_000):
                sum(range(50))
        except BaseException as error:
            raised.append(repr(error))
            raise
        if then == "raise":
            raise ValueError("for the cancel")
        return "what there is"

    with worker_of(app, **RARE):
        told = {then: looks.enqueue(then) for then in ("raise", "return")}
        gate.await_entry(2)
        for job_id in told.values():
            looks.cancel(job_id)
        assert finished(store, *told.values()) == ["cancelled", "completed"]
    assert raised == []
    cancelled_once(store, told["raise"])
    assert looks.await_result(told["return"]) == "what there is"


@pytest.mark.parametrize("attempts", [1, 5])
def test_one_that_is_not_interrupted_and_does_not_look_is_given_up_after_its_grace(
    app: mq.App, store: Store, attempts: int
) -> None:
    """Its slot serves the next job; what it returns later is refused."""
    gate = Gate()

    @app.job("deaf", attempts=attempts, interrupt=False, interrupt_grace="100ms")
    def deaf(payload: None) -> str:
        """Take no notice."""
        gate.stop_here()
        return "too late"

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    with worker_of(app, concurrency=1, **RARE) as worker, opened_after(gate):
        job_id = deaf.enqueue(None)
        gate.await_entry()
        deaf.cancel(job_id)
        assert finished(store, job_id) == ["cancelled"]
        assert worker.strays == 1
        assert finished(store, noop.enqueue(None)) == ["completed"]
        gate.opened.set()
        wait_until(lambda: worker.strays == 0, what="the stray to end")
    cancelled_once(store, job_id)


@pytest.mark.parametrize(("ends", "lands"), [("raise", "cancelled"), ("return", "completed")])
def test_on_unresponsive_wait_keeps_slot_and_lock_until_the_handler_ends(
    app: mq.App, store: Store, lines: Callable[..., list[str]], ends: str, lands: str
) -> None:
    """Then what it comes to is judged as ever: a value stands, an error is cancelled."""
    gate = Gate()

    @app.job("alone", attempts=5, interrupt=False, interrupt_grace="50ms", on_unresponsive="wait")
    def alone(how: str) -> str:
        """End when the test says so."""
        gate.stop_here()
        if how == "raise":
            raise ValueError("late")
        return "late"

    with worker_of(app, concurrency=1, **RARE) as worker, opened_after(gate):
        job_id = alone.enqueue(ends)
        gate.await_entry()
        alone.cancel(job_id)
        wait_until(
            lambda: any("slot and lock are kept" in line for line in lines()),
            what="the grace to pass",
        )
        assert (state(store, job_id), outcomes(store, job_id)) == ("active", [])
        assert (worker.strays, len(worker.runs)) == (0, 1)
        gate.opened.set()
        assert finished(store, job_id) == [lands]
    assert outcomes(store, job_id) == [lands]
    assert (ends == "return") == (record(store, job_id).exit is not None)


# Races


@pytest.mark.parametrize("told", ["by-flag", "by-interrupt", "not"])
def test_a_value_returned_after_the_cancel_was_asked_for_stands(
    app: mq.App, store: Store, server: Server, told: str
) -> None:
    """Whether or not the handler has heard of it, within its grace: completed, and nothing else."""
    gate = Gate()

    @app.job("returns", attempts=5, interrupt=told == "by-interrupt", interrupt_grace="60s")
    def returns(payload: None, ctx: mq.Context) -> str:
        """Return once there is a cancel."""
        if told == "not":
            gate.stop_here()
        try:
            gate.entered.release()
            while told != "not" and not (told == "by-flag" and ctx.cancelled):
                sum(range(50))
        except mq.Interrupted:
            return "a value"
        return "a value"

    with worker_of(app, **RARE), opened_after(gate):
        job_id = returns.enqueue(None)
        gate.await_entry()
        if told == "not":
            flag_by_hand(server, store, job_id)
            gate.opened.set()
        else:
            assert returns.cancel(job_id) == "cancel_requested"
        assert returns.await_result(job_id, timeout=PROMPT_S) == "a value"
    assert outcomes(store, job_id) == ["completed"]
    assert record(store, job_id).cancel_requested is False
    assert violations(store) == []


@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
def test_a_cancel_wins_over_a_retry(app: mq.App, store: Store, server: Server, told: bool) -> None:
    """An error with budget left: cancelled, never retried, and `on_failure` has nothing to say."""
    gate = Gate()
    hooked: list[str] = []

    @app.job(
        "fails", attempts=5, interrupt=False, interrupt_grace="60s",
        on_failure=lambda error, ctx: hooked.append(ctx.job_id),
    )  # fmt: skip
    def fails(payload: str) -> None:
        """Fail when the test says so."""
        if payload == "wait":
            gate.stop_here()
        raise ValueError("with budget left")

    with worker_of(app, **RARE) as worker, opened_after(gate):
        job_id = fails.enqueue("wait")
        gate.await_entry()
        if told:
            fails.cancel(job_id)
            wait_until(lambda: all(run.cancel_requested for run in worker.runs), what="the push")
        else:
            flag_by_hand(server, store, job_id)
        gate.opened.set()
        assert finished(store, job_id) == ["cancelled"]
        other = fails.enqueue("at once", attempts=1)
        wait_until(lambda: hooked == [other], what="the hook of the other job")
    cancelled_once(store, job_id)
    assert violations(store) == []


@pytest.mark.parametrize("how", ["last attempt", "unrecoverable"])
def test_a_final_failure_wins_over_a_pending_cancel(
    app: mq.App, store: Store, server: Server, how: str
) -> None:
    """The worker has not heard of the cancel, and the run was the last: its failure is kept."""
    gate = Gate()

    @app.job("fails", interrupt=False)
    def fails(payload: None) -> None:
        """Fail when the test says so."""
        gate.stop_here()
        error = ValueError("the end")
        raise mq.unrecoverable(error) if how == "unrecoverable" else error

    with worker_of(app, **RARE), opened_after(gate):
        job_id = fails.enqueue(None, attempts=5 if how == "unrecoverable" else 1)
        gate.await_entry()
        flag_by_hand(server, store, job_id)
        gate.opened.set()
        assert finished(store, job_id) == ["failed"]
    assert outcomes(store, job_id) == ["failed"]
    with pytest.raises(mq.JobFailedError, match="the end"):
        fails.await_result(job_id)
    assert violations(store) == []


def test_an_error_of_a_handler_that_was_told_is_a_cancel_even_in_its_last_run(
    app: mq.App, store: Store
) -> None:
    """What it raised on its way out is not taken for a failure of the job."""
    gate = Gate()

    @app.job("stumbles", interrupt_grace="60s")
    def stumbles(payload: None, ctx: mq.Context) -> None:
        """Raise an error of its own when it is interrupted."""
        gate.entered.release()
        try:
            ctx.sleep(60)
        except mq.Interrupted:
            raise ValueError("while cleaning up") from None

    with worker_of(app, **RARE):
        job_id = stumbles.enqueue(None)
        gate.await_entry()
        stumbles.cancel(job_id)
        assert finished(store, job_id) == ["cancelled"]
    cancelled_once(store, job_id)


def test_a_cancel_that_comes_when_the_time_is_over_wins_over_the_time_out(
    app: mq.App, store: Store
) -> None:
    """The run was told to end for its limit, and is cancelled within the grace of that."""
    gate = Gate()
    over = threading.Event()

    @app.job("slow", attempts=5, timeout="50ms", interrupt=False, interrupt_grace="60s")
    def slow(payload: None, ctx: mq.Context) -> None:
        """Fail some time after the limit."""
        ctx.cancelled.wait(60)
        over.set()
        gate.stop_here()
        ctx.check()

    with worker_of(app, **RARE) as worker, opened_after(gate):
        job_id = slow.enqueue(None)
        assert over.wait(PROMPT_S)
        slow.cancel(job_id)
        wait_until(lambda: all(run.cancel_requested for run in worker.runs), what="the push")
        gate.opened.set()
        assert finished(store, job_id) == ["cancelled"]
    cancelled_once(store, job_id)


@pytest.mark.parametrize("handler", ["stubborn", "polite"])
@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
def test_a_cancel_wins_over_the_shutdown_of_its_worker(
    app: mq.App, store: Store, server: Server, handler: str, told: bool
) -> None:
    """The job that would be given back lands cancelled: the next worker finds nothing to run."""
    gate = Gate()
    runs: list[str] = []

    @app.job("waits", attempts=5, interrupt=False, interrupt_grace="60s")
    def waits(payload: None, ctx: mq.Context) -> None:
        """Take no notice of anything, or end when a stop is out of patience."""
        runs.append(ctx.job_id)
        if handler == "stubborn":
            gate.stop_here()
            return
        gate.entered.release()
        while True:
            NAP.wait(0.002)
            if gate.opened.is_set():
                ctx.check()

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    worker = worker_of(app, shutdown_grace=0, **RARE)
    with worker, opened_after(gate):
        job_id = waits.enqueue(None)
        gate.await_entry()
        if told:
            waits.cancel(job_id)
            wait_until(lambda: all(run.cancel_requested for run in worker.runs), what="the push")
        else:
            flag_by_hand(server, store, job_id)
        if handler == "polite":
            gate.opened.set()
        worker.stop()
    assert state(store, job_id) == "cancelled"
    assert outcomes(store, job_id) == ["cancelled"]
    with worker_of(app):
        assert finished(store, noop.enqueue(None)) == ["completed"]
    assert runs == [job_id]
    assert violations(store) == []


def test_a_cancel_wins_over_a_stall(app: mq.App, store: Store) -> None:
    """Held by a worker that is gone: the sweep of a living one lands it, nobody runs it."""
    ran: list[str] = []

    @app.job("note", attempts=5)
    def note(word: str) -> None:
        """Tell the word."""
        ran.append(word)

    job_id = note.enqueue("lost")
    claim = store.claim(["default"], ["note"], "token", 1, worker="gone")
    assert [one.id for one in claim.jobs] == [job_id]
    assert note.cancel(job_id) == "cancel_requested"
    with worker_of(app, stalled_interval="0.05s"):
        assert finished(store, job_id) == ["cancelled"]
        assert finished(store, note.enqueue("next")) == ["completed"]
    assert ran == ["next"]
    (entry,) = store.get_attempts(job_id)
    assert (entry.outcome.value, entry.worker_id, entry.exit) == ("cancelled", "gone", None)
    assert record(store, job_id).stalled_count == 0
    assert violations(store) == []


def ask_for_each(
    store: Store, ending: queue.SimpleQueue[str | None], answers: dict[str, list[str]]
) -> None:
    """Cancel job after job as their ids come, until None comes; note what is answered."""
    while (job_id := ending.get()) is not None:
        try:
            answer = store.cancel(job_id)
        except mq.JobNotCancellableError as error:
            answer = f"is {error.state}"
        answers.setdefault(job_id, []).append(answer)


def test_a_cancel_at_the_very_end_of_a_run_lands_once_or_comes_too_late(
    app: mq.App, store: Store
) -> None:
    """Hundreds of times: no job is lost or ends twice, and no interrupt reaches another job."""
    number = 300
    ending: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    answers: dict[str, list[str]] = {}

    @app.job("ends", attempts=3, interrupt_grace="60s")
    def ends(nth: int, ctx: mq.Context) -> int:
        """Tell that it is about to end, and end: with a value or an error, now or in a moment."""
        ending.put(ctx.job_id)
        if nth % 10 == 9:
            ctx.sleep(60)
        sum(range(nth % 7 * 1_000))
        if nth % 3 == 0:
            raise ValueError("at the end")
        return nth

    @app.job("next")
    def following(nth: int) -> int:
        """Run where an interrupt that comes late would hit."""
        return sum(range(nth))

    with ThreadPoolExecutor(2) as pool, worker_of(app, concurrency=4, **RARE):
        asking = [pool.submit(ask_for_each, store, ending, answers) for _ in range(2)]
        job_ids = ends.enqueue_many(range(number))
        others = following.enqueue_many(range(number))
        counts = all_finished(store, 2 * number, 60)
        for _ in asking:
            ending.put(None)
        for one in asking:
            one.result(PROMPT_S)
    assert sum(counts.values()) == 2 * number
    assert {tuple(outcomes(store, job_id)) for job_id in others} == {("completed",)}
    for nth, job_id in enumerate(job_ids):
        landed, ledger = state(store, job_id), outcomes(store, job_id)
        assert ledger == ["retried"] * (len(ledger) - 1) + [landed], (nth, ledger)
        if landed == "cancelled":
            assert {"cancel_requested", "cancelled"} & set(answers[job_id])
        else:
            assert landed == ("failed" if nth % 3 == 0 else "completed")
            assert nth % 10 != 9
    assert violations(store) == []


# Many, and those who wait


def test_all_running_jobs_of_several_workers_are_cancelled_at_once(
    app: mq.App, store: Store
) -> None:
    """Fifty of them, by one call; each handler cleans up, by the push alone."""
    gate = Gate()
    left: queue.SimpleQueue[int] = queue.SimpleQueue()

    @app.job("wait", attempts=5, interrupt_grace="60s")
    def wait(number: int, ctx: mq.Context) -> None:
        """Sleep for a minute, unless told otherwise."""
        try:
            gate.entered.release()
            ctx.sleep(60)
        finally:
            left.put(number)

    with ExitStack() as stack:
        workers = [
            stack.enter_context(worker_of(app, concurrency=25, max_strays=0, **RARE))
            for _ in range(2)
        ]
        job_ids = wait.enqueue_many(range(50))
        gate.await_entry(50)
        assert [len(worker.runs) for worker in workers] == [25, 25]
        done = wait.cancel_where(states=["active"])
        assert (sorted(done.ids), done.refused) == (sorted(job_ids), {})
        assert all_finished(store, 50) == {"cancelled": 50}
        wait_until(lambda: not any(len(worker.runs) for worker in workers))
        assert [worker.strays for worker in workers] == [0, 0]
    cancelled_once(store, *job_ids)
    assert sorted(left.get(timeout=PROMPT_S) for _ in range(50)) == list(range(50))
    assert violations(store) == []


@pytest.mark.parametrize("delay", [None, "1h"], ids=["waiting", "delayed"])
def test_who_awaits_a_job_that_never_ran_is_told_of_its_cancel_at_once(
    app: mq.App, store: Store, monkeypatch: pytest.MonkeyPatch, delay: str | None
) -> None:
    """By a push: the waiter does not look by itself within the test."""
    monkeypatch.setattr(results, "PUSHED_LOOK_S", 600.0)
    plain = app.define("plain", payload=type(None))
    with ThreadPoolExecutor(1) as waiter:
        job_id = plain.enqueue(None, delay=delay)
        asked = waiter.submit(plain.await_result, job_id, 60)
        wait_until(lambda: store.doorbell.connected, what="the subscription")
        awaited = store.keys.job(job_id)
        client = store._caller.client
        wait_until(lambda: client.hexists(awaited, "awaited"), what="the waiter")
        assert plain.cancel(job_id) == "cancelled"
        with pytest.raises(mq.JobCancelledError) as told:
            asked.result(PROMPT_S)
    assert (told.value.job_id, told.value.state) == (job_id, "cancelled")
    (entry,) = store.get_attempts(job_id)
    assert (entry.outcome.value, entry.started_at, entry.exit) == ("cancelled", None, None)


def test_a_job_that_was_cancelled_before_any_worker_came_does_not_run(
    app: mq.App, store: Store
) -> None:
    """Waiting or delayed: the cancel stands in the store, not in a worker."""
    ran: list[str] = []

    @app.job("note", attempts=5)
    def note(word: str) -> None:
        """Tell the word."""
        ran.append(word)

    job_ids = [note.enqueue("waiting"), note.enqueue("delayed", delay="0.2s")]
    assert [note.cancel(job_id) for job_id in job_ids] == ["cancelled", "cancelled"]
    with worker_of(app):
        # Due after the one that was cancelled.
        assert finished(store, note.enqueue("last", delay="0.4s")) == ["completed"]
    assert ran == ["last"]
    assert [outcomes(store, job_id) for job_id in job_ids] == [["cancelled"], ["cancelled"]]
