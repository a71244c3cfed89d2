"""A process that forks after it has connected: each part has connections and ids of its own."""

from __future__ import annotations

from collections import Counter

from helpers import Processes
from servers import Server
from worker.build import HERE

import mq


def test_parent_and_children_enqueue_at_once(
    one_server: Server, proc: Processes, process_app: mq.App
) -> None:
    """No reply reaches the wrong one, no id is made twice, nobody hangs on an inherited lock."""
    number = 300
    parent = proc.python(str(HERE / "fork_and_enqueue.py"), one_server.url, str(number))
    assert parent.wait(60) == 0, parent.stderr
    store = process_app.store
    claimed = []
    while jobs := store.claim(["default"], ["note"], "token", 60_000, 100).jobs:
        claimed += jobs
    words = Counter(process_app.jobs["note"].payload_codec.decode(one.payload) for one in claimed)
    chatter = words.pop("chatter")
    assert chatter > 0
    assert words == {"before": 1, "parent": number, **{f"child {n}": number for n in range(3)}}
    assert len({one.id for one in claimed}) == len(claimed)
