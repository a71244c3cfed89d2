"""Definitions and the app: what is refused where it is written, and what an enqueue sends."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

import mq
from mq.clock import FakeClock
from mq.store import Store


@attrs.frozen
class Invoice:
    """A payload."""

    number: str
    cents: int = 0


@attrs.frozen
class Declined(Exception):
    """A declared error."""

    reason: str


@pytest.fixture
def app(clock: FakeClock) -> mq.App:
    """An app in memory, on a clock that stands still."""
    return mq.App("memory://", clock=clock)


def test_calling_a_job_calls_its_function(app: mq.App) -> None:
    """Without a store, and with whatever the function takes."""

    @app.job("double")
    def double(number: int) -> int:
        return 2 * number

    assert double(21) == 42
    assert (double.name, double.queue) == ("double", "default")


def test_the_name_is_that_of_the_function_when_it_is_left_out(app: mq.App) -> None:
    """With dashes, bare or called."""

    @app.job
    def send_invite(payload: str) -> None: ...

    @app.job(queue="mail")
    def send_letter(payload: str) -> None: ...

    assert set(app.jobs) == {"send-invite", "send-letter"}
    assert send_letter.queue == "mail"


def test_an_enqueue_carries_the_policies_of_its_definition_and_its_own(
    app: mq.App, clock: FakeClock
) -> None:
    """What the enqueue says wins; what neither says is the default."""
    job = app.define(
        "charge",
        payload=Invoice,
        attempts=5,
        backoff=mq.fixed("1s"),
        timeout="2m",
        queue="billing",
        metadata=lambda invoice: {"number": invoice.number, "kind": "own"},
    )
    job_id = job.enqueue(Invoice("A"), attempts=2, priority=7, metadata={"kind": "given"})
    record = app.store.get_job(job_id)
    assert record is not None
    assert (record.queue, record.attempts_max, record.priority) == ("billing", 2, 7)
    assert (record.backoff, record.timeout_ms) == (mq.fixed("1s").encode(), 120_000)
    assert record.metadata == {"number": "A", "kind": "given"}
    assert record.enqueued_at == record.run_at == clock.now_ms()
    plain = app.store.get_job(app.define("plain", payload=str).enqueue("x"))
    assert plain is not None
    assert (plain.attempts_max, plain.priority, plain.timeout_ms, plain.metadata) == (
        1,
        0,
        None,
        {},
    )


def test_an_id_that_exists_is_returned_and_nothing_is_enqueued(app: mq.App) -> None:
    """Explicit, or made of the payload; one of another name is a conflict."""
    job = app.define("job", payload=str)
    keyed = app.define("keyed", payload=Invoice, idempotency_key=lambda invoice: invoice.number)
    first = job.enqueue("x", job_id="an-id")
    again = job.enqueue("y", job_id="an-id")
    assert (first, first.duplicate, again, again.duplicate) == ("an-id", False, "an-id", True)
    assert keyed.enqueue(Invoice("A")) == "keyed/A"
    assert [
        i.duplicate for i in keyed.enqueue_many([Invoice("A"), Invoice("B"), Invoice("B")])
    ] == [
        True,
        False,
        True,
    ]
    with pytest.raises(mq.JobIdConflictError, match="job named 'job', not 'keyed'"):
        keyed.enqueue(Invoice("A"), job_id="an-id")


def test_a_conflict_among_many_tells_the_ids_of_the_others(app: mq.App) -> None:
    """They were taken in: a caller that catches the error knows what to wait for."""
    taken = app.define("other", payload=str).enqueue("x", job_id="keyed/B")
    keyed = app.define("keyed", payload=Invoice, idempotency_key=lambda invoice: invoice.number)
    told = r"id 'keyed/B' belongs to a job named 'other'.*; 2 of 3 items have their ids in \.ids"
    with pytest.raises(mq.JobIdConflictError, match=told) as caught:
        keyed.enqueue_many([Invoice("A"), Invoice("B"), Invoice("C")])
    assert caught.value.job_id == taken
    assert caught.value.ids == ["keyed/A", None, "keyed/C"]
    assert keyed.counts()[mq.JobState.WAITING] == 2


@pytest.mark.parametrize("key", [None, "", 5])
def test_a_key_that_is_no_text_is_refused(app: mq.App, key: Any) -> None:
    """It would make one id of all such payloads, and lose all jobs but the first."""
    job = app.define("job", payload=str, idempotency_key=lambda _: key)
    with pytest.raises(mq.PayloadError, match="idempotency_key gave"):
        job.enqueue("x")


# Dedup keys


def window(invoice: Invoice) -> mq.Dedupe:
    """A key for each number, with a window."""
    return mq.Dedupe(invoice.number, ttl="1h")


KEYS_OF: dict[str, tuple[Callable[[Invoice], Any], str | None]] = {
    "text": (lambda invoice: invoice.number, "A"),
    "a value": (window, "A"),
    "nothing": (lambda _: None, None),
}


def _key_of(app: mq.App, job_id: str) -> str | None:
    record = app.store.get_job(job_id)
    assert record is not None
    return record.dedupe_key


@pytest.mark.parametrize(("dedupe", "key"), KEYS_OF.values(), ids=KEYS_OF)
def test_a_definition_makes_the_key_of_the_payload(
    app: mq.App, dedupe: Callable[[Invoice], Any], key: str | None
) -> None:
    """Text for a plain key, a value for another mode, None for no deduplication."""
    job = app.define("charge", payload=Invoice, dedupe=dedupe)
    first, again, other = (job.enqueue(Invoice(number)) for number in ("A", "A", "B"))
    assert _key_of(app, first) == key
    assert (first.duplicate, again.duplicate, other.duplicate) == (False, key is not None, False)
    assert (again == first) is (key is not None)
    many = job.enqueue_many([Invoice("C"), Invoice("A"), Invoice("C")])
    assert [one.duplicate for one in many] == [False, key is not None, key is not None]
    assert (many[1] == first, many[2] == many[0]) == (key is not None,) * 2


def test_the_decorator_takes_a_function_for_the_key_as_well(app: mq.App) -> None:
    """As `define` does."""

    @app.job(dedupe=lambda payload: payload)
    def index(payload: str) -> None: ...

    assert index.enqueue("x") == index.enqueue("x")


@pytest.mark.parametrize(
    "given", ["given", mq.Dedupe("given", replace=True)], ids=["text", "value"]
)
def test_a_key_that_is_given_with_the_enqueue_wins(app: mq.App, given: mq.Dedupe | str) -> None:
    """The definition's function is not even asked."""

    def never(_: Invoice) -> str:
        raise AssertionError("asked all the same")

    job = app.define("charge", payload=Invoice, dedupe=never)
    first = job.enqueue(Invoice("A"), dedupe=given, delay="1m")
    again = job.enqueue(Invoice("B"), dedupe=given, delay="1m")
    assert (_key_of(app, first), again, again.duplicate) == ("given", first, True)
    found = job.get_job(first)
    assert found is not None
    assert found.payload == Invoice("A" if isinstance(given, str) else "B")


