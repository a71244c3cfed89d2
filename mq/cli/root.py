"""The command `mq`: which commands there are, and where each is found."""

from __future__ import annotations

import importlib
from importlib import metadata
from typing import Any

import click

COMMANDS = {
    "worker": ("mq.cli.worker", "Run jobs until told to stop."),
    "enqueue": ("mq.cli.enqueue", "Enqueue one job, or one for each line of a file."),
    "demo": ("mq.cli.demo", "See a few hundred jobs run; needs no server."),
    "jobs": ("mq.cli.jobs", "Look at jobs, and cancel, retry, promote or remove them."),
    "queues": ("mq.cli.queues", "Look at queues, pause and resume them."),
    "schedules": ("mq.cli.schedules", "Look at schedules, pause, resume, run and remove them."),
    "flows": ("mq.cli.flows", "See how the children of a flow stand."),
    "info": ("mq.cli.info", "Say what server and store this is, and what it holds."),
    "scripts": ("mq.cli.scripts", "List the Lua scripts with their versions and SHA-1."),
}
"""Each command: its module, loaded when the command is used, and a line for the help."""


class LateGroup(click.Group):
    """A group that loads a command's module when the command is used, and not for its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click's signature
        """Return the names in the order in which the help shows them."""
        return list(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Load one command."""
        if cmd_name not in COMMANDS:
            return None
        found = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        return found if isinstance(found, click.Command) else None

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


def _show_version(ctx: click.Context, _: click.Parameter, value: Any) -> None:
    if not value or ctx.resilient_parsing:
        return
    try:
        version = metadata.version("mq")
    except metadata.PackageNotFoundError:
        version = "(not installed, run from its sources)"
    click.echo(f"mq {version}")
    ctx.exit()


@click.group(
    cls=LateGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def root(ctx: click.Context) -> None:
    """A job queue on Redis: run workers, enqueue jobs, look inside.

    The store is the one that MQ_URL names, redis://localhost:6379/0 without it.

    \b
    Example:
      mq demo
      mq worker myapp.jobs:app
      mq enqueue myapp.jobs:app send-invite --payload '{"email": "a@example.org"}'
    """  # noqa: D301 click's mark: not to be wrapped
    show_help_alone(ctx)


def show_help_alone(ctx: click.Context) -> None:
    """Show the help of a group that was called without a command."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
