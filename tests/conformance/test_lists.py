"""Lists of jobs: exact in order and number, whatever is asked for and however long a page is."""

from __future__ import annotations

import base64
import itertools
import json
import random
import string
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import pytest
from conformance.build import NAME, QUEUE, TOKEN, job, take
from conformance.crowd import (
    LATER_MS,
    NAMES,
    QUEUES,
    all_records,
    calls_of,
    expected,
    fill,
    finished_state,
    mixed,
    odd_ids,
    pages,
    walk,
)
from helpers import Processes
from servers import Server
from transitions.invariants import violations
from transitions.seed import raw, seed, snapshot

from mq import listing
from mq.clock import FakeClock
from mq.errors import ListOrderUnsupportedError
from mq.listing import ROUTES, Route
from mq.policies import Dedupe
from mq.states import FINISHED, JobState
from mq.store import Store

ORDERS = ("asc", "desc")
ONE_CUSTOMER = {"customer": "c1"}
TWO_PAIRS = {"customer": "c1", "tier": "gold"}
MIB = 1024 * 1024

Options = dict[str, Any]

STATES_OF: Mapping[str, tuple[list[JobState] | None, ...]] = {
    "any": (
        None,
        [JobState.WAITING],
        [JobState.FAILED, JobState.WAITING],
        [JobState.ACTIVE, JobState.WAITING_CHILDREN, JobState.DELAYED],
    ),
    "delayed": ([JobState.DELAYED],),
    "finished": ([JobState.FAILED], [JobState.COMPLETED, JobState.CANCELLED], sorted(FINISHED)),
}


SEEDED: Mapping[str, tuple[JobState, ...]] = {
    "any": tuple(JobState),
    "delayed": (JobState.DELAYED, JobState.DELAYED, JobState.WAITING),
    "finished": (*sorted(FINISHED), JobState.ACTIVE),
}
"""States of the jobs that a row's lists are tried on: those it serves, and some it leaves out."""


def served(row: Route) -> Iterator[Options]:
    """Every kind of list that a row of the table says is served, in both orders."""
    for states, queue, name, metadata, order in itertools.product(
        STATES_OF[row.states],
        [QUEUES[0]] if row.queue else [None, QUEUES[0]],
        [None, NAMES[0]],
        [{}, ONE_CUSTOMER, TWO_PAIRS] if row.metadata else [{}],
        ORDERS,
    ):
        yield {
            "states": states, "queue": queue, "name": name, "metadata": metadata,
            "order_by": row.order_by, "order": order,
        }  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2, 7, 50, 500])
