"""Records, as scripts reply them and as Python reads them."""

from __future__ import annotations

import pytest

from mq.records import RECORD_FIELDS, Enqueued, JobRecord, Request
from mq.scripts import script_folder
from mq.states import JobState
from mq.store import Store
from mq.wire import extra_fields


def _record(**fields: str) -> JobRecord:
    values = [fields.get(name, "").encode() for name in RECORD_FIELDS]
    return JobRecord("an-id", values, b"payload", [])


def test_the_fields_are_those_that_the_scripts_reply_in_their_order() -> None:
    """Python reads them by position, so both lists must be one."""
    folder = script_folder() / "fragments"
    text = (folder / "keys.lua").read_text() + (folder / "job.lua").read_text()
    text += (folder / "record.lua").read_text() + "\nreturn JOB_FIELDS"
    store = Store("memory://")
    reply = store._caller.client.eval(text, 1, store.keys.meta())
    store.close()
    assert tuple(bytes(name).decode() for name in reply) == RECORD_FIELDS


def test_what_is_absent_is_the_default_its_absence_means() -> None:
    """A plain job has few fields."""
    record = _record(state="waiting", queue="q", name="n", seq="1", enqueued_at="5")
    assert record.state is JobState.WAITING
    assert (record.priority, record.attempts_max, record.attempts_made) == (0, 1, 0)
    assert (record.stalled_count, record.runs, record.cancel_requested) == (0, 0, False)
    assert (record.backoff, record.timeout_ms, record.metadata, record.trace) == ("", None, {}, "")
    assert (record.processed_at, record.finished_at) == (None, None)
    assert (record.token, record.worker, record.error, record.failed_reason) == (None,) * 4
    assert record.progress is None
    assert record.run_at == 5


def test_zero_is_a_value_and_not_an_absence() -> None:
    """Instants and limits of 0 are read as 0."""
    record = _record(
        enqueued_at="5", run_at="0", processed_at="0", finished_at="0", timeout_ms="0",
        attempts_max="0",
    )  # fmt: skip
    assert (record.run_at, record.processed_at, record.finished_at) == (0, 0, 0)
    assert (record.timeout_ms, record.attempts_max) == (0, 0)


def test_the_extra_hash_keeps_pairs_and_reserved_fields_apart() -> None:
    """A metadata key may be called trace."""
    request = Request(
        name="n", queue="q", payload=b"", metadata={"trace": "m", "progress": ""}, trace="00-ab"
    )
    flat = [text.encode() for text in extra_fields(request)]
    record = JobRecord("i", [b""] * len(RECORD_FIELDS), b"", [*flat, b"progress", b"\xff"])
    assert record.metadata == {"trace": "m", "progress": ""}
    assert record.trace == "00-ab"
    assert record.progress == b"\xff"


@pytest.mark.parametrize("long", [False, True])
def test_a_policy_is_read_where_it_stands(long: bool) -> None:
    """On the record while it is short; else an empty field there leads to the extra hash."""
    policy = "completed=*/1000 failed=5/*" * (9 if long else 1)
    values = [b""] * len(RECORD_FIELDS)
    values[RECORD_FIELDS.index("keep")] = b"" if long else policy.encode()
    extra = [b"keep", policy.encode()] if long else []
    assert JobRecord("i", values, b"", extra).keep == policy
    assert _record().keep == ""


def test_a_parent_and_its_child_are_told_by_their_marks() -> None:
    """Neither mark is on a plain job."""
    request = Request(name="n", queue="q", payload=b"", parent="1\ndefault\np\nkey")
    flat = [text.encode() for text in extra_fields(request)]
    child = JobRecord("i", [b""] * len(RECORD_FIELDS), b"", flat)
    assert (child.parent, child.flow) == ("1\ndefault\np\nkey", None)
    assert _record(flow="collect").flow == "collect"
    assert (_record().parent, _record().flow) == ("", None)


def test_a_record_never_shows_its_payload() -> None:
    """It ends up in logs."""
    record = _record(state="active", name="n", token="secret-token")
    assert repr(record) == "<JobRecord an-id n active>"


def test_what_enqueue_answers_unpacks_as_id_and_duplicate() -> None:
    """The store's callable form."""
    job_id, duplicate = Enqueued("i", True, "n")
    assert (job_id, duplicate) == ("i", True)


@pytest.mark.parametrize("field", ["id", "payload", "exit"])
def test_bodies_are_kept_as_bytes(field: str) -> None:
    """Nothing here looks into them."""
    record = JobRecord("i", [b""] * len(RECORD_FIELDS), b"\x00\xff", [], b"\xff")
    assert getattr(record, field) in {"i", b"\x00\xff", b"\xff"}
