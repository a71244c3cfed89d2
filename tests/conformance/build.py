"""Short forms for stories about a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mq.records import JobRecord, Request
from mq.store import Store

QUEUE = "q"
NAME = "n"
TOKEN = "token"
LOCK_MS = 1_000


def job(job_id: str | None = None, **given: Any) -> Request:
    """A request for a plain job."""
    given.setdefault("queue", QUEUE)
    given.setdefault("name", NAME)
    given.setdefault("payload", b"payload")
    return Request(id=job_id, **given)


def take(
    store: Store,
    limit: int = 1,
    *,
    names: tuple[str, ...] = (NAME,),
    queues: tuple[str, ...] = (QUEUE,),
    token: str = TOKEN,
    worker: str | None = "worker",
    lock_ms: int = LOCK_MS,
) -> list[str]:
    """Claim, and tell the ids."""
    return [one.id for one in store.claim(queues, names, token, lock_ms, limit, worker).jobs]


def record(store: Store, job_id: str) -> JobRecord:
    """The record of a job that exists."""
    found = store.get_job(job_id)
    assert found is not None
    return found


def outcomes(store: Store, job_id: str) -> list[str]:
    """The ledger as the words of its outcomes."""
    return [entry.outcome.value for entry in store.get_attempts(job_id)]


def act_before_repeats(
    store: Store, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> list[object]:
    """Do something whenever a call of the store is about to be sent again; what it came to."""
    repeat, acted = store._caller.repeat, []

    def interrupted(operation: Callable[[bool], Any]) -> Any:
        def told(repeated: bool) -> Any:
            if repeated:
                acted.append(act())
            return operation(repeated)

        return repeat(told)

    monkeypatch.setattr(store._caller, "repeat", interrupted)
    return acted
