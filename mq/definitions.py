"""Typed job definitions: what producers enqueue with and workers run.

A `Job` is the contract between a producer and a worker: job name, payload, result and error types,
and the policies that its jobs carry on their records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import attrs

from mq.durations import Duration
from mq.errors import DefinitionError, JobIdConflictError, PayloadError
from mq.job_options import Conduct, Policies, check_options
from mq.job_verbs import JobVerbs, P, R
from mq.policies import Backoff, Dedupe, KeepPolicy, check_dedupe
from mq.records import Child, Enqueued, Request
from mq.schedules import Scheduled, begun, schedule_record
from mq.signatures import check_callback, read_signature
from mq.validation import (
    check_instant,
    check_job_id,
    check_metadata,
    check_schedule_key,
    check_text,
)

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from mq.app import App
    from mq.codec import ExitCodec, TypeCodec
    from mq.flows import Flow
    from mq.store import Store

Handler = Callable[..., R]

DEFAULT_QUEUE = "default"
MAX_CHILD_KEY_BYTES = 256


class JobId(str):
    """The id of an enqueued job.

    `duplicate` says that no job was added: the id existed, or a dedup key named this job;
    `replaced` that the job now carries what this enqueue said.
    """

    __slots__ = ("duplicate", "replaced")
    duplicate: bool
    replaced: bool

    def __new__(cls, value: str, *, duplicate: bool = False, replaced: bool = False) -> JobId:
        """Make the id; the rest as the store answered it."""
        made = super().__new__(cls, value)
        made.duplicate = duplicate
        made.replaced = replaced
        return made


class Job(JobVerbs[P, R]):
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
        conduct: Conduct,
        idempotency_key: Callable[[P], str] | None,
        dedupe: Callable[[P], Dedupe | str | None] | None,
        metadata: Callable[[P], Mapping[str, str]] | None,
        indexed_metadata: Sequence[str],
    ) -> None:
        from mq import codec  # late: it loads cattrs, which `import mq` does not need

        for option, given in (
            ("idempotency_key", idempotency_key), ("dedupe", dedupe), ("metadata", metadata),
        ):  # fmt: skip
            if given is not None:
                check_callback(given, f"job {name!r}: {option}", "payload")
        self.app = app
        self.name = name
        self.store_name = store
        self.policies = policies
        self.conduct = conduct
        self.payload_type = payload
        self.payload_codec: TypeCodec = codec.codec_for(payload, f"payload of job {name!r}")
        result_codec = codec.codec_for(result, f"result of job {name!r}")
        self.exit_codec: ExitCodec = codec.ExitCodec(result_codec, codec.check_error_types(error))
        self.function: Handler[R] | None = None
        self.flow: Flow[P, R] | None = None
        self.passes_context = False
        self._idempotency_key = idempotency_key
        self._dedupe = dedupe
        self._metadata = metadata
        self.indexed_metadata = tuple(indexed_metadata)
        self._declared = not self.indexed_metadata

    @property
    def queue(self) -> str:
        """The queue its jobs go to unless an enqueue says otherwise."""
        return self.policies.queue or DEFAULT_QUEUE

    @property
    def store(self) -> Store:
        """The store it is bound to."""
        return self.app.store_named(self.store_name)

    def handler(self, function: Handler[R]) -> Handler[R]:
        """Set the function a worker runs; used as a decorator apart from the definition."""
        if self.function is not None:
            raise DefinitionError(f"job {self.name!r} has a handler already: {self.function!r}")
        if self.flow is not None:
            raise DefinitionError(
                f"job {self.name!r} is the parent of flow {self.flow.name!r}, whose fan_out and"
                " collect run instead of a handler"
            )
        signature = read_signature(function, self.name)
        signature.check_payload(self.payload_type)
        self.passes_context = signature.passes_context
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
        dedupe: Dedupe | str | None = None,
        at: datetime | None = None,
        **options: Any,
    ) -> Request:
        """Return what `enqueue` with these options would send, checked and encoded."""
        if at is not None and options.get("delay") is not None:
            raise TypeError("give delay= or at=, not both")
        given = {name: value for name, value in options.items() if value is not None}
        policies = Policies.of(**given).over(self.policies) if given else self.policies
        if at is not None:
            policies = attrs.evolve(policies, delay_ms=None)
        return Request(
            name=self.name,
            queue=policies.queue or DEFAULT_QUEUE,
            payload=self.payload_codec.encode(payload, self.app.max_payload_bytes),
            id=self._id_of(payload, job_id),
            run_at=None if at is None else check_instant(at),
            delay_ms=policies.delay_ms,
            priority=policies.priority or 0,
            attempts_max=policies.attempts or 1,
            backoff=policies.backoff.encode() if policies.backoff else "",
            timeout_ms=policies.timeout_ms,
            keep=policies.keep or "",
            metadata=self._metadata_of(payload, metadata),
            dedupe=self._dedupe_of(payload, dedupe),
        )

    def _id_of(self, payload: P, job_id: str | None) -> str | None:
        if job_id is not None:
            return check_job_id(job_id)
        if self._idempotency_key is None:
            return None
        key: object = self._idempotency_key(payload)
        if not isinstance(key, str) or not key:
            raise PayloadError(
                "$",
                f"idempotency_key gave {key!r}: return text that is not empty",
                what=f"payload of job {self.name!r}",
            )
        try:
            return check_job_id(f"{self.name}/{key}")
        except ValueError as error:
            what = f"idempotency_key of job {self.name!r}"
            raise PayloadError("$", str(error), what=what) from None

    def _dedupe_of(self, payload: P, given: Dedupe | str | None) -> Dedupe | None:
        if given is not None or self._dedupe is None:
            return check_dedupe(given)
        made = self._dedupe(payload)
        try:
            return check_dedupe(made)
        except (TypeError, ValueError) as error:
            raise PayloadError("$", str(error), what=f"dedupe of job {self.name!r}") from None

    def _metadata_of(self, payload: P, given: Mapping[str, str] | None) -> dict[str, str]:
        if self._metadata is None and given is None:
            return {}
        own = check_metadata(self._metadata(payload)) if self._metadata else {}
        return check_metadata({**own, **({} if given is None else check_metadata(given))})

    def enqueue(
        self,
        payload: P,
        *,
        job_id: str | None = None,
        queue: str | None = None,
        metadata: Mapping[str, str] | None = None,
        dedupe: Dedupe | str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        attempts: int | None = None,
        backoff: Backoff | None = None,
        timeout: Duration | None = None,
        keep: KeepPolicy | None = None,
    ) -> JobId:
        """Take one job in and return its id.

        Args:
            payload: a value of the declared type.
            job_id: explicit id; one that exists, in any state, is returned and nothing is enqueued.
            queue: another queue than the definition's.
            metadata: merged over the definition's, at most 16 pairs.
            dedupe: `mq.Dedupe(...)`, or text for a plain key: while a job holds the key, its id is
                returned and nothing is enqueued.
            delay: how long it is not runnable, such as `"5m"`; not together with `at`.
            at: instant before which it is not runnable; must have a zone; a past one means now.
            priority: -1000..1000, higher first.
            attempts: total runs, the first included.
            backoff: `mq.fixed(...)` or `mq.exponential(...)`; a failed run is repeated at once
                without.
            timeout: limit of one run.
            keep: `mq.Keep(...)`, or one for each of some finished states: how long it is kept.

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
            dedupe=dedupe,
            delay=delay,
            at=at,
            priority=priority,
            attempts=attempts,
            backoff=backoff,
            timeout=timeout,
            keep=keep,
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
        keep: KeepPolicy | None = None,
    ) -> list[JobId]:
        """Take many jobs in, one round trip a chunk; ids are aligned with the payloads.

        Everything is encoded before the first chunk is sent. Items behave as if enqueued one
        after the other; it is not one transaction. The options are those of `enqueue`, the same
        for all.

        Raises:
            PayloadError: a payload cannot be stored; nothing was sent.
            JobIdConflictError: ids of some belong to jobs of another name; the others were taken
                in, and the error has their `ids`.
            StoreError: Redis cannot take it; chunks that were sent before are there.
        """
        requests = []
        for nth, payload in enumerate(payloads):
            try:
                request = self.request(
                    payload,
                    queue=queue,
                    metadata=metadata,
                    delay=delay,
                    at=at,
                    priority=priority,
                    attempts=attempts,
                    backoff=backoff,
                    timeout=timeout,
                    keep=keep,
                )
            except PayloadError as error:
                what = f"item {nth} of enqueue_many, {error.what}"
                raise PayloadError(error.path, error.reason, what=what) from None
            requests.append(request)
        return self._enqueue_all(requests)

    def _enqueue_all(self, requests: list[Request]) -> list[JobId]:
        if not self._declared:
            # Before the first job, so that no job needs the back-fill that need not.
            self.store.declare_index(self.indexed_metadata)
            self._declared = True
        answers = self.store.enqueue_many(requests)
        taken = [
            JobId(answer.id, duplicate=answer.duplicate, replaced=answer.replaced)
            if answer.name == self.name
            else None
            for answer in answers
        ]
        ids = [job_id for job_id in taken if job_id is not None]
        if len(ids) < len(taken):
            raise self._conflict(answers[taken.index(None)], taken)
        return ids

    def _conflict(self, answer: Enqueued, taken: Sequence[JobId | None]) -> JobIdConflictError:
        others = len(taken) - taken.count(None)
        rest = f"; {others} of {len(taken)} items have their ids in .ids" if len(taken) > 1 else ""
        return JobIdConflictError(
            f"id {answer.id!r} belongs to a job named {answer.name!r}, not {self.name!r}:"
            f" use another id{rest}",
            job_id=answer.id,
            ids=taken,
        )

    def execute(self, payload: P, *, wait: Duration | None = None, **options: Any) -> R:
        """Enqueue and await the result; `wait` limits the waiting, the options are `enqueue`'s."""
        return self.await_result(self.enqueue(payload, **options), timeout=wait)

    def child(self, key: str, payload: P, **options: Any) -> Child:
        """Return a child for a flow's `fan_out` to return.

        Args:
            key: names it among the children of its parent; the same key is the same child.
            payload: a value of the declared type.
            options: queue, metadata, priority, attempts, backoff, timeout, keep, delay and at.

        Raises:
            PayloadError: the payload does not fit its type.
            ValueError, TypeError: the key or an option cannot work.
        """
        own = ("dedupe", "job_id")
        for option in own:
            if options.get(option) is not None:
                raise TypeError(f"a child takes no {option}=: its id follows from parent and key")
        check_options(options, "child", refused=own)
        request = self.request(payload, **options)
        return Child(
            check_text(key, "child key", max_bytes=MAX_CHILD_KEY_BYTES),
            self.store_name,
            attrs.evolve(request, id=None, dedupe=None),
        )

    # Scheduling

    def schedule(
        self,
        key: str,
        *,
        cron: str | None = None,
        tz: str | ZoneInfo = "UTC",
        every: Duration | None = None,
        payload: Any = None,
        group: str = "",
        overlap: Literal["allow", "skip"] = "allow",
        max_lateness: Duration | None = None,
        **options: Any,
    ) -> Scheduled:
        """Register a schedule: workers make one job of each occurrence, however many they are.

        Registering it again with the same cadence leaves the next occurrence alone and takes over
        everything else; another cadence begins anew. Occurrences that were missed become one job.

        Args:
            key: names the schedule among those of this definition.
            cron: five fields, minute hour day month weekday; or give `every`.
            tz: zone whose wall clock the cron expression means, such as `"Europe/Paris"`, or a
                `ZoneInfo`.
            every: interval, on the grid that begins now.
            payload: of each job.
            group: owner it is listed under.
            overlap: `skip` makes no job while the last one has not finished.
            max_lateness: an occurrence that comes later than this makes no job.
            options: queue, metadata, priority, attempts, backoff, timeout and keep of each job.

        Raises:
            ValueError, TypeError: cadence, zone, key or an option cannot work.
            PayloadError: the payload does not fit its type.
        """
        record = schedule_record(
            self, key, cron=cron, tz=tz, every=every, payload=payload, group=group,
            overlap=overlap, max_lateness=max_lateness, options=options,
        )  # fmt: skip
        return Scheduled(*self.store.upsert_schedule(begun(record, self.store.now_ms())))

    def unschedule(self, key: str) -> bool:
        """Delete a schedule; False when there is none. Jobs it has made stay."""
        return self.store.remove_schedule(self.name, check_schedule_key(key))
