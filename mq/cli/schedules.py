"""`mq schedules`: when which jobs fall due; schedules are paused, resumed, run and removed here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from mq.cli.failures import FAILED, CommandError, complain
from mq.cli.filters import those
from mq.cli.job_data import keep_text
from mq.cli.output import (
    Table,
    compact,
    distance,
    instant,
    narrow,
    print_json,
    print_table,
    printable,
    rough,
)
from mq.cli.parameters import JOB_NAME, QUEUE_NAME, CheckedType
from mq.cli.root import show_help_alone
from mq.cli.stores import reach, store_options, unreached_store_options
from mq.durations import format_ms
from mq.validation import check_name, check_schedule_key

if TYPE_CHECKING:
    from mq.cadence import Cadence
    from mq.records import ScheduleRecord
    from mq.store import Store


def _check_schedule(text: str) -> str:
    name, colon, key = text.partition(":")
    if not colon:
        raise ValueError(f"{text[:80]!r} is no schedule: write job-name:key, as the list has it")
    return f"{check_name(name, 'job name')}:{check_schedule_key(key)}"


SCHEDULE = CheckedType("schedule", _check_schedule)
GROUP_NAME = CheckedType("group", lambda text: check_name(text, "group"))

_TOLD = {
    "paused": "paused",
    "paused_before": "was paused before",
    "resumed": "resumed",
    "not_paused": "was not paused",
    "removed": "removed",
}


@click.group(invoke_without_command=True)
@click.pass_context
def schedules(ctx: click.Context) -> None:
    """Look at schedules, pause, resume, run and remove them.

    A schedule is called by the name of its jobs and its key: job-name:key.

    \b
    Example:
      mq schedules list
      mq schedules pause daily-digest:europe
    """  # noqa: D301 click's mark: not to be wrapped
    show_help_alone(ctx)


@schedules.command("list")
@click.option("--queue", "-q", type=QUEUE_NAME, help="Whose jobs go to this queue.")
@click.option("--name", "-n", type=JOB_NAME, help="Whose jobs have this name.")
@click.option("--group", "-g", type=GROUP_NAME, help="Declared by this owner.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times are ms since the epoch.")
@store_options
def list_schedules(
    queue: str | None, name: str | None, group: str | None, as_json: bool, store: Store
) -> None:
    """List schedules by their next occurrence, paused ones among them.

    A queue, name or owner that no schedule has is told on stderr, as it may be mistyped, and so is
    a schedule whose record cannot be read.

    \b
    Example:
      mq schedules list
      mq schedules list --queue mail --json
    """  # noqa: D301 click's mark: not to be wrapped
    found = store.list_schedules(name=name, queue=queue, group=group)
    if as_json:
        print_json([_bare_data(one) for one in found])
    elif found:
        _print_schedules(found)
    everything = found or store.list_schedules()
    if not found and not as_json:
        click.echo("no schedule matches" if everything else "no schedules")
    hint = _unseen(everything, queue, name, group)
    if hint:
        complain(hint)
    for label in store.unreadable_schedules():
        complain(f"schedule {label} is left out, its record cannot be read: see mq schedules show")


def _unseen(
    there: Sequence[ScheduleRecord], queue: str | None, name: str | None, group: str | None
) -> str | None:
    """Return a line about an option that no schedule meets; None when each has one that does."""
    for what, asked, known in (
        ("for queue", queue, {one.request.queue for one in there}),
        ("of job name", name, {one.name for one in there}),
        ("of group", group, {one.group for one in there if one.group}),
    ):
        if asked is not None and there and asked not in known:
            return f"no schedule is {what} {asked!r}; {those(known) if known else 'there is none'}"
    return None


def _print_schedules(found: Sequence[ScheduleRecord]) -> None:
    short = narrow()
    columns = ("schedule", "falls due", "next", *(() if short else ("queue", "group", "last")))
    table = Table(columns, fold=("falls due", "next", "last"), whole=("schedule",))
    rows = []
    for one in found:
        more = () if short else (one.request.queue, one.group, instant(one.last_run_at))
        rows.append((_label(one), cadence_text(one.cadence), _next(one, short=short), *more))
    table.add(rows)


def _next(schedule: ScheduleRecord, *, short: bool) -> str | None:
    if schedule.paused_at is not None:
        return f"paused {distance(schedule.paused_at)}"
    return distance(schedule.next_run_at) if short else instant(schedule.next_run_at)


def cadence_text(cadence: Cadence) -> str:
    """Return a cadence as people write it."""
    if not cadence.cron:
        return f"every {format_ms(cadence.every_ms)}"
    return f"{cadence.cron} {cadence.tz}"


@schedules.command()
@click.argument("schedule", metavar="SCHEDULE", type=SCHEDULE)
@click.option("--payload", "with_payload", is_flag=True, help="Show the payload too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; times are ms since the epoch.")
@store_options
def show(schedule: str, with_payload: bool, as_json: bool, store: Store) -> None:
    """Show when a schedule falls due, and the job that it makes.

    The payload is left out unless it is asked for, because it may hold what is nobody's business.

    \b
    Example:
      mq schedules show daily-digest:europe
    """  # noqa: D301 click's mark: not to be wrapped
    found = store.get_schedule(*_parts(schedule))
    if found is None:
        raise CommandError(_unknown(store, schedule))
    data = _whole_data(found, with_payload)
    if as_json:
        print_json(data)
        return
    print_table(("", ""), _whole_rows(found, data, with_payload))


@schedules.command()
@click.argument("names", metavar="SCHEDULE...", type=SCHEDULE, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@unreached_store_options
def pause(names: Sequence[str], as_json: bool, store: Store) -> int:
    """Let schedules make no jobs, until they are resumed.

    Jobs they have made stay. --json prints a list of schedules with their `outcome`: paused,
    paused_before or not_found. Exit code 1: one is not there.

    \b
    Example:
      mq schedules pause daily-digest:europe
    """  # noqa: D301 click's mark: not to be wrapped

    def change(name: str, key: str) -> dict[str, str] | None:
        found = store.get_schedule(name, key)
        if found is None or not store.pause_schedule(name, key):
            return None
        return {"outcome": "paused" if found.paused_at is None else "paused_before"}

    return _do(store, names, as_json, change)


@schedules.command()
@click.argument("names", metavar="SCHEDULE...", type=SCHEDULE, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@unreached_store_options
def resume(names: Sequence[str], as_json: bool, store: Store) -> int:
    """Let schedules make jobs again, from their next occurrence on.

    What fell due while they were paused is not made up for: see mq schedules run-now. --json
    prints a list of schedules with their `outcome`: resumed, not_paused or not_found. Exit code 1:
    one is not there.

    \b
    Example:
      mq schedules resume daily-digest:europe
    """  # noqa: D301 click's mark: not to be wrapped

    def change(name: str, key: str) -> dict[str, str] | None:
        found = store.get_schedule(name, key)
        try:
            if found is None or not store.resume_schedule(name, key):
                return None
        except ValueError as error:  # written where a zone is known that is not known here
            raise CommandError(f"schedule {name}:{key} stays paused: {error}") from None
        return {"outcome": "not_paused" if found.paused_at is None else "resumed"}

    return _do(store, names, as_json, change)


@schedules.command("run-now")
@click.argument("names", metavar="SCHEDULE...", type=SCHEDULE, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@unreached_store_options
def run_now(names: Sequence[str], as_json: bool, store: Store) -> int:
    """Enqueue the jobs of schedules at once, beside their occurrences.

    The schedules stay where they are; paused ones run, too. --json prints a list of schedules with
    their `outcome`, enqueued or not_found, and the id of the `job`. Exit code 1: one is not there.

    \b
    Example:
      mq schedules run-now daily-digest:europe
    """  # noqa: D301 click's mark: not to be wrapped

    def change(name: str, key: str) -> dict[str, str] | None:
        job_id = store.run_schedule_now(name, key)
        return None if job_id is None else {"outcome": "enqueued", "job": job_id}

    return _do(store, names, as_json, change)


@schedules.command()
@click.argument("names", metavar="SCHEDULE...", type=SCHEDULE, nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@unreached_store_options
def remove(names: Sequence[str], as_json: bool, store: Store) -> int:
    """Delete schedules; jobs they have made stay.

    What an app declares is registered again when a worker of it starts. --json prints a list of
    schedules with their `outcome`: removed or not_found. Exit code 1: one is not there.

    \b
    Example:
      mq schedules remove daily-digest:europe
    """  # noqa: D301 click's mark: not to be wrapped

    def change(name: str, key: str) -> dict[str, str] | None:
        return {"outcome": "removed"} if store.remove_schedule(name, key) else None

    return _do(store, names, as_json, change)


def _do(
    store: Store,
    names: Sequence[str],
    as_json: bool,
    change: Callable[[str, str], dict[str, str] | None],
) -> int:
    """Do something to each schedule and tell of it; returns the exit code."""
    reach(store, to_write=True)
    outcomes: list[dict[str, str]] = []
    refused = 0
    try:
        for label in dict.fromkeys(names):
            done = change(*_parts(label))
            outcomes.append({"schedule": label, **(done or {"outcome": "not_found"})})
            if done is None:
                refused += 1
                complain(_unknown(store, label))
            elif not as_json:
                told = _TOLD.get(done["outcome"]) or f"enqueued {done['job']}"
                click.echo(f"{printable(label)}: {told}")
    finally:
        if as_json:
            print_json(outcomes)
    return FAILED if refused else 0


def _parts(label: str) -> tuple[str, str]:
    name, _, key = label.partition(":")
    return name, key


def _label(schedule: ScheduleRecord) -> str:
    return f"{schedule.name}:{schedule.key}"


def _unknown(store: Store, label: str) -> str:
    where = f"{store.endpoint.label} under prefix {store.keys.prefix!r}"
    return f"no schedule {label!r} at {where}: see mq schedules list, check --url and --prefix"


def _bare_data(schedule: ScheduleRecord) -> dict[str, Any]:
    cadence = schedule.cadence
    return {
        "name": schedule.name,
        "key": schedule.key,
        "cron": cadence.cron or None,
        "tz": cadence.tz if cadence.cron else None,
        "every_ms": cadence.every_ms or None,
        "next_run_at": schedule.next_run_at,
        "paused_since": schedule.paused_at,
        "queue": schedule.request.queue,
        "group": schedule.group or None,
        "last_run_at": schedule.last_run_at,
        "last_job_id": schedule.last_job_id,
    }


def _whole_data(schedule: ScheduleRecord, with_payload: bool) -> dict[str, Any]:
    request = schedule.request
    data = _bare_data(schedule) | {
        "overlap": schedule.overlap,
        "max_lateness_ms": schedule.max_lateness_ms,
        "created_at": schedule.created_at,
        "updated_at": schedule.updated_at,
        "priority": request.priority,
        "attempts_max": request.attempts_max,
        "backoff": request.backoff or None,
        "timeout_ms": request.timeout_ms,
        "keep": request.keep or None,
        "metadata": dict(request.metadata),
    }
    if with_payload:
        from mq.codec import to_json  # late: it loads cattrs

        data["payload"] = to_json(request.payload)
    return data


def _whole_rows(
    schedule: ScheduleRecord, data: dict[str, Any], with_payload: bool
) -> list[tuple[str, Any]]:
    late_ms, timeout_ms = data["max_lateness_ms"], data["timeout_ms"]
    rows: list[tuple[str, Any]] = [
        ("schedule", _label(schedule)),
        ("falls due", cadence_text(schedule.cadence)),
        ("next", instant(schedule.next_run_at)),
        ("paused", instant(schedule.paused_at)),
        ("last", instant(schedule.last_run_at)),
        ("last job", schedule.last_job_id),
        ("group", data["group"]),
        ("overlap", "skipped while the last job runs" if schedule.overlap == "skip" else None),
        ("skipped if later than", None if late_ms is None else rough(late_ms)),
        ("registered", instant(schedule.created_at)),
        ("registered last", instant(schedule.updated_at)),
        ("queue", data["queue"]),
        ("priority", data["priority"] or None),
        ("attempts", data["attempts_max"]),
        ("backoff", data["backoff"]),
        ("timeout", None if timeout_ms is None else rough(timeout_ms)),
        ("kept", keep_text(schedule.request.keep)),
        ("metadata", ", ".join(f"{key}={value}" for key, value in data["metadata"].items())),
    ]
    if with_payload:
        rows.append(("payload", compact(data["payload"])))
    return [row for row in rows if row[1] not in (None, "")]
