"""What of an app a worker of one store runs, serves and declares."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from mq.errors import DefinitionError

if TYPE_CHECKING:
    from mq.app import App
    from mq.definitions import Job

log = logging.getLogger("mq.worker")


def runnable(app: App, store: str) -> dict[str, Job[Any, Any]]:
    """Return the definitions of a store that have handlers here, by name.

    Raises:
        DefinitionError: there are none.
    """
    bound = {name: job for name, job in app.jobs.items() if job.store_name == store}
    jobs = {
        name: job
        for name, job in bound.items()
        if job.function is not None or (job.flow is not None and job.flow.complete)
    }
    for name in sorted(set(bound) - set(jobs)):
        flow = bound[name].flow
        if flow is not None and (flow.fan_out_function or flow.collect_function):
            missing = "collect" if flow.fan_out_function else "fan_out"
            raise DefinitionError(
                f"flow {flow.name!r} of job {name!r} has no {missing} here: its worker needs both"
            )
        log.warning("job %s has no handler here; its jobs are left to other workers", name)
    if not jobs:
        found = f"{len(bound)} without a handler" if bound else "none"
        raise DefinitionError(
            f"nothing to run: of the app's jobs on store {store!r}, {found};"
            " define one with @app.job or import the module that has the handlers"
        )
    return jobs


def declared_keys(app: App, store: str) -> list[str]:
    """Return the metadata keys that definitions of a store declare, handler or not."""
    bound = (job for job in app.jobs.values() if job.store_name == store)
    return list(dict.fromkeys(key for job in bound for key in job.indexed_metadata))


def check_queues(app: App, store: str, queues: Iterable[str]) -> None:
    """Warn of a queue that no definition names.

    Raises:
        DefinitionError: a queue belongs to definitions of another store.
    """
    for queue in queues:
        if queue not in {job.queue for job in app.jobs.values()}:
            log.warning("queue %s is the default of no job here; only jobs sent to it come", queue)
        owners = {job.store_name for job in app.jobs.values() if job.queue == queue}
        if owners and store not in owners:
            raise DefinitionError(
                f"queue {queue!r} belongs to store {min(owners)!r}, this worker serves"
                f" store {store!r}: run it with --store {min(owners)}"
            )
