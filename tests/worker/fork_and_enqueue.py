"""Enqueues from a parent and its forked children at once, after connections were made."""

from __future__ import annotations

import os
import sys
import threading
import warnings

import mq

warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: the very case
app = mq.App(sys.argv[1])
note = app.define("note", payload=str, result=str)
number = int(sys.argv[2])

note.enqueue("before")
app.store.wait(["default"], ["nothing"], 10)
# A thread that enqueues all the while, so that locks are held when the fork happens.
stop = threading.Event()


def chatter() -> None:
    """Enqueue until told to stop."""
    while not stop.is_set():
        note.enqueue("chatter")


talker = threading.Thread(target=chatter)
talker.start()
children = []
for nth in range(3):
    child = os.fork()
    if child == 0:
        ids = [str(note.enqueue(f"child {nth}")) for _ in range(number)]
        assert len(set(ids)) == number
        assert all(app.store.get_job(job_id).name == "note" for job_id in ids[::10])
        assert app.store.wait(["default"], ["note"], 1_000)
        os._exit(0)
    children.append(child)
ids = [note.enqueue("parent") for _ in range(number)]
codes = [os.waitpid(child, 0)[1] for child in children]
stop.set()
talker.join()
assert codes == [0, 0, 0], codes
assert not any(job_id.duplicate for job_id in ids)
