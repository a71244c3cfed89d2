"""Claiming: which jobs, in which order, and who is woken."""

from __future__ import annotations

import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, record, take
from servers import Server
from transitions.invariants import violations
from transitions.seed import raw, snapshot

from mq.clock import FakeClock
from mq.states import JobState
from mq.store import PROMOTE_BATCH, Store


def _awake(store: Store, queue: str = QUEUE, name: str = NAME) -> bool:
    """Whether a worker that serves this would be woken; takes the marker, as it would."""
    return store.wait([queue], [name], 1)


def test_a_claimed_job_is_held_under_the_token(store: Store, clock: FakeClock) -> None:
    """Token, worker and instant are on the record, and in the claim."""
    store.enqueue(job("a", payload=b"body", metadata={"k": "v"}))
    clock.advance(5)
    claim = store.claim([QUEUE], [NAME], TOKEN, LOCK_MS, worker="host:1:ab")
    [claimed] = claim.jobs
    stored = record(store, "a")
    assert (claim.now, claim.next_run_at) == (clock.now_ms(), None)
    for one in (claimed, stored):
        assert (one.state, one.token, one.worker) == (JobState.ACTIVE, TOKEN, "host:1:ab")
        assert (one.processed_at, one.payload) == (clock.now_ms(), b"body")
        assert one.metadata == {"k": "v"}
    lock = raw(store).zscore(store.keys.active(), "a")
    assert lock == clock.now_ms() + LOCK_MS


def test_a_claim_without_a_worker_names_nobody(store: Store) -> None:
    """What the store needs to recognise a repeat is not told as a worker."""
    store.enqueue(job("a"))
    take(store, worker=None)
    assert record(store, "a").worker is None
    store.ack_completed("a", TOKEN)
    assert store.get_attempts("a")[0].worker_id is None


def test_a_claim_takes_no_more_than_its_limit(store: Store) -> None:
    """The line is served from its head."""
    store.enqueue_many(job(f"j{at}") for at in range(5))
    assert take(store, 2) == ["j0", "j1"]
    assert take(store, 2) == ["j2", "j3"]
    assert take(store, 2) == ["j4"]
    assert take(store, 2) == []


def test_other_names_are_never_stepped_over_nor_touched(store: Store) -> None:
    """What a worker has no handler for neither blocks nor delays what it can run."""
    store.enqueue_many(job(f"other{at}", name="other", priority=9) for at in range(300))
    store.enqueue(job("mine"))
    others = snapshot(store)[store.keys.waiting(QUEUE, "other")]
    assert take(store, 5) == ["mine"]
    assert snapshot(store)[store.keys.waiting(QUEUE, "other")] == others


def test_names_share_one_line_by_priority_and_then_in_order(store: Store) -> None:
    """Highest priority first, and first in first out across names."""
    store.enqueue_many(
        [
            job("a1", name="a"), job("b1", name="b"), job("a2", name="a", priority=1),
            job("b2", name="b", priority=1), job("c1", name="c", priority=-1), job("a3", name="a"),
        ]
    )  # fmt: skip
    assert take(store, 4, names=("c", "b", "a")) == ["a2", "b2", "a1", "b1"]
    assert take(store, 4, names=("c", "b", "a")) == ["a3", "c1"]


def test_queues_are_served_in_the_order_given(store: Store) -> None:
    """A later queue gets what slots the earlier ones left."""
    store.enqueue_many(
        [job("low", queue="low", priority=1000), job("h1", queue="high"), job("h2", queue="high")]
    )
    assert take(store, 2, queues=("high", "low")) == ["h1", "h2"]
    assert take(store, 2, queues=("high", "low")) == ["low"]


def test_a_name_in_another_queue_is_not_mine(store: Store) -> None:
    """Queue and name must both be asked for."""
    store.enqueue_many([job("a", queue="q1", name="x"), job("b", queue="q2", name="y")])
    assert take(store, 5, queues=("q1",), names=("y",)) == []
    assert take(store, 5, queues=("q2", "q1"), names=("y",)) == ["b"]


def test_a_paused_queue_gives_nothing(store: Store, clock: FakeClock) -> None:
    """Jobs still come in and fall due there; other queues go on."""
    store.pause(QUEUE)
    store.enqueue_many([job("a"), job("late", delay_ms=5), job("b", queue="open")])
    clock.advance(5)
    assert take(store, 5, queues=(QUEUE, "open")) == ["b"]
    assert record(store, "late").state is JobState.WAITING
    assert not _awake(store)
    store.resume(QUEUE)
    assert take(store, 5) == ["a", "late"]


