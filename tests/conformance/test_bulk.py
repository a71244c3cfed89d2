"""Verbs done to every job of a list: which jobs, how many at a time, and what is told of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from conformance.build import NAME, QUEUE, TOKEN, job, record, take
from conformance.crowd import (
    NAMES,
    QUEUES,
    all_records,
    calls_of,
    expected,
    fill,
    mixed,
    odd_ids,
    walk,
)
from servers import Server
from transitions.invariants import violations
from transitions.seed import snapshot

import mq
from mq import listing
from mq.clock import FakeClock
from mq.policies import Dedupe
from mq.records import BulkResult
from mq.states import JobState, Outcome
from mq.store import Store
from mq.store.lists import CANCELLABLE, REMOVABLE
from mq.store.steering import STEER_BATCH, Verb

VERBS: dict[str, tuple[Callable[..., BulkResult], tuple[JobState, ...]]] = {
    "cancel": (Store.cancel_where, CANCELLABLE),
    "retry": (Store.retry_where, (JobState.FAILED,)),
    "remove": (Store.remove_where, REMOVABLE),
}
"""Each verb and the states in which it may meet a job."""

AFTER = {
    ("cancel", JobState.WAITING): JobState.CANCELLED,
    ("cancel", JobState.DELAYED): JobState.CANCELLED,
    ("cancel", JobState.WAITING_CHILDREN): JobState.CANCELLED,
    ("cancel", JobState.ACTIVE): JobState.ACTIVE,
    ("retry", JobState.FAILED): JobState.WAITING,
    ("remove", JobState.WAITING): None,
    ("remove", JobState.DELAYED): None,
    ("remove", JobState.COMPLETED): None,
    ("remove", JobState.FAILED): None,
    ("remove", JobState.CANCELLED): None,
}
"""Where a job is when the verb is done."""


def sound(store: Store) -> bool:
    """Whether the keyspace is; a wake marker may outlive the last job of its queue and name."""
    return [one for one in violations(store) if ":wake:" not in one] == []


def states_of(store: Store, ids: Sequence[str]) -> dict[str, JobState | None]:
    """Where jobs are, by id; None for one that is gone."""
    return dict(zip(ids, store.get_states(ids), strict=True))


def test_the_states_that_a_verb_may_meet_are_those_it_changes() -> None:
    """No other state is offered, none is left out."""
    met = {(verb, state) for verb, (_, states) in VERBS.items() for state in states}
    assert met == set(AFTER)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "filters",
    [
        {"queue": QUEUES[0]},
        {"name": NAMES[1]},
        {"queue": QUEUES[1], "name": NAMES[0]},
        {"metadata": {"customer": "c1"}},
        {"metadata": {"customer": "c1", "tier": "gold"}, "queue": QUEUES[0]},
    ],
    ids=" ".join,
)
def test_a_verb_is_done_to_the_jobs_that_the_filters_match_and_no_others(
    store: Store, clock: FakeClock, verb: str, filters: dict[str, Any]
) -> None:
    """In order of enqueueing; a dry run tells exactly those and changes nothing."""
    do, states = VERBS[verb]
    fill(store, clock, mixed(84))
    before = {one.id: one.state for one in all_records(store)}
    wanted = expected(all_records(store), states=states, order="asc", **filters)
    assert 0 < len(wanted) < len(expected(all_records(store), states=states))
    content = snapshot(store)

    told = do(store, dry_run=True, **filters)
    assert told == BulkResult(wanted, {}, True)
    assert snapshot(store) == content

    clock.advance(1)
    assert do(store, **filters) == BulkResult(wanted, {}, False)
    after = states_of(store, list(before))
    for job_id, state in before.items():
        target = AFTER[verb, state] if job_id in wanted else state
        assert after[job_id] is target
    if verb == "cancel":
        flagged = {one.id for one in all_records(store) if one.cancel_requested}
        assert flagged == {one for one in wanted if before[one] is JobState.ACTIVE}
    assert sound(store)


@pytest.mark.parametrize("verb", VERBS)
def test_states_limit_the_jobs_that_a_verb_is_done_to(
    store: Store, clock: FakeClock, verb: str
) -> None:
    """Each state by itself, and states alone are filter enough."""
    do, states = VERBS[verb]
    fill(store, clock, mixed(42))
    for state in states:
        wanted = expected(all_records(store), states=[state], order="asc")
        others = states_of(store, [one.id for one in all_records(store) if one.id not in wanted])
        assert do(store, states=[state.value], dry_run=True).ids == wanted
        assert do(store, states=[state]).ids == wanted
        assert set(states_of(store, wanted).values()) == {AFTER[verb, state]}
        assert states_of(store, list(others)) == others
        if verb == "cancel" and AFTER[verb, state] is JobState.CANCELLED:
            store.remove_where(states=["cancelled"])
    assert sound(store)


def test_no_states_are_no_jobs(store: Store, clock: FakeClock) -> None:
    """An empty list of states matches nothing, here as in a list."""
    fill(store, clock, mixed(14))
    before = snapshot(store)
    asked: list[BulkResult] = []
    assert store.cancel_where(states=[], on_page=asked.append) == BulkResult([], {})
    assert store.remove_where(states=[], queue="q1", dry_run=True) == BulkResult([], {}, True)
    assert asked == []
    assert snapshot(store) == before


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("filters", [{}, {"metadata": {}}], ids=["nothing", "no pairs"])
def test_a_verb_without_a_filter_is_refused(
    store: Store, clock: FakeClock, verb: str, filters: dict[str, Any], dry_run: bool
) -> None:
    """Everything is asked for by name, not by leaving all out; a dry run is held to it as well."""
    fill(store, clock, mixed(14))
    before = snapshot(store)
    with pytest.raises(ValueError, match="needs a filter: give queue, name, states or metadata"):
        VERBS[verb][0](store, dry_run=dry_run, **filters)
    assert snapshot(store) == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_state_that_a_verb_cannot_meet_is_refused(store: Store, verb: str) -> None:
    """By name, with those it can; also beside one that it can."""
    do, allowed = VERBS[verb]
    cannot = {"cancel": "cancelled", "retry": "retried", "remove": "removed"}[verb]
    for state in set(JobState) - set(allowed):
        for states in ([state], [state.value, allowed[0]]):
            with pytest.raises(ValueError, match=f"a job that is {state} cannot be ") as caught:
                do(store, states=states)
            assert str(caught.value).endswith(f" {cannot}: use states {', '.join(allowed)}")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("queue", "a:b", "queue"),
        ("queue", 5, "queue"),
        ("name", "", "job name"),
        ("metadata", "text", "metadata"),
        ("metadata", {"k": 5}, "metadata"),
        ("states", "failed", "states"),
        ("states", ["done"], "state"),
    ],
)
def test_a_filter_that_cannot_be_is_refused_as_a_list_refuses_it(
    store: Store, verb: str, option: str, value: Any, told: str
) -> None:
    """Nothing is done to any job."""
    store.enqueue(job("a"))
    before = snapshot(store)
    given = {"queue": "q", option: value}
    with pytest.raises((ValueError, TypeError), match=told):
        VERBS[verb][0](store, **given)
    assert snapshot(store) == before


def test_filters_that_match_nothing_do_nothing(store: Store, clock: FakeClock) -> None:
    """And are no error."""
    fill(store, clock, mixed(14))
    before = snapshot(store)
    for do, _ in VERBS.values():
        assert do(store, queue="other") == BulkResult([], {})
        assert do(store, metadata={"customer": "c"}) == BulkResult([], {})
    assert snapshot(store) == before


# Pages


def _many(store: Store, clock: FakeClock, verb: str, number: int) -> list[str]:
    """Jobs of one instant that the verb can be done to, in the order of a list."""
    state = JobState.FAILED if verb == "retry" else JobState.WAITING
    ids = odd_ids(number)
    fill(store, clock, [(job(one, name=NAMES[at % 3]), state) for at, one in enumerate(ids)], 1)
    return sorted(ids, key=str.encode)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("verb", VERBS)
def test_many_jobs_are_dealt_with_a_page_at_a_time(
    store: Store, clock: FakeClock, verb: str, dry_run: bool
) -> None:
    """Ties over several pages: each once, in order; each page is told when it is done."""
    ids = _many(store, clock, verb, 3 * STEER_BATCH + 7)
    told: list[BulkResult] = []
    done: list[set[str]] = []

    def look(page: BulkResult) -> None:
        told.append(page)
        state = {"cancel": "cancelled", "retry": "waiting", "remove": "waiting"}[verb]
        done.append(set(walk(store, states=[state])))

    result = VERBS[verb][0](store, queue=QUEUE, dry_run=dry_run, on_page=look)
    assert result == BulkResult(ids, {}, dry_run)
    assert [page.ids for page in told] == [
        ids[at : at + STEER_BATCH] for at in range(0, len(ids), STEER_BATCH)
    ]
    assert {page.dry_run for page in told} == {dry_run}
    for at, seen in enumerate(done, 1):
        so_far = set() if dry_run else set(ids[: at * STEER_BATCH])
        assert seen == (set(ids) - so_far if verb == "remove" else so_far)
    assert sound(store)


def test_each_call_deals_with_a_bounded_number_of_jobs(
    real_store: Store, real_server: Server
) -> None:
    """Two calls a page: one finds, one acts; a dry run only finds."""
    real_store.enqueue_many(job() for _ in range(4 * STEER_BATCH))
    for dry_run, calls in ((True, 4), (False, 8)):
        real_server.cli("CONFIG", "RESETSTAT")
        assert len(real_store.cancel_where(queue=QUEUE, dry_run=dry_run).ids) == 4 * STEER_BATCH
        assert calls_of(real_server, "evalsha") == [calls]


def test_a_page_that_finds_nothing_does_not_end_the_work(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata that few have, among more jobs than one call looks at."""
    monkeypatch.setattr(listing, "BUDGET", 20)
    rare = {"customer": "rare"}
    store.enqueue_many(
        job(f"{at:03}", metadata=rare if at in {0, 90, 149} else {}) for at in range(150)
    )
    told: list[BulkResult] = []
    result = store.cancel_where(metadata=rare, on_page=told.append)
    assert result.ids == ["000", "090", "149"]
    assert [one for page in told for one in page.ids] == result.ids
    assert store.counts()[JobState.CANCELLED] == 3


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_metadata_and_states_together_name_the_jobs(
    store: Store, clock: FakeClock, declared: bool
) -> None:
    """Where an index of the value finds them as well, which holds jobs of every state."""
    if declared:
        store.declare_index(["customer"])
    mine = [(job(f"m{at}", metadata={"customer": "c1"}), state)
            for at, state in enumerate((JobState.FAILED, JobState.WAITING) * 3)]  # fmt: skip
    fill(store, clock, [*mine, *((job(f"x{at:02}"), JobState.FAILED) for at in range(40))], 1)
    given: dict[str, Any] = {"states": ["failed"], "metadata": {"customer": "c1"}}
    assert store.remove_where(dry_run=True, **given).ids == ["m0", "m2", "m4"]
    assert store.remove_where(**given) == BulkResult(["m0", "m2", "m4"], {}, False)
    assert walk(store, metadata={"customer": "c1"}, order="asc") == ["m1", "m3", "m5"]
    assert store.counts()[JobState.FAILED] == 40


