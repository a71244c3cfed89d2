"""Which store a command works on, and a first look at it that fails at once instead of waiting."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mq.cli.apps import find_store, load_app
from mq.cli.failures import CommandError, misuse
from mq.errors import StoreError

if TYPE_CHECKING:
    from mq.store import Store

URL_VARIABLE = "MQ_URL"


def store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name a store; it is called with `store` in their place."""

    @functools.wraps(command)
    def reached(*args: Any, store: Store, **options: Any) -> Any:
        reach(store)
        return command(*args, store=store, **options)

    return unreached_store_options(reached)


def unreached_store_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the same options, and leave it to the command to call `reach`.

    So a command line that cannot mean anything is told before any server is asked.
    """

    @functools.wraps(command)
    def with_store(
        *args: Any,
        url: str | None,
        prefix: str | None,
        app: str | None,
        store_name: str | None,
        **options: Any,
    ) -> Any:
        return command(*args, store=_open(url, prefix, app, store_name), **options)

    for option in (
        click.option(
            "--store", "store_name", metavar="NAME", help="With --app: one of its named stores."
        ),
        click.option(
            "--app", metavar="MODULE:APP", help="Use the store of an app instead of a URL."
        ),
        click.option("--prefix", help="What the store's keys begin with.  [default: mq]"),
        click.option(
            "--url",
            help="Address of the Redis.  [default: MQ_URL, else redis://localhost:6379/0]",
        ),
    ):
        with_store = option(with_store)
    return with_store


def _open(url: str | None, prefix: str | None, app: str | None, name: str | None) -> Store:
    for option, given in (("--url", url), ("--prefix", prefix), ("--store", name)):
        # An unset variable of the shell must not turn a command to another store.
        if given == "":
            raise misuse(f"{option} is empty: give one, or leave it out")
    if app is not None:
        if url is not None or prefix is not None:
            raise misuse("give --app, or --url and --prefix, not both")
        return find_store(load_app(app), name or "default")
    if name is not None:
        raise misuse("--store names a store of an app: give --app module:app as well")
    from mq.store import Store  # late: it loads redis

    try:
        return Store(url or os.environ.get(URL_VARIABLE) or None, prefix=prefix or "mq")
    except ValueError as error:
        raise misuse(str(error)) from None


def reach(store: Store, *, to_write: bool = False) -> None:
    """Make sure that the store can be used, without repeating what fails.

    Args:
        store: what a command is about to use.
        to_write: whether a read-only replica is of no use.

    Raises:
        CommandError: it lives in one process, so no command can share it.
        StoreError: it cannot be reached or used; says why.
    """
    if store.in_process:
        raise CommandError(
            "memory:// lives in one process, so no other can see its jobs:"
            " use mq demo or a real Redis"
        )
    store.check()
    if to_write and store.server_info().role not in ("master", ""):
        raise StoreError(
            f"Redis at {store.endpoint.label} is a read-only replica:"
            " give the address of the primary"
        )
