"""What scripts take and what they reply: flat lists, made from values and read back into them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from mq.cadence import Cadence
from mq.durations import MAX_DELAY_MS
from mq.records import (
    Ack,
    Attempt,
    Claim,
    ClaimRequest,
    JobRecord,
    Request,
    ScheduleRecord,
)
from mq.states import Outcome
from mq.validation import MAX_ID_BYTES, check_count, check_name, check_priority

Argument = str | bytes | int

ENQUEUE_BATCH = 100
"""Jobs a call takes in: larger calls hold the server up longer and are hardly faster."""
PAIR_WORK, KEY_WORK = 0.25, 0.5
"""What a metadata pair and a dedup key cost a script, beside a job without any: measured."""
ENQUEUE_BATCH_BYTES = 4 * 1024 * 1024
ACK_BATCH = 100
MAX_HELD_BYTES = 64
"""Longest token or worker id."""


def chunks(requests: Iterable[Request]) -> Iterable[list[Request]]:
    """Cut requests into calls of bounded work and size."""
    chunk: list[Request] = []
    work, size = 0.0, 0
    for request in requests:
        costs = 1.0 + len(request.metadata) * PAIR_WORK + (request.dedupe is not None) * KEY_WORK
        if chunk and (work + costs > ENQUEUE_BATCH or size > ENQUEUE_BATCH_BYTES):
            yield chunk
            chunk, work, size = [], 0.0, 0
        chunk.append(request)
        work += costs
        size += len(request.payload)
    if chunk:
        yield chunk


@functools.lru_cache(maxsize=4096)
def _named(name: str, what: str) -> str:
    return check_name(name, what)


def check_claim(limit: int, lock_ms: int) -> None:
    """Refuse a claim that cannot work, or would hold the server up."""
    check_count(limit, "limit", 1, ACK_BATCH)
    check_count(lock_ms, "lock_ms", 1, MAX_DELAY_MS)


def held_as(value: str, what: str) -> str:
    """Return a token or worker id that a record can hold; ValueError when it is too long."""
    # Longer, it would take the record out of Redis's compact encoding.
    if len(value.encode()) > MAX_HELD_BYTES:
        raise ValueError(f"{what} must be at most {MAX_HELD_BYTES} bytes, got {value[:80]!r}")
    return value


def enqueue_item(request: Request, job_id: str, nonce: str) -> list[Argument]:
    """Return the arguments of one request; ValueError names what cannot be stored."""
    if request.id is not None and (not 0 < len(job_id) <= MAX_ID_BYTES or "\n" in job_id):
        raise ValueError(f"job id {job_id[:80]!r} must be 1 to {MAX_ID_BYTES} bytes on one line")
    check_priority(request.priority)
    fields: list[Argument] = []
    dedupe: tuple[Argument, ...] = ()
    if request.dedupe is not None:
        key, ttl_ms = request.dedupe.key, request.dedupe.ttl_ms
        dedupe = (key, "" if ttl_ms is None else ttl_ms,
                  int(request.dedupe.extend), int(request.dedupe.replace))  # fmt: skip
        fields += ("dedup", "" if _is_long(key) else key)
    if request.attempts_max != 1:
        fields += ("attempts_max", request.attempts_max)
    if request.backoff:
        fields += ("backoff", request.backoff)
    if request.timeout_ms is not None:
        fields += ("timeout_ms", request.timeout_ms)
    if request.parent:
        fields += ("child", 1)
    if request.keep:
        fields += ("keep", "" if _is_long(request.keep) else request.keep)
    extra = extra_fields(request)
    return [
        job_id, _named(request.queue, "queue"), _named(request.name, "job name"), nonce,
        "" if request.run_at is None else request.run_at,
        "" if request.delay_ms is None else request.delay_ms,
        request.priority, request.payload, len(dedupe), *dedupe,
        len(fields) // 2, *fields, len(extra) // 2, *extra,
    ]  # fmt: skip


def ack_batches(
    acks: Sequence[tuple[str, Ack]],
) -> tuple[list[list[int]], list[tuple[str, list[Argument]]]]:
    """Group acks by verb into calls of at most ACK_BATCH; positions tell whose word is whose."""
    by_verb: dict[str, list[int]] = {}
    for at, (verb, _) in enumerate(acks):
        by_verb.setdefault(verb, []).append(at)
    order: list[list[int]] = []
    batches: list[tuple[str, list[Argument]]] = []
    for verb, positions in by_verb.items():
        for start in range(0, len(positions), ACK_BATCH):
            part = positions[start : start + ACK_BATCH]
            args: list[Argument] = []
            for at in part:
                args += _ack_item(verb, acks[at][1])
            order.append(part)
            batches.append((verb, args))
    return order, batches


def _ack_item(verb: str, ack: Ack) -> tuple[Argument, ...]:
    if verb == "release":
        return ack.id, ack.token
    exit_ = ack.exit
    return (
        ack.id, ack.token, ack.worker, ack.summary,
        int(exit_ is not None), b"" if exit_ is None else exit_, ack.delay_ms,
    )  # fmt: skip


def claim_of(reply: Sequence[Any], request: ClaimRequest) -> Claim:
    """Return what a claim answered."""
    now = int(reply[1])
    jobs = tuple(
        JobRecord.claimed(
            JobRecord(job_id.decode(), fields, payload, extra),
            token=request.token,
            worker=request.worker,
            processed_at=now,
        )
        for job_id, fields, payload, extra in reply[3:]
    )
    return Claim(jobs, now, int(reply[2]) if reply[2] else None)


def whole(found: Sequence[Any]) -> tuple[JobRecord, list[Attempt]]:
    """Return a record and its ledger."""
    job_id, fields, payload, extra, flat = found
    ledger = [_attempt(flat[at : at + 5]) for at in range(0, len(flat), 5)]
    record = JobRecord(job_id.decode(), fields, payload, extra)
    # The exit of a record is that of the run that ended it, so only a finished one has any.
    if ledger and record.state.finished:
        record.exit = ledger[-1].exit
    return record, ledger


def _attempt(flat: Sequence[bytes]) -> Attempt:
    run, entry, worker, has_exit, exit_ = flat
    started, finished, outcome = entry.decode().split("|")
    return Attempt(
        attempt=int(run),
        started_at=int(started) if started else None,
        finished_at=int(finished),
        outcome=Outcome(outcome),
        exit=exit_ if has_exit == b"1" else None,
        worker_id=worker.decode() or None,
    )


def extra_fields(request: Request) -> list[str]:
    """Return the extra hash of a request as flat field and value texts."""
    flat: list[str] = []
    for key, value in request.metadata.items():
        flat += (f"metadata:{key}", value)
    for field, value in (("trace", request.trace), ("parent", request.parent)):
        if value:
            flat += (field, value)
    if request.dedupe is not None and _is_long(request.dedupe.key):
        flat += ("dedup", request.dedupe.key)
    if _is_long(request.keep):
        flat += ("keep", request.keep)
    return flat


def _is_long(text: str) -> bool:
    """Whether a text would take the record out of Redis's compact encoding."""
    return len(text.encode()) > MAX_HELD_BYTES


