"""A reply can be lost: the store asks again, and what happened happened once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, act_before_repeats, job, take
from proxy import Fault, Proxy
from servers import Server
from transitions.invariants import violations
from transitions.seed import snapshot

from mq.cadence import Cadence
from mq.clock import FakeClock
from mq.errors import JobNotCancellableError, JobNotPromotableError, JobNotRetryableError, MQError
from mq.policies import Dedupe, Keep, encode_keep
from mq.records import Ack, ClaimRequest, Page, ScheduleRecord
from mq.states import JobState
from mq.store import Store
from mq.store.families import ChildReport, ChildRow
from mq.store.scheduling import Tick
from mq.store.steering import STEER_BATCH

Verb = Callable[[Store], Any]

LATEST = Dedupe("latest", ttl="1m", replace=True)
PENDING_LATEST = Dedupe("pending latest", replace=True)
OVER = Dedupe("over", ttl=0)
ELSEWHERE = "paused-queue"
NONE = encode_keep(Keep(count=0))

CLAIM = ClaimRequest([QUEUE], [NAME], TOKEN, LOCK_MS, 2, "worker")


def _exchange(store: Store) -> Any:
    acks = [
        ("ack_completed", Ack("h1", TOKEN, b"r")),
        ("ack_retried", Ack("h2", TOKEN, b"e", delay_ms=0)),
        ("release", Ack("cancel", TOKEN)),
        ("ack_failed", Ack("nobody", TOKEN)),
    ]
    words, claim = store.exchange(acks, attrs.evolve(CLAIM))
    assert claim is not None
    return words, [one.id for one in claim.jobs]


def _refusal(verb: Verb) -> Verb:
    def told(store: Store) -> Any:
        with pytest.raises(MQError) as caught:
            verb(store)
        return type(caught.value), str(caught.value), caught.value.job_id, caught.value.state

    return told


def _page(page: Page[Any]) -> Any:
    return [(one.id, one.state, one.payload) for one in page.items], page.cursor


VERBS: dict[str, Verb] = {
    "enqueue": lambda s: s.enqueue(job("new")),
    "enqueue made id": lambda s: s.enqueue(job()),
    "enqueue duplicate": lambda s: s.enqueue(job("w1")),
    "enqueue delayed": lambda s: s.enqueue(job("new", delay_ms=50, metadata={"k": "v"})),
    "enqueue_many": lambda s: s.enqueue_many([job(), job("w1"), job("new"), job("new"), job()]),
    "claim": lambda s: [one.id for one in s.claim([QUEUE], [NAME], TOKEN, LOCK_MS, 2, "w").jobs],
    "claim anonymous": lambda s: [one.id for one in s.claim([QUEUE], [NAME], TOKEN, 9).jobs],
    "claim of nothing": lambda s: s.claim([QUEUE], ["none"], TOKEN, LOCK_MS).next_run_at,
    "extend": lambda s: s.extend([("h1", TOKEN), ("h2", "other"), ("cancel", TOKEN)], LOCK_MS * 3),
    "ack_completed": lambda s: s.ack_completed("h1", TOKEN, b"x" * 99),
    "ack_retried now": lambda s: s.ack_retried("h1", TOKEN, 0, b"e", summary="no"),
    "ack_retried later": lambda s: s.ack_retried("h1", TOKEN, 70, b"e"),
    "ack_retried cancelled": lambda s: s.ack_retried("cancel", TOKEN, 0, b"e"),
    "ack_failed": lambda s: s.ack_failed("h1", TOKEN, b"e"),
    "ack_cancelled": lambda s: s.ack_cancelled("cancel", TOKEN),
    "release": lambda s: s.release("h1", TOKEN),
    "ack_completed kept not at all": lambda s: s.ack_completed("gone", TOKEN, b"r"),
    "ack_failed kept not at all": lambda s: s.ack_failed("gone", TOKEN, b"e"),
    "ack_retried cancelled kept not at all": lambda s: (
        s.cancel("gone"),
        s.ack_retried("gone", TOKEN, 0, b"e"),
    ),
    "exchange": _exchange,
    "progress": lambda s: s.progress("h1", TOKEN, b"half"),
    "watch": lambda s: s.watch("h1"),
    "get": lambda s: (repr(s.get_job("h1")), s.get_attempts("done")),
    "counts": lambda s: s.counts(),
    "seen_pairs": lambda s: s.seen_pairs(),
    "rearm": lambda s: s.rearm(s.keys.wake(QUEUE, NAME)),
    "poke": lambda s: s.poke("worker"),
}

STEERED: dict[str, Verb] = {
    "cancel waiting": lambda s: s.cancel("w1"),
    "cancel delayed": lambda s: s.cancel("d1"),
    "cancel kept not at all": lambda s: s.cancel("none"),
    "steer cancel kept not at all": lambda s: s.steer("cancel_request", ["none", "w1", "none"]),
    "cancel_by_key kept not at all": lambda s: s.cancel_by_key(NAME, "none"),
    "cancel keyed": lambda s: s.cancel("keyed"),
    "cancel active": lambda s: s.cancel("h1"),
    "cancel active again": lambda s: s.cancel("cancel"),
    "cancel finished": _refusal(lambda s: s.cancel("done")),
    "cancel unknown": _refusal(lambda s: s.cancel("nobody")),
    "cancel_by_key waiting": lambda s: s.cancel_by_key(NAME, "pending"),
    "cancel_by_key delayed": lambda s: s.cancel_by_key(NAME, "latest"),
    "cancel_by_key active": lambda s: s.cancel_by_key(NAME, "running"),
    "cancel_by_key with a window": lambda s: s.cancel_by_key(NAME, "window"),
    "cancel_by_key finished": lambda s: s.cancel_by_key(NAME, "over"),
    "cancel_by_key none": lambda s: s.cancel_by_key(NAME, "of nobody"),
    "retry": lambda s: s.retry("failed"),
    "retry refused": _refusal(lambda s: s.retry("done")),
    "promote": lambda s: s.promote("d1"),
    "promote refused": _refusal(lambda s: s.promote("w1")),
    "remove waiting": lambda s: s.remove("w1"),
    "remove keyed": lambda s: s.remove("keyed"),
    "remove finished": lambda s: s.remove("done"),
    "remove active": lambda s: s.remove("h1"),
    "remove unknown": lambda s: s.remove("nobody"),
    "steer cancel": lambda s: s.steer("cancel_request", ["w1", "h1", "done", "nobody", "w1", "d1"]),
    "steer retry": lambda s: s.steer("retry", ["failed", "w1", "failed", "nobody"]),
    "steer promote": lambda s: s.steer("promote", ["w1", "d1", "keyed-late", "nobody", "d1"]),
    "steer remove": lambda s: s.steer("remove", ["w1", "h1", "nobody", "done", "w1"]),
    "pause": lambda s: s.pause(QUEUE),
    "pause again": lambda s: s.pause(ELSEWHERE),
    "resume": lambda s: s.resume(ELSEWHERE),
    "resume what is not paused": lambda s: s.resume(QUEUE),
    "paused_queues": lambda s: s.paused_queues(),
    "declare_index": lambda s: s.declare_index(["region", "customer"]),
    "declare_index again": lambda s: s.declare_index(["customer"]),
    "index_states": lambda s: s.index_states(),
    "list": lambda s: _page(s.list(limit=4)),
    "list by run_at": lambda s: _page(s.list(queue=QUEUE, states=["delayed"], order_by="run_at")),
    "list by metadata": lambda s: _page(s.list(metadata={"customer": "c"}, bodies=False)),
    "cancel_where dry run": lambda s: s.cancel_where(queue=QUEUE, dry_run=True),
    "enqueue takes a key": lambda s: s.enqueue(job(dedupe=Dedupe("new"))),
    "enqueue takes a window": lambda s: s.enqueue(job(dedupe=Dedupe("new", ttl="1m"))),
    "enqueue takes a window that is over": lambda s: s.enqueue(job(dedupe=Dedupe("over", ttl=9))),
    "enqueue dropped": lambda s: s.enqueue(job("new", dedupe=Dedupe("pending"))),
    "enqueue throttled": lambda s: s.enqueue(job(dedupe=Dedupe("window", ttl="1m"))),
    "enqueue debounced": lambda s: s.enqueue(job(dedupe=Dedupe("pushed", ttl="1m", extend=True))),
    "enqueue replaces": lambda s: s.enqueue(job(payload=b"new", delay_ms=9, dedupe=LATEST)),
    "enqueue replaces with new metadata": lambda s: s.enqueue(
        job(payload=b"new", metadata={"customer": "d"}, trace="t", priority=3, dedupe=LATEST)
    ),
    "enqueue an id that exists with a key": lambda s: s.enqueue(job("w1", dedupe=Dedupe("new"))),
    "enqueue_many with keys": lambda s: s.enqueue_many(
        [
            job("new", delay_ms=9, dedupe=Dedupe("k", replace=True)), job(dedupe=Dedupe("pending")),
            job(payload=b"2", dedupe=Dedupe("k", replace=True)), job(payload=b"3", dedupe=LATEST),
            job(dedupe=Dedupe("pushed")), job(dedupe=Dedupe("fresh")), job(dedupe=Dedupe("fresh")),
        ]
    ),
}  # fmt: skip
"""What is asked of jobs that are there already, and what a dedup key decides."""


def _store(url: str, prefix: str, clock: FakeClock) -> Store:
    """A store with something in every state a verb may meet, and all its scripts loaded."""
    made = itertools.count(1)
    store = Store(
        url, prefix=prefix, clock=clock, socket_timeout=0.15,
        id_generator=lambda: f"made-{next(made)}",
    )  # fmt: skip
    for name in store._caller._scripts:
        # Read to the end on a busy machine, too: the time-out is short for the replies that hang.
        store._caller.repeat(lambda _, name=name: store._caller._load(name))  # type: ignore[misc]
    store.enqueue_many(job(job_id) for job_id in ("h1", "h2", "cancel", "done", "failed"))
    store.enqueue_many([job("busy", dedupe=Dedupe("running")), job("old", dedupe=OVER)])
    take(store, 7)
    store.ack_completed("done", TOKEN, b"r")
    store.ack_completed("old", TOKEN)
    store.ack_failed("failed", TOKEN, b"e")
    store.cancel("cancel")
    store.enqueue_many([job("w1"), job("w2"), job("w3"), job("d1", delay_ms=30)])
    store.enqueue_many(
        [
            job("keyed", dedupe=Dedupe("pending"), metadata={"customer": "c"}),
            job("keyed-late", delay_ms=40, dedupe=LATEST, metadata={"customer": "c", "k": "v"}),
            job("kept-late", delay_ms=45, dedupe=PENDING_LATEST),
            job("window", dedupe=Dedupe("window", ttl="1m")),
            job("pushed", dedupe=Dedupe("pushed", ttl="1m", extend=True)),
            job("withheld", queue=ELSEWHERE), job("withheld-late", queue=ELSEWHERE, delay_ms=5),
        ]
    )  # fmt: skip
    store.enqueue(job("gone", queue="busy", keep=NONE))
    take(store, queues=("busy",))
    store.enqueue(job("none", queue="busy", dedupe=Dedupe("none"), keep=NONE, delay_ms=90))
    store.pause(ELSEWHERE)
    store.declare_index(["customer"])
    return store


def _told_apart_by_nothing_else(store: Store) -> dict[str, Any]:
    """The keyspace without its prefix and without the nonces that every call draws anew."""
    content = {}
    for key, value in snapshot(store).items():
        bare = key.removeprefix(store.keys.root)
        if bare.startswith("claims:"):
            named = bare in {"claims:w", "claims:worker"}
            content[bare if named else "claims: nobody"] = value.partition("\n")[2]
        elif bare.startswith("answered:"):
            content["answered"] = sorted([*content.get("answered", []), value])
        else:
            if isinstance(value, dict):
                for field in [field for field in value if field.endswith("nonce")]:
                    value[field] = value[field].partition(":")[2]
            content[bare] = value
    return content


@pytest.mark.parametrize("how", ["close", "hang"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_whose_reply_is_lost_answers_and_acts_as_if_it_were_not(
    proxy: Proxy, real_server: Server, clock: FakeClock, verb: str, how: Fault
) -> None:
    """Same answer and same keyspace as beside a store whose replies all came."""
    faulty = _store(proxy.url, "faulty", clock)
    sound = _store(real_server.url, "sound", clock)

    proxy.swallow_next_reply(how)
    answer = VERBS[verb](faulty)

    assert proxy.swallowed == 1
    assert answer == VERBS[verb](sound)
    assert _told_apart_by_nothing_else(faulty) == _told_apart_by_nothing_else(sound)
    assert violations(faulty) == []
    faulty.close()
    sound.close()


@pytest.mark.parametrize("verb", STEERED)
def test_a_steering_verb_whose_reply_is_lost_is_told_as_if_it_were_not(
    proxy: Proxy, real_server: Server, clock: FakeClock, verb: str
) -> None:
    """Same answer and same keyspace, whether it changed something or was refused."""
    faulty = _store(proxy.url, "faulty", clock)
    sound = _store(real_server.url, "sound", clock)

    proxy.swallow_next_reply("close")
    answer = STEERED[verb](faulty)

    assert proxy.swallowed == 1
    assert answer == STEERED[verb](sound)
    assert _told_apart_by_nothing_else(faulty) == _told_apart_by_nothing_else(sound)
    assert violations(faulty) == []
    faulty.close()
    sound.close()


def _refill(store: Store) -> Store:
    """Beside everything else a parent in each place, a report, schedules, and what is past."""
    parents = ["writes", "fans-out", "has-none", "called-off", "parked", "fails-fast", "owes"]
    store.enqueue_many(job(one, name="parent") for one in parents)
    store.enqueue_many([job("child", name="child", parent="of another store")])
    store.enqueue_many([job("aged", name="child", keep="completed=*/5")])
    assert len(take(store, 20, names=("parent", "child"))) == len(parents) + 2
    for one in ("fans-out", "called-off", "parked", "fails-fast", "owes"):
        store.write_manifest(one, TOKEN, ROWS, "fail")
    store.cancel("called-off")
    for one in ("parked", "fails-fast", "owes"):
        store.ack_fanned_out(one, TOKEN)
    store.cancel("owes")
    for one in ("child", "aged"):
        store.ack_completed(one, TOKEN, b"r")
    for key in ("due", "goes", "rests"):
        store.upsert_schedule(attrs.evolve(SCHEDULE, key=key))
    store.pause_schedule(NAME, "rests")
    return store


ROWS = [ChildRow(key, b"row of " + key.encode()) for key in ("a", "b")]
SCHEDULE = ScheduleRecord(
    name=NAME, key="new", cadence=Cadence(every_ms=1_000), next_run_at=1_000, anchor=1,
    request=job(metadata={"customer": "c"}),
)  # fmt: skip
FAMILIES: dict[str, Verb] = {
    "write_manifest": lambda s: s.write_manifest("writes", TOKEN, ROWS, "continue"),
    "ack_fanned_out": lambda s: s.ack_fanned_out("fans-out", TOKEN),
    "ack_fanned_out without children": lambda s: s.ack_fanned_out("has-none", TOKEN),
    "ack_fanned_out cancelled": lambda s: s.ack_fanned_out("called-off", TOKEN),
    "ack_completed of a child": lambda s: s.ack_completed("h1", TOKEN, b"r"),
    "cancel parked": lambda s: s.cancel("parked"),
    "next_children": lambda s: s.next_children("parked", ["a"]),
    "list_child_results": lambda s: s.list_child_results("owes"),
    "peek_outbox": lambda s: s.peek_outbox(),
    "record_child_results": lambda s: s.record_child_results(
        [
            ChildReport("parked", "a", "completed", b"r"),
            ChildReport("parked", "a", "failed"),
            ChildReport("fails-fast", "a", "failed", b"e"),
            ChildReport("nobody", "a", "failed"),
            ChildReport("parked", "b", "cancelled"),
            ChildReport("owes", "b", "completed"),
        ]
    ),
    "record_child_results that come too late": lambda s: s.record_child_results(
        [ChildReport("owes", "a", "completed", b"r"), ChildReport("nobody", "a", "failed")]
    ),
    "mark_children_delivered": lambda s: s.mark_children_delivered("owes", ["a", "b", "c"]),
    "delete_outbox": lambda s: s.delete_outbox([one.id for one in s.peek_outbox()]),
    "upsert_schedule": lambda s: s.upsert_schedule(SCHEDULE),
    "upsert_schedule again": lambda s: s.upsert_schedule(attrs.evolve(SCHEDULE, key="due")),
    "upsert_schedule anew": lambda s: s.upsert_schedule(
        attrs.evolve(SCHEDULE, key="due", cadence=Cadence(every_ms=7), next_run_at=7)
    ),
    "remove_schedule": lambda s: s.remove_schedule(NAME, "goes"),
    "remove_schedule of nobody": lambda s: s.remove_schedule(NAME, "nobody"),
    "pause_schedule": lambda s: s.pause_schedule(NAME, "due"),
    "resume_schedule": lambda s: s.resume_schedule(NAME, "rests"),
    "tick": lambda s: s.tick(NAME, "due", 1_000, 2_000, SCHEDULE.occurrence(1_000)),
    "tick that is stale": lambda s: s.tick(NAME, "due", 1, 2_000, SCHEDULE.occurrence(1)),
    "tick of an id that exists": lambda s: s.tick(NAME, "due", 1_000, 2_000, job("w1")),
    "tick_all": lambda s: s.tick_all(
        [Tick(one, one.next_run_at + 1_000) for one in s.list_schedules() if one.key != "rests"]
    ),
    "advance_schedule": lambda s: s.advance_schedule(NAME, "due", 1_000, 2_000),
    "advance_schedule that is stale": lambda s: s.advance_schedule(NAME, "due", 1, 2_000),
    "due_schedules": lambda s: [one.key for one in s.due_schedules().schedules],
    "list_schedules": lambda s: s.list_schedules(),
}
"""What a worker and a person ask of flows and schedules."""


@pytest.mark.parametrize("verb", FAMILIES)
def test_a_verb_of_flows_and_schedules_whose_reply_is_lost_is_told_as_if_it_were_not(
    proxy: Proxy,
    real_server: Server,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    """Same answer and same keyspace, whether it changed something or came too late."""
    faulty = _refill(_store(proxy.url, "faulty", clock))
    sound = _refill(_store(real_server.url, "sound", clock))

    expected, answer = _losing_the_last_reply(FAMILIES[verb], sound, faulty, proxy, monkeypatch)

    assert proxy.swallowed == 1
    assert answer == expected
    assert _told_apart_by_nothing_else(faulty) == _told_apart_by_nothing_else(sound)
    assert violations(faulty) == []
    faulty.close()
    sound.close()


def _losing_the_last_reply(
    verb: Verb, sound: Store, faulty: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Any]:
    """What a verb answers, and what it answers when the reply of the last call it makes is lost."""
    calls: list[int] = []
    _before_each_call(sound, lambda: calls.append(1), monkeypatch)
    expected = verb(sound)
    last = len(calls) - 1
    _before_call(faulty, last, lambda: proxy.swallow_next_reply("close"), monkeypatch)
    return expected, verb(faulty)


def _before_each_call(
    store: Store, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    repeat = store._caller.repeat

    def noted(operation: Callable[[bool], Any]) -> Any:
        act()
        return repeat(operation)

    monkeypatch.setattr(store._caller, "repeat", noted)


CARRIED: dict[str, Verb] = {
    "prune": lambda s: s.prune(),
}
"""What is taken away step by step: a repeat finds it done, and only tells less of it."""


@pytest.mark.parametrize("verb", CARRIED)
def test_what_is_carried_on_after_a_lost_reply_happens_once(
    proxy: Proxy,
    real_server: Server,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    """Same keyspace as beside a store whose replies all came."""
    faulty = _refill(_store(proxy.url, "faulty", clock))
    sound = _refill(_store(real_server.url, "sound", clock))
    clock.advance(5)
    before = _told_apart_by_nothing_else(sound)

    _losing_the_last_reply(CARRIED[verb], sound, faulty, proxy, monkeypatch)

    assert proxy.swallowed == 1
    assert _told_apart_by_nothing_else(faulty) == _told_apart_by_nothing_else(sound) != before
    assert violations(faulty) == []
    faulty.close()
    sound.close()


BULK = "bulk"

WHERE: dict[str, Verb] = {
    "cancel_where": lambda s: s.cancel_where(name=BULK, states=["waiting", "active"]),
    "retry_where": lambda s: s.retry_where(name=BULK),
    "remove_where": lambda s: s.remove_where(name=BULK, metadata={"batch": "1"}),
}


def _crowd(url: str, prefix: str, clock: FakeClock) -> Store:
    """More than a page of jobs of one name in each state that a bulk verb takes."""
    store = _store(url, prefix, clock)
    store.enqueue_many(
        job(f"f{at:02}", name=BULK, metadata={"batch": "1"}) for at in range(STEER_BATCH + 3)
    )
    failed = take(store, 100, names=(BULK,))
    store.exchange([("ack_failed", Ack(one, TOKEN, b"e")) for one in failed], None)
    store.enqueue_many(job(f"w{at:02}", name=BULK) for at in range(STEER_BATCH + 3))
    take(store, 5, names=(BULK,))
    return store


@pytest.mark.parametrize("verb", WHERE)
def test_a_bulk_verb_may_lose_the_reply_of_any_of_its_calls(
    proxy: Proxy,
    real_server: Server,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    """Pages and steps alike: each job is told once, and the keyspace is the same."""
    sound = _crowd(real_server.url, "sound", clock)
    answer = WHERE[verb](sound)
    assert len(answer.ids) == STEER_BATCH + 3
    for number in itertools.count():
        faulty = _crowd(proxy.url, f"faulty-{number}", clock)
        _before_call(faulty, number, lambda: proxy.swallow_next_reply("close"), monkeypatch)
        assert WHERE[verb](faulty) == answer
        assert _told_apart_by_nothing_else(faulty) == _told_apart_by_nothing_else(sound)
        faulty.close()
        if proxy.swallowed == number:
            break
    assert proxy.swallowed >= 5, "it asks for the pairs, then a page and a step at a time"
    sound.close()


def _before_call(
    store: Store, number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Do something just before the store's call of that number, counted from now."""
    repeat, calls = store._caller.repeat, itertools.count()

    def counted(operation: Callable[[bool], Any]) -> Any:
        if next(calls) == number:
            act()
        return repeat(operation)

    monkeypatch.setattr(store._caller, "repeat", counted)