def test_due_jobs_are_promoted_in_order_of_instant_and_id(store: Store, clock: FakeClock) -> None:
    """What falls due first becomes runnable first; the bound leaves the rest for the next call."""
    count = PROMOTE_BATCH + 20
    ids = [f"{'Aa_zZ'[at % 5]}{at:03}" for at in range(count)]
    store.enqueue_many(job(job_id, delay_ms=10 + at % 2) for at, job_id in enumerate(ids))
    clock.advance(50)
    claim = store.claim([QUEUE], ["nothing-of-it", NAME], TOKEN, LOCK_MS, 1)
    due = sorted(ids, key=lambda job_id: (10 + ids.index(job_id) % 2, job_id.encode()))
    left = [job_id for job_id in due if record(store, job_id).state is JobState.DELAYED]
    assert left == due[PROMOTE_BATCH:]
    assert claim.next_run_at == clock.now_ms() - 39
    assert violations(store) == []


def test_promoted_jobs_keep_their_place(store: Store, clock: FakeClock) -> None:
    """The line is the order of enqueueing, not of falling due."""
    store.enqueue_many([job("first", delay_ms=9), job("second"), job("third", delay_ms=3)])
    clock.advance(9)
    assert take(store, 5) == ["first", "second", "third"]


def test_any_name_of_the_queue_falls_due_by_any_claim(store: Store, clock: FakeClock) -> None:
    """Also one that this worker cannot run, whose own worker is then woken."""
    store.enqueue(job("a", name="other", delay_ms=5))
    assert _awake(store, name="other")
    clock.advance(5)
    assert take(store) == []
    assert record(store, "a").state is JobState.WAITING
    assert _awake(store, name="other")


@pytest.mark.parametrize("paused", [False, True])
def test_a_claim_tells_when_the_next_job_falls_due(
    store: Store, clock: FakeClock, paused: bool
) -> None:
    """The earliest of the queues asked for, whether or not it claimed anything."""
    if paused:
        store.pause("q2")
    store.enqueue_many(
        [
            job("a", delay_ms=70), job("b", delay_ms=30, queue="q2"),
            job("c", delay_ms=10, queue="not-asked"), job("now"),
        ]
    )  # fmt: skip
    claim = store.claim([QUEUE, "q2"], [NAME], TOKEN, LOCK_MS)
    assert [one.id for one in claim.jobs] == ["now"]
    assert claim.next_run_at == clock.now_ms() + 30
    assert store.claim([QUEUE, "q2"], [NAME], TOKEN, LOCK_MS).next_run_at == clock.now_ms() + 30


def test_a_job_whose_record_is_gone_costs_nobody_anything(store: Store) -> None:
    """A record deleted by hand is dropped from the line, and the rest is served."""
    store.enqueue_many([job("gone"), job("here")])
    raw(store).delete(store.keys.job("gone"))
    assert take(store, 2) == ["here"]
    assert raw(store).zscore(store.keys.waiting(QUEUE, NAME), "gone") is None
    assert take(store, 2) == []


def test_a_delayed_job_whose_record_is_gone_is_dropped(store: Store, clock: FakeClock) -> None:
    """It would be due for ever."""
    store.enqueue_many([job("gone", delay_ms=1), job("here", delay_ms=2)])
    raw(store).delete(store.keys.job("gone"))
    clock.advance(2)
    claim = store.claim([QUEUE], [NAME], TOKEN, LOCK_MS, 5)
    assert [one.id for one in claim.jobs] == ["here"]
    assert claim.next_run_at is None


def test_a_job_whose_payload_is_gone_is_told_as_such(store: Store) -> None:
    """The worker fails it; nothing crashes."""
    store.enqueue_many([job("gone"), job("here")])
    raw(store).delete(store.keys.payload("gone"))
    claim = store.claim([QUEUE], [NAME], TOKEN, LOCK_MS, 2)
    assert [(one.id, one.payload) for one in claim.jobs] == [("gone", None), ("here", b"payload")]
    assert record(store, "gone").payload is None


def test_one_enqueue_wakes_one_worker(store: Store) -> None:
    """The marker is taken by the first that looks."""
    store.enqueue(job("a"))
    assert _awake(store)
    assert not _awake(store)


def test_a_batch_wakes_a_worker_for_each_name(store: Store) -> None:
    """Only workers that can run something."""
    store.enqueue_many([job(name="a"), job(name="b"), job(name="a")])
    assert _awake(store, name="a")
    assert _awake(store, name="b")
    assert not _awake(store, name="a")
    assert not _awake(store, name="c")


def test_a_claim_that_leaves_jobs_wakes_the_next_worker(store: Store) -> None:
    """Wake-ups chain until the line is empty."""
    store.enqueue_many([job("a"), job("b")])
    assert _awake(store)
    assert take(store) == ["a"]
    assert _awake(store)
    assert take(store) == ["b"]
    assert not _awake(store)


def test_a_claim_that_empties_the_line_wakes_nobody(store: Store) -> None:
    """The marker that stood there is taken away."""
    store.enqueue_many([job("a"), job("b")])
    assert take(store, 2) == ["a", "b"]
    assert not _awake(store)


def test_the_earliest_delayed_job_wakes_the_sleeper(store: Store) -> None:
    """It must sleep less; a later one changes nothing for it."""
    store.enqueue(job(delay_ms=100))
    assert _awake(store)
    store.enqueue(job(delay_ms=200))
    assert not _awake(store)
    store.enqueue(job(delay_ms=50))
    assert _awake(store)