def test_more_sets_than_one_call_merges_are_dealt_with_in_order(store: Store) -> None:
    """300 names, several pages."""
    ids = odd_ids(300)
    store.enqueue_many(job(one, name=f"n{at}") for at, one in enumerate(ids))
    assert store.cancel_where(queue=QUEUE).ids == sorted(ids, key=str.encode)
    assert store.counts()[JobState.CANCELLED] == 300


@pytest.mark.parametrize("verb", VERBS)
def test_jobs_that_come_after_the_beginning_are_not_chased(
    store: Store, clock: FakeClock, verb: str
) -> None:
    """However many are enqueued between the pages, the work ends with those it began with."""
    ids = _many(store, clock, verb, 2 * STEER_BATCH + 1)
    came, rounds = itertools.count(), itertools.count()

    def on_page(_: BulkResult) -> None:
        clock.advance(1)
        assert next(rounds) < 9, "it goes on for ever"
        new = [
            job(f"new{next(came):04}", name=NAMES[at % 3], priority=20) for at in range(STEER_BATCH)
        ]
        if verb == "retry":
            fill(store, clock, [(one, JobState.FAILED) for one in new], 1)
        else:
            store.enqueue_many(new)

    result = VERBS[verb][0](store, queue=QUEUE, on_page=on_page)
    assert result == BulkResult(ids, {}, False)
    new = [f"new{at:04}" for at in range(next(came))]
    untouched = JobState.FAILED if verb == "retry" else JobState.WAITING
    assert len(new) >= 2 * STEER_BATCH
    assert set(states_of(store, new).values()) == {untouched}