def test_a_window_runs_by_the_clock_of_the_store(app: mq.App, clock: FakeClock) -> None:
    """Over at its end itself, whether or not the job has run."""
    job = app.define("charge", payload=Invoice, dedupe=window)
    first = job.enqueue(Invoice("A"))
    assert job.cancel_by_key("A")
    clock.advance(3_599_999)
    assert job.enqueue(Invoice("A")) == first
    clock.advance(1)
    assert not job.enqueue(Invoice("A")).duplicate


def test_an_id_that_exists_is_told_before_the_key_is_looked_at(app: mq.App) -> None:
    """Explicit or made of the payload; the key goes to nobody."""
    job = app.define(
        "charge", payload=Invoice, idempotency_key=lambda i: i.number, dedupe=lambda i: str(i.cents)
    )
    first = job.enqueue(Invoice("A", 1))
    again = job.enqueue(Invoice("A", 2))
    assert (first, again, again.duplicate) == ("charge/A", first, True)
    other = job.enqueue(Invoice("B", 2))
    assert (other, other.duplicate) == ("charge/B", False)
    keyed = job.enqueue(Invoice("C", 1))
    assert (keyed, keyed.duplicate) == (first, True)
    assert job.enqueue(Invoice("D", 9), job_id="mine", dedupe="2") == other
    assert job.get_job("mine") is None


