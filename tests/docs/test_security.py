"""The rights that the security page asks for are enough."""

from __future__ import annotations

import shlex

from docs.blocks import ROOT, blocks_of
from servers import Server

import mq


def test_the_rights_on_the_page_are_enough(real_server: Server) -> None:
    """A job goes from enqueue to a pushed result, with a retry and progress; nothing is denied."""
    (block,) = blocks_of(ROOT / "SECURITY.md")
    real_server.cli(*shlex.split(block.text))
    real_server.cli("ACL", "LOG", "RESET")
    app = mq.App(real_server.url, username="service", password="password", retry_for=0)

    @app.job("double", attempts=2, metadata=lambda number: {"number": str(number)})
    def double(number: int, ctx: mq.Context) -> int:
        ctx.progress(number)
        if ctx.attempt == 1:
            raise ValueError(number)
        return 2 * number

    with mq.Worker(app):
        job_id = double.enqueue(21)
        assert double.await_result(job_id, timeout="20s") == 42
        assert len(double.attempts(job_id)) == 2
        assert sum(app.store.counts().values()) == 1
    app.close()
    denied = [entry for entry in real_server.cli("ACL", "LOG") if b"service" in entry]
    real_server.cli("ACL", "DELUSER", "service")
    assert [entry[entry.index(b"object") + 1] for entry in denied] in ([], [b"hello"], [b"info"])