# Upkeep goes on where the lost call ended: what it tells is only whether there may be more


def test_a_window_sweep_whose_reply_is_lost_deletes_once(proxy: Proxy, clock: FakeClock) -> None:
    """Its repeat looks at what is left: a full step says so again, an empty one ends the work."""
    store = _store(proxy.url, "faulty", clock)
    store.enqueue_many(job(f"over{at}", dedupe=Dedupe(f"k{at}", ttl=0)) for at in range(4))
    proxy.swallow_next_reply("close")
    assert store.window_sweep(2) == 2
    assert store.window_sweep(2) == 1
    assert sorted(snapshot(store)[store.keys.windows()]) == [
        f"{NAME}:{key}" for key in ("latest", "pushed", "window")
    ]
    assert violations(store) == []
    store.close()


def test_a_flow_sweep_whose_reply_is_lost_hands_out_the_rows_that_come_next(
    proxy: Proxy, clock: FakeClock
) -> None:
    """Those of the lost reply come again after a full age; none is left out for good."""
    store = _refill(_store(proxy.url, "faulty", clock))
    clock.advance(LOCK_MS)
    proxy.swallow_next_reply("close")
    handed = [(one.parent, one.key) for one in store.flow_sweep_work(LOCK_MS, 3)]
    assert len(handed) == 3
    clock.advance(LOCK_MS)
    again = [(one.parent, one.key) for one in store.flow_sweep_work(LOCK_MS)]
    assert sorted(again) == [
        (parent, key) for parent in ("fails-fast", "owes", "parked") for key in ("a", "b")
    ]
    assert violations(store) == []
    store.close()


