"""The configuration page has every option, with the default that the code has."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from docs.blocks import DOCS

from mq import (
    app,
    cadence,
    definitions,
    job_options,
    keys,
    listing,
    manifests,
    policies,
    schedules,
    store,
    validation,
    wire,
    worker,
)
from mq.durations import format_ms
from mq.records import Request
from mq.scripts import script_folder
from mq.store import families, scheduling, steering, upkeep
from mq.worker import fetcher, options, runner

PAGE = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
UNSAID = object()
"""A default that stands in words on the page: none, or one that comes from elsewhere."""


def table_below(heading: str, nth: int = 0) -> dict[str, str]:
    """Return the nth table of a section: option (without backticks) -> default."""
    section = re.split(
        r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE
    )[0]
    tables = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    rows = [line.strip("|\n").split("|") for line in tables[nth].splitlines()[2:]]
    return {row[0].strip().strip("`"): row[1].strip() for row in rows}


def defaults_of(function: Callable[..., Any], *left_out: str) -> dict[str, Any]:
    """Return a function's parameters and defaults; None, and what is no plain value, is UNSAID."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in {"self", *left_out}:
            continue
        shown = f"**{name}" if parameter.kind is parameter.VAR_KEYWORD else name
        default = parameter.default
        said = isinstance(default, str | int | float | bool)
        found[shown] = default if said else UNSAID
    return found


def told(value: Any) -> str:
    """Return how the page writes a default."""
    return f'`"{value}"`' if isinstance(value, str) else f"`{value}`"


def compare(page: Mapping[str, str], code: Mapping[str, Any]) -> None:
    """Fail when names differ, or a default that is a value does."""
    assert list(page) == list(code)
    wrong = {
        name: (page[name], told(value))
        for name, value in code.items()
        if value is not UNSAID and page[name] != told(value)
    }
    assert wrong == {}


def test_options_of_an_app() -> None:
    """As `App` takes them."""
    compare(table_below("App"), defaults_of(app.App))


def test_options_of_a_store() -> None:
    """As `Store` takes them."""
    page = table_below("Store")
    code = defaults_of(store.Store)
    assert page.pop("target") == f"`{app.DEFAULT_URL}`"
    assert code.pop("target") is UNSAID
    compare(page, code)


def test_options_of_a_connection_are_accepted() -> None:
    """What the page names is what a store takes; other settings are refused."""
    page = table_below("Connection")
    given = {
        "username": "u", "password": "p", "db": 1, "protocol": 3,
        "socket_timeout": 1.0, "socket_connect_timeout": 1.0, "socket_keepalive": True,
    }  # fmt: skip
    assert set(page) == {*given, "ssl_*"}
    settings = store.Store("redis://localhost", **given).endpoint.settings
    assert {name: settings[name] for name in given} == given
    plain = store.Store("redis://localhost").endpoint.settings
    for name in ("protocol", "socket_timeout", "socket_connect_timeout"):
        assert page[name] == told(plain[name])


def test_options_of_a_definition() -> None:
    """Those of `define`, and the policies of its jobs."""
    compare(table_below("Definition"), defaults_of(app.App.define, "policies"))
    page = table_below("Definition", 1)
    assert set(page) == set(defaults_of(job_options.Policies.of))
    plain = Request(name="n", queue="q", payload=b"")
    assert (page["priority"], page["attempts"]) == (str(plain.priority), str(plain.attempts_max))
    assert page["queue"] == told(definitions.DEFAULT_QUEUE)


def test_a_decorator_takes_what_define_takes() -> None:
    """One table serves both."""
    made = app.App("memory://options")
    for name in defaults_of(app.App.define, "name", "policies", "payload", "result"):
        value = {"executor": "thread", "on_unresponsive": "wait", "store": "default"}.get(name)
        made.job(f"job-{name}", **({} if value is None else {name: value}))(_handler)


def _handler(payload: int) -> None:
    del payload


@pytest.mark.parametrize(("nth", "function"), [(0, policies.fixed), (1, policies.exponential)])
def test_options_of_a_backoff(nth: int, function: Callable[..., Any]) -> None:
    """As the two functions take them."""
    compare(table_below("Backoff", nth), defaults_of(function))


def test_options_of_enqueue() -> None:
    """One at a time; many at once take the same but for the id."""
    page = table_below("Enqueue")
    compare(page, defaults_of(definitions.Job.enqueue))
    many = defaults_of(definitions.Job.enqueue_many, "payloads")
    assert set(page) - set(many) == {"payload", "job_id", "dedupe"}


def test_options_of_a_dedup_key() -> None:
    """As `mq.Dedupe` takes them."""
    compare(table_below("Deduplication"), defaults_of(policies.Dedupe))


