"""`mq enqueue`: one job from the command line, or one for each line of a file or of stdin."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import attrs
import click

from mq.cli.apps import find_job, load_app
from mq.cli.failures import FAILED, CommandError, complain, misuse
from mq.cli.json_lines import Line, read_batches
from mq.cli.output import console, on_terminal, print_json
from mq.cli.parameters import DURATION, PAIR, JSONError, read_json
from mq.cli.stores import reach
from mq.errors import PayloadError, StoreError
from mq.failures import error_summary
from mq.job_options import Policies
from mq.validation import check_job_id, check_metadata

if TYPE_CHECKING:
    from mq.definitions import Job
    from mq.records import Request

STDIN = "-"
SOURCES = "give exactly one of --payload JSON, --from FILE and - (stdin)"
LINE_ROOM = 8
"""A line may be this many times as long as an encoded payload: JSON escapes take six bytes."""


@click.command()
@click.argument("app", metavar="MODULE:APP")
@click.argument("name")
@click.argument("stdin", metavar="[-]", required=False, type=click.Choice([STDIN]))
@click.option("--payload", metavar="JSON", help="The payload of a single job.")
@click.option("--from", "path", metavar="FILE", help="A payload on each line; - is stdin.")
@click.option("--delay", type=DURATION, help="Not before this much time has passed: 90s, 1h30m.")
@click.option("--priority", type=int, help="-1000 to 1000, higher first.")
@click.option("--attempts", type=int, help="Total runs, the first included.")
@click.option("--timeout", type=DURATION, help="Limit of one run.")
@click.option("--queue", help="Another queue than the definition's.")
@click.option(
    "--metadata", type=PAIR, multiple=True, help="Shown and listed with the job; repeatable."
)
@click.option("--job-id", help="An explicit id, with --payload; one that exists enqueues nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def enqueue(
    app: str,
    name: str,
    stdin: str | None,
    payload: str | None,
    path: str | None,
    as_json: bool,
    metadata: tuple[tuple[str, str], ...],
    job_id: str | None,
    **options: Any,
) -> int:
    """Enqueue one job, or one for each line of a file.

    A payload is JSON that fits the job's payload type: an object for a class, bytes as base64,
    times as ISO text. With --payload the id is printed. A line that does not fit is reported with
    its number, the others are enqueued all the same, and the exit code is 1.

    \b
    Example:
      mq enqueue myapp.jobs:app send-invite --payload '{"email": "a@example.org"}' --delay 10m
      mq enqueue myapp.jobs:app send-invite --from invites.jsonl --priority 5
      generate | mq enqueue myapp.jobs:app send-invite -
    """  # noqa: D301 click's mark: not to be wrapped
    unasked = payload is None and path is None and stdin is None and _is_fed(sys.stdin)
    if unasked:
        stdin = STDIN
    source = path if path is not None else stdin
    _check_sources(payload, path, stdin, job_id)
    job = find_job(load_app(app), app, name)
    given = {**options, "metadata": dict(metadata)}
    _check_options(given, job_id)
    if payload is not None:
        return _enqueue_one(job, payload, {**given, "job_id": job_id}, as_json)
    with _opened(source or STDIN) as (stream, label):
        reach(job.store, to_write=True)
        return _Bulk(job, given, label, unasked).run(stream, as_json)


def _check_sources(
    payload: str | None, path: str | None, stdin: str | None, job_id: str | None
) -> None:
    if sum(one is not None for one in (payload, path, stdin)) != 1:
        raise misuse(SOURCES)
    if path == "":
        raise misuse("--from is empty: name a file, or - for stdin")
    if job_id is not None and payload is None:
        raise misuse("--job-id names a single job: give it with --payload")


def _check_options(given: dict[str, Any], job_id: str | None) -> None:
    """Refuse options that cannot work before anything is read or sent."""
    try:
        Policies.of(**{key: value for key, value in given.items() if key != "metadata"})
        check_metadata(given["metadata"])
        if job_id is not None:
            check_job_id(job_id)
    except (PayloadError, ValueError, TypeError) as error:
        raise misuse(str(error)) from None


def _enqueue_one(job: Job[Any, Any], text: str, options: dict[str, Any], as_json: bool) -> int:
    try:
        value = job.payload_codec.from_json(read_json(text))
        job.request(value, **options)
    except JSONError as error:
        raise misuse(f"--payload is {error}") from None
    except PayloadError as error:
        raise misuse(str(error)) from None
    reach(job.store, to_write=True)
    job_id = job.enqueue(value, **options)
    if as_json:
        print_json(
            {
                "id": str(job_id),
                "name": job.name,
                "duplicate": job_id.duplicate,
                "replaced": job_id.replaced,
            }
        )
        return 0
    click.echo(job_id)
    if job_id.duplicate:
        what = (
            "was delayed under its dedup key and carries this now"
            if job_id.replaced
            else "existed already, nothing was enqueued"
        )
        complain(f"job {job_id} {what}")
    return 0


def _is_fed(stream: TextIO) -> bool:
    """Whether somebody gave it a file or a pipe: a terminal or /dev/null says nothing."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


