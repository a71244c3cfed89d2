"""What servers do: forget scripts, restart, run full, turn read-only, be somebody else's."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, outcomes, record, take
from proxy import Proxy
from servers import Server, ServerPool
from transitions.invariants import violations
from transitions.seed import raw, snapshot

from mq.cadence import Cadence
from mq.clock import FakeClock
from mq.errors import StoreError
from mq.policies import Dedupe
from mq.records import Ack, ClaimRequest, Enqueued, Request, ScheduleRecord
from mq.scripts import load_scripts
from mq.states import JobState
from mq.store import Store
from mq.store.families import ChildCounts, ChildReport, ChildRow

HOUR_MS = 3_600_000
SCHEDULE = ScheduleRecord(
    name=NAME, key="hourly", cadence=Cadence(every_ms=HOUR_MS), request=job(), next_run_at=HOUR_MS
)

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
    "enqueue with a key": lambda s: s.enqueue(job("other", dedupe=Dedupe("key"))),
    "cancel": lambda s: s.cancel("a"),
    "cancel_by_key": lambda s: s.cancel_by_key(NAME, "k"),
    "retry": lambda s: s.steer("retry", ["a"]),
    "promote": lambda s: s.steer("promote", ["a"]),
    "remove": lambda s: s.remove("a"),
    "pause": lambda s: s.pause("another"),
    "resume": lambda s: s.resume("another"),
    "list": lambda s: s.list(queue=QUEUE, name=NAME),
    "cancel_where": lambda s: s.cancel_where(queue=QUEUE, name=NAME),
    "retry_where": lambda s: s.retry_where(queue=QUEUE, name=NAME),
    "remove_where": lambda s: s.remove_where(queue=QUEUE, name=NAME),
    "window_sweep": lambda s: s.window_sweep(),
    "declare_index": lambda s: s.declare_index(["key"]),
    "backfill": lambda s: s.backfill(),
    "prune": lambda s: s.prune(),
    "write_manifest": lambda s: s.write_manifest("a", TOKEN, [ChildRow("k", b"row")], "fail"),
    "ack_fanned_out": lambda s: s.ack_fanned_out("a", TOKEN),
    "next_children": lambda s: s.next_children("a"),
    "record_child_results": lambda s: s.record_child_results([ChildReport("a", "k", "failed")]),
    "list_child_results": lambda s: s.list_child_results("a"),
    "flow_sweep_work": lambda s: s.flow_sweep_work(0),
    "mark_children_delivered": lambda s: s.mark_children_delivered("a", ["k"]),
    "peek_outbox": lambda s: s.peek_outbox(),
    "delete_outbox": lambda s: s.delete_outbox(["1"]),
    "upsert_schedule": lambda s: s.upsert_schedule(SCHEDULE),
    "remove_schedule": lambda s: s.remove_schedule(NAME, "hourly"),
    "pause_schedule": lambda s: s.pause_schedule(NAME, "hourly"),
    "tick": lambda s: s.tick(NAME, "hourly", HOUR_MS, 2 * HOUR_MS, SCHEDULE.occurrence(HOUR_MS)),
    "advance_schedule": lambda s: s.advance_schedule(NAME, "hourly", HOUR_MS, 2 * HOUR_MS),
    "list_schedules": lambda s: s.list_schedules(),
}


def _flush_scripts(store: Store) -> None:
    raw(store).script_flush()


@pytest.mark.parametrize("verb", SCRIPT_VERBS)
def test_every_verb_survives_a_lost_script_cache(store: Store, verb: str) -> None:
    """The script is loaded again and the call made once more."""
    store.enqueue(job("a", dedupe=Dedupe("k")))
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


def test_every_script_is_among_the_verbs_tried_here(
    server: Server, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that is added is tried without a cache and on a keyspace of another version too."""
    store = Store(server.url, clock=clock)
    called: set[str] = set()
    evalsha = store._caller._evalsha

    def noted(name: str, args: Sequence[Any]) -> Any:
        called.add(name)
        return evalsha(name, args)

    monkeypatch.setattr(store._caller, "_evalsha", noted)
    for verb in SCRIPT_VERBS.values():
        store.destroy()
        store.enqueue(job("a"))
        take(store)
        verb(store)
    assert called == set(load_scripts())
    store.close()


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


