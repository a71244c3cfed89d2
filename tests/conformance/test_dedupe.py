"""Dedup keys: which enqueues come to one job, for how long, and that no key outlives its use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, outcomes, record, take
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)
from proxy import Fault, Proxy
from servers import MEMORY, Backend, Server, memory_server
from transitions.invariants import violations
from transitions.seed import DELAY_MS, JOB, raw, seed, snapshot
from transitions.walks import walk

from mq import wire
from mq.clock import FakeClock
from mq.policies import MAX_KEY_BYTES, Dedupe
from mq.records import Request
from mq.states import JobState
from mq.store import Store
from mq.wire import ENQUEUE_BATCH, MAX_HELD_BYTES

KEY = "a key"
TTL_MS = 60_000
HOUR_MS = 3_600_000

Act = Callable[[Store, FakeClock], object]


def dedupe(key: str = KEY, *, ttl: int | None = None, **mode: bool) -> Dedupe:
    """A dedup key whose window is given in milliseconds."""
    return Dedupe(key, ttl=None if ttl is None else f"{ttl}ms", **mode)


def keyed(mode: Dedupe | None = None, job_id: str | None = None, **given: Any) -> Request:
    """A request under a dedup key."""
    return job(job_id, dedupe=mode or dedupe(), **given)


def seed_keyed(store: Store, state: JobState, mode: Dedupe | None = None) -> None:
    """Put the job that takes the key into a state."""
    seed(store, state, queue=QUEUE, name=NAME, token=TOKEN, dedupe=mode or dedupe())


def enqueued(store: Store, request: Request) -> tuple[str, bool]:
    """Enqueue, and tell the id and whether it is a duplicate."""
    answer = store.enqueue(request)
    assert answer.name == request.name
    return answer.id, answer.duplicate


def refuses(store: Store, request: Request, job_id: str = JOB) -> bool:
    """Whether the key names that job, and an enqueue under it leaves every key as it was."""
    before = snapshot(store)
    return enqueued(store, request) == (job_id, True) and snapshot(store) == before


def takes(store: Store, request: Request) -> bool:
    """Whether an enqueue makes a job of its own that holds the key."""
    job_id, duplicate = enqueued(store, request)
    assert request.dedupe is not None
    return not duplicate and holder(store, request.dedupe.key, request.name) == job_id


def holder(store: Store, key: str = KEY, name: str = NAME) -> str | None:
    """The job that a key stands for, live or not; None for no such key."""
    found = raw(store).hget(store.keys.dedup(name, key), "id")
    return None if found is None else found.decode()


def window_end(store: Store, key: str = KEY) -> int | None:
    """When the window of a key is over; None for a key without one."""
    found = raw(store).hget(store.keys.dedup(NAME, key), "until")
    return None if found is None else int(found)


def dedup_keys(store: Store) -> list[str]:
    """What of the keyspace belongs to dedup keys."""
    ours = (store.keys.root + "dedup:", store.keys.windows())
    return [key for key in snapshot(store) if key.startswith(ours)]


def run(store: Store, *job_ids: str) -> None:
    """Claim these jobs, which must be the next ones, and complete them."""
    assert take(store, len(job_ids)) == list(job_ids)
    for job_id in job_ids:
        store.ack_completed(job_id, TOKEN, b"result")


# While the keyed job is pending

PENDING = [
    JobState.WAITING, JobState.DELAYED, JobState.ACTIVE, JobState.WAITING_CHILDREN,
]  # fmt: skip


@pytest.mark.parametrize("state", PENDING, ids=lambda state: state.value)
def test_a_key_names_its_job_while_that_is_pending(store: Store, state: JobState) -> None:
    """The answer is the keyed job's id; nothing changes, nobody is woken, whatever was given."""
    seed_keyed(store, state)
    assert holder(store) == JOB
    assert refuses(store, keyed())
    assert refuses(
        store,
        keyed(job_id="its-own-id", queue="elsewhere", payload=b"new", priority=9, delay_ms=1),
    )
    assert store.seen_pairs() == [(QUEUE, NAME)]
    assert violations(store) == []


def _cancel_by_its_key(store: Store, _: FakeClock) -> None:
    key = record(store, JOB).dedupe_key
    assert key
    assert store.cancel_by_key(NAME, key)


def _ack(verb: str, *args: Any) -> Act:
    return lambda store, _: getattr(store, verb)(JOB, TOKEN, *args)


def _cancelled(then: Act) -> Act:
    def act(store: Store, clock: FakeClock) -> object:
        assert store.cancel(JOB) == "cancel_requested"
        return then(store, clock)

    return act


def _sweep(max_stalled: int) -> Act:
    def act(store: Store, clock: FakeClock) -> object:
        clock.advance(DELAY_MS * 2)
        return store.stall_sweep(max_stalled)[0].word

    return act


FREEING: dict[str, tuple[JobState, Act, JobState | None]] = {
    "completed": (JobState.ACTIVE, _ack("ack_completed", b"r"), JobState.COMPLETED),
    "failed": (JobState.ACTIVE, _ack("ack_failed", b"e"), JobState.FAILED),
    "cancelled by its worker": (JobState.ACTIVE, _ack("ack_cancelled"), JobState.CANCELLED),
    "cancelled while waiting": (
        JobState.WAITING, lambda store, _: store.cancel(JOB), JobState.CANCELLED,
    ),
    "cancelled while delayed": (
        JobState.DELAYED, lambda store, _: store.cancel(JOB), JobState.CANCELLED,
    ),
    "cancelled while its children run": (
        JobState.WAITING_CHILDREN, lambda store, _: store.cancel(JOB), JobState.CANCELLED,
    ),
    "cancelled by its key": (JobState.DELAYED, _cancel_by_its_key, JobState.CANCELLED),
    "a cancel lands with the retry": (
        JobState.ACTIVE, _cancelled(_ack("ack_retried", 0, b"e")), JobState.CANCELLED,
    ),
    "a cancel lands with the release": (
        JobState.ACTIVE, _cancelled(_ack("release")), JobState.CANCELLED,
    ),
    "a cancel lands with the sweep": (
        JobState.ACTIVE, _cancelled(_sweep(9)), JobState.CANCELLED,
    ),
    "completed with a cancel pending": (
        JobState.ACTIVE, _cancelled(_ack("ack_completed", b"r")), JobState.COMPLETED,
    ),
    "failed by its stalls": (JobState.ACTIVE, _sweep(0), JobState.FAILED),
    "removed while waiting": (JobState.WAITING, lambda store, _: store.remove(JOB), None),
    "removed while delayed": (JobState.DELAYED, lambda store, _: store.remove(JOB), None),
}  # fmt: skip


