"""Records and ledgers as commands show them: data for JSON, rows for a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mq.cli.output import compact, instant, iso, print_table, rough

if TYPE_CHECKING:
    from mq.records import Attempt, JobRecord

EXIT_CHARACTERS = 120  # of an exit in a table; --json shows all of it


def bare_data(record: JobRecord) -> dict[str, Any]:
    """Return what a record says without its payload and its exit, as JSON-able data."""
    from mq.codec import to_json  # late: it loads cattrs

    return {
        "id": record.id,
        "name": record.name,
        "queue": record.queue,
        "state": record.state.value,
        "priority": record.priority,
        "attempts_made": record.attempts_made,
        "attempts_max": record.attempts_max,
        "stalled_count": record.stalled_count,
        "backoff": record.backoff or None,
        "timeout_ms": record.timeout_ms,
        "keep": record.keep or None,
        "cancel_requested": record.cancel_requested,
        "enqueued_at": record.enqueued_at,
        "run_at": record.run_at,
        "processed_at": record.processed_at,
        "finished_at": record.finished_at,
        "worker": record.worker,
        "error": record.error,
        "failed_reason": record.failed_reason,
        "metadata": record.metadata,
        "dedupe_key": record.dedupe_key,
        "flow": record.flow,
        "parent": _parent_data(record),
        "progress": None if record.progress is None else to_json(record.progress),
    }


def _parent_data(record: JobRecord) -> dict[str, str] | None:
    if not record.parent:
        return None
    from mq.manifests import ParentRef  # late: it loads what definitions need

    ref = ParentRef.decode(record.parent)
    return {"id": ref.job_id, "store": ref.store, "key": ref.key}


def keep_text(policy: str) -> str | None:
    """Return an encoded retention policy as people read it, None for none."""
    told: dict[str, list[str]] = {}
    for part in policy.split():
        state, _, rule = part.partition("=")
        told.setdefault(_rule_text(*rule.split("/")), []).append(state)
    if list(told.values()) == [["*"]]:
        return next(iter(told))
    return "; ".join(f"{', '.join(states)}: {rule}" for rule, states in told.items()) or None


def _rule_text(count: str, age: str) -> str:
    if "0" in (count, age):
        return "none"
    rules = [] if count == "*" else [f"the newest {count}"]
    if age != "*":
        rules.append(f"for {rough(int(age))}")
    return ", ".join(rules)


def whole_data(record: JobRecord, with_payload: bool) -> dict[str, Any]:
    """Return a record with its exit, and with its payload when it is asked for."""
    from mq.codec import exit_to_json, to_json  # late: it loads cattrs

    data = bare_data(record)
    data["exit"] = None if record.exit is None else exit_to_json(record.exit)
    if with_payload:
        data["payload"] = None if record.payload is None else to_json(record.payload)
    return data


def whole_rows(record: JobRecord, with_payload: bool) -> list[tuple[str, Any]]:
    """Return the same for a table of two columns, without what is empty."""
    data = whole_data(record, with_payload)
    yes = "yes" if data["cancel_requested"] else None
    pairs = ", ".join(f"{key}={value}" for key, value in record.metadata.items())
    parent = data["parent"]
    rows: list[tuple[str, Any]] = [
        ("id", record.id),
        ("name", record.name),
        ("queue", record.queue),
        ("state", record.state.value),
        ("attempts", f"{record.attempts_made} made, {record.attempts_max} allowed"),
        ("stalled", f"{record.stalled_count} times" if record.stalled_count else None),
        ("priority", record.priority or None),
        ("backoff", data["backoff"]),
        ("timeout", None if record.timeout_ms is None else rough(record.timeout_ms)),
        ("kept", keep_text(record.keep)),
        ("metadata", pairs or None),
        ("dedup key", record.dedupe_key),
        ("flow", "has fanned out: see mq flows show" if record.flow else None),
        ("child of", None if parent is None else f"{parent['id']}, under key {parent['key']}"),
        ("parent's store", None if parent is None else parent["store"]),
        ("enqueued", instant(record.enqueued_at)),
        ("runs from", instant(record.run_at) if record.run_at != record.enqueued_at else None),
        ("claimed", instant(record.processed_at)),
        ("held by", record.worker),
        ("cancel asked", yes),
        ("finished", instant(record.finished_at)),
        ("progress", None if data["progress"] is None else compact(data["progress"])),
        ("last error", record.error),
        ("failed reason", record.failed_reason),
        ("exit", None if data["exit"] is None else short_exit(data["exit"])),
    ]
    if with_payload:
        rows.append(("payload", compact(data["payload"])))
    return [row for row in rows if row[1] is not None]


def ledger_data(ledger: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Return ledger entries as JSON-able data, exits as far as they go without types."""
    from mq.codec import exit_to_json  # late: it loads cattrs

    return [
        {
            "attempt": entry.attempt,
            "outcome": entry.outcome.value,
            "started_at": entry.started_at,
            "finished_at": entry.finished_at,
            "worker_id": entry.worker_id,
            "exit": None if entry.exit is None else exit_to_json(entry.exit),
        }
        for entry in ledger
    ]


def print_ledger(ledger: Sequence[Attempt]) -> None:
    """Print ledger entries as a table."""
    rows = []
    for entry, data in zip(ledger, ledger_data(ledger), strict=True):
        took = (
            None
            if entry.started_at is None
            else rough(max(entry.finished_at - entry.started_at, 0))
        )
        told = None if data["exit"] is None else short_exit(data["exit"])
        rows.append(
            (entry.attempt, data["outcome"], iso(entry.started_at), took, entry.worker_id, told)
        )
    print_table(
        ("run", "outcome", "started", "took", "worker", "exit"), rows, right=("run", "took")
    )


def short_exit(shown: Any) -> str:
    """Return an exit as one line of JSON, without a traceback and cut where it is long."""
    if isinstance(shown, dict):
        shown = {key: value for key, value in shown.items() if key != "traceback"}
    text = compact(shown)
    return text if len(text) <= EXIT_CHARACTERS else text[: EXIT_CHARACTERS - 1] + "…"
