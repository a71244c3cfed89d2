"""Flows, run by workers: fan out, collect, fail, cancel, nest, and go on after a crash."""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from helpers import Processes, wait_until
from servers import Server, ServerPool
from transitions.seed import snapshot
from worker.build import HERE, LONG, PROMPT_S, finished, outcomes, record, state, worker_of
from worker.flow_jobs import define

import mq
from mq import codec, manifests
from mq.clock import FakeClock
from mq.policies import encode_keep
from mq.records import Ack, Request
from mq.states import JobState
from mq.store import Store
from mq.store.families import OUTBOX_PAGE, SWEEP_ROWS, ChildCounts, ChildReport, ChildRow
from mq.store.steering import STEER_BATCH
from mq.worker.flow_starter import FlowStarter, enqueue_children
from mq.worker.flow_sweeper import FlowSweeper
from mq.worker.options import read_options
from mq.worker.outage import Streak
from mq.worker.relay import Relay

BRISK = {"flow_interval": "0.3s", "lock_duration": "2s", "stalled_interval": "0.3s"}
AGE_MS = 30_000
TOKEN = "token"


@attrs.frozen
class Odd(Exception):
    """What a child may fail with."""

    number: int


@attrs.define
class Family:
    """A flow whose parent sums what its children return.

    Args:
        app: whose it is.
        flow: of `total`, over `square`; an odd number fails when it is negative.
    """

    app: mq.App
    flow: mq.Flow[list[int], Any]
    square: mq.Job[int, int]
    gate: threading.Event = attrs.field(factory=threading.Event)
    began: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))

    @property
    def store(self) -> Store:
        """The parents' store."""
        return self.flow.parent.store

    def child_id(self, parent: str, key: int | str) -> str:
        """The id that a child has."""
        return f"flow/default/{parent}/{key}"


def make_family(
    app: mq.App,
    mode: Any = "continue",
    *,
    child_store: str = "default",
    child_options: Any = None,
    **parent: Any,
) -> Family:
    """Define a flow; 1000 as a child waits until the gate is open."""
    total = app.define("total", payload=list[int], result=dict[str, int], **parent)
    gate, began = threading.Event(), threading.Semaphore(0)

    @app.job("square", error=Odd, store=child_store)
    def square(number: int, ctx: mq.Context) -> int:
        if number == 1000:
            began.release()
            while not gate.is_set():
                ctx.sleep(0.01)
                ctx.check()
        if number < 0:
            raise Odd(number)
        return number * number

    flow = app.flow("squares", parent=total, children=[square], on_child_failure=mode)

    @flow.fan_out
    def _(numbers: list[int]) -> Any:
        return [square.child(str(n), n, **(child_options or {})) for n in numbers]

    @flow.collect
    def _(numbers: list[int], results: mq.FlowResults) -> dict[str, int]:
        counts = results.counts
        return {
            "sum": sum(one.value for one in results.all() if one.outcome == "completed"),
            "completed": counts.completed,
            "failed": counts.failed,
            "cancelled": counts.cancelled,
        }

    return Family(app, flow, square, gate, began)


@pytest.fixture(params=["memory", "server"])
def flow_app(request: pytest.FixtureRequest, server_pool: ServerPool) -> Iterator[mq.App]:
    """An app in memory and one on a server."""
    url = "memory://" if request.param == "memory" else request.getfixturevalue("one_server").url
    made = mq.App(url)
    yield made
    made.close()


def duties(app: mq.App, store: Store) -> tuple[FlowStarter, Relay, FlowSweeper]:
    """The three of a worker, not started."""
    options = read_options(flow_interval=AGE_MS / 1000)
    return (
        FlowStarter(app, store, options, Streak()),
        Relay(app, store, options, Streak()),
        FlowSweeper(app, store, options, Streak()),
    )


# Whole flows


def test_a_parent_collects_what_its_children_returned(flow_app: mq.App) -> None:
    """Two phases in the ledger, one attempt."""
    family = make_family(flow_app)
    with worker_of(flow_app, **BRISK):
        job_id = family.flow.enqueue([1, 2, 3, -4])
        result = family.flow.await_result(job_id, timeout=PROMPT_S)
    assert result == {"sum": 14, "completed": 3, "failed": 1, "cancelled": 0}
    assert outcomes(family.store, job_id) == ["fanned-out", "completed"]
    assert record(family.store, job_id).attempts_made == 1
    seen = family.flow.child_results(job_id).all()
    assert [one.key for one in seen] == ["-4", "1", "2", "3"]
    assert isinstance(seen[0].exit, codec.Failure)
    assert isinstance(seen[0].exit.error, Odd)
    assert seen[0].exit.error.number == -4
    assert (seen[1].value, seen[0].value) == (1, None)


def test_a_parent_without_children_collects_at_once(flow_app: mq.App) -> None:
    """It does not park."""
    family = make_family(flow_app)
    with worker_of(flow_app, **BRISK):
        result = family.flow.execute([], wait=PROMPT_S)
    assert result == {"sum": 0, "completed": 0, "failed": 0, "cancelled": 0}


def test_a_failed_child_fails_its_parent_and_cancels_the_others(flow_app: mq.App) -> None:
    """The running one is interrupted, the waiting one never starts."""
    family = make_family(flow_app, "fail")
    with worker_of(flow_app, concurrency=2, **BRISK):
        job_id = family.flow.enqueue([1000, -1])
        with pytest.raises(mq.JobFailedError, match="child -1 failed"):
            family.flow.await_result(job_id, timeout=PROMPT_S)
        assert finished(family.store, family.child_id(job_id, 1000)) == ["cancelled"]
    assert outcomes(family.store, job_id) == ["fanned-out", "failed"]
    assert family.flow.child_results(job_id).counts == ChildCounts(2, 0, 1, 1)


@pytest.mark.parametrize("called_off_by", ["a failed child", "a cancel"])
def test_children_that_are_called_off_need_not_wait_for_an_interval(
    flow_app: mq.App, called_off_by: str
) -> None:
    """A failure is followed by a look at once, a cancel by the next look of an idle worker."""
    family = make_family(flow_app, "fail")
    options = {"flow_interval": LONG, "lock_duration": "2s", "stalled_interval": "0.3s"}
    options["poll_interval"] = LONG if called_off_by == "a failed child" else "0.2s"
    with worker_of(flow_app, concurrency=2, **options):
        job_id = family.flow.enqueue([1000, 2] if called_off_by == "a cancel" else [1000, -1])
        assert family.began.acquire(timeout=PROMPT_S)
        if called_off_by == "a cancel":
            family.flow.cancel(job_id)
        assert finished(family.store, family.child_id(job_id, 1000)) == ["cancelled"]