def test_a_job_that_is_retried_and_fails_again_meanwhile_is_not_retried_twice(
    store: Store, clock: FakeClock
) -> None:
    """A worker that fails everything at once keeps nobody busy for ever."""
    ids = _many(store, clock, "retry", 2 * STEER_BATCH)

    def fail_again(_: BulkResult) -> None:
        clock.advance(1)
        for job_id in take(store, 100, names=NAMES):
            store.ack_failed(job_id, TOKEN)

    assert store.retry_where(queue=QUEUE, on_page=fail_again).ids == ids
    assert store.counts()[JobState.FAILED] == len(ids)
    assert {record(store, one).runs for one in ids} == {2}


def test_work_that_was_interrupted_is_begun_again(store: Store, clock: FakeClock) -> None:
    """What was done stays done; the second time finds what is left."""
    ids = _many(store, clock, "cancel", 2 * STEER_BATCH)

    def interrupt(_: BulkResult) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.cancel_where(queue=QUEUE, on_page=interrupt)
    assert store.counts()[JobState.CANCELLED] == STEER_BATCH
    assert store.cancel_where(queue=QUEUE).ids == ids[STEER_BATCH:]
    assert store.counts()[JobState.CANCELLED] == 2 * STEER_BATCH


# What changes between being found and being dealt with


