"""Which jobs a worker takes first, and which stores and queues it serves."""

from __future__ import annotations

import pytest
from servers import Server
from worker.build import LONG, all_finished, finished, worker_of

import mq
from mq.store import Store


def order_of_runs(app: mq.App, number: int, **options: object) -> list[str]:
    """Run what waits on one thread; the queues in the order in which jobs ran."""
    ran: list[str] = []

    @app.job("note")
    def note(word: str, ctx: mq.Context) -> None:
        """Note the queue."""
        ran.append(ctx.queue)

    producers = {"a": 30, "b": 30, "c": 30}
    for queue, count in producers.items():
        note.enqueue_many(["x"] * count, queue=queue)
    with worker_of(app, concurrency=1, **options):
        all_finished(app.store, number)
    return ran


def test_strict_order_empties_the_first_queue_first(app: mq.App) -> None:
    """Then the second, and so on."""
    ran = order_of_runs(app, 90, queues=["b", "a", "c"], strict=True)
    assert ran == ["b"] * 30 + ["a"] * 30 + ["c"] * 30


def test_weights_share_and_starve_nobody(app: mq.App) -> None:
    """The heaviest comes first most of the time, the lightest comes at all."""
    ran = order_of_runs(app, 90, queues={"a": 100, "b": 10, "c": 1})
    assert len(ran) == 90
    assert ran[:30].count("a") > 20
    assert ran.index("c") < 90


def test_a_queue_that_is_not_served_waits(app: mq.App, store: Store) -> None:
    """Until a worker names it."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    mine, other = noop.enqueue(None), noop.enqueue(None, queue="other")
    with worker_of(app, queues=["default"]):
        assert finished(store, mine) == ["completed"]
        found = store.get_job(other)
        assert found is not None
        assert found.state is mq.JobState.WAITING
    with worker_of(app, queues=["other"]):
        assert finished(store, other) == ["completed"]


def test_a_higher_priority_runs_first_across_names(app: mq.App) -> None:
    """FIFO inside a priority, whatever the job's name."""
    ran: list[str] = []

    @app.job("one")
    def one(word: str) -> None:
        """Note the word."""
        ran.append(word)

    @app.job("two")
    def two(word: str) -> None:
        """Note the word."""
        ran.append(word)

    for number in range(5):
        (one if number % 2 else two).enqueue(f"low {number}")
    for number in range(5):
        (two if number % 2 else one).enqueue(f"high {number}", priority=3)
    with worker_of(app, concurrency=1):
        all_finished(app.store, 10)
    assert ran == [f"high {n}" for n in range(5)] + [f"low {n}" for n in range(5)]


@pytest.fixture
def two_stores(one_server: Server) -> mq.App:
    """An app with a default store and one called audit, on one server."""
    return mq.App(one_server.url, stores={"audit": mq.Store(one_server.url, prefix="audit")})


def test_a_worker_serves_the_definitions_of_its_own_store(two_stores: mq.App) -> None:
    """Same queue, same server: the two never meet."""
    app = two_stores
    ran: list[str] = []

    @app.job("main")
    def main(word: str) -> None:
        """Note the word."""
        ran.append(word)

    @app.job("audit", store="audit")
    def audit(word: str) -> None:
        """Note the word."""
        ran.append(word)

    for number in range(3):
        main.enqueue(f"main {number}")
        audit.enqueue(f"audit {number}")
    with worker_of(app, concurrency=1):
        all_finished(app.store, 3)
    assert ran == [f"main {n}" for n in range(3)]
    with mq.Worker(app, store="audit", concurrency=1, poll_interval=LONG):
        all_finished(app.store_named("audit"), 3)
    assert ran[3:] == [f"audit {n}" for n in range(3)]
    app.close()


def test_a_queue_of_another_store_is_refused_with_both_named(two_stores: mq.App) -> None:
    """It says which store has it, and which one this worker serves."""
    app = two_stores

    @app.job("main")
    def main(word: str) -> None:
        """Nothing."""

    @app.job("audit", store="audit", queue="trail")
    def audit(word: str) -> None:
        """Nothing."""

    with pytest.raises(mq.DefinitionError, match=r"'trail' belongs to store 'audit'.*'default'"):
        worker_of(app, queues=["trail"])
    with pytest.raises(mq.DefinitionError, match="no store is named 'nowhere'"):
        worker_of(app, store="nowhere")
    app.close()


def test_a_worker_without_a_handler_is_refused(app: mq.App) -> None:
    """It would hold a process for nothing."""
    with pytest.raises(mq.DefinitionError, match="nothing to run"):
        worker_of(app)
    app.define("elsewhere", payload=str, result=None)
    with pytest.raises(mq.DefinitionError, match="1 without a handler"):
        worker_of(app)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": 1_000_000}, "concurrency"),
        ({"queues": []}, "queues"),
        ({"queues": "default"}, "queues"),
        ({"queues": {"default": 0}}, "weight of queue 'default'"),
        ({"queues": ["no:colon"]}, "queue"),
        ({"lock_duration": "1s", "lock_renew_interval": "1s"}, "lock_renew_interval"),
        ({"lock_duration": -1}, "lock_duration"),
        ({"poll_interval": 0}, "poll_interval"),
        ({"poll_interval": float("nan")}, "poll_interval"),
        ({"shutdown_grace": "-1s"}, "shutdown_grace"),
        ({"max_stalled_count": -1}, "max_stalled_count"),
        ({"id": ""}, "worker id"),
        ({"id": "x" * 65}, "worker id"),
        ({"nonsense": 1}, "nonsense"),
    ],
    ids=repr,
)
def test_an_option_that_cannot_work_is_refused_and_named(
    app: mq.App, options: dict[str, object], named: str
) -> None:
    """Before anything is started."""

    @app.job("noop")
    def noop(payload: None) -> None:
        """Nothing."""

    with pytest.raises((ValueError, TypeError), match=named):
        mq.Worker(app, **options)
