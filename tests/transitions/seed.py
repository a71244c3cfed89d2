"""Puts a job into any state, and reads the whole keyspace of a store back."""

from __future__ import annotations

from typing import Any

import redis

from mq.policies import Dedupe, Keep, encode_keep
from mq.records import Request
from mq.states import JobState
from mq.store import Store
from mq.store.families import ChildRow, OnChildFailure

QUEUE = "queue"
NAME = "name"
JOB = "the-job"
TOKEN = "held-token"
WORKER = "worker-1"
CHILD = "the-child"
LOCK_MS = 10_000
DELAY_MS = 5_000

Content = dict[str, Any]


def raw(store: Store) -> redis.Redis:
    """The store's own client, for looking and writing past its verbs."""
    return store._caller.client


def seed(
    store: Store,
    state: JobState | None,
    job_id: str = JOB,
    *,
    queue: str = QUEUE,
    name: str = NAME,
    token: str = TOKEN,
    cancel: bool = False,
    attempts: int = 1,
    dedupe: Dedupe | None = None,
    keep: Keep | None = None,
    on_child_failure: OnChildFailure = "continue",
) -> None:
    """Put one job into ``state`` (None: leave it absent), its wake marker already taken.

    ``cancel`` asks for the cancel of an active job. A parked one waits for a single child, that
    nobody has enqueued.
    """
    if state is None:
        return
    delay = DELAY_MS if state is JobState.DELAYED else None
    store.enqueue(
        Request(
            name=name, queue=queue, payload=b"body", id=job_id, delay_ms=delay,
            attempts_max=attempts, metadata={"customer": "c-1"}, dedupe=dedupe,
            keep=encode_keep(keep),
        )
    )  # fmt: skip
    if state not in {JobState.WAITING, JobState.DELAYED}:
        claim = store.claim([queue], [name], token, LOCK_MS, worker=WORKER)
        assert [job.id for job in claim.jobs] == [job_id], "seed needs an empty line"
        if state is JobState.WAITING_CHILDREN:
            write_children(store, job_id, token, [CHILD], on_child_failure)
        _leave_active(store, state, job_id, token)
    if cancel:
        assert state is JobState.ACTIVE
        store.cancel(job_id)
    raw(store).delete(store.keys.wake(queue, name))


def _leave_active(store: Store, state: JobState, job_id: str, token: str) -> None:
    if state is JobState.COMPLETED:
        store.ack_completed(job_id, token, b"result")
    elif state is JobState.FAILED:
        store.ack_failed(job_id, token, b"failure", summary="ValueError: no")
    elif state is JobState.CANCELLED:
        store.ack_cancelled(job_id, token)
    elif state is JobState.WAITING_CHILDREN:
        store.ack_fanned_out(job_id, token)


def write_children(
    store: Store,
    job_id: str,
    token: str,
    keys: list[str],
    on_child_failure: OnChildFailure = "continue",
) -> None:
    """Note children of an active parent, as a fan-out does before its ack."""
    rows = [ChildRow(key, b"row of " + key.encode()) for key in keys]
    store.write_manifest(job_id, token, rows, on_child_failure)


def snapshot(store: Store) -> Content:
    """The full content of every key of the store's prefix."""
    client = raw(store)
    names = sorted(client.scan_iter(match=store.keys.root + "*", count=1000))
    types = _ask(client, [("TYPE", name) for name in names])
    read = {
        b"string": lambda name: ("GET", name),
        b"hash": lambda name: ("HGETALL", name),
        b"zset": lambda name: ("ZRANGE", name, 0, -1, "WITHSCORES"),
    }
    found = _ask(client, [read[kind](name) for name, kind in zip(names, types, strict=True)])
    return {name.decode(): _plain(content) for name, content in zip(names, found, strict=True)}


def _ask(client: redis.Redis, commands: list[tuple[Any, ...]]) -> list[Any]:
    pipe = client.pipeline(transaction=False)
    for command in commands:
        pipe.execute_command(*command)
    return list(pipe.execute())


def _plain(content: Any) -> Any:
    """Text for what is text, dict for a hash, {member: score} for a sorted set."""
    if isinstance(content, bytes):
        return content.decode("latin-1")
    if isinstance(content, dict):
        return {key.decode(): value.decode("latin-1") for key, value in content.items()}
    if content and isinstance(content[0], bytes):
        content = zip(content[::2], content[1::2], strict=True)
    return {member.decode(): int(score) for member, score in content}
