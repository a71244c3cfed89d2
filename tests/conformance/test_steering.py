"""What a person asks of a job: cancel, retry, promote, remove, one at a time and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, outcomes, record, take
from servers import Server
from transitions.invariants import violations
from transitions.seed import JOB, WORKER, raw, seed, snapshot

from mq.clock import FakeClock
from mq.errors import (
    JobNotCancellableError,
    JobNotFoundError,
    JobNotPromotableError,
    JobNotRetryableError,
    LockLostError,
    MQError,
)
from mq.policies import Dedupe
from mq.records import Attempt
from mq.states import FINISHED, JobState, Outcome
from mq.store import Store
from mq.store.steering import STEER_BATCH, Verb

NOT_RUNNING = (JobState.WAITING, JobState.DELAYED, JobState.WAITING_CHILDREN)
REMOVABLE = (JobState.WAITING, JobState.DELAYED, *sorted(FINISHED))

Hear = Callable[[], list[str]]


def _named(state: JobState) -> str:
    return state.value


def _seed(store: Store, state: JobState, job_id: str = JOB, **given: Any) -> None:
    seed(store, state, job_id, queue=QUEUE, name=NAME, **given)


def _awake(store: Store) -> bool:
    """Whether a worker would be woken; takes the marker, as it would."""
    return store.wait([QUEUE], [NAME], 1)


def _fail(store: Store, job_id: str, **given: Any) -> None:
    """Enqueue a job and let its only run fail."""
    store.enqueue(job(job_id, **given))
    assert take(store) == [job_id]
    store.ack_failed(job_id, TOKEN, b"e")


@pytest.fixture
def held(store: Store) -> Store:
    """A store in which job a is held by `worker`."""
    store.enqueue(job("a"))
    assert take(store) == ["a"]
    return store


@pytest.fixture
def heard(store: Store) -> Iterator[Hear]:
    """Tells which jobs were announced as done, each as often as it was."""
    listener = store.endpoint.client().pubsub(ignore_subscribe_messages=True)
    listener.subscribe(store.keys.done())
    listener.get_message(timeout=1)

    def hear() -> list[str]:
        # What was said before this word has arrived when the word has.
        raw(store).publish(store.keys.done(), "the end")
        told: list[str] = []
        while "the end" not in told:
            message = listener.get_message(timeout=5)
            assert message is not None
            told.append(message["data"].decode())
        return told[:-1]

    yield hear
    listener.close()
    listener.connection_pool.disconnect()


# Cancel, by state


@pytest.mark.parametrize("state", NOT_RUNNING, ids=_named)
def test_a_job_that_is_not_running_is_cancelled_at_once(
    store: Store, clock: FakeClock, state: JobState
) -> None:
    """One entry without a start, a worker or an exit; no attempt is counted; nobody is woken."""
    _seed(store, state)
    clock.advance(7)
    ledger = store.get_attempts(JOB)
    assert store.cancel(JOB) == "cancelled"
    found = record(store, JOB)
    assert (found.state, found.finished_at) == (JobState.CANCELLED, clock.now_ms())
    assert (found.attempts_made, found.exit, found.cancel_requested) == (0, None, False)
    assert store.get_attempts(JOB) == [
        *ledger,
        Attempt(len(ledger) + 1, None, clock.now_ms(), Outcome.CANCELLED, None, None),
    ]
    assert not _awake(store)
    assert violations(store) == []


def test_a_direct_cancel_counts_no_attempt_and_clears_no_history(
    store: Store, clock: FakeClock
) -> None:
    """A job between two runs keeps what the first one left; its own exit is gone."""
    store.enqueue(job("a", attempts_max=5))
    take(store)
    store.ack_retried("a", TOKEN, 60_000, b"e")
    assert store.cancel("a") == "cancelled"
    found = record(store, "a")
    assert (found.attempts_made, found.runs, found.exit) == (1, 2, None)
    ledger = store.get_attempts("a")
    assert [(e.attempt, e.outcome, e.exit) for e in ledger] == [
        (1, Outcome.RETRIED, b"e"), (2, Outcome.CANCELLED, None),
    ]  # fmt: skip
    assert ledger[1].started_at is None
    clock.advance(60_000)
    assert take(store) == []


def test_an_active_job_is_flagged_and_stays_held(held: Store, clock: FakeClock) -> None:
    """No entry, no new lock; the heartbeat is told, and its lock extended as before."""
    assert held.cancel("a") == "cancel_requested"
    found = record(held, "a")
    assert (found.state, found.token, found.cancel_requested) == (JobState.ACTIVE, TOKEN, True)
    assert (found.finished_at, found.attempts_made) == (None, 0)
    assert outcomes(held, "a") == []
    assert raw(held).zscore(held.keys.active(), "a") == clock.now_ms() + LOCK_MS
    assert held.extend([("a", TOKEN)], LOCK_MS).cancel_requested == ("a",)
    assert violations(held) == []


def test_a_cancel_that_is_asked_for_twice_is_one(held: Store) -> None:
    """The same answer, and one entry when it lands."""
    assert [held.cancel("a") for _ in range(3)] == ["cancel_requested"] * 3
    assert held.ack_cancelled("a", TOKEN) == "cancelled"
    assert outcomes(held, "a") == ["cancelled"]


@pytest.mark.parametrize("verb", ["cancel", "retry", "promote"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_verb_on_an_unknown_id_leaves_nothing_behind(
    store: Store, verb: str, empty: bool
) -> None:
    """No record, no flag, no key, also in a store that has never held a job."""
    if not empty:
        store.enqueue(job("a"))
    before = snapshot(store)
    with pytest.raises(JobNotFoundError, match="no job has the id 'no such'") as caught:
        getattr(store, verb)("no such")
    assert (caught.value.job_id, caught.value.state) == ("no such", None)
    assert store.remove("no such") is False
    assert snapshot(store) == before
    assert (snapshot(store) == {}) is empty


REFUSED = [
    *(("cancel", state, JobNotCancellableError) for state in FINISHED),
    *(("retry", state, JobNotRetryableError) for state in JobState if state != "failed"),
    *(("promote", state, JobNotPromotableError) for state in JobState if state != "delayed"),
]


@pytest.mark.parametrize(
    ("verb", "state", "error"), sorted(REFUSED), ids=lambda value: getattr(value, "value", None)
)
def test_a_refusal_says_which_job_and_where_it_stands(
    store: Store, clock: FakeClock, verb: str, state: JobState, error: type[MQError]
) -> None:
    """A typed error of one line with both as attributes; the store is as it was."""
    job_id = "order\x857/ünï  code"
    _seed(store, state, job_id)
    clock.advance(1)
    before = snapshot(store)
    with pytest.raises(error) as caught:
        getattr(store, verb)(job_id)
    assert (caught.value.job_id, caught.value.state) == (job_id, state.value)
    assert state.value in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert snapshot(store) == before


# Cancel, pushed to the worker


def test_the_worker_that_holds_the_job_is_told(store: Store) -> None:
    """Its control key names each run once and goes by itself when nobody takes it."""
    store.enqueue_many(job(job_id) for job_id in "abc")
    take(store, 2, worker="w:1")
    take(store, 1, worker="w:2")
    for job_id in "aabc":
        store.cancel(job_id)
    control = store.keys.control("w:1")
    assert raw(store).zrange(control, 0, -1) == [b"token a", b"token b"]
    assert raw(store).zrange(store.keys.control("w:2"), 0, -1) == [b"token c"]
    assert 0 < raw(store).pttl(control) <= 60_000
    waiter = store.waiter(5_000)
    assert waiter.wait([control], 5_000) == (control, "token a")
    waiter.close()


@pytest.mark.parametrize("held_by", [None, ""])
def test_nobody_is_told_when_the_claim_named_no_worker(store: Store, held_by: str | None) -> None:
    """The flag alone stays, for the heartbeat; no key of nobody's is made."""
    store.enqueue(job("a"))
    take(store, worker=held_by)
    before = set(snapshot(store))
    assert store.cancel("a") == "cancel_requested"
    assert set(snapshot(store)) == before
    assert store.extend([("a", TOKEN)], LOCK_MS).cancel_requested == ("a",)