def test_a_backfill_whose_replies_are_lost_ends_at_the_same_index(
    proxy: Proxy, real_server: Server, clock: FakeClock
) -> None:
    """A step that is taken again is the next one; none is left out and none counts twice."""
    faulty = _store(proxy.url, "faulty", clock)
    sound = _store(real_server.url, "sound", clock)
    steps = {faulty: 0, sound: 0}
    for store in steps:
        proxy.swallow_next_reply("close")
        while store.backfill(2) is not None:
            steps[store] += 1
            proxy.swallow_next_reply("close")
    assert steps[faulty] < steps[sound]
    assert faulty.index_states() == sound.index_states() == {"customer": True}
    assert _told_apart_by_nothing_else(faulty) == _told_apart_by_nothing_else(sound)
    assert violations(faulty) == []
    faulty.close()
    sound.close()


# Something else happens before the call is sent again


@pytest.fixture
def meanwhile(
    proxy: Proxy, real_server: Server, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Store, Any]]]:
    """Runs a verb that loses its first reply, and something else before it is sent again."""
    opened: list[Store] = []

    def run(
        verb: Verb,
        act: Callable[[Store], object],
        prepare: Callable[[Store], object] = lambda _: None,
    ) -> tuple[Store, Any]:
        faulty = _store(proxy.url, "faulty", clock)
        prepare(faulty)
        other = Store(real_server.url, prefix="faulty", clock=clock)
        opened.extend((faulty, other))
        acted = act_before_repeats(faulty, lambda: act(other), monkeypatch)
        proxy.swallow_next_reply("close")
        answer = verb(faulty)
        assert (proxy.swallowed, len(acted)) == (1, 1)
        assert violations(other) == []
        return other, answer

    yield run
    for store in opened:
        store.close()


