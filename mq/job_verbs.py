"""The verbs of a definition on jobs that are there already: the store's, with types.

Each does what the store's method of the same name does, for jobs of this definition alone: an id
that belongs to a job of another name is as good as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from mq import results
from mq.durations import Duration
from mq.records import BulkResult, Page
from mq.states import JobState

if TYPE_CHECKING:
    from mq.codec import ExitCodec, TypeCodec
    from mq.results import JobStatus, TypedAttempt, TypedJob
    from mq.store import Store
    from mq.store.lists import OnPage

P = TypeVar("P")
R = TypeVar("R")


class JobVerbs(Generic[P, R]):
    """What `Job` offers besides enqueueing."""

    name: str
    payload_codec: TypeCodec
    exit_codec: ExitCodec

    @property
    def store(self) -> Store:
        """The store the definition is bound to."""
        raise NotImplementedError

    @property
    def queue(self) -> str:
        """The queue its jobs go to unless an enqueue says otherwise."""
        raise NotImplementedError

    # Steering

    def cancel(self, job_id: str) -> str:
        """Cancel a job, wherever it stands; see `Store.cancel`.

        Returns:
            `cancelled`, or `cancel_requested` for a running job, whose handler is interrupted.

        Raises:
            JobNotFoundError: there is no such job, or it has another name.
            JobNotCancellableError: it has finished.
        """
        results.check_ownership(self, job_id)
        return self.store.cancel(job_id)

    def cancel_by_key(self, key: str) -> bool:
        """Cancel the pending job that a dedup key stands for; False when none is."""
        return self.store.cancel_by_key(self.name, key)

    def retry(self, job_id: str) -> None:
        """Give a failed job of this definition a fresh budget; its ledger stays and goes on.

        Raises:
            JobNotFoundError: there is no such job, or it has another name.
            JobNotRetryableError: it has not failed.
        """
        results.check_ownership(self, job_id)
        self.store.retry(job_id)

    def promote(self, job_id: str) -> None:
        """Make a delayed job runnable now, at its place in line.

        Raises:
            JobNotFoundError: there is no such job, or it has another name.
            JobNotPromotableError: it is not delayed.
        """
        results.check_ownership(self, job_id)
        self.store.promote(job_id)

    def remove(self, job_id: str) -> bool:
        """Delete a job with its ledger; False for an active one, a parked one and an unknown id.

        Raises:
            JobNotFoundError: the id belongs to a job of another name.
        """
        if not results.is_owned(self, job_id):
            return False
        return self.store.remove(job_id)

    def pause(self, queue: str | None = None) -> bool:
        """Hold the definition's queue, or another: whatever is in it, of this name or not.

        Returns:
            Whether it was not paused before.
        """
        return self.store.pause(self.queue if queue is None else queue)

    def resume(self, queue: str | None = None) -> bool:
        """Let workers take from the queue again; False when it was not paused."""
        return self.store.resume(self.queue if queue is None else queue)

    def paused_queues(self) -> list[str]:
        """Return the queues of the definition's store that are paused, sorted."""
        return self.store.paused_queues()

    def cancel_where(
        self,
        *,
        queue: str | None = None,
        states: Iterable[JobState | str] | None = None,
        metadata: Mapping[str, str] | None = None,
        dry_run: bool = False,
        on_page: OnPage | None = None,
    ) -> BulkResult:
        """Cancel every job of this definition that these filters match; see the store's."""
        return self.store.cancel_where(
            queue=queue, name=self.name, states=states, metadata=metadata,
            dry_run=dry_run, on_page=on_page,
        )  # fmt: skip

    def retry_where(
        self,
        *,
        queue: str | None = None,
        states: Iterable[JobState | str] | None = None,
        metadata: Mapping[str, str] | None = None,
        dry_run: bool = False,
        on_page: OnPage | None = None,
    ) -> BulkResult:
        """Retry every failed job of this definition that these filters match."""
        return self.store.retry_where(
            queue=queue, name=self.name, states=states, metadata=metadata,
            dry_run=dry_run, on_page=on_page,
        )  # fmt: skip

    def remove_where(
        self,
        *,
        queue: str | None = None,
        states: Iterable[JobState | str] | None = None,
        metadata: Mapping[str, str] | None = None,
        dry_run: bool = False,
        on_page: OnPage | None = None,
    ) -> BulkResult:
        """Delete every job of this definition that these filters match and no worker holds."""
        return self.store.remove_where(
            queue=queue, name=self.name, states=states, metadata=metadata,
            dry_run=dry_run, on_page=on_page,
        )  # fmt: skip

    # Reading

    def counts(self, queue: str | None = None) -> dict[JobState, int]:
        """Return the number of jobs of this name in each state, in one queue or in all."""
        return self.store.counts(queue, self.name)

    def get_job(self, job_id: str) -> TypedJob[P, R] | None:
        """Return a job with its payload and exit decoded when they are read, or None.

        Raises:
            JobNotFoundError: the id belongs to a job of another name.
        """
        return results.get_job(self, job_id)

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

    # The last of its class: below it the name means this verb.
    def list(
        self,
        *,
        queue: str | None = None,
        states: Iterable[JobState | str] | None = None,
        metadata: Mapping[str, str] | None = None,
        order_by: str = "enqueued_at",
        order: str = "desc",
        limit: int = 50,
        cursor: str | None = None,
        bodies: bool = True,
    ) -> Page[TypedJob[P, R]]:
        """Return one page of this definition's jobs; the arguments are those of `Store.list`."""
        page = self.store.list(
            queue=queue, name=self.name, states=states, metadata=metadata, order_by=order_by,
            order=order, limit=limit, cursor=cursor, bodies=bodies,
        )  # fmt: skip
        return Page([results.typed_job(self, record) for record in page.items], page.cursor)