@pytest.mark.parametrize("state", NOT_RUNNING, ids=_named)
def test_a_direct_cancel_tells_no_worker(store: Store, state: JobState) -> None:
    """Also of a parked parent that some worker held once."""
    _seed(store, state)
    store.cancel(JOB)
    assert not any(key.startswith(store.keys.control("")) for key in snapshot(store))


# Completion wins over a pending cancel


@pytest.mark.parametrize("verb", ["ack_completed", "ack_failed"])
@pytest.mark.parametrize("exit_", [b"r", b"r" * 500, b"", None])
def test_a_run_that_ended_wins_over_a_pending_cancel(
    held: Store, heard: Hear, verb: str, exit_: bytes | None
) -> None:
    """What it says is stored as if nobody had asked, and a later cancel is refused."""
    held.watch("a")
    held.cancel("a")
    word = verb.removeprefix("ack_")
    assert getattr(held, verb)("a", TOKEN, exit_) == word
    found = record(held, "a")
    assert (found.state.value, found.exit, found.cancel_requested) == (word, exit_, False)
    assert (found.attempts_made, outcomes(held, "a")) == (1, [word])
    assert heard() == ["a"]
    before = snapshot(held)
    with pytest.raises(JobNotCancellableError):
        held.cancel("a")
    assert snapshot(held) == before
    assert violations(held) == []