Meanwhile = Callable[..., tuple[Store, Any]]


def _run_all(store: Store) -> list[str]:
    """Let everything that waits run to completion."""
    done = []
    while taken := take(store, 20, token="elsewhere", worker="elsewhere"):
        store.exchange([("ack_completed", Ack(one, "elsewhere", b"r")) for one in taken], None)
        done += taken
    return done


def test_a_replaced_job_that_ran_meanwhile_is_not_enqueued_again(
    meanwhile: Meanwhile, clock: FakeClock
) -> None:
    """The key was free by then, and yet the answer is the job that carried the payload."""

    def fall_due(store: Store) -> None:
        clock.advance(9)
        assert "kept-late" in _run_all(store)

    store, answer = meanwhile(
        lambda s: s.enqueue(job("late", payload=b"new", delay_ms=9, dedupe=PENDING_LATEST)),
        fall_due,
    )
    assert (answer.id, answer.duplicate) == ("kept-late", True)
    assert store.get_states(["late", "kept-late"]) == [None, JobState.COMPLETED]
    found = store.get_job("kept-late")
    assert found is not None
    assert found.payload == b"new"


@pytest.mark.parametrize("dedupe", [Dedupe("new"), Dedupe("new", ttl=5)], ids=["key", "window"])
def test_a_job_that_took_a_key_and_ran_meanwhile_is_not_enqueued_again(
    meanwhile: Meanwhile, clock: FakeClock, dedupe: Dedupe
) -> None:
    """By then the key was free, or its window over."""

    def run(store: Store) -> None:
        clock.advance(5)
        assert "made-1" in _run_all(store)

    store, answer = meanwhile(lambda s: s.enqueue(job(dedupe=dedupe)), run)
    assert (answer.id, answer.duplicate) == ("made-1", False)
    assert store.get_job("made-2") is None
    assert sum(store.counts(QUEUE).values()) == len(_ids(store)) == SEEDED + 1