@pytest.mark.parametrize("key", [KEY, "long " * 20], ids=["short", "long"])
@pytest.mark.parametrize(("state", "act", "after"), FREEING.values(), ids=FREEING)
def test_every_end_of_a_job_frees_its_key(
    store: Store, clock: FakeClock, state: JobState, act: Act, after: JobState | None, key: str
) -> None:
    """The next enqueue makes a job that holds the key; the old one has no say in it any more."""
    seed_keyed(store, state, dedupe(key))
    act(store, clock)
    assert store.get_states([JOB]) == [after]
    assert dedup_keys(store) == []
    assert takes(store, keyed(dedupe(key)))
    assert violations(store) == []


KEEPING: dict[str, tuple[JobState, Act, JobState]] = {
    "retried at once": (JobState.ACTIVE, _ack("ack_retried", 0, b"e"), JobState.WAITING),
    "retried later": (JobState.ACTIVE, _ack("ack_retried", 9, b"e"), JobState.DELAYED),
    "released": (JobState.ACTIVE, _ack("release"), JobState.WAITING),
    "stalled": (JobState.ACTIVE, _sweep(9), JobState.WAITING),
    "a cancel is asked for": (JobState.ACTIVE, _cancel_by_its_key, JobState.ACTIVE),
    "promoted": (JobState.DELAYED, lambda store, _: store.promote(JOB), JobState.WAITING),
    "not removable": (JobState.ACTIVE, lambda store, _: store.remove(JOB), JobState.ACTIVE),
    "its lock has expired": (
        JobState.ACTIVE, lambda _, clock: clock.advance(HOUR_MS), JobState.ACTIVE,
    ),
    "overdue": (JobState.DELAYED, lambda _, clock: clock.advance(HOUR_MS), JobState.DELAYED),
}  # fmt: skip


@pytest.mark.parametrize(("state", "act", "after"), KEEPING.values(), ids=KEEPING)
def test_a_key_stays_through_what_does_not_end_its_job(
    store: Store, clock: FakeClock, state: JobState, act: Act, after: JobState
) -> None:
    """A job between two runs, or given back, still holds its key."""
    seed_keyed(store, state)
    act(store, clock)
    assert store.get_states([JOB]) == [after]
    assert refuses(store, keyed())


def test_a_key_belongs_to_a_job_name(store: Store) -> None:
    """The same text under another name is another key, in whatever queue."""
    first = store.enqueue(keyed())
    other = store.enqueue(keyed(name="other"))
    assert (first.duplicate, other.duplicate) == (False, False)
    assert enqueued(store, keyed(queue="elsewhere")) == (first.id, True)
    assert enqueued(store, keyed(name="other")) == (other.id, True)
    assert store.cancel_by_key("other", KEY)
    assert (holder(store), holder(store, name="other")) == (first.id, None)


def test_a_key_never_changes_an_id(store: Store) -> None:
    """An id that is given is the job's id, and it does not take the id of the key's text."""
    assert enqueued(store, keyed(job_id="mine")) == ("mine", False)
    assert enqueued(store, job(KEY)) == (KEY, False)
    assert record(store, "mine").dedupe_key == KEY
    assert record(store, KEY).dedupe_key is None


# Windows


@pytest.mark.parametrize("ends", [None, "completed", "failed", "cancelled", "removed"])
def test_a_window_takes_one_job_whether_or_not_it_has_finished(
    store: Store, clock: FakeClock, ends: str | None
) -> None:
    """Live while now < end: at the end itself the next enqueue takes the key."""
    mode = dedupe(ttl=TTL_MS)
    seed_keyed(store, JobState.WAITING, mode)
    if ends in {"completed", "failed"}:
        take(store)
        getattr(store, f"ack_{ends}")(JOB, TOKEN, b"exit")
    elif ends == "cancelled":
        store.cancel(JOB)
    elif ends == "removed":
        assert store.remove(JOB)
    assert refuses(store, keyed(mode))
    clock.advance(TTL_MS - 1)
    assert refuses(store, keyed(mode))
    clock.advance(1)
    assert takes(store, keyed(mode))
    assert window_end(store) == clock.now_ms() + TTL_MS
    assert violations(store) == []


@pytest.mark.parametrize("how", ["cancel", "cancel_by_key", "remove"])
def test_a_window_outlives_a_job_that_is_called_off(store: Store, how: str) -> None:
    """The answer names what is over or gone, and there is nothing to cancel by the key."""
    seed_keyed(store, JobState.DELAYED, dedupe(ttl=TTL_MS))
    assert store.cancel_by_key(NAME, KEY) if how == "cancel_by_key" else getattr(store, how)(JOB)
    assert refuses(store, keyed())
    assert store.get_states([JOB]) == [None if how == "remove" else JobState.CANCELLED]
    assert store.cancel_by_key(NAME, KEY) is False
    assert violations(store) == []


def test_a_window_of_no_length_never_deduplicates(store: Store, clock: FakeClock) -> None:
    """0 is a length like any other: over as soon as it begins."""
    mode = dedupe(ttl=0, extend=True)
    ids = {store.enqueue(keyed(mode)).id for _ in range(3)}
    ids |= {answer.id for answer in store.enqueue_many([keyed(mode)] * 3)}
    assert len(ids) == store.counts()[JobState.WAITING] == 6
    assert store.cancel_by_key(NAME, KEY) is False
    assert store.window_sweep() == 1
    assert dedup_keys(store) == []


@pytest.mark.parametrize("pending", [True, False], ids=["pending", "finished"])
def test_each_dropped_enqueue_pushes_a_debounce_window_out(
    store: Store, clock: FakeClock, pending: bool
) -> None:
    """By the length that the enqueue which took the key gave, counted from the dropped one."""
    seed_keyed(store, JobState.WAITING if pending else JobState.COMPLETED,
               dedupe(ttl=TTL_MS, extend=True))  # fmt: skip
    for _ in range(3):
        clock.advance(TTL_MS - 1)
        assert enqueued(store, keyed(dedupe(ttl=HOUR_MS))) == (JOB, True)
        assert window_end(store) == clock.now_ms() + TTL_MS
        assert violations(store) == []
    clock.advance(TTL_MS)
    assert takes(store, keyed())


def test_a_debounced_enqueue_changes_the_window_alone(store: Store, clock: FakeClock) -> None:
    """Its end stands in two places; all else stays as it was."""
    seed_keyed(store, JobState.WAITING, dedupe(ttl=TTL_MS, extend=True))
    before = snapshot(store)
    clock.advance(5)
    assert enqueued(store, keyed(payload=b"new", delay_ms=1)) == (JOB, True)
    after = snapshot(store)
    ends_at = clock.now_ms() + TTL_MS
    before[store.keys.dedup(NAME, KEY)]["until"] = str(ends_at)
    before[store.keys.windows()][f"{NAME}:{KEY}"] = ends_at
    assert after == before