def test_a_cancel_that_lost_is_not_remembered(held: Store) -> None:
    """The next run of a job that is retried by hand is not cancelled for it."""
    held.cancel("a")
    held.ack_failed("a", TOKEN, b"e")
    held.retry("a")
    assert take(held) == ["a"]
    assert held.extend([("a", TOKEN)], LOCK_MS).cancel_requested == ()
    assert held.ack_retried("a", TOKEN, 0) == "retried"


# Cancel wins over everything that would bring the job back


def _stall(store: Store, clock: FakeClock, allowed: int) -> str:
    clock.advance(LOCK_MS)
    return store.stall_sweep(allowed)[0].word


REVIVALS: dict[str, tuple[int, Callable[[Store, FakeClock], str]]] = {
    "retried at once": (1, lambda s, _: s.ack_retried("a", TOKEN, 0, b"e", summary="no")),
    "retried later": (1, lambda s, _: s.ack_retried("a", TOKEN, 9, b"e" * 500)),
    "cancelled": (1, lambda s, _: s.ack_cancelled("a", TOKEN)),
    "released": (0, lambda s, _: s.release("a", TOKEN)),
    "stalled, stalls left": (0, lambda s, clock: _stall(s, clock, 9)),
    "stalled, none left": (0, lambda s, clock: _stall(s, clock, 0)),
}
"""What would bring an active job back, and how many attempts a cancel counts that lands there."""


@pytest.mark.parametrize("way", REVIVALS)
@pytest.mark.parametrize("runs_before", [0, 2])
def test_a_pending_cancel_wins_over_whatever_revives_a_job(
    store: Store, clock: FakeClock, heard: Hear, way: str, runs_before: int
) -> None:
    """One `cancelled` entry of the run without an exit, and the job never runs again."""
    store.enqueue(job("a", attempts_max=9))
    for _ in range(runs_before):
        take(store)
        store.ack_retried("a", TOKEN, 0, b"e")
    take(store)
    began = clock.now_ms()
    store.watch("a")
    store.cancel("a")
    clock.advance(3)
    counted, act = REVIVALS[way]

    assert act(store, clock) == "cancelled"

    found = record(store, "a")
    assert (found.state, found.exit, found.stalled_count) == (JobState.CANCELLED, None, 0)
    assert (found.attempts_made, found.failed_reason) == (runs_before + counted, None)
    assert outcomes(store, "a") == ["retried"] * runs_before + ["cancelled"]
    assert store.get_attempts("a")[-1] == Attempt(
        runs_before + 1, began, clock.now_ms(), Outcome.CANCELLED, None, "worker"
    )
    assert heard() == ["a"]
    clock.advance(LOCK_MS * 9)
    assert take(store) == []
    assert store.stall_sweep(9) == []
    assert violations(store) == []


@pytest.mark.parametrize("way", ["retried at once", "retried later", "released", "stalled"])
def test_a_cancel_that_comes_second_takes_the_job_out_of_line(
    held: Store, clock: FakeClock, way: str
) -> None:
    """The other order of the same race: the job was back, so the cancel is a direct one."""
    act = REVIVALS.get(way, REVIVALS["stalled, stalls left"])[1]
    act(held, clock)
    ledger = outcomes(held, "a")
    assert held.cancel("a") == "cancelled"
    assert outcomes(held, "a") == [*ledger, "cancelled"]
    assert held.get_attempts("a")[-1].started_at is None
    clock.advance(LOCK_MS)
    assert take(held) == []
    with pytest.raises(LockLostError):
        held.ack_completed("a", "of-a-stranger", b"late")
    assert record(held, "a").state is JobState.CANCELLED


def test_a_worker_that_returns_after_a_swept_cancel_changes_nothing(
    held: Store, clock: FakeClock
) -> None:
    """The cancel has landed: its late result is refused."""
    held.cancel("a")
    clock.advance(LOCK_MS)
    held.stall_sweep(5)
    before = snapshot(held)
    for verb in (held.ack_completed, held.ack_failed, held.ack_cancelled, held.release):
        with pytest.raises(LockLostError):
            verb("a", TOKEN)
    assert snapshot(held) == before


