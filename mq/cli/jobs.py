"""`mq jobs`: the group, and what stands on a job's record and in its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mq.cli.failures import CommandError
from mq.cli.job_data import ledger_data, print_ledger, whole_data, whole_rows
from mq.cli.jobs_list import list_jobs
from mq.cli.jobs_steer import cancel, promote, remove, retry
from mq.cli.output import print_json, print_table, printable
from mq.cli.parameters import JOB_ID
from mq.cli.root import show_help_alone
from mq.cli.stores import store_options

if TYPE_CHECKING:
    from mq.records import Attempt, JobRecord
    from mq.store import Store


@click.group(invoke_without_command=True)
@click.pass_context
def jobs(ctx: click.Context) -> None:
    """Look at jobs, and cancel, retry, promote or remove them.

    \b
    Example:
      mq jobs list --queue billing --state failed
      mq jobs show 06h2qc2rl9qrp4q54andgrbrls
      mq jobs retry --queue billing --name generate-invoice
    """  # noqa: D301 click's mark: not to be wrapped
    show_help_alone(ctx)


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
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
        print_json(whole_data(record, with_payload) | {"attempts": ledger_data(ledger)})
        return
    print_table(("", ""), whole_rows(record, with_payload))
    if ledger:
        click.echo()
        print_ledger(ledger)


@jobs.command()
@click.argument("job_id", metavar="ID", type=JOB_ID)
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


for command in (list_jobs, cancel, retry, promote, remove):
    jobs.add_command(command)