def schedule_fields(schedule: ScheduleRecord) -> list[Argument]:
    """Return what a schedule is, cadence and next occurrence apart, as flat fields and values."""
    request = schedule.request
    fields: dict[str, Argument] = {
        "payload": request.payload,
        "queue": request.queue,
        "priority": request.priority,
        "attempts_max": request.attempts_max,
        "backoff": request.backoff,
        "timeout_ms": "" if request.timeout_ms is None else request.timeout_ms,
        "keep": request.keep,
        "group": schedule.group,
        "overlap": "" if schedule.overlap == "allow" else schedule.overlap,
        "max_lateness_ms": "" if schedule.max_lateness_ms is None else schedule.max_lateness_ms,
        "anchor": schedule.anchor or "",
        **{f"metadata:{key}": value for key, value in request.metadata.items()},
    }
    kept = {
        name: value
        for name, value in fields.items()
        if name == "payload" or name.startswith("metadata:") or value != ""
    }
    return [part for pair in kept.items() for part in pair]


def schedule_of(reply: Sequence[Any]) -> ScheduleRecord | None:
    """Return a schedule from what stands in the store; None when its record is gone."""
    _, member, flat = reply
    if not flat:
        return None
    name, _, key = member.decode().partition(":")
    found = {flat[at].decode(): flat[at + 1] for at in range(0, len(flat), 2)}
    texts = {field: value.decode() for field, value in found.items() if field != "payload"}

    def number(field: str) -> int | None:
        return int(texts[field]) if field in texts else None

    request = Request(
        name=name,
        queue=texts["queue"],
        payload=found["payload"],
        priority=number("priority") or 0,
        attempts_max=number("attempts_max") or 1,
        backoff=texts.get("backoff", ""),
        timeout_ms=number("timeout_ms"),
        keep=texts.get("keep", ""),
        metadata={
            field.removeprefix("metadata:"): value
            for field, value in texts.items()
            if field.startswith("metadata:")
        },
    )
    return ScheduleRecord(
        name=name,
        key=key,
        cadence=Cadence.decode(texts["cadence"]),
        request=request,
        next_run_at=int(texts["next_run_at"]),
        group=texts.get("group", ""),
        overlap=texts.get("overlap", "allow"),
        max_lateness_ms=number("max_lateness_ms"),
        anchor=number("anchor") or 0,
        paused_at=number("paused"),
        created_at=number("created_at") or 0,
        updated_at=number("updated_at") or 0,
        last_run_at=number("last_run_at"),
        last_job_id=texts.get("last_job_id"),
    )