@pytest.mark.parametrize("state", NOT_RUNNING, ids=_named)
def test_a_direct_cancel_is_announced_to_who_waits(
    store: Store, heard: Hear, state: JobState
) -> None:
    """Once, and only for a job that somebody waits for."""
    _seed(store, state)
    store.watch(JOB)
    store.enqueue(job("nobody waits"))
    store.cancel(JOB)
    store.cancel("nobody waits")
    assert heard() == [JOB]
    assert store.watch(JOB) == "finished"


def test_a_flag_alone_is_announced_to_nobody(held: Store, heard: Hear) -> None:
    """The job is not done before the cancel lands."""
    held.watch("a")
    held.cancel("a")
    assert heard() == []
    held.ack_cancelled("a", TOKEN)
    assert heard() == ["a"]


def test_jobs_cancelled_while_no_worker_is_up_never_run(server: Server, clock: FakeClock) -> None:
    """The cancel is in the store, not in a process that may be gone."""
    producer = Store(server.url, clock=clock)
    late = [f"late{at}" for at in range(3)]
    now = [f"now{at}" for at in range(3)]
    producer.enqueue_many(job(job_id, delay_ms=50) for job_id in late)
    producer.enqueue_many(job(job_id) for job_id in [*now, "kept"])
    producer.close()
    admin = Store(server.url, clock=clock)
    assert {admin.cancel(job_id) for job_id in [*late, *now]} == {"cancelled"}
    admin.close()
    clock.advance(50)

    worker = Store(server.url, clock=clock)
    assert take(worker, 50) == ["kept"]
    assert take(worker, 50) == []
    totals = worker.counts()
    assert (totals[JobState.CANCELLED], totals[JobState.ACTIVE]) == (6, 1)
    assert sum(totals.values()) == 7
    assert violations(worker) == []
    worker.close()


# Cancel by key


@pytest.mark.parametrize("state", NOT_RUNNING, ids=_named)
@pytest.mark.parametrize("ttl", [None, "1m"])
def test_a_key_cancels_the_pending_job_it_names(
    store: Store, state: JobState, ttl: str | None
) -> None:
    """As a cancel by id does; then the key names nothing that could be cancelled."""
    _seed(store, state, dedupe=Dedupe("k", ttl=ttl))
    ledger = outcomes(store, JOB)
    assert store.cancel_by_key(NAME, "k") is True
    assert record(store, JOB).state is JobState.CANCELLED
    assert outcomes(store, JOB) == [*ledger, "cancelled"]
    before = snapshot(store)
    assert store.cancel_by_key(NAME, "k") is False
    assert snapshot(store) == before
    assert violations(store) == []


def test_a_key_flags_a_running_job_as_often_as_it_is_asked(store: Store) -> None:
    """Its worker is told, and the key still names it until the cancel lands."""
    _seed(store, JobState.ACTIVE, dedupe=Dedupe("k"))
    assert [store.cancel_by_key(NAME, "k") for _ in range(2)] == [True, True]
    assert record(store, JOB).cancel_requested is True
    assert raw(store).zrange(store.keys.control(WORKER), 0, -1) == [f"held-token {JOB}".encode()]
    assert store.release(JOB, "held-token") == "cancelled"
    assert store.cancel_by_key(NAME, "k") is False
    assert outcomes(store, JOB) == ["cancelled"]


def test_a_key_belongs_to_a_job_name(store: Store) -> None:
    """The same text under another name is another key; an unknown one is nothing."""
    store.enqueue_many(
        [job("a", dedupe=Dedupe("k")), job("b", name="other", dedupe=Dedupe("k")), job("k")]
    )
    assert store.cancel_by_key("other", "k") is True
    before = snapshot(store)
    assert store.cancel_by_key("other", "k") is False
    assert store.cancel_by_key(NAME, "of nobody") is False
    assert snapshot(store) == before
    assert store.get_states(["a", "b", "k"]) == ["waiting", "cancelled", "waiting"]


def test_a_key_whose_window_is_over_names_nothing(store: Store, clock: FakeClock) -> None:
    """Even though the job is still pending."""
    store.enqueue(job("a", dedupe=Dedupe("k", ttl="1s")))
    clock.advance(1_000)
    assert store.cancel_by_key(NAME, "k") is False
    assert record(store, "a").state is JobState.WAITING


