"""What runs jobs."""

from mq.worker.options import WorkerOptions
from mq.worker.pool import ExitCode, Worker

__all__ = ["ExitCode", "Worker", "WorkerOptions"]
