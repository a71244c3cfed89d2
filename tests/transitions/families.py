"""What must hold of the keys of flows, of the outbox and of schedules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transitions.seed import Content

from mq.keys import Keys
from mq.states import JobState

PARKED = JobState.WAITING_CHILDREN.value
OUTCOMES = ("completed", "failed", "cancelled")


def flow_keys(keys: Keys, job_id: str) -> set[str]:
    """Every key that a parent may have beside those of any job."""
    return {
        make(job_id)
        for make in (
            keys.flow, keys.children, keys.rows, keys.pending, keys.unstarted, keys.owed,
            keys.outcomes, keys.results,
        )
    }  # fmt: skip


def flow_violations(keys: Keys, content: Content, jobs: dict[str, Any]) -> Iterator[str]:
    """What does not hold of manifests, of the registries that sweepers read, of the outbox."""
    open_parents, owing = {}, set()
    for job_id, record in jobs.items():
        landed = record.get("flow") == "collect"
        if record["state"] == PARKED and not landed:
            yield f"{job_id} is parked, and its fan-out has not landed"
        look = _landed if landed else _only_written
        yield from (f"{job_id}: {text}" for text in look(keys, content, job_id, record))
        if landed and keys.pending(job_id) in content:
            # A row is open from the fan-out on, whenever it was written.
            landed_at = int(record[f"run:{record['runs']}"].split("|")[1])
            oldest = min(content[keys.pending(job_id)].values())
            open_parents[job_id] = max(oldest, landed_at)
        if keys.owed(job_id) in content:
            owing.add(job_id)
    flows = content.get(keys.flows(), {})
    if set(flows) != set(open_parents):
        yield f"flows holds {sorted(flows)}, the manifests call for {sorted(open_parents)}"
    for job_id in flows.keys() & open_parents.keys():
        if flows[job_id] > open_parents[job_id]:
            due = open_parents[job_id]
            yield f"{job_id} is looked at from {flows[job_id]} on, a row of it from {due} on"
    if set(content.get(keys.owing(), {})) != owing:
        yield f"owing holds {content.get(keys.owing())}, the manifests call for {sorted(owing)}"
    yield from _outbox(keys, content)


def _landed(keys: Keys, content: Content, job_id: str, record: dict[str, str]) -> Iterator[str]:
    """Each child is open, owed a cancel, or ended; a parked parent has an open one."""
    children = set(content.get(keys.children(job_id), {}))
    pending, unstarted, owed, outcomes, results = (
        content.get(make(job_id), {})
        for make in (keys.pending, keys.unstarted, keys.owed, keys.outcomes, keys.results)
    )
    if set(content.get(keys.rows(job_id), {})) != children:
        yield "its rows and the keys of its children differ"
    parts = [*pending, *owed, *outcomes]
    if sorted(parts) != sorted(children):
        yield f"children {sorted(children)} are told as {sorted(parts)}"
    if not set(unstarted) <= {*pending, *owed}:
        yield f"unstarted {sorted(unstarted)} are not all open or owed: {sorted(parts)}"
    if not set(results) <= set(outcomes):
        yield "has the exit of a child that has not ended"
    if (record["state"] == PARKED) != bool(pending):
        yield f"is {record['state']} with {len(pending)} open children"
    if pending and owed:
        yield "has open children and owes cancels"
    counted = content.get(keys.flow(job_id), {})
    for outcome in OUTCOMES:
        there = sum(one == outcome for one in outcomes.values())
        if int(counted.get(outcome, 0)) != there:
            yield f"counts {counted.get(outcome)} {outcome} children, there are {there}"


def _only_written(
    keys: Keys, content: Content, job_id: str, record: dict[str, str]
) -> Iterator[str]:
    """Rows of a fan-out that was not acked: nothing has happened to any of them."""
    del record
    children = set(content.get(keys.children(job_id), {}))
    for make in (keys.rows, keys.pending, keys.unstarted):
        if set(content.get(make(job_id), {})) != children:
            yield f"{make(job_id)} and the keys of its children differ"
    for make in (keys.owed, keys.outcomes, keys.results):
        if make(job_id) in content:
            yield f"{make(job_id)} is there before a fan-out has landed"


def _outbox(keys: Keys, content: Content) -> Iterator[str]:
    """Each entry has its report, and the other way round; an entry is its own place in line."""
    entries = content.get(keys.outbox(), {})
    prefix = keys.root + "report:"
    reports = {key.removeprefix(prefix) for key in content if key.startswith(prefix)}
    if reports != set(entries):
        yield f"the outbox has entries {sorted(entries)} and reports {sorted(reports)}"
    for entry, place in entries.items():
        report = content.get(keys.report(entry), {})
        if place != int(entry) or not {"parent", "id", "outcome"} <= set(report):
            yield f"report {entry} stands at {place} and is {report}"


def schedule_violations(keys: Keys, content: Content) -> Iterator[str]:
    """Each schedule stands in one of two sets, at its next occurrence."""
    prefix = keys.root + "schedule:"
    wanted: dict[str, dict[str, int]] = {keys.schedules(): {}, keys.paused_schedules(): {}}
    for key, fields in content.items():
        if key.startswith(prefix):
            listed = keys.paused_schedules() if "paused" in fields else keys.schedules()
            wanted[listed][key.removeprefix(prefix)] = int(fields["next_run_at"])
    for listed, members in wanted.items():
        if content.get(listed, {}) != members:
            yield f"{listed} holds {content.get(listed)}, the schedules call for {members}"