def test_a_throttled_enqueue_pushes_nothing(store: Store, clock: FakeClock) -> None:
    """Not even when it asks for it: the mode is that of the enqueue that took the key."""
    seed_keyed(store, JobState.WAITING, dedupe(ttl=TTL_MS))
    clock.advance(TTL_MS - 1)
    assert refuses(store, keyed(dedupe(ttl=TTL_MS, extend=True)))


def test_after_its_window_a_job_that_still_waits_has_lost_its_key(
    store: Store, clock: FakeClock
) -> None:
    """The next enqueue takes the key, and the end of the old job does not free it."""
    seed_keyed(store, JobState.WAITING, dedupe(ttl=TTL_MS))
    clock.advance(TTL_MS)
    assert store.cancel_by_key(NAME, KEY) is False
    assert takes(store, keyed(job_id="heir"))
    run(store, JOB)
    assert refuses(store, keyed(), "heir")
    assert store.cancel_by_key(NAME, KEY)
    assert store.get_states(["heir"]) == [JobState.CANCELLED]
    assert violations(store) == []


@pytest.mark.parametrize(
    "given",
    [{"name": "other"}, {}, {"dedupe": dedupe("other")}, {"name": "other", "dedupe": dedupe()}],
    ids=["another name", "no key", "another key", "the key under another name"],
)
@pytest.mark.parametrize("mode", [{}, {"replace": True}], ids=["throttle", "replace"])
def test_a_window_leaves_a_job_alone_that_has_got_the_id_of_its_own(
    store: Store, mode: dict[str, bool], given: dict[str, Any]
) -> None:
    """A removed job's id may be given again: that job was never enqueued under the key."""
    seed_keyed(store, JobState.DELAYED, dedupe(ttl=TTL_MS, **mode))
    assert store.remove(JOB)
    store.enqueue(job(JOB, payload=b"its own", delay_ms=DELAY_MS, **given))
    assert enqueued(store, keyed(payload=b"latest", delay_ms=1)) == (JOB, True)
    found = record(store, JOB)
    assert (found.payload, found.state) == (b"its own", JobState.DELAYED)
    assert store.cancel_by_key(NAME, KEY) is False
    assert store.get_states([JOB]) == [JobState.DELAYED]
    assert violations(store) == []


@pytest.mark.parametrize("mode", [{}, {"replace": True}], ids=["key", "replace"])
def test_a_key_whose_job_was_deleted_by_hand_is_free(store: Store, mode: dict[str, bool]) -> None:
    """A person with redis-cli, or an eviction, must not block the key for ever."""
    seed_keyed(store, JobState.DELAYED, dedupe(**mode))
    raw(store).delete(store.keys.job(JOB), store.keys.payload(JOB), store.keys.extra(JOB))
    assert store.cancel_by_key(NAME, KEY) is False
    assert takes(store, keyed())


# The latest wins

REPLACE = dedupe(replace=True)
POLICIES: dict[str, Any] = {
    "priority": 7, "attempts_max": 5, "backoff": "fixed 100", "timeout_ms": 2_000, "trace": "00-ab",
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "priority": 0, "attempts_max": 1, "backoff": "", "timeout_ms": None, "trace": "",
}  # fmt: skip


def told(store: Store, fields: dict[str, Any], job_id: str = "a") -> dict[str, Any]:
    """These fields of a record."""
    return {field: getattr(record(store, job_id), field) for field in fields}


def test_a_replace_writes_what_the_request_says_over_a_delayed_job(
    store: Store, clock: FakeClock
) -> None:
    """Payload, metadata, policies, trace and delay are new; place, queue and age stay."""
    store.enqueue(keyed(REPLACE, "a", payload=b"old", metadata={"k": "1", "gone": "x"},
                        delay_ms=500))  # fmt: skip
    before = record(store, "a")
    store.enqueue(job("behind"))
    clock.advance(100)
    again = keyed(REPLACE, "ignored", queue="elsewhere", payload=b"new", delay_ms=900,
                  metadata={"k": "2", "added": ""}, **POLICIES)  # fmt: skip
    assert enqueued(store, again) == ("a", True)
    after = record(store, "a")
    assert (after.payload, after.metadata) == (b"new", {"k": "2", "added": ""})
    assert told(store, POLICIES) == POLICIES
    assert (after.state, after.run_at) == (JobState.DELAYED, clock.now_ms() + 900)
    assert (after.id, after.queue, after.name) == ("a", QUEUE, NAME)
    assert (after.seq, after.enqueued_at) == (before.seq, before.enqueued_at)
    assert after.dedupe_key == KEY
    assert store.get_job("ignored") is None
    assert store.seen_pairs() == [(QUEUE, NAME)]
    assert violations(store) == []


def test_a_replace_keeps_the_place_in_line(store: Store, clock: FakeClock) -> None:
    """Once due it runs before what was enqueued after it, unless its new priority says else."""
    store.enqueue_many([keyed(REPLACE, "a", delay_ms=50), job("behind"), job("last")])
    clock.advance(10)
    store.enqueue(keyed(delay_ms=5))
    clock.advance(5)
    assert take(store) == ["a"]
    store.ack_completed("a", TOKEN)
    store.enqueue(keyed(REPLACE, "b", delay_ms=50, priority=9))
    store.enqueue(keyed(priority=-9))
    assert take(store, 5) == ["behind", "last", "b"]


def test_a_replace_with_fewer_fields_takes_the_old_ones_away(store: Store) -> None:
    """What the latest request does not say is not left over from the one before."""
    store.declare_index(["k"])
    store.enqueue(keyed(REPLACE, "a", metadata={"k": "1"}, delay_ms=9, **POLICIES))
    assert enqueued(store, keyed(delay_ms=9)) == ("a", True)
    after = record(store, "a")
    assert (told(store, PLAIN), after.metadata) == (PLAIN, {})
    fields = raw(store).hkeys(store.keys.job("a"))
    assert {b"attempts_max", b"backoff", b"timeout_ms", b"extra"}.isdisjoint(fields)
    assert store.keys.extra("a") not in snapshot(store)
    assert store.keys.metadata("k", "1") not in snapshot(store)
    assert violations(store) == []
    assert enqueued(store, keyed(delay_ms=9, metadata={"k": "3"})) == ("a", True)
    assert record(store, "a").metadata == {"k": "3"}
    assert violations(store) == []


@pytest.mark.parametrize("key", [KEY, "long " * 20], ids=["short", "long"])
def test_a_replace_leaves_what_the_job_has_of_its_own(
    store: Store, clock: FakeClock, key: str
) -> None:
    """Its flow, its key and what its last run reported are not the request's to say."""
    store.enqueue(keyed(dedupe(key, replace=True), "a", parent="a-flow", metadata={"k": "1"}))
    take(store)
    store.progress("a", TOKEN, b"half")
    store.ack_retried("a", TOKEN, 50, b"e", summary="no")
    assert enqueued(store, keyed(dedupe(key), parent="another", delay_ms=9)) == ("a", True)
    after = record(store, "a")
    assert (after.parent, after.progress, after.dedupe_key) == ("a-flow", b"half", key)
    assert after.metadata == {}
    assert violations(store) == []
    clock.advance(9)
    run(store, "a")
    assert dedup_keys(store) == []


