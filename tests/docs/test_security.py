"""The rights that the security page asks for are enough, and no more than that."""

from __future__ import annotations

import re
import shlex
import threading

import pytest
from docs.blocks import ROOT, blocks_of
from helpers import wait_until
from servers import Server

import mq
from mq.flows import FlowResults
from mq.records import Child, Request
from mq.scripts import load_scripts
from mq.states import JobState
from mq.store.families import ChildReport, ChildRow

(RIGHTS,) = blocks_of(ROOT / "SECURITY.md")
SENT_BY_CLIENTS = {"evalsha", "script|load", "ping", "bzpopmin", "subscribe", "unsubscribe"}


def test_a_user_with_the_rights_on_the_page_may_run_steer_and_list_jobs(
    real_server: Server,
) -> None:
    """Runs, retries, progress, cancels, pauses, dedup keys, indexes, lists, schedules, flows."""
    real_server.cli(*shlex.split(RIGHTS.text))
    real_server.cli("ACL", "LOG", "RESET")
    app = mq.App(
        real_server.url,
        username="service",
        password="password",
        retry_for=0,
        indexed_metadata=["number"],
    )
    held = threading.Event()

    @app.job("double", attempts=2, metadata=lambda number: {"number": str(number)})
    def double(number: int, ctx: mq.Context) -> int:
        ctx.progress(number)
        if number == 0:
            held.set()
            ctx.cancelled.wait(20)
        if ctx.attempt == 1:
            raise ValueError(number)
        return 2 * number

    total = app.define("total", payload=int, result=int)
    flow = app.flow("total", parent=total, children=[double], on_child_failure="fail")

    @flow.fan_out
    def children(count: int) -> list[Child]:
        if count < 0:
            return [double.child("fails", 1, attempts=1)]
        return [double.child(str(at), at, attempts=2) for at in range(1, count + 1)]

    @flow.collect
    def collect(count: int, results: FlowResults) -> int:
        return sum(child.value for child in results.all())

    with mq.Worker(app):
        assert flow.execute(2, wait="20s") == 6
        with pytest.raises(mq.JobFailedError):
            flow.execute(-1, wait="20s")
        parent = flow.enqueue(0)
        assert flow.await_result(parent, timeout="20s") == 0
        job_id = double.enqueue(21)
        assert double.await_result(job_id, timeout="20s") == 42
        assert len(double.attempts(job_id)) == 2
        running = double.enqueue(0)
        assert held.wait(20)
        double.cancel(running)
        wait_until(lambda: double.get_job(running).state == "cancelled", what="the cancel")
        failed = double.enqueue(1, attempts=1)
        wait_until(lambda: double.get_job(failed).state == "failed", what="the failure")
    assert len(total.remove_where(queue="default").ids) == 3
    _steer(app, double, failed)
    _tend(app, double)
    app.close()
    denied = [entry for entry in real_server.cli("ACL", "LOG") if b"service" in entry]
    real_server.cli("ACL", "DELUSER", "service")
    assert [entry[entry.index(b"object") + 1] for entry in denied] in ([], [b"hello"], [b"info"])


def _steer(app: mq.App, double: mq.Job[int, int], failed: str) -> None:
    """Do everything that a person may ask for, with a store of more than one page."""
    store = app.store
    double.pause()
    double.retry(failed)
    double.enqueue(2, delay="1h", dedupe=mq.Dedupe("k", replace=True))
    later = double.enqueue(3, delay="1h", dedupe="k")
    double.promote(later)
    assert double.cancel_by_key("k")
    double.enqueue(4, dedupe=mq.Dedupe("w", ttl=0.001))
    wait_until(lambda: store.window_sweep() == 1, what="the end of the window")
    store.declare_index(["other"])
    while store.backfill():
        pass
    first = double.list(metadata={"number": "3"}, limit=1)
    assert [job.id for job in first.items] == [later]
    page = store.list(queue="default", limit=1)
    assert store.list(queue="default", limit=1, cursor=page.cursor).items
    assert double.cancel_where(states=[JobState.WAITING]).ids
    assert double.remove_where(queue="default").ids
    assert store.paused_queues() == ["default"]
    double.resume()
    assert sum(store.counts().values()) == 0


def _tend(app: mq.App, double: mq.Job[int, int]) -> None:
    """Do what is done by and by: schedules, flows that need a sweep, retention."""
    store = app.store
    double.schedule("hourly", every="1h", payload=5)
    double.schedule("daily", cron="0 4 * * *", tz="Europe/Paris", payload=6)
    (first, _) = store.list_schedules(name="double")
    slot = first.next_run_at
    assert store.tick("double", first.key, slot, slot + 1, first.occurrence(slot))
    assert store.advance_schedule("double", first.key, slot + 1, slot + 2)
    assert store.pause_schedule("double", first.key)
    assert store.resume_schedule("double", first.key)
    assert store.due_schedules().schedules == []
    assert double.unschedule("hourly")
    assert double.unschedule("daily")

    parent = store.enqueue(Request(name="p", queue="q", payload=b"", keep="cancelled=0/*")).id
    (claimed,) = store.claim(["q"], ["p"], "token", 1_000).jobs
    store.write_manifest(claimed.id, "token", [ChildRow("a", b"row"), ChildRow("b", b"")], "fail")
    store.ack_fanned_out(claimed.id, "token")
    assert [row.key for row in store.next_children(parent)] == ["a", "b"]
    assert [row.key for row in store.flow_sweep_work(0)] == ["a", "b"]
    assert store.record_child_results([ChildReport(parent, "a", "completed", b"r")]) == [True]
    assert store.cancel(parent) == "cancelled"
    store.mark_children_delivered(parent, ["b"])
    assert store.prune() >= 1
    entries = store.peek_outbox()
    store.delete_outbox([entry.id for entry in entries])
    assert store.peek_outbox() == []


def test_the_page_asks_for_no_right_that_nothing_needs() -> None:
    """What the scripts call, what the client sends, and nothing besides."""
    texts = [script.text for script in load_scripts().values()]
    called = {
        command.lower()
        for text in texts
        for command in re.findall(r"(?:redis\.call|write_later)\('([A-Z]+)'", text)
    }
    assert set(re.findall(r"\+(\S+)", RIGHTS.text)) == called | SENT_BY_CLIENTS
