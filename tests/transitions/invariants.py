"""What must hold of a store's keyspace between any two calls, whoever made them.

What flows and schedules keep is looked at in `transitions.families`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transitions.families import flow_keys, flow_violations, schedule_violations
from transitions.seed import Content, snapshot

from mq.keys import Keys
from mq.states import JobState
from mq.store import Store

PRIORITY_STEP = 2**42
HOLDER_FIELDS = ("token", "worker", "cancel_requested")


def violations(store: Store) -> list[str]:
    """Every invariant that does not hold now, in words; empty for a sound store."""
    content = snapshot(store)
    keys = store.keys
    jobs = {
        key.removeprefix(keys.root + "job:"): record
        for key, record in content.items()
        if key.startswith(keys.root + "job:")
    }
    expected = _expected_sets(keys, jobs)
    _add_metadata_sets(keys, content, jobs, expected)
    found = [
        *_sets(keys, content, expected),
        *_dedup_keys(keys, content, jobs),
        *_unknown_keys(keys, content, jobs),
        *_expiries(keys, content, jobs),
        *flow_violations(keys, content, jobs),
        *schedule_violations(keys, content),
    ]
    for job_id, record in jobs.items():
        found += (f"{job_id}: {text}" for text in _record(keys, content, job_id, record))
    totals = store.counts()
    for state in JobState:
        there = sum(record["state"] == state.value for record in jobs.values())
        if totals[state] != there:
            found.append(f"counts say {totals[state]} {state.value}, records say {there}")
    return found


def _expected_sets(keys: Keys, jobs: dict[str, Any]) -> dict[str, dict[str, int]]:
    """The sorted sets that the records alone call for."""
    sets: dict[str, dict[str, int]] = {}
    for job_id, record in jobs.items():
        state, queue, name = JobState(record["state"]), record["queue"], record["name"]
        index = keys.index(state, queue, name)
        sets.setdefault(index, {})[job_id] = int(record["enqueued_at"])
        if state is JobState.WAITING:
            place = int(record["seq"]) - int(record.get("priority", 0)) * PRIORITY_STEP
            sets.setdefault(keys.waiting(queue, name), {})[job_id] = place
        elif state is JobState.DELAYED:
            sets.setdefault(keys.delayed(queue), {})[job_id] = int(record["run_at"])
        elif state is JobState.ACTIVE:
            sets.setdefault(keys.active(), {})[job_id] = -1  # a lock is whenever
        elif state.finished:
            finished = keys.finished(state, queue, name)
            sets.setdefault(finished, {})[job_id] = int(record["finished_at"])
    return sets


def _add_metadata_sets(
    keys: Keys, content: Content, jobs: dict[str, Any], sets: dict[str, dict[str, int]]
) -> None:
    """Add the index sets in which jobs say that they stand."""
    for job_id, record in jobs.items():
        extra = content.get(keys.extra(job_id), {})
        for key in extra.get("indexed", "").split():
            index = keys.metadata(key, _text(extra[f"metadata:{key}"]))
            sets.setdefault(index, {})[job_id] = int(record["enqueued_at"])


def _dedup_keys(keys: Keys, content: Content, jobs: dict[str, Any]) -> Iterator[str]:
    """A key without a window names a pending job; one with a window stands among the windows."""
    windows = {}
    prefix = keys.root + "dedup:"
    for key, value in content.items():
        if not key.startswith(prefix):
            continue
        name, _, dedup_key = key.removeprefix(prefix).partition(":")
        if "until" in value:
            windows[f"{name}:{dedup_key}"] = int(value["until"])
            continue
        record = jobs.get(value["id"])
        if record is None or JobState(record["state"]).finished:
            yield f"{key} is an orphan: it names {value['id']}, which is not pending"
        elif record["name"] != name or _key_of(keys, content, value["id"], record) != dedup_key:
            yield f"{key} names {value['id']}, which was enqueued under another key"
    if windows != content.get(keys.windows(), {}):
        yield f"windows are {content.get(keys.windows())}, the keys call for {windows}"


def _key_of(keys: Keys, content: Content, job_id: str, record: dict[str, str]) -> str | None:
    found = record.get("dedup") or content.get(keys.extra(job_id), {}).get("dedup")
    return found and _text(found)


def _text(value: str) -> str:
    """A value of a snapshot, which shows bytes one by one, as the text it is."""
    return value.encode("latin-1").decode()


def _sets(keys: Keys, content: Content, expected: dict[str, dict[str, int]]) -> Iterator[str]:
    kinds = ("index:", "waiting:", "delayed:", "active", "finished:", "metadata:")
    ours = tuple(keys.root + kind for kind in kinds)
    for key in sorted({*expected, *(key for key in content if key.startswith(ours))}):
        there, wanted = content.get(key, {}), expected.get(key, {})
        if key == keys.active():
            there = dict.fromkeys(there, -1)
        if there != wanted:
            yield f"{key} holds {there}, the records call for {wanted}"


def _expiries(keys: Keys, content: Content, jobs: dict[str, Any]) -> Iterator[str]:
    """A finished job whose policy has an age for its state stands at the end of that age."""
    wanted = {}
    for job_id, record in jobs.items():
        policy = record.get("keep") or content.get(keys.extra(job_id), {}).get("keep", "")
        for rule in policy.split():
            state, _, limits = rule.partition("=")
            count, _, age = limits.partition("/")
            if state not in ("*", record["state"]) or "finished_at" not in record:
                continue
            if "0" in (count, age):
                # It is there only as long as it owes cancels to children, and goes with the last.
                wanted[job_id] = int(record["finished_at"])
                if "flow" not in record:
                    yield f"{job_id} is {record['state']}, and its policy keeps none"
            elif age != "*":
                wanted[job_id] = int(record["finished_at"]) + int(age)
    if content.get(keys.expires(), {}) != wanted:
        yield f"expires holds {content.get(keys.expires())}, the records call for {wanted}"


def _record(keys: Keys, content: Content, job_id: str, record: dict[str, str]) -> Iterator[str]:
    state = JobState(record["state"])
    if keys.payload(job_id) not in content:
        yield "has no payload"
    if state is JobState.ACTIVE and "token" not in record:
        yield "is active without a token"
    for field in HOLDER_FIELDS:
        if state is not JobState.ACTIVE and field in record:
            yield f"is {state.value} and still has {field}"
    if state.finished != ("finished_at" in record):
        yield f"is {state.value}, finished_at is {record.get('finished_at')}"
    if f"seen:{record['queue']}:{record['name']}" not in content[keys.meta()]:
        yield "is of a queue and name that the store has not seen"
    if ("extra" in record) != (keys.extra(job_id) in content):
        yield "its extra hash and the field that tells of it disagree"
    yield from _ledger(keys, content, job_id, record)
    if "awaited" in record and state.finished:
        yield "is finished and still awaited"


def _ledger(keys: Keys, content: Content, job_id: str, record: dict[str, str]) -> Iterator[str]:
    runs = int(record.get("runs", 0))
    numbers = sorted(int(field[4:]) for field in record if field.startswith("run:"))
    if numbers != list(range(1, runs + 1)):
        yield f"has ledger entries {numbers}, and says {runs}"
    exits = {int(field[5:]) for field in record if field.startswith("exit:")}
    long_exits = {int(field) for field in content.get(keys.exits(job_id), {})}
    if exits & long_exits or not exits | long_exits <= set(numbers):
        yield f"has exits {exits} and {long_exits} for runs {numbers}"


def _unknown_keys(keys: Keys, content: Content, jobs: dict[str, Any]) -> Iterator[str]:
    """Keys that ``mq/keys.py`` cannot make, and keys of jobs that do not exist."""
    pairs = {(record["queue"], record["name"]) for record in jobs.values()}
    known = {
        keys.meta(), keys.seq(), keys.active(), keys.windows(), keys.expires(), keys.flows(),
        keys.owing(), keys.outbox(), keys.schedules(), keys.paused_schedules(),
    }  # fmt: skip
    # A marker stays until somebody takes it, also when its job was removed.
    seen = (field for field in content.get(keys.meta(), {}) if field.startswith("seen:"))
    known |= {keys.root + "wake:" + field.removeprefix("seen:") for field in seen}
    for job_id in jobs:
        extra = content.get(keys.extra(job_id), {})
        known |= {
            keys.metadata(key, _text(extra[f"metadata:{key}"]))
            for key in extra.get("indexed", "").split()
        }
    for queue, name in pairs:
        known |= {keys.waiting(queue, name), keys.delayed(queue), keys.wake(queue, name)}
        known |= {keys.index(state, queue, name) for state in JobState}
        known |= {keys.finished(state, queue, name) for state in JobState if state.finished}
    ours = (keys.claims(""), keys.control(""), keys.answered(""), keys.backfill(""))
    for job_id in jobs:
        known |= {keys.job(job_id), keys.payload(job_id), keys.extra(job_id), keys.exits(job_id)}
        known |= flow_keys(keys, job_id)
    known |= {keys.report(entry) for entry in content.get(keys.outbox(), {})}
    known |= {
        keys.root + "schedule:" + member
        for listed in (keys.schedules(), keys.paused_schedules())
        for member in content.get(listed, {})
    }
    for key, value in content.items():
        if key.startswith((*ours, keys.root + "dedup:")):
            continue
        if key not in known:
            yield f"{key} is a key that no job of this store calls for"
        if key.startswith(keys.root + "wake:") and value != {"1": 0}:
            yield f"{key} holds {value}"
    last = int(content.get(keys.seq(), 0))
    entries = [int(entry) for entry in content.get(keys.outbox(), {})]
    if any(at > last for at in (*entries, *(int(record["seq"]) for record in jobs.values()))):
        yield f"a job or a report stands behind the last place given, {last}"


def unannounced(store: Store) -> list[str]:
    """Pairs with runnable jobs and no wake marker, where nobody took one."""
    content = snapshot(store)
    keys, meta = store.keys, content.get(store.keys.meta(), {})
    waiting = (key for key in content if key.startswith(keys.root + "waiting:"))
    pairs = (key.removeprefix(keys.root + "waiting:").split(":") for key in waiting)
    return [
        f"{queue}:{name}"
        for queue, name in pairs
        if f"paused:{queue}" not in meta and keys.wake(queue, name) not in content
    ]
