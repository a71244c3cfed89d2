"""What runs jobs.

Names are imported when first used: `mq worker` installs its signal handlers, which live in this
package, before it spends time on loading the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq.worker.options import WorkerOptions
    from mq.worker.pool import ExitCode, Worker

_LATE = {
    "ExitCode": "mq.worker.pool",
    "Worker": "mq.worker.pool",
    "WorkerOptions": "mq.worker.options",
}

__all__ = ["ExitCode", "Worker", "WorkerOptions"]


def __getattr__(name: str) -> Any:
    """Load what is imported on first use."""
    if name in _LATE:
        value = getattr(importlib.import_module(_LATE[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'mq.worker' has no attribute {name!r}")
