"""Every error mq raises on purpose, as one tree.

    MQError
      JobNotFoundError            no job of this id (or not of this name)
      JobNotCancellableError      cancel of a finished job
      JobNotRetryableError        retry of a job that has not failed
      JobNotPromotableError       promote of a job that is not delayed
      JobIdConflictError          the id belongs to a job of another name
      FlowError                   what a fan-out returned cannot be carried out
      JobCancelledError           the awaited job was cancelled
      JobFailedError              the awaited job ended in a defect, or the store failed it
      AwaitTimeoutError           the caller's own waiting time is over (also a TimeoutError)
      DecodeError                 stored bytes no longer fit the declared type
      LockLostError               the token no longer holds the job
      ListOrderUnsupportedError   no index serves this list
      StoreError                  Redis cannot do it: says which, why and what to do
      DefinitionError             a definition that cannot work (also a TypeError)
      PayloadError                a value that cannot be stored (also a ValueError)

Messages are one line that names the thing and the fix. Every error carries `job_id` and `state`,
None when they do not apply.
"""

from __future__ import annotations

from collections.abc import Sequence


def one_line(text: str) -> str:
    """Return the text on a single line that any terminal and log can take.

    Runs of white space become one blank; half a surrogate pair is written as its escape.
    """
    return " ".join(text.split()).encode("utf-8", "backslashreplace").decode()


class MQError(Exception):
    """Anything mq refuses or reports; catch this to catch them all."""

    def __init__(
        self, message: str = "", *, job_id: str | None = None, state: str | None = None
    ) -> None:
        super().__init__(one_line(message))
        self.job_id = job_id
        self.state = state

    @property
    def message(self) -> str:
        """The one-line text."""
        return str(self.args[0])


class JobNotFoundError(MQError):
    """No job has this id, or the job of this id has another name."""


class JobNotCancellableError(MQError):
    """The job is finished, so there is nothing to cancel."""


class JobNotRetryableError(MQError):
    """The job has not failed, so there is nothing to retry."""


class JobNotPromotableError(MQError):
    """The job is not delayed, so there is nothing to promote."""


class JobIdConflictError(MQError):
    """The requested id belongs to a job of another name.

    `ids` has, for each item of the call, the id that it would have returned: None where the id is
    another's. What has an id there was taken in all the same.
    """

    def __init__(
        self,
        message: str = "",
        *,
        ids: Sequence[str | None] = (),
        job_id: str | None = None,
        state: str | None = None,
    ) -> None:
        super().__init__(message, job_id=job_id, state=state)
        self.ids = list(ids)


class FlowError(MQError):
    """What a fan-out returned cannot be carried out; names the child."""


class JobCancelledError(MQError):
    """The awaited job was cancelled."""


class JobFailedError(MQError):
    """The awaited job ended in a defect, or the store failed it.

    `failed_reason` is the store's reason or the one-line summary, `error_type` the type path of a
    defect, `remote_traceback` the text that the worker recorded.
    """

    def __init__(
        self,
        message: str = "",
        *,
        failed_reason: str | None = None,
        error_type: str | None = None,
        remote_traceback: str | None = None,
        job_id: str | None = None,
        state: str | None = None,
    ) -> None:
        super().__init__(message, job_id=job_id, state=state)
        self.failed_reason = failed_reason
        self.error_type = error_type
        self.remote_traceback = remote_traceback


class AwaitTimeoutError(MQError, TimeoutError):
    """The caller's own waiting time is over; the job goes on."""


class DecodeError(MQError):
    """Stored bytes no longer fit the declared type; `path` names the field."""

    def __init__(
        self,
        message: str = "",
        *,
        path: str = "$",
        job_id: str | None = None,
        state: str | None = None,
    ) -> None:
        super().__init__(message, job_id=job_id, state=state)
        self.path = path


class LockLostError(MQError):
    """The token no longer holds the job; nothing was changed."""


class ListOrderUnsupportedError(MQError):
    """No index serves this combination of filters and order; `option` names what is in the way."""

    def __init__(
        self,
        message: str = "",
        *,
        option: str | None = None,
        job_id: str | None = None,
        state: str | None = None,
    ) -> None:
        super().__init__(message, job_id=job_id, state=state)
        self.option = option


class StoreError(MQError):
    """Redis cannot do what was asked of it."""


class DefinitionError(MQError, TypeError):
    """A definition that cannot work, refused where it is written."""


class PayloadError(MQError, ValueError):
    """A value that cannot be stored as its declared type; `path` names the field, `reason` why."""

    def __init__(
        self,
        path: str,
        reason: str,
        *,
        what: str = "",
        job_id: str | None = None,
        state: str | None = None,
    ) -> None:
        super().__init__(
            f"{what} {path}: {reason}" if what else f"{path}: {reason}",
            job_id=job_id,
            state=state,
        )
        self.path = path
        self.reason = one_line(reason)
        self.what = what
