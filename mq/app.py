"""The app: the stores of a service and the jobs defined for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import attrs

from mq.definitions import Handler, Job
from mq.durations import Duration
from mq.errors import DefinitionError
from mq.job_options import Conduct, Executor, OnFailure, OnUnresponsive, Policies
from mq.policies import Backoff, Dedupe, KeepPolicy, check_history_ttl
from mq.schedules import ScheduleSet
from mq.signatures import Signature, read_signature
from mq.validation import check_count, check_indexed, check_job_name, check_name

if TYPE_CHECKING:
    from pathlib import Path

    from mq.clock import Clock
    from mq.embedded import EmbeddedServer
    from mq.flows import Flow
    from mq.store import Store

P = TypeVar("P")
R = TypeVar("R")

DEFAULT_STORE = "default"
DEFAULT_MAX_BYTES = 1024 * 1024
DEFAULT_URL = "redis://localhost:6379/0"


class App:
    """The stores of a service and the jobs defined for them.

    Args:
        url: address of the default store; else `MQ_URL`, else redis://localhost:6379/0. `memory://`
            keeps everything in this process, for tests and first steps.
        prefix: what the default store's keys begin with.
        stores: further stores by name, for definitions with `store="name"`.
        indexed_metadata: metadata keys by whose values jobs are found without stepping through
            others, for every definition; see `define`.
        max_payload_bytes: size limit of an encoded payload or result.
        clock: time of the default store; the server's own unless a test says otherwise.
        settings: further options of the default `Store`: username, password, db, ssl and socket
            options.
    """

    def __init__(
        self,
        url: str | Any | None = None,
        *,
        prefix: str = "mq",
        stores: Mapping[str, Store] | None = None,
        indexed_metadata: Sequence[str] = (),
        max_payload_bytes: int = DEFAULT_MAX_BYTES,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.max_payload_bytes = check_count(max_payload_bytes, "max_payload_bytes", 1, 2**29)
        self.indexed_metadata = check_indexed(indexed_metadata)
        self.schedule_sets: list[ScheduleSet] = []
        self.jobs: dict[str, Job[Any, Any]] = {}
        self._target = url
        # The store is made at its first use: what cannot work is refused where it is written.
        check_history_ttl(settings.get("history_ttl"))
        self._options = {"prefix": prefix, "clock": clock, **settings}
        self._stores: dict[str, Store] = {}
        for name, store in (stores or {}).items():
            if check_name(name, "store name") == DEFAULT_STORE:
                raise DefinitionError(
                    "the store named 'default' is the one the App's own url names"
                )
            self._stores[name] = store
        self._server: EmbeddedServer | None = None

    @classmethod
    def embedded(cls, directory: str | Path, **options: Any) -> App:
        """Return an app on a server of its own, started when needed, with its data in `directory`.

        Processes that name the same directory share the server; the last one stops it.
        """
        from mq.embedded import EmbeddedServer  # late: few processes start a server

        server = EmbeddedServer.open(directory)
        try:
            app = cls(server.url, **options)
        except BaseException:
            server.close()
            raise
        app._server = server
        return app

    def close(self) -> None:
        """Close the connections, and leave the embedded server if this app opened one."""
        for store in self._stores.values():
            store.close()
        if self._server is not None:
            self._server.close()

    @property
    def store(self) -> Store:
        """The default store."""
        return self.store_named(DEFAULT_STORE)

    def store_named(self, name: str) -> Store:
        """Return the store of that name; the default one is opened on first use."""
        if name == DEFAULT_STORE and name not in self._stores:
            from mq.store import Store  # late: it loads redis, which defining jobs does not need

            target = self._target or os.environ.get("MQ_URL") or DEFAULT_URL
            self._stores[name] = Store(target, **self._options)
        try:
            return self._stores[name]
        except KeyError:
            known = ", ".join(sorted({DEFAULT_STORE, *self._stores}))
            raise DefinitionError(f"no store is named {name!r}; this app has {known}") from None

    def schedules(self, group: str, *, prune_after: Duration | None = None) -> ScheduleSet:
        """Declare the schedules of one owner; workers of the app register them.

        Keep an empty set when the last schedule of a group goes, so that it is pruned.

        Args:
            group: name of the owner: the service, or a part of it.
            prune_after: delete schedules of the group that no process has declared for this long;
                None reports them and deletes none.
        """
        if any(one.group == group for one in self.schedule_sets):
            raise DefinitionError(f"the schedules of group {group!r} are declared already")
        made = ScheduleSet(self, group, prune_after)
        self.schedule_sets.append(made)
        return made

    def flow(
        self,
        name: str,
        /,
        *,
        parent: Job[P, R],
        children: Sequence[Job[Any, Any]],
        on_child_failure: Literal["continue", "fail"] = "continue",
    ) -> Flow[P, R]:
        """Make a definition the parent of a flow.

        Args:
            name: of the flow.
            parent: a definition without a handler; decorate functions with the flow's `fan_out`
                and `collect`.
            children: definitions its children may have, of whatever store.
            on_child_failure: `continue` waits for all children; `fail` fails the parent when the
                first one fails, and cancels the others.

        Raises:
            DefinitionError: the flow cannot work.
        """
        from mq.flows import Flow, check_members  # late: few apps have flows

        check_name(name, "flow name")
        check_members(self, name, parent, children)
        return Flow(name, parent, children, on_child_failure)

    @overload
    def job(self, name: Callable[[P], R], /) -> Job[P, R]: ...
    @overload
    def job(
        self,
        name: str | None = None,
        /,
        *,
        payload: Any = ...,
        result: Any = ...,
        error: Any = None,
        store: str = DEFAULT_STORE,
        queue: str | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
        delay: Duration | None = None,
        keep: KeepPolicy | None = None,
        idempotency_key: Callable[[Any], str] | None = None,
        dedupe: Callable[[Any], Dedupe | str | None] | None = None,
        metadata: Callable[[Any], Mapping[str, str]] | None = None,
        indexed_metadata: Sequence[str] = (),
        retryable: Callable[[Any], bool] | None = None,
        executor: Executor | None = None,
        interrupt: bool = True,
        interrupt_grace: Duration = "5s",
        on_unresponsive: OnUnresponsive = "replace",
        on_failure: OnFailure | None = None,
    ) -> Decorator: ...
    def job(self, name: Any = None, /, **options: Any) -> Any:
        """Define a job and its handler together; a decorator.

        Payload and result types are those of the function's annotations unless given. The function
        takes the payload, and the `Context` of the run when its second parameter is named `ctx` or
        annotated `mq.Context`.

        Args:
            name: job name; the function's name with `-` for `_` when it is left out.
            options: those of `define`.
        """

        def decorate(function: Handler[Any]) -> Job[Any, Any]:
            job_name = name if isinstance(name, str) else function.__name__.replace("_", "-")
            signature = read_signature(function, job_name)
            given = {**_types_of(signature, options), **options}
            job = self.define(job_name, **given)
            job.handler(function)
            return job

        if callable(name):
            function, name = name, None
            return decorate(function)
        return decorate

    def define(
        self,
        name: str,
        /,
        *,
        payload: type[P],
        result: type[R] | None = None,
        error: Any = None,
        store: str = DEFAULT_STORE,
        idempotency_key: Callable[[P], str] | None = None,
        dedupe: Callable[[P], Dedupe | str | None] | None = None,
        metadata: Callable[[P], Mapping[str, str]] | None = None,
        indexed_metadata: Sequence[str] = (),
        retryable: Callable[[Any], bool] | None = None,
        executor: Executor | None = None,
        interrupt: bool = True,
        interrupt_grace: Duration = "5s",
        on_unresponsive: OnUnresponsive = "replace",
        on_failure: OnFailure | None = None,
        **policies: Any,
    ) -> Job[P, R]:
        """Define a job without its handler, so that a producer never imports handler code.

        Args:
            name: 1 to 64 of `A-Z a-z 0-9 . _ -`, one definition a name.
            payload: any type cattrs can structure.
            result: likewise; None for no result.
            error: the declared error: an exception class, or a union of such.
            store: name of the store it is bound to.
            idempotency_key: makes the id `<name>/<key>` from the payload.
            dedupe: makes the dedup key from the payload, with its mode: `mq.Dedupe(...)`, text for
                a plain key, None for none.
            metadata: pairs shown and listed with each job.
            indexed_metadata: metadata keys that get an index of their own in the store, so that a
                rare value is found at once among many jobs; each costs every job that has the key.
            retryable: asked for declared errors alone; False skips the rest of the budget.
            executor: `thread`, or `process` for handlers that must be killable: C code, leaks;
                the worker's own `executor` when it is left out.
            interrupt: whether an exception may be raised in a handler that should end; without
                it `ctx.cancelled` alone tells.
            interrupt_grace: how long a handler that was told to end may take.
            on_unresponsive: `replace` records a run that takes longer and gives its slot to a new
                thread; `wait` keeps slot and lock until it ends, so that runs never overlap.
            on_failure: called after a failed run was acked, with the error and the run's context;
                what it raises is logged and changes nothing.
            policies: defaults for queue, priority, attempts, backoff, timeout, delay and keep of
                `enqueue`.

        Raises:
            DefinitionError: the definition cannot work; names the field and the fix.
        """
        unknown = sorted(set(policies) - set(attrs.fields_dict(Policies)) - {"timeout", "delay"})
        if unknown:
            known = "queue, priority, attempts, backoff, timeout, delay, keep"
            raise DefinitionError(
                f"job {name!r}: {unknown[0]!r} is not an option: use {known} or those of App.define"
            )
        try:
            checked = check_job_name(name)
            indexed = check_indexed((*self.indexed_metadata, *check_indexed(indexed_metadata)))
            defaults = Policies.of(**policies)
            conduct = Conduct.of(
                retryable=retryable,
                executor=executor,
                interrupt=interrupt,
                interrupt_grace=interrupt_grace,
                on_unresponsive=on_unresponsive,
                on_failure=on_failure,
            )
        except (ValueError, TypeError) as error_:
            raise DefinitionError(f"job {name!r}: {error_}") from None
        if checked in self.jobs:
            raise DefinitionError(f"job {name!r} is defined twice in this app: choose another name")
        if store != DEFAULT_STORE:
            self.store_named(store)
        job: Job[P, R] = Job(
            self,
            checked,
            payload=payload,
            result=result,
            error=error,
            store=store,
            policies=defaults,
            conduct=conduct,
            idempotency_key=idempotency_key,
            dedupe=dedupe,
            metadata=metadata,
            indexed_metadata=indexed,
        )
        self.jobs[checked] = job
        return job


if TYPE_CHECKING:
    from typing import Protocol

    class Decorator(Protocol):
        """What `App.job(...)` returns: handlers with and without a context."""

        @overload
        def __call__(self, function: Callable[[P], R], /) -> Job[P, R]: ...
        @overload
        def __call__(self, function: Callable[[P, Any], R], /) -> Job[P, R]: ...
        def __call__(self, function: Any, /) -> Any:
            """Define the job of `function`."""


def _types_of(signature: Signature, options: Mapping[str, Any]) -> dict[str, Any]:
    types: dict[str, Any] = {}
    if "payload" not in options:
        types["payload"] = signature.payload()
    if "result" not in options:
        types["result"] = signature.result()
    return types
