"""What servers do: forget scripts, restart, run full, turn read-only, be somebody else's."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, outcomes, record, take
from proxy import Proxy
from servers import Server, ServerPool
from transitions.invariants import violations
from transitions.seed import raw, snapshot

from mq.clock import FakeClock
from mq.errors import StoreError
from mq.records import Ack, ClaimRequest
from mq.states import JobState
from mq.store import Store

SCRIPT_VERBS: dict[str, Callable[[Store], Any]] = {
    "enqueue": lambda s: s.enqueue(job("other")),
    "enqueue_many": lambda s: s.enqueue_many([job("other")]),
    "claim": lambda s: s.claim([QUEUE], [NAME], TOKEN, LOCK_MS),
    "extend": lambda s: s.extend([("a", TOKEN)], LOCK_MS),
    "ack_completed": lambda s: s.ack_completed("a", TOKEN),
    "ack_retried": lambda s: s.ack_retried("a", TOKEN, 0),
    "ack_failed": lambda s: s.ack_failed("a", TOKEN),
    "ack_cancelled": lambda s: s.ack_cancelled("a", TOKEN),
    "release": lambda s: s.release("a", TOKEN),
    "stall_sweep": lambda s: s.stall_sweep(1),
    "progress": lambda s: s.progress("a", TOKEN, b"1"),
    "watch": lambda s: s.watch("a"),
    "get_job": lambda s: s.get_job("a"),
    "get_attempts": lambda s: s.get_attempts("a"),
    "get_states": lambda s: s.get_states(["a"]),
    "counts": lambda s: s.counts(),
}


def _flush_scripts(store: Store) -> None:
    raw(store).script_flush()


@pytest.mark.parametrize("verb", SCRIPT_VERBS)
def test_every_verb_survives_a_lost_script_cache(store: Store, verb: str) -> None:
    """The script is loaded again and the call made once more."""
    store.enqueue(job("a"))
    take(store)
    _flush_scripts(store)
    SCRIPT_VERBS[verb](store)
    assert violations(store) == []


def test_a_whole_life_survives_a_flush_before_every_step(store: Store) -> None:
    """Nothing happens twice."""
    _flush_scripts(store)
    store.enqueue_many([job("a"), job("b")])
    for number in range(3):
        _flush_scripts(store)
        assert take(store) == ["ab"[number % 2]]
        _flush_scripts(store)
        store.ack_retried("ab"[number % 2], TOKEN, 0, b"e")
    _flush_scripts(store)
    assert (outcomes(store, "a"), outcomes(store, "b")) == (["retried"] * 2, ["retried"])
    assert violations(store) == []


@pytest.mark.parametrize("flush_before", [0, 1, 2, 3])
def test_a_flush_between_two_calls_of_one_pipeline(
    store: Store, monkeypatch: pytest.MonkeyPatch, flush_before: int
) -> None:
    """Only the calls that found no script are made again."""
    store.enqueue_many(job(job_id) for job_id in "abcd")
    take(store, 3)
    real_pipeline = store._caller.client.pipeline
    sent: list[str] = []

    def pipeline(transaction: bool) -> Any:
        pipe = real_pipeline(transaction=transaction)
        execute = pipe.execute_command

        def execute_command(*args: Any) -> Any:
            if len(sent) == flush_before:
                execute("SCRIPT FLUSH")
            sent.append(args[1])
            return execute(*args)

        pipe.execute_command = execute_command
        run = pipe.execute

        def without_the_flush(raise_on_error: bool = True) -> list[Any]:
            replies = run(raise_on_error=raise_on_error)
            flushes = [reply is True or reply == b"OK" for reply in replies]
            return [r for r, flushed in zip(replies, flushes, strict=True) if not flushed]

        pipe.execute = without_the_flush
        return pipe

    monkeypatch.setattr(store._caller.client, "pipeline", pipeline)
    acks = [
        ("ack_completed", Ack("a", TOKEN, b"r")),
        ("ack_failed", Ack("b", TOKEN, b"e")),
        ("release", Ack("c", TOKEN)),
    ]
    words, claim = store.exchange(acks, ClaimRequest([QUEUE], [NAME], "next", LOCK_MS, 5))
    monkeypatch.undo()

    assert words == ["completed", "failed", "released"]
    assert claim is not None
    taken = [one.id for one in claim.jobs]
    # A release that was sent again comes behind the claim: then c waits for the next one.
    assert sorted([*taken, *take(store, 5, token="next")]) == ["c", "d"]
    assert (outcomes(store, "a"), outcomes(store, "b")) == (["completed"], ["failed"])
    assert violations(store) == []


def test_a_store_outlives_a_restart_of_its_server(
    real_server: Server, server_pool: ServerPool, clock: FakeClock
) -> None:
    """Connections, scripts and here also data are gone; the next call works."""
    proxy = Proxy(real_server.url.removeprefix("unix://"))
    store = Store(proxy.url, clock=clock)
    store.enqueue(job("a"))
    assert real_server.pid is not None
    os.kill(real_server.pid, signal.SIGKILL)
    server_pool._running[real_server.name][1].wait(10)
    proxy.drop_all()
    again = server_pool.get(real_server.backend)
    proxy.path = again.url.removeprefix("unix://")

    assert store.get_job("a") is None
    assert store.enqueue(job("a")).duplicate is False
    assert take(store) == ["a"]
    store.close()
    proxy.close()


def test_a_server_that_is_gone_is_told_after_the_time_for_retries(
    real_server: Server, clock: FakeClock
) -> None:
    """One line that names the address; nothing hangs."""
    proxy = Proxy(real_server.url.removeprefix("unix://"))
    store = Store(proxy.url, clock=clock, retry_for=0.1)
    store.enqueue(job("a"))
    proxy.close()
    for verb in (lambda: store.enqueue(job("b")), store.counts, store.destroy, lambda: take(store)):
        with pytest.raises(StoreError, match=rf"127\.0\.0\.1:{proxy.port}/0") as caught:
            verb()
        assert "\n" not in str(caught.value)
    with pytest.raises(StoreError):
        store.wait([QUEUE], [NAME], 50)
    store.close()


# A full server


@pytest.fixture
def full(real_store: Store, real_server: Server) -> Iterator[Callable[[], None]]:
    """Fills the server when called; it has room again afterwards."""
    yield lambda: real_server.cli("CONFIG", "SET", "maxmemory", "1")
    real_server.cli("CONFIG", "SET", "maxmemory", "0")


def test_a_full_server_refuses_an_enqueue_and_keeps_nothing_of_it(
    real_store: Store, full: Callable[[], None]
) -> None:
    """Sequence, counts and every key are as they were."""
    real_store.enqueue_many([job("a"), job("b", delay_ms=5)])
    before = snapshot(real_store)
    full()
    for refused in (job("c"), job("d", delay_ms=9), job(metadata={"k": "v"}, name="new-name")):
        with pytest.raises(StoreError, match="out of memory"):
            real_store.enqueue(refused)
    with pytest.raises(StoreError, match="out of memory"):
        real_store.enqueue_many(job() for _ in range(300))
    assert snapshot(real_store) == before


def test_a_full_server_still_tells_of_duplicates(
    real_store: Store, full: Callable[[], None]
) -> None:
    """SET is refused as a whole, so a duplicate is an error there as well, and harmless."""
    real_store.enqueue(job("a"))
    full()
    with pytest.raises(StoreError, match="out of memory"):
        real_store.enqueue(job("a"))
    assert real_store.counts()[JobState.WAITING] == 1


def test_a_full_server_drains(
    real_store: Store, clock: FakeClock, full: Callable[[], None]
) -> None:
    """Claim, extend, acks, release, recovery, progress and watch go on, script cache or not."""
    names = [f"j{at}" for at in range(8)]
    real_store.enqueue_many([*(job(name) for name in names), job("late", delay_ms=5)])
    full()
    _flush_scripts(real_store)
    clock.advance(5)
    assert take(real_store, 9) == [*names, "late"]
    assert real_store.extend([("j0", TOKEN)], LOCK_MS).lost == ()
    assert real_store.watch("j0") == "awaited"
    assert real_store.progress("j0", TOKEN, b"half") == "stored"
    assert real_store.ack_completed("j0", TOKEN, b"r" * 5_000) == "completed"
    assert real_store.ack_failed("j1", TOKEN, b"e" * 5_000, summary="no") == "failed"
    assert real_store.ack_retried("j2", TOKEN, 0, b"e") == "retried"
    assert real_store.ack_retried("j3", TOKEN, 9, b"e") == "retried"
    assert real_store.ack_cancelled("j4", TOKEN) == "cancelled"
    assert real_store.release("j5", TOKEN) == "released"
    clock.advance(LOCK_MS)
    assert [one.word for one in real_store.stall_sweep(1)] == ["requeued"] * 3
    assert take(real_store, 9) == ["j5", "j6", "j7", "late", "j2", "j3"]
    assert record(real_store, "j0").exit == b"r" * 5_000
    assert violations(real_store) == []


def test_a_store_goes_on_when_memory_is_free_again(
    real_store: Store, real_server: Server, full: Callable[[], None]
) -> None:
    """The refused job is taken in by the next try."""
    full()
    with pytest.raises(StoreError):
        real_store.enqueue(job("a"))
    real_server.cli("CONFIG", "SET", "maxmemory", "0")
    assert real_store.enqueue(job("a")).duplicate is False
    assert violations(real_store) == []


# A replica


@pytest.fixture
def replica(real_server: Server) -> Iterator[Callable[[], None]]:
    """Makes the server a replica of nobody when called; it is a primary again afterwards."""
    yield lambda: real_server.cli("REPLICAOF", "127.0.0.1", "1")
    real_server.cli("REPLICAOF", "NO", "ONE")


def test_a_replica_is_told_as_such(
    real_server: Server, clock: FakeClock, replica: Callable[[], None]
) -> None:
    """One line with what to do; reading works."""
    store = Store(real_server.url, clock=clock, retry_for=0)
    store.enqueue_many([job("a"), job("b")])
    take(store)
    replica()
    for verb in ("enqueue", "claim", "extend", "ack_completed", "ack_retried", "release", "watch"):
        with pytest.raises(StoreError, match="read-only replica: give the address of the primary"):
            SCRIPT_VERBS[verb](store)
    assert record(store, "a").state is JobState.ACTIVE
    assert store.counts()[JobState.WAITING] == 1
    store.close()


def test_a_failover_is_waited_for(
    real_server: Server, clock: FakeClock, replica: Callable[[], None]
) -> None:
    """A replica that becomes the primary in time takes the job that was refused before."""
    store = Store(real_server.url, clock=clock, retry_for="20s")
    store.enqueue(job("a"))
    replica()
    promotion = threading.Timer(0.15, real_server.cli, ["REPLICAOF", "NO", "ONE"])
    promotion.start()
    assert store.enqueue(job("b")).duplicate is False
    promotion.join()
    assert take(store, 5) == ["a", "b"]
    store.close()


# Somebody else's keys


@pytest.mark.parametrize("verb", SCRIPT_VERBS)
def test_a_keyspace_of_another_version_is_refused_by_every_verb(store: Store, verb: str) -> None:
    """A later mq wrote it: nothing is changed, and the line says what to do."""
    store.enqueue(job("a"))
    take(store)
    raw(store).hset(store.keys.meta(), "schema", "2")
    before = snapshot(store)
    with pytest.raises(StoreError, match="keyspace version 2 found, this mq speaks 1: run the mq"):
        SCRIPT_VERBS[verb](store)
    assert snapshot(store) == before


def test_a_keyspace_of_another_version_is_found_at_connect(server: Server) -> None:
    """Before anything else is asked."""
    store = Store(server.url)
    raw(store).hset(store.keys.meta(), "schema", "99")
    with pytest.raises(StoreError, match="keyspace version 99"):
        store.check()
    store.close()


def test_a_flushed_server_is_an_empty_store(store: Store) -> None:
    """No mismatch, no memory of what was."""
    store.enqueue(job("a"))
    take(store)
    raw(store).execute_command("FLUSHALL")
    assert store.counts() == dict.fromkeys(JobState, 0)
    assert take(store) == []
    assert store.extend([("a", TOKEN)], 5).lost == ("a",)
    assert store.stall_sweep(1) == []
    assert snapshot(store) == {}
    assert store.enqueue(job("a")).duplicate is False
    assert violations(store) == []


@pytest.mark.parametrize(
    ("key", "verb"), [("seq", "enqueue"), ("meta", "counts"), ("active", "stall_sweep")]
)
def test_a_key_of_another_type_is_told_as_what_it_is(store: Store, key: str, verb: str) -> None:
    """Somebody wrote into the prefix: the server's own words, and no retry."""
    raw(store).lpush(getattr(store.keys, key)(), "x")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        SCRIPT_VERBS[verb](store)
