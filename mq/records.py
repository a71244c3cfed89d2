"""What stands in the store, as values: requests going in, records and ledger entries coming out.

Payloads and exits are opaque bytes here; the codec of a definition gives them meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import attrs

from mq.cadence import Cadence
from mq.ids import new_nonce
from mq.policies import Dedupe
from mq.states import JobState, Outcome

T = TypeVar("T")

RECORD_FIELDS = (
    "state", "queue", "name", "priority", "seq", "enqueued_at", "run_at", "token", "worker",
    "processed_at", "runs", "attempts_made", "stalled_count", "cancel_requested", "acked_token",
    "acked_as", "awaited", "dedup", "keep", "flow", "child", "finished_at", "attempts_max",
    "backoff", "timeout_ms", "error",
    "failed_reason", "extra",
)  # fmt: skip
"""The plain fields of a record in the order in which scripts reply them."""

_AT = {field: position for position, field in enumerate(RECORD_FIELDS)}
_METADATA = b"metadata:"


@attrs.frozen(kw_only=True)
class Request:
    """One job to enqueue, as the store takes it.

    Args:
        name: job name.
        queue: queue name.
        payload: encoded payload.
        id: explicit id; None lets the store make one.
        run_at: instant in ms before which it may not run; None for now.
        delay_ms: the same, counted from the instant of the call; not together with `run_at`.
        priority: -1000..1000, higher first.
        attempts_max: the budget, counting the first run.
        backoff: encoded backoff policy, empty for none.
        timeout_ms: limit of one run; None for no limit.
        keep: encoded retention policy, empty for none.
        metadata: pairs shown and listed with the job.
        dedupe: the dedup key it is enqueued under, and its mode; None for none.
        trace: the producer's trace context, opaque; empty for none.
        parent: the flow it is a child of, opaque; empty for none.
    """

    name: str
    queue: str
    payload: bytes = attrs.field(repr=False)
    id: str | None = None
    run_at: int | None = None
    delay_ms: int | None = None
    priority: int = 0
    attempts_max: int = 1
    backoff: str = ""
    timeout_ms: int | None = None
    keep: str = ""
    metadata: Mapping[str, str] = attrs.field(factory=dict)
    dedupe: Dedupe | None = None
    trace: str = ""
    parent: str = ""


@attrs.frozen
class Child:
    """A child that a flow parent fans out.

    Args:
        key: names it among the children of its parent.
        store: name of the store it lives in.
        request: the job.
    """

    key: str
    store: str
    request: Request


@attrs.frozen
class Enqueued:
    """What enqueue answers for one request; unpacks as (id, duplicate).

    Args:
        id: the job's id; for a deduplicated enqueue the id of the job that the key names.
        duplicate: whether the id existed, or a dedup key named a job, so that no job was added.
        name: the name of the job that has the id.
        replaced: whether that job now carries what this request says.
    """

    id: str
    duplicate: bool
    name: str
    replaced: bool = False

    def __iter__(self) -> Iterator[str | bool]:
        """Yield id and duplicate."""
        return iter((self.id, self.duplicate))


class JobRecord:
    """One job as the store holds it; a field is decoded when it is read.

    Times are integer milliseconds since the epoch. What is absent on the record is None, or the
    default that its absence means.
    """

    __slots__ = ("_extra", "_fields", "exit", "id", "payload")

    def __init__(
        self,
        job_id: str,
        fields: Sequence[bytes | None],
        payload: bytes | None,
        extra: Sequence[bytes],
        exit: bytes | None = None,  # noqa: A002 the contract's word for how a run ended
    ) -> None:
        self.id = job_id
        self.payload = payload
        self.exit = exit
        self._fields = fields
        self._extra = extra

    def _text(self, field: str) -> str:
        value = self._fields[_AT[field]]
        return value.decode() if value else ""

    def _int(self, field: str, default: int = 0) -> int:
        value = self._fields[_AT[field]]
        return int(value) if value else default

    def _optional(self, field: str) -> int | None:
        value = self._fields[_AT[field]]
        return int(value) if value else None

    @property
    def state(self) -> JobState:
        """Where the job stands."""
        return JobState(self._text("state"))

    @property
    def name(self) -> str:
        """The job name: which definition's handler runs it."""
        return self._text("name")

    @property
    def queue(self) -> str:
        """The queue it was enqueued to."""
        return self._text("queue")

    @property
    def priority(self) -> int:
        """-1000..1000, higher first."""
        return self._int("priority")

    @property
    def seq(self) -> int:
        """Place in line: the enqueue order, renewed when a job goes to the back."""
        return self._int("seq")

    @property
    def attempts_max(self) -> int:
        """The budget: how many runs may fail before the job is failed."""
        return self._int("attempts_max", 1)

    @property
    def attempts_made(self) -> int:
        """How many runs were acked."""
        return self._int("attempts_made")

    @property
    def stalled_count(self) -> int:
        """How often its lock expired."""
        return self._int("stalled_count")

    @property
    def runs(self) -> int:
        """How many ledger entries there are."""
        return self._int("runs")

    @property
    def backoff(self) -> str:
        """Encoded backoff policy, empty for none."""
        return self._text("backoff")

    @property
    def timeout_ms(self) -> int | None:
        """Limit of one run."""
        return self._optional("timeout_ms")

    @property
    def cancel_requested(self) -> bool:
        """Whether a cancel is pending on an active job."""
        return bool(self._fields[_AT["cancel_requested"]])

    @property
    def enqueued_at(self) -> int:
        """When it was enqueued."""
        return self._int("enqueued_at")

    @property
    def run_at(self) -> int:
        """The instant before which it may not run; `enqueued_at` when it was due at once."""
        return self._int("run_at", self.enqueued_at)

    @property
    def processed_at(self) -> int | None:
        """When it was claimed last."""
        return self._optional("processed_at")

    @property
    def finished_at(self) -> int | None:
        """When it finished."""
        return self._optional("finished_at")

    @property
    def token(self) -> str | None:
        """The token it is held under."""
        return self._text("token") or None

    @property
    def worker(self) -> str | None:
        """The id of the worker that holds it."""
        return self._text("worker") or None

    @property
    def error(self) -> str | None:
        """One line about the last failed run."""
        return self._text("error") or None

    @property
    def failed_reason(self) -> str | None:
        """Why the store, not a handler, failed the job."""
        return self._text("failed_reason") or None

    @property
    def flow(self) -> str | None:
        """The marker of a flow parent whose fan-out has landed: `collect`; None for any other."""
        return self._text("flow") or None

    @property
    def keep(self) -> str:
        """Encoded retention policy, empty for none."""
        return self._text("keep") or (self._from_extra(b"keep") or b"").decode()

    @property
    def dedupe_key(self) -> str | None:
        """The dedup key it was enqueued under."""
        if self._fields[_AT["dedup"]] is None:
            return None
        return self._text("dedup") or (self._from_extra(b"dedup") or b"").decode()

    @classmethod
    def claimed(
        cls,
        found: JobRecord,
        *,
        token: str,
        worker: str,
        processed_at: int,
    ) -> JobRecord:
        """Return a record as a claim left it, from the record as the claim found it."""
        fields = list(found._fields)
        changed = {
            "state": JobState.ACTIVE.value,
            "token": token,
            "worker": worker,
            "processed_at": str(processed_at),
        }
        for field, value in changed.items():
            fields[_AT[field]] = value.encode()
        return cls(found.id, fields, found.payload, found._extra)

    def _from_extra(self, field: bytes) -> bytes | None:
        for at in range(0, len(self._extra), 2):
            if self._extra[at] == field:
                return self._extra[at + 1]
        return None

    @property
    def metadata(self) -> dict[str, str]:
        """The pairs given at enqueue."""
        return {
            self._extra[at][len(_METADATA) :].decode(): self._extra[at + 1].decode()
            for at in range(0, len(self._extra), 2)
            if self._extra[at].startswith(_METADATA)
        }

    @property
    def trace(self) -> str:
        """The producer's trace context, opaque; empty for none."""
        return (self._from_extra(b"trace") or b"").decode()

    @property
    def parent(self) -> str:
        """The flow it is a child of, opaque; empty for none."""
        return (self._from_extra(b"parent") or b"").decode()

    @property
    def progress(self) -> bytes | None:
        """What the handler last reported, encoded; None when it never did."""
        return self._from_extra(b"progress")

    def __repr__(self) -> str:
        """Return id, name and state, never the payload."""
        return f"<JobRecord {self.id} {self.name} {self.state.value}>"


