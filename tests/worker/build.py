"""Short forms for stories about a worker."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from helpers import Processes, Running, wait_until
from servers import Server

import mq
from mq.records import JobRecord
from mq.store import Store

HERE = Path(__file__).parent

LONG = "60s"
"""A poll interval that no test waits out: what happens within seconds was pushed."""
PROMPT_S = 15
"""Far below LONG, far above what a push takes on a busy machine."""

BRISK: Mapping[str, Any] = {
    "poll_interval": LONG,
    "lock_duration": "2s",
    "lock_renew_interval": "0.5s",
    "stalled_interval": "0.5s",
    "shutdown_grace": "10s",
}
"""Worker options under which a crash is recovered within seconds."""


def worker_of(app: mq.App, **options: Any) -> mq.Worker:
    """A worker of this process, with brisk options unless told otherwise."""
    return mq.Worker(app, **{**BRISK, "concurrency": 2, **options})


def idle(worker: mq.Worker) -> bool:
    """Whether it has looked for work, and has free slots and nothing to fill them."""
    return worker.fetcher.hungry


def record(store: Store, job_id: str) -> JobRecord:
    """The record of a job that exists."""
    found = store.get_job(job_id)
    assert found is not None
    return found


def state(store: Store, job_id: str) -> str:
    """Where a job stands."""
    return record(store, job_id).state.value


def outcomes(store: Store, job_id: str) -> list[str]:
    """The ledger as the words of its outcomes."""
    return [entry.outcome.value for entry in store.get_attempts(job_id)]


def finished(store: Store, *job_ids: str, timeout: float = PROMPT_S) -> list[str]:
    """Wait until all jobs have finished; their states."""
    for job_id in job_ids:
        wait_until(
            lambda job_id=job_id: record(store, job_id).state.finished,
            timeout,
            f"job {job_id} to finish",
        )
    return [state(store, job_id) for job_id in job_ids]


def all_finished(store: Store, number: int, timeout: float = PROMPT_S) -> dict[str, int]:
    """Wait until `number` jobs have finished; the counts that are not 0."""

    def counted() -> bool:
        counts = store.counts()
        return sum(count for word, count in counts.items() if word.finished) >= number

    wait_until(counted, timeout, f"{number} jobs to finish")
    return {word.value: count for word, count in store.counts().items() if count}


@attrs.frozen
class Gate:
    """A handler stops here until the test lets it go on."""

    entered: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    opened: threading.Event = attrs.field(factory=threading.Event)

    def stop_here(self) -> None:
        """Called by the handler; gives up by itself, so that a failed test leaves no thread."""
        self.entered.release()
        self.opened.wait(60)

    def await_entry(self, number: int = 1) -> None:
        """Wait until that many handlers have come."""
        for _ in range(number):
            assert self.entered.acquire(timeout=PROMPT_S), "no handler started"


@contextmanager
def opened_after(gate: Gate) -> Iterator[Gate]:
    """Open the gate at the end, whatever happens."""
    try:
        yield gate
    finally:
        gate.opened.set()


def info(server: Server, section: str) -> dict[str, str]:
    """One section of INFO."""
    text = server.cli("INFO", section).decode()
    lines = (line.strip().partition(":") for line in text.splitlines())
    return {name: value for name, colon, value in lines if colon}


def calls(server: Server) -> dict[str, int]:
    """How often each command was called since the last reset, INFO left out."""
    found = {}
    for name, value in info(server, "commandstats").items():
        command = name.removeprefix("cmdstat_")
        if command not in {"info", "config|resetstat", "config"}:
            found[command] = int(value.partition("calls=")[2].partition(",")[0])
    return found


def start_worker(
    proc: Processes, server: Server | str, app: str = "process_jobs:app", **options: Any
) -> Running:
    """Start a worker process, with brisk options unless told otherwise; waits until it works."""
    running = launch_worker(proc, server, app, **options)
    running.wait_for(" started: ")
    return running


def launch_worker(
    proc: Processes, server: Server | str, app: str = "process_jobs:app", **options: Any
) -> Running:
    """Start a worker process and do not wait for it."""
    url = server if isinstance(server, str) else server.url
    given = {**BRISK, "concurrency": 2, **options}
    given.pop("lock_renew_interval")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    return proc.python("-m", "mq", "worker", app, *flags, env={"MQ_URL": url}, cwd=HERE)


def id_of(worker: Running) -> str:
    """The id that a started worker process says it has."""
    found = re.search(r"worker (\S+) started: ", worker.stdout + worker.stderr)
    assert found is not None
    return found[1]


def seen(server: Server, key: str) -> list[str]:
    """What the handlers of worker processes have told so far."""
    return [word.decode() for word in server.cli("LRANGE", key, 0, -1)]
