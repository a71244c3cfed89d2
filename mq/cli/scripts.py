"""`mq scripts`: which script a line of SLOWLOG or MONITOR speaks of."""

from __future__ import annotations

import click

from mq.cli.output import print_json, print_table
from mq.scripts import load_scripts


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def scripts(as_json: bool) -> None:
    """List the Lua scripts with their versions and the SHA-1 that EVALSHA calls them by.

    \b
    Example:
      mq scripts
    """  # noqa: D301 click's mark: not to be wrapped
    found = load_scripts().values()
    if as_json:
        print_json([{"name": one.name, "version": one.version, "sha": one.sha} for one in found])
        return
    rows = [(one.name, one.version, one.sha) for one in found]
    print_table(("script", "version", "sha"), rows, right=("version",))
