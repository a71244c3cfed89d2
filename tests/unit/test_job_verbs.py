"""The verbs of a definition on jobs that are there: typed, for its own name alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from servers import Server
from transitions.invariants import violations
from transitions.seed import snapshot

import mq
from mq.clock import FakeClock
from mq.records import Request
from mq.states import JobState
from mq.store import Store
from mq.store.steering import Steering

TOKEN = "token"
GARBAGE = b"\xc1"
"""No msgpack value begins with this byte."""
ENDED = ("completed", "failed", "cancelled")
STATES = ("waiting", "delayed", "active", *ENDED)


@attrs.frozen
class Invoice:
    """A payload."""

    number: str
    customer: str = "c-1"


@attrs.frozen
class Declined(Exception):
    """A declared error."""

    reason: str


Bill = mq.Job[Invoice, str]


@pytest.fixture
def app(server: Server, clock: FakeClock) -> Iterator[mq.App]:
    """An app on each back end, on a clock that stands still."""
    made = mq.App(server.url, clock=clock)
    yield made
    made.close()


@pytest.fixture
def store(app: mq.App) -> Store:
    """The store of the app."""
    return app.store


@pytest.fixture
def bill(app: mq.App) -> Bill:
    """The definition under test."""
    return app.define(
        "bill", payload=Invoice, result=str, error=Declined, queue="billing",
        metadata=lambda invoice: {"customer": invoice.customer},
    )  # fmt: skip


@pytest.fixture
def other(app: mq.App) -> mq.Job[Invoice, str]:
    """Another definition in the same queue, whose jobs look the same."""
    return app.define(
        "other", payload=Invoice, result=str, error=Declined, queue="billing",
        metadata=lambda invoice: {"customer": invoice.customer},
    )  # fmt: skip


def take(job: mq.Job[Any, Any], job_id: str) -> None:
    """Claim a job, which must be the first in its line."""
    claim = job.store.claim([job.queue], [job.name], TOKEN, 3_600_000, worker="worker")
    assert [one.id for one in claim.jobs] == [job_id]


def put(job: mq.Job[Invoice, str], state: str, number: str = "1", **options: Any) -> mq.JobId:
    """Enqueue a job and bring it into a state; its line must be empty before."""
    delay = "1h" if state == "delayed" else None
    job_id = job.enqueue(Invoice(number), delay=delay, **options)
    if state in ("waiting", "delayed"):
        return job_id
    take(job, job_id)
    if state == "completed":
        job.store.ack_completed(job_id, TOKEN, job.exit_codec.encode_success("paid"))
    elif state == "failed":
        exit_, _ = job.exit_codec.encode_failure(Declined("no money"))
        job.store.ack_failed(job_id, TOKEN, exit_, summary="Declined: no money")
    elif state == "cancelled":
        job.store.ack_cancelled(job_id, TOKEN)
    return job_id


def put_all(job: mq.Job[Invoice, str]) -> dict[str, mq.JobId]:
    """One job in each state in which a producer or a worker can leave it, by state."""
    ended = {state: put(job, state) for state in (*ENDED, "active")}
    return {**ended, "delayed": put(job, "delayed"), "waiting": put(job, "waiting")}


def state(job: mq.Job[Any, Any], job_id: str) -> str:
    """Where a job stands."""
    found = job.get_job(job_id)
    assert found is not None
    return found.state.value


def outcomes(job: mq.Job[Any, Any], job_id: str) -> list[str]:
    """The ledger as the words of its outcomes."""
    return [entry.outcome.value for entry in job.attempts(job_id)]


# All of them


VERBS = (
    "cancel cancel_by_key retry promote remove pause resume paused_queues counts get_job list "
    "cancel_where retry_where remove_where"
).split()


def test_every_verb_of_the_store_has_its_typed_twin(app: mq.App, bill: Bill) -> None:
    """Under the same name; a ledger is read decoded, as `attempts`."""
    for verb in VERBS:
        assert callable(getattr(app.store, verb))
        assert callable(getattr(bill, verb))
    steering = {name for name in vars(Steering) if not name.startswith("_")}
    assert steering - {"steer"} <= set(VERBS), "a new verb needs its twin, and its tests here"


ONE_JOB: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "cancel": ("waiting", lambda job, job_id: job.cancel(job_id)),
    "retry": ("failed", lambda job, job_id: job.retry(job_id)),
    "promote": ("delayed", lambda job, job_id: job.promote(job_id)),
    "remove": ("waiting", lambda job, job_id: job.remove(job_id)),
    "get_job": ("completed", lambda job, job_id: job.get_job(job_id)),
    "poll": ("completed", lambda job, job_id: job.poll(job_id)),
    "attempts": ("completed", lambda job, job_id: job.attempts(job_id)),
    "await_result": ("completed", lambda job, job_id: job.await_result(job_id, timeout=0)),
}
"""Each verb that takes an id: a state in which it would work, and the call."""


@pytest.mark.parametrize("verb", ONE_JOB)
def test_the_id_of_another_name_is_refused_and_nothing_changes(
    store: Store, bill: Bill, other: Bill, verb: str
) -> None:
    """Though the verb would work on that job: its own definition does it."""
    good_state, call = ONE_JOB[verb]
    job_id = put(other, good_state)
    before = snapshot(store)
    with pytest.raises(mq.JobNotFoundError) as refused:
        call(bill, job_id)
    assert refused.value.job_id == job_id
    assert "'other' job" in refused.value.message
    assert "\n" not in str(refused.value)
    assert snapshot(store) == before
    call(other, job_id)


@pytest.mark.parametrize("verb", ["cancel", "retry", "promote", "await_result"])
def test_an_unknown_id_is_refused(store: Store, bill: Bill, verb: str) -> None:
    """By the verbs that cannot do without a job; nothing is left behind."""
    bill.enqueue(Invoice("1"))
    before = snapshot(store)
    with pytest.raises(mq.JobNotFoundError, match="no-such-job") as refused:
        ONE_JOB[verb][1](bill, "no-such-job")
    assert refused.value.job_id == "no-such-job"
    assert snapshot(store) == before


@pytest.mark.parametrize(
    ("verb", "answer"), [("remove", False), ("get_job", None), ("poll", None), ("attempts", [])]
)
def test_an_unknown_id_is_an_answer(store: Store, bill: Bill, verb: str, answer: Any) -> None:
    """To the verbs that ask whether there is such a job."""
    bill.enqueue(Invoice("1"))
    before = snapshot(store)
    assert ONE_JOB[verb][1](bill, "no-such-job") == answer
    assert snapshot(store) == before


@pytest.mark.parametrize(
    ("verb", "error", "allowed"),
    [
        ("cancel", mq.JobNotCancellableError, ("waiting", "delayed", "active")),
        ("retry", mq.JobNotRetryableError, ("failed",)),
        ("promote", mq.JobNotPromotableError, ("delayed",)),
    ],
)
def test_a_verb_in_the_wrong_state_is_refused_and_says_which(
    store: Store, bill: Bill, verb: str, error: type[mq.MQError], allowed: tuple[str, ...]
) -> None:
    """Each verb in each state: done, or refused with id and state and nothing changed."""
    for there, job_id in put_all(bill).items():
        before = snapshot(store)
        if there in allowed:
            ONE_JOB[verb][1](bill, job_id)
            assert snapshot(store) != before
        else:
            with pytest.raises(error, match=f"is {there}") as refused:
                ONE_JOB[verb][1](bill, job_id)
            assert (refused.value.job_id, refused.value.state) == (job_id, there)
            assert snapshot(store) == before
    assert violations(store) == []


# Steering


def test_cancel_ends_what_does_not_run_and_flags_what_does(bill: Bill) -> None:
    """With the word for each; a direct cancel is an entry of a run that never started."""
    jobs = put_all(bill)
    assert bill.cancel(jobs["waiting"]) == "cancelled"
    assert bill.cancel(jobs["delayed"]) == "cancelled"
    assert bill.cancel(jobs["active"]) == "cancel_requested"
    assert bill.cancel(jobs["active"]) == "cancel_requested"
    assert [state(bill, jobs[word]) for word in ("waiting", "delayed")] == ["cancelled"] * 2
    found = bill.get_job(jobs["active"])
    assert found is not None
    assert (found.state.value, found.record.cancel_requested) == ("active", True)
    (entry,) = bill.attempts(jobs["waiting"])
    assert (entry.outcome.value, entry.started_at, entry.exit) == ("cancelled", None, None)
    for job_id in (jobs["waiting"], jobs["delayed"], jobs["cancelled"]):
        with pytest.raises(mq.JobCancelledError):
            bill.await_result(job_id, timeout=0)


@pytest.mark.parametrize("there", ["waiting", "delayed", "active"])
def test_cancel_by_key_reaches_the_pending_job_of_its_own_name(
    store: Store, bill: Bill, other: Bill, there: str
) -> None:
    """The same key of another name stays; without a pending job the answer is False."""
    theirs = put(other, there, dedupe="key")
    assert bill.cancel_by_key("key") is False
    mine = put(bill, there, dedupe="key")
    assert bill.cancel_by_key("another key") is False
    assert bill.cancel_by_key("key") is True
    if there == "active":
        assert bill.cancel_by_key("key") is True
        store.ack_cancelled(mine, TOKEN)
    assert bill.cancel_by_key("key") is False
    assert (state(bill, mine), outcomes(bill, mine)) == ("cancelled", ["cancelled"])
    assert state(other, theirs) == there
    assert bill.enqueue(Invoice("2"), dedupe="key").duplicate is False
    assert other.enqueue(Invoice("2"), dedupe="key") == theirs
    assert violations(store) == []


def test_retry_gives_a_fresh_budget_and_keeps_the_ledger(
    store: Store, bill: Bill, clock: FakeClock
) -> None:
    """Once: then it is waiting, at the back of its line."""
    job_id = put(bill, "failed", attempts=3)
    behind = put(bill, "waiting")
    clock.advance(1_000)
    assert bill.retry(job_id) is None
    found = bill.get_job(job_id)
    assert found is not None
    assert (found.state.value, found.exit, found.record.error) == ("waiting", None, None)
    assert (found.record.attempts_made, found.record.attempts_max) == (0, 3)
    assert (found.record.finished_at, found.record.processed_at) == (None, None)
    assert outcomes(bill, job_id) == ["failed"]
    with pytest.raises(mq.JobNotRetryableError):
        bill.retry(job_id)
    claim = store.claim(["billing"], ["bill"], "next", 1_000, limit=5)
    assert [one.id for one in claim.jobs] == [behind, job_id]
    store.ack_completed(job_id, "next", bill.exit_codec.encode_success("paid"))
    assert [entry.attempt for entry in bill.attempts(job_id)] == [1, 2]
    assert bill.await_result(job_id, timeout=0) == "paid"


def test_promote_makes_a_delayed_job_runnable_now_at_its_place(
    store: Store, bill: Bill, clock: FakeClock
) -> None:
    """Its time is this instant; it was enqueued before the other."""
    job_id, behind = put(bill, "delayed"), put(bill, "waiting")
    clock.advance(1_000)
    assert bill.promote(job_id) is None
    found = bill.get_job(job_id)
    assert found is not None
    assert (found.state.value, found.record.run_at) == ("waiting", clock.now_ms())
    claim = store.claim(["billing"], ["bill"], TOKEN, 1_000, limit=5)
    assert [one.id for one in claim.jobs] == [job_id, behind]


def test_remove_deletes_what_no_worker_holds(store: Store, bill: Bill) -> None:
    """With everything that was known of it; what is active stays, and the answer says so."""
    jobs = put_all(bill)
    answers = {there: bill.remove(job_id) for there, job_id in jobs.items()}
    assert answers == {there: there != "active" for there in STATES}
    assert bill.remove(jobs["waiting"]) is False
    assert [there for there, job_id in jobs.items() if bill.get_job(job_id)] == ["active"]
    assert bill.attempts(jobs["failed"]) == []
    assert sum(bill.counts().values()) == 1
    with pytest.raises(mq.JobNotFoundError):
        bill.await_result(jobs["completed"], timeout=0)
    assert violations(store) == []


def test_pause_and_resume_are_of_the_definitions_queue_unless_told_otherwise(
    store: Store, bill: Bill, other: Bill
) -> None:
    """With the answers whether that was news; the queue is shared with other names."""
    put(bill, "waiting")
    put(other, "waiting")
    assert (bill.pause(), bill.pause(), bill.pause("mail")) == (True, False, True)
    assert bill.paused_queues() == other.paused_queues() == ["billing", "mail"]
    assert store.claim(["billing"], ["bill", "other"], TOKEN, 1_000, limit=5).jobs == ()
    assert (bill.resume(), bill.resume(), bill.resume("mail")) == (True, False, True)
    assert bill.paused_queues() == []
    assert len(store.claim(["billing"], ["bill", "other"], TOKEN, 1_000, limit=5).jobs) == 2


# Many at once


def test_cancel_where_reaches_its_own_name_alone(store: Store, bill: Bill, other: Bill) -> None:
    """Every job that has not finished, page after page, told as it goes."""
    mine = [bill.enqueue(Invoice(str(nth))) for nth in range(120)]
    mine += [bill.enqueue(Invoice(str(nth)), delay="1h", queue="side") for nth in range(3)]
    theirs = put_all(other)
    pages: list[mq.BulkResult] = []
    done = bill.cancel_where(on_page=pages.append)
    assert (sorted(done.ids), done.refused, done.dry_run) == (sorted(mine), {}, False)
    assert [job_id for page in pages for job_id in page.ids] == done.ids
    assert len(pages) > 1
    assert bill.counts()[JobState.CANCELLED] == len(mine)
    assert {there: state(other, job_id) for there, job_id in theirs.items()} == {
        there: there for there in STATES
    }
    assert bill.cancel_where().ids == []
    assert violations(store) == []


def test_the_bulk_verbs_take_filters(bill: Bill) -> None:
    """Queue, states and metadata, all of which must match."""
    wanted = bill.enqueue(Invoice("1", "rare"), delay="1h", queue="side")
    for invoice, queue, delay in (
        (Invoice("2", "rare"), "side", None),
        (Invoice("3", "rare"), None, "1h"),
        (Invoice("4"), "side", "1h"),
    ):
        bill.enqueue(invoice, queue=queue, delay=delay)
    filters: dict[str, Any] = {"queue": "side", "metadata": {"customer": "rare"}}
    delayed = {**filters, "states": ["delayed"]}
    assert bill.cancel_where(**delayed).ids == [wanted]
    assert state(bill, wanted) == "cancelled"
    assert bill.remove_where(**filters, states=["cancelled"]).ids == [wanted]
    assert bill.get_job(wanted) is None
    assert sum(bill.counts().values()) == 3


def test_a_dry_run_tells_which_and_changes_nothing(store: Store, bill: Bill, other: Bill) -> None:
    """For each of the three, with the very ids that the real run then reaches."""
    put_all(other)
    put_all(bill)
    verbs: tuple[Callable[..., mq.BulkResult], ...] = (
        bill.cancel_where,
        bill.retry_where,
        bill.remove_where,
    )
    for verb in verbs:
        before = snapshot(store)
        told = verb(dry_run=True)
        assert (told.dry_run, told.refused, bool(told.ids)) == (True, {}, True)
        assert snapshot(store) == before
        assert verb().ids == told.ids


def test_retry_where_revives_the_failed_jobs_of_its_name(
    store: Store, bill: Bill, other: Bill
) -> None:
    """And no others."""
    failed = [put(bill, "failed", str(nth)) for nth in range(3)]
    put_all(bill)
    theirs = put(other, "failed")
    done = bill.retry_where(metadata={"customer": "c-1"}, queue="billing")
    assert done.ids[:3] == failed
    assert len(done.ids) == 4
    assert {state(bill, job_id) for job_id in done.ids} == {"waiting"}
    assert bill.counts()[JobState.FAILED] == 0
    assert state(other, theirs) == "failed"
    assert violations(store) == []


def test_remove_where_deletes_what_no_worker_holds(store: Store, bill: Bill, other: Bill) -> None:
    """Of its own name."""
    mine, theirs = put_all(bill), put_all(other)
    done = bill.remove_where()
    assert sorted(done.ids) == sorted(set(mine.values()) - {mine["active"]})
    assert {word.value: n for word, n in bill.counts().items() if n} == {"active": 1}
    assert all(other.get_job(job_id) for job_id in theirs.values())
    assert violations(store) == []


def test_a_state_in_which_the_verb_cannot_work_is_refused(bill: Bill) -> None:
    """Rather than skipped in silence."""
    put_all(bill)
    with pytest.raises(ValueError, match="completed cannot be cancelled"):
        bill.cancel_where(states=["waiting", "completed"])
    with pytest.raises(ValueError, match="active cannot be removed"):
        bill.remove_where(states=["active"])
    assert bill.cancel_where(states=[]).ids == bill.remove_where(states=[]).ids == []
    assert sum(bill.counts().values()) == len(STATES)


# Reading


def test_counts_are_of_its_own_name(bill: Bill, other: Bill) -> None:
    """All seven states, in every queue or in one."""
    put_all(other)
    put_all(bill)
    bill.enqueue(Invoice("1"), queue="side")
    counts = bill.counts()
    assert list(counts) == list(JobState)
    assert {word.value: n for word, n in counts.items() if n} == {
        **dict.fromkeys(STATES, 1),
        "waiting": 2,
    }
    assert {word.value: n for word, n in bill.counts("side").items() if n} == {"waiting": 1}
    assert sum(other.counts("side").values()) == sum(bill.counts("nowhere").values()) == 0


def test_get_job_gives_the_job_with_its_payload_and_exit_decoded(bill: Bill) -> None:
    """All else stands on its record."""
    jobs = put_all(bill)
    found = {there: bill.get_job(job_id) for there, job_id in jobs.items()}
    for there, one in found.items():
        assert isinstance(one, mq.TypedJob)
        assert (one.id, one.state.value, one.payload) == (jobs[there], there, Invoice("1"))
        assert (one.record.name, one.record.queue) == ("bill", "billing")
        assert one.record.metadata == {"customer": "c-1"}
        assert "Invoice" not in repr(one)
    exits = {there: one.exit for there, one in found.items() if one is not None and one.exit}
    assert set(exits) == {"completed", "failed"}
    assert exits["completed"] == mq.Success("paid")
    failure = exits["failed"]
    assert isinstance(failure, mq.Failure)
    assert isinstance(failure.error, Declined)
    assert failure.error.reason == "no money"


def test_a_list_is_of_its_own_name_decoded_and_paged(bill: Bill, other: Bill) -> None:
    """The newest first unless asked otherwise; a cursor is of the definition that gave it."""
    put_all(other)
    job_ids = [bill.enqueue(Invoice(f"{nth:02}")) for nth in range(25)]
    numbers: list[str] = []
    found: list[str] = []
    cursor = None
    for expected in (10, 10, 5):
        page = bill.list(order="asc", limit=10, cursor=cursor)
        assert len(page.items) == expected
        found += [one.id for one in page.items]
        numbers += [one.payload.number for one in page.items if one.payload]
        cursor = page.cursor or cursor
    assert page.cursor is None
    assert sorted(found) == sorted(job_ids)
    assert sorted(numbers) == [f"{nth:02}" for nth in range(25)]
    assert [one.id for one in bill.list(limit=25).items] == found[::-1]
    with pytest.raises(ValueError, match="other options"):
        other.list(order="asc", limit=10, cursor=cursor)


def test_a_list_takes_the_filters_and_orders_of_the_stores(bill: Bill, clock: FakeClock) -> None:
    """Failed jobs of one customer, newest first; what runs next; what just finished."""
    failed = []
    for nth in range(3):
        failed.append(put(bill, "failed", str(nth), metadata={"customer": f"c-{nth % 2}"}))
        clock.advance(1_000)
    later, sooner = put(bill, "delayed"), bill.enqueue(Invoice("2"), delay="1m")

    def ids(**options: Any) -> list[str]:
        return [one.id for one in bill.list(**options).items]

    of_customer = {"states": ["failed"], "queue": "billing", "metadata": {"customer": "c-0"}}
    assert ids(**of_customer) == [failed[2], failed[0]]
    assert ids(queue="billing", states=["delayed"], order_by="run_at", order="asc") == [
        sooner,
        later,
    ]
    assert ids(states=[JobState.FAILED], order_by="finished_at") == failed[::-1]
    assert ids(states=[]) == ids(queue="nowhere") == []
    with pytest.raises(mq.ListOrderUnsupportedError) as refused:
        bill.list(order_by="run_at")
    assert refused.value.option is not None
    for wrong in ({"limit": 0}, {"limit": 501}, {"order": "up"}, {"cursor": "no cursor"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            bill.list(**wrong)


def test_a_list_without_bodies_has_no_payloads_and_no_exits(bill: Bill) -> None:
    """All else is there."""
    put_all(bill)
    page = bill.list(bodies=False)
    assert sorted(one.state.value for one in page.items) == sorted(STATES)
    assert {(one.payload, one.exit) for one in page.items} == {(None, None)}
    assert {one.record.metadata["customer"] for one in page.items} == {"c-1"}


def undecodable(bill: Bill) -> tuple[str, str]:
    """Two jobs as an older release or another program may have left them: payload, and exit."""
    request = Request(name="bill", queue="billing", payload=GARBAGE, id="bad payload")
    bill.store.enqueue(request)
    take(bill, "bad payload")
    wrong_type = bill.exit_codec.encode_success("x").replace(b"x", GARBAGE)
    bill.store.ack_completed("bad payload", TOKEN, bill.exit_codec.encode_success("paid"))
    bill.enqueue(Invoice("1"), job_id="bad exit")
    take(bill, "bad exit")
    bill.store.ack_completed("bad exit", TOKEN, wrong_type)
    return "bad payload", "bad exit"


def test_a_job_that_does_not_decode_does_not_break_the_page_it_stands_on(bill: Bill) -> None:
    """Only reading what is wrong raises, and says of which job."""
    bad = undecodable(bill)
    good = put(bill, "completed")
    found = {one.id: one for one in bill.list().items}
    assert set(found) == {*bad, good}
    assert (found[good].payload, found[good].exit) == (Invoice("1"), mq.Success("paid"))
    assert found["bad payload"].exit == mq.Success("paid")
    assert found["bad exit"].payload == Invoice("1")
    for read in (lambda: found["bad payload"].payload, lambda: found["bad exit"].exit):
        with pytest.raises(mq.DecodeError) as broken:
            read()
        assert broken.value.job_id in bad
        assert broken.value.state == "completed"
        assert "\n" not in str(broken.value)
    without = bill.list(bodies=False).items
    assert {one.payload for one in without} == {one.exit for one in without} == {None}


def test_what_does_not_decode_can_still_be_looked_at_and_steered(store: Store, bill: Bill) -> None:
    """Each reading verb that has to decode it says of which job; the others go on."""
    undecodable(bill)
    for call in (bill.poll, bill.attempts, lambda job_id: bill.await_result(job_id, timeout=0)):
        with pytest.raises(mq.DecodeError) as broken:
            call("bad exit")
        assert (broken.value.job_id, broken.value.state) == ("bad exit", "completed")
    found = bill.get_job("bad payload")
    assert found is not None
    with pytest.raises(mq.DecodeError) as broken:
        _ = found.payload
    assert broken.value.job_id == "bad payload"
    assert bill.await_result("bad payload", timeout=0) == "paid"
    assert [bill.remove(job_id) for job_id in ("bad payload", "bad exit")] == [True, True]
    store.enqueue(Request(name="bill", queue="billing", payload=GARBAGE, id="waits"))
    assert bill.cancel("waits") == "cancelled"
    assert violations(store) == []


def test_a_definition_bound_to_another_store_works_there(server: Server, clock: FakeClock) -> None:
    """Its verbs know nothing of the default store."""
    audit = Store(server.url, prefix="audit", clock=clock)
    app = mq.App(server.url, clock=clock, stores={"audit": audit})
    plain = app.define("plain", payload=str)
    logged = app.define("logged", payload=str, store="audit")
    here, there = plain.enqueue("x"), logged.enqueue("y")
    assert logged.get_job(here) is None
    with pytest.raises(mq.JobNotFoundError):
        logged.cancel(here)
    assert [one.payload for one in logged.list().items] == ["y"]
    assert logged.pause() is True
    assert (plain.paused_queues(), logged.paused_queues()) == ([], ["default"])
    assert logged.cancel(there) == "cancelled"
    assert (sum(plain.counts().values()), plain.counts()[JobState.WAITING]) == (1, 1)
    app.close()