@pytest.mark.parametrize("name", [NAME, "other"])
def test_a_window_whose_job_is_gone_names_no_job_that_takes_the_id(store: Store, name: str) -> None:
    """The new job was never enqueued under the key: neither cancelled nor replaced through it."""
    latest = Dedupe("k", ttl="1m", replace=True)
    store.enqueue(job("a", delay_ms=50, dedupe=latest))
    store.remove("a")
    store.enqueue(job("a", name=name, delay_ms=50, payload=b"of the new job"))
    before = snapshot(store)
    assert store.cancel_by_key(NAME, "k") is False
    assert snapshot(store) == before
    answer = store.enqueue(job("b", delay_ms=50, payload=b"latest", dedupe=latest))
    assert answer.duplicate is True
    assert record(store, "a").payload == b"of the new job"


# Retry


def test_a_retried_job_begins_afresh_and_its_ledger_goes_on(store: Store, clock: FakeClock) -> None:
    """Budget and counters are new; after three attempts the next is the fourth."""
    store.enqueue(job("a", attempts_max=3, priority=2, metadata={"k": "v"}, timeout_ms=9))
    take(store)
    enqueued_at = clock.now_ms()
    for delay_ms in (0, 0, None):
        clock.advance(5)
        if delay_ms is None:
            store.ack_failed("a", TOKEN, b"e" * 500, summary="no")
        else:
            store.ack_retried("a", TOKEN, delay_ms, b"e", summary="no")
            take(store)
    assert record(store, "a").attempts_made == 3
    before, ledger = record(store, "a"), store.get_attempts("a")

    clock.advance(5)
    store.retry("a")

    found = record(store, "a")
    assert (found.state, found.run_at) == (JobState.WAITING, clock.now_ms())
    assert (found.attempts_made, found.stalled_count, found.attempts_max) == (0, 0, 3)
    assert (found.processed_at, found.finished_at, found.exit) == (None, None, None)
    assert (found.error, found.failed_reason, found.cancel_requested) == (None, None, False)
    assert (found.priority, found.metadata, found.timeout_ms) == (2, {"k": "v"}, 9)
    assert (found.payload, found.enqueued_at) == (before.payload, enqueued_at)
    assert store.get_attempts("a") == ledger
    assert violations(store) == []
    take(store)
    store.ack_completed("a", TOKEN, b"r")
    assert [e.attempt for e in store.get_attempts("a")] == [1, 2, 3, 4]
    assert (record(store, "a").attempts_made, record(store, "a").exit) == (1, b"r")


def test_a_job_that_the_store_failed_is_retried_with_new_stalls(
    store: Store, clock: FakeClock
) -> None:
    """The reason is gone, and as many stalls are allowed as at first."""
    store.enqueue(job("a"))
    for round_ in (1, 2):
        words = []
        for _ in range(2):
            take(store)
            words.append(_stall(store, clock, 1))
        assert words == ["requeued", "failed"]
        assert record(store, "a").failed_reason == "stalls: 2, allowed: 1"
        assert outcomes(store, "a") == ["stalled"] * 2 * round_
        store.retry("a")
        assert (record(store, "a").failed_reason, record(store, "a").stalled_count) == (None, 0)


def test_a_retried_job_goes_to_the_back_of_its_line(store: Store) -> None:
    """Behind all that wait at its priority, not behind lower ones; a worker is woken."""
    _fail(store, "a", priority=1)
    store.enqueue_many([job("b", priority=1), job("c"), job("d", priority=1)])
    _awake(store)
    store.retry("a")
    assert _awake(store)
    assert take(store, 9) == ["b", "d", "a", "c"]


def test_a_retried_job_can_be_cancelled(store: Store) -> None:
    """Waiting at once, running by its next run; the entries are numbered on."""
    for job_id in "ab":
        _fail(store, job_id)
    store.steer("retry", ["a", "b"])
    assert store.cancel("a") == "cancelled"
    assert take(store) == ["b"]
    assert store.cancel("b") == "cancel_requested"
    assert store.ack_retried("b", TOKEN, 0) == "cancelled"
    for job_id in "ab":
        assert outcomes(store, job_id) == ["failed", "cancelled"]
        assert [e.attempt for e in store.get_attempts(job_id)] == [1, 2]
    assert take(store) == []


def test_a_second_retry_needs_a_second_failure(store: Store) -> None:
    """The job was revived once, whoever asks again."""
    _fail(store, "a")
    store.retry("a")
    with pytest.raises(JobNotRetryableError):
        store.retry("a")
    assert take(store, 9) == ["a"]
    store.ack_failed("a", TOKEN, b"e")
    store.retry("a")
    assert take(store, 9) == ["a"]


def test_the_ack_that_failed_a_job_is_still_recognised_after_a_retry(store: Store) -> None:
    """Its answer may have been lost before somebody retried the job."""
    _fail(store, "a")
    store.retry("a")
    before = snapshot(store)
    assert store.ack_failed("a", TOKEN, b"e") == "failed"
    assert snapshot(store) == before