@pytest.mark.parametrize("dedupe", [None, Dedupe("fresh"), Dedupe("fresh", ttl="1m")])
def test_a_job_that_ran_and_went_meanwhile_is_not_enqueued_again(
    meanwhile: Meanwhile, dedupe: Dedupe | None
) -> None:
    """Its policy keeps none, so nothing of it was there any more when the call came again."""
    store, answer = meanwhile(lambda s: s.enqueue(job(dedupe=dedupe, keep=NONE)), _run_all)
    assert (answer.id, answer.duplicate) == ("made-1", False)
    assert store.counts(QUEUE)[JobState.WAITING] == 0


def test_a_tick_whose_job_ran_and_went_meanwhile_is_told_as_its_own(
    meanwhile: Meanwhile, real_server: Server, clock: FakeClock
) -> None:
    """It says that it made one, and makes no other."""
    beside = Store(real_server.url, prefix="faulty", clock=clock)

    def tick(store: Store) -> bool:
        beside.upsert_schedule(SCHEDULE)
        return store.tick(NAME, "new", 1_000, 2_000, job("tick", keep=NONE))

    store, answer = meanwhile(tick, _run_all)
    assert answer
    assert store.get_job("tick") is None
    assert store.counts(QUEUE)[JobState.WAITING] == 0
    beside.close()


