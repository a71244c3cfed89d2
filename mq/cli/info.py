"""`mq info`: what a newcomer to a store wants to know first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mq.cli.output import print_json, print_table
from mq.cli.queues import counts_of, queue_names
from mq.cli.stores import store_options

if TYPE_CHECKING:
    from mq.store import Store


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@store_options
def info(as_json: bool, store: Store) -> None:
    """Say what server and store this is, and what it holds.

    \b
    Example:
      mq info
      mq info --url redis://redis.example.org:6379/1 --prefix billing
    """  # noqa: D301 click's mark: not to be wrapped
    data = _gather(store)
    if as_json:
        print_json(data)
        return
    keyspace = data["keyspace_version"]
    rows = [
        ("server", f"{data['server']} {data['version']}, {data['mode']}, {data['role']}"),
        ("address", data["address"]),
        ("prefix", data["prefix"]),
        (
            "keyspace version",
            "none yet, no job was ever enqueued here" if keyspace is None else keyspace,
        ),
        ("queues", ", ".join(data["queues"]) or None),
        ("job names", ", ".join(data["names"]) or None),
        *((f"{state} jobs", number) for state, number in data["counts"].items()),
    ]
    print_table(("", ""), [row for row in rows if row[1] is not None])


def _gather(store: Store) -> dict[str, Any]:
    server = store.server_info()
    return {
        "server": server.kind,
        "version": server.version,
        "mode": server.mode,
        "role": server.role,
        "address": store.endpoint.label,
        "prefix": store.keys.prefix,
        "keyspace_version": store.keyspace_version(),
        "queues": queue_names(store),
        "names": sorted({name for _, name in store.seen_pairs()}),
        "counts": counts_of(store),
    }
