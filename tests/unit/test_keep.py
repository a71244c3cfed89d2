"""Retention policies: what they say, how they stand on the record, and what is refused where."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import mq
from mq.durations import MAX_DELAY_MS
from mq.errors import DefinitionError
from mq.policies import MAX_KEPT, Keep, encode_keep
from mq.records import JobRecord


@pytest.fixture
def app() -> Iterator[mq.App]:
    """An app in memory."""
    made = mq.App("memory://")
    yield made
    made.close()


def stored(job: mq.Job[Any, Any], job_id: str) -> JobRecord:
    """The record of a job that exists."""
    found = job.get_job(job_id)
    assert found is not None
    return found.record


@pytest.mark.parametrize(
    ("keep", "rule"),
    [
        (Keep(count=0), "0/*"),
        (Keep(count=1_000), "1000/*"),
        (Keep(count=MAX_KEPT), f"{MAX_KEPT}/*"),
        (Keep(age=0), "*/0"),
        (Keep(age="1h"), "*/3600000"),
        (Keep(age=timedelta(days=2)), "*/172800000"),
        (Keep(age=0.001), "*/1"),
        (Keep(count=3, age=1.5), "3/1500"),
    ],
)
def test_one_policy_stands_for_every_finished_state(keep: Keep, rule: str) -> None:
    """0 is a rule like any other, and what is not given is a star."""
    assert encode_keep(keep) == f"*={rule}"
    each = dict.fromkeys(("failed", "cancelled", "completed"), keep)
    assert encode_keep(each) == f"*={rule}"


def test_a_policy_may_be_split_by_state() -> None:
    """In the order of the states, not of the dict; a state without one is left out."""
    split = {"failed": Keep(age="7d"), "completed": Keep(count=0)}
    assert encode_keep(split) == "completed=0/* failed=*/604800000"
    assert encode_keep(None) == ""


@pytest.mark.parametrize(
    "given",
    [
        {"count": -1},
        {"count": MAX_KEPT + 1},
        {"age": -1},
        {"age": "-1h"},
        {"age": "soon"},
        {"age": ""},
        {"age": float("nan")},
        {"age": float("inf")},
        {"count": 1, "age": "soon"},
    ],
)
def test_a_value_that_cannot_work_is_refused(given: dict[str, Any]) -> None:
    """Where it is written, by the name of the rule."""
    with pytest.raises(ValueError, match=r"keep (count|age)"):
        Keep(**given)


@pytest.mark.parametrize("given", [{"count": True}, {"count": 1.5}, {"count": "9"}, {"age": True}])
def test_a_value_of_another_type_is_refused(given: dict[str, Any]) -> None:
    """A bool is no number here."""
    with pytest.raises(TypeError, match=r"keep (count|age)"):
        Keep(**given)


def test_a_policy_that_says_nothing_is_refused() -> None:
    """For ever is no policy."""
    with pytest.raises(ValueError, match="leave it out to keep jobs for ever"):
        Keep()


def test_a_policy_takes_no_positions() -> None:
    """A bare number could be a count or an age."""
    with pytest.raises(TypeError):
        Keep(5)  # type: ignore[call-arg]


BAD: list[tuple[Any, str]] = [
    ("1h", "keep must be mq.Keep"),
    (5, "keep must be mq.Keep"),
    (True, "keep must be mq.Keep"),
    ({}, "keep is empty"),
    ({"done": Keep(count=1)}, "keep names 'done': use completed, failed, cancelled"),
    ({"waiting": Keep(count=1)}, "keep names 'waiting'"),
    ({"completed": 5}, "keep must be mq.Keep"),
    ({"completed": None}, "keep must be mq.Keep"),
]


@pytest.mark.parametrize(("keep", "said"), BAD)
def test_a_definition_refuses_what_is_no_policy(app: mq.App, keep: Any, said: str) -> None:
    """Naming the job."""
    with pytest.raises(DefinitionError, match=f"job 'note': {said}"):
        app.define("note", payload=str, keep=keep)
    assert "note" not in app.jobs


@pytest.mark.parametrize(("keep", "said"), BAD)
def test_an_enqueue_refuses_what_is_no_policy(app: mq.App, keep: Any, said: str) -> None:
    """Nothing is written, of one or of many."""
    job: mq.Job[str, None] = app.define("note", payload=str, result=None)
    with pytest.raises((ValueError, TypeError), match=said):
        job.enqueue("a", keep=keep)
    with pytest.raises((ValueError, TypeError), match=said):
        job.enqueue_many(["a", "b"], keep=keep)
    assert set(app.store.counts().values()) == {0}


def test_the_policy_of_a_definition_travels_with_its_jobs(app: mq.App) -> None:
    """An enqueue may bring its own, as a whole; without either there is none."""
    keep = Keep(count=100, age="1d")
    job: mq.Job[str, None] = app.define("note", payload=str, result=None, keep=keep)
    plain: mq.Job[str, None] = app.define("plain", payload=str, result=None)
    own = {"failed": Keep(age="30d")}
    assert stored(job, job.enqueue("a")).keep == encode_keep(keep)
    assert stored(job, job.enqueue("a", keep=own)).keep == encode_keep(own)
    assert [stored(job, job_id).keep for job_id in job.enqueue_many(["a", "b"])] == [
        encode_keep(keep)
    ] * 2
    (many,) = job.enqueue_many(["c"], keep=own)
    assert stored(job, many).keep == encode_keep(own)
    assert stored(plain, plain.enqueue("a")).keep == ""


def test_a_long_policy_is_read_back_whole(app: mq.App) -> None:
    """It stands beside the record, which stays compact."""
    keep = {state: Keep(count=MAX_KEPT, age=MAX_DELAY_MS // 1000 - at)
            for at, state in enumerate(("completed", "failed", "cancelled"))}  # fmt: skip
    job: mq.Job[str, None] = app.define("note", payload=str, result=None)
    assert len(encode_keep(keep)) > 64
    assert stored(job, job.enqueue("a", keep=keep)).keep == encode_keep(keep)
    short = Keep(age=0)
    assert len(encode_keep(short)) <= 64
    assert stored(job, job.enqueue("a", keep=short)).keep == encode_keep(short)


def test_a_replace_brings_its_policy(app: mq.App) -> None:
    """A short one over a long one, and none over any."""
    job: mq.Job[str, None] = app.define(
        "note", payload=str, result=None, dedupe=lambda _: mq.Dedupe("k", replace=True)
    )
    long = Keep(count=MAX_KEPT, age="100d")
    job_id = job.enqueue("a", delay="1h", keep=long)
    for keep in (long, Keep(age=1), None, long):
        assert job.enqueue("b", delay="1h", keep=keep) == job_id
        assert stored(job, job_id).keep == encode_keep(keep)