def test_a_failed_parent_that_is_retried_collects_and_does_not_fan_out(flow_app: mq.App) -> None:
    """Its children stay as they are."""
    family = make_family(flow_app, "fail")
    with worker_of(flow_app, **BRISK):
        job_id = family.flow.enqueue([1, -1])
        finished(family.store, job_id)
        family.flow.retry(job_id)
        result = family.flow.await_result(job_id, timeout=PROMPT_S)
    assert result["failed"] == 1
    assert outcomes(family.store, job_id) == ["fanned-out", "failed", "completed"]


def test_a_cancelled_parent_cancels_its_running_children(flow_app: mq.App) -> None:
    """At once in its rows, and soon in their store."""
    family = make_family(flow_app)
    with worker_of(flow_app, concurrency=1, **BRISK):
        job_id = family.flow.enqueue([1000, 2])
        assert family.began.acquire(timeout=PROMPT_S)
        assert family.flow.cancel(job_id) == "cancelled"
        counts = family.flow.child_results(job_id).counts
        assert (counts.pending, counts.total) == (0, 2)
        running = family.child_id(job_id, 1000)
        assert finished(family.store, running, family.child_id(job_id, 2))[0] == "cancelled"
    with pytest.raises(mq.JobCancelledError):
        family.flow.await_result(job_id, timeout=PROMPT_S)


def test_children_of_a_fan_out_that_yields_are_taken_in_pages(flow_app: mq.App) -> None:
    """More of them than one call writes, starts or reports."""
    total = flow_app.define("total", payload=int, result=int)

    @flow_app.job("one")
    def one(number: int) -> int:
        return 1

    flow = flow_app.flow("many", parent=total, children=[one])

    @flow.fan_out
    def _(number: int, ctx: mq.Context) -> Iterator[Any]:
        for at in range(number):
            yield one.child(f"{at:04}", at)

    @flow.collect
    def _(number: int, results: mq.FlowResults, ctx: mq.Context) -> int:
        return sum(child.value for child in results.iter(page=7))

    with worker_of(flow_app, concurrency=4, **BRISK):
        assert flow.execute(230, wait=60) == 230


def test_a_fan_out_that_raises_is_an_attempt_like_any_other(flow_app: mq.App) -> None:
    """The next one fans out; a collect that raises collects again."""
    total = flow_app.define("total", payload=str, result=str, attempts=3)
    calls: list[str] = []

    @flow_app.job("one")
    def one(number: int) -> int:
        calls.append("child")
        return 1

    flow = flow_app.flow("shaky", parent=total, children=[one])

    @flow.fan_out
    def _(text: str) -> Iterator[Any]:
        calls.append("fan_out")
        yield one.child("a", 1)
        if len(calls) == 1:
            raise RuntimeError("not yet")

    @flow.collect
    def _(text: str, results: mq.FlowResults) -> str:
        calls.append("collect")
        if calls.count("collect") == 1:
            raise RuntimeError("not yet")
        return text

    with worker_of(flow_app, **BRISK):
        job_id = flow.enqueue("done")
        assert flow.await_result(job_id, timeout=PROMPT_S) == "done"
    assert calls == ["fan_out", "fan_out", "child", "collect", "collect"]
    assert outcomes(total.store, job_id) == ["retried", "fanned-out", "retried", "completed"]


ODD_FAN_OUTS: dict[str, tuple[Callable[[mq.Job[int, int]], object], str]] = {
    "two of one key": (lambda j: [j.child("twice", 1), j.child("twice", 2)], "'twice'"),
    "no list": (lambda j: 5, "returned int"),
    "text": (lambda j: "children", "returned str"),
    "nothing": (lambda j: None, "returned NoneType"),
    "payloads": (lambda j: [1, 2], "int among its children"),
    "a key too long for an id": (lambda j: [j.child("k" * 256, 1)], "longer than"),
}


@pytest.mark.parametrize("odd", ODD_FAN_OUTS)
def test_a_fan_out_that_cannot_be_carried_out_fails_the_parent_at_once(
    flow_app: mq.App, odd: str
) -> None:
    """Whatever its budget, naming the child, and no child is started."""
    total = flow_app.define("total", payload=int, result=int, attempts=5)

    @flow_app.job("one")
    def one(number: int) -> int:
        return 1

    flow = flow_app.flow("odd", parent=total, children=[one])
    made, text = ODD_FAN_OUTS[odd]
    flow.fan_out(lambda number: made(one))
    flow.collect(lambda number, results: 1)
    with worker_of(flow_app, **BRISK):
        job_id = flow.enqueue(1, job_id="p" * 300)
        with pytest.raises(mq.JobFailedError, match=text):
            flow.await_result(job_id, timeout=PROMPT_S)
    assert outcomes(total.store, job_id) == ["failed"]
    assert sum(total.store.counts().values()) == 1


def test_a_child_that_the_flow_does_not_name_is_refused(flow_app: mq.App) -> None:
    """Its results could not be decoded."""
    family = make_family(flow_app)

    @flow_app.job("stranger")
    def stranger(number: int) -> int:
        return 1

    family.flow.fan_out_function = lambda numbers: [stranger.child("a", 1)]
    with worker_of(flow_app, **BRISK):
        job_id = family.flow.enqueue([])
        with pytest.raises(mq.JobFailedError, match="'stranger' child"):
            family.flow.await_result(job_id, timeout=PROMPT_S)


@pytest.mark.parametrize(("depth", "works"), [(8, True), (9, False)])
def test_flows_nest_eight_deep(app: mq.App, depth: int, works: bool) -> None:
    """The ninth fails with a clear error, and its parents hear of it."""
    level = app.define("level", payload=int, result=str)

    @app.job("leaf")
    def leaf(number: int) -> str:
        return "leaf"

    flow = app.flow("tree", parent=level, children=[level, leaf], on_child_failure="fail")

    @flow.fan_out
    def _(number: int) -> Any:
        return [level.child("down", number - 1) if number > 1 else leaf.child("down", 0)]

    @flow.collect
    def _(number: int, results: mq.FlowResults) -> str:
        return f"{number}-{results.all()[0].value}"

    with worker_of(app, **BRISK):
        job_id = flow.enqueue(depth)
        if works:
            assert flow.await_result(job_id, timeout=30) == "8-7-6-5-4-3-2-1-leaf"
            return
        with pytest.raises(mq.JobFailedError, match="child down failed"):
            flow.await_result(job_id, timeout=30)
    deepest = "flow/default/" * 8 + job_id + "/down" * 8
    with pytest.raises(mq.JobFailedError, match=r"9 flows deep; 8 are allowed"):
        level.await_result(deepest, timeout=1)


