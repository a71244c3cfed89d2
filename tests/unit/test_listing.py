"""Questions to a list, the structures that serve them, cursors, and the merging of answers."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq import listing
from mq.errors import ListOrderUnsupportedError
from mq.listing import ROUTES, Found, ListQuery, Position, merge, read_cursor, read_query
from mq.records import RECORD_FIELDS, JobRecord
from mq.states import FINISHED, JobState

names = st.from_regex(r"[A-Za-z0-9._-]{1,8}", fullmatch=True)
values = st.text(max_size=8).filter(lambda text: text.isprintable())
ids = st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable())
places = st.tuples(st.integers(-(10**3), 2**53), ids)


@st.composite
def queries(draw: st.DrawFn) -> ListQuery:
    """Any question that `read_query` lets through."""
    return read_query(
        queue=draw(st.none() | names),
        name=draw(st.none() | names),
        states=draw(st.none() | st.lists(st.sampled_from(JobState))),
        metadata=draw(st.dictionaries(names, values, max_size=3)),
        order_by=draw(st.sampled_from([row.order_by for row in ROUTES])),
        order=draw(st.sampled_from(["asc", "desc"])),
        bodies=draw(st.booleans()),
    )


# Questions


def test_a_question_without_options_asks_for_every_job_newest_first() -> None:
    """The defaults, and every state in the order of its life."""
    assert read_query() == ListQuery(
        queue=None, name=None, states=tuple(JobState), metadata={}, order_by="enqueued_at",
        descending=True, bodies=True,
    )  # fmt: skip


def test_states_stand_once_and_in_the_order_of_life() -> None:
    """However they were given, so that one question has one form."""
    asked = read_query(states=["failed", JobState.WAITING, "failed"])
    assert asked.states == (JobState.WAITING, JobState.FAILED)
    assert asked == read_query(states=iter([JobState.WAITING, JobState.FAILED]))
    assert all(isinstance(state, JobState) for state in asked.states)
    assert read_query(states=[]).states == ()
    assert read_query(states=None).states == tuple(JobState)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"queue": ""}, "queue '' must be 1 to 64"),
        ({"queue": 5}, "queue must be text, got int"),
        ({"name": "a:b"}, "job name 'a:b' must be 1 to 64"),
        ({"name": b"n"}, "job name must be text, got bytes"),
        ({"states": "failed"}, r"states must be a list, got the text 'failed': use \['failed'\]"),
        ({"states": ["done"]}, "'done' is not a state: use waiting, delayed, active, "),
        ({"states": [None]}, "None is not a state"),
        ({"states": [["failed"]]}, "is not a state"),
        ({"states": 5}, "states must be a list"),
        ({"metadata": "text"}, "metadata: must be a dict of text, got str"),
        ({"metadata": ["k"]}, "metadata: must be a dict of text, got list"),
        ({"metadata": ""}, "metadata: must be a dict of text, got str"),
        ({"metadata": {"k": 1}}, "value must be text, got int"),
        ({"metadata": {"a b": "v"}}, "metadata key 'a b' must be 1 to 64"),
        ({"metadata": {f"k{at}": "" for at in range(17)}}, "metadata: has 17 pairs"),
        ({"order": "up"}, "order must be 'asc' or 'desc', got 'up'"),
        ({"order": None}, "order must be 'asc' or 'desc', got None"),
        ({"order": ["asc"]}, "order must be 'asc' or 'desc'"),
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_named(options: dict[str, Any], told: str) -> None:
    """On one line, with what may stand there."""
    with pytest.raises((ValueError, TypeError), match=told) as caught:
        read_query(**options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limit", [1, 50, listing.MAX_LIMIT])
def test_a_limit_is_a_number_of_items(limit: int) -> None:
    """1 to 500."""
    assert listing.check_limit(limit) == limit


@pytest.mark.parametrize("limit", [0, -1, listing.MAX_LIMIT + 1, True, "5", 5.0, None])
def test_any_other_limit_is_refused(limit: Any) -> None:
    """By name."""
    with pytest.raises((ValueError, TypeError), match="limit must be "):
        listing.check_limit(limit)


def _record(state: str, **metadata: str) -> JobRecord:
    fields = [state.encode() if field == "state" else b"" for field in RECORD_FIELDS]
    extra = [
        part.encode() for key, value in metadata.items() for part in (f"metadata:{key}", value)
    ]
    return JobRecord("i", fields, None, extra)


def test_a_record_is_judged_by_its_state_and_every_pair() -> None:
    """An absent key is not the empty value."""
    asked = read_query(states=["failed"], metadata={"k": "", "l": "v"})
    assert asked.matches(_record("failed", k="", l="v", m="w"))
    assert not asked.matches(_record("waiting", k="", l="v"))
    assert not asked.matches(_record("failed", l="v"))
    assert not asked.matches(_record("failed", k="", l="w"))
    assert not asked.matches(_record("failed"))
    assert read_query().matches(_record("failed"))


# Routes


def test_every_order_has_one_route_that_says_what_it_reads() -> None:
    """The documentation is made from it."""
    assert len({row.order_by for row in ROUTES}) == len(ROUTES)
    assert {row.order_by for row in ROUTES} == set(get_args(listing.OrderBy))
    for row in ROUTES:
        assert row.reads
        assert row.checks


def test_enqueued_at_serves_any_filters() -> None:
    """It is what every refusal points to."""
    for states, queue, metadata in itertools.product(
        [None, ["failed"], ["delayed", "active"]], [None, "q"], [{}, {"k": "v"}]
    ):
        asked = read_query(states=states, queue=queue, metadata=metadata)
        assert listing.route(asked).order_by == "enqueued_at"


DELAYED_ALONE = "order_by='run_at' is served for states=['delayed'] alone"
FINISHED_ALONE = (
    "order_by='finished_at' is served for states among completed, failed and cancelled alone"
)


@pytest.mark.parametrize(
    ("options", "option", "told"),
    [
        (
            {"order_by": "run_at", "queue": "q"},
            "states",
            DELAYED_ALONE,
        ),
        (
            {"order_by": "run_at", "states": ["delayed", "waiting"], "queue": "q"},
            "states",
            DELAYED_ALONE,
        ),
        (
            {"order_by": "run_at", "states": ["delayed"], "name": "n"},
            "queue",
            "order_by='run_at' is served for one queue: give queue=",
        ),
        (
            {"order_by": "run_at", "states": ["delayed"], "queue": "q", "metadata": {"k": "v"}},
            "metadata",
            "order_by='run_at' is not served together with metadata=",
        ),
        (
            {"order_by": "finished_at"},
            "states",
            FINISHED_ALONE,
        ),
        (
            {"order_by": "finished_at", "states": ["failed", "active"]},
            "states",
            FINISHED_ALONE,
        ),
        (
            {"order_by": "finished_at", "states": ["failed"], "metadata": {"k": "v"}},
            "metadata",
            "order_by='finished_at' is not served together with metadata=",
        ),
    ],
)
def test_what_is_not_served_is_refused_with_what_would_be(
    options: dict[str, Any], option: str, told: str
) -> None:
    """The option that is in the way, what it would have to be, and the order that takes all."""
    with pytest.raises(ListOrderUnsupportedError) as caught:
        listing.route(read_query(**options))
    assert caught.value.option == option
    assert str(caught.value) == f"{told}; order_by='enqueued_at' serves any filters"


@pytest.mark.parametrize("order_by", ["seq", "", None, 5, ["run_at"]])
def test_an_unknown_order_is_refused_with_those_there_are(order_by: Any) -> None:
    """Whatever else is asked for."""
    with pytest.raises(ListOrderUnsupportedError, match="use order_by enqueued_at, run_at") as got:
        listing.route(read_query(order_by=order_by))
    assert got.value.option == "order_by"


def test_finished_states_are_served_one_by_one_and_together() -> None:
    """In one queue or all, with a name or without."""
    for number in (1, 2, 3):
        for states in itertools.combinations(sorted(FINISHED), number):
            for options in ({}, {"queue": "q"}, {"name": "n"}, {"queue": "q", "name": "n"}):
                asked = read_query(states=states, order_by="finished_at", **options)
                assert listing.route(asked).kind == "finished"


# Cursors


@given(query=queries(), place=places)
def test_a_cursor_is_read_back_as_the_place_it_stands_for(
    query: ListQuery, place: Position
) -> None:
    """Plain text that may stand in a URL, the same each time."""
    cursor = listing.write_cursor(query, place)
    assert cursor == listing.write_cursor(query, place)
    assert read_cursor(query, cursor) == place
    assert set(cursor.rstrip("=")) <= set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    )


@given(query=queries(), other=queries(), place=places)
def test_a_cursor_is_bound_to_its_question(
    query: ListQuery, other: ListQuery, place: Position
) -> None:
    """Another question refuses it; a question of the same content takes it."""
    cursor = listing.write_cursor(query, place)
    if query == other:
        assert read_cursor(other, cursor) == place
    else:
        with pytest.raises(ValueError, match="only limit may change between pages"):
            read_cursor(other, cursor)


@given(cursor=st.text(max_size=60), query=queries())
def test_text_that_is_no_cursor_is_refused_and_nothing_else_happens(
    cursor: str, query: ListQuery
) -> None:
    """Whatever is in it."""
    with pytest.raises(ValueError, match="cursor is not one that a list gave, or was altered"):
        read_cursor(query, cursor)


@given(query=queries(), place=places, data=st.data())
def test_an_altered_cursor_is_refused(
    query: ListQuery, place: Position, data: st.DataObject
) -> None:
    """A character changed, taken out or put in, anywhere."""
    cursor = listing.write_cursor(query, place)
    at = data.draw(st.integers(0, len(cursor)))
    new = data.draw(st.sampled_from(["", *"ABab01+/-_=é \n\0"]))
    gone = data.draw(st.integers(0, 2))
    altered = cursor[:at] + new + cursor[at + gone :]
    if altered == cursor:
        assert read_cursor(query, altered) == place
    else:
        with pytest.raises(ValueError, match="cursor is not one that a list gave"):
            read_cursor(query, altered)


def test_no_cursor_is_the_beginning() -> None:
    """None alone: the empty text is a cursor that got lost."""
    assert read_cursor(read_query(), None) is None
    with pytest.raises(ValueError, match="cursor is not one"):
        read_cursor(read_query(), "")


@pytest.mark.parametrize("cursor", [5, b"text", ["text"], True])
def test_a_cursor_that_is_not_text_is_refused(cursor: Any) -> None:
    """By its type."""
    with pytest.raises(TypeError, match=f"cursor must be text, got {type(cursor).__name__}"):
        read_cursor(read_query(), cursor)


# Merging


def test_a_reply_is_read_as_what_was_found() -> None:
    """Places in order, and how far the reading got, if anything follows."""
    reply = [b"ok", b"77", b"sets", b"1", b"12", "é:b".encode(), b"a", b"10", "é".encode(), b"11"]
    assert listing.found_of(reply) == Found([(10, "a"), (11, "é")], (12, "é:b"), 77, False)
    reply = [b"ok", b"0", b"metadata", b"0", b"", b""]
    assert listing.found_of(reply) == Found([], None, 0, True)


Member = tuple[int, str, bool]
"""Value, id, and whether the filters let it through."""

members = st.lists(
    st.tuples(st.integers(0, 3), ids, st.booleans()), max_size=40, unique_by=lambda one: one[1]
)


def _bytewise(one: Any) -> tuple[int, bytes]:
    return one[0], one[1].encode()


def _call(
    group: list[Member], position: Position | None, limit: int, budget: int, descending: bool
) -> Found:
    """What one call answers about one group of sets."""
    rest = sorted(group, key=_bytewise, reverse=descending)
    if position is not None:
        place = _bytewise(position)
        behind = [one for one in rest if _bytewise(one) != place]
        rest = [one for one in behind if (_bytewise(one) < place) == descending]
    jobs: list[Position] = []
    examined = 0
    for value, job_id, passes in rest:
        if examined == budget or len(jobs) == limit:
            break
        examined += 1
        if passes:
            jobs.append((value, job_id))
    reached = rest[examined - 1][:2] if examined < len(rest) else None
    return Found(jobs, reached, now=5)


@given(
    everything=members,
    groups=st.integers(1, 4),
    limit=st.integers(1, 7),
    budget=st.integers(1, 9),
    descending=st.booleans(),
    data=st.data(),
)
def test_what_several_calls_find_is_one_list(
    everything: list[Member], groups: int, limit: int, budget: int, descending: bool,
    data: st.DataObject,
) -> None:  # fmt: skip
    """Every place once and in order, in pages no longer than asked for, until nothing follows."""
    parted: list[list[Member]] = [[] for _ in range(groups)]
    for one in everything:
        parted[data.draw(st.integers(0, groups - 1))].append(one)
    query = read_query(order="desc" if descending else "asc")
    got: list[Position] = []
    position: Position | None = None
    for _ in range(2 * len(everything) + 2):
        answers = [_call(group, position, limit, budget, descending) for group in parted]
        found = merge(answers, query, limit)
        assert len(found.jobs) <= limit
        assert found.now == 5
        got += found.jobs
        position = found.reached
        if position is None:
            break
    else:
        raise AssertionError("the walk does not end")
    passing = [(value, job_id) for value, job_id, passes in everything if passes]
    assert got == sorted(passing, key=_bytewise, reverse=descending)


def test_a_merge_goes_no_further_than_the_call_that_got_least_far() -> None:
    """What another call found behind it may have something of the first before it."""
    short = Found([(1, "a")], (2, "b"), 9)
    ahead = Found([(1, "B"), (2, "b0"), (3, "c")], None, 9)
    merged = merge([short, ahead], read_query(order="asc"), 50)
    assert merged == Found([(1, "B"), (1, "a")], (2, "b"), 9)


def test_a_full_merge_ends_at_its_last_job() -> None:
    """Whatever the calls had read beyond it is read again."""
    parts = [Found([(1, "a"), (2, "c")], None, 9), Found([(1, "b"), (3, "d")], None, 9)]
    merged = merge(parts, read_query(order="asc"), 3)
    assert merged == Found([(1, "a"), (1, "b"), (2, "c")], (2, "c"), 9)
    assert merge(parts, read_query(order="asc"), 4).reached is None


def test_one_answer_is_its_own_merge() -> None:
    """With all that it says."""
    found = Found([(1, "a")], (1, "a"), 9, True)
    assert merge([found], read_query(), 1) is found