def test_cancel_by_key_reaches_the_job_of_its_own_definition(app: mq.App) -> None:
    """The same key of another name is another key; the second time there is none."""
    job = app.define("job", payload=str)
    other = app.define("other", payload=str)
    ids = [one.enqueue("x", dedupe="k") for one in (job, other)]
    assert job.cancel_by_key("k") is True
    assert job.cancel_by_key("k") is False
    assert app.store.get_states(ids) == [mq.JobState.CANCELLED, mq.JobState.WAITING]
    assert app.store.cancel_by_key("other", "k") is True
    assert not job.enqueue("x", dedupe="k").duplicate


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (5, TypeError, r"dedupe must be mq.Dedupe\(...\) or a key as text, got int"),
        (b"k", TypeError, "got bytes"),
        (False, TypeError, "got bool"),
        ("", ValueError, "dedup key must be 1 to 512 bytes"),
        ("a\nb", ValueError, "dedup key 'a.+' holds a control character"),
        ("x" * 513, ValueError, "dedup key must be at most 512 bytes"),
    ],
    ids=ascii,
)
def test_a_key_that_cannot_be_is_refused_where_it_is_given(
    app: mq.App, given: Any, error: type[Exception], says: str
) -> None:
    """With the enqueue, or by the function of the definition; nothing is sent."""
    plain = app.define("plain", payload=str)
    with pytest.raises(error, match=says) as refused:
        plain.enqueue("x", dedupe=given)
    assert len(str(refused.value).splitlines()) == 1
    made = app.define("made", payload=str, dedupe=lambda _: given)
    for enqueue in (made.enqueue, lambda payload: made.enqueue_many([payload])):
        with pytest.raises(mq.PayloadError, match=f"dedupe of job 'made'.*{says}") as refused:
            enqueue("x")
        assert len(str(refused.value).splitlines()) == 1
    assert sum(app.store.counts().values()) == 0


@pytest.mark.parametrize("key", [None, 5, b"k", "", "a\nb", mq.Dedupe("k")], ids=ascii)
def test_what_is_no_key_cancels_nothing(app: mq.App, key: Any) -> None:
    """Refused where it is given."""
    job = app.define("job", payload=str)
    with pytest.raises((TypeError, ValueError), match="dedup key"):
        job.cancel_by_key(key)


def test_what_the_function_of_a_key_raises_is_seen_as_it_is(app: mq.App) -> None:
    """A bug in it is not taken for a bad key: its own error, with its own traceback."""

    def broken(payload: str) -> str:
        return payload + 1  # type: ignore[operator] # the mistake

    job = app.define("job", payload=str, dedupe=broken)
    with pytest.raises(TypeError) as raised:
        job.enqueue("x")
    assert raised.traceback[-1].name == "broken"


# Metadata indexes


def test_metadata_keys_are_declared_with_the_first_enqueue(clock: FakeClock) -> None:
    """Those of the app and those of the definition, each once; the store keeps them."""
    app = mq.App("memory://", clock=clock, indexed_metadata=["customer", "region"])
    plain = app.define("plain", payload=str)
    more = app.define("more", payload=str, indexed_metadata=("order", "customer", "order"))

    @app.job(indexed_metadata=["shop"])
    def decorated(payload: str) -> None: ...

    assert plain.indexed_metadata == ("customer", "region")
    assert more.indexed_metadata == ("customer", "region", "order")
    assert decorated.indexed_metadata == ("customer", "region", "shop")
    assert app.store.index_states() == {}
    plain.enqueue("x", metadata={"customer": "c", "order": "o"})
    assert set(app.store.index_states()) == {"customer", "region"}
    more.enqueue_many(["x"], metadata={"order": "o"})
    assert set(app.store.index_states()) == {"customer", "region", "order"}
    assert [one.id for one in app.store.list(metadata={"customer": "c"}).items] == [
        one.id for one in plain.list().items
    ]


def test_a_job_without_metadata_keys_declares_none(app: mq.App) -> None:
    """It costs no call and leaves nothing in the store."""
    job = app.define("job", payload=str)
    assert job.indexed_metadata == ()
    job.enqueue("x", metadata={"customer": "c"})
    assert app.store.index_states() == {}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("customer", "must be a list of metadata keys, got 'customer'"),
        ({"customer"}, "must be a list of metadata keys"),
        (None, "must be a list of metadata keys, got None"),
        (5, "must be a list of metadata keys, got 5"),
        (["a b"], "indexed metadata key 'a b' must be 1 to 64"),
        ([""], "indexed metadata key"),
        ([5], "indexed metadata key must be text, got int"),
        (["k" * 65], "indexed metadata key"),
    ],
    ids=repr,
)
def test_metadata_keys_that_cannot_be_are_refused_where_they_are_written(
    app: mq.App, given: Any, says: str
) -> None:
    """By the app and by the definition, in one line."""
    with pytest.raises((TypeError, ValueError), match=says):
        mq.App("memory://", indexed_metadata=given)
    with pytest.raises(mq.DefinitionError, match=says) as refused:
        app.define("job", payload=str, indexed_metadata=given)
    assert len(str(refused.value).splitlines()) == 1
    assert "job" not in app.jobs