@pytest.mark.parametrize("where", ["prefix", "server"])
def test_children_may_live_in_another_store(one_server: Server, where: str) -> None:
    """Their worker carries the reports home, and their cancels are brought to them."""
    url = one_server.url if where == "prefix" else "memory://"
    other = Store(url, prefix="other")
    app = mq.App(one_server.url, stores={"other": other})
    family = make_family(app, child_store="other")
    with worker_of(app, **BRISK), worker_of(app, store="other", concurrency=1, **BRISK):
        assert family.flow.execute([2, 3], wait=PROMPT_S)["sum"] == 13
        job_id = family.flow.enqueue([1000, 5])
        assert family.began.acquire(timeout=PROMPT_S)
        family.flow.cancel(job_id)
        assert finished(other, family.child_id(job_id, 1000)) == ["cancelled"]
        wait_until(lambda: other.peek_outbox() == [], what="the outbox to be carried")
    assert other.counts()[JobState.COMPLETED] + other.counts()[JobState.CANCELLED] == 4
    app.close()


def test_a_burst_ends_when_its_flows_are_through(flow_app: mq.App) -> None:
    """Not when the parent has parked and its children are still to be started."""
    family = make_family(flow_app)
    ids = [family.flow.enqueue([n, n + 1]) for n in range(5)]
    assert mq.Worker(flow_app, burst=True, concurrency=2).run() == 0
    assert {state(family.store, job_id) for job_id in ids} == {"completed"}


