"""Pausing a queue: jobs still come in and fall due, none starts, none is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, outcomes, record, take
from helpers import wait_until
from servers import Server
from transitions.invariants import unannounced, violations
from transitions.seed import raw, snapshot

from mq.clock import FakeClock
from mq.policies import Dedupe
from mq.records import ClaimRequest, Enqueued
from mq.states import JobState
from mq.store import PROMOTE_BATCH, Store

DELAY_MS = 50
PARKED_MS = 60_000


def _markers(store: Store) -> set[tuple[str, str]]:
    """The pairs whose workers would be woken."""
    prefix = store.keys.wake("", "")[:-1]
    keys = (key for key in snapshot(store) if key.startswith(prefix))
    pairs = (key.removeprefix(prefix).partition(":") for key in keys)
    return {(queue, name) for queue, _, name in pairs}


def _nobody_is_woken(store: Store) -> None:
    """Take away what markers stand there now."""
    for queue, name in _markers(store):
        raw(store).delete(store.keys.wake(queue, name))


# What makes a job runnable, tried in a paused queue. `before` is done ahead of the pause and leaves
# the job x, `act` during it.


def _nothing(_: Store) -> None:
    """The job does not exist before the pause."""


def _hold(store: Store) -> None:
    store.enqueue(job("x", attempts_max=5))
    assert take(store) == ["x"]


def _delay(store: Store) -> None:
    store.enqueue(job("x", delay_ms=DELAY_MS, dedupe=Dedupe("k", replace=True)))


def _fail(store: Store) -> None:
    _hold(store)
    store.ack_failed("x", TOKEN, b"e")


def _fall_due(store: Store, clock: FakeClock) -> None:
    clock.advance(DELAY_MS)
    take(store)


def _recover(store: Store, clock: FakeClock) -> None:
    clock.advance(LOCK_MS)
    assert [one.word for one in store.stall_sweep(1)] == ["requeued"]


def _retry_later(store: Store, clock: FakeClock) -> None:
    store.ack_retried("x", TOKEN, DELAY_MS, b"e")
    _fall_due(store, clock)


def _replace(store: Store, clock: FakeClock) -> None:
    latest = job(delay_ms=1, dedupe=Dedupe("k", replace=True))
    assert store.enqueue(latest) == Enqueued("x", True, NAME, replaced=True)
    _fall_due(store, clock)


ENTRANCES: dict[str, tuple[Callable[[Store], None], Callable[[Store, FakeClock], object]]] = {
    "enqueue": (_nothing, lambda s, _: s.enqueue(job("x"))),
    "fall due": (_delay, _fall_due),
    "enqueue delayed and fall due": (
        _nothing, lambda s, c: (s.enqueue(job("x", delay_ms=DELAY_MS)), _fall_due(s, c)),
    ),
    "replace and fall due": (_delay, _replace),
    "promote": (_delay, lambda s, _: s.promote("x")),
    "retry": (_fail, lambda s, _: s.retry("x")),
    "release": (_hold, lambda s, _: s.release("x", TOKEN)),
    "ack retried at once": (_hold, lambda s, _: s.ack_retried("x", TOKEN, 0, b"e")),
    "ack retried later": (_hold, _retry_later),
    "stall sweep": (_hold, _recover),
}  # fmt: skip


@pytest.mark.parametrize("way", ENTRANCES)
def test_whatever_makes_a_job_runnable_starts_nothing_in_a_paused_queue(
    store: Store, clock: FakeClock, way: str
) -> None:
    """It waits, is counted, wakes nobody, and no claim gets it; resume announces it."""
    before, act = ENTRANCES[way]
    before(store)
    _nobody_is_woken(store)
    assert store.pause(QUEUE) is True

    act(store, clock)

    assert record(store, "x").state is JobState.WAITING
    assert take(store, 9) == []
    assert take(store, 9, queues=("open", QUEUE)) == []
    assert _markers(store) == set()
    totals = store.counts(QUEUE)
    assert (totals[JobState.WAITING], sum(totals.values())) == (1, 1)
    assert violations(store) == []

    assert store.resume(QUEUE) is True
    assert _markers(store) == {(QUEUE, NAME)}
    assert take(store, 9) == ["x"]
    assert violations(store) == []


def test_pausing_with_delayed_work_loses_nothing_and_keeps_the_order(
    store: Store, clock: FakeClock
) -> None:
    """All that can come to a queue, during one pause: nothing starts, then all of it in order."""
    store.enqueue_many(
        [*(job(f"held{at}", attempts_max=9) for at in range(3)), job("failed"), job("stalls")]
    )
    assert len(take(store, 9)) == 5
    store.ack_failed("failed", TOKEN, b"e")
    store.enqueue_many([job("due", delay_ms=5), job("late", delay_ms=PARKED_MS), job("before")])
    store.enqueue_many([job("promoted", delay_ms=PARKED_MS), job("gone"), job("dropped")])
    store.extend([(f"held{at}", TOKEN) for at in range(3)], PARKED_MS)
    _nobody_is_woken(store)

    def nothing_starts() -> None:
        assert take(store, 50) == []
        assert _markers(store) == set()

    store.pause(QUEUE)
    nothing_starts()
    clock.advance(LOCK_MS)
    nothing_starts()
    store.enqueue_many([job("during"), job("urgent", priority=5)])
    nothing_starts()
    store.retry("failed")
    store.promote("promoted")
    nothing_starts()
    assert store.release("held0", TOKEN) == "released"
    assert store.ack_retried("held1", TOKEN, 0, b"e") == "retried"
    nothing_starts()
    assert [one.id for one in store.stall_sweep(1)] == ["stalls"]
    assert store.cancel("gone") == "cancelled"
    assert store.remove("dropped") is True
    nothing_starts()
    assert store.ack_completed("held2", TOKEN, b"r") == "completed"
    totals = store.counts(QUEUE)
    assert (totals[JobState.WAITING], totals[JobState.DELAYED], totals[JobState.ACTIVE]) == (
        9,
        1,
        0,
    )
    assert (totals[JobState.COMPLETED], totals[JobState.CANCELLED]) == (1, 1)
    assert violations(store) == []

    store.resume(QUEUE)
    assert _markers(store) == {(QUEUE, NAME)}
    order = [
        "urgent", "held0", "stalls", "due", "before", "promoted", "during", "failed", "held1",
    ]  # fmt: skip
    assert [one for _ in range(4) for one in take(store, 3)] == order
    assert outcomes(store, "held1") == ["retried"]
    assert unannounced(store) == []
    assert violations(store) == []


def test_a_pause_holds_from_one_claim_to_the_next(store: Store) -> None:
    """A worker in the middle of a backlog gets nothing more, and goes on where it was."""
    store.enqueue_many(job(f"j{at}") for at in range(5))
    assert take(store, 2) == ["j0", "j1"]
    store.pause(QUEUE)
    assert take(store, 2) == []
    store.resume(QUEUE)
    assert take(store, 9) == ["j2", "j3", "j4"]


def test_a_run_that_has_begun_goes_on(store: Store, clock: FakeClock) -> None:
    """Its lock is extended, it reports, hears of a cancel, and ends as it would."""
    store.enqueue_many(job(job_id) for job_id in "abc")
    take(store, 3)
    store.pause(QUEUE)
    clock.advance(LOCK_MS)
    assert store.extend([(one, TOKEN) for one in "abc"], LOCK_MS).lost == ()
    assert store.progress("a", TOKEN, b"half") == "stored"
    assert store.cancel("b") == "cancel_requested"
    assert store.ack_completed("a", TOKEN, b"r") == "completed"
    assert store.ack_retried("b", TOKEN, 0) == "cancelled"
    assert store.ack_failed("c", TOKEN, b"e") == "failed"
    assert violations(store) == []


def test_a_claim_whose_reply_was_lost_before_the_pause_still_has_its_jobs(store: Store) -> None:
    """They are held already: without the answer they would wait for their locks to expire."""
    store.enqueue_many([job("a"), job("b")])
    ask = ClaimRequest([QUEUE], [NAME], TOKEN, LOCK_MS, 1, "worker")
    store.exchange([], ask)
    store.pause(QUEUE)
    claim = store.exchange([], ask, repeated=True)[1]
    assert claim is not None
    assert [one.id for one in claim.jobs] == ["a"]
    another = ClaimRequest([QUEUE], [NAME], TOKEN, LOCK_MS, 1, "worker")
    claim = store.exchange([], another, repeated=True)[1]
    assert claim is not None
    assert claim.jobs == ()


def test_more_due_jobs_than_a_claim_promotes_are_all_withheld(
    store: Store, clock: FakeClock
) -> None:
    """A long pause: they become runnable a bounded number a claim, and none is handed out."""
    count = 2 * PROMOTE_BATCH + 1
    ids = [one.id for one in store.enqueue_many(job(delay_ms=1 + at % 3) for at in range(count))]
    store.pause(QUEUE)
    clock.advance(9)
    for claims in (1, 2, 3, 4):
        assert take(store, 100) == []
        assert store.counts()[JobState.WAITING] == min(claims * PROMOTE_BATCH, count)
    store.resume(QUEUE)
    assert [one for _ in range(2) for one in take(store, 100)] == ids


# What resume owes


def test_resume_wakes_exactly_those_who_have_something_to_do(store: Store) -> None:
    """Names with waiting or delayed jobs, which a sleeper may not know of; of this queue alone."""
    store.enqueue_many([job("f", name="finished"), job("h", name="held"), job("x", name="gone")])
    assert len(take(store, 9, names=("finished", "held"))) == 2
    store.ack_completed("f", TOKEN)
    store.remove("x")
    store.pause(QUEUE)
    store.pause("q2")
    store.enqueue_many(
        [
            job(name="first"), job(name="second"), job(name="second"),
            job(name="later", delay_ms=90), job(name="sooner", delay_ms=30),
            job(name="first", delay_ms=60), job(name="elsewhere", queue="q2"),
            job(name="open", queue="open"),
        ]
    )  # fmt: skip
    _nobody_is_woken(store)
    store.resume(QUEUE)
    names = ("first", "second", "sooner", "later")
    assert _markers(store) == {(QUEUE, name) for name in names}
    assert unannounced(store) == ["open:open"]
    assert violations(store) == []


def test_resume_of_a_queue_without_work_wakes_nobody(store: Store) -> None:
    """Finished jobs alone, or none at all."""
    store.enqueue(job("a"))
    take(store)
    store.ack_completed("a", TOKEN)
    for queue in (QUEUE, "never-seen"):
        store.pause(queue)
        store.resume(queue)
    assert _markers(store) == set()


def test_a_worker_that_was_blocked_before_the_pause_is_woken_by_resume(
    real_store: Store, real_server: Server
) -> None:
    """Not by what comes during the pause; after resume it claims at once."""
    woken: list[bool] = []

    def idle() -> None:
        woken.append(real_store.wait([QUEUE], [NAME], 20_000))

    def blocked() -> bool:
        lines = real_server.cli("INFO", "clients").decode().splitlines()
        return "blocked_clients:1" in lines

    worker = threading.Thread(target=idle)
    worker.start()
    wait_until(blocked, what="the worker to sleep")
    real_store.pause(QUEUE)
    real_store.enqueue_many([job("a"), job("d", delay_ms=PARKED_MS)])
    real_store.promote("d")
    assert blocked()
    assert take(real_store) == []
    real_store.resume(QUEUE)
    worker.join(10)
    assert woken == [True]
    assert take(real_store, 9) == ["a", "d"]


def test_a_worker_that_sleeps_past_a_new_due_time_is_woken_by_resume(store: Store) -> None:
    """It learned of no instant during the pause: the marker makes it ask."""
    store.pause(QUEUE)
    store.enqueue(job("d", delay_ms=DELAY_MS))
    assert not store.wait([QUEUE], [NAME], 1)
    store.resume(QUEUE)
    assert store.wait([QUEUE], [NAME], 5_000)


# The pause itself


def test_pausing_twice_is_once(store: Store, clock: FakeClock) -> None:
    """The instant stays that of the first; one resume ends it."""
    began = clock.now_ms()
    assert store.pause(QUEUE) is True
    clock.advance(5)
    before = snapshot(store)
    assert store.pause(QUEUE) is False
    assert snapshot(store) == before
    assert before[store.keys.meta()][f"paused:{QUEUE}"] == str(began)
    assert [store.resume(QUEUE) for _ in range(2)] == [True, False]
    assert store.paused_queues() == []


def test_resuming_what_is_not_paused_changes_nothing(store: Store) -> None:
    """No marker for jobs that were announced already, and no key in an empty store."""
    assert store.resume(QUEUE) is False
    assert snapshot(store) == {}
    store.enqueue(job("a"))
    _nobody_is_woken(store)
    before = snapshot(store)
    assert store.resume(QUEUE) is False
    assert snapshot(store) == before


def test_a_queue_may_be_paused_before_its_first_job(store: Store) -> None:
    """In a store that is still empty, or beside other queues: the pause is waiting for it."""
    store.pause("first")
    assert store.paused_queues() == ["first"]
    assert store.counts() == dict.fromkeys(JobState, 0)
    assert violations(store) == []
    store.enqueue_many([job("a", queue="first"), job("b")])
    store.pause("never")
    assert take(store, 9, queues=("first", "never", QUEUE)) == ["b"]
    assert store.resume("first") is True
    assert take(store, 9, queues=("first",)) == ["a"]
    assert store.paused_queues() == ["never"]


def test_paused_queues_are_told_in_order(store: Store) -> None:
    """Sorted, each once, without those that were resumed."""
    assert store.paused_queues() == []
    for queue in ("b", "a.z", "a", "B", "resumed", "a-z", "a"):
        store.pause(queue)
    store.resume("resumed")
    assert store.paused_queues() == ["B", "a", "a-z", "a.z", "b"]


def test_a_pause_is_of_one_queue(store: Store) -> None:
    """Others go on, also one whose name begins alike; the paused one takes no slot from them."""
    open_ones = ("open", "q2", f"{QUEUE}.x")
    store.enqueue_many([job(f"p{at}", priority=9) for at in range(5)])
    store.enqueue_many(job(f"of {queue}", queue=queue) for queue in open_ones)
    store.pause(QUEUE)
    assert take(store, 3, queues=(QUEUE, *open_ones)) == [f"of {queue}" for queue in open_ones]
    store.enqueue_many([job("now", queue="open"), job("here")])
    assert ("open", NAME) in _markers(store)


def test_a_pause_is_of_the_store_not_of_who_asked(server: Server, clock: FakeClock) -> None:
    """It lasts when the process that paused is gone, and holds for every worker."""
    admin = Store(server.url, clock=clock)
    admin.enqueue(job("a"))
    admin.pause(QUEUE)
    admin.close()
    workers = [Store(server.url, clock=clock) for _ in range(2)]
    for worker in workers:
        assert worker.paused_queues() == [QUEUE]
        assert take(worker) == []
    workers[0].resume(QUEUE)
    assert take(workers[1]) == ["a"]
    for worker in workers:
        worker.close()


def test_two_prefixes_are_paused_apart(server: Server, clock: FakeClock) -> None:
    """A queue of the same name in another store goes on."""
    ours, theirs = (Store(server.url, prefix=prefix, clock=clock) for prefix in ("ours", "theirs"))
    for store in (ours, theirs):
        store.enqueue(job("a"))
    ours.pause(QUEUE)
    assert (take(ours), take(theirs)) == ([], ["a"])
    assert (ours.paused_queues(), theirs.paused_queues()) == ([QUEUE], [])
    for store in (ours, theirs):
        store.close()


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize("queue", ["", "a:b", "x" * 65, "ünï", "a b"])
def test_what_cannot_be_a_queue_is_refused(store: Store, verb: str, queue: str) -> None:
    """Before anything is asked of the server."""
    with pytest.raises(ValueError, match="queue"):
        getattr(store, verb)(queue)
    assert snapshot(store) == {}


def test_deduplication_goes_on_in_a_paused_queue(store: Store) -> None:
    """Producers are not affected: keys are taken, jobs replaced, and nobody is woken."""
    store.pause(QUEUE)
    latest = Dedupe("k", replace=True)
    answers = [
        store.enqueue(job("a", delay_ms=DELAY_MS, dedupe=latest)),
        store.enqueue(job("b", delay_ms=1, payload=b"latest", dedupe=latest)),
        store.enqueue(job("c", dedupe=Dedupe("other"))),
        store.enqueue(job("d", dedupe=Dedupe("other"))),
    ]
    assert [(one.id, one.duplicate) for one in answers] == [
        ("a", False), ("a", True), ("c", False), ("c", True),
    ]  # fmt: skip
    assert record(store, "a").payload == b"latest"
    assert _markers(store) == set()
    assert violations(store) == []