@contextmanager
def _opened(source: str) -> Iterator[tuple[BinaryIO, str]]:
    if source == STDIN:
        yield sys.stdin.buffer, "stdin"
        return
    try:
        stream = Path(source).open("rb")  # noqa: SIM115 closed below, where it is used
    except OSError as error:
        raise misuse(f"cannot read {source}: {error.strerror}") from None
    with stream:
        yield stream, source


@attrs.define
class _Bulk:
    """One stream of payloads on its way into the store."""

    job: Job[Any, Any]
    options: dict[str, Any]
    label: str
    unasked: bool = False
    """Whether stdin is read only because nothing else was named."""
    enqueued: int = 0
    duplicates: int = 0
    refused: int = 0

    def run(self, stream: BinaryIO, as_json: bool) -> int:
        limit = self.job.app.max_payload_bytes * LINE_ROOM
        with _progress(stream) as advance:
            try:
                for batch in read_batches(stream, limit):  # type: ignore[arg-type] # buffered: it has read1
                    self._send(batch.lines)
                    advance(batch.size, self.enqueued)
            except OSError as error:
                raise CommandError(
                    f"cannot read {self.label}: {error.strerror}; {self._so_far}"
                ) from None
            except KeyboardInterrupt:
                complain(
                    f"interrupted; at least {self._so_far}, of the batch under way some may be"
                )
                raise
        if self.unasked and not self.enqueued + self.duplicates + self.refused:
            raise misuse(SOURCES)
        return self._report(as_json)

    @property
    def _so_far(self) -> str:
        return f"{self.enqueued} jobs were enqueued"

    def _send(self, lines: list[Line]) -> None:
        made = [(line.number, request) for line in lines if (request := self._request(line))]
        if not made:
            return
        try:
            answers = self.job.store.enqueue_many(request for _, request in made)
        except StoreError as error:
            first, last = made[0][0], made[-1][0]
            raise CommandError(
                f"{error}; {self._so_far} from the lines before {first}, of lines {first} to {last}"
                " some may be too"
            ) from None
        for (number, _), answer in zip(made, answers, strict=True):
            if answer.name != self.job.name:
                self._refuse(number, f"id {answer.id!r} belongs to a job named {answer.name!r}")
            elif answer.duplicate:
                self.duplicates += 1
            else:
                self.enqueued += 1

    def _request(self, line: Line) -> Request | None:
        reason = line.reason
        if reason is None:
            try:
                value = self.job.payload_codec.from_json(line.value)
                return self.job.request(value, **self.options)
            except PayloadError as error:
                reason = str(error)
            # A definition's idempotency_key and metadata are the user's own functions.
            except Exception as error:  # noqa: BLE001
                reason = error_summary(error)
        self._refuse(line.number, reason)
        return None

    def _refuse(self, number: int, reason: str) -> None:
        self.refused += 1
        complain(f"{self.label}:{number}: {reason}")

    def _report(self, as_json: bool) -> int:
        if as_json:
            counts = {
                "enqueued": self.enqueued,
                "duplicates": self.duplicates,
                "refused": self.refused,
            }
            print_json(counts)
        else:
            existed = f", {self.duplicates} existed already" if self.duplicates else ""
            click.echo(f"{self.enqueued} enqueued{existed}")
        if self.refused:
            total = self.enqueued + self.duplicates + self.refused
            complain(
                f"{self.refused} of {total} lines of {self.label} were refused, the others enqueued"
            )
            return FAILED
        return 0


@contextmanager
def _progress(stream: BinaryIO) -> Iterator[Any]:
    """Show a bar on a terminal; yields what is told the bytes read and the jobs enqueued so far."""
    if not on_terminal(sys.stderr) or on_terminal(stream):
        yield lambda *_: None
        return
    from rich import progress

    columns = (
        progress.BarColumn(),
        progress.TextColumn("{task.fields[enqueued]} enqueued"),
        progress.TimeElapsedColumn(),
    )
    size = (
        Path(stream.name).stat().st_size
        if isinstance(stream.name, str) and stream.seekable()
        else None
    )
    # Lines that complain go through the bar, which redirects stderr while it is shown.
    with progress.Progress(*columns, console=console(err=True), transient=True) as bar:
        task = bar.add_task("", total=size, enqueued=0)

        def advance(read: int, enqueued: int) -> None:
            bar.update(task, advance=read, enqueued=enqueued)

        yield advance
