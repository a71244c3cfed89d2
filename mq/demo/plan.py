"""What the demo enqueues, read from jobs.jsonl, and whether each job ended as its line says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

import attrs

from mq.app import App
from mq.states import JobState

if TYPE_CHECKING:
    from mq.records import JobRecord, Request

PLAN_FILE = "jobs.jsonl"


@attrs.frozen
class Planned:
    """One line of the file: equal jobs that are to end alike.

    Args:
        job: name of the definition.
        payload: as JSON.
        expect: the state they are to end in.
        runs: how many runs that is to take.
        times: how many of them.
        options: options of enqueue.
    """

    job: str
    payload: Any
    expect: JobState = attrs.field(converter=JobState)
    runs: int
    times: int = 1
    options: Mapping[str, Any] = attrs.field(factory=dict)

    def requests(self, app: App) -> list[Request]:
        """Return what is to be enqueued."""
        job = app.jobs[self.job]
        payload = job.payload_codec.from_json(self.payload)
        return [job.request(payload, **self.options)] * self.times

    def met_by(self, record: JobRecord | None) -> bool:
        """Whether a job ended as expected."""
        return record is not None and (record.state, record.attempts_made) == (
            self.expect,
            self.runs,
        )


def read_plan() -> list[Planned]:
    """Return the lines of the file that ships with the package."""
    text = resources.files("mq.demo").joinpath(PLAN_FILE).read_text(encoding="utf-8")
    return [Planned(**json.loads(line)) for line in text.splitlines() if line.strip()]