SEEDED = 16
"""Jobs in the queue of a store as `_store` leaves it."""


def _ids(store: Store) -> list[str]:
    return [one.id for one in store.list(queue=QUEUE, limit=100, bodies=False).items]


def test_a_cancel_that_lost_its_race_meanwhile_does_not_reach_the_next_run(
    meanwhile: Meanwhile,
) -> None:
    """The run failed for good and was retried by hand: that job nobody asked to cancel."""

    def fail_and_retry(store: Store) -> None:
        assert store.ack_failed("h1", TOKEN, b"e") == "failed"
        store.retry("h1")

    store, answer = meanwhile(lambda s: s.cancel("h1"), fail_and_retry)
    assert answer == "cancel_requested"
    found = store.get_job("h1")
    assert found is not None
    assert (found.state, found.cancel_requested) == (JobState.WAITING, False)


def test_a_cancel_that_landed_meanwhile_is_told_as_asked_for(meanwhile: Meanwhile) -> None:
    """The job is finished by then, and the caller is not refused."""
    store, answer = meanwhile(lambda s: s.cancel("h1"), lambda s: s.ack_cancelled("h1", TOKEN))
    assert answer == "cancel_requested"
    assert [one.outcome for one in store.get_attempts("h1")] == ["cancelled"]


def test_a_report_whose_parent_went_on_meanwhile_is_told_as_applied(meanwhile: Meanwhile) -> None:
    """It has failed, was retried and has gone by then."""
    reports = [
        ChildReport("parked", "a", "completed"), ChildReport("parked", "a", "completed"),
        ChildReport("parked", "b", "failed"),
    ]  # fmt: skip

    def go(store: Store) -> None:
        assert store.get_states(["parked"]) == [JobState.FAILED]
        store.retry("parked")
        assert store.remove("parked")

    store, answer = meanwhile(lambda s: s.record_child_results(reports), go, prepare=_refill)
    assert answer == [True, False, True]
    assert store.get_job("parked") is None