def test_a_full_server_goes_on_with_flows_and_retention(
    real_store: Store, clock: FakeClock, full: Callable[[], None]
) -> None:
    """Parents park, resume, fail and are cancelled; reports leave; what is old goes."""
    store = real_store
    parents = ["collects", "fails", "called-off"]
    child = job("child", name="child", parent="of a parent")
    store.enqueue_many([child, *(job(one) for one in parents)])
    store.enqueue_many([job("zero", keep="completed=0/*"), job("aged", keep="completed=*/5")])
    taken = take(store, 9, names=(NAME, "child"))
    assert taken == ["child", *parents, "zero", "aged"]
    for one in parents:
        store.write_manifest(one, TOKEN, [ChildRow("a", b"row"), ChildRow("b", b"row")], "fail")
    store.upsert_schedule(SCHEDULE)
    full()
    _flush_scripts(store)

    assert [store.ack_fanned_out(one, TOKEN) for one in parents] == ["fanned_out"] * 3
    assert [row.key for row in store.next_children("collects")] == ["a", "b"]
    assert store.next_children("collects", ["a", "b"]) == []
    reports = [
        ChildReport("collects", "a", "completed", b"r" * 5_000),
        ChildReport("collects", "b", "cancelled"),
        ChildReport("fails", "a", "failed", b"e" * 5_000),
    ]
    assert store.record_child_results(reports) == [True] * 3
    assert store.cancel("called-off") == "cancelled"
    assert store.get_states(parents) == ["waiting", "failed", "cancelled"]
    assert len(store.flow_sweep_work(0)) == 3
    store.mark_children_delivered("called-off", ["a", "b"])
    assert store.list_child_results("called-off").counts == ChildCounts(2, 0, 0, 2)
    assert {row.parent for row in store.flow_sweep_work(0)} == {"fails"}
    for one in ("child", "zero", "aged"):
        assert store.ack_completed(one, TOKEN, b"r" * 5_000) == "completed"
    (entry,) = store.peek_outbox()
    assert (entry.child, entry.exit) == ("child", b"r" * 5_000)
    store.delete_outbox([entry.id])
    assert store.peek_outbox() == []
    clock.advance(5)
    assert store.prune() == 1
    assert store.get_states(["child", "zero", "aged"]) == ["completed", None, None]
    assert store.pause_schedule(NAME, "hourly")
    assert store.resume_schedule(NAME, "hourly")
    (resumed,) = store.list_schedules()
    slot = resumed.next_run_at
    assert store.advance_schedule(NAME, "hourly", slot, slot + HOUR_MS)
    assert store.remove_schedule(NAME, "hourly")
    assert violations(store) == []


def test_a_full_server_refuses_a_schedule_and_its_tick_as_a_whole(
    real_store: Store, full: Callable[[], None]
) -> None:
    """What makes jobs waits for room; the occurrence is not lost."""
    real_store.upsert_schedule(SCHEDULE)
    before = snapshot(real_store)
    full()
    for verb in ("upsert_schedule", "tick"):
        with pytest.raises(StoreError, match="out of memory"):
            SCRIPT_VERBS[verb](real_store)
    assert snapshot(real_store) == before


LATEST = Dedupe("latest", ttl="1m", replace=True)
PUSHED = Dedupe("pushed", ttl="1m", extend=True)


@pytest.fixture
def steerable(real_store: Store, clock: FakeClock) -> Store:
    """A store with a job in each state, dedup keys of each mode, and an index that is not ready."""
    real_store.enqueue_many([job("active"), job("failed"), job("done", metadata={"k": "v"})])
    take(real_store, 3)
    real_store.ack_failed("failed", TOKEN, b"e")
    real_store.ack_completed("done", TOKEN, b"r")
    real_store.enqueue_many(
        [
            job("waiting", metadata={"k": "v", "region": "eu"}), job("keyed", dedupe=Dedupe("k")),
            job("delayed", delay_ms=50), job("late", delay_ms=70, dedupe=LATEST),
            job("over", dedupe=Dedupe("over", ttl=0)), job("pushed", dedupe=PUSHED),
            job("withheld", queue="paused"),
        ]
    )  # fmt: skip
    real_store.pause("paused")
    real_store.declare_index(["k"])
    clock.advance(5)
    return real_store


def test_a_full_server_can_be_looked_after(
    steerable: Store, clock: FakeClock, full: Callable[[], None]
) -> None:
    """Cancel, retry, promote, remove, pause, resume and the upkeep work, script cache or not."""
    store = steerable
    full()
    _flush_scripts(store)
    assert store.cancel("active") == "cancel_requested"
    assert raw(store).exists(store.keys.control("worker"))
    assert store.pause(QUEUE) is True
    assert store.cancel("waiting") == "cancelled"
    assert store.cancel_by_key(NAME, "k") is True
    store.retry("failed")
    store.promote("delayed")
    assert store.remove("done") is True
    assert store.resume(QUEUE) is True
    assert store.resume("paused") is True
    assert store.window_sweep() == 1
    assert store.declare_index(["region"]) == 1
    while store.backfill(2) is not None:
        pass
    assert store.index_states() == {"k": True, "region": True}
    assert [one.id for one in store.list(metadata={"region": "eu"}).items] == ["waiting"]
    assert store.cancel_where(queue="paused").ids == ["withheld"]
    assert store.remove_where(queue="paused").ids == ["withheld"]
    assert store.retry_where(queue=QUEUE).ids == []
    assert store.get_states(["active", "waiting", "keyed", "failed", "delayed", "done"]) == [
        "active", "cancelled", "cancelled", "waiting", "waiting", None,
    ]  # fmt: skip
    assert take(store, 9) == ["delayed", "over", "pushed", "failed"]
    assert violations(store) == []