# Promote


def test_a_promoted_job_keeps_its_place_in_line(store: Store) -> None:
    """Place is the enqueue order, then and now, and priority counts as ever."""
    store.enqueue_many(
        [
            job("first", delay_ms=900), job("second"), job("third", delay_ms=10),
            job("high", delay_ms=500, priority=1), job("fourth"), job("later", delay_ms=5),
        ]
    )  # fmt: skip
    for job_id in ("third", "high", "first"):
        store.promote(job_id)
    assert take(store, 9) == ["high", "first", "second", "third", "fourth"]
    assert record(store, "later").state is JobState.DELAYED
    assert violations(store) == []


def test_a_promoted_job_is_due_now_and_wakes_a_worker(store: Store, clock: FakeClock) -> None:
    """Its `run_at` is the instant of the call; it spends nothing."""
    store.enqueue_many([job("sooner", delay_ms=1), job("a", delay_ms=70)])
    _awake(store)
    clock.advance(30)
    seq = record(store, "a").seq
    store.promote("a")
    found = record(store, "a")
    assert (found.state, found.run_at, found.seq) == (JobState.WAITING, clock.now_ms(), seq)
    assert (found.attempts_made, outcomes(store, "a")) == (0, [])
    assert _awake(store)


def test_a_retry_that_waits_for_its_backoff_is_promoted(store: Store, clock: FakeClock) -> None:
    """It stays at the back, where the retry put it, and its history stays with it."""
    store.enqueue_many([job("a", attempts_max=2), job("b")])
    take(store)
    store.ack_retried("a", TOKEN, 60_000, b"e", summary="no")
    store.promote("a")
    assert (record(store, "a").attempts_made, record(store, "a").error) == (1, "no")
    assert take(store, 9) == ["b", "a"]
    clock.advance(60_000)
    assert take(store, 9) == []


def test_a_due_job_that_nobody_claimed_is_promoted_once(store: Store, clock: FakeClock) -> None:
    """By this call, and the next claim finds it waiting."""
    store.enqueue(job("a", delay_ms=5))
    clock.advance(9)
    store.promote("a")
    assert record(store, "a").run_at == clock.now_ms()
    assert take(store, 9) == ["a"]
    assert violations(store) == []


# Remove


@pytest.mark.parametrize("state", REMOVABLE, ids=_named)
def test_a_removed_job_is_in_no_key(store: Store, clock: FakeClock, state: JobState) -> None:
    """Record, payload, extra, ledger, exits, indexes and pending key go; the rest stays."""
    store.declare_index(["customer"])
    store.enqueue(job("beside", queue="beside", metadata={"customer": "c-1"}))
    before = snapshot(store)
    _seed(store, JobState.WAITING, dedupe=Dedupe("k"), attempts=9)
    take(store)
    store.progress(JOB, TOKEN, b"half")
    store.watch(JOB)
    store.ack_retried(JOB, TOKEN, 0, b"long" * 99)
    take(store)
    if state in {JobState.WAITING, JobState.DELAYED}:
        store.ack_retried(JOB, TOKEN, 5 if state is JobState.DELAYED else 0, b"x")
    elif state is JobState.CANCELLED:
        store.ack_cancelled(JOB, TOKEN)
    else:
        getattr(store, f"ack_{state.value}")(JOB, TOKEN, b"long" * 99)
    raw(store).delete(store.keys.wake(QUEUE, NAME), store.keys.claims("worker"))
    assert record(store, JOB).state is state

    assert store.remove(JOB) is True

    after = snapshot(store)
    answered = [key for key in after if key.startswith(store.keys.answered(""))]
    assert answered
    assert all(0 < raw(store).pttl(key) <= 60_000 for key in answered)
    # The place in line is used up, and the pair stays known; all else is as it was.
    after[store.keys.seq()] = before[store.keys.seq()]
    assert after[store.keys.meta()].pop(f"seen:{QUEUE}:{NAME}") == "1"
    assert {key: after[key] for key in {*after} - {*answered}} == {
        key: before[key] for key in {*before} - {*answered}
    }
    assert store.get_job(JOB) is None
    assert store.get_attempts(JOB) == []
    assert sum(store.counts().values()) == 1
    assert violations(store) == []


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.WAITING_CHILDREN], ids=_named)
def test_a_job_that_somebody_works_for_is_not_removed(store: Store, state: JobState) -> None:
    """Its run, or its children, would have nowhere to go: cancel it first."""
    _seed(store, state)
    before = snapshot(store)
    assert store.remove(JOB) is False
    assert snapshot(store) == before


