"""A job queue for Python services on Redis.

Every change of a job's state is one atomic Lua script; every run is recorded in the job's ledger.
The names below are the public ones; each is imported when it is first used, so that the command
`mq`, which lives in here, can answer Ctrl-C before it has loaded anything.
"""

from __future__ import annotations

# Its module has its name: whoever imports that must find the function set here already.
from mq.unrecoverable import unrecoverable

TYPE_CHECKING = False  # to type checkers True, as that of `typing`, whose import takes its time

if TYPE_CHECKING:
    from typing import Any

    from mq.app import App
    from mq.codec import BigInt, Defect, Failure, Success
    from mq.context import Context, Interrupted, current_context
    from mq.definitions import Job, JobId
    from mq.errors import (
        AwaitTimeoutError,
        DecodeError,
        DefinitionError,
        FlowError,
        JobCancelledError,
        JobFailedError,
        JobIdConflictError,
        JobNotCancellableError,
        JobNotFoundError,
        JobNotPromotableError,
        JobNotRetryableError,
        ListOrderUnsupportedError,
        LockLostError,
        MQError,
        PayloadError,
        StoreError,
    )
    from mq.flows import Flow, FlowResults
    from mq.policies import Backoff, Dedupe, Keep, exponential, fixed
    from mq.records import BulkResult, JobRecord, Page
    from mq.results import JobStatus, TypedJob
    from mq.secret import Secret
    from mq.states import JobState, Outcome
    from mq.store import Store
    from mq.worker import Worker

__version__ = "0.1.0"

_PLACES = {
    "mq.app": ("App",),
    "mq.codec": ("BigInt", "Defect", "Failure", "Success"),
    "mq.context": ("Context", "Interrupted", "current_context"),
    "mq.definitions": ("Job", "JobId"),
    "mq.errors": (
        "AwaitTimeoutError",
        "DecodeError",
        "DefinitionError",
        "FlowError",
        "JobCancelledError",
        "JobFailedError",
        "JobIdConflictError",
        "JobNotCancellableError",
        "JobNotFoundError",
        "JobNotPromotableError",
        "JobNotRetryableError",
        "ListOrderUnsupportedError",
        "LockLostError",
        "MQError",
        "PayloadError",
        "StoreError",
    ),
    "mq.flows": ("Flow", "FlowResults"),
    "mq.policies": ("Backoff", "Dedupe", "Keep", "exponential", "fixed"),
    "mq.records": ("BulkResult", "JobRecord", "Page"),
    "mq.results": ("JobStatus", "TypedJob"),
    "mq.secret": ("Secret",),
    "mq.states": ("JobState", "Outcome"),
    "mq.store": ("Store",),
    "mq.worker": ("Worker",),
}
_LATE = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "App",
    "AwaitTimeoutError",
    "Backoff",
    "BigInt",
    "BulkResult",
    "Context",
    "DecodeError",
    "Dedupe",
    "Defect",
    "DefinitionError",
    "Failure",
    "Flow",
    "FlowError",
    "FlowResults",
    "Interrupted",
    "Job",
    "JobCancelledError",
    "JobFailedError",
    "JobId",
    "JobIdConflictError",
    "JobNotCancellableError",
    "JobNotFoundError",
    "JobNotPromotableError",
    "JobNotRetryableError",
    "JobRecord",
    "JobState",
    "JobStatus",
    "Keep",
    "ListOrderUnsupportedError",
    "LockLostError",
    "MQError",
    "Outcome",
    "Page",
    "PayloadError",
    "Secret",
    "Store",
    "StoreError",
    "Success",
    "TypedJob",
    "Worker",
    "__version__",
    "current_context",
    "exponential",
    "fixed",
    "unrecoverable",
]


def __getattr__(name: str) -> Any:
    """Load what is imported on first use."""
    import importlib  # late, like the rest

    if name in _LATE:
        value = getattr(importlib.import_module(_LATE[name]), name)
        globals()[name] = value
        return value
    if f"mq.{name}" in _PLACES:
        return importlib.import_module(f"mq.{name}")
    raise AttributeError(f"module 'mq' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name what there is, used or not."""
    return sorted({*globals(), *__all__})