def test_a_job_that_waits_for_its_next_run_is_replaced_and_keeps_its_ledger(
    store: Store, clock: FakeClock
) -> None:
    """Attempts made count on; the new payload is what the next run gets."""
    store.enqueue(keyed(REPLACE, "a", payload=b"old", attempts_max=3))
    take(store)
    store.ack_retried("a", TOKEN, 1_000, b"e", summary="ValueError: no")
    assert enqueued(store, keyed(payload=b"new", attempts_max=9, delay_ms=5)) == ("a", True)
    after = record(store, "a")
    assert (after.payload, after.attempts_max, after.attempts_made) == (b"new", 9, 1)
    assert outcomes(store, "a") == ["retried"]
    clock.advance(5)
    claim = store.claim([QUEUE], [NAME], "t2", LOCK_MS)
    assert [one.payload for one in claim.jobs] == [b"new"]
    store.ack_completed("a", "t2")
    assert outcomes(store, "a") == ["retried", "completed"]
    assert takes(store, keyed())


@pytest.mark.parametrize("given", [{}, {"delay_ms": 0}, {"run_at": 5}], ids=str)
def test_a_replace_without_a_delay_leaves_the_job_delayed_and_due(
    store: Store, given: dict[str, int]
) -> None:
    """The next claim takes it."""
    store.enqueue(keyed(REPLACE, "a", delay_ms=HOUR_MS))
    assert enqueued(store, keyed(payload=b"new", **given)) == ("a", True)
    assert store.get_states(["a"]) == [JobState.DELAYED]
    assert record(store, "a").run_at == store.clock.now_ms()
    assert violations(store) == []
    claim = store.claim([QUEUE], [NAME], TOKEN, LOCK_MS)
    assert [one.payload for one in claim.jobs] == [b"new"]


@pytest.mark.parametrize("delay_ms", [0, 10])
def test_a_replace_that_makes_a_job_the_earliest_wakes_a_worker(
    store: Store, delay_ms: int
) -> None:
    """Somebody sleeps until the old instant and must look sooner; whatever queue it names."""
    store.enqueue_many([job("sooner", delay_ms=50), keyed(REPLACE, "a", delay_ms=HOUR_MS)])
    marker = store.keys.wake(QUEUE, NAME)
    raw(store).delete(marker)
    store.enqueue(keyed(delay_ms=90))
    assert marker not in snapshot(store)
    store.enqueue(keyed(delay_ms=delay_ms, queue="elsewhere"))
    assert snapshot(store)[marker] == {"1": 0}
    assert violations(store) == []


def test_a_replace_in_a_paused_queue_wakes_nobody(store: Store) -> None:
    """Also when it is asked for through another queue."""
    store.enqueue(keyed(REPLACE, "a", delay_ms=HOUR_MS))
    store.pause(QUEUE)
    marker = store.keys.wake(QUEUE, NAME)
    raw(store).delete(marker)
    for queue in (QUEUE, "elsewhere"):
        assert enqueued(store, keyed(queue=queue)) == ("a", True)
        assert marker not in snapshot(store)


@pytest.mark.parametrize(
    "state", [state for state in PENDING if state is not JobState.DELAYED], ids=lambda s: s.value
)
def test_a_job_that_is_not_delayed_is_not_replaced(store: Store, state: JobState) -> None:
    """The enqueue is dropped as under a plain key."""
    seed_keyed(store, state, REPLACE)
    assert refuses(store, keyed(REPLACE, payload=b"new", metadata={"k": "2"}, delay_ms=9))


@pytest.mark.parametrize("end", FREEING)
def test_a_key_that_replaces_is_freed_like_a_plain_one(
    store: Store, clock: FakeClock, end: str
) -> None:
    """Every end of the job is an end of its key."""
    state, act, _ = FREEING[end]
    seed_keyed(store, state, REPLACE)
    act(store, clock)
    assert dedup_keys(store) == []
    assert takes(store, keyed())


def test_a_replace_moves_the_job_to_its_new_index_entries(store: Store, clock: FakeClock) -> None:
    """Under the keys that are declared by then, as old as before; the old values are gone."""
    store.declare_index(["k"])
    store.enqueue(keyed(REPLACE, "a", delay_ms=9, metadata={"k": "1", "late": "x"}))
    store.declare_index(["late"])
    clock.advance(5)
    store.enqueue(keyed(delay_ms=9, metadata={"k": "2", "late": "y", "plain": "z"}))
    assert violations(store) == []
    sets = [key for key in snapshot(store) if key.startswith(store.keys.root + "metadata:")]
    assert sets == [store.keys.metadata("k", "2"), store.keys.metadata("late", "y")]

    def listed(**metadata: str) -> list[str]:
        return [one.id for one in store.list(metadata=metadata).items]

    assert (listed(k="1"), listed(k="2"), listed(k="2", plain="z")) == ([], ["a"], ["a"])
    assert (listed(late="x"), listed(late="y")) == ([], ["a"])


def test_a_replace_that_lands_begins_its_window_anew(store: Store, clock: FakeClock) -> None:
    """One that does not land leaves the window; after it the key is free, the old job or not."""
    mode = dedupe(ttl=TTL_MS, replace=True)
    store.enqueue(keyed(mode, "a", delay_ms=HOUR_MS))
    clock.advance(TTL_MS - 1)
    assert enqueued(store, keyed(dedupe(ttl=HOUR_MS), payload=b"2", delay_ms=HOUR_MS)) == (
        "a", True,
    )  # fmt: skip
    assert record(store, "a").payload == b"2"
    assert window_end(store) == clock.now_ms() + TTL_MS
    store.promote("a")
    clock.advance(TTL_MS - 1)
    assert refuses(store, keyed(mode, payload=b"3"), "a")
    clock.advance(1)
    assert takes(store, keyed(mode, "b"))
    assert record(store, "a").payload == b"2"
    run(store, "a")
    assert refuses(store, keyed(mode), "b")
    assert violations(store) == []


def test_after_its_window_a_delayed_job_is_not_replaced_any_more(
    store: Store, clock: FakeClock
) -> None:
    """The next enqueue makes a job of its own beside it."""
    store.enqueue(keyed(dedupe(ttl=TTL_MS, replace=True), "a", payload=b"1", delay_ms=HOUR_MS))
    clock.advance(TTL_MS)
    assert takes(store, keyed(dedupe(ttl=TTL_MS, replace=True), "b", payload=b"2", delay_ms=9))
    assert record(store, "a").payload == b"1"
    store.enqueue(keyed(payload=b"3", delay_ms=9))
    assert (record(store, "a").payload, record(store, "b").payload) == (b"1", b"3")


