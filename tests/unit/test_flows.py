"""Flows as they are defined: rows, references, child ids, and what is refused."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import attrs
import pytest

import mq
from mq import manifests
from mq.errors import FlowError
from mq.flows import ChildOutcome
from mq.manifests import ParentRef
from mq.records import RECORD_FIELDS, Child, JobRecord, Request
from mq.store.families import ChildRow


@pytest.fixture
def app() -> Iterator[mq.App]:
    """An app in memory."""
    made = mq.App("memory://")
    yield made
    made.close()


def make_flow(app: mq.App, **options: Any) -> mq.Flow[int, int]:
    """A flow over `part` jobs."""
    parent = app.define("whole", payload=int, result=int)
    part = app.define("part", payload=int, result=int)
    return app.flow("sum", parent=parent, children=[part], **options)


def parent_record(job_id: str = "p", parent: str = "") -> JobRecord:
    """A parent as a claim hands it out."""
    extra = [b"parent", parent.encode()] if parent else []
    return JobRecord(job_id, [None] * len(RECORD_FIELDS), b"", extra)


def part(app: mq.App, key: str, payload: int = 1, **options: Any) -> Child:
    """A child of the flow."""
    return app.jobs["part"].child(key, payload, **options)


def requests(rows: list[ChildRow]) -> list[Request]:
    """The requests that stand in rows."""
    return [manifests.decode_row(row.key, row.row).request for row in rows]


# References and rows


@pytest.mark.parametrize(
    "ref", [ParentRef(1, "default", "p", "k"), ParentRef(8, "a.b", "a/b:c d", "é{x}\u2028")]
)
def test_a_reference_comes_back_as_it_was(ref: ParentRef) -> None:
    """Whatever an id or a key may hold."""
    assert ParentRef.decode(ref.encode()) == ref


@pytest.mark.parametrize("text", ["", "1", "1\na\nb", "x\na\nb\nc", "1\na\nb\nc\nd"])
def test_a_reference_that_is_none_is_a_value_error(text: str) -> None:
    """The relay drops it."""
    with pytest.raises(ValueError):  # noqa: PT011 whichever way it is not one
        ParentRef.decode(text)


def test_a_row_holds_the_whole_request(app: mq.App) -> None:
    """Every option a child may have comes back from the manifest."""
    make_flow(app)
    child = part(
        app, "k", 7, queue="other", metadata={"a": "é"}, priority=-3, attempts=4,
        backoff=mq.fixed("2s"), timeout="1m", keep=mq.Keep(count=5), delay="9s",
    )  # fmt: skip
    with pytest.raises(ValueError, match="child 'k' has no id"):
        manifests.encode_row(child)
    child = attrs.evolve(child, request=attrs.evolve(child.request, id="c"))
    back = manifests.decode_row("k", manifests.encode_row(child))
    assert back == child
    assert set(attrs.asdict(back.request)) == set(attrs.fields_dict(Request))


def test_a_report_says_where_it_goes() -> None:
    """The store by name, the parent and the key."""
    store, report = manifests.report_of(ParentRef(2, "other", "p", "k").encode(), "failed", b"e")
    assert store == "other"
    assert (report.parent, report.key, report.outcome, report.exit) == ("p", "k", "failed", b"e")


# What a fan-out may return


def test_ids_of_children_follow_from_parent_and_key(app: mq.App) -> None:
    """So a child that is enqueued twice is one, and it knows its parent."""
    flow = make_flow(app)
    rows = manifests.manifest_of(flow, parent_record(), [part(app, "a"), part(app, "b")])
    assert [row.key for row in rows] == ["a", "b"]
    assert [one.id for one in requests(rows)] == ["flow/default/p/a", "flow/default/p/b"]
    assert manifests.manifest_of(flow, parent_record(), [part(app, "a"), part(app, "b")]) == rows
    assert ParentRef.decode(requests(rows)[1].parent) == ParentRef(1, "default", "p", "b", 0)


def test_a_child_of_a_child_stands_one_deeper(app: mq.App) -> None:
    """The depth is on the record, wherever the parent above lives."""
    above = ParentRef(3, "elsewhere", "above", "k").encode()
    rows = manifests.manifest_of(make_flow(app), parent_record(parent=above), [part(app, "a")])
    assert ParentRef.decode(requests(rows)[0].parent).depth == 4


@pytest.mark.parametrize(("depth", "refused"), [(7, False), (8, True)])
def test_too_deep_a_flow_is_refused(app: mq.App, depth: int, refused: bool) -> None:
    """Naming the child and what is allowed; one without children is not too deep."""
    flow = make_flow(app)
    record = parent_record(parent=ParentRef(depth, "default", "above", "k").encode())
    assert manifests.manifest_of(flow, record, []) == []
    if not refused:
        assert len(manifests.manifest_of(flow, record, [part(app, "a")])) == 1
        return
    with pytest.raises(FlowError, match=r"child 'a' of sum would stand 9 .* 8 are allowed"):
        manifests.manifest_of(flow, record, [part(app, "a")])


def test_two_children_of_one_key_are_refused(app: mq.App) -> None:
    """Naming the key."""
    flow = make_flow(app)
    with pytest.raises(FlowError, match="two children with key 'twice'"):
        manifests.manifest_of(flow, parent_record(), [part(app, "twice"), part(app, "twice", 2)])


@pytest.mark.parametrize("returned", [None, 5, "text", b"bytes", [1], ["a"], [None]])
def test_what_is_no_list_of_children_is_refused(app: mq.App, returned: object) -> None:
    """Saying what to do instead."""
    with pytest.raises(FlowError, match=r"return a list|definition\.child"):
        manifests.manifest_of(make_flow(app), parent_record(), returned)


def test_a_child_of_another_definition_is_refused(app: mq.App) -> None:
    """The flow could not decode what it returns."""
    flow = make_flow(app)
    stranger: mq.Job[int, None] = app.define("stranger", payload=int)
    with pytest.raises(FlowError, match="'stranger' child"):
        manifests.manifest_of(flow, parent_record(), [stranger.child("a", 1)])


def test_an_id_that_would_be_too_long_is_refused(app: mq.App) -> None:
    """Before anything is written."""
    with pytest.raises(FlowError, match="longer than 512 bytes"):
        manifests.manifest_of(make_flow(app), parent_record("p" * 400), [part(app, "k" * 200)])


@pytest.mark.parametrize("options", [{"job_id": "a"}, {"dedupe": "a"}])
def test_a_child_takes_neither_id_nor_dedup_key(app: mq.App, options: dict[str, Any]) -> None:
    """Its id follows from parent and key."""
    make_flow(app)
    with pytest.raises(TypeError, match="its id follows from parent and key"):
        part(app, "k", **options)


@pytest.mark.parametrize("key", ["", "a\nb", "k" * 257, 5, None])
def test_a_key_that_cannot_be_is_refused(app: mq.App, key: Any) -> None:
    """Where the child is made."""
    make_flow(app)
    with pytest.raises((ValueError, TypeError), match="child key"):
        part(app, key)


def test_a_child_ignores_the_keys_of_its_definition(app: mq.App) -> None:
    """An idempotency key and a dedup key are for jobs that stand alone."""
    made: mq.Job[int, None] = app.define(
        "keyed", payload=int, idempotency_key=lambda p: f"id-{p}", dedupe=lambda p: f"dedup-{p}"
    )
    request = made.child("k", 1).request
    assert (request.id, request.dedupe) == (None, None)


# Defining a flow


def test_a_mode_that_is_none_is_refused(app: mq.App) -> None:
    """Naming the two there are."""
    with pytest.raises(mq.DefinitionError, match="'continue' or 'fail'"):
        make_flow(app, on_child_failure="stop")


def test_a_parent_has_one_flow_and_no_handler(app: mq.App) -> None:
    """Its handlers are those of the flow."""
    flow = make_flow(app)
    with pytest.raises(mq.DefinitionError, match="'whole' is the parent of flow 'sum' already"):
        app.flow("again", parent=flow.parent, children=[app.jobs["part"]])
    with pytest.raises(mq.DefinitionError, match="'whole' is the parent of flow 'sum'"):
        flow.parent.handler(lambda number: number)

    @app.job("plain")
    def plain(number: int) -> int:
        return number

    with pytest.raises(mq.DefinitionError, match=r"'plain' .* App\.define"):
        app.flow("other", parent=plain, children=[app.jobs["part"]])


def test_a_parent_runs_in_threads(app: mq.App) -> None:
    """A definition that asks for a process is told where its own two functions run."""
    parent = app.define("big", payload=int, result=int, executor="process")
    child = app.define("small", payload=int, result=int)
    with pytest.raises(mq.DefinitionError, match="'big' has executor='process'"):
        app.flow("f", parent=parent, children=[child])


def test_members_of_a_flow_are_definitions_of_its_app(app: mq.App) -> None:
    """What is none is named where the flow is declared; so is a name that is taken."""
    make_flow(app)
    parent, part = app.define("p", payload=int), app.jobs["part"]
    foreign = mq.App("memory://").define("part", payload=int)
    wrong: list[tuple[Any, Any, str]] = [
        (None, [part], "parent must be a definition, got None"),
        ("p", [part], "parent must be a definition, got 'p'"),
        (foreign, [part], "is a definition of another App"),
        (parent, None, "children must be a list of definitions, got None"),
        (parent, part, "children must be a list of definitions"),
        (parent, "part", "children must be a list of definitions, got 'part'"),
        (parent, [], "children must be a list of definitions"),
        (parent, ["part"], "each of children must be a definition, got 'part'"),
        (parent, [part, foreign], "is a definition of another App"),
    ]
    for of, children, message in wrong:
        with pytest.raises(mq.DefinitionError, match=f"flow 'f': .*{re.escape(message)}"):
            app.flow("f", parent=of, children=children)
    with pytest.raises(mq.DefinitionError, match="a flow 'sum' is declared already"):
        app.flow("sum", parent=parent, children=[part])
    assert parent.flow is None


def test_a_key_with_a_slash_is_told_apart_from_the_id_of_a_parent(app: mq.App) -> None:
    """So no two children of two parents come to one id, whatever stands in both."""
    flow = make_flow(app)

    def child_id(parent: str, key: str) -> str | None:
        (row,) = manifests.manifest_of(flow, parent_record(parent), [part(app, key)])
        return requests([row])[0].id

    assert child_id("shop", "2026/11") == "flow/default/shop/2026%2F11"
    assert child_id("shop/2026", "11") == "flow/default/shop/2026/11"
    assert child_id("shop", "2026%2F11") == "flow/default/shop/2026%252F11"


def test_handlers_of_the_wrong_shape_are_refused(app: mq.App) -> None:
    """When they are decorated, not when they run."""
    flow = make_flow(app)

    async def late(number: int) -> list[Child]:
        return []

    async def lazy(number: int) -> AsyncIterator[Child]:
        yield part(app, "a")

    wrong: list[Any] = [lambda: None, late, lazy, lambda number, ctx, more: []]
    for function in wrong:
        with pytest.raises(mq.DefinitionError, match="fan_out of sum"):
            flow.fan_out(function)
    with pytest.raises(mq.DefinitionError, match="collect of sum"):
        flow.collect(lambda number: 1)
    flow.fan_out(lambda number: [])
    flow.collect(lambda number, results: 1)
    with pytest.raises(mq.DefinitionError, match="'sum' has a fan_out already"):
        flow.fan_out(lambda number: [])
    with pytest.raises(mq.DefinitionError, match="'sum' has a collect already"):
        flow.collect(lambda number, results: 1)


def test_a_flow_without_handlers_is_left_to_other_workers(app: mq.App) -> None:
    """A producer may define it and no more."""
    assert not make_flow(app).complete
    with pytest.raises(mq.DefinitionError, match="nothing to run"):
        mq.Worker(app)


def test_half_a_flow_is_refused_by_a_worker(app: mq.App) -> None:
    """Its jobs would wait for ever: what is missing is named."""
    make_flow(app).fan_out(lambda number: [])
    with pytest.raises(mq.DefinitionError, match="flow 'sum' of job 'whole' has no collect here"):
        mq.Worker(app)
    other = mq.App("memory://")
    make_flow(other).collect(lambda number, results: 1)
    with pytest.raises(mq.DefinitionError, match="flow 'sum' of job 'whole' has no fan_out here"):
        mq.Worker(other)


def test_the_verbs_of_a_flow_are_those_of_its_parent(app: mq.App) -> None:
    """Each by its own name."""
    flow = make_flow(app)
    job_id = flow.enqueue(1, priority=3)
    status = flow.poll(job_id)
    assert status is not None
    assert status.state == "waiting"
    assert flow.cancel(job_id) == "cancelled"
    with pytest.raises(mq.JobNotRetryableError):
        flow.retry(job_id)
    with pytest.raises(mq.JobCancelledError):
        flow.await_result(job_id, timeout=1)
    with pytest.raises(mq.AwaitTimeoutError):
        flow.execute(2, wait=0)
    flow.schedule("daily", every="1d", payload=1)
    assert flow.unschedule("daily")


def test_results_of_a_job_without_children_are_empty(app: mq.App) -> None:
    """Of one that has not fanned out; an id that does not exist has none to tell of."""
    flow = make_flow(app)
    results = flow.child_results(flow.enqueue(1))
    assert results.all() == []
    assert (results.counts.total, results.counts.pending) == (0, 0)
    for page in (0, -1, 501):
        with pytest.raises(ValueError, match=f"page must be 1 to 500, got {page}"):
            results.iter(page=page)
    with pytest.raises(mq.JobNotFoundError, match="'no-such-job'"):
        flow.child_results("no-such-job")


def test_a_child_that_did_not_complete_has_no_value() -> None:
    """It has an outcome all the same."""
    assert ChildOutcome("k", "cancelled", None).value is None


def test_children_of_several_definitions_are_decoded_by_their_own(app: mq.App) -> None:
    """Each exit by the types of the job that made it."""
    whole = app.define("whole", payload=int, result=str)

    @app.job("number")
    def number(payload: int) -> int:
        return payload

    @app.job("pair")
    def pair(payload: int) -> tuple[int, str]:
        return (payload, "é")

    flow = app.flow("mixed", parent=whole, children=[number, pair])
    flow.fan_out(lambda payload: [number.child("a", 1), pair.child("b", 2)])
    flow.collect(lambda payload, results: repr([one.value for one in results.all()]))
    job_id = flow.enqueue(1)
    assert mq.Worker(app, burst=True).run() == 0
    assert flow.await_result(job_id, timeout=1) == "[1, (2, 'é')]"