@attrs.frozen
class Attempt:
    """One ledger entry as the store holds it.

    Args:
        attempt: number of the entry, gapless from 1 for the job's whole life.
        started_at: ms; None for a direct cancel of a job that was not running.
        finished_at: ms.
        outcome: how the run ended.
        exit: encoded exit; None for an outcome without one.
        worker_id: who ran it; None when nobody did or nobody said.
    """

    attempt: int
    started_at: int | None
    finished_at: int
    outcome: Outcome
    exit: bytes | None
    worker_id: str | None


@attrs.frozen
class Ack:
    """How a claimed run ended, as the worker tells the store.

    Args:
        id: job id.
        token: the token it was claimed under.
        exit: encoded exit; None is no exit, empty bytes are a value.
        worker: who ran it; empty for the holder named at the claim.
        summary: one line of at most 64 bytes about a failure.
        delay_ms: for a retry: how long until the next run.
    """

    id: str
    token: str
    exit: bytes | None = None
    worker: str = ""
    summary: str = ""
    delay_ms: int = 0


@attrs.frozen
class ClaimRequest:
    """What a worker asks for in one claim.

    Args:
        queues: queues in the order in which they are served.
        names: job names it has handlers for.
        token: what the claimed jobs are held under; the caller's own.
        lock_ms: how long the lock lasts unless it is extended.
        limit: most jobs to claim, 1 to 100.
        worker: id of the worker, at most 64 bytes.
        nonce: names this claim, so that a repeated one is recognised.
    """

    queues: Sequence[str]
    names: Sequence[str]
    token: str
    lock_ms: int
    limit: int = 1
    worker: str = ""
    nonce: str = attrs.field(factory=new_nonce)


