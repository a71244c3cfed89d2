"""Every knob of a worker, checked where it is given."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import attrs

from mq.durations import Duration, to_ms
from mq.job_options import Executor
from mq.validation import MAX_ATTEMPTS, check_count, check_name, check_text

MAX_ID_BYTES = 64
MAX_CONCURRENCY = 1_000


def make_worker_id() -> str:
    """Return host:pid:random, cut to 64 bytes at the host; the random part makes it unique."""
    tail = f":{os.getpid()}:{secrets.token_hex(4)}"
    return socket.gethostname()[: MAX_ID_BYTES - len(tail)] + tail


def _duration(value: Duration, what: str, least_ms: int) -> int:
    ms = to_ms(value, what)
    if ms < least_ms:
        raise ValueError(f"{what} must be at least {least_ms} ms, got {ms} ms")
    return ms


def _queues(value: Sequence[str] | Mapping[str, int]) -> dict[str, int]:
    if isinstance(value, str):
        raise TypeError(
            f"queues must be a list of names, got the text {value!r}: write [{value!r}]"
        )
    weights = dict(value) if isinstance(value, Mapping) else dict.fromkeys(value, 1)
    if not weights:
        raise ValueError("queues is empty: name at least one, or leave it out for all")
    return {
        check_name(name, "queue"): check_count(weight, f"weight of queue {name!r}", 1, 1000)
        for name, weight in weights.items()
    }


def _executor(value: Executor) -> Executor:
    if value not in get_args(Executor):
        raise ValueError(f"executor must be 'thread' or 'process', got {value!r}")
    return value


def _id(value: str) -> str:
    return check_text(value, "worker id", max_bytes=MAX_ID_BYTES)


@attrs.frozen(kw_only=True)
class WorkerOptions:
    """How a worker runs; made by `read_options` from what a user writes.

    Args:
        concurrency: runs at a time, one thread each.
        queues: names and weights; None for all queues of the store's definitions.
        strict: serve the queues strictly in the order given instead of by weight.
        lock_ms: how long a claim holds a job without a heartbeat.
        lock_renew_ms: interval of the heartbeat.
        stalled_ms: interval of the stall sweep.
        max_stalled_count: how often a job may stall before it is failed.
        schedule_ms: longest the ticker waits before it looks for schedules that are due.
        flow_ms: interval of the flow sweep, the age at which it looks into an open row, and longest
            a report waits to be carried.
        history_ms: interval of pruning, of the sweep of dedup windows, and of metadata back-fills.
        poll_ms: longest an idle worker waits before it looks by itself; wake-ups are pushed. It
            looks as often for cancels that flows owe.
        shutdown_grace_ms: how long a stop waits for running jobs before it gives them back.
        max_strays: how many threads of unresponsive handlers may be left behind before the worker
            drains and exits; as many as `concurrency` by default.
        executor: where handlers run whose definitions do not say: `thread` or `process`.
        child_max_runs: how many runs a child process serves before it is replaced.
        burst: end when nothing is runnable instead of waiting for more.
        id: name of the worker in ledgers and locks, at most 64 bytes.
    """

    concurrency: int = 10
    queues: dict[str, int] | None = None
    strict: bool = False
    lock_ms: int = 30_000
    lock_renew_ms: int = 15_000
    stalled_ms: int = 30_000
    max_stalled_count: int = 1
    schedule_ms: int = 15_000
    flow_ms: int = 30_000
    history_ms: int = 60_000
    poll_ms: int = 5_000
    shutdown_grace_ms: int = 25_000
    max_strays: int = attrs.field()
    executor: Executor = "thread"
    child_max_runs: int | None = None
    burst: bool = False
    id: str = attrs.field(factory=make_worker_id)

    @max_strays.default
    def _as_many_as_slots(self) -> int:
        return self.concurrency


_READ: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "concurrency": ("concurrency", lambda v: check_count(v, "concurrency", 1, MAX_CONCURRENCY)),
    "queues": ("queues", _queues),
    "strict": ("strict", bool),
    "lock_duration": ("lock_ms", lambda v: _duration(v, "lock_duration", 100)),
    "lock_renew_interval": ("lock_renew_ms", lambda v: _duration(v, "lock_renew_interval", 10)),
    "stalled_interval": ("stalled_ms", lambda v: _duration(v, "stalled_interval", 10)),
    "max_stalled_count": (
        "max_stalled_count",
        lambda v: check_count(v, "max_stalled_count", 0, MAX_ATTEMPTS),
    ),
    "schedule_interval": ("schedule_ms", lambda v: _duration(v, "schedule_interval", 10)),
    "flow_interval": ("flow_ms", lambda v: _duration(v, "flow_interval", 10)),
    "history_interval": ("history_ms", lambda v: _duration(v, "history_interval", 10)),
    "poll_interval": ("poll_ms", lambda v: _duration(v, "poll_interval", 10)),
    "shutdown_grace": ("shutdown_grace_ms", lambda v: _duration(v, "shutdown_grace", 0)),
    "max_strays": (
        "max_strays",
        lambda v: check_count(v, "max_strays", 0, MAX_CONCURRENCY),
    ),
    "executor": ("executor", _executor),
    "child_max_runs": (
        "child_max_runs",
        lambda v: check_count(v, "child_max_runs", 1, MAX_ATTEMPTS),
    ),
    "burst": ("burst", bool),
    "id": ("id", _id),
}
"""Public name of each option -> the field it sets and the check of its value."""


def read_options(**given: Any) -> WorkerOptions:
    """Return the options from their public names (`lock_duration`, `poll_interval`, ...).

    Durations are numbers of seconds, timedelta or text; None stands for the default. The heartbeat
    interval is half the lock unless it is given.

    Raises:
        TypeError: a name is not an option, or a value has the wrong type.
        ValueError: a value cannot work; names the option.
    """
    unknown = sorted(set(given) - set(_READ))
    if unknown:
        known = ", ".join(sorted(_READ))
        raise TypeError(f"{unknown[0]!r} is not a worker option: use {known}")
    fields = {
        _READ[name][0]: _READ[name][1](value) for name, value in given.items() if value is not None
    }
    if "lock_ms" in fields:
        fields.setdefault("lock_renew_ms", fields["lock_ms"] // 2)
    options = WorkerOptions(**fields)
    if options.lock_renew_ms >= options.lock_ms:
        raise ValueError(
            f"lock_renew_interval ({options.lock_renew_ms} ms) must be shorter than lock_duration"
            f" ({options.lock_ms} ms), or locks expire between heartbeats"
        )
    return options