def test_a_job_is_removed_once(store: Store) -> None:
    """The second call finds nothing."""
    store.enqueue(job("a"))
    assert [store.remove("a") for _ in range(2)] == [True, False]


@pytest.mark.parametrize("state", REMOVABLE, ids=_named)
def test_a_removed_id_can_be_taken_again_and_starts_afresh(
    store: Store, clock: FakeClock, state: JobState
) -> None:
    """Nothing of the old job is in the new one: no entry, no attempt, no metadata, no place."""
    _seed(store, state)
    store.enqueue(job("between"))
    old = record(store, JOB)
    store.remove(JOB)
    clock.advance(3)
    assert store.enqueue(job(JOB, payload=b"new")).duplicate is False
    found, ledger = store.get_whole(JOB) or (None, None)
    assert found is not None
    assert (found.state, found.payload, ledger) == (JobState.WAITING, b"new", [])
    assert (found.attempts_made, found.metadata, found.exit) == (0, {}, None)
    assert (found.enqueued_at, found.finished_at) == (clock.now_ms(), None)
    assert found.seq > old.seq
    assert take(store, 9) == ["between", JOB]
    with pytest.raises(LockLostError):
        store.ack_completed(JOB, "held-token", b"of the old run")
    store.ack_completed(JOB, TOKEN, b"r")
    assert [(e.attempt, e.exit) for e in store.get_attempts(JOB)] == [(1, b"r")]
    assert violations(store) == []


def test_removing_jobs_leaves_the_others_in_line(store: Store, clock: FakeClock) -> None:
    """The head, one of the middle, and the earliest delayed one."""
    store.enqueue_many(job(f"j{at}") for at in range(5))
    store.enqueue_many([job("soon", delay_ms=5), job("late", delay_ms=9)])
    for job_id in ("j0", "j2", "soon"):
        assert store.remove(job_id)
    assert store.claim([QUEUE], [NAME], TOKEN, LOCK_MS).next_run_at == clock.now_ms() + 9
    clock.advance(9)
    assert take(store, 9) == ["j3", "j4", "late"]


def test_a_removed_job_frees_its_pending_key_and_leaves_its_window(store: Store) -> None:
    """The window goes on: its answer names a job that is gone."""
    store.enqueue_many(
        [job("a", dedupe=Dedupe("pending")), job("b", dedupe=Dedupe("window", ttl="1m"))]
    )
    assert (store.remove("a"), store.remove("b")) == (True, True)
    answers = store.enqueue_many(
        [job("c", dedupe=Dedupe("pending")), job("d", dedupe=Dedupe("window", ttl="1m"))]
    )
    assert [(one.id, one.duplicate) for one in answers] == [("c", False), ("b", True)]
    assert store.cancel_by_key(NAME, "window") is False
    assert violations(store) == []


# Batches