VERB_ALONE: dict[str, Callable[[Store], Any]] = {
    "cancel active": lambda s: s.cancel("active"),
    "cancel": lambda s: s.cancel("waiting"),
    "cancel_by_key": lambda s: s.cancel_by_key(NAME, "k"),
    "cancel_by_key, active": lambda s: s.cancel_by_key(NAME, "running"),
    "retry": lambda s: s.retry("failed"),
    "promote": lambda s: s.promote("delayed"),
    "remove": lambda s: s.remove("done"),
    "pause": lambda s: s.pause("other"),
    "resume": lambda s: s.resume("paused"),
    "window_sweep": lambda s: s.window_sweep(),
    "declare_index": lambda s: s.declare_index(["region"]),
    "backfill": lambda s: s.backfill(),
}


@pytest.mark.parametrize("verb", VERB_ALONE)
def test_a_full_server_does_the_whole_of_a_steering_verb(
    steerable: Store, full: Callable[[], None], verb: str
) -> None:
    """It leaves the keys that the same call leaves on a server with room."""
    store = steerable
    store.enqueue(job("running", name="r", dedupe=Dedupe("running")))
    take(store, names=("r",))
    saved = [(key, raw(store).dump(key)) for key in raw(store).scan_iter(count=1000)]
    left = []
    for fill in (lambda: None, full):
        raw(store).execute_command("FLUSHDB")
        for key, dump in saved:
            raw(store).restore(key, 0, dump)
        fill()
        VERB_ALONE[verb](store)
        assert violations(store) == []
        left.append(_without_nonces(store))
    assert left[0] == left[1]


def _without_nonces(store: Store) -> dict[str, Any]:
    content = snapshot(store)
    answered = [key for key in content if key.startswith(store.keys.answered(""))]
    content["answered"] = sorted(content.pop(key) for key in answered)
    for value in content.values():
        if isinstance(value, dict):
            for field in [field for field in value if field.endswith("nonce")]:
                value[field] = value[field].partition(":")[2]
    return content


@pytest.mark.parametrize(
    "refused",
    [
        job("new", dedupe=Dedupe("new")),
        job("new", dedupe=Dedupe("new", ttl="1m")),
        job("new", dedupe=Dedupe("over", ttl="1m")),
        job("new", delay_ms=9, dedupe=LATEST, payload=b"new", metadata={"k": "w"}),
        job("new", dedupe=PUSHED),
    ],
    ids=["a free key", "a free window", "a window that is over", "a replace", "a debounce"],
)
def test_a_full_server_refuses_what_a_dedup_key_would_store(
    steerable: Store, full: Callable[[], None], refused: Request
) -> None:
    """Key, window, payload and indexes are as they were."""
    before = snapshot(steerable)
    full()
    with pytest.raises(StoreError, match="out of memory"):
        steerable.enqueue(refused)
    with pytest.raises(StoreError, match="out of memory"):
        steerable.enqueue_many([refused, job()])
    assert snapshot(steerable) == before


@pytest.mark.parametrize("key", [Dedupe("k"), Dedupe("k", ttl="1m"), Dedupe("k", replace=True)])
def test_a_full_server_tells_of_a_live_key_without_storing_anything(
    steerable: Store, full: Callable[[], None], key: Dedupe
) -> None:
    """A producer that is only told of the keyed job needs no memory."""
    before = snapshot(steerable)
    full()
    assert steerable.enqueue(job(dedupe=key)) == Enqueued("keyed", True, NAME)
    assert snapshot(steerable) == before


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
    store.upsert_schedule(SCHEDULE)
    replica()
    for verb in (
        "enqueue", "claim", "extend", "ack_completed", "ack_retried", "release", "watch", "cancel",
        "pause", "declare_index", "cancel_where", "write_manifest", "ack_fanned_out",
        "upsert_schedule", "tick", "pause_schedule", "remove_schedule",
    ):  # fmt: skip
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
