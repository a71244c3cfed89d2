"""Typed job definitions: what producers enqueue with and workers run.

An `App` names its stores and holds its definitions; a `Job` is the contract between a producer
and a
worker: job name, payload, result and error types, and the policies a job carries on its record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import attrs

from mq import results
from mq.durations import Duration, to_ms
from mq.errors import DefinitionError, JobIdConflictError
from mq.policies import Backoff
from mq.records import Request
from mq.signatures import Signature, read_signature
from mq.validation import (
    check_attempts,
    check_instant,
    check_job_id,
    check_job_name,
    check_metadata,
    check_name,
    check_priority,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mq.clock import Clock
    from mq.codec import ExitCodec, TypeCodec
    from mq.embedded import EmbeddedServer
    from mq.results import JobStatus, TypedAttempt
    from mq.store import Store

P = TypeVar("P")
R = TypeVar("R")
Handler = Callable[..., R]

DEFAULT_STORE = "default"
DEFAULT_MAX_BYTES = 1024 * 1024
DEFAULT_URL = "redis://localhost:6379/0"


class JobId(str):
    """The id of an enqueued job; `duplicate` says that it existed and nothing was enqueued."""

    __slots__ = ("duplicate",)
    duplicate: bool

    def __new__(cls, value: str, *, duplicate: bool = False) -> JobId:
        """Make the id; `duplicate` as the store answered it."""
        made = super().__new__(cls, value)
        made.duplicate = duplicate
        return made


@attrs.frozen(kw_only=True)
class Policies:
    """What a definition sets for its jobs and an enqueue may override; None where unsaid."""

    queue: str | None = None
    priority: int | None = None
    attempts: int | None = None
    backoff: Backoff | None = None
    timeout_ms: int | None = None
    delay_ms: int | None = None

    @classmethod
    def of(
        cls,
        *,
        queue: str | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
        delay: Duration | None = None,
    ) -> Policies:
        """Check options as written; ValueError or TypeError names the one that is wrong."""
        if backoff is not None and not isinstance(backoff, Backoff):
            raise TypeError(
                f"backoff must be mq.fixed(...) or mq.exponential(...), got {backoff!r}"
            )
        timeout_ms = None if timeout is None else to_ms(timeout, "timeout")
        if timeout_ms == 0:
            raise ValueError("timeout must be longer than 0; leave it out for no limit")
        return cls(
            queue=None if queue is None else check_name(queue, "queue"),
            priority=None if priority is None else check_priority(priority),
            attempts=None if attempts is None else check_attempts(attempts),
            backoff=backoff,
            timeout_ms=timeout_ms,
            delay_ms=None if delay is None else to_ms(delay, "delay"),
        )

    def over(self, base: Policies) -> Policies:
        """Return these, with what was left open taken from `base`."""
        mine = attrs.asdict(self, recurse=False)
        return attrs.evolve(
            base, **{name: value for name, value in mine.items() if value is not None}
        )


class Job(Generic[P, R]):
    """One definition; made by `App.job` or `App.define`, never by hand.

    Calling it calls the handler's function directly, without a store.
    """

    def __init__(
        self,
        app: App,
        name: str,
        *,
        payload: Any,
        result: Any,
        error: Any,
        store: str,
        policies: Policies,
        retryable: Callable[[Any], bool] | None,
        idempotency_key: Callable[[P], str] | None,
        metadata: Callable[[P], Mapping[str, str]] | None,
    ) -> None:
        from mq import codec  # late: it loads cattrs, which `import mq` does not need

        self.app = app
        self.name = name
        self.store_name = store
        self.policies = policies
        self.retryable = retryable
        self.payload_codec: TypeCodec = codec.codec_for(payload, f"payload of job {name!r}")
        result_codec = codec.codec_for(result, f"result of job {name!r}")
        self.exit_codec: ExitCodec = codec.ExitCodec(result_codec, codec.check_error_types(error))
        self.function: Handler[R] | None = None
        self.passes_context = False
        self._idempotency_key = idempotency_key
        self._metadata = metadata

    @property
    def queue(self) -> str:
        """The queue its jobs go to unless an enqueue says otherwise."""
        return self.policies.queue or "default"

    @property
    def store(self) -> Store:
        """The store it is bound to."""
        return self.app.store_named(self.store_name)

    def handler(self, function: Handler[R]) -> Handler[R]:
        """Set the function a worker runs; used as a decorator apart from the definition."""
        if self.function is not None:
            raise DefinitionError(f"job {self.name!r} has a handler already: {self.function!r}")
        self.passes_context = read_signature(function, self.name).passes_context
        self.function = function
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        """Call the handler's function as it is, without a store."""
        if self.function is None:
            raise DefinitionError(f"job {self.name!r} has no handler: decorate one with .handler")
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """Return name and queue."""
        return f"<Job {self.name} queue={self.queue}>"

    # Producing

    def request(
        self,
        payload: P,
        *,
        job_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        at: datetime | None = None,
        **options: Any,
    ) -> Request:
        """Return what `enqueue` with these options would send, checked and encoded."""
        if at is not None and options.get("delay") is not None:
            raise TypeError("give delay= or at=, not both")
        policies = Policies.of(**options).over(self.policies)
        if at is not None:
            policies = attrs.evolve(policies, delay_ms=None)
        return Request(
            name=self.name,
            queue=policies.queue or "default",
            payload=self.payload_codec.encode(payload, self.app.max_payload_bytes),
            id=self._id_of(payload, job_id),
            run_at=None if at is None else check_instant(at),
            delay_ms=policies.delay_ms,
            priority=policies.priority or 0,
            attempts_max=policies.attempts or 1,
            backoff=policies.backoff.encode() if policies.backoff else "",
            timeout_ms=policies.timeout_ms,
            metadata=self._metadata_of(payload, metadata),
        )

    def _id_of(self, payload: P, job_id: str | None) -> str | None:
        if job_id is not None:
            return check_job_id(job_id)
        if self._idempotency_key is None:
            return None
        return check_job_id(f"{self.name}/{self._idempotency_key(payload)}")

    def _metadata_of(self, payload: P, given: Mapping[str, str] | None) -> dict[str, str]:
        if self._metadata is None and not given:
            return {}
        own = self._metadata(payload) if self._metadata else {}
        return check_metadata({**own, **(given or {})})

    def enqueue(
        self,
        payload: P,
        *,
        job_id: str | None = None,
        queue: str | None = None,
        metadata: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
    ) -> JobId:
        """Take one job in and return its id.

        Args:
            payload: a value of the declared type.
            job_id: explicit id; one that exists, in any state, is returned and nothing is enqueued.
            queue: another queue than the definition's.
            metadata: merged over the definition's, at most 16 pairs.
            delay: how long it is not runnable, such as `"5m"`; not together with `at`.
            at: instant before which it is not runnable; must have a zone; a past one means now.
            priority: -1000..1000, higher first.
            attempts: total runs, the first included.
            backoff: `mq.fixed(...)` or `mq.exponential(...)`; a failed run is repeated at once
                without.
            timeout: limit of one run.

        Raises:
            PayloadError: the payload does not fit its type or cannot be stored; names the field.
            JobIdConflictError: the id belongs to a job of another name.
            StoreError: Redis cannot take it; nothing was half-written.
        """
        request = self.request(
            payload,
            job_id=job_id,
            queue=queue,
            metadata=metadata,
            delay=delay,
            at=at,
            priority=priority,
            attempts=attempts,
            backoff=backoff,
            timeout=timeout,
        )
        return self._enqueue_all([request])[0]

    def enqueue_many(
        self,
        payloads: Iterable[P],
        *,
        queue: str | None = None,
        metadata: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
    ) -> list[JobId]:
        """Take many jobs in, one round trip a chunk; ids are aligned with the payloads.

        Everything is encoded before the first chunk is sent. Items behave as if enqueued one
        after the other; it is not one transaction. The options are those of `enqueue`, the same
        for all.
        """
        requests = [
            self.request(
                payload,
                queue=queue,
                metadata=metadata,
                delay=delay,
                at=at,
                priority=priority,
                attempts=attempts,
                backoff=backoff,
                timeout=timeout,
            )
            for payload in payloads
        ]
        return self._enqueue_all(requests)

    def _enqueue_all(self, requests: list[Request]) -> list[JobId]:
        answers = self.store.enqueue_many(requests)
        for answer in answers:
            if answer.name != self.name:
                raise JobIdConflictError(
                    f"id {answer.id!r} belongs to a job named {answer.name!r}, not {self.name!r}:"
                    " use another job_id",
                    job_id=answer.id,
                )
        return [JobId(answer.id, duplicate=answer.duplicate) for answer in answers]

    def execute(self, payload: P, *, wait: Duration | None = None, **options: Any) -> R:
        """Enqueue and await the result; `wait` limits the waiting, the options are `enqueue`'s."""
        return self.await_result(self.enqueue(payload, **options), timeout=wait)

    # Reading

    def poll(self, job_id: str) -> JobStatus[R] | None:
        """Return where a job of this definition stands, decoded; None for no such job.

        Raises:
            JobNotFoundError: the id belongs to a job of another name.
            DecodeError: its exit no longer fits the declared types.
        """
        return results.poll(self, job_id)

    def attempts(self, job_id: str) -> list[TypedAttempt]:
        """Return the ledger of a job, oldest first, exits decoded; empty for an unknown id."""
        return results.attempts(self, job_id)

    def await_result(self, job_id: str, timeout: Duration | None = None) -> R:
        """Wait for a job to finish and return its result.

        Args:
            job_id: id of a job of this definition.
            timeout: longest wait; None waits for as long as it takes.

        Raises:
            Exception: the declared error the handler raised, as an instance of its own class.
            JobCancelledError: the job was cancelled.
            JobFailedError: it ended in a defect, or the store failed it.
            JobNotFoundError: there is no such job (any more).
            AwaitTimeoutError: `timeout` is over; the job goes on.
            DecodeError: its exit no longer fits the declared types.
        """
        result: R = results.await_result(self, job_id, timeout)
        return result