# Whose mode it is

EVERY_MODE = {
    "key": dedupe(),
    "throttle": dedupe(ttl=TTL_MS),
    "debounce": dedupe(ttl=9, extend=True),
    "replace": REPLACE,
    "replace in a window": dedupe(ttl=HOUR_MS, replace=True),
    "replace in a pushed window": dedupe(ttl=7, extend=True, replace=True),
}


def test_the_mode_is_that_of_the_enqueue_that_took_the_key(store: Store, clock: FakeClock) -> None:
    """What a later enqueue asks for begins only when it takes the key itself."""
    window = dedupe(ttl=TTL_MS)
    store.enqueue(keyed(dedupe(), "plain", delay_ms=9))
    assert refuses(store, keyed(REPLACE, payload=b"new"), "plain")
    assert refuses(store, keyed(window), "plain")
    store.cancel("plain")

    assert takes(store, keyed(REPLACE, "replaced", payload=b"old", delay_ms=9))
    assert enqueued(store, keyed(payload=b"new", delay_ms=9)) == ("replaced", True)
    assert record(store, "replaced").payload == b"new"
    store.cancel("replaced")

    assert takes(store, keyed(window, "window", delay_ms=9))
    assert refuses(store, keyed(REPLACE, payload=b"new"), "window")
    store.cancel("window")
    assert refuses(store, keyed(), "window")
    clock.advance(TTL_MS)

    assert takes(store, keyed(dedupe(), "plain again"))
    assert snapshot(store)[store.keys.dedup(NAME, KEY)] == {"id": "plain again"}
    store.cancel("plain again")
    assert dedup_keys(store) == []


@pytest.mark.parametrize(
    ("taken_as", "then"),
    list(itertools.permutations(EVERY_MODE.values(), 2)),
    ids=[" then ".join(pair) for pair in itertools.permutations(EVERY_MODE, 2)],
)
def test_nothing_of_an_old_mode_is_left_when_a_key_is_taken_again(
    store: Store, clock: FakeClock, taken_as: Dedupe, then: Dedupe
) -> None:
    """The key says what a fresh one would."""
    store.enqueue(keyed(taken_as, "a"))
    run(store, "a")
    clock.advance(taken_as.ttl_ms or 0)
    assert takes(store, keyed(then, "b"))
    expected = {"id": "b"}
    if then.ttl_ms is not None:
        expected |= {"ttl": str(then.ttl_ms), "until": str(clock.now_ms() + then.ttl_ms)}
    expected |= {field: "1" for field in ("extend", "replace") if getattr(then, field)}
    assert snapshot(store)[store.keys.dedup(NAME, KEY)] == expected
    assert violations(store) == []


@pytest.mark.parametrize("mode", EVERY_MODE.values(), ids=EVERY_MODE)
def test_an_id_that_exists_is_recognised_before_the_key(
    store: Store, clock: FakeClock, mode: Dedupe
) -> None:
    """It is answered as it is: no key is taken, no window pushed, nothing replaced."""
    store.enqueue_many([keyed(mode, "holder", delay_ms=9), job("there", delay_ms=9)])
    clock.advance(1)
    for request in (
        keyed(job_id="there", payload=b"new"),
        keyed(dedupe("a free key"), "there"),
        keyed(dedupe("a free key", ttl=TTL_MS), "holder"),
        keyed(mode, "holder", payload=b"new", delay_ms=1),
    ):
        assert request.id is not None
        assert refuses(store, request, request.id)
    assert takes(store, keyed(dedupe("a free key")))


def test_a_job_that_is_retried_by_hand_does_not_take_its_key_back(store: Store) -> None:
    """Neither at once nor when it ends, whoever has the key by then."""
    seed_keyed(store, JobState.FAILED)
    store.retry(JOB)
    assert dedup_keys(store) == []
    assert store.cancel_by_key(NAME, KEY) is False
    assert takes(store, keyed(job_id="heir"))
    assert violations(store) == []

    assert take(store, 1) == [JOB]
    store.ack_failed(JOB, TOKEN, b"e")
    assert refuses(store, keyed(), "heir")
    store.retry(JOB)
    assert refuses(store, keyed(), "heir")
    run(store, "heir", JOB)
    assert dedup_keys(store) == []
    assert takes(store, keyed())
    assert violations(store) == []


@pytest.mark.parametrize("how", ["cancel", "remove"])
def test_a_job_that_was_retried_by_hand_leaves_the_key_of_another_alone(
    store: Store, how: str
) -> None:
    """Called off while the other is pending."""
    seed_keyed(store, JobState.FAILED)
    store.enqueue(keyed(job_id="heir"))
    store.retry(JOB)
    getattr(store, how)(JOB)
    assert refuses(store, keyed(), "heir")
    assert violations(store) == []


# Many at once


def answers(store: Store, requests: list[Request]) -> list[tuple[str, bool]]:
    """What a batch is told."""
    return [(one.id, one.duplicate) for one in store.enqueue_many(requests)]


def test_a_key_many_times_in_one_batch_makes_one_job(store: Store) -> None:
    """Items behave as if they were enqueued one after the other."""
    requests = [
        keyed(job_id="a", payload=b"1"), keyed(job_id="b"), keyed(dedupe("other"), "c"),
        keyed(name="other", job_id="d"), job("b"), keyed(job_id="e"), keyed(dedupe("other")),
    ]  # fmt: skip
    assert answers(store, requests) == [
        ("a", False), ("a", True), ("c", False), ("d", False), ("b", False), ("a", True),
        ("c", True),
    ]  # fmt: skip
    assert record(store, "a").payload == b"1"
    assert take(store, 9, names=(NAME, "other")) == ["a", "c", "d", "b"]
    assert violations(store) == []


def test_a_batch_replaces_what_it_has_just_taken_in(store: Store, clock: FakeClock) -> None:
    """The last one wins, and its index entries are the only ones."""
    store.declare_index(["k"])
    store.enqueue(keyed(dedupe("old", replace=True), "old", delay_ms=9, metadata={"k": "0"}))
    requests = [
        keyed(dedupe(key, replace=True), payload=b"%d" % n, delay_ms=n * 10, metadata={"k": str(n)})
        for key in (KEY, "old")
        for n in (1, 2, 3)
    ]
    told_ = answers(store, requests)
    new = told_[0][0]
    assert told_ == [(new, False), (new, True), (new, True), *[("old", True)] * 3]
    for job_id in (new, "old"):
        found = record(store, job_id)
        assert (found.payload, found.metadata) == (b"3", {"k": "3"})
        assert found.run_at == clock.now_ms() + 30
    assert {one.id for one in store.list(metadata={"k": "3"}).items} == {new, "old"}
    assert violations(store) == []