def test_a_key_that_passed_on_meanwhile_is_not_cancelled_again(meanwhile: Meanwhile) -> None:
    """The job that took the freed key goes on."""
    store, answer = meanwhile(
        lambda s: s.cancel_by_key(NAME, "pending"),
        lambda s: s.enqueue(job("newer", dedupe=Dedupe("pending"))),
    )
    assert answer is True
    assert store.get_states(["keyed", "newer"]) == [JobState.CANCELLED, JobState.WAITING]


def test_a_job_that_failed_again_meanwhile_is_not_retried_twice(meanwhile: Meanwhile) -> None:
    """One call is one fresh budget."""

    def run_and_fail(store: Store) -> None:
        assert "failed" in take(store, 20)
        store.ack_failed("failed", TOKEN, b"again")

    store, answer = meanwhile(lambda s: s.retry("failed"), run_and_fail)
    assert answer is None
    assert store.get_states(["failed"]) == [JobState.FAILED]


def test_a_job_that_waits_for_its_backoff_meanwhile_is_not_promoted_twice(
    meanwhile: Meanwhile,
) -> None:
    """It ran, failed and is delayed again: that delay stands."""

    def run_and_fail(store: Store) -> None:
        assert "d1" in take(store, 20)
        store.ack_retried("d1", TOKEN, 60_000, b"e")

    store, answer = meanwhile(lambda s: s.promote("d1"), run_and_fail)
    assert answer is None
    assert store.get_states(["d1"]) == [JobState.DELAYED]


