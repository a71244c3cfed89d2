"""What happens to a claimed job: extend, acks, release, recovery, and its ledger."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conformance.build import (
    LOCK_MS,
    NAME,
    QUEUE,
    TOKEN,
    job,
    outcomes,
    record,
    take,
)
from transitions.invariants import violations
from transitions.seed import raw, snapshot

from mq.clock import FakeClock
from mq.errors import JobNotFoundError, LockLostError
from mq.records import Ack, Attempt, ClaimRequest
from mq.states import JobState, Outcome
from mq.store import SWEEP_BATCH, Store
from mq.wire import ACK_BATCH

SINGLE: dict[str, Callable[[Store, str, str], str]] = {
    "ack_completed": lambda store, job_id, token: store.ack_completed(job_id, token, b"r"),
    "ack_retried": lambda store, job_id, token: store.ack_retried(job_id, token, 5, b"e"),
    "ack_failed": lambda store, job_id, token: store.ack_failed(job_id, token, b"e"),
    "ack_cancelled": lambda store, job_id, token: store.ack_cancelled(job_id, token),
    "release": lambda store, job_id, token: store.release(job_id, token),
}


@pytest.fixture
def held(store: Store) -> Store:
    """A store in which job a is held."""
    store.enqueue(job("a"))
    assert take(store) == ["a"]
    return store


# Extend


def test_extend_counts_from_now(held: Store, clock: FakeClock) -> None:
    """The lock lasts that long from the instant of the call."""
    clock.advance(300)
    assert tuple(held.extend([("a", TOKEN)], 5_000)) == ((), ())
    assert raw(held).zscore(held.keys.active(), "a") == clock.now_ms() + 5_000
    clock.advance(4_999)
    assert held.stall_sweep(0) == []
    clock.advance(1)
    assert [one.id for one in held.stall_sweep(0)] == ["a"]


def test_an_expired_lock_that_nobody_swept_is_extended(held: Store, clock: FakeClock) -> None:
    """It still belongs to its token."""
    clock.advance(LOCK_MS * 10)
    assert held.extend([("a", TOKEN)], LOCK_MS).lost == ()
    assert held.stall_sweep(0) == []
    assert held.ack_completed("a", TOKEN) == "completed"


def test_extend_tells_what_is_lost_and_what_is_to_be_cancelled(
    store: Store, clock: FakeClock
) -> None:
    """One call for all locks; a lock with a pending cancel is extended as well."""
    store.enqueue_many(job(job_id) for job_id in "abcde")
    take(store, 4)
    store.cancel("b")
    store.ack_completed("c", TOKEN)
    asked = [("a", TOKEN), ("b", TOKEN), ("c", TOKEN), ("d", "other"), ("e", TOKEN), ("x", TOKEN)]
    clock.advance(1)
    lost, cancel_requested = store.extend(asked, 7_000)
    assert (lost, cancel_requested) == (("c", "d", "e", "x"), ("b",))
    assert raw(store).zscore(store.keys.active(), "b") == clock.now_ms() + 7_000
    assert raw(store).zscore(store.keys.active(), "d") == clock.now_ms() + LOCK_MS - 1


def test_extend_takes_more_than_one_batch(store: Store) -> None:
    """A worker with many slots."""
    many = ACK_BATCH + 5
    store.enqueue_many(job(f"j{at}") for at in range(many))
    take(store, ACK_BATCH)
    assert len(store.extend([(f"j{at}", TOKEN) for at in range(many)], 9).lost) == 5
    assert store.extend([], 9).lost == ()


# Acks


@pytest.mark.parametrize("exit_", [None, b"", b"\x00", b"x" * 64, b"x" * 65, b"y" * 100_000])
@pytest.mark.parametrize("verb", ["ack_completed", "ack_failed"])
def test_an_exit_is_optional_bytes(held: Store, verb: str, exit_: bytes | None) -> None:
    """No exit is None; empty bytes are an exit; the length never matters."""
    assert getattr(held, verb)("a", TOKEN, exit_) == verb[4:]
    assert record(held, "a").exit == exit_
    assert held.get_attempts("a")[0].exit == exit_
    assert violations(held) == []


def test_a_completed_run_is_in_the_ledger(held: Store, clock: FakeClock) -> None:
    """Number, instants, outcome, exit and worker of the run."""
    began = clock.now_ms()
    clock.advance(250)
    held.ack_completed("a", TOKEN, b"result", worker="me:1")
    assert held.get_attempts("a") == [
        Attempt(1, began, clock.now_ms(), Outcome.COMPLETED, b"result", "me:1")
    ]
    found = record(held, "a")
    assert (found.state, found.attempts_made, found.finished_at) == (
        JobState.COMPLETED, 1, clock.now_ms(),
    )  # fmt: skip
    assert (found.token, found.worker) == (None, None)


def test_the_holder_named_at_the_claim_stands_in_for_an_ack_without_one(held: Store) -> None:
    """Acks need not repeat it."""
    held.ack_completed("a", TOKEN)
    assert held.get_attempts("a")[0].worker_id == "worker"


def test_a_failed_job_says_why_on_one_line(held: Store) -> None:
    """A person with redis-cli sees it; a later success takes it away."""
    held.ack_retried("a", TOKEN, 0, b"e", summary="ValueError: no")
    assert record(held, "a").error == "ValueError: no"
    take(held)
    held.ack_completed("a", TOKEN)
    assert record(held, "a").error is None


@pytest.mark.parametrize("verb", SINGLE)
def test_a_token_that_does_not_hold_the_job_is_refused(
    held: Store, clock: FakeClock, verb: str
) -> None:
    """LockLostError with the id, and nothing changed."""
    clock.advance(5)
    before = snapshot(held)
    with pytest.raises(LockLostError, match="job a is no longer held") as caught:
        SINGLE[verb](held, "a", "other")
    assert caught.value.job_id == "a"
    assert snapshot(held) == before


@pytest.mark.parametrize("verb", SINGLE)
def test_an_id_that_does_not_exist_is_refused(store: Store, verb: str) -> None:
    """JobNotFoundError with the id, and nothing is left behind."""
    with pytest.raises(JobNotFoundError, match="'nobody'") as caught:
        SINGLE[verb](store, "nobody", TOKEN)
    assert caught.value.job_id == "nobody"
    assert snapshot(store) == {}


@pytest.mark.parametrize("first", SINGLE)
@pytest.mark.parametrize("second", SINGLE)
def test_a_repeat_under_a_landed_token_changes_nothing(
    held: Store, clock: FakeClock, first: str, second: str
) -> None:
    """Whatever outcome the repeat carries, it is told what landed."""
    landed = SINGLE[first](held, "a", TOKEN)
    clock.advance(3)
    before = snapshot(held)
    assert SINGLE[second](held, "a", TOKEN) == landed
    assert snapshot(held) == before


@pytest.mark.parametrize("second", SINGLE)
def test_a_landed_token_is_recognised_until_the_next_run_is_acked(
    held: Store, clock: FakeClock, second: str
) -> None:
    """Also while the next run is held by somebody else, and after that one stalled."""
    held.ack_retried("a", TOKEN, 0)
    assert take(held, token="next") == ["a"]
    before = snapshot(held)
    assert SINGLE[second](held, "a", TOKEN) == "retried"
    assert snapshot(held) == before
    clock.advance(LOCK_MS)
    held.stall_sweep(5)
    assert SINGLE[second](held, "a", TOKEN) == "retried"
    take(held, token="third")
    held.ack_failed("a", "third")
    with pytest.raises(LockLostError):
        SINGLE[second](held, "a", TOKEN)
    assert outcomes(held, "a") == ["retried", "stalled", "failed"]


def test_a_token_that_recurs_names_the_run_that_is_held(held: Store) -> None:
    """A caller may use one token for all its claims."""
    held.ack_retried("a", TOKEN, 0)
    assert take(held) == ["a"]
    assert held.ack_completed("a", TOKEN) == "completed"
    assert outcomes(held, "a") == ["retried", "completed"]


def test_a_retry_goes_to_the_back_of_its_priority(store: Store, clock: FakeClock) -> None:
    """With no delay it waits behind what is there, with one it is delayed."""
    store.enqueue_many(job(job_id) for job_id in "abc")
    take(store, 2)
    assert store.ack_retried("a", TOKEN, 0, b"e") == "retried"
    assert store.ack_retried("b", TOKEN, 40, b"e") == "retried"
    assert record(store, "b").state is JobState.DELAYED
    assert record(store, "b").run_at == clock.now_ms() + 40
    store.enqueue(job("d"))
    clock.advance(40)
    assert take(store, 9) == ["c", "a", "b", "d"]


def test_a_retried_job_has_no_exit_of_its_own(held: Store) -> None:
    """The exit of a record is that of the run that ended it."""
    held.ack_retried("a", TOKEN, 5, b"failure")
    assert record(held, "a").exit is None
    assert held.get_attempts("a")[0].exit == b"failure"


@pytest.mark.parametrize("delay_ms", [0, 50])
def test_a_cancel_wins_over_a_retry(held: Store, delay_ms: int) -> None:
    """One cancelled entry, no retried one, and no exit."""
    held.cancel("a")
    assert held.ack_retried("a", TOKEN, delay_ms, b"failure", summary="x") == "cancelled"
    found = record(held, "a")
    assert (found.state, found.attempts_made, found.exit) == (JobState.CANCELLED, 1, None)
    assert (outcomes(held, "a"), found.cancel_requested) == (["cancelled"], False)
    assert violations(held) == []


@pytest.mark.parametrize("verb", ["ack_completed", "ack_failed"])
def test_completion_and_final_failure_win_over_a_pending_cancel(held: Store, verb: str) -> None:
    """A stored result is never clobbered, and the flag is gone."""
    held.cancel("a")
    assert SINGLE[verb](held, "a", TOKEN) == verb[4:]
    found = record(held, "a")
    assert (found.state.value, found.cancel_requested) == (verb[4:], False)
    assert found.exit is not None


def test_an_interrupted_run_is_acked_cancelled_without_an_exit(held: Store) -> None:
    """It counts as an attempt."""
    assert held.ack_cancelled("a", TOKEN, worker="w") == "cancelled"
    found = record(held, "a")
    assert (found.state, found.attempts_made, found.exit) == (JobState.CANCELLED, 1, None)
    assert held.get_attempts("a")[0].worker_id == "w"


def test_a_batch_may_name_a_job_twice(store: Store) -> None:
    """The second ack of a job finds what the first one did, in one script and across two."""
    store.enqueue_many(job(job_id) for job_id in "ab")
    take(store, 2)
    words, _ = store.exchange(
        [
            ("ack_retried", Ack("a", TOKEN, b"1", delay_ms=0)),
            ("ack_retried", Ack("a", TOKEN, b"2", delay_ms=9)),
            ("ack_completed", Ack("b", TOKEN, b"3")),
            ("ack_failed", Ack("b", TOKEN, b"4")),
            ("release", Ack("b", TOKEN)),
            ("ack_completed", Ack("x", TOKEN)),
            ("ack_completed", Ack("b", "other")),
        ],
        None,
    )
    assert words == [
        "retried", "retried", "completed", "completed", "completed", "not_found", "lost",
    ]  # fmt: skip
    assert [e.exit for e in store.get_attempts("a")] == [b"1"]
    assert [e.exit for e in store.get_attempts("b")] == [b"3"]
    assert violations(store) == []


def test_acks_of_every_kind_go_with_the_next_claim(store: Store) -> None:
    """One round trip, words aligned, and the claim after them."""
    store.enqueue_many(job(f"j{at:03}") for at in range(250))
    take(store, 100)
    verbs = ["ack_completed", "ack_failed", "ack_cancelled", "release", "ack_retried"]
    # A call that finds its script missing is sent again behind the others: let the server know all.
    store.exchange([(verb, Ack("x", TOKEN)) for verb in verbs], None)
    acks = [(verbs[at % 5], Ack(f"j{at:03}", TOKEN, b"e", delay_ms=1)) for at in range(100)]
    words, claim = store.exchange(acks, _claim_request(100))
    expected = ["completed", "failed", "cancelled", "released", "retried"] * 20
    assert words == expected
    assert claim is not None
    released = [f"j{at:03}" for at in range(3, 100, 5)]
    assert [one.id for one in claim.jobs] == released + [f"j{at:03}" for at in range(100, 180)]
    assert store.exchange([], None) == ([], None)
    assert violations(store) == []


def _claim_request(limit: int) -> ClaimRequest:
    return ClaimRequest([QUEUE], [NAME], TOKEN, LOCK_MS, limit, "worker")


# Release


def test_release_gives_the_job_back_at_its_old_place(store: Store) -> None:
    """No entry, no attempt spent, runnable at once elsewhere."""
    store.enqueue_many(job(job_id) for job_id in "ab")
    take(store)
    assert store.release("a", TOKEN) == "released"
    found = record(store, "a")
    assert (found.state, found.attempts_made, found.worker) == (JobState.WAITING, 0, None)
    assert outcomes(store, "a") == []
    assert take(store, 2, token="elsewhere") == ["a", "b"]


def test_a_cancel_that_is_pending_at_release_lands(held: Store) -> None:
    """As a direct one does: an entry, and no attempt."""
    held.cancel("a")
    assert held.release("a", TOKEN) == "cancelled"
    found = record(held, "a")
    assert (found.state, found.attempts_made) == (JobState.CANCELLED, 0)
    assert outcomes(held, "a") == ["cancelled"]


# Recovery


def test_a_job_whose_worker_is_gone_is_requeued(held: Store, clock: FakeClock) -> None:
    """At its old place, with a ledger entry that names the worker, and no attempt spent."""
    held.enqueue(job("b"))
    began = clock.now_ms()
    clock.advance(LOCK_MS)
    [found] = held.stall_sweep(1)
    assert (found.id, found.word, found.queue, found.name) == ("a", "requeued", QUEUE, NAME)
    assert (found.worker, found.processed_at) == ("worker", began)
    stored = record(held, "a")
    assert (stored.state, stored.stalled_count, stored.attempts_made) == (JobState.WAITING, 1, 0)
    assert held.get_attempts("a") == [
        Attempt(1, began, clock.now_ms(), Outcome.STALLED, None, "worker")
    ]
    assert take(held, 2) == ["a", "b"]


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_past_its_stalls_a_job_is_failed_with_the_reason(
    store: Store, clock: FakeClock, allowed: int
) -> None:
    """It says how often and what was allowed, and has no exit; retries do not count."""
    store.enqueue(job("a"))
    take(store)
    store.ack_retried("a", TOKEN, 0, b"e")
    words = []
    for _ in range(allowed + 1):
        take(store)
        clock.advance(LOCK_MS)
        words += [one.word for one in store.stall_sweep(allowed)]
    assert words == ["requeued"] * allowed + ["failed"]
    found = record(store, "a")
    assert found.failed_reason == f"stalls: {allowed + 1}, allowed: {allowed}"
    assert (found.state, found.exit, found.attempts_made) == (JobState.FAILED, None, 1)
    assert outcomes(store, "a") == ["retried"] + ["stalled"] * (allowed + 1)
    assert take(store) == []


def test_a_sweep_honours_a_pending_cancel_first(held: Store, clock: FakeClock) -> None:
    """Whatever the stalls left."""
    held.cancel("a")
    clock.advance(LOCK_MS)
    assert [one.word for one in held.stall_sweep(5)] == ["cancelled"]
    found = record(held, "a")
    assert (found.state, found.stalled_count, found.attempts_made) == (JobState.CANCELLED, 0, 0)
    assert outcomes(held, "a") == ["cancelled"]


def test_a_sweep_is_bounded_and_takes_the_oldest_first(store: Store, clock: FakeClock) -> None:
    """The caller comes back for the rest."""
    store.enqueue_many(job(f"j{at:02}") for at in range(60))
    for _ in range(6):
        take(store, 10)
        clock.advance(1)
    clock.advance(LOCK_MS)
    first = store.stall_sweep(1)
    assert [one.id for one in first] == [f"j{at:02}" for at in range(SWEEP_BATCH)]
    assert len(store.stall_sweep(1, 7)) == 7
    assert len(store.stall_sweep(1)) == 3
    assert store.stall_sweep(1) == []
    assert violations(store) == []


def test_a_lock_without_a_record_is_dropped(held: Store, clock: FakeClock) -> None:
    """It would be swept for ever."""
    raw(held).delete(held.keys.job("a"))
    clock.advance(LOCK_MS)
    assert held.stall_sweep(1) == []
    assert raw(held).zcard(held.keys.active()) == 0


def test_a_worker_that_comes_back_late_is_refused(held: Store, clock: FakeClock) -> None:
    """Its job runs elsewhere under another token."""
    clock.advance(LOCK_MS)
    held.stall_sweep(1)
    for verb in SINGLE.values():
        with pytest.raises(LockLostError):
            verb(held, "a", TOKEN)
    take(held, token="second")
    before = snapshot(held)
    for verb in SINGLE.values():
        with pytest.raises(LockLostError):
            verb(held, "a", TOKEN)
    assert held.extend([("a", TOKEN)], 5).lost == ("a",)
    assert held.progress("a", TOKEN, b"1") == "lost"
    assert snapshot(held) == before


# The ledger


def test_the_ledger_is_gapless_for_a_jobs_whole_life(store: Store, clock: FakeClock) -> None:
    """Every way a run can end adds the next number; attempts_made follows its own rule."""
    store.enqueue(job("a"))
    steps = ["retried", "released", "stalled", "retried", "stalled", "cancelled"]
    for step in steps:
        assert take(store, worker=f"w-{step}") == ["a"]
        clock.advance(10)
        if step == "retried":
            store.ack_retried("a", TOKEN, 0, b"x" * 65)
        elif step == "released":
            store.release("a", TOKEN)
        elif step == "stalled":
            clock.advance(LOCK_MS)
            store.stall_sweep(9)
        else:
            store.ack_cancelled("a", TOKEN)
    ledger = store.get_attempts("a")
    assert [entry.attempt for entry in ledger] == [1, 2, 3, 4, 5]
    assert [entry.outcome.value for entry in ledger] == [one for one in steps if one != "released"]
    assert [entry.worker_id for entry in ledger] == [
        f"w-{one}" for one in steps if one != "released"
    ]
    assert [entry.exit for entry in ledger] == [b"x" * 65, None, b"x" * 65, None, None]
    found = record(store, "a")
    assert (found.attempts_made, found.stalled_count, found.runs) == (3, 2, 5)


def test_a_long_ledger_is_read_whole(store: Store, clock: FakeClock) -> None:
    """Past the size at which a record stops being small."""
    store.enqueue(job("a"))
    runs = 700
    for number in range(1, runs + 1):
        take(store)
        store.ack_retried("a", TOKEN, 0, str(number).encode() * (30 if number % 2 else 1))
    ledger = store.get_attempts("a")
    assert [entry.attempt for entry in ledger] == list(range(1, runs + 1))
    assert all(e.exit == str(e.attempt).encode() * (30 if e.attempt % 2 else 1) for e in ledger)
    assert violations(store) == []


# Reading and marks


def test_an_unknown_id_reads_as_nothing(store: Store) -> None:
    """None, an empty ledger, no state."""
    assert store.get_job("x") is None
    assert store.get_attempts("x") == []
    assert store.get_whole("x") is None
    assert store.get_states(["x"]) == [None]
    assert store.watch("x") == "not_found"
    assert store.progress("x", TOKEN, b"") == "not_found"


def test_states_are_read_aligned_and_in_batches(store: Store) -> None:
    """Many at once, unknown ones among them."""
    store.enqueue_many(job(f"j{at}") for at in range(150))
    asked = [f"j{at}" if at % 3 else f"x{at}" for at in range(150)]
    states = store.get_states(asked)
    assert states == [JobState.WAITING if at % 3 else None for at in range(150)]


def test_counts_tell_all_seven_states(store: Store) -> None:
    """Of everything, or of one queue; zeros are there."""
    assert store.counts() == dict.fromkeys(JobState, 0)
    store.enqueue_many([job(name=f"n{at}", queue=f"q{at % 2}") for at in range(90)])
    store.enqueue_many([job("a"), job("b", delay_ms=9), job("c")])
    take(store)
    totals = store.counts()
    assert list(totals) == list(JobState)
    assert (totals[JobState.WAITING], totals[JobState.ACTIVE], totals[JobState.DELAYED]) == (
        91, 1, 1,
    )  # fmt: skip
    assert store.counts("q1")[JobState.WAITING] == 45
    assert sum(store.counts("nothing-here").values()) == 0


def test_progress_is_what_the_holder_said_last(held: Store) -> None:
    """Bytes, read with the record, beside the metadata."""
    assert held.progress("a", TOKEN, b"1") == "stored"
    assert held.progress("a", TOKEN, b"\x00\xff" * 2_000) == "stored"
    assert record(held, "a").progress == b"\x00\xff" * 2_000
    assert record(held, "a").metadata == {}
    assert violations(held) == []


@pytest.mark.parametrize("verb", ["ack_completed", "ack_failed", "ack_cancelled", "stalled"])
def test_a_watched_job_publishes_its_end_once(held: Store, clock: FakeClock, verb: str) -> None:
    """Whoever waits subscribes, marks the job and hears of its end; nobody else pays."""
    listener = held.endpoint.client().pubsub(ignore_subscribe_messages=True)
    listener.subscribe(held.keys.done())
    listener.get_message(timeout=1)
    assert held.watch("a") == "awaited"
    assert held.watch("a") == "awaited"
    clock.advance(LOCK_MS)
    if verb == "stalled":
        held.stall_sweep(0)
    else:
        SINGLE[verb](held, "a", TOKEN)
        SINGLE[verb](held, "a", TOKEN)
    heard = [listener.get_message(timeout=5)]
    heard += [message for _ in range(2) if (message := listener.get_message(timeout=0.01))]
    assert [message["data"] for message in heard] == [b"a"]
    assert held.watch("a") == "finished"
    listener.close()
    listener.connection_pool.disconnect()
    assert violations(held) == []