def test_a_batch_that_replaces_a_job_and_then_meets_its_id(store: Store) -> None:
    """A replaced job is there like any other for the items behind it."""
    requests = [
        keyed(REPLACE, "a", payload=b"1", delay_ms=9), keyed(payload=b"2", delay_ms=9),
        job("a", payload=b"3"), keyed(payload=b"4"), keyed(dedupe("free"), "a"),
    ]  # fmt: skip
    assert answers(store, requests) == [("a", False), *[("a", True)] * 4]
    assert record(store, "a").payload == b"4"
    assert holder(store, "free") is None
    assert violations(store) == []
    assert take(store, 9) == ["a"]


def test_a_batch_across_chunks_is_one_sequence(store: Store) -> None:
    """Keys that one chunk took hold for the next, and the last of all wins."""
    total = ENQUEUE_BATCH * 2 + 50
    requests = [
        keyed(dedupe(f"k{at % 7}", replace=at % 7 == 0), payload=b"%d" % at, delay_ms=9)
        for at in range(total)
    ]
    told_ = answers(store, requests)
    firsts = told_[:7]
    assert not any(duplicate for _, duplicate in firsts)
    assert told_[7:] == [(firsts[at % 7][0], True) for at in range(7, total)]
    payloads = [record(store, job_id).payload for job_id, _ in firsts]
    last = max(at for at in range(total) if at % 7 == 0)
    assert payloads == [b"%d" % last, *(b"%d" % at for at in range(1, 7))]
    assert store.counts()[JobState.DELAYED] == 7
    assert violations(store) == []


def test_a_made_id_that_collides_is_no_dedup_answer(server: Server, clock: FakeClock) -> None:
    """The job is taken in under another id and holds the key; a dedup answer is not tried again."""
    ids = iter(["taken", "taken", "a", "taken", "taken", "unused", "b", "unused"])
    store = Store(server.url, clock=clock, id_generator=lambda: next(ids))
    store.enqueue(job())
    assert enqueued(store, keyed()) == ("a", False)
    assert holder(store) == "a"
    # A collision first, then the key: the answer is the keyed job.
    assert enqueued(store, keyed()) == ("a", True)
    run(store, "taken", "a")
    assert enqueued(store, keyed()) == ("b", False)
    assert enqueued(store, keyed()) == ("b", True)
    assert next(ids, None) is None
    store.close()


# Any text, and no key too many