@pytest.mark.parametrize("way", ["release", "retry now", "retry later", "sweep"])
def test_whatever_makes_a_job_runnable_wakes_a_worker(
    store: Store, clock: FakeClock, way: str
) -> None:
    """Release, retry and recovery wake as an enqueue does; nobody in a paused queue."""
    store.enqueue_many([job("a"), job("b", queue="paused")])
    take(store, 2, queues=(QUEUE, "paused"))
    store.pause("paused")
    for job_id in ("a", "b"):
        if way == "release":
            store.release(job_id, TOKEN)
        elif way == "retry now":
            store.ack_retried(job_id, TOKEN, 0)
        elif way == "retry later":
            store.ack_retried(job_id, TOKEN, 5)
    if way == "sweep":
        clock.advance(LOCK_MS)
        assert len(store.stall_sweep(5)) == 2
    assert _awake(store)
    assert not _awake(store, queue="paused")


def test_a_duplicate_wakes_nobody(store: Store) -> None:
    """Nothing became runnable."""
    store.enqueue(job("a"))
    assert _awake(store)
    store.enqueue(job("a"))
    assert not _awake(store)


def test_a_wait_of_no_time_returns_at_once(store: Store) -> None:
    """0 is a time-out like any other, not for ever."""
    assert store.wait([QUEUE], [NAME], 0) is False
    store.enqueue(job())
    assert store.wait([QUEUE], [NAME], 0) is True


def test_poke_and_rearm_wake_by_key(store: Store) -> None:
    """A worker's own key ends its wait, and a marker can be put back."""
    keys = [store.keys.wake(QUEUE, NAME), store.keys.control("w")]
    store.poke("w")
    waiter = store.waiter(5_000)
    assert waiter.wait(keys, 5_000) == (keys[1], "")
    store.rearm(keys[0])
    assert waiter.wait(keys, 5_000) == (keys[0], "1")
    assert waiter.wait(keys, 1) is None
    waiter.close()


def test_a_repeated_claim_gives_what_the_first_one_took(store: Store) -> None:
    """Its reply was lost: the same jobs, as long as they are still held."""
    store.enqueue_many(job(f"j{at}") for at in range(6))
    first = _claim(store, "nonce-1", repeated=False)
    assert first == ["j0", "j1", "j2"]
    assert _claim(store, "nonce-1", repeated=True) == first
    store.ack_completed("j1", TOKEN)
    assert _claim(store, "nonce-1", repeated=True) == ["j0", "j2"]
    assert _claim(store, "nonce-2", repeated=True) == ["j3", "j4", "j5"]
    assert violations(store) == []


def test_a_repeated_claim_gives_nothing_that_another_holds_by_now(
    store: Store, clock: FakeClock
) -> None:
    """The lock of the first try expired, and somebody else took the job."""
    store.enqueue_many([job("a"), job("b")])
    assert _claim(store, "nonce-1", repeated=False) == ["a", "b"]
    clock.advance(LOCK_MS)
    store.stall_sweep(1)
    assert take(store, token="of-another", worker="another") == ["a"]
    assert _claim(store, "nonce-1", repeated=True) == ["b"]
    assert record(store, "a").token == "of-another"


def test_a_nonce_that_begins_like_another_is_another(store: Store) -> None:
    """A claim is recognised by its whole nonce."""
    store.enqueue_many(job(f"j{at}") for at in range(6))
    assert _claim(store, "nonce-10", repeated=False) == ["j0", "j1", "j2"]
    assert _claim(store, "nonce-1", repeated=True) == ["j3", "j4", "j5"]


def _claim(store: Store, nonce: str, *, repeated: bool) -> list[str]:
    args = ("w", "w", TOKEN, LOCK_MS, 3, 100, 1, QUEUE, NAME)
    reply = store._caller.call("claim", store._now(), nonce, int(repeated), *args)
    return [one[0].decode() for one in reply[3:]]


def test_many_queues_and_names_at_once(server: Server, clock: FakeClock) -> None:
    """A worker of fifty names in ten queues claims across all of them."""
    store = Store(server.url, clock=clock)
    queues, names = [f"q{at}" for at in range(10)], [f"n{at}" for at in range(50)]
    store.enqueue_many(job(f"{queue}/{names[7]}", queue=queue, name=names[7]) for queue in queues)
    claim = store.claim(queues, names, TOKEN, LOCK_MS, 100)
    assert [one.queue for one in claim.jobs] == queues
    store.close()


def test_a_claim_that_is_full_leaves_the_next_due_time_to_another(store: Store) -> None:
    """Who has no slot left cannot look when a delayed job falls due, so the next idle one must."""
    store.enqueue_many([job(delay_ms=60_000), job()])
    assert len(store.claim([QUEUE], [NAME], "token", LOCK_MS, 1).jobs) == 1
    assert store.wait([QUEUE], [NAME], 50)