def test_when_a_job_runs_is_a_delay_or_an_instant_with_a_zone(
    app: mq.App, clock: FakeClock
) -> None:
    """Both, a naive one and a negative one are refused; a past one means now."""
    job = app.define("job", payload=str)
    now = clock.now_ms()
    at = datetime.fromtimestamp(now / 1000, UTC) + timedelta(hours=1)
    for options, expected in (
        ({"delay": "5m"}, now + 300_000),
        ({"delay": 0}, now),
        ({"at": at}, now + 3_600_000),
        ({"at": at - timedelta(days=2)}, now),
    ):
        record = app.store.get_job(job.enqueue("x", **options))
        assert record is not None
        assert record.run_at == expected
    with pytest.raises(TypeError, match="not both"):
        job.enqueue("x", delay=1, at=at)
    with pytest.raises(ValueError, match="zone"):
        job.enqueue("x", at=at.replace(tzinfo=None))
    with pytest.raises(ValueError, match="negative"):
        job.enqueue("x", delay=-1)


def test_nothing_is_sent_when_one_payload_of_many_is_bad(app: mq.App) -> None:
    """The item and the field are named."""
    job = app.define("job", payload=Invoice)
    with pytest.raises(mq.PayloadError, match=r"item 1 of enqueue_many, .* \$.cents: expected int"):
        job.enqueue_many([Invoice("A"), Invoice("B", cents="1"), Invoice("C")])  # type: ignore[arg-type] # the mistake
    assert sum(app.store.counts().values()) == 0
    for refused in ({"job_id": "x"}, {"dedupe": "x"}, {"dedupe": None}):
        with pytest.raises(TypeError, match=next(iter(refused))):
            job.enqueue_many([Invoice("A")], **refused)  # type: ignore[arg-type] # the mistake


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attempts": 0}, "attempts"),
        ({"attempts": True}, "attempts"),
        ({"priority": 1001}, "priority"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"backoff": "1s"}, "backoff"),
        ({"queue": "a b"}, "queue"),
        ({"queue": ""}, "queue"),
        ({"on_unresponsive": "kill"}, "on_unresponsive"),
        ({"executor": "greenlet"}, "executor"),
        ({"retryable": 1}, "retryable"),
        ({"idempotency_key": "x"}, "idempotency_key"),
        ({"metadata": {"a": "b"}}, "metadata"),
        ({"dedupe": "a-key"}, "dedupe must be a function, got 'a-key'"),
        ({"dedupe": mq.Dedupe("a-key")}, "dedupe must be a function, got Dedupe"),
        ({"store": "nowhere"}, "no store is named 'nowhere'"),
        ({"timeot": 1}, "'timeot' is not an option"),
        ({"error": int}, "error"),
        ({"payload": object()}, "payload"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_an_option_that_cannot_work_is_refused_at_definition(
    app: mq.App, options: dict[str, Any], says: str
) -> None:
    """In one line that names it."""
    with pytest.raises(mq.DefinitionError, match=says) as refused:
        app.define("job", **{"payload": str, **options})
    assert "\n" not in str(refused.value)
    assert "job" not in app.jobs


@pytest.mark.parametrize("name", ["", "a b", "sched", "flow", "n" * 65, "a:b"])
def test_a_name_that_cannot_be_is_refused(app: mq.App, name: str) -> None:
    """Characters, length, reserved words."""
    with pytest.raises(mq.DefinitionError, match="job name"):
        app.define(name, payload=str)


def test_two_of_one_name_and_two_handlers_are_refused(app: mq.App) -> None:
    """Which one would run?"""
    job = app.define("job", payload=str)
    with pytest.raises(mq.DefinitionError, match="defined twice"):
        app.define("job", payload=str)
    job.handler(lambda payload: None)
    with pytest.raises(mq.DefinitionError, match="has a handler already"):
        job.handler(lambda payload: None)


def _no_payload() -> None: ...


def _spare(payload: str, what: int) -> None: ...


async def _coroutine(payload: str) -> None: ...


def _generator(payload: str) -> Any:
    yield payload


def _other_type(payload: int) -> None: ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (_no_payload, "takes no payload"),
        (_spare, "needs 'what'"),
        (_coroutine, "is async"),
        (_generator, "is a generator"),
        (_other_type, "takes int, but the job's payload is str"),
        ("text", "is not callable"),
    ],
)
def test_a_handler_that_a_worker_could_not_call_is_refused(
    app: mq.App, handler: Any, says: str
) -> None:
    """Where it is given, not where it would run."""
    with pytest.raises(mq.DefinitionError, match=says):
        app.define("job", payload=str).handler(handler)


class _Later:
    async def __call__(self, error: Exception, ctx: mq.Context) -> None: ...


async def _tell(error: Exception, ctx: mq.Context) -> None: ...