def _mixed(store: Store) -> dict[str, JobState]:
    """Jobs in all states by id, some three batches of them."""
    states: dict[str, JobState] = {}
    for at in range(STEER_BATCH // 2):
        for state in JobState:
            job_id = f"{at:02}-{state.value}"
            seed(store, state, job_id, queue=f"q{at}", name=state.value)
            states[job_id] = state
    return states


WORDS: dict[Verb, tuple[Mapping[str, str], str]] = {
    "cancel_request": (
        dict.fromkeys(NOT_RUNNING, "cancelled") | {JobState.ACTIVE: "cancel_requested"},
        "not_cancellable",
    ),
    "retry": ({JobState.FAILED: "retried"}, "not_retryable"),
    "promote": ({JobState.DELAYED: "promoted"}, "not_promotable"),
    "remove": (dict.fromkeys(REMOVABLE, "removed"), "not_removable"),
}
"""For each verb the word by state where it lands, and the refusal of all other states."""


@pytest.mark.parametrize("verb", WORDS)
def test_a_batch_answers_each_id_for_itself(store: Store, verb: Verb) -> None:
    """More ids than a call takes, in any state or unknown: aligned, and none in the other's way."""
    states = _mixed(store)
    ids = [part for job_id in states for part in (job_id, f"no-{job_id}")]
    assert len(ids) > 3 * STEER_BATCH
    lands, refusal = WORDS[verb]

    answers = store.steer(verb, ids)

    expected = [
        lands.get(states[job_id], refusal) if job_id in states else "not_found" for job_id in ids
    ]
    assert [word for word, _ in answers] == expected
    if verb != "remove":
        assert [state for _, state in answers] == [states.get(job_id, "") for job_id in ids]
    assert violations(store) == []


@pytest.mark.parametrize(
    ("verb", "state", "words", "ledger"),
    [
        ("cancel_request", JobState.WAITING, ["cancelled"] * 2, ["cancelled"]),
        ("cancel_request", JobState.ACTIVE, ["cancel_requested"] * 2, []),
        ("retry", JobState.FAILED, ["retried"] * 2, ["failed"]),
        ("promote", JobState.DELAYED, ["promoted"] * 2, []),
        ("remove", JobState.WAITING, ["removed"] * 2, []),
    ],
)
def test_an_id_that_a_batch_names_twice_is_done_once(
    store: Store, verb: Verb, state: JobState, words: list[str], ledger: list[str]
) -> None:
    """The second place is told what the first one did."""
    _seed(store, state)
    store.enqueue(job("other", queue="beside"))
    answers = store.steer(verb, [JOB, "other", JOB])
    assert [answers[at][0] for at in (0, 2)] == words
    assert outcomes(store, JOB) == ledger
    assert violations(store) == []


def test_an_id_that_comes_again_in_a_later_call_of_a_batch_is_judged_anew(store: Store) -> None:
    """Each call of at most that many ids is one of its own."""
    store.enqueue_many(job(f"j{at}") for at in range(STEER_BATCH))
    ids = [f"j{at}" for at in range(STEER_BATCH)]
    answers = store.steer("cancel_request", [*ids, "j0"])
    assert answers[:STEER_BATCH] == [("cancelled", "waiting")] * STEER_BATCH
    assert answers[STEER_BATCH] == ("not_cancellable", "cancelled")
    assert outcomes(store, "j0") == ["cancelled"]


@pytest.mark.parametrize("verb", WORDS)
def test_a_batch_of_nothing_does_nothing(store: Store, verb: Verb) -> None:
    """No answers, and no key."""
    assert store.steer(verb, []) == []
    assert snapshot(store) == {}


def test_jobs_retried_in_one_batch_keep_the_order_of_the_ids(store: Store) -> None:
    """Each gets the next place at the back."""
    for job_id in "abc":
        _fail(store, job_id)
    store.enqueue(job("before"))
    store.steer("retry", ["c", "a", "b"])
    assert take(store, 9) == ["before", "c", "a", "b"]


@pytest.mark.parametrize("job_id", [None, 5, b"a", ["a"]])
@pytest.mark.parametrize(
    "verb", ["cancel", "retry", "promote", "remove", "get_job", "get_attempts"]
)
def test_an_id_that_is_no_text_is_named(store: Store, verb: str, job_id: object) -> None:
    """Redis is not blamed for it, and no job of a like-looking id is touched."""
    store.enqueue_many([job("5"), job("a")])
    before = snapshot(store)
    with pytest.raises(TypeError, match="job id must be text"):
        getattr(store, verb)(job_id)
    assert snapshot(store) == before


@pytest.mark.parametrize("job_ids", ["ab", b"ab", 5, None])
def test_ids_that_are_no_list_are_named(store: Store, job_ids: Any) -> None:
    """A text is not taken for the ids of its letters."""
    store.enqueue_many([job("a"), job("b")])
    before = snapshot(store)
    with pytest.raises(TypeError, match="job ids must be a list, got"):
        store.steer("remove", job_ids)
    with pytest.raises(TypeError, match="job ids must be a list, got"):
        store.get_states(job_ids)
    assert snapshot(store) == before


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", ValueError),
        ("a b", ValueError),
        ("q" * 65, ValueError),
        (5, TypeError),
        (b"q", TypeError),
    ],
)
@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("counts", "queue"),
        ("seen_pairs", "queue"),
        ("pause", "queue"),
        ("resume", "queue"),
        ("counts", "name"),
        ("seen_pairs", "name"),
    ],
)
def test_a_name_that_nothing_can_have_is_refused(
    store: Store, verb: str, what: str, name: object, error: type[Exception]
) -> None:
    """It is a mistake of the caller, and no queue that happens to be empty; told on one line."""
    before = snapshot(store)
    with pytest.raises(error, match=f"{what} .*must be") as caught:
        getattr(store, verb)(**{what: name})
    assert "\n" not in str(caught.value)
    assert snapshot(store) == before


@pytest.mark.parametrize("job_id", ["", "\ud800", "x" * 10_000])
def test_an_id_that_no_job_can_have_is_unknown(store: Store, job_id: str) -> None:
    """Told on a line of bounded length."""
    with pytest.raises(JobNotFoundError) as caught:
        store.cancel(job_id)
    assert len(str(caught.value)) < 300
    assert store.get_job(job_id) is None
    assert not store.remove(job_id)
