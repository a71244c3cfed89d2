"""The rights that the security page asks for are enough, and no more than that."""

from __future__ import annotations

import re
import shlex
import threading

from docs.blocks import ROOT, blocks_of
from helpers import wait_until
from servers import Server

import mq
from mq.scripts import load_scripts
from mq.states import JobState

(RIGHTS,) = blocks_of(ROOT / "SECURITY.md")
SENT_BY_CLIENTS = {"evalsha", "script|load", "ping", "bzpopmin", "subscribe", "unsubscribe"}


def test_a_user_with_the_rights_on_the_page_may_run_steer_and_list_jobs(
    real_server: Server,
) -> None:
    """Runs, retries, progress, cancels, pauses, dedup keys, indexes, lists: nothing is denied."""
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

    with mq.Worker(app):
        job_id = double.enqueue(21)
        assert double.await_result(job_id, timeout="20s") == 42
        assert len(double.attempts(job_id)) == 2
        running = double.enqueue(0)
        assert held.wait(20)
        double.cancel(running)
        wait_until(lambda: double.get_job(running).state == "cancelled", what="the cancel")
        failed = double.enqueue(1, attempts=1)
        wait_until(lambda: double.get_job(failed).state == "failed", what="the failure")
    _steer(app, double, failed)
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


def test_the_page_asks_for_no_right_that_nothing_needs() -> None:
    """What the scripts call, what the client sends, and nothing besides."""
    texts = [script.text for script in load_scripts().values()]
    called = {
        command.lower()
        for text in texts
        for command in re.findall(r"(?:redis\.call|write_later)\('([A-Z]+)'", text)
    }
    assert set(re.findall(r"\+(\S+)", RIGHTS.text)) == called | SENT_BY_CLIENTS
