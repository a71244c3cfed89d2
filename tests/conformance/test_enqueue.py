"""Taking jobs in: ids, duplicates, places in line, instants."""

from __future__ import annotations

import itertools

import pytest
from conformance.build import NAME, QUEUE, TOKEN, job, outcomes, record, take
from servers import Server
from transitions.invariants import violations
from transitions.seed import JOB, raw, seed, snapshot

from mq.clock import FakeClock
from mq.errors import StoreError
from mq.records import Enqueued
from mq.states import JobState
from mq.store import Store
from mq.wire import ENQUEUE_BATCH


def test_a_job_waits_with_all_that_was_given(store: Store, clock: FakeClock) -> None:
    """What went in is what is read back, byte for byte."""
    body = bytes(range(256)) * 3
    answer = store.enqueue(
        job(
            payload=body, priority=7, attempts_max=5, backoff="fixed 100", timeout_ms=2_000,
            metadata={"customer": "c:1", "empty": ""}, trace="00-ab-cd",
        )
    )  # fmt: skip
    found = record(store, answer.id)
    assert (answer.duplicate, answer.name) == (False, NAME)
    assert (found.state, found.queue, found.name) == (JobState.WAITING, QUEUE, NAME)
    assert (found.payload, found.priority, found.attempts_max) == (body, 7, 5)
    assert (found.backoff, found.timeout_ms) == ("fixed 100", 2_000)
    assert (found.metadata, found.trace) == ({"customer": "c:1", "empty": ""}, "00-ab-cd")
    assert (found.enqueued_at, found.run_at) == (clock.now_ms(), clock.now_ms())
    assert (found.exit, found.token, found.worker, found.attempts_made) == (None, None, None, 0)
    assert violations(store) == []


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\xff" * 70_000])
def test_any_bytes_are_a_payload(store: Store, payload: bytes) -> None:
    """Empty ones as well."""
    store.enqueue(job("a", payload=payload))
    assert record(store, "a").payload == payload
    assert store.claim([QUEUE], [NAME], TOKEN, 100).jobs[0].payload == payload


def test_ids_are_made_in_order_and_differ(store: Store) -> None:
    """An id that is not given is made: unique, and increasing within a process."""
    made = [answer.id for answer in store.enqueue_many(job() for _ in range(450))]
    assert made == sorted(made)
    assert len(set(made)) == 450
    assert {len(job_id) for job_id in made} == {26}


@pytest.mark.parametrize(
    "job_id", ["x", "a:b:c", "{mq}:meta", "order/ünïcödé 🎉", "a b*?[x]", "0", "x" * 512]
)
def test_an_explicit_id_may_be_any_text(store: Store, job_id: str) -> None:
    """Colons, braces and patterns in it are text."""
    assert store.enqueue(job(job_id)) == Enqueued(job_id, False, NAME)
    assert take(store) == [job_id]
    assert store.ack_completed(job_id, TOKEN, b"r") == "completed"
    assert record(store, job_id).exit == b"r"
    assert violations(store) == []


@pytest.mark.parametrize("state", JobState, ids=lambda state: state.value)
def test_an_id_that_exists_in_any_state_is_a_silent_no_op(store: Store, state: JobState) -> None:
    """The answer has its id and name; nothing changes, nobody is woken."""
    seed(store, state, queue=QUEUE, name=NAME)
    before = snapshot(store)
    again = job(JOB, name="another", queue="elsewhere", payload=b"new", priority=9, delay_ms=1)
    assert store.enqueue(again) == Enqueued(JOB, True, NAME)
    assert snapshot(store) == before


def test_an_id_twice_in_one_call_is_taken_once(store: Store) -> None:
    """Items behave as if they were enqueued one after the other."""
    answers = store.enqueue_many(
        [job("a", payload=b"1"), job("b"), job("a", name="other", payload=b"2"), job("a")]
    )
    assert [(one.id, one.duplicate, one.name) for one in answers] == [
        ("a", False, NAME), ("b", False, NAME), ("a", True, NAME), ("a", True, NAME),
    ]  # fmt: skip
    assert record(store, "a").payload == b"1"
    assert take(store, 5) == ["a", "b"]
    assert store.seen_pairs() == [(QUEUE, NAME)]


def test_an_id_twice_across_chunks_is_taken_once(store: Store) -> None:
    """The second chunk meets what the first one took in."""
    requests = [job(f"j{at}") for at in range(ENQUEUE_BATCH)] + [job("j0"), job("last")]
    answers = store.enqueue_many(requests)
    assert [one.id for one in answers if one.duplicate] == ["j0"]
    assert store.counts()[JobState.WAITING] == ENQUEUE_BATCH + 1


def test_nothing_to_enqueue_is_nothing(store: Store) -> None:
    """An empty batch asks nobody and leaves no key."""
    assert store.enqueue_many([]) == []
    assert snapshot(store) == {}


