"""`mq jobs`: what stands on a job's record and in its ledger, read from the store alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mq.cli.failures import CommandError
from mq.cli.output import compact, instant, iso, print_json, print_table, printable, rough
from mq.cli.root import show_help_alone
from mq.cli.stores import store_options

if TYPE_CHECKING:
    from mq.records import Attempt, JobRecord
    from mq.store import Store

EXIT_CHARACTERS = 120  # of an exit in a table; --json shows all of it


@click.group(invoke_without_command=True)
@click.pass_context
def jobs(ctx: click.Context) -> None:
    """Look at jobs, by id.

    \b
    Example:
      mq jobs show 06h2qc2rl9qrp4q54andgrbrls
      mq jobs attempts generate-invoice/1234 --json
    """  # noqa: D301 click's mark: not to be wrapped
    show_help_alone(ctx)


@jobs.command()
@click.argument("job_id", metavar="ID")
@click.option("--payload", "with_payload", is_flag=True, help="Show the payload too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times are ms since the epoch.")
@store_options
def show(job_id: str, with_payload: bool, as_json: bool, store: Store) -> None:
    """Show where a job stands, and its ledger.

    The payload is left out unless it is asked for, because it may hold what is nobody's business.
    Values declared mq.Secret stay hidden.

    \b
    Example:
      mq jobs show generate-invoice/1234
      mq jobs show generate-invoice/1234 --app myapp.jobs:app --payload
    """  # noqa: D301 click's mark: not to be wrapped
    record, ledger = _whole(store, job_id)
    if as_json:
        print_json(_record_data(record, with_payload) | {"attempts": ledger_data(ledger)})
        return
    print_table(("", ""), _record_rows(record, with_payload))
    if ledger:
        click.echo()
        print_ledger(ledger)


@jobs.command()
@click.argument("job_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times are ms since the epoch.")
@store_options
def attempts(job_id: str, as_json: bool, store: Store) -> None:
    """Show a job's ledger, oldest run first, and the traceback of each defect.

    \b
    Example:
      mq jobs attempts generate-invoice/1234
    """  # noqa: D301 click's mark: not to be wrapped
    ledger = _whole(store, job_id)[1]
    if as_json:
        print_json(ledger_data(ledger))
        return
    if not ledger:
        click.echo("no run of this job has ended yet")
        return
    print_ledger(ledger)
    for entry, data in zip(ledger, ledger_data(ledger), strict=True):
        text = data["exit"].get("traceback") if isinstance(data["exit"], dict) else None
        if text:
            click.echo(f"\nRun {entry.attempt}:\n{printable(text).rstrip()}")


def _whole(store: Store, job_id: str) -> tuple[JobRecord, list[Attempt]]:
    found = store.get_whole(job_id)
    if found is None:
        where = f"{store.endpoint.label} under prefix {store.keys.prefix!r}"
        raise CommandError(f"no job has the id {job_id!r} at {where}: check id, --url and --prefix")
    return found


def _record_data(record: JobRecord, with_payload: bool) -> dict[str, Any]:
    from mq.codec import exit_to_json, to_json  # late: it loads cattrs

    data: dict[str, Any] = {
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
        "cancel_requested": record.cancel_requested,
        "enqueued_at": record.enqueued_at,
        "run_at": record.run_at,
        "processed_at": record.processed_at,
        "finished_at": record.finished_at,
        "worker": record.worker,
        "error": record.error,
        "failed_reason": record.failed_reason,
        "metadata": record.metadata,
        "progress": None if record.progress is None else to_json(record.progress),
        "exit": None if record.exit is None else exit_to_json(record.exit),
    }
    if with_payload:
        data["payload"] = None if record.payload is None else to_json(record.payload)
    return data


def _record_rows(record: JobRecord, with_payload: bool) -> list[tuple[str, Any]]:
    data = _record_data(record, with_payload)
    yes = "yes" if data["cancel_requested"] else None
    pairs = ", ".join(f"{key}={value}" for key, value in record.metadata.items())
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
        ("metadata", pairs or None),
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
