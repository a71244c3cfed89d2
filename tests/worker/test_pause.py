"""Paused queues: nothing of them starts, everything else goes on, and a resume is heard at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from helpers import wait_until
from servers import Server
from transitions.invariants import violations
from worker.build import (
    PROMPT_S,
    Gate,
    all_finished,
    finished,
    idle,
    opened_after,
    outcomes,
    state,
    worker_of,
)

import mq
from mq.clock import FakeClock
from mq.states import JobState
from mq.store import Store
from mq.worker import ExitCode

HOUR_MS = 3_600_000
HELD, FREE = "held", "free"


@pytest.fixture
def app(server: Server) -> Iterator[mq.App]:
    """An app without jobs, on each back end."""
    made = mq.App(server.url)
    yield made
    made.close()


@pytest.fixture
def timed(server: Server, clock: FakeClock) -> Iterator[mq.App]:
    """The same on a clock that moves only when told: hours pass in no time."""
    made = mq.App(server.url, clock=clock)
    yield made
    made.close()


@pytest.fixture
def ran() -> list[str]:
    """What the handlers of `note` were given, in order."""
    return []


Note = mq.Job[str, None]


@pytest.fixture
def note(app: mq.App, ran: list[str]) -> Note:
    """A job that notes its payload."""
    return noting(app, ran)


def noting(app: mq.App, ran: list[str], name: str = "note") -> Note:
    """Define a job that notes its payload."""

    @app.job(name, queue=HELD)
    def job(word: str) -> None:
        """Note the word."""
        ran.append(word)

    return job


def workers_pass_by(note: Note, ran: list[str], numbers: Iterator[int]) -> None:
    """Return when a job that was enqueued now has been claimed and run, so that no claim is old."""
    word = f"free {next(numbers)}"
    assert finished(note.store, note.enqueue(word, queue=FREE)) == ["completed"]
    assert ran[-1] == word
    ran.remove(word)


@pytest.fixture
def pass_by(note: Note, ran: list[str]) -> Callable[[], None]:
    """See `workers_pass_by`."""
    numbers = itertools.count()
    return lambda: workers_pass_by(note, ran, numbers)


def both(app: mq.App, **options: object) -> mq.Worker:
    """A worker of one slot that serves both queues and looks by itself once a minute."""
    return worker_of(app, **{"queues": [HELD, FREE], "concurrency": 1, **options})


def test_nothing_starts_while_a_queue_is_paused(
    app: mq.App, store: Store, note: Note, ran: list[str], pass_by: Callable[[], None]
) -> None:
    """Neither by a worker that waited for it before, nor by one that comes later."""
    with both(app) as worker:
        wait_until(lambda: idle(worker))
        assert store.pause(HELD) is True
        job_ids = [note.enqueue(word) for word in "ab"]
        pass_by()
        with both(app, queues=[HELD]) as later:
            wait_until(lambda: idle(later))
            pass_by()
            assert ran == []
            assert {state(store, job_id) for job_id in job_ids} == {"waiting"}
            assert store.resume(HELD) is True
            assert finished(store, *job_ids) == ["completed", "completed"]
    assert sorted(ran) == ["a", "b"]
    assert violations(store) == []


def test_a_paused_queue_costs_no_claims(
    app: mq.App, store: Store, note: Note, ran: list[str]
) -> None:
    """Nobody is woken for it, however much comes in: a free job is one claim."""
    with both(app, stalled_interval="60s") as worker:
        wait_until(lambda: idle(worker))
        store.pause(HELD)
        before = worker.fetcher._claims
        for number in range(20):
            note.enqueue(str(number))
            note.enqueue(str(number), delay="1h")
        finished(store, note.enqueue("free", queue=FREE))
        wait_until(lambda: idle(worker))
        assert worker.fetcher._claims - before <= 2
        assert ran == ["free"]


def test_what_runs_when_the_queue_is_paused_goes_on(
    app: mq.App, store: Store, note: Note, pass_by: Callable[[], None]
) -> None:
    """A run that succeeds is completed; one that fails waits for the resume to be tried again."""
    gate = Gate()

    @app.job("slow", queue=HELD, attempts=2)
    def slow(fails: bool, ctx: mq.Context) -> int:
        """End when the test says so."""
        if ctx.attempt == 1:
            gate.stop_here()
            if fails:
                raise ValueError("once more")
        return ctx.attempt

    with both(app, concurrency=3) as worker, opened_after(gate):
        well, badly = slow.enqueue(False), slow.enqueue(True)
        gate.await_entry(2)
        store.pause(HELD)
        gate.opened.set()
        assert slow.await_result(well, timeout=PROMPT_S) == 1
        wait_until(lambda: outcomes(store, badly) == ["retried"], what="the failed run")
        wait_until(lambda: idle(worker))
        pass_by()
        assert (state(store, badly), outcomes(store, badly)) == ("waiting", ["retried"])
        store.resume(HELD)
        assert slow.await_result(badly, timeout=PROMPT_S) == 2
    assert violations(store) == []


def test_a_resume_wakes_an_idle_worker_which_then_works_in_order(
    app: mq.App, store: Store, note: Note, ran: list[str], pass_by: Callable[[], None]
) -> None:
    """By priority, and by the enqueue within one, across names; it polls once a minute."""
    names = [note, noting(app, ran, "another")]
    priorities = [0, 5, -5, 5, 0, -5, 1000, 0]
    with both(app) as worker:
        wait_until(lambda: idle(worker))
        store.pause(HELD)
        for nth, priority in enumerate(priorities):
            names[nth % 2].enqueue(str(nth), priority=priority)
        pass_by()
        wait_until(lambda: idle(worker))
        store.resume(HELD)
        all_finished(store, len(priorities) + 1)
    assert ran == ["6", "1", "3", "0", "4", "7", "2", "5"]


def test_a_resume_wakes_as_many_workers_as_there_is_work_for(app: mq.App, store: Store) -> None:
    """One wakes the next: every slot of every idle worker has a job."""
    gate = Gate()

    @app.job("meet", queue=HELD)
    def meet(number: int) -> None:
        """Wait until there is one of these in every slot."""
        gate.stop_here()

    with ExitStack() as stack:
        workers = [stack.enter_context(worker_of(app, concurrency=2)) for _ in range(3)]
        stack.enter_context(opened_after(gate))
        wait_until(lambda: all(idle(worker) for worker in workers))
        meet.pause()
        meet.enqueue_many(range(10))
        assert store.resume(HELD) is True
        gate.await_entry(6)
        assert [len(worker.runs) for worker in workers] == [2, 2, 2]
        gate.opened.set()
        assert all_finished(store, 10) == {"completed": 10}


def test_a_resume_wakes_the_workers_of_every_name(
    server: Server, app: mq.App, store: Store, note: Note, ran: list[str]
) -> None:
    """Two workers with a name each, and a job of both: each runs its own."""
    others: list[str] = []
    apart = mq.App(server.url)
    other = noting(apart, others, "other")
    with worker_of(app) as mine, worker_of(apart) as theirs:
        wait_until(lambda: idle(mine) and idle(theirs))
        store.pause(HELD)
        job_ids = [note.enqueue("mine"), other.enqueue("theirs")]
        store.resume(HELD)
        assert finished(store, *job_ids) == ["completed", "completed"]
    assert (ran, others) == (["mine"], ["theirs"])
    apart.close()


def test_delayed_jobs_fall_due_in_a_paused_queue_and_are_withheld(
    timed: mq.App, clock: FakeClock, ran: list[str]
) -> None:
    """They are waiting, and run when the queue is resumed, each at its place in line."""
    store, note, numbers = timed.store, noting(timed, ran), itertools.count()
    with both(timed) as worker:
        wait_until(lambda: idle(worker))
        store.pause(HELD)
        delays = {"first": "3h", "second": "1h", "third": "2h"}
        job_ids = [note.enqueue(word, delay=delay) for word, delay in delays.items()]
        far = note.enqueue("far", delay="9h")
        workers_pass_by(note, ran, numbers)
        assert {state(store, job_id) for job_id in job_ids} == {"delayed"}
        clock.advance(4 * HOUR_MS)
        workers_pass_by(note, ran, numbers)
        wait_until(lambda: idle(worker))
        assert {state(store, job_id) for job_id in job_ids} == {"waiting"}
        assert ran == []
        store.resume(HELD)
        assert finished(store, *job_ids) == ["completed"] * 3
        assert state(store, far) == "delayed"
    assert ran == ["first", "second", "third"]
    assert violations(store) == []


def test_a_resume_wakes_workers_for_what_fell_due_unseen(
    timed: mq.App, clock: FakeClock, ran: list[str]
) -> None:
    """No claim was made while the queue was paused: all is delayed still, and runs at once."""
    store, note = timed.store, noting(timed, ran)
    with worker_of(timed, concurrency=1) as worker:
        wait_until(lambda: idle(worker))
        store.pause(HELD)
        job_ids = [note.enqueue(str(nth), delay="1h") for nth in range(120)]
        clock.advance(HOUR_MS)
        assert store.counts()[JobState.DELAYED] == 120
        store.resume(HELD)
        assert set(finished(store, *job_ids)) == {"completed"}
    assert sorted(ran, key=int) == [str(nth) for nth in range(120)]


def test_a_resume_wakes_workers_for_what_fell_due_behind_a_job_that_nobody_runs(
    server: Server, timed: mq.App, clock: FakeClock, ran: list[str]
) -> None:
    """A job whose name no worker has is the first to fall due: it must not delay the others."""
    store, note = timed.store, noting(timed, ran)
    nobodys = mq.App(server.url, clock=clock).define("nobodys", payload=str)
    with worker_of(timed, concurrency=1) as worker:
        wait_until(lambda: idle(worker))
        store.pause(HELD)
        first = nobodys.enqueue("first", queue=HELD, delay="1h")
        second = note.enqueue("second", delay="2h")
        clock.advance(3 * HOUR_MS)
        store.resume(HELD)
        assert finished(store, second) == ["completed"]
    assert ran == ["second"]
    assert state(store, first) == "waiting"
    nobodys.app.close()


def test_whatever_makes_a_job_runnable_while_its_queue_is_paused_waits_for_the_resume(
    timed: mq.App, clock: FakeClock, ran: list[str]
) -> None:
    """Enqueued, promoted, retried, given back, or recovered from a worker that died."""
    store, note, numbers = timed.store, noting(timed, ran), itertools.count()

    def held_by_another(word: str) -> str:
        job_id = note.enqueue(word)
        claim = store.claim([HELD], ["note"], "token", HOUR_MS, worker="another")
        assert [one.id for one in claim.jobs] == [job_id]
        return job_id

    failed, released, stalled = map(held_by_another, ("retried", "released", "stalled"))
    store.ack_failed(failed, "token")
    promoted = note.enqueue("promoted", delay="9h")
    with both(timed, stalled_interval="0.05s") as worker:
        wait_until(lambda: idle(worker))
        store.pause(HELD)
        note.retry(failed)
        note.promote(promoted)
        assert store.release(released, "token") == "released"
        clock.advance(2 * HOUR_MS)
        wait_until(lambda: state(store, stalled) == "waiting", what="the sweep")
        enqueued = note.enqueue("enqueued")
        job_ids = [failed, released, stalled, promoted, enqueued]
        workers_pass_by(note, ran, numbers)
        wait_until(lambda: idle(worker))
        assert ran == []
        assert [state(store, job_id) for job_id in job_ids] == ["waiting"] * 5
        store.resume(HELD)
        assert finished(store, *job_ids) == ["completed"] * 5
    # What is retried goes to the back; the others keep their place.
    assert ran == ["released", "stalled", "promoted", "retried", "enqueued"]
    assert violations(store) == []


def test_a_job_can_be_cancelled_or_removed_while_its_queue_is_paused(
    app: mq.App, store: Store, note: Note, ran: list[str]
) -> None:
    """The resume then wakes nobody in vain, and runs what is left."""
    note.pause()
    cancelled, removed, left = (note.enqueue(word) for word in ("cancelled", "removed", "left"))
    with worker_of(app) as worker:
        wait_until(lambda: idle(worker))
        assert note.cancel(cancelled) == "cancelled"
        assert note.remove(removed) is True
        note.resume()
        assert finished(store, cancelled, left) == ["cancelled", "completed"]
    assert ran == ["left"]
    assert violations(store) == []


def test_a_definition_pauses_its_queue_or_another(
    app: mq.App, store: Store, note: Note, ran: list[str], pass_by: Callable[[], None]
) -> None:
    """With the answers whether that was news; several queues may be paused."""
    assert (note.pause(), note.pause()) == (True, False)
    assert note.pause("other") is True
    assert note.paused_queues() == store.paused_queues() == [HELD, "other"]
    with both(app, queues=[HELD, FREE, "other"]):
        held, other = note.enqueue("held"), note.enqueue("other", queue="other")
        pass_by()
        assert ran == []
        assert note.resume("other") is True
        assert finished(store, other) == ["completed"]
        assert (state(store, held), note.paused_queues()) == ("waiting", [HELD])
        assert (note.resume(), note.resume()) == (True, False)
        assert finished(store, held) == ["completed"]
    assert note.paused_queues() == []


@pytest.mark.parametrize(
    "options",
    [
        {"queues": [HELD, FREE, "last"], "strict": True},
        {"queues": {HELD: 1000, FREE: 1, "last": 1}},
    ],
    ids=["strict", "weighted"],
)
def test_a_paused_queue_does_not_stand_in_the_way_of_others(
    app: mq.App, store: Store, note: Note, ran: list[str], options: dict[str, object]
) -> None:
    """Though it comes first and is full: the others are served, in their order."""
    note.pause()
    note.enqueue_many(["held"] * 30)
    note.enqueue_many(["last"] * 10, queue="last")
    note.enqueue_many(["free"] * 10, queue=FREE)
    with worker_of(app, concurrency=1, **options):
        all_finished(store, 20)
        assert sorted(ran) == ["free"] * 10 + ["last"] * 10
        if options.get("strict"):
            assert ran == ["free"] * 10 + ["last"] * 10
        note.resume()
        all_finished(store, 50)
    assert ran[20:] == ["held"] * 30


def test_a_burst_ends_although_a_paused_queue_is_not_empty(
    app: mq.App, store: Store, note: Note, ran: list[str]
) -> None:
    """There is nothing that it may run."""
    note.pause()
    held = note.enqueue("held")
    note.enqueue_many(["free"] * 3, queue=FREE)
    assert both(app, burst=True).run() is ExitCode.CLEAN
    assert ran == ["free"] * 3
    assert state(store, held) == "waiting"


def test_once_a_pause_is_answered_no_worker_starts_anything(
    app: mq.App, store: Store, note: Note, ran: list[str], pass_by: Callable[[], None]
) -> None:
    """Asked for again and again while two workers are busy; in the end each job has run once."""

    def taken() -> int:
        counts = store.counts(HELD)
        return sum(counts.values()) - counts[JobState.WAITING]

    number = 400
    with both(app, concurrency=3), worker_of(app, concurrency=3):
        job_ids = []
        for round_ in range(20):
            first = round_ * number // 20
            job_ids += note.enqueue_many(map(str, range(first, first + number // 20)))
            assert store.pause(HELD) is True
            at_once = taken()
            free = note.enqueue(f"free {round_}", queue=FREE)
            assert finished(store, free) == ["completed"]
            assert taken() == at_once
            assert store.resume(HELD) is True
        all_finished(store, number + 20)
    assert sorted(word for word in ran if "free" not in word) == sorted(map(str, range(number)))
    assert {tuple(outcomes(store, job_id)) for job_id in job_ids} == {("completed",)}
    assert violations(store) == []