@attrs.frozen
class Extended:
    """What a heartbeat learns; unpacks as (lost, cancel_requested).

    Args:
        lost: ids whose token no longer holds them.
        cancel_requested: ids with a pending cancel; their locks were extended too.
    """

    lost: tuple[str, ...]
    cancel_requested: tuple[str, ...]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        """Yield lost and cancel_requested."""
        return iter((self.lost, self.cancel_requested))


@attrs.frozen
class Claim:
    """What a claim answers; unpacks as (jobs, next_run_at).

    Args:
        jobs: the claimed jobs, in the order in which they should start.
        now: the instant of the claim by the store's clock, ms.
        next_run_at: when the earliest delayed job of the queues falls due; None for none.
    """

    jobs: tuple[JobRecord, ...]
    now: int
    next_run_at: int | None

    def __iter__(self) -> Iterator[tuple[JobRecord, ...] | int | None]:
        """Yield jobs and next_run_at."""
        return iter((self.jobs, self.next_run_at))


@attrs.frozen
class Recovered:
    """One job a stall sweep dealt with.

    Args:
        id: job id.
        word: requeued, failed or cancelled.
        queue: its queue.
        name: its name.
        worker: who held it; None when the claim named nobody.
        processed_at: when it was claimed, ms.
    """

    id: str
    word: str
    queue: str
    name: str
    worker: str | None
    processed_at: int | None


@attrs.frozen
class Page(Generic[T]):
    """One page of a list.

    Args:
        items: the jobs, in the order asked for; may be fewer than the limit, even none, while there
            is a cursor: a call looks at a bounded number of jobs.
        cursor: what to pass for the next page, with the same options; None when nothing follows.
    """

    items: list[T]
    cursor: str | None


@attrs.frozen
class BulkResult:
    """What a verb did to the jobs of a query.

    Args:
        ids: the jobs it was done to, in order of enqueueing; in a dry run, would be.
        refused: the others it met, by id: what the store answered (they changed meanwhile).
        dry_run: whether nothing was changed.
    """

    ids: list[str]
    refused: dict[str, str]
    dry_run: bool = False


@attrs.frozen(kw_only=True)
class ScheduleRecord:
    """One schedule as the store holds it.

    Args:
        name: name of the jobs it makes.
        key: its own key, unique per job name.
        cadence: when it falls due; see `mq.cadence`.
        next_run_at: the next occurrence, ms.
        request: the job it makes, without id.
        group: the owner it was declared by; empty for none.
        overlap: `allow`, or `skip` to make no job while the last one has not finished.
        max_lateness_ms: an occurrence that comes later than this makes no job; None for any.
        anchor: an instant of the grid of an interval, ms.
        paused_at: since when it makes no jobs, ms; None when it does.
        created_at: when it was first registered, ms.
        updated_at: when it was last registered, ms.
        last_run_at: the last occurrence that made a job, ms.
        last_job_id: that job.
    """

    name: str
    key: str
    cadence: Cadence
    request: Request
    next_run_at: int
    group: str = ""
    overlap: str = "allow"
    max_lateness_ms: int | None = None
    anchor: int = 0
    paused_at: int | None = None
    created_at: int = 0
    updated_at: int = 0
    last_run_at: int | None = None
    last_job_id: str | None = None

    def next_after(self, at: int) -> int:
        """Return the first occurrence after an instant, ms."""
        return self.cadence.next_after(at, self.anchor)

    def occurrence(self, slot: int) -> Request:
        """Return the job of one occurrence: its id makes it exist once, whoever asks."""
        return attrs.evolve(
            self.request,
            id=f"sched/{self.name}/{self.key}/{slot}",
            metadata={**self.request.metadata, "scheduled_for": str(slot)},
        )
