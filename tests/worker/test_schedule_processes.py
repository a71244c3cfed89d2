"""Schedules under worker processes: one is stopped in mid-pass, hosts have wrong clocks."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import attrs
import pytest
from helpers import Processes, Running, wait_until
from servers import Server
from transitions.invariants import violations
from worker.build import HERE, finished, outcomes, record, seen

import mq
from mq.records import ScheduleRecord
from mq.store import Store

NUMBER = 300
LIMIT_S = 60
"""Far above what any step here takes."""


def skewed(proc: Processes, server: Server, skew_s: int, **env: str) -> Running:
    """Start a worker whose clock is wrong by so much; waits until it works."""
    given = {"MQ_URL": server.url, "SKEW_S": str(skew_s), **env}
    running = proc.python("skewed_worker.py", env=given, cwd=HERE)
    running.wait_for(" started: ")
    return running


@pytest.fixture
def app(one_server: Server) -> Iterator[mq.App]:
    """What a producer knows of the jobs that the processes run."""
    made = mq.App(one_server.url)
    for name in ("note", "stay"):
        made.define(name, payload=str)
    made.define("late", payload=str, attempts=2, backoff=mq.fixed("0.4s"))
    made.define("step", payload=int)
    yield made
    made.close()


def found(store: Store, name: str, key: str) -> ScheduleRecord:
    """A schedule that exists."""
    read = store.get_schedule(name, key)
    assert read is not None
    return read


def ids_in(store: Store, queue: str) -> list[str]:
    """Every job of a queue."""
    ids, cursor = [], None
    while True:
        page = store.list(queue=queue, limit=200, cursor=cursor, bodies=False)
        ids += [one.id for one in page.items]
        cursor = page.cursor
        if cursor is None:
            return sorted(ids)


def test_a_process_that_is_stopped_in_mid_pass_leaves_one_job_an_occurrence(
    app: mq.App, one_server: Server, proc: Processes
) -> None:
    """Beyond its locks, and then it goes on; the clocks of all three hosts differ by minutes."""
    store, note, stay = app.store, app.jobs["note"], app.jobs["stay"]
    # Nobody serves this queue: the jobs stay where they can be counted.
    note.schedule("k000", every="1h", payload="a", queue="counted")
    first, slot = found(store, "note", "k000"), store.now_ms()
    keys = [f"k{at:03}" for at in range(NUMBER)]
    store.remove_schedule("note", "k000")
    for key in keys:
        store.upsert_schedule(attrs.evolve(first, key=key, next_run_at=slot))
    held = stay.enqueue("x")
    stopped = skewed(proc, one_server, 120, STOP_IN_PASS="1")
    wait_until(lambda: seen(one_server, "in-pass") and seen(one_server, "began"), LIMIT_S)
    (ticked_before,) = map(int, seen(one_server, "in-pass"))
    assert 0 < ticked_before < NUMBER
    one_server.cli("RPUSH", "stop-now", "1")
    for skew_s in (-120, 0):
        skewed(proc, one_server, skew_s)
    made = [f"sched/note/{key}/{slot}" for key in keys]
    wait_until(lambda: len(ids_in(store, "counted")) >= NUMBER, LIMIT_S, "every occurrence")
    # Its lock ran out and its job went to another: it has been away for longer than any lease.
    wait_until(lambda: "stalled" in outcomes(store, held), LIMIT_S, "the lock to run out")
    one_server.cli("RPUSH", "go-on", "1")
    stopped.signal(signal.SIGCONT)
    wait_until(lambda: seen(one_server, "went-on"), LIMIT_S, "the pass to end")
    assert seen(one_server, "went-on") == ["0"]
    assert ids_in(store, "counted") == made

    # The same schedules fall due together once more, with all three at work.
    later = store.now_ms()
    for key in keys:
        expected = found(store, "note", key).next_run_at
        assert store.advance_schedule("note", key, expected, later)
    wait_until(lambda: len(ids_in(store, "counted")) >= 2 * NUMBER, LIMIT_S, "the next occurrence")
    wait_until(lambda: not store.due_schedules().schedules, LIMIT_S, "all to be ticked")
    assert ids_in(store, "counted") == sorted(made + [f"sched/note/{key}/{later}" for key in keys])
    one_server.cli("RPUSH", "go:x", "1", "1")
    finished(store, held, timeout=LIMIT_S)
    assert violations(store) == []


def test_wrong_clocks_of_hosts_run_nothing_early_twice_or_backwards(
    app: mq.App, one_server: Server, proc: Processes
) -> None:
    """Five minutes fast, five minutes slow, and one that is set back by ten while a job runs."""
    store, note, stay, step, late = (
        app.store, app.jobs["note"], app.jobs["stay"], app.jobs["step"], app.jobs["late"],
    )  # fmt: skip
    for skew_s in (300, -300):
        # Far longer than the test, far shorter than the clocks are wrong.
        skewed(proc, one_server, skew_s, LOCK="30s")
    held = stay.enqueue("x")
    stepping = [step.enqueue(seconds) for seconds in (-600, 900)]
    wait_until(lambda: len(seen(one_server, "began")) == 3, LIMIT_S, "jobs to be held")
    delayed = [note.enqueue(str(n), delay=0.5 + n / 40) for n in range(30)]
    again = late.enqueue("once")
    made = note.schedule("k", every="0.2s", payload="tick")
    wait_until(lambda: seen(one_server, "ran").count("tick") >= 12, LIMIT_S, "a dozen occurrences")
    assert note.unschedule("k")
    for word in ("x", "step -600", "step 900"):
        one_server.cli("RPUSH", f"go:{word}", "1")
    ticks = [one.id for one in store.list(name="note", limit=500).items
             if one.id.startswith("sched/")]  # fmt: skip
    everything = [held, *stepping, *delayed, again, *ticks]
    assert set(finished(store, *everything, timeout=LIMIT_S)) == {"completed"}

    slots = sorted(int(job_id.rpartition("/")[2]) for job_id in ticks)
    assert len(set(slots)) == len(slots)
    assert {(slot - made.next_run_at) % 200 for slot in slots} == {0}
    assert outcomes(store, again) == ["retried", "completed"]
    for job_id in everything:
        read, ledger = record(store, job_id), store.get_attempts(job_id)
        assert read.stalled_count == 0
        assert len(ledger) == (2 if job_id == again else 1)
        last = max(read.enqueued_at, read.run_at) if job_id != again else read.enqueued_at
        for entry in ledger:
            assert entry.started_at is not None
            assert last <= entry.started_at <= entry.finished_at
            last = entry.finished_at + (400 if job_id == again else 0)
    for job_id, slot in zip(sorted(ticks), slots, strict=True):
        assert record(store, job_id).enqueued_at >= slot