def test_a_generated_id_that_collides_is_made_again(server: Server, clock: FakeClock) -> None:
    """A collision is not a duplicate: the job of the caller is taken in."""
    ids = iter(["a", "a", "b", "a", "b", "c"])
    store = Store(server.url, clock=clock, id_generator=lambda: next(ids))
    first, second, third = (store.enqueue(job(payload=bytes([at]))) for at in range(3))
    assert [first.id, second.id, third.id] == ["a", "b", "c"]
    assert not any(one.duplicate for one in (first, second, third))
    assert record(store, "a").payload == b"\0"
    store.close()


def test_collisions_inside_one_batch_are_made_again(server: Server, clock: FakeClock) -> None:
    """An explicit id keeps its meaning beside generated ones."""
    ids = iter(["a", "a", "b"])
    store = Store(server.url, clock=clock, id_generator=lambda: next(ids))
    answers = store.enqueue_many([job(), job(), job("a"), job("x")])
    assert [(one.id, one.duplicate) for one in answers] == [
        ("a", False), ("b", False), ("a", True), ("x", False),
    ]  # fmt: skip
    store.close()


def test_a_generator_that_repeats_itself_fails_after_a_few_tries(
    server: Server, clock: FakeClock
) -> None:
    """No endless loop, and a message that says what is wrong."""
    asked = itertools.count()
    store = Store(server.url, clock=clock, id_generator=lambda: f"same{next(asked) * 0}")
    store.enqueue(job())
    with pytest.raises(StoreError, match="id_generator made 5 ids"):
        store.enqueue(job())
    assert next(asked) == 6
    assert store.counts()[JobState.WAITING] == 1
    store.close()


@pytest.mark.parametrize(
    ("given", "state", "after_ms"),
    [
        ({"delay_ms": 0}, JobState.WAITING, 0),
        ({"delay_ms": 1}, JobState.DELAYED, 1),
        ({"delay_ms": 10**12}, JobState.DELAYED, 10**12),
        ({"run_at": 0}, JobState.WAITING, 0),
        ({"run_at": -5}, JobState.WAITING, 0),
        ({"run_at": 1_700_000_000_000}, JobState.WAITING, 0),
        ({"run_at": 1_700_000_000_001}, JobState.DELAYED, 1),
    ],
)
def test_a_job_that_is_not_due_is_delayed(
    store: Store, clock: FakeClock, given: dict[str, int], state: JobState, after_ms: int
) -> None:
    """Due is run_at <= now; the past is now."""
    store.enqueue(job("a", **given))
    found = record(store, "a")
    assert found.state is state
    assert found.run_at == clock.now_ms() + after_ms
    clock.advance(after_ms)
    assert take(store) == ["a"]


def test_a_job_enqueued_at_instant_0_is_like_any_other(server: Server) -> None:
    """0 is a time."""
    store = Store(server.url, clock=FakeClock(0))
    store.enqueue_many([job("now", run_at=0), job("later", run_at=1)])
    assert (record(store, "now").state, record(store, "now").run_at) == (JobState.WAITING, 0)
    claim = store.claim([QUEUE], [NAME], TOKEN, 100, 5)
    assert ([one.id for one in claim.jobs], claim.now, claim.next_run_at) == (["now"], 0, 1)
    store.close()


EDGES = (1000, 999, 1, 0, -1, -999, -1000)


@pytest.mark.parametrize(
    "seq",
    [0, 2**31, 2**42 - 20, 2**52 - 40, 2**53 - 1001 * 2**42 - 35],
    ids=["fresh", "2^31", "one priority step", "2^52", "the end"],
)
def test_fifo_holds_inside_each_priority_at_every_edge(store: Store, seq: int) -> None:
    """Priority and place share a score without ever blurring."""
    raw(store).set(store.keys.seq(), seq)
    jobs = [job(f"{EDGES[at % 7]}/{at // 7}", priority=EDGES[at % 7]) for at in range(35)]
    store.enqueue_many(jobs)
    expected = [f"{priority}/{at}" for priority in EDGES for at in range(5)]
    claimed = [job_id for _ in range(9) for job_id in take(store, 4)]
    assert claimed == expected
    assert violations(store) == []


def test_a_place_past_the_last_exact_one_is_refused(store: Store) -> None:
    """Refused as used up, whole jobs before it stay, nothing is half-written."""
    last = 2**53 - 1001 * 2**42
    raw(store).set(store.keys.seq(), last - 2)
    with pytest.raises(StoreError, match="used up; go on under a new prefix"):
        store.enqueue_many([job("a"), job("b"), job("c"), job("d")])
    assert store.counts()[JobState.WAITING] == 2
    assert store.get_job("c") is None
    assert violations(store) == []
    assert take(store, 9) == ["a", "b"]
    assert outcomes(store, "a") == []
