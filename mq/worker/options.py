"""Every knob of a worker, checked where it is given."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from mq.durations import to_ms
from mq.validation import check_count, check_name

MAX_ID_BYTES = 64
MAX_CONCURRENCY = 1_000


def make_worker_id() -> str:
    """Return host:pid:random, cut to 64 bytes at the host; the random part makes it unique."""
    tail = f":{os.getpid()}:{secrets.token_hex(4)}"
    return socket.gethostname()[: MAX_ID_BYTES - len(tail)] + tail


def _duration(what: str, least_ms: int = 1) -> Any:
    def convert(value: Any) -> int:
        ms = to_ms(value, what)
        if ms < least_ms:
            raise ValueError(f"{what} must be at least {least_ms} ms, got {ms} ms")
        return ms

    return convert


def _check_queues(value: Sequence[str] | Mapping[str, int] | None) -> dict[str, int] | None:
    if value is None:
        return None
    if isinstance(value, str):
        raise TypeError(f"queues must be a list of names, got the text {value!r}: write [{value!r}]")
    weights = dict(value) if isinstance(value, Mapping) else dict.fromkeys(value, 1)
    if not weights:
        raise ValueError("queues is empty: name at least one, or leave it out for all")
    return {
        check_name(name, "queue"): check_count(weight, f"weight of queue {name!r}", 1, 1000)
        for name, weight in weights.items()
    }


@attrs.frozen(kw_only=True)
class WorkerOptions:
    """How a worker runs; durations may be given as numbers of seconds, timedelta or text.

    Args:
        concurrency: runs at a time, one thread each.
        queues: names, or names with weights; all queues of the store's definitions by default.
        strict: serve the queues strictly in the order given instead of by weight.
        lock_ms: how long a claim holds a job without a heartbeat.
        lock_renew_ms: interval of the heartbeat; half the lock by default.
        stalled_ms: interval of the stall sweep.
        max_stalled_count: how often a job may stall before it is failed.
        poll_ms: longest an idle worker waits before it looks by itself; wake-ups are pushed.
        shutdown_grace_ms: how long a stop waits for running jobs before it gives them back.
        burst: end when nothing is runnable instead of waiting for more.
        id: name of the worker in ledgers and locks, at most 64 bytes.
    """

    concurrency: int = attrs.field(
        default=10, converter=lambda value: check_count(value, "concurrency", 1, MAX_CONCURRENCY)
    )
    queues: dict[str, int] | None = attrs.field(default=None, converter=_check_queues)
    strict: bool = False
    lock_ms: int = attrs.field(default="30s", converter=_duration("lock_duration", 100))
    lock_renew_ms: int = attrs.field(converter=_duration("lock_renew_interval", 10))
    stalled_ms: int = attrs.field(default="30s", converter=_duration("stalled_interval", 10))
    max_stalled_count: int = attrs.field(
        default=1, converter=lambda value: check_count(value, "max_stalled_count", 0, 1_000_000)
    )
    poll_ms: int = attrs.field(default="5s", converter=_duration("poll_interval", 10))
    shutdown_grace_ms: int = attrs.field(default="25s", converter=_duration("shutdown_grace", 0))
    burst: bool = False
    id: str = attrs.field(factory=make_worker_id)

    @lock_renew_ms.default
    def _half_the_lock(self) -> float:
        return self.lock_ms / 2000

    def __attrs_post_init__(self) -> None:
        """Refuse combinations that cannot work."""
        if self.lock_renew_ms >= self.lock_ms:
            raise ValueError(
                f"lock_renew_interval ({self.lock_renew_ms} ms) must be shorter than lock_duration"
                f" ({self.lock_ms} ms), or locks expire between heartbeats"
            )
        if not 0 < len(self.id.encode()) <= MAX_ID_BYTES:
            raise ValueError(f"worker id must be 1 to {MAX_ID_BYTES} bytes, got {len(self.id.encode())}")


def read_options(**given: Any) -> WorkerOptions:
    """Return the options from their public names (`lock_duration`, `poll_interval`, ...).

    Raises:
        TypeError: a name is not an option, or a value has the wrong type.
        ValueError: a value cannot work; names the option.
    """
    public = {
        "lock_duration": "lock_ms",
        "lock_renew_interval": "lock_renew_ms",
        "stalled_interval": "stalled_ms",
        "poll_interval": "poll_ms",
        "shutdown_grace": "shutdown_grace_ms",
    }
    same = {"concurrency", "queues", "strict", "max_stalled_count", "burst", "id"}
    unknown = sorted(set(given) - set(public) - same)
    if unknown:
        raise TypeError(f"{unknown[0]!r} is not a worker option: use {', '.join(sorted({*public, *same}))}")
    return WorkerOptions(
        **{public.get(name, name): value for name, value in given.items() if value is not None}
    )