def _tell_one(error: Exception) -> None: ...


def _tell_named(error: Exception, *, ctx: mq.Context) -> None: ...


def _yields(error: Exception, ctx: mq.Context) -> Any:
    yield error


@pytest.mark.parametrize(
    ("option", "function", "says"),
    [
        ("on_failure", _tell, "on_failure is async"),
        ("on_failure", _Later(), "on_failure is async"),
        ("on_failure", functools.partial(_tell), "on_failure is async"),
        ("on_failure", _yields, "on_failure is a generator"),
        ("on_failure", _tell_one, r"on_failure is called with \(error, ctx\), but takes \(error"),
        ("on_failure", _tell_named, r"on_failure is called with \(error, ctx\)"),
        ("on_failure", lambda: None, r"but takes \(\)"),
        ("retryable", _coroutine, "retryable is async"),
        ("retryable", lambda error, ctx: True, r"retryable is called with \(error\)"),
        ("idempotency_key", _coroutine, "idempotency_key is async"),
        ("dedupe", lambda: "key", r"dedupe is called with \(payload\)"),
        ("metadata", lambda payload, more: {}, r"metadata is called with \(payload\)"),
    ],
)
def test_a_function_that_could_not_be_called_is_refused_at_definition(
    app: mq.App, option: str, function: Any, says: str
) -> None:
    """A hook that is wrong would be noticed when it is needed most."""
    with pytest.raises(mq.DefinitionError, match=f"job 'job': .*{says}") as refused:
        app.define("job", **{"payload": str, option: function})
    assert "\n" not in str(refused.value)


def test_whatever_can_be_called_may_be_a_hook(app: mq.App) -> None:
    """Defaults, stars, methods, partials, and what is written in C and tells no signature."""
    for number, hook in enumerate[Any](
        [lambda *told: None, lambda error, ctx, more=1: None, [].insert, print,
         functools.partial(print, "failed"), {}.setdefault, max]
    ):  # fmt: skip
        app.define(f"job-{number}", payload=str, on_failure=hook)
    app.define("job", payload=str, idempotency_key=str, retryable=bool)


def test_the_context_is_passed_by_name_or_annotation(app: mq.App) -> None:
    """To the second parameter alone."""

    def by_name(payload: str, ctx: Any) -> None: ...

    def by_type(payload: str, context: mq.Context) -> None: ...

    def without(payload: str, *, loud: bool = False) -> None: ...

    takes: list[bool] = []
    for number, handler in enumerate[Callable[..., None]]([by_name, by_type, without]):
        job = app.define(f"job-{number}", payload=str)
        job.handler(handler)
        takes.append(job.passes_context)
    partial = app.define("partial", payload=str)
    partial.handler(functools.partial(without, loud=True))
    assert takes == [True, True, False]


def test_annotations_must_say_what_is_taken_and_returned(app: mq.App) -> None:
    """Unless the options do."""
    with pytest.raises(mq.DefinitionError, match="annotate its first parameter"):

        @app.job("untyped")
        def untyped(payload):  # type: ignore[no-untyped-def] # the mistake
            return payload

    @app.job("told", payload=str, result=str)
    def told(payload):  # type: ignore[no-untyped-def] # the options say it
        return payload

    assert told("x") == "x"


def test_named_stores_are_told_apart(clock: FakeClock) -> None:
    """A definition is bound to one; its jobs are there and nowhere else."""
    audit = Store("memory://", clock=clock)
    app = mq.App("memory://", clock=clock, stores={"audit": audit})
    app.define("plain", payload=str).enqueue("x")
    app.define("logged", payload=str, store="audit").enqueue("x")
    assert sum(app.store.counts().values()) == sum(audit.counts().values()) == 1
    with pytest.raises(mq.DefinitionError, match="'default'"):
        mq.App("memory://", stores={"default": audit})


def test_the_address_is_the_one_given_else_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty one is none."""
    monkeypatch.setenv("MQ_URL", "redis://example.invalid:7000/3")
    assert "example.invalid:7000/3" in repr(mq.App().store)
    assert "example.invalid:7000/3" in repr(mq.App("").store)
    assert "other.invalid:6379/0" in repr(mq.App("redis://other.invalid").store)
    monkeypatch.setenv("MQ_URL", "")
    assert "localhost:6379/0" in repr(mq.App().store)


@pytest.mark.parametrize("limit", [0, -1, True, "1M"])
def test_a_size_limit_that_is_none_is_refused(limit: Any) -> None:
    """Where the app is made."""
    with pytest.raises((TypeError, ValueError), match="max_payload_bytes"):
        mq.App("memory://", max_payload_bytes=limit)