def test_a_parent_whose_children_cannot_be_read_is_given_back(
    flow_app: mq.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is away for a moment costs it no attempt."""
    family = make_family(flow_app)
    read = family.store.list_child_results
    calls: list[str] = []

    def away_once(job_id: str, *given: Any, **named: Any) -> Any:
        calls.append(job_id)
        if len(calls) == 1:
            raise mq.StoreError("away")
        return read(job_id, *given, **named)

    monkeypatch.setattr(family.store, "list_child_results", away_once)
    job_id = family.flow.enqueue([1])
    assert mq.Worker(flow_app, burst=True).run() == 0
    assert outcomes(family.store, job_id) == ["fanned-out", "completed"]
    assert record(family.store, job_id).attempts_made == 1


def test_children_that_retention_takes_at_once_settle_their_parent(flow_app: mq.App) -> None:
    """What they returned is there, and nothing else of them."""
    family = make_family(flow_app, child_options={"keep": mq.Keep(count=0)})
    with worker_of(flow_app, **BRISK):
        result = family.flow.execute([2, 3, -1], wait=PROMPT_S)
    assert result == {"sum": 13, "completed": 2, "failed": 1, "cancelled": 0}
    assert sum(family.store.counts().values()) == 1


# Crashes, step by step


@pytest.fixture
def stopped(clock: FakeClock) -> Iterator[Family]:
    """A flow in memory with a clock that stands still, and no worker."""
    app = mq.App("memory://", clock=clock)
    yield make_family(app)
    app.close()


def fan_out(family: Family, *numbers: int, ack: bool = True) -> str:
    """Enqueue a parent, and do what a worker does up to the ack of the fan-out."""
    job_id = family.flow.enqueue(list(numbers))
    claim_and_fan_out(family, *numbers, ack=ack)
    return str(job_id)


def claim_and_fan_out(family: Family, *numbers: int, ack: bool = True) -> None:
    """Do what a worker does with a parent up to the ack of the fan-out."""
    (claimed,) = family.store.claim(["default"], ["total"], TOKEN, 1_000).jobs
    children = [family.square.child(str(n), n) for n in numbers]
    rows = manifests.manifest_of(family.flow, claimed, children)
    family.store.write_manifest(claimed.id, TOKEN, rows, family.flow.on_child_failure)
    if ack:
        family.store.ack_fanned_out(claimed.id, TOKEN)


def make_local(app: mq.App) -> mq.Job[int, int]:
    """Define a child of the default store."""
    return app.define("local", payload=int, result=int)


def fan_out_of(store: Store, child: mq.Job[int, int], key: str) -> str:
    """Fan out one child of a parent that has no definition."""
    parent = store.enqueue(Request(name="near-parent", queue="default", payload=b"")).id
    store.claim(["default"], ["near-parent"], TOKEN, 1_000)
    made = child.child(key, 1)
    request = attrs.evolve(
        made.request,
        id=f"flow/default/{parent}/{key}",
        parent=manifests.ParentRef(1, "default", parent, key, store.now_ms()).encode(),
    )
    row = ChildRow(key, manifests.encode_row(attrs.evolve(made, request=request)))
    store.write_manifest(parent, TOKEN, [row], "continue")
    store.ack_fanned_out(parent, TOKEN)
    return parent


def run_child(family: Family, job_id: str, verb: str = "ack_completed") -> None:
    """Claim and end one child, without any relay."""
    (claimed,) = family.store.claim(["default"], ["square"], job_id, 1_000).jobs
    assert claimed.id == job_id
    exit_ = family.square.exit_codec.encode_success(7, 1000) if verb == "ack_completed" else None
    family.store.exchange([(verb, Ack(job_id, job_id, exit_))], None)


def test_a_scheduled_parent_fans_out_and_collects(stopped: Family, clock: FakeClock) -> None:
    """One flow of each occurrence."""
    stopped.flow.schedule("hourly", every="1h", payload=[1, 2])
    for number in (1, 2):
        clock.advance(3_600_000)
        assert mq.Worker(stopped.app, burst=True).run() == 0
        counts = stopped.store.counts(name="total")
        assert counts[JobState.COMPLETED] == number
    assert stopped.store.counts(name="square")[JobState.COMPLETED] == 4
    (newest, _) = stopped.store.list(name="total").items
    assert outcomes(stopped.store, newest.id) == ["fanned-out", "completed"]
    assert stopped.flow.await_result(newest.id, timeout=1)["sum"] == 5
    assert stopped.flow.unschedule("hourly")


def test_counts_cost_a_collect_no_read_and_pages_one_each(
    stopped: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wants numbers alone pays for no more; keys come in the order of their bytes."""
    names = ["é", "b", "B", "aa", "a"]
    job_id = stopped.flow.enqueue([])
    (claimed,) = stopped.store.claim(["default"], ["total"], TOKEN, 1_000).jobs
    children = [stopped.square.child(name, 1) for name in names]
    rows = manifests.manifest_of(stopped.flow, claimed, children)
    stopped.store.write_manifest(job_id, TOKEN, rows, "continue")
    stopped.store.ack_fanned_out(job_id, TOKEN)
    stopped.store.record_child_results([ChildReport(job_id, name, "completed") for name in names])
    calls = counted(monkeypatch, stopped.store)
    results = stopped.flow.child_results(job_id)
    assert calls.pop("get") == 1  # whether there is such a parent
    assert calls == {"list_child_results": 1}
    assert results.counts == ChildCounts(5, 5, 0, 0)
    assert calls == {"list_child_results": 1}
    assert [one.key for one in results.all()] == sorted(names, key=str.encode)
    assert calls == {"list_child_results": 2}
    assert [one.key for one in results.iter(page=2)] == sorted(names, key=str.encode)
    assert calls == {"list_child_results": 5}


def test_a_failure_wins_over_the_last_result_that_is_carried_with_it(stopped: Family) -> None:
    """Whichever child ended first: one call brings both."""
    stopped.flow.on_child_failure = "fail"
    job_id = fan_out(stopped, 1, 2)
    starter, relay, _ = duties(stopped.app, stopped.store)
    starter.start_children(job_id)
    starter.look()
    run_child(stopped, stopped.child_id(job_id, 1))
    run_child(stopped, stopped.child_id(job_id, 2), "ack_failed")
    relay.look()
    assert record(stopped.store, job_id).failed_reason == "child 2 failed"
    assert stopped.flow.child_results(job_id).counts == ChildCounts(2, 1, 1, 0)


def test_relays_that_carry_at_once_settle_a_parent_once(app: mq.App) -> None:
    """Each of them reads the whole outbox; every report counts once."""
    family = make_family(app)
    children = range(60)
    job_id = fan_out(family, *children)
    starter, *_ = duties(app, family.store)
    starter.start_children(job_id)
    starter.look()
    claimed = family.store.claim(["default"], ["square"], "all", 60_000, 100).jobs
    family.store.exchange([("ack_completed", Ack(one.id, "all", b"")) for one in claimed], None)
    relays = [duties(app, family.store)[1] for _ in range(4)]
    start = threading.Barrier(len(relays))

    def carry(relay: Relay) -> None:
        start.wait(PROMPT_S)
        relay.look()

    threads = [threading.Thread(target=carry, args=(relay,)) for relay in relays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PROMPT_S)
    assert family.store.peek_outbox() == []
    assert state(family.store, job_id) == "waiting"
    assert outcomes(family.store, job_id) == ["fanned-out"]
    counts = family.store.list_child_results(job_id, 0).counts
    assert counts == ChildCounts(len(children), len(children), 0, 0)
    assert len(family.store.claim(["default"], ["total"], "again", 60_000, 5).jobs) == 1


def test_children_that_nobody_started_are_started_by_the_sweep(
    stopped: Family, clock: FakeClock
) -> None:
    """After a full interval, each once, from what stands in the manifest."""
    job_id = fan_out(stopped, 1, 2)
    starter, relay, sweeper = duties(stopped.app, stopped.store)
    sweeper.look()
    assert stopped.store.get_job(stopped.child_id(job_id, 1)) is None
    clock.advance(AGE_MS)
    sweeper.look()
    for number in (1, 2):
        assert state(stopped.store, stopped.child_id(job_id, number)) == "waiting"
    starter.start_children(job_id)
    starter.look()
    assert stopped.store.counts()[JobState.WAITING] == 2
    for number in (1, 2):
        run_child(stopped, stopped.child_id(job_id, number))
    relay.look()
    assert state(stopped.store, job_id) == "waiting"


def test_a_starter_that_died_halfway_is_finished_by_the_sweep(
    stopped: Family, clock: FakeClock
) -> None:
    """A child that was enqueued and not noted is not enqueued twice, though it has run."""
    job_id = fan_out(stopped, 1, 2)
    (first, _) = stopped.store.next_children(job_id)
    stopped.store.enqueue(manifests.decode_row(first.key, first.row).request)
    run_child(stopped, stopped.child_id(job_id, 1))
    clock.advance(AGE_MS)
    _, relay, sweeper = duties(stopped.app, stopped.store)
    sweeper.look()
    assert outcomes(stopped.store, stopped.child_id(job_id, 1)) == ["completed"]
    run_child(stopped, stopped.child_id(job_id, 2))
    relay.look()
    assert state(stopped.store, job_id) == "waiting"
    assert stopped.flow.child_results(job_id).counts == ChildCounts(2, 2, 0, 0)


@pytest.mark.parametrize(
    ("verb", "word"), [("ack_completed", "completed"), ("ack_failed", "failed")]
)
def test_a_report_that_is_lost_is_made_by_the_sweep(
    stopped: Family, clock: FakeClock, verb: str, word: str
) -> None:
    """From the child's record; a relay that comes later changes nothing."""
    job_id = fan_out(stopped, 1)
    starter, relay, sweeper = duties(stopped.app, stopped.store)
    starter.start_children(job_id)
    starter.look()
    run_child(stopped, stopped.child_id(job_id, 1), verb)
    clock.advance(AGE_MS)
    sweeper.look()
    assert state(stopped.store, job_id) == "waiting"
    (found,) = stopped.flow.child_results(job_id).all()
    assert (found.outcome, found.value) == (word, 7 if word == "completed" else None)
    relay.look()
    assert stopped.store.peek_outbox() == []
    assert stopped.flow.child_results(job_id).counts.total == 1


def test_a_report_that_was_carried_and_not_deleted_is_carried_again(stopped: Family) -> None:
    """The second time does nothing."""
    job_id = fan_out(stopped, 1, 2)
    starter, relay, _ = duties(stopped.app, stopped.store)
    starter.start_children(job_id)
    starter.look()
    run_child(stopped, stopped.child_id(job_id, 1))
    (entry,) = stopped.store.peek_outbox()
    _, report = manifests.report_of(entry.parent, entry.outcome, entry.exit)
    assert stopped.store.record_child_results([report]) == [True]
    relay.look()
    assert stopped.store.peek_outbox() == []
    assert stopped.flow.child_results(job_id).counts == ChildCounts(2, 1, 0, 0)


def test_a_fan_out_that_was_not_acked_begins_anew(stopped: Family, clock: FakeClock) -> None:
    """What the lost run wrote is not started; the next run writes its own."""
    job_id = fan_out(stopped, 1, 2, ack=False)
    clock.advance(AGE_MS)
    stopped.store.stall_sweep(1)
    _, _, sweeper = duties(stopped.app, stopped.store)
    sweeper.look()
    assert stopped.store.counts()[JobState.WAITING] == 1
    assert mq.Worker(stopped.app, burst=True).run() == 0
    assert outcomes(stopped.store, job_id) == ["stalled", "fanned-out", "completed"]


def test_a_child_that_runs_is_left_alone(stopped: Family, clock: FakeClock) -> None:
    """However often the sweep comes by."""
    job_id = fan_out(stopped, 1)
    starter, _, sweeper = duties(stopped.app, stopped.store)
    starter.start_children(job_id)
    starter.look()
    for _ in range(3):
        clock.advance(AGE_MS)
        sweeper.look()
    assert state(stopped.store, stopped.child_id(job_id, 1)) == "waiting"
    assert stopped.flow.child_results(job_id).counts.pending == 1


# An id that is another job's


def test_a_parent_whose_id_is_used_again_gets_no_old_result(
    stopped: Family, clock: FakeClock
) -> None:
    """Children of the first stand in the way of the second, which hears of it at once."""

    def flow_of(number: int) -> mq.JobStatus[Any]:
        stopped.flow.enqueue([number], job_id="again")
        assert mq.Worker(stopped.app, burst=True).run() in (0, 5)
        return stopped.flow.poll("again")  # type: ignore[return-value]

    assert flow_of(3).exit == mq.Success({"sum": 9, "completed": 1, "failed": 0, "cancelled": 0})
    assert stopped.flow.parent.remove("again")
    clock.advance(1)
    second = flow_of(3)
    assert second.exit == mq.Success({"sum": 0, "completed": 0, "failed": 1, "cancelled": 0})
    (child,) = stopped.flow.child_results("again").all()
    assert isinstance(child.exit, mq.Defect)
    assert "its id flow/default/again/3 is that of a job of another parent" in child.exit.message
    # As the message says: without that job the id is free.
    assert stopped.flow.parent.remove("again")
    assert stopped.square.remove(stopped.child_id("again", 3))
    clock.advance(1)
    assert flow_of(3).exit == mq.Success({"sum": 9, "completed": 1, "failed": 0, "cancelled": 0})


@pytest.mark.parametrize("enqueued", [True, False])
def test_what_an_earlier_parent_of_an_id_left_behind_says_nothing_to_the_next(
    stopped: Family, clock: FakeClock, enqueued: bool
) -> None:
    """Neither a report that comes late, nor a child that still runs; and no cancel reaches it."""
    starter, relay, sweeper = duties(stopped.app, stopped.store)
    first = stopped.flow.enqueue([1], job_id="again")
    claim_and_fan_out(stopped, 1)
    starter.start_children(first)
    starter.look()
    (child,) = stopped.store.claim(["default"], ["square"], "old", 60 * AGE_MS).jobs
    stopped.store.record_child_results([ChildReport(first, "1", "cancelled")])
    (claimed,) = stopped.store.claim(["default"], ["total"], TOKEN, 1_000).jobs
    stopped.store.ack_completed(claimed.id, TOKEN, b"")
    assert stopped.store.remove(first)
    clock.advance(1)
    second = stopped.flow.enqueue([1], job_id="again")
    claim_and_fan_out(stopped, 1)
    if enqueued:
        starter.start_children(second)
        starter.look()
        assert stopped.flow.child_results(second).counts == ChildCounts(1, 0, 1, 0)
    else:
        assert stopped.flow.cancel(second) == "cancelled"
        for _ in range(2):
            sweeper.look()
            clock.advance(AGE_MS)
        assert stopped.flow.child_results(second).counts == ChildCounts(1, 0, 0, 1)
    assert record(stopped.store, child.id).cancel_requested is False
    stopped.store.ack_completed(child.id, "old", stopped.square.exit_codec.encode_success(7, 100))
    before = stopped.flow.child_results(second).counts
    relay.look()
    assert stopped.flow.child_results(second).counts == before
    assert stopped.store.peek_outbox() == []


def test_a_child_whose_id_is_that_of_another_job_fails(stopped: Family) -> None:
    """The sweep finds it, too; the other job is left alone."""
    stopped.flow.on_child_failure = "fail"
    job_id = fan_out(stopped, 1)
    plain = stopped.app.define("plain", payload=int)
    plain.enqueue(1, job_id=stopped.child_id(job_id, 1))
    starter, _, _ = duties(stopped.app, stopped.store)
    starter.start_children(job_id)
    starter.look()
    assert record(stopped.store, job_id).failed_reason == "child 1 failed"
    assert state(stopped.store, stopped.child_id(job_id, 1)) == "waiting"


def test_a_child_that_an_operator_removed_is_reported_cancelled(
    stopped: Family, clock: FakeClock
) -> None:
    """Its parent does not wait for ever."""
    job_id = fan_out(stopped, 1)
    starter, relay, sweeper = duties(stopped.app, stopped.store)
    starter.start_children(job_id)
    starter.look()
    assert stopped.square.remove(stopped.child_id(job_id, 1))
    relay.look()
    assert state(stopped.store, job_id) == "waiting-children"
    clock.advance(AGE_MS)
    sweeper.look()
    assert state(stopped.store, job_id) == "waiting"
    assert stopped.flow.child_results(job_id).counts == ChildCounts(1, 0, 0, 1)


def test_a_child_that_retention_took_is_reported_as_it_ended(clock: FakeClock) -> None:
    """Its report waits in the outbox, and the sweep does not say that it was cancelled."""
    app = mq.App("memory://", clock=clock)
    family = make_family(app, child_options={"keep": mq.Keep(count=0)})
    job_id = family.flow.enqueue([1])
    (claimed,) = family.store.claim(["default"], ["total"], TOKEN, 1_000).jobs
    children = [family.square.child("1", 1, keep=mq.Keep(count=0))]
    rows = manifests.manifest_of(family.flow, claimed, children)
    family.store.write_manifest(job_id, TOKEN, rows, "continue")
    family.store.ack_fanned_out(job_id, TOKEN)
    starter, _, sweeper = duties(app, family.store)
    starter.start_children(job_id)
    starter.look()
    run_child(family, family.child_id(job_id, 1))
    assert family.store.get_job(family.child_id(job_id, 1)) is None
    clock.advance(AGE_MS)
    sweeper.look()
    assert family.flow.child_results(job_id).counts == ChildCounts(1, 1, 0, 0)
    app.close()


def test_owed_cancels_are_delivered_by_the_sweep(stopped: Family) -> None:
    """Whether the child waits, has finished, or was never enqueued; then the parent may go."""
    job_id = fan_out(stopped, 1, 2, 3)
    starter, _, sweeper = duties(stopped.app, stopped.store)
    starter.start_children(job_id)
    starter.look()
    run_child(stopped, stopped.child_id(job_id, 1))
    stopped.square.remove(stopped.child_id(job_id, 3))
    stopped.flow.cancel(job_id)
    sweeper.look()
    assert state(stopped.store, stopped.child_id(job_id, 1)) == "completed"
    assert state(stopped.store, stopped.child_id(job_id, 2)) == "cancelled"
    assert stopped.store.flow_sweep_work(0) == []
    assert stopped.flow.child_results(job_id).counts == ChildCounts(3, 0, 0, 3)


def test_a_child_that_came_behind_its_cancel_is_cancelled_all_the_same(
    stopped: Family, clock: FakeClock
) -> None:
    """Whoever enqueued it died before it could see that the parent had been cancelled."""
    job_id = fan_out(stopped, 1, 2)
    _, _, sweeper = duties(stopped.app, stopped.store)
    handed_out = stopped.store.next_children(job_id)
    stopped.flow.cancel(job_id)
    sweeper.look()
    enqueue_children(stopped.app, handed_out)
    sweeper.look()
    assert state(stopped.store, stopped.child_id(job_id, 1)) == "waiting"
    clock.advance(AGE_MS)
    sweeper.look()
    for number in (1, 2):
        assert state(stopped.store, stopped.child_id(job_id, number)) == "cancelled"
    assert stopped.store.flow_sweep_work(0) == []


def test_the_cancel_of_a_child_that_never_comes_is_done_with(
    stopped: Family, clock: FakeClock
) -> None:
    """After a full interval, in which somebody might have enqueued it."""
    job_id = fan_out(stopped, 1, 2)
    _, _, sweeper = duties(stopped.app, stopped.store)
    stopped.flow.cancel(job_id)
    sweeper.look()
    assert stopped.store.keys.owed(job_id) in snapshot(stopped.store)
    clock.advance(AGE_MS)
    sweeper.look()
    assert stopped.store.keys.owed(job_id) not in snapshot(stopped.store)
    assert stopped.flow.child_results(job_id).counts == ChildCounts(2, 0, 0, 2)
    assert sum(stopped.store.counts().values()) == 1


@pytest.fixture
def two_stores(clock: FakeClock) -> Iterator[Family]:
    """A flow in memory whose children live in a store of their own."""
    other = Store("memory://", prefix="other", clock=clock)
    app = mq.App("memory://", clock=clock, stores={"other": other})
    yield make_family(app, child_store="other")
    app.close()


def counted(monkeypatch: pytest.MonkeyPatch, store: Store) -> Counter[str]:
    """How often each script of a store is called from now on."""
    calls: Counter[str] = Counter()
    call = store._caller._call_once

    def count(name: str, args: Any) -> Any:
        calls[name] += 1
        return call(name, args)

    monkeypatch.setattr(store._caller, "_call_once", count)
    return calls


def test_a_sweep_takes_a_few_calls_for_many_rows(
    two_stores: Family, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Children are enqueued, looked up and cancelled in batches; one that runs costs no read."""
    home, other = two_stores.store, two_stores.app.store_named("other")
    job_id = fan_out(two_stores, *range(SWEEP_ROWS))
    _, _, sweeper = duties(two_stores.app, home)
    at_home, there = counted(monkeypatch, home), counted(monkeypatch, other)
    clock.advance(AGE_MS)
    sweeper.look()
    assert other.counts()[JobState.WAITING] == SWEEP_ROWS
    # A last look for work finds none; a batch of states, and of jobs, is one call.
    assert at_home == {"flow_sweep_work": 2, "next_children": 1, "get": 1}
    assert there == {"peek_outbox": 1, "enqueue": 1, "counts": 1, "get": 1}
    two_stores.flow.cancel(job_id)
    at_home.clear()
    there.clear()
    sweeper.look()
    assert other.counts()[JobState.CANCELLED] == SWEEP_ROWS
    assert at_home == {"flow_sweep_work": 2, "mark_children_delivered": 1}
    assert there == {"cancel_request": SWEEP_ROWS // STEER_BATCH, "counts": 1}


def test_a_store_that_is_away_holds_up_its_own_children_alone(
    two_stores: Family,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    lines: Callable[..., list[str]],
) -> None:
    """It is asked once a look; what it is owed comes again after an interval."""
    home, other = two_stores.store, two_stores.app.store_named("other")
    near = make_local(two_stores.app)
    many = fan_out(two_stores, *range(SWEEP_ROWS + 5))
    few = fan_out_of(home, near, "near")
    starter, _, sweeper = duties(two_stores.app, home)
    for parent in (many, few):
        starter.start_children(parent)
    starter.look()
    with monkeypatch.context() as while_away:
        asked: list[int] = []

        def away(*given: Any) -> Any:
            asked.append(1)
            raise mq.StoreError("away")

        while_away.setattr(other, "steer", away)
        for parent in (many, few):
            home.cancel(parent)
        sweeper.look()
        assert len(asked) == 1
    assert state(home, f"flow/default/{few}/near") == "cancelled"
    assert other.counts()[JobState.WAITING] == SWEEP_ROWS + 5
    assert len([line for line in lines() if "away" in line]) == 1
    clock.advance(AGE_MS)
    sweeper.look()
    assert other.counts()[JobState.CANCELLED] == SWEEP_ROWS + 5
    assert home.flow_sweep_work(0) == []


def test_reports_to_a_store_that_is_away_hold_up_no_others(
    two_stores: Family, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    """It is asked once a look, however many wait for it, and behind all others."""
    home, other = two_stores.store, two_stores.app.store_named("other")
    asked: list[str] = []

    def away(reports: Any) -> Any:
        asked.append("other")
        raise mq.StoreError("away")

    record_there = home.record_child_results
    for at in range(3 * OUTBOX_PAGE):
        lost = manifests.ParentRef(1, "other", "p", f"{at}").encode()
        home.enqueue(Request(name="c", queue="default", payload=b"", id=f"c{at}", parent=lost))
        home.cancel(f"c{at}")
    near = fan_out_of(home, make_local(two_stores.app), "near")
    starter, relay, _ = duties(two_stores.app, home)
    starter.start_children(near)
    starter.look()
    home.cancel(f"flow/default/{near}/near")
    monkeypatch.setattr(other, "record_child_results", away)

    def here(reports: Any) -> Any:
        asked.append("home")
        return record_there(reports)

    monkeypatch.setattr(home, "record_child_results", here)
    relay.look()
    assert asked == ["other", "home"]
    assert state(home, near) == "waiting"
    home.enqueue(Request(name="late", queue="default", payload=b"", id="late", parent=lost))
    home.cancel("late")
    asked.clear()
    relay.look()
    assert asked == ["other"]
    assert len(home.peek_outbox(500)) == 3 * OUTBOX_PAGE + 1


def test_children_of_a_store_that_is_away_hold_up_no_others(
    two_stores: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One parent is tried a look, behind those whose children can be enqueued."""
    home, other = two_stores.store, two_stores.app.store_named("other")
    waiting = [fan_out(two_stores, number) for number in range(4)]
    near = fan_out_of(home, make_local(two_stores.app), "near")
    starter, _, _ = duties(two_stores.app, home)
    asked: list[int] = []

    def away(requests: Any) -> Any:
        asked.append(1)
        raise mq.StoreError("away")

    with monkeypatch.context() as while_away:
        while_away.setattr(other, "enqueue_many", away)
        for parent in (*waiting, near):
            starter.start_children(parent)
        with pytest.raises(mq.StoreError):
            starter.look()
        assert len(asked) == 2
        assert state(home, f"flow/default/{near}/near") == "waiting"
        with pytest.raises(mq.StoreError):
            starter.look()
        assert len(asked) <= 4
    starter.look()
    assert other.counts()[JobState.WAITING] == 4


def test_a_child_that_retention_took_before_it_was_noted_does_not_run_again(
    stopped: Family, clock: FakeClock
) -> None:
    """Its report is in the outbox, and stands for it."""
    job_id = fan_out(stopped, 1)
    row = stopped.store.get_child_row(job_id, "1")
    request = manifests.decode_row("1", row or b"").request
    stopped.store.enqueue(attrs.evolve(request, keep=encode_keep(mq.Keep(count=0))))
    run_child(stopped, stopped.child_id(job_id, 1))
    assert stopped.store.get_job(stopped.child_id(job_id, 1)) is None
    clock.advance(AGE_MS)
    _, _, sweeper = duties(stopped.app, stopped.store)
    sweeper.look()
    assert stopped.store.get_job(stopped.child_id(job_id, 1)) is None
    (child,) = stopped.flow.child_results(job_id).all()
    assert (child.outcome, child.value) == ("completed", 7)


def test_results_of_several_definitions_are_two_reads_a_page(
    app: mq.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many children there are."""
    kinds = [app.define(name, payload=int, result=int) for name in ("one", "two")]
    parent = app.define("both", payload=int, result=int)
    flow = app.flow("mixed", parent=parent, children=kinds)
    job_id = parent.enqueue(1)
    (claimed,) = app.store.claim(["default"], ["both"], TOKEN, 1_000).jobs
    children = [kinds[at % 2].child(f"{at:03}", at) for at in range(150)]
    app.store.write_manifest(job_id, TOKEN, manifests.manifest_of(flow, claimed, children), "fail")
    app.store.ack_fanned_out(job_id, TOKEN)
    exit_ = kinds[0].exit_codec.encode_success(5, 100)
    app.store.record_child_results(
        [ChildReport(job_id, child.key, "completed", exit_) for child in children]
    )
    results = flow.child_results(job_id)
    calls: list[str] = []
    repeat = app.store._caller.repeat

    def counted_repeat(operation: Any) -> Any:
        calls.append("call")
        return repeat(operation)

    monkeypatch.setattr(app.store._caller, "repeat", counted_repeat)
    assert [child.value for child in results.all()] == [5] * 150
    assert len(calls) == 4


@pytest.mark.parametrize("broken", ["row", "store", "id", "request"])
@pytest.mark.parametrize("cancelled", [True, False])
def test_a_row_that_cannot_be_read_holds_up_no_other(
    stopped: Family,
    clock: FakeClock,
    lines: Callable[..., list[str]],
    broken: str,
    cancelled: bool,
) -> None:
    """Garbage, a store that nobody knows, a request that no store takes: each is told of."""
    job_id = fan_out(stopped, 1, 2, 3)
    store, fields = codec.unpack_plain(stopped.store.get_child_row(job_id, "2") or b"", "row")
    row = {
        "row": b"garbage",
        "store": codec.pack_plain(["nowhere", fields]),
        "id": codec.pack_plain([store, {**fields, "id": None}]),
        "request": codec.pack_plain([store, {**fields, "metadata": 5}]),
    }[broken]
    stopped.store._caller.client.execute_command("HSET", stopped.store.keys.rows(job_id), "2", row)
    starter, _, sweeper = duties(stopped.app, stopped.store)
    if cancelled:
        for number in (1, 3):
            stopped.store.enqueue(
                manifests.decode_row("", stopped.store.get_child_row(job_id, f"{number}")).request
            )
        stopped.flow.cancel(job_id)
    else:
        starter.start_children(job_id)
        starter.look()
        clock.advance(AGE_MS)
    sweeper.look()
    for number in (1, 3):
        found = state(stopped.store, stopped.child_id(job_id, number))
        assert found == ("cancelled" if cancelled else "waiting")
    told = [line for line in lines(logging.WARNING) if "child 2 of" in line]
    # A cancel needs no more of a request than its id.
    assert len(told) == (0 if broken == "request" and cancelled else 1)


def test_children_enqueued_while_their_parent_was_cancelled_are_cancelled(
    stopped: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep came with the cancel before they were there."""
    job_id = fan_out(stopped, 1, 2)
    starter, _, sweeper = duties(stopped.app, stopped.store)
    hand_out = stopped.store.next_children

    def cancel_meanwhile(*given: Any) -> Any:
        rows = hand_out(*given)
        if rows:
            stopped.flow.cancel(job_id)
            sweeper.look()
        return rows

    monkeypatch.setattr(stopped.store, "next_children", cancel_meanwhile)
    starter.start_children(job_id)
    starter.look()
    assert stopped.store.counts()[JobState.CANCELLED] == 3
    assert stopped.store.counts()[JobState.WAITING] == 0


def test_a_report_that_cannot_be_carried_holds_up_no_other(
    stopped: Family, lines: Callable[..., list[str]]
) -> None:
    """A store that this app does not know is complained of once; a broken reference is dropped."""
    job_id = fan_out(stopped, 1)
    starter, relay, _ = duties(stopped.app, stopped.store)
    starter.start_children(job_id)
    starter.look()
    for at, parent in enumerate(("1\nelsewhere\np\nk\n", "no reference")):
        request = attrs.evolve(stopped.square.request(1), id=f"lost-{at}", parent=parent)
        stopped.store.enqueue(request)
        stopped.store.cancel(f"lost-{at}")
    run_child(stopped, stopped.child_id(job_id, 1))
    for _ in range(2):
        relay.look()
    assert [one.child for one in stopped.store.peek_outbox()] == ["lost-0"]
    assert state(stopped.store, job_id) == "waiting"
    assert len([line for line in lines() if "elsewhere" in line]) == 1


def test_the_report_of_a_nested_parent_is_carried_with_that_of_its_child(
    stopped: Family,
) -> None:
    """A parent that a report fails is itself a child, and its own report comes behind."""
    above = fan_out(stopped, 1)
    child = stopped.child_id(above, 1)
    stopped.flow.on_child_failure = "fail"
    starter, relay, _ = duties(stopped.app, stopped.store)
    starter.start_children(above)
    starter.look()
    (claimed,) = stopped.store.claim(["default"], ["square"], "nested", 1_000).jobs
    assert claimed.id == child
    rows = manifests.manifest_of(stopped.flow, claimed, [stopped.square.child("x", 1)])
    stopped.store.write_manifest(child, "nested", rows, "fail")
    stopped.store.ack_fanned_out(child, "nested")
    starter.start_children(child)
    starter.look()
    run_child(stopped, stopped.child_id(child, "x"), "ack_failed")
    relay.look()
    assert (state(stopped.store, child), state(stopped.store, above)) == ("failed", "waiting")
    (found,) = stopped.flow.child_results(above).all()
    assert isinstance(found.exit, codec.Defect)
    assert (found.exit.kind, found.exit.message) == ("store", "child x failed")


# Processes that are killed


@pytest.mark.parametrize("step", ["start", "carry", "child"])
def test_a_flow_goes_on_when_its_worker_is_killed_between_two_steps(
    one_server: Server, proc: Processes, step: str
) -> None:
    """Before its children are started, before a report is carried, in a child."""
    app = mq.App(one_server.url)
    total = define(app).parent
    env = {"MQ_URL": one_server.url, "DIE_AT": step}
    flags = ("--concurrency=1", "--lock-duration=1s")
    job_id = total.enqueue(4)
    first = proc.python("-m", "mq", "worker", "flow_jobs:app", *flags, env=env, cwd=HERE)
    assert first.wait() == -signal.SIGKILL
    assert state(app.store, job_id) == "waiting-children"
    with worker_of(app, **BRISK):
        assert total.await_result(job_id, timeout=40) == 0 + 1 + 4 + 9
    assert outcomes(app.store, job_id) == ["fanned-out", "completed"]
    app.close()


def test_a_child_that_kills_its_workers_does_not_hold_its_parent_for_ever(
    one_server: Server, proc: Processes
) -> None:
    """It is failed by the stall limit, and its parent resumes and counts it."""
    app = mq.App(one_server.url)
    total = define(app).parent
    env = {"MQ_URL": one_server.url, "DIE_AT": "child"}
    flags = ("--concurrency=1", "--lock-duration=1s", "--max-stalled-count=0")
    job_id = total.enqueue(1)
    first = proc.python("-m", "mq", "worker", "flow_jobs:app", *flags, env=env, cwd=HERE)
    assert first.wait() == -signal.SIGKILL
    with worker_of(app, max_stalled_count=0, **BRISK):
        assert total.await_result(job_id, timeout=40) == 0
    child = f"flow/default/{job_id}/0"
    assert (state(app.store, child), outcomes(app.store, child)) == ("failed", ["stalled"])
    assert total.flow is not None
    results = total.flow.child_results(job_id)
    assert results.counts == ChildCounts(1, 0, 1, 0)
    (crashed,) = results.all()
    assert isinstance(crashed.exit, codec.Defect)
    assert (crashed.exit.kind, crashed.exit.message) == ("store", "stalls: 1, allowed: 0")
    app.close()


def test_no_dependency_is_missed_that_finishes_at_once(app: mq.App) -> None:
    """Many small flows by several workers: each settles once, no child runs twice."""
    runs: list[int] = []
    total = app.define("total", payload=int, result=int)

    @app.job("noop")
    def noop(number: int) -> int:
        runs.append(number)
        return number

    flow = app.flow("noops", parent=total, children=[noop])
    flow.fan_out(lambda number: [noop.child("a", 2 * number), noop.child("b", 2 * number + 1)])
    flow.collect(lambda number, results: results.counts.completed)
    with worker_of(app, concurrency=8, **BRISK), worker_of(app, concurrency=8, **BRISK):
        ids = total.enqueue_many(range(300))
        assert [flow.await_result(job_id, timeout=60) for job_id in ids] == [2] * 300
    assert sorted(runs) == list(range(600))
    assert {tuple(outcomes(app.store, job_id)) for job_id in ids} == {("fanned-out", "completed")}
    assert app.store.peek_outbox() == []