def test_options_of_a_retention() -> None:
    """As `mq.Keep` takes them."""
    compare(table_below("Retention"), defaults_of(policies.Keep))
    (most,) = (int(n) for n in re.findall(r"0 to (\d+): how many finished", PAGE))
    assert most == policies.MAX_KEPT


def test_options_of_a_schedule() -> None:
    """As a definition, and an app for a set of them, take them; a set names its group once."""
    page = table_below("Schedules")
    assert page.pop("payload") == "`None`"
    code = defaults_of(definitions.Job.schedule)
    assert code.pop("payload") is UNSAID
    compare(page, code)
    compare(table_below("Schedules", 1), defaults_of(app.App.schedules))
    assert set(page) - set(defaults_of(schedules.ScheduleSet.add, "job", "payload")) == {"group"}


def test_options_of_a_flow_and_of_a_child() -> None:
    """As an app and a definition take them."""
    compare(table_below("Flows"), defaults_of(app.App.flow))
    compare(table_below("Flows", 1), defaults_of(definitions.Job.child))


def test_options_of_a_worker() -> None:
    """Public names, in the order of the class, and durations as people write them."""
    plain = options.WorkerOptions()
    code: dict[str, Any] = {"store": "default"}
    for public, (field, _) in options._READ.items():
        value = getattr(plain, field)
        code[public] = format_ms(value) if field.endswith("_ms") else value
    # These two follow from others, these are made or absent.
    code |= dict.fromkeys(("queues", "max_strays", "child_max_runs", "id"), UNSAID)
    page = table_below("Worker")
    assert set(page) == set(code)
    compare(page, {name: code[name] for name in page})


def test_limits() -> None:
    """The numbers are those of the code."""
    page = table_below("Limits")
    numbers = {what: [int(n) for n in re.findall(r"\d+", limit)] for what, limit in page.items()}
    assert numbers == {
        "encoded payload, result, error": [app.DEFAULT_MAX_BYTES],
        "job id": [validation.MAX_ID_BYTES],
        "job, queue and metadata-key names, prefix, worker id": [options.MAX_ID_BYTES],
        "metadata": [validation.MAX_METADATA_PAIRS, validation.MAX_METADATA_BYTES],
        "progress": [runner.MAX_PROGRESS_BYTES],
        "one claim": [fetcher.MAX_CLAIM],
        "due jobs promoted by one claim": [store.PROMOTE_BATCH],
        "jobs in one round trip of enqueue_many": [
            wire.ENQUEUE_BATCH,
            wire.ENQUEUE_BATCH_BYTES,
        ],
        "expired locks dealt with in one sweep call": [store.SWEEP_BATCH],
        "dedup windows deleted in one sweep call": [store.WINDOW_BATCH],
        "dedup key": [policies.MAX_KEY_BYTES],
        "key of a schedule or a child": [validation.MAX_SCHEDULE_KEY_BYTES],
        "cron expression": [cadence.MAX_CRON_BYTES],
        "finished jobs removed by a call that ends others": [_in_script("retain", "PRUNE_BATCH")],
        "finished jobs removed in one pruning call": [upkeep.PRUNE_BATCH],
        "schedules due that are made jobs in one round trip": [scheduling.TICK_BATCH],
        "levels of flows": [manifests.MAX_DEPTH],
        "children noted in one call": [families.MANIFEST_BATCH],
        "reports recorded in one call": [families.REPORT_BATCH],
        "children in a page of results": [families.MAX_LIST],
        "jobs cancelled, retried, promoted or removed in one call": [steering.STEER_BATCH],
        "jobs a step of a metadata back-fill looks at": [upkeep.BACKFILL_BATCH],
        "items of a page": [listing.MAX_LIMIT, listing.PAGE_BYTES],
        "places in its sorted sets that one script of a list looks at": [listing.BUDGET],
        "scripts that a list runs to fill a page": [listing.CALLS],
        "sorted sets that one script of a list merges": [listing.MAX_SETS],
    }
    assert validation.MAX_SCHEDULE_KEY_BYTES == definitions.MAX_CHILD_KEY_BYTES
    longest = "n" * options.MAX_ID_BYTES
    assert validation.check_name(longest, "queue") == keys.check_prefix(longest)
    with pytest.raises(ValueError, match="64"):
        validation.check_name(longest + "n", "queue")


def _in_script(fragment: str, name: str) -> int:
    text = (script_folder() / "fragments" / f"{fragment}.lua").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^local {name} = (\d+)$", text, re.MULTILINE)
    return int(found)


def test_exit_codes() -> None:
    """Every code a worker ends with is on the page."""
    page = table_below("Exit codes")
    assert {str(int(code)) for code in worker.ExitCode} <= set(page)