@pytest.mark.parametrize("claimed", [False, True])
def test_an_id_that_was_taken_again_meanwhile_is_not_removed_twice(
    meanwhile: Meanwhile, claimed: bool
) -> None:
    """The new job under the id is somebody else's, waiting or running."""

    def enqueue_again(store: Store) -> None:
        assert store.enqueue(job("done", priority=9)).duplicate is False
        if claimed:
            assert take(store) == ["done"]

    store, answer = meanwhile(lambda s: s.steer("remove", ["done", "w1"]), enqueue_again)
    assert [word for word, _ in answer] == ["removed", "removed"]
    state = JobState.ACTIVE if claimed else JobState.WAITING
    assert store.get_states(["done", "w1"]) == [state, None]


@pytest.mark.parametrize(
    ("verb", "undo", "paused"),
    [
        (lambda s: s.pause(QUEUE), lambda s: s.resume(QUEUE), [ELSEWHERE]),
        (lambda s: s.resume(ELSEWHERE), lambda s: s.pause(ELSEWHERE), [ELSEWHERE]),
    ],
    ids=["pause", "resume"],
)
def test_a_queue_that_somebody_else_turned_back_meanwhile_stays_so(
    meanwhile: Meanwhile, verb: Verb, undo: Verb, paused: list[str]
) -> None:
    """Whoever asked last has the word."""
    store, answer = meanwhile(verb, undo)
    assert answer is True
    assert store.paused_queues() == paused


# A new call is no repeat


NEW_CALLS: dict[str, tuple[Verb, type[MQError] | bool]] = {
    "cancel waiting": (lambda s: s.cancel("w1"), JobNotCancellableError),
    "retry": (lambda s: s.retry("failed"), JobNotRetryableError),
    "promote": (lambda s: s.promote("d1"), JobNotPromotableError),
    "cancel_by_key": (lambda s: s.cancel_by_key(NAME, "pending"), False),
    "remove": (lambda s: s.remove("w1"), False),
    "pause": (lambda s: s.pause(QUEUE), False),
    "resume": (lambda s: s.resume(ELSEWHERE), False),
}
"""A verb that succeeds once, and what the same caller is told when it asks again."""


@pytest.mark.parametrize("verb", NEW_CALLS)
def test_the_same_question_asked_anew_is_judged_by_what_is_there(
    proxy: Proxy, clock: FakeClock, verb: str
) -> None:
    """After an answer, lost on its first way or not, the next call of the same kind is refused."""
    ask, refusal = NEW_CALLS[verb]
    store = _store(proxy.url, "faulty", clock)
    proxy.swallow_next_reply("close")
    ask(store)
    before = snapshot(store)
    if refusal is False:
        assert ask(store) is False
    else:
        with pytest.raises(refusal):
            ask(store)
    assert snapshot(store) == before
    store.close()


@pytest.mark.parametrize("how", ["close", "hang"])
def test_a_sweep_whose_reply_is_lost_recovers_once(
    proxy: Proxy, clock: FakeClock, how: Fault
) -> None:
    """Its repeat finds nothing left: what was recovered is told by the ledger alone."""
    store = _store(proxy.url, "faulty", clock)
    clock.advance(LOCK_MS)
    proxy.swallow_next_reply(how)
    assert store.stall_sweep(1) == []
    assert [entry.outcome.value for entry in store.get_attempts("h1")] == ["stalled"]
    assert violations(store) == []
    store.close()


def test_a_destroy_whose_reply_is_lost_deletes_all(proxy: Proxy, clock: FakeClock) -> None:
    """Only the number it tells may miss what the lost reply counted."""
    store = _store(proxy.url, "faulty", clock)
    proxy.swallow_next_reply("close")
    store.destroy()
    assert snapshot(store) == {}
    store.close()


def test_connections_cut_between_calls_cost_nothing(proxy: Proxy, clock: FakeClock) -> None:
    """A firewall that drops idle connections, a server that was restarted."""
    store = _store(proxy.url, "faulty", clock)
    for number in range(5):
        proxy.drop_all()
        assert store.enqueue(job(f"n{number}")).duplicate is False
    assert violations(store) == []
    store.close()