class Meddled(Store):
    """A store in which something happens just before jobs that were found are dealt with."""

    meanwhile: Callable[[], object] | None = None

    def steer(self, verb: Verb, job_ids: Any, states: Any = ()) -> list[tuple[str, str]]:
        """Let it happen, once."""
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return super().steer(verb, job_ids, states)


@pytest.fixture
def meddled(server: Server, clock: FakeClock) -> Iterator[Meddled]:
    """An empty store that can be meddled with."""
    opened = Meddled(server.url, clock=clock)
    yield opened
    opened.close()


def _claim(store: Store, job_id: str) -> None:
    assert take(store) == [job_id]  # the first in line


def _complete(store: Store, job_id: str) -> None:
    _claim(store, job_id)
    store.ack_completed(job_id, TOKEN)


REFUSED: dict[str, tuple[str, JobState, Callable[[Store, str], object], str]] = {
    "cancel of one that completed": ("cancel", JobState.WAITING, _complete, "not_cancellable"),
    "cancel of one that was cancelled": (
        "cancel", JobState.WAITING, Store.cancel, "not_cancellable",
    ),
    "cancel of one that was removed": ("cancel", JobState.WAITING, Store.remove, "not_found"),
    "retry of one that was retried": ("retry", JobState.FAILED, Store.retry, "not_retryable"),
    "retry of one that was removed": ("retry", JobState.FAILED, Store.remove, "not_found"),
    "removal of one that was claimed": ("remove", JobState.WAITING, _claim, "not_removable"),
    "removal of one that was removed": ("remove", JobState.WAITING, Store.remove, "not_found"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_job_that_changed_meanwhile_is_told_as_refused(
    meddled: Meddled, clock: FakeClock, what: str
) -> None:
    """With the store's word; the others of its page are dealt with."""
    verb, state, act, word = REFUSED[what]
    fill(meddled, clock, [(job("b"), state)], 1)
    fill(meddled, clock, [(job(one), state) for one in "ac"], 1)
    meddled.meanwhile = lambda: act(meddled, "b")
    told: list[BulkResult] = []
    result = VERBS[verb][0](meddled, queue=QUEUE, on_page=told.append)
    assert result == BulkResult(["a", "c"], {"b": word}, False)
    assert told == [result]
    assert set(states_of(meddled, ["a", "c"]).values()) == {AFTER[verb, state]}
    assert sound(meddled)


def _retry(store: Store, job_id: str) -> None:
    store.retry(job_id)


LEFT_THE_LIST: dict[str, tuple[str, JobState, Callable[[Store, str], object], JobState]] = {
    "removal of failed jobs, one retried": ("remove", JobState.FAILED, _retry, JobState.WAITING),
    "cancel of waiting jobs, one claimed": ("cancel", JobState.WAITING, _claim, JobState.ACTIVE),
    "removal of delayed jobs, one promoted": (
        "remove", JobState.DELAYED, Store.promote, JobState.WAITING,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_THE_LIST)
def test_a_job_that_left_the_states_asked_for_meanwhile_is_left_alone(
    meddled: Meddled, clock: FakeClock, what: str
) -> None:
    """It would be dealt with in its new state, too, had anybody asked for that: it is refused."""
    verb, state, act, where = LEFT_THE_LIST[what]
    fill(meddled, clock, [(job("b"), state)], 1)
    fill(meddled, clock, [(job(one), state) for one in "ac"], 1)
    meddled.meanwhile = lambda: act(meddled, "b")
    result = VERBS[verb][0](meddled, queue=QUEUE, states=[state])
    assert result.ids == ["a", "c"]
    assert result.refused.keys() == {"b"}
    assert record(meddled, "b").state is where
    assert not record(meddled, "b").cancel_requested


def test_a_state_that_begins_like_another_is_another(store: Store, clock: FakeClock) -> None:
    """A job that waits for its children does not wait, and the other way round."""
    waits, parked = JobState.WAITING, JobState.WAITING_CHILDREN
    fill(store, clock, [(job("w"), waits), (job("p"), parked)])
    assert store.steer("cancel_request", ["w"], [parked]) == [("changed", waits)]
    assert store.steer("cancel_request", ["p"], [waits]) == [("changed", parked)]
    assert store.steer("cancel_request", ["p", "w"], [waits, parked]) == [
        ("cancelled", parked), ("cancelled", waits),
    ]  # fmt: skip


def test_refusals_of_several_pages_are_told_together(meddled: Meddled, clock: FakeClock) -> None:
    """Each on its page, all in the total."""
    ids = _many(meddled, clock, "cancel", 2 * STEER_BATCH)
    told: list[BulkResult] = []

    def on_page(page: BulkResult) -> None:
        told.append(page)
        meddled.meanwhile = lambda: meddled.remove(ids[-1])

    meddled.meanwhile = lambda: meddled.remove(ids[0])
    result = meddled.cancel_where(queue=QUEUE, on_page=on_page)
    assert result == BulkResult(ids[1:-1], {ids[0]: "not_found", ids[-1]: "not_found"}, False)
    assert [page.refused for page in told] == [{ids[0]: "not_found"}, {ids[-1]: "not_found"}]


# What the verbs leave


def test_cancel_leaves_one_entry_a_job_and_asks_a_running_one(store: Store) -> None:
    """As the single form does; asked for twice, the running one is asked again and no other."""
    store.enqueue_many(job(one) for one in "ab")
    assert take(store) == ["a"]
    assert store.cancel_where(queue=QUEUE).ids == ["a", "b"]
    assert [entry.outcome for entry in store.get_attempts("b")] == [Outcome.CANCELLED]
    assert store.get_attempts("a") == []
    assert store.cancel_where(queue=QUEUE) == BulkResult(["a"], {}, False)
    assert store.ack_retried("a", TOKEN, 0) == "cancelled"
    assert store.cancel_where(queue=QUEUE) == BulkResult([], {}, False)


def test_retry_gives_every_failed_job_a_fresh_budget_and_its_place_in_order(
    store: Store, clock: FakeClock
) -> None:
    """They run in the order in which they were enqueued."""
    fill(store, clock, [(job(one), JobState.FAILED) for one in "dacb"], 4)
    assert store.retry_where(name=NAME).ids == ["d", "a", "c", "b"]
    assert {record(store, one).attempts_made for one in "abcd"} == {0}
    assert take(store, 4) == ["d", "a", "c", "b"]


def test_remove_frees_dedup_keys_and_index_entries(store: Store) -> None:
    """Nothing is left of the jobs, in no key."""
    store.declare_index(["customer"])
    bare = set(snapshot(store))
    store.enqueue_many(
        job(f"{at:02}", metadata={"customer": "c1"}, dedupe=Dedupe(f"k{at}")) for at in range(60)
    )
    assert len(store.remove_where(metadata={"customer": "c1"}).ids) == 60
    kinds = ("job:", "payload:", "extra:", "dedup:", "metadata:", "index:", "waiting:")
    left = {key.removeprefix(store.keys.root) for key in set(snapshot(store)) - bare}
    assert [key for key in left if key.startswith(kinds)] == []
    assert store.enqueue(job("again", dedupe=Dedupe("k0"))).duplicate is False


# Typed


@pytest.fixture
def app(server: Server) -> Iterator[mq.App]:
    """An app on each back end."""
    opened = mq.App(server.url)
    yield opened
    opened.close()


def test_the_verbs_of_a_definition_touch_only_jobs_of_its_name(app: mq.App) -> None:
    """Its name is filter enough; others in the same queue and with the same metadata stay."""
    mail = app.define("mail", payload=str, result=None, queue="q")
    bill = app.define("bill", payload=str, result=None, queue="q")
    store = mail.store
    for definition in (mail, bill):
        definition.enqueue_many(["x"] * 3, metadata={"customer": "c1"})
        definition.enqueue_many(["x"] * 2, queue="other")
    own = walk(store, name="mail", order="asc")

    told = mail.cancel_where(dry_run=True)
    assert (told.ids, told.dry_run) == (own, True)
    assert mail.counts()[JobState.WAITING] == 5
    assert mail.cancel_where(metadata={"customer": "c1"}).ids == own[:3]
    pages: list[BulkResult] = []
    assert mail.cancel_where(queue="other", states=["waiting"], on_page=pages.append).ids == own[3:]
    assert [page.ids for page in pages] == [own[3:]]
    assert mail.cancel_where().ids == []
    assert mail.counts()[JobState.CANCELLED] == 5

    assert mail.remove_where(queue="q", dry_run=True).ids == own[:3]
    assert mail.remove_where(queue="q", states=["cancelled"]).ids == own[:3]
    assert mail.remove_where().ids == own[3:]
    assert sum(mail.counts().values()) == 0
    assert bill.counts()[JobState.WAITING] == 5


def test_retry_of_a_definition_touches_only_jobs_of_its_name(app: mq.App) -> None:
    """In one queue or in all."""
    mail = app.define("mail", payload=str, result=None, queue="q")
    bill = app.define("bill", payload=str, result=None, queue="q")
    store = mail.store
    for definition in (mail, bill):
        definition.enqueue_many(["x"] * 2, metadata={"customer": "c1"})
        definition.enqueue("x", queue="other")
    for one in store.claim(["q", "other"], ["mail", "bill"], TOKEN, 60_000, 10).jobs:
        store.ack_failed(one.id, TOKEN)
    own = walk(store, name="mail", order="asc")
    assert mail.retry_where(metadata={"customer": "c2"}).ids == []
    assert mail.retry_where(dry_run=True).ids == own
    assert mail.retry_where(states=["failed"], queue="other").ids == own[2:]
    assert mail.retry_where().ids == own[:2]
    assert mail.counts()[JobState.WAITING] == 3
    assert bill.counts()[JobState.FAILED] == 3