ODD_KEYS = [
    " ", "with space", "a:b:c", ":", "{mq}:meta", "*?[x]", "0", "ключ é 🎉", "a\u2028b",
    "x" * MAX_HELD_BYTES, "x" * (MAX_HELD_BYTES + 1), "ü" * (MAX_KEY_BYTES // 2),
    "x" * MAX_KEY_BYTES,
]  # fmt: skip


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_may_be_any_text(store: Store, clock: FakeClock, key: str) -> None:
    """It is found, freed, swept and shown as it was given."""
    seed_keyed(store, JobState.WAITING, dedupe(key))
    assert record(store, JOB).dedupe_key == key
    assert [one.dedupe_key for one in store.list(bodies=False).items] == [key]
    assert refuses(store, keyed(dedupe(key)))
    assert violations(store) == []
    claim = store.claim([QUEUE], [NAME], TOKEN, LOCK_MS)
    assert [one.dedupe_key for one in claim.jobs] == [key]
    store.ack_completed(JOB, TOKEN)
    assert dedup_keys(store) == []

    assert takes(store, keyed(dedupe(key, ttl=TTL_MS), "b"))
    assert violations(store) == []
    assert store.cancel_by_key(NAME, key)
    assert store.get_states(["b"]) == [JobState.CANCELLED]
    clock.advance(TTL_MS)
    assert store.window_sweep() == 1
    assert dedup_keys(store) == []

    assert takes(store, keyed(dedupe(key), "c"))
    assert store.remove("c")
    assert dedup_keys(store) == []


def test_a_long_key_costs_the_record_its_extra_hash_alone(store: Store) -> None:
    """It stands there for as long as the job does, with and without metadata."""
    long = "x" * (MAX_HELD_BYTES + 1)
    store.enqueue_many([keyed(dedupe(long), "a"), keyed(dedupe(long + "y"), "b",
                                                        metadata={"k": "v"})])  # fmt: skip
    content = snapshot(store)
    assert content[store.keys.job("a")]["dedup"] == ""
    assert content[store.keys.extra("a")] == {"dedup": long}
    assert content[store.keys.extra("b")] == {"dedup": long + "y", "metadata:k": "v"}
    assert record(store, "b").metadata == {"k": "v"}
    assert violations(store) == []


def test_a_sweep_deletes_the_windows_that_are_over_and_no_other(
    store: Store, clock: FakeClock
) -> None:
    """Over is now >= end, counted from what the end is by then."""
    for key, ttl in (("over", 10), ("just over", 20), ("not yet", 21), ("again", 10)):
        store.enqueue(keyed(dedupe(key, ttl=ttl)))
    store.enqueue(keyed(dedupe("pushed", ttl=15, extend=True)))
    store.enqueue(keyed(dedupe("plain"), "plain"))
    store.enqueue(keyed(dedupe("now plain", ttl=5)))
    clock.advance(10)
    store.enqueue_many([keyed(dedupe("pushed")), keyed(dedupe("again", ttl=11))])
    assert takes(store, keyed(dedupe("now plain")))
    clock.advance(10)
    kept = {"not yet", "again", "pushed", "plain", "now plain"}
    before = snapshot(store)

    assert store.window_sweep() == 2

    assert dedup_keys(store) == sorted(
        [*(store.keys.dedup(NAME, key) for key in kept), store.keys.windows()]
    )
    after = snapshot(store)
    for key in kept:
        assert after[store.keys.dedup(NAME, key)] == before[store.keys.dedup(NAME, key)]
    assert store.window_sweep() == 0
    assert snapshot(store) == after
    assert violations(store) == []


def test_a_sweep_is_bounded_and_begins_with_the_oldest(store: Store, clock: FakeClock) -> None:
    """Each call deletes as many as it may."""
    for at in range(7):
        store.enqueue(keyed(dedupe(f"k{at}", ttl=at)))
    clock.advance(100)
    assert [store.window_sweep(3) for _ in range(4)] == [3, 3, 1, 0]
    assert dedup_keys(store) == []
    for at in range(7):
        store.enqueue(keyed(dedupe(f"k{at}", ttl=at)))
    clock.advance(100)
    store.window_sweep(3)
    assert [holder(store, f"k{at}") is None for at in range(7)] == [True] * 3 + [False] * 4
    assert violations(store) == []


def test_a_window_that_is_swept_late_is_over_all_the_same(store: Store, clock: FakeClock) -> None:
    """What decides is the clock, before the sweep and after it."""
    seed_keyed(store, JobState.WAITING, dedupe(ttl=TTL_MS))
    clock.advance(TTL_MS)
    store.window_sweep()
    assert dedup_keys(store) == []
    assert takes(store, keyed(job_id="heir"))
    run(store, JOB)
    assert refuses(store, keyed(), "heir")
    assert violations(store) == []


CALLED_OFF: dict[str, Act] = {
    "removed": lambda store, _: store.remove("a"),
    "cancelled": lambda store, _: store.cancel("a"),
    "cancelled by key": lambda store, _: store.cancel_by_key(NAME, KEY),
    "promoted and run": lambda store, _: (store.promote("a"), run(store, "a")),
    "run when due": lambda store, clock: (clock.advance(DELAY_MS), run(store, "a")),
    "failed and removed": lambda store, _: (
        store.promote("a"), take(store), store.ack_failed("a", TOKEN), store.remove("a"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", CALLED_OFF)
@pytest.mark.parametrize(
    "mode",
    [
        dedupe(), dedupe(ttl=HOUR_MS), dedupe(ttl=HOUR_MS, extend=True), REPLACE,
        dedupe(ttl=HOUR_MS, replace=True), dedupe(ttl=HOUR_MS, extend=True, replace=True),
    ],
    ids=EVERY_MODE,
)  # fmt: skip
def test_a_delayed_job_that_comes_to_its_end_leaves_no_orphan_key(
    store: Store, clock: FakeClock, how: str, mode: Dedupe
) -> None:
    """A pending key is free at once; a window follows its own rule; in the end nothing is left."""
    store.enqueue(keyed(mode, "a", delay_ms=DELAY_MS))
    # Whoever looks takes the wake-up, which would be left over for a job that is removed.
    assert take(store) == []
    CALLED_OFF[how](store, clock)
    assert violations(store) == []
    if mode.ttl_ms is None:
        assert dedup_keys(store) == []
        assert takes(store, keyed(mode, "b", delay_ms=DELAY_MS))
    else:
        assert enqueued(store, keyed(mode, delay_ms=DELAY_MS)) == ("a", True)
        assert store.cancel_by_key(NAME, KEY) is False
        clock.advance(HOUR_MS)
        assert takes(store, keyed(mode, "b", delay_ms=DELAY_MS))
    for job_id in ("a", "b"):
        store.remove(job_id)
    clock.advance(HOUR_MS)
    store.window_sweep()
    assert take(store) == []
    assert dedup_keys(store) == []
    assert violations(store) == []
    assert sum(store.counts().values()) == 0


def test_a_promoted_job_keeps_its_key_until_it_has_run(store: Store) -> None:
    """Promoting is no end."""
    store.enqueue(keyed(job_id="a", delay_ms=DELAY_MS))
    store.promote("a")
    assert refuses(store, keyed(), "a")
    assert take(store) == ["a"]
    assert refuses(store, keyed(), "a")
    store.ack_completed("a", TOKEN)
    assert takes(store, keyed())


# Replies that are lost


@pytest.fixture
def proxied(real_server: Server, clock: FakeClock) -> Iterator[tuple[Store, Proxy]]:
    """A store behind a proxy, on each real server, and the proxy."""
    proxy = Proxy(real_server.url.removeprefix("unix://"))
    store = Store(proxy.url, clock=clock, socket_timeout=0.15)
    yield store, proxy
    store.close()
    proxy.close()


@pytest.mark.parametrize("how", ["close", "hang"])
def test_an_enqueue_whose_reply_is_lost_is_told_the_same(
    proxied: tuple[Store, Proxy], how: Fault
) -> None:
    """The enqueue that took the key is no duplicate of itself; others name its job."""
    store, proxy = proxied
    store.enqueue(keyed(dedupe("old", replace=True), "old", payload=b"1", delay_ms=9))
    batch = [
        keyed(job_id="a"), keyed(), keyed(dedupe("old"), payload=b"2", delay_ms=9),
        keyed(dedupe("w", ttl=TTL_MS, extend=True), "w"), keyed(dedupe("w")),
    ]  # fmt: skip
    proxy.swallow_next_reply(how)
    assert answers(store, batch) == [
        ("a", False), ("a", True), ("old", True), ("w", False), ("w", True),
    ]  # fmt: skip
    assert proxy.swallowed == 1
    assert record(store, "old").payload == b"2"
    assert sum(store.counts().values()) == 3
    assert violations(store) == []


def test_a_replace_asked_for_again_after_the_job_has_run_is_told_the_same(store: Store) -> None:
    """The key is free by then, and the repeat makes no second job."""
    store.enqueue(keyed(REPLACE, "a", delay_ms=9))
    item = wire.enqueue_item(keyed(payload=b"new"), "made", "a-call.0")
    now = store.clock.now_ms()
    first = store._caller.call("enqueue", now, 0, *item)
    run(store, "a")
    assert dedup_keys(store) == []
    assert store._caller.call("enqueue", now, 1, *item) == first
    assert first[3] == b"a"
    assert store.get_job("made") is None
    assert dedup_keys(store) == []


# Against a model


@attrs.define(eq=False)
class ModelJob:
    """What the model knows of a job; compared by identity, as ids may be given twice."""

    id: str
    name: str
    state: str
    run_at: int
    payload: bytes
    key: str | None

    @property
    def pending(self) -> bool:
        """Whether it has not finished."""
        return self.state in {"waiting", "delayed", "active"}


@attrs.define
class ModelKey:
    """What a key holds: its job, the end of its window, and the mode it was taken in."""

    job: ModelJob
    mode: Dedupe
    end: int | None


@attrs.define
class Model:
    """The four modes in a page of Python."""

    jobs: dict[str, ModelJob] = attrs.field(factory=dict)
    keys: dict[tuple[str, str], ModelKey] = attrs.field(factory=dict)

    def live(self, now: int, name: str, key: str) -> ModelKey | None:
        """What the key holds, unless it is free."""
        held = self.keys.get((name, key))
        if held is None or (now >= held.end if held.end is not None else not held.job.pending):
            return None
        return held

    def enqueue(self, now: int, request: Request, made_id: str) -> tuple[str, bool]:
        """What the store has to answer; an id it made itself is taken from its own answer."""
        job_id, delay = request.id or made_id, request.delay_ms or 0
        if request.id in self.jobs:
            return job_id, True
        mode = request.dedupe
        held = mode and self.live(now, request.name, mode.key)
        if held:
            lands = held.mode.replace and held.job.state == "delayed"
            lands = lands and self.jobs.get(held.job.id) is held.job
            if lands:
                held.job.payload, held.job.run_at = request.payload, now + delay
            if held.mode.ttl_ms is not None and (lands or held.mode.extend):
                held.end = now + held.mode.ttl_ms
            return held.job.id, True
        made = ModelJob(
            job_id, request.name, "delayed" if delay else "waiting", now + delay, request.payload,
            mode and mode.key,
        )  # fmt: skip
        self.jobs[job_id] = made
        if mode:
            end = None if mode.ttl_ms is None else now + mode.ttl_ms
            self.keys[request.name, mode.key] = ModelKey(made, mode, end)
        return job_id, False

    def ends(self, job_id: str, state: str) -> None:
        """A job has finished: it frees the key that is live while it is pending."""
        done = self.jobs[job_id]
        done.state = state
        held = done.key is not None and self.keys.get((done.name, done.key))
        if held and held.job is done and held.end is None:
            assert done.key is not None
            del self.keys[done.name, done.key]


MODES = [
    None,
    *(
        dedupe(key, ttl=ttl, replace=replace, extend=extend)
        for key in ("k", "long " * 20)
        for replace in (False, True)
        for ttl, extend in ((None, False), (50, False), (50, True), (0, False))
    ),
]
ids = st.sampled_from(["a", "b", "c"])
delays = st.sampled_from([0, 0, 30, 200])
requests_ = st.builds(
    lambda job_id, name, mode, delay_ms, payload: job(
        job_id, name=name, dedupe=mode, delay_ms=delay_ms, payload=payload
    ),
    st.none() | ids, st.sampled_from(["n", "n", "m"]), st.sampled_from(MODES), delays,
    st.binary(min_size=4, max_size=4),
)  # fmt: skip
_prefixes = itertools.count(1)


class DedupeWalk(RuleBasedStateMachine):
    """A store, and the model it is compared with."""

    server: Server

    @initialize()
    def open(self) -> None:
        """Begin with an empty store."""
        self.clock = FakeClock(0)
        self.store = Store(self.server.url, prefix=f"dedupe-{next(_prefixes)}", clock=self.clock)
        self.model = Model()
        # One finished job of each name: markers are called for by the names there are.
        for name in (NAME, "m"):
            self.store.enqueue(job(f"{name} is known", name=name))
            take(self.store, names=(name,))
            self.store.ack_completed(f"{name} is known", TOKEN)

    def teardown(self) -> None:
        """When every job is gone and every window over, no key is left."""
        store = self.store
        self.clock.advance(HOUR_MS)
        while store.stall_sweep(0):
            pass
        for job_id in self.model.jobs:
            assert store.remove(job_id)
        store.window_sweep()
        assert dedup_keys(store) == []
        assert violations(store) == []
        store.destroy()
        store.close()

    def known(self, job_id: str) -> str:
        """Stand for the n-th job there is, ids that the store made included."""
        there = sorted(self.model.jobs)
        return there[int(job_id, 36) % len(there)] if there else job_id

    @rule(batch=st.lists(requests_, min_size=1, max_size=4))
    def enqueue(self, batch: list[Request]) -> None:
        """Take a batch in; each answer is the model's."""
        now = self.clock.now_ms()
        for request, answer in zip(batch, self.store.enqueue_many(batch), strict=True):
            assert (answer.id, answer.duplicate) == self.model.enqueue(now, request, answer.id)

    @rule(name=st.sampled_from([NAME, "m"]), limit=st.integers(1, 3))
    def claim(self, name: str, limit: int) -> None:
        """Start some, what is due among them."""
        now = self.clock.now_ms()
        for one in self.model.jobs.values():
            if one.state == "delayed" and one.run_at <= now:
                one.state = "waiting"
        for job_id in take(self.store, limit, names=(name,), lock_ms=HOUR_MS):
            assert self.model.jobs[job_id].state == "waiting"
            self.model.jobs[job_id].state = "active"

    @rule(
        nth=ids,
        verb=st.sampled_from(["ack_completed", "ack_failed", "ack_cancelled", "release"]),
    )
    def ack(self, nth: str, verb: str) -> None:
        """End a run, if there is one to end."""
        job_id = self.known(nth)
        if job_id not in self.model.jobs or self.model.jobs[job_id].state != "active":
            return
        word = getattr(self.store, verb)(job_id, TOKEN)
        if word == "released":
            self.model.jobs[job_id].state = "waiting"
        else:
            self.model.ends(job_id, word)

    @rule(nth=ids, delay=delays)
    def retry_later(self, nth: str, delay: int) -> None:
        """End a run that failed with budget left."""
        job_id = self.known(nth)
        if job_id not in self.model.jobs or self.model.jobs[job_id].state != "active":
            return
        one = self.model.jobs[job_id]
        if self.store.ack_retried(job_id, TOKEN, delay) == "cancelled":
            self.model.ends(job_id, "cancelled")
        else:
            one.state = "delayed" if delay else "waiting"
            one.run_at = self.clock.now_ms() + delay

    @rule(nth=ids, verb=st.sampled_from(["cancel_request", "remove", "retry", "promote"]))
    def steer(self, nth: str, verb: Any) -> None:
        """What a person does to a job, refusals included."""
        job_id = self.known(nth)
        match self.store.steer(verb, [job_id])[0][0]:
            case "cancelled":
                assert self.model.jobs[job_id].pending
                self.model.ends(job_id, "cancelled")
            case "removed":
                self.model.ends(job_id, "gone")
                del self.model.jobs[job_id]
            case "retried" | "promoted":
                self.model.jobs[job_id].state = "waiting"

    @rule(name=st.sampled_from([NAME, "m"]), mode=st.sampled_from(MODES[1:]))
    def cancel_by_key(self, name: str, mode: Dedupe) -> None:
        """True when a live key names a job that is pending and there."""
        held = self.model.live(self.clock.now_ms(), name, mode.key)
        found = held is not None and self.model.jobs.get(held.job.id) is held.job
        found = found and held is not None and held.job.pending
        assert self.store.cancel_by_key(name, mode.key) is found
        if held and found and held.job.state != "active":
            self.model.ends(held.job.id, "cancelled")

    @rule(ms=st.sampled_from([1, 20, 49, 50]))
    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance(ms)

    @rule(limit=st.integers(1, 3))
    def window_sweep(self, limit: int) -> None:
        """Changes no answer."""
        self.store.window_sweep(limit)

    @invariant()
    def the_store_is_what_the_model_says(self) -> None:
        """State, instant and payload of every job; and no orphan."""
        assert violations(self.store) == []
        for job_id, one in self.model.jobs.items():
            found = record(self.store, job_id)
            assert (found.state.value, found.payload) == (one.state, one.payload)
            if one.state == "delayed":
                assert found.run_at == one.run_at


def test_answers_in_memory_are_those_of_the_model() -> None:
    """The in-process server runs the same scripts."""
    walk(DedupeWalk, memory_server(Backend(MEMORY)), examples=15, steps=30)


def test_answers_of_a_real_server_are_those_of_the_model(one_server: Server) -> None:
    """Whatever is enqueued, run, called off and swept in whatever order."""
    walk(DedupeWalk, one_server, examples=50, steps=30)