class App:
    """The stores of a service and the jobs defined for them.

    Args:
        url: address of the default store; else `MQ_URL`, else redis://localhost:6379/0. `memory://`
            keeps everything in this process, for tests and first steps.
        prefix: what the default store's keys begin with.
        stores: further stores by name, for definitions with `store="name"`.
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
        max_payload_bytes: int = DEFAULT_MAX_BYTES,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.max_payload_bytes = max_payload_bytes
        self.jobs: dict[str, Job[Any, Any]] = {}
        self._target = url
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
        app = cls(server.url, **options)
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

            target = self._target if self._target is not None else os.environ.get("MQ_URL")
            self._stores[name] = Store(target or DEFAULT_URL, **self._options)
        try:
            return self._stores[name]
        except KeyError:
            known = ", ".join(sorted({DEFAULT_STORE, *self._stores}))
            raise DefinitionError(f"no store is named {name!r}; this app has {known}") from None

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
        retryable: Callable[[Any], bool] | None = None,
        idempotency_key: Callable[[Any], str] | None = None,
        metadata: Callable[[Any], Mapping[str, str]] | None = None,
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
        retryable: Callable[[Any], bool] | None = None,
        idempotency_key: Callable[[P], str] | None = None,
        metadata: Callable[[P], Mapping[str, str]] | None = None,
        **policies: Any,
    ) -> Job[P, R]:
        """Define a job without its handler, so that a producer never imports handler code.

        Args:
            name: 1 to 64 of `A-Z a-z 0-9 . _ -`, one definition a name.
            payload: any type cattrs can structure.
            result: likewise; None for no result.
            error: the declared error: an exception class, or a union of such.
            store: name of the store it is bound to.
            retryable: asked for declared errors alone; False skips the rest of the budget.
            idempotency_key: makes the id `<name>/<key>` from the payload.
            metadata: pairs shown and listed with each job.
            policies: defaults for queue, priority, attempts, backoff, timeout and delay of
                `enqueue`.

        Raises:
            DefinitionError: the definition cannot work; names the field and the fix.
        """
        try:
            checked = check_job_name(name)
            defaults = Policies.of(**policies)
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
            retryable=retryable,
            idempotency_key=idempotency_key,
            metadata=metadata,
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