@pytest.mark.parametrize("row", ROUTES, ids=lambda row: row.order_by)
def test_all_pages_together_are_the_list(
    store: Store, clock: FakeClock, row: Route, limit: int
) -> None:
    """Every job once, by (value, the id's bytes), for all filters that a row serves."""
    fill(store, clock, mixed(35 if limit < 3 else 84, SEEDED[row.states]))
    records = all_records(store)
    before = snapshot(store)
    seen: set[str] = set()
    for options in served(row):
        wanted = expected(records, **options)
        got = list(pages(store, limit=limit, **options))
        assert [one.id for page in got for one in page] == wanted, options
        seen.update(wanted)
        by_sets_alone = not options["metadata"] and (
            options["name"] is None or row.kind != "delayed"
        )
        if by_sets_alone:
            assert [len(page) for page in got[:-1]] == [limit] * (len(got) - 1)
            assert len(got) == max(1, -(-len(wanted) // limit)), "a page too many"
    asked = [JobState(state) for states in STATES_OF[row.states] for state in states or JobState]
    assert {one.state for one in records if one.id in seen} == set(asked)
    assert snapshot(store) == before


@pytest.mark.parametrize("limit", [7, 63, 64, 65, 500])
def test_a_thousand_jobs_of_one_instant_are_listed_by_the_bytes_of_their_ids(
    store: Store, limit: int
) -> None:
    """A tie group longer than a page, and than what a script reads at once."""
    ids = odd_ids(1_000 if limit > 7 else 200)
    store.enqueue_many(job(job_id, name=NAMES[at % 2]) for at, job_id in enumerate(ids))
    ordered = sorted(ids, key=str.encode)
    assert ordered != sorted(ids, key=str.casefold)
    assert walk(store, order="asc", limit=limit) == ordered
    assert walk(store, order="desc", limit=limit) == ordered[::-1]


def test_ids_that_differ_at_any_byte_are_in_the_order_of_bytes(store: Store) -> None:
    """Early or late, by a low byte or a high one, or by their length alone."""
    text = "abcdefghijklmn"
    ids = {text[:at] for at in range(1, len(text) + 1)}
    for at, new in itertools.product(range(len(text)), ["\0", "\x01", "Z", "é", "\U0010ffff"]):
        ids |= {text[:at] + new, text[:at] + new + text[at + 1 :]}
    store.enqueue_many(job(one, name=NAMES[at % 3]) for at, one in enumerate(sorted(ids)))
    ordered = sorted(ids, key=str.encode)
    for limit in (9, 500):
        assert walk(store, order="asc", limit=limit) == ordered
        assert walk(store, order="desc", limit=limit) == ordered[::-1]


@pytest.mark.parametrize("limit", [7, 64, 500])
def test_jobs_due_at_one_instant_and_finished_at_one_instant_are_in_order(
    store: Store, clock: FakeClock, limit: int
) -> None:
    """The other orders break ties in the same way."""
    due, ended = odd_ids(400)[::2], odd_ids(400)[1::2]
    run_at = clock.now_ms() + LATER_MS
    store.enqueue_many(job(one, run_at=run_at) for one in due)
    fill(store, clock, [(job(one), finished_state(at)) for at, one in enumerate(ended)], instants=1)
    for ids, options in (
        (due, {"order_by": "run_at", "states": ["delayed"], "queue": QUEUE}),
        (ended, {"order_by": "finished_at", "states": sorted(FINISHED)}),
    ):
        ordered = sorted(ids, key=str.encode)
        assert walk(store, order="asc", limit=limit, **options) == ordered
        assert walk(store, order="desc", limit=limit, **options) == ordered[::-1]


def test_instant_0_is_a_value_like_any_other(server: Server) -> None:
    """Jobs of the first instants are listed, and a cursor may stand there."""
    clock = FakeClock(0)
    store = Store(server.url, clock=clock)
    fill(store, clock, [(job(one), JobState.COMPLETED) for one in "abcd"], instants=2)
    for order_by in ("enqueued_at", "finished_at"):
        options = {"states": ["completed"], "order_by": order_by, "limit": 1}
        assert walk(store, order="asc", **options) == ["a", "c", "b", "d"]
        assert walk(store, order="desc", **options) == ["d", "b", "c", "a"]
    store.close()


def test_a_list_is_newest_first_in_pages_of_fifty_unless_told_otherwise(
    store: Store, clock: FakeClock
) -> None:
    """The defaults, and an empty store."""
    assert store.list().items == []
    assert store.list().cursor is None
    for at in range(60):
        store.enqueue(job(f"{at:02}"))
        clock.advance(1)
    page = store.list()
    assert [one.id for one in page.items] == [f"{at:02}" for at in range(59, 9, -1)]
    assert [one.id for one in store.list(cursor=page.cursor).items] == [
        f"{at:02}" for at in range(9, -1, -1)
    ]


def test_no_states_match_nothing_and_no_pairs_match_everything(
    store: Store, clock: FakeClock
) -> None:
    """An empty list of states asks for none of them; empty metadata asks for no pair."""
    fill(store, clock, mixed(14))
    for options in ({}, {"order_by": "finished_at"}, {"queue": QUEUES[0], "order_by": "run_at"}):
        page = store.list(states=[], **options)
        assert (page.items, page.cursor) == ([], None)
    assert len(walk(store, metadata={})) == 14


def test_an_unknown_queue_name_or_value_matches_nothing(store: Store, clock: FakeClock) -> None:
    """And says so without a cursor."""
    fill(store, clock, mixed(14))
    for filters in ({"queue": "other"}, {"name": "other"}, {"queue": "q", "name": "a"}):
        page = store.list(**filters)
        assert (page.items, page.cursor) == ([], None)
    assert walk(store, metadata={"customer": "c"}) == []
    assert walk(store, metadata={"custome": "c1"}) == []


# What is refused


def _serves(row: Route, options: Options) -> bool:
    states = options["states"]
    allowed = {
        "any": set(JobState), "delayed": {JobState.DELAYED}, "finished": set(FINISHED),
    }[row.states]  # fmt: skip
    return (
        set(JobState if states is None else map(JobState, states)) <= allowed
        and not (row.queue and options["queue"] is None)
        and not (options["metadata"] and not row.metadata)
    )


def _asked_for() -> Iterator[tuple[Route, Options]]:
    states = (None, ["waiting"], ["delayed"], ["completed"], ["failed", "cancelled"],
              ["delayed", "waiting"], ["failed", "active"])  # fmt: skip
    for row in ROUTES:
        for one, queue, name, metadata in itertools.product(
            states, [None, "q"], [None, "n"], [{}, {"k": "v"}]
        ):
            yield (
                row,
                {
                    "states": one, "queue": queue, "name": name, "metadata": metadata,
                    "order_by": row.order_by,
                },
            )  # fmt: skip


NEED_OF_OPTION = {
    "states": "is served for states",
    "queue": "is served for one queue: give queue=;",
    "metadata": "is not served together with metadata=;",
}


def test_what_no_index_serves_is_refused_with_what_would_serve_it(store: Store) -> None:
    """Whatever the table leaves out, on every back end; the way out that is told works."""
    refused: set[str] = set()
    for row, options in _asked_for():
        if _serves(row, options):
            assert store.list(**options).items == []
            continue
        with pytest.raises(ListOrderUnsupportedError) as caught:
            store.list(**options)
        error = caught.value
        assert error.option is not None
        refused.add(error.option)
        assert "\n" not in str(error)
        assert str(error).startswith(f"order_by={row.order_by!r} {NEED_OF_OPTION[error.option]}")
        assert str(error).endswith("; order_by='enqueued_at' serves any filters")
        assert store.list(**{**options, "order_by": "enqueued_at"}).items == []
    assert refused == set(NEED_OF_OPTION)


def _leave_out_what_is_in_the_way(options: Options, option: str, row: Route) -> Options:
    mended = {
        "states": {"delayed": ["delayed"], "finished": ["failed"]}.get(row.states),
        "queue": "q",
        "metadata": {},
    }
    return {**options, option: mended[option]}


def _in_the_way(store: Store, options: Options) -> str | None:
    try:
        store.list(**options)
    except ListOrderUnsupportedError as error:
        return error.option
    return None


def test_the_option_of_a_refusal_is_the_one_that_is_in_the_way(store: Store) -> None:
    """Mended one after the other, every question comes to one that is served."""
    for row, asked in _asked_for():
        options, mended = asked, set[str]()
        while option := _in_the_way(store, options):
            assert option not in mended
            mended.add(option)
            options = _leave_out_what_is_in_the_way(options, option, row)


@pytest.mark.parametrize("order_by", ["seq", "", "ENQUEUED_AT", "processed_at", None, 5])
def test_an_unknown_order_is_refused_with_those_there_are(store: Store, order_by: Any) -> None:
    """`order_by` is the option that is in the way."""
    with pytest.raises(ListOrderUnsupportedError) as caught:
        store.list(order_by=order_by)
    assert caught.value.option == "order_by"
    known = ", ".join(row.order_by for row in ROUTES)
    told = f"no index is ordered by {order_by!r}: use order_by {known}"
    assert str(caught.value) == told


BAD_OPTIONS = [
    ("order", ["up", "", None, True, "ASC"], "order"),
    ("limit", [0, 501, -1, True, "5", 5.0, None, 10**30], "limit"),
    ("states", [["done"], "waiting", [None], ["waiting", "WAITING"], 5, b"waiting"], "state"),
    ("queue", ["", "a:b", 5, b"q", "x" * 65, "é", "a\n"], "queue"),
    ("name", ["", "a:b", 5, b"n", "x" * 65, "é", "a\n"], "job name"),
    ("metadata", ["text", ["a"], {"k": 5}, {5: "v"}, {"a b": "v"}, {"k": "x" * 513}, {"k": None},
                  {"k": "\ud800"}, {f"k{at}": "v" for at in range(17)}, "", [], 0],
     "metadata"),
    ("cursor", [5, b"text", "", "nonsense", "é", "\ud800", "====", "a" * 10_000, "QUJD\n"],
     "cursor"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "values", "told"), BAD_OPTIONS, ids=[option for option, _, _ in BAD_OPTIONS]
)
def test_an_option_that_cannot_be_is_named(
    one_server: Server, option: str, values: list[Any], told: str
) -> None:
    """ValueError or TypeError, on one line, before anybody is asked."""
    store = Store(one_server.url)
    one_server.cli("CONFIG", "RESETSTAT")
    for value in values:
        with pytest.raises((ValueError, TypeError), match=told) as caught:
            store.list(**{option: value})
        assert "\n" not in str(caught.value)
    assert calls_of(one_server, "evalsha", "hkeys") == [0, 0]
    store.close()


def test_states_are_taken_as_text_or_as_members_from_any_iterable(
    store: Store, clock: FakeClock
) -> None:
    """Twice the same is once; an iterator is read once."""
    fill(store, clock, mixed(14))
    wanted = expected(all_records(store), states=["waiting", "failed"])
    assert walk(store, states=["failed", "waiting", "failed"]) == wanted
    assert walk(store, states={JobState.WAITING, JobState.FAILED}) == wanted
    page = store.list(states=iter(["waiting", JobState.FAILED]), limit=50)
    assert [one.id for one in page.items] == wanted


# Cursors


BOUND = {
    "states": ["completed", "failed"], "queue": "q1", "name": "a", "metadata": {},
    "order_by": "enqueued_at", "order": "asc", "bodies": True,
}  # fmt: skip

OTHERS: Mapping[str, list[Any]] = {
    "states": [["completed"], ["completed", "failed", "cancelled"], None],
    "queue": ["q2", None],
    "name": ["A", None],
    "metadata": [{"customer": "c1"}],
    "order_by": ["finished_at"],
    "order": ["desc"],
    "bodies": [False],
}


def _first_cursor(store: Store, clock: FakeClock, **options: Any) -> str:
    states = (JobState.COMPLETED, JobState.FAILED)
    jobs = [(job(f"j{at}", queue="q1", name="a"), states[at % 2]) for at in range(6)]
    fill(store, clock, jobs)
    cursor = store.list(limit=2, **options).cursor
    assert cursor is not None
    return cursor


def test_the_options_that_a_cursor_is_bound_to_are_all_there_are() -> None:
    """A new option of list has to be bound as well."""
    fields = {field.name for field in attrs.fields(listing.ListQuery)}
    assert set(OTHERS) == set(BOUND) == fields ^ {"descending", "order"}


@pytest.mark.parametrize("option", OTHERS)
def test_a_cursor_is_of_no_use_to_another_list(store: Store, clock: FakeClock, option: str) -> None:
    """Each option changed alone is refused."""
    cursor = _first_cursor(store, clock, **BOUND)
    for value in OTHERS[option]:
        with pytest.raises(ValueError, match=r"cursor belongs to a list with other options"):
            store.list(cursor=cursor, **{**BOUND, option: value})
    assert [one.id for one in store.list(cursor=cursor, **BOUND).items] == ["j1", "j4", "j2", "j5"]


def test_metadata_of_another_value_is_another_list(store: Store) -> None:
    """Key and value both count, in whichever order they are given."""
    store.enqueue_many(job(f"j{at}", metadata={"k": "v", "l": "w"}) for at in range(4))
    first = store.list(metadata={"k": "v", "l": "w"}, limit=1, order="asc")
    for other in ({"k": "v"}, {"k": "w", "l": "v"}, {"k": "vl", "l": "w"}, {"k": "v", "m": "w"}):
        with pytest.raises(ValueError, match="other options"):
            store.list(metadata=other, limit=1, order="asc", cursor=first.cursor)
    page = store.list(metadata={"l": "w", "k": "v"}, order="asc", cursor=first.cursor)
    assert [one.id for one in page.items] == ["j1", "j2", "j3"]


def test_the_same_question_in_other_words_takes_the_cursor(store: Store, clock: FakeClock) -> None:
    """States in another order and as members; options left out that have their default."""
    cursor = _first_cursor(store, clock, states=["completed", "failed"], order="asc")
    page = store.list(
        states=iter([JobState.FAILED, JobState.COMPLETED, "failed"]), cursor=cursor, order="asc",
        metadata={}, queue=None, name=None, order_by="enqueued_at", bodies=True,
    )  # fmt: skip
    assert [one.id for one in page.items] == ["j1", "j4", "j2", "j5"]


def test_the_limit_may_change_from_page_to_page(store: Store, clock: FakeClock) -> None:
    """A cursor is a place, not a page number."""
    fill(store, clock, mixed(70))
    wanted = expected(all_records(store))
    got: list[str] = []
    cursor = None
    for limit in itertools.cycle([1, 7, 50, 2, 3]):
        page = store.list(limit=limit, cursor=cursor)
        got += (one.id for one in page.items)
        cursor = page.cursor
        if cursor is None:
            break
    assert got == wanted


def test_a_cursor_that_was_altered_anywhere_is_refused(store: Store, clock: FakeClock) -> None:
    """Cut, extended, or with any one character changed: a clear error."""
    cursor = _first_cursor(store, clock, **BOUND)
    assert cursor.isascii()
    altered = [cursor[:at] for at in range(len(cursor))]
    altered += [cursor + more for more in ("A", "=", "AAAA", " ", "\n", "é")]
    altered += [" " + cursor, cursor * 2, cursor.swapcase(), cursor[::-1]]
    for at, old in enumerate(cursor):
        altered += (cursor[:at] + new + cursor[at + 1 :] for new in "AZb9-_=+/ é\0" if new != old)
    whole = base64.urlsafe_b64decode(cursor)
    for at in range(len(whole)):
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        altered.append(base64.urlsafe_b64encode(flipped).decode())
    last = cursor.rstrip("=")[:-1]
    altered += (last + new + cursor[len(last) + 1 :] for new in string.ascii_letters)
    told = "cursor is not one that a list gave, or was altered"
    assert [one for one in altered if one != cursor and _said_of(store, one) != told] == []


def _said_of(store: Store, cursor: str) -> str | None:
    try:
        store.list(cursor=cursor, **BOUND)
    except ValueError as error:
        return str(error)
    return None


READ_ON = """
import json, sys
from mq.store import Store
store = Store(sys.argv[1])
page = store.list(cursor=sys.argv[2], **json.loads(sys.argv[3]))
print(json.dumps([[one.id for one in page.items], page.cursor]))
"""


def test_a_cursor_goes_on_in_another_process(real_server: Server, proc: Processes) -> None:
    """The same text means the same place, and the same question gives the same text."""
    store, clock = Store(real_server.url), FakeClock()
    seeding = Store(real_server.url, clock=clock)
    fill(seeding, clock, mixed(42))
    options: Options = {"states": ["waiting", "failed"], "limit": 5}
    whole = list(pages(store, **options))
    first = store.list(**options)
    assert first.cursor is not None
    other = proc.python("-c", READ_ON, real_server.url, first.cursor, json.dumps(options))
    assert other.wait() == 0, other.stderr
    ids, cursor = json.loads(other.stdout)
    assert ids == [one.id for one in whole[1]]
    assert cursor == store.list(cursor=first.cursor, **options).cursor
    store.close()
    seeding.close()


def _finish(store: Store, job_id: str) -> None:
    """End a waiting job of the plain queue and name."""
    seen = []
    while job_id not in seen:
        claimed = take(store)
        assert claimed
        seen += claimed
    store.ack_completed(job_id, TOKEN, b"r")
    for other in seen:
        if other != job_id:
            store.release(other, TOKEN)


GONE: dict[str, Callable[[Store, str], object]] = {
    "removed": Store.remove,
    "cancelled": Store.cancel,
    "finished": _finish,
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("how", GONE)
def test_a_cursor_whose_job_has_gone_goes_on_from_its_place(
    store: Store, how: str, order: str
) -> None:
    """It is a place by value: neither that job nor its neighbours have to be there."""
    ids = sorted(odd_ids(12), key=str.encode, reverse=order == "desc")
    store.enqueue_many(job(job_id) for job_id in ids)
    options: Options = {"states": ["waiting"], "order": order}
    first = store.list(limit=5, **options)
    assert [one.id for one in first.items] == ids[:5]
    for at in (4, 3, 5):
        GONE[how](store, ids[at])
    rest = store.list(cursor=first.cursor, **options)
    assert [one.id for one in rest.items] == ids[6:]
    for job_id in (*ids[:3], *ids[6:]):
        GONE[how](store, job_id)
    rest = store.list(cursor=first.cursor, **options)
    assert (rest.items, rest.cursor) == ([], None)


def test_a_cursor_by_run_at_outlives_that_its_job_is_promoted_or_moved(
    store: Store, clock: FakeClock
) -> None:
    """A job that is now due at another instant is where that instant is."""
    for at in range(6):
        key = Dedupe(f"k{at}", replace=True)
        store.enqueue(job(f"j{at}", run_at=clock.now_ms() + 100 + at // 2, dedupe=key))
    options: Options = {"states": ["delayed"], "queue": QUEUE, "order_by": "run_at", "order": "asc"}
    first = store.list(limit=3, **options)
    assert [one.id for one in first.items] == ["j0", "j1", "j2"]
    store.promote("j2")
    assert walk(store, cursor=first.cursor, **options) == ["j3", "j4", "j5"]
    moved = Dedupe("k3", replace=True)
    store.enqueue(job(run_at=clock.now_ms() + 900, dedupe=moved))
    assert walk(store, cursor=first.cursor, **options) == ["j4", "j5", "j3"]


def test_a_cursor_by_finished_at_outlives_the_retry_of_its_job(
    store: Store, clock: FakeClock
) -> None:
    """And meets it again, further on, when it has failed again."""
    fill(store, clock, [(job(f"j{at}"), JobState.FAILED) for at in range(5)], instants=5)
    options: Options = {"states": ["failed"], "order_by": "finished_at", "order": "asc"}
    first = store.list(limit=2, **options)
    assert [one.id for one in first.items] == ["j0", "j1"]
    store.retry("j1")
    assert walk(store, cursor=first.cursor, **options) == ["j2", "j3", "j4"]
    assert take(store) == ["j1"]
    store.ack_failed("j1", TOKEN, b"again")
    assert walk(store, cursor=first.cursor, **options) == ["j2", "j3", "j4", "j1"]


# Walks while jobs move


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("states", [None, ["waiting", "active"]], ids=["all", "some"])
def test_a_walk_meets_every_job_that_was_there_throughout_exactly_once(
    server: Server, clock: FakeClock, order: str, states: list[str] | None
) -> None:
    """Jobs finish, are removed and enqueued between the pages; the walker begins anew half-way."""
    chance = random.Random(f"{order} {states}")
    store = Store(server.url, clock=clock)
    ids = odd_ids(600)
    for start in range(0, 600, 100):
        store.enqueue_many(job(one, queue=QUEUES[at % 2], name=NAMES[at % 3])
                           for at, one in enumerate(ids[start : start + 100]))  # fmt: skip
        clock.advance(1)
    walker = Store(server.url, clock=clock)
    stayed, got = set(ids), []
    cursor, calls = None, 0
    while True:
        page = walker.list(limit=40, cursor=cursor, order=order, states=states)
        got += (one.id for one in page.items)
        cursor, calls = page.cursor, calls + 1
        if cursor is None:
            break
        if calls == 6:
            walker.close()
            walker = Store(server.url, clock=clock)
        stayed -= _stir(store, clock, chance, stayed, states, calls)
    walker.close()
    assert len(got) == len(set(got))
    assert stayed <= set(got)
    assert 250 < len(stayed) < 550
    assert violations(store) == []
    store.close()


def test_jobs_that_move_while_a_page_is_put_together_are_met_once(
    server: Server, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may take several calls: what happens between them is like between two pages."""
    chance, ids, calls = random.Random(3), odd_ids(400), itertools.count()
    stayed = set(ids)

    class Stirred(Store):
        """Lets jobs come, run and go before each call."""

        def _look(self, *asked: Any) -> Any:
            stayed.difference_update(_stir(self, clock, chance, stayed, None, next(calls)))
            return super()._look(*asked)

    monkeypatch.setattr(listing, "BUDGET", 40)
    store = Stirred(server.url, clock=clock)
    store.enqueue_many(job(one, queue=QUEUES[at % 2], name=NAMES[at % 3])
                       for at, one in enumerate(ids))  # fmt: skip
    got = walk(store, limit=130, order="asc")
    assert len(got) == len(set(got))
    assert stayed <= set(got)
    assert next(calls) > 2 * len(got) / 130
    assert 200 < len(stayed) < 350
    store.close()


def _stir(
    store: Store, clock: FakeClock, chance: random.Random, stayed: set[str],
    states: list[str] | None, calls: int,
) -> set[str]:  # fmt: skip
    """Let jobs run, finish, go and come; returns those that have left the list."""
    queues, names = chance.sample(QUEUES, 2), chance.sample(NAMES, 3)
    claimed = [one.id for one in store.claim(queues, names, TOKEN, LATER_MS, 12).jobs]
    ended = claimed[:6]
    for job_id in ended:
        store.ack_completed(job_id, TOKEN)
    for job_id in claimed[9:]:
        store.release(job_id, TOKEN)
    removed = set()
    for job_id in chance.sample(sorted(stayed), 10):
        if store.remove(job_id):
            removed.add(job_id)
    if calls % 2:
        clock.advance(1)
    store.enqueue_many(job(f"{chance.choice('aZé')}new-{calls}-{at}", queue=queues[0])
                       for at in range(12))  # fmt: skip
    return removed if states is None else removed | set(ended)


def test_a_walk_over_finished_jobs_holds_while_others_finish(
    store: Store, clock: FakeClock
) -> None:
    """In ascending order it meets those as well, in descending order it does not go back."""
    fill(store, clock, [(job(one), JobState.COMPLETED) for one in odd_ids(60)])
    before = expected(all_records(store), order_by="finished_at", order="asc")
    options: Options = {"states": ["completed"], "order_by": "finished_at"}
    for order, met in (("asc", 1), ("desc", 0)):
        got: list[str] = []
        came: list[str] = []
        for page in pages(store, limit=9, order=order, **options):
            got += (one.id for one in page)
            if len(came) < 5:
                clock.advance(1)
                seed(store, JobState.COMPLETED, f"{order}-{len(came)}", queue=QUEUE, name=NAME)
                came.append(f"{order}-{len(came)}")
        assert [one for one in got if one not in came] == (
            before if order == "asc" else before[::-1]
        )
        assert [one for one in got if one in came] == came * met
        before += came


# Bounded work


def test_a_filter_that_lets_nothing_through_ends_in_bounded_calls(store: Store) -> None:
    """Metadata that nobody declared: every call looks at a bounded share, and says go on."""
    store.enqueue_many(
        job(f"{at:04}", metadata={"customer": "rare" if at in {3, 1_200, 1_999} else "usual"})
        for at in range(2_000)
    )
    calls = -(-2_000 // (listing.BUDGET * listing.CALLS))
    assert list(pages(store, metadata={"customer": "none"})) == [[]] * calls
    for limit in (1, 2, 50):
        assert walk(store, metadata={"customer": "rare"}, limit=limit) == ["1999", "1200", "0003"]
    assert len(list(pages(store, metadata={"customer": "rare"}))) == calls
    assert store.list(metadata={"customer": "none"}).cursor is not None


@pytest.mark.parametrize(
    "options",
    [
        {"metadata": {"customer": "c1"}},
        {"metadata": {"customer": "none"}},
        {"queue": QUEUE, "order_by": "run_at", "states": ["delayed"], "name": "none"},
        {},
    ],
    ids=["some metadata", "unknown metadata", "unknown name of a delayed job", "everything"],
)
def test_a_script_looks_at_no_more_than_its_budget(
    real_store: Store, real_server: Server, options: Options
) -> None:
    """However many jobs there are and however few of them pass; a page runs it a few times."""
    delay = 1_000 if "order_by" in options else None
    real_store.enqueue_many(
        job(f"{at:04}", delay_ms=delay, metadata={"customer": f"c{at % 50}"}) for at in range(2_000)
    )
    query = listing.read_query(**options)
    pairs = real_store._pairs(query)
    real_server.cli("CONFIG", "RESETSTAT")
    found = real_store._look(query, None, 500, pairs)
    hmget, zrange, scripts = calls_of(real_server, "hmget", "zrange", "evalsha")
    assert found.reached is not None
    assert scripts == 1
    assert hmget <= listing.BUDGET + len(found.jobs) + 1
    assert zrange <= listing.BUDGET / 10
    real_server.cli("CONFIG", "RESETSTAT")
    page = real_store.list(limit=500, bodies=False, **options)
    assert page.cursor is not None
    assert calls_of(real_server, "evalsha")[0] <= listing.CALLS + 500 / 100


def test_short_pages_of_a_small_budget_make_the_same_list(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the budget cuts is found by the next call, in every order and with every filter."""
    fill(store, clock, mixed(42))
    records = all_records(store)
    monkeypatch.setattr(listing, "BUDGET", 5)
    short = False
    for row in ROUTES:
        for options in served(row):
            got = list(pages(store, limit=7, **options))
            assert [one.id for page in got for one in page] == expected(records, **options)
            short |= any(len(page) < 5 for page in got[:-1])
    assert short


# More sets than one call merges


@pytest.mark.parametrize("budget", [listing.BUDGET, 20])
def test_a_list_over_more_sets_than_one_call_merges_is_exact(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """40 names in seven states: the calls' answers are merged no further than all of them got."""
    ids = odd_ids(120)
    order = random.Random(5).sample(range(120), 120)
    jobs = [
        (job(ids[at], name=f"n{nth % 40}", metadata={"customer": f"c{nth % 3}"}),
         tuple(JobState)[nth % 7])
        for nth, at in enumerate(order)
    ]  # fmt: skip
    fill(store, clock, jobs, instants=2)
    assert 40 * len(JobState) > listing.MAX_SETS
    monkeypatch.setattr(listing, "BUDGET", budget)
    records = all_records(store)
    for direction, limit in itertools.product(ORDERS, (7 if budget > 100 else 50, 500)):
        for filters in ({}, {"metadata": ONE_CUSTOMER}):
            options = {"order": direction, **filters}
            assert walk(store, limit=limit, **options) == expected(records, **options)


@pytest.mark.parametrize("order", ORDERS)
def test_ties_over_more_sets_than_one_call_merges_are_in_order(store: Store, order: str) -> None:
    """260 names at one instant; a state filter makes the groups of another size."""
    ids = odd_ids(260)
    names = random.Random(7).sample([f"n{at}" for at in range(260)], 260)
    store.enqueue_many(job(one, name=name) for one, name in zip(ids, names, strict=True))
    wanted = sorted(ids, key=str.encode, reverse=order == "desc")
    for states in (None, ["waiting"], ["waiting", "failed", "delayed"]):
        assert walk(store, states=states, order=order, limit=100) == wanted
    page = store.list(states=["waiting"], order=order, limit=260)
    assert ([one.id for one in page.items], page.cursor) == (wanted, None)


# Members that should not be there


STALE: dict[str, Callable[[Store, str], object]] = {
    "its record is gone": lambda store, one: raw(store).delete(store.keys.job(one)),
    "it has another state": lambda store, one: raw(store).hset(
        store.keys.job(one), "state", "active"
    ),
    "it has another queue": lambda store, one: raw(store).hset(
        store.keys.job(one), "queue", "elsewhere"
    ),
}


def _sets_of(store: Store, row: Route) -> str:
    keys = store.keys
    return {
        "index": keys.index(JobState.FAILED, QUEUE, NAME),
        "delayed": keys.delayed(QUEUE),
        "finished": keys.finished(JobState.FAILED, QUEUE, NAME),
    }[row.kind]


@pytest.mark.parametrize("how", STALE)
@pytest.mark.parametrize("row", ROUTES, ids=lambda row: row.order_by)
def test_a_member_that_is_stale_is_not_listed_and_dropped(
    store: Store, clock: FakeClock, row: Route, how: str
) -> None:
    """Out of the set that was read; nothing else of the store is touched."""
    state = JobState.DELAYED if row.kind == "delayed" else JobState.FAILED
    fill(store, clock, [(job(one), state) for one in "abcdef"])
    for one in "be":
        STALE[how](store, one)
    before = snapshot(store)
    options: Options = {"states": [state], "queue": QUEUE, "order_by": row.order_by}
    assert sorted(walk(store, limit=2, **options)) == ["a", "c", "d", "f"]
    key = _sets_of(store, row)
    kept = {one: score for one, score in before[key].items() if one not in {"b", "e"}}
    assert snapshot(store) == {**before, key: kept}


def test_a_stale_member_costs_a_page_no_job(store: Store) -> None:
    """A page of five has five, and the walk goes on behind it."""
    store.enqueue_many(job(f"{at:02}") for at in range(12))
    for at in (0, 1, 2, 6, 11):
        raw(store).delete(store.keys.job(f"{at:02}"))
    got = list(pages(store, limit=5, order="asc"))
    assert [one.id for one in got[0]] == ["03", "04", "05", "07", "08"]
    assert [one.id for page in got for one in page] == ["03", "04", "05", "07", "08", "09", "10"]


# What a page holds


def test_items_are_complete_records(store: Store, clock: FakeClock) -> None:
    """What get_job tells of a job, list tells as well: payload and exit too."""
    fill(store, clock, mixed(14))
    for one in store.list().items:
        alone = store.get_job(one.id)
        assert alone is not None
        for field in ("payload", "exit", "metadata", "state", "queue", "name", "enqueued_at",
                      "run_at", "finished_at", "token", "worker", "runs", "priority"):  # fmt: skip
            assert getattr(one, field) == getattr(alone, field), field
    ended = store.list(states=["completed", "failed"]).items
    assert {one.exit for one in ended} == {b"exit"}
    assert {one.payload for one in ended} == {b"payload"}


def test_without_bodies_payload_and_exit_are_left_out(store: Store, clock: FakeClock) -> None:
    """All else is there, metadata too."""
    fill(store, clock, mixed(28))
    whole, bare = store.list().items, store.list(bodies=False).items
    assert [one.id for one in bare] == [one.id for one in whole]
    assert {(one.payload, one.exit) for one in bare} == {(None, None)}
    assert [one.metadata for one in bare] == [one.metadata for one in whole]
    assert [one.finished_at for one in bare] == [one.finished_at for one in whole]
    assert any(one.metadata for one in bare)


@pytest.mark.parametrize("order", ORDERS)
def test_a_page_ends_early_at_four_mebibytes(store: Store, order: str) -> None:
    """The walk sees every job once all the same; without bodies it is one page."""
    store.enqueue_many(job(f"{at:02}", payload=b"x" * MIB) for at in range(11))
    wanted = [f"{at:02}" for at in range(11)][:: 1 if order == "asc" else -1]
    got = list(pages(store, limit=500, order=order))
    assert [one.id for page in got for one in page] == wanted
    assert [len(page) for page in got] == [4, 4, 3]
    bare = store.list(limit=500, order=order, bodies=False)
    assert ([one.id for one in bare.items], bare.cursor) == (wanted, None)


def test_a_job_larger_than_a_page_comes_by_itself(store: Store) -> None:
    """It neither blocks the walk nor is left out; exits count like payloads."""
    sizes = (1, 5 * MIB, 5 * MIB, 1, 1)
    store.enqueue_many(job(str(at), payload=b"x" * size) for at, size in enumerate(sizes))
    got = list(pages(store, limit=500, order="asc"))
    assert [[one.id for one in page] for page in got] == [["0"], ["1"], ["2"], ["3", "4"]]
    assert [len(one.payload or b"") for page in got for one in page] == list(sizes)


def test_exits_count_towards_the_size_of_a_page(store: Store, clock: FakeClock) -> None:
    """A list of results is as bounded as one of payloads."""
    store.enqueue_many(job(f"{at}", payload=b"p") for at in range(6))
    for job_id in take(store, 6):
        store.ack_completed(job_id, TOKEN, b"x" * MIB)
    got = list(pages(store, limit=500, order="asc"))
    assert [len(page) for page in got] == [3, 3]
    assert [one.id for page in got for one in page] == list("012345")


def test_no_page_of_several_jobs_is_larger_than_four_mebibytes(store: Store) -> None:
    """Nor where a large job follows on a hundred that nearly fill the page."""
    store.enqueue_many(job(f"{at:03}", payload=b"x" * 40_000) for at in range(100))
    store.enqueue_many(job(f"{at:03}", payload=b"x" * 4_000_000) for at in range(100, 102))
    got = list(pages(store, limit=500, order="asc"))
    assert [one.id for page in got for one in page] == [f"{at:03}" for at in range(102)]
    sizes = [sum(len(one.payload or b"") for one in page) for page in got]
    assert [size for size, page in zip(sizes, got, strict=True)
            if size > listing.PAGE_BYTES and len(page) > 1] == []  # fmt: skip


@pytest.mark.parametrize("bodies", [True, False])
def test_a_long_page_is_complete(store: Store, bodies: bool) -> None:
    """500 jobs, more than one call reads at once."""
    store.enqueue_many(job(f"{at:03}") for at in range(501))
    page = store.list(limit=500, order="asc", bodies=bodies)
    assert [one.id for one in page.items] == [f"{at:03}" for at in range(500)]
    rest = store.list(limit=500, order="asc", bodies=bodies, cursor=page.cursor)
    assert ([one.id for one in rest.items], rest.cursor) == (["500"], None)


# Jobs that change between being found and being read


def _finish_a(store: Store) -> None:
    assert take(store) == ["a"]
    store.ack_completed("a", TOKEN)


def _take_the_id_again(store: Store) -> None:
    assert store.remove("a")
    store.enqueue(job("a", name="other", metadata={"k": "v"}))


def _replace_b(store: Store) -> None:
    store.enqueue(job(delay_ms=1_000, metadata={"k": "w"}, dedupe=Dedupe("key", replace=True)))


MEANWHILE: dict[str, tuple[Callable[[Store], object], Options, list[str]]] = {
    "claimed": (take, {"states": ["waiting", "delayed"]}, ["b", "c"]),
    "claimed, and active is asked for": (take, {"states": ["waiting", "active"]}, ["a", "c"]),
    "finished": (_finish_a, {"states": ["waiting"]}, ["c"]),
    "cancelled": (lambda store: store.cancel("b"), {"states": ["waiting", "delayed"]}, ["a", "c"]),
    "removed": (lambda store: store.remove("a"), {}, ["b", "c"]),
    "removed, its id taken by another name": (_take_the_id_again, {"name": NAME}, ["b", "c"]),
    "replaced with other metadata": (_replace_b, {"metadata": {"k": "v"}}, ["a", "c"]),
}


@pytest.mark.parametrize("what", MEANWHILE)
def test_a_job_that_changes_before_it_is_read_is_not_handed_out_as_what_it_was(
    store: Store, what: str
) -> None:
    """What a page holds fits the question; that the record was found earlier does not matter."""
    act, options, left = MEANWHILE[what]
    pairs = {"k": "v"}
    store.enqueue(job("a", metadata=pairs))
    store.enqueue(job("b", metadata=pairs, delay_ms=1_000, dedupe=Dedupe("key", replace=True)))
    store.enqueue(job("c", metadata=pairs))
    query = listing.read_query(order="asc", **options)
    found = store._find(query, None, 50, store._pairs(query))
    act(store)
    records, reached = store._records(query, found)
    assert [one.id for one in records] == left
    assert reached is None


# The questions of a dashboard


def test_what_runs_next_in_a_queue(store: Store, clock: FakeClock) -> None:
    """Delayed jobs by the instant at which they fall due, of one name or of all."""
    for at, (name, delay) in enumerate([("a", 30), ("b", 10), ("a", 20), ("b", 10)]):
        store.enqueue(job(f"j{at}", name=name, delay_ms=delay))
    store.enqueue(job("elsewhere", queue="other", delay_ms=5))
    options: Options = {"queue": QUEUE, "states": ["delayed"], "order_by": "run_at", "order": "asc"}
    assert walk(store, limit=2, **options) == ["j1", "j3", "j2", "j0"]
    assert walk(store, limit=2, name="a", **options) == ["j2", "j0"]
    clock.advance(10)
    assert take(store, names=("b",)) == ["j1"]
    assert walk(store, **options) == ["j2", "j0"]


def test_what_just_finished_over_several_states_and_queues(store: Store, clock: FakeClock) -> None:
    """The latest end first, whichever way and wherever it was."""
    ends = [("q1", JobState.FAILED), ("q2", JobState.COMPLETED), ("q1", JobState.COMPLETED),
            ("q2", JobState.CANCELLED)]  # fmt: skip
    for at, (queue, state) in enumerate(ends):
        seed(store, state, f"j{at}", queue=queue)
        clock.advance(1)
    options: Options = {"order_by": "finished_at"}
    ended = ["failed", "completed", "cancelled"]
    assert walk(store, states=ended, **options) == ["j3", "j2", "j1", "j0"]
    assert walk(store, states=ended[:2], **options) == ["j2", "j1", "j0"]
    assert walk(store, states=ended, queue="q1", **options) == ["j2", "j0"]
    store.retry("j0")
    assert walk(store, states=ended, queue="q1", **options) == ["j2"]
