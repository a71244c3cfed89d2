"""`mq schedules`: which there are, when they fall due, and what an operator does to them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from cli.terminal import at_terminal
from command_line import Cli
from transitions.seed import raw

import mq
from mq.cadence import Cadence
from mq.cli.job_data import keep_text
from mq.cli.schedules import cadence_text
from mq.policies import encode_keep
from mq.states import JobState
from mq.store import Store


@pytest.fixture
def digest(cli: Cli, store: Store) -> Iterator[mq.Job[str, None]]:
    """Two schedules of `digest`, one of `report`; returns the first definition."""
    app = mq.App(cli.url)
    job: mq.Job[str, None] = app.define(
        "digest", payload=str, result=None, queue="mail", keep=mq.Keep(count=5)
    )
    other: mq.Job[str, None] = app.define("report", payload=str, result=None)
    job.schedule("hourly", every="1h", payload="h", overlap="skip", max_lateness="5m")
    job.schedule("eu:daily", cron="30 2 * * *", tz="Europe/Paris", payload="d", group="ops",
                 metadata={"region": "eu"}, priority=3)  # fmt: skip
    other.schedule("quarterly", every="90d", payload="q")
    yield job
    app.close()


def labels(shown: list[dict[str, Any]]) -> list[str]:
    """What a list calls its schedules."""
    return [f"{one['name']}:{one['key']}" for one in shown]


def test_schedules_are_listed_by_their_next_occurrence(
    cli: Cli, store: Store, digest: mq.Job[str, None]
) -> None:
    """With cadence and queue; a paused one says so."""
    store.pause_schedule("report", "quarterly")
    shown = json.loads(cli.run("schedules", "list", "--json").out)
    records = store.list_schedules()
    assert [one["next_run_at"] for one in shown] == [one.next_run_at for one in records]
    assert labels(shown) == [f"{one.name}:{one.key}" for one in records]
    by_label = dict(zip(labels(shown), shown, strict=True))
    assert set(by_label) == {"digest:hourly", "digest:eu:daily", "report:quarterly"}
    daily = by_label["digest:eu:daily"]
    assert (daily["cron"], daily["tz"], daily["every_ms"]) == ("30 2 * * *", "Europe/Paris", None)
    assert (daily["queue"], daily["group"], daily["paused_since"]) == ("mail", "ops", None)
    assert by_label["digest:hourly"]["every_ms"] == 3_600_000
    assert by_label["report:quarterly"]["paused_since"] is not None
    text = cli.run("schedules", "list").out
    assert len(text.splitlines()) == 4
    assert re.search(r"^digest:eu:daily +30 2 \* \* \* Europe/Paris +20\S+Z \(", text, re.MULTILINE)
    paused = r"^report:quarterly +every 90d +paused (now|.+ ago) +default"
    assert re.search(paused, text, re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--name", "report"), ["report:quarterly"]),
        (("--queue", "default"), ["report:quarterly"]),
        (("--group", "ops"), ["digest:eu:daily"]),
        (("--group", "other"), []),
    ],
)
def test_a_list_may_be_of_some(
    cli: Cli, digest: mq.Job[str, None], options: tuple[str, ...], found: list[str]
) -> None:
    """By name, queue or owner; none is no mistake."""
    assert labels(json.loads(cli.run("schedules", "list", *options, "--json").out)) == found
    if not found:
        assert cli.run("schedules", "list", *options).out == "no schedule matches\n"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--name", "dijest"), "of job name 'dijest'; there are: digest, report"),
        (("--queue", "male"), "for queue 'male'; there are: default, mail"),
        (("--group", "opps", "--name", "digest"), "of group 'opps'; there are: ops"),
        (("--group", "ops", "--name", "report"), ""),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_may_be_mistyped_is_told_from_an_empty_answer(
    cli: Cli,
    digest: mq.Job[str, None],
    options: tuple[str, ...],
    hint: str,
    form: tuple[str, ...],
) -> None:
    """On stderr, and no failure: the answer itself is as empty as any."""
    ran = cli.run("schedules", "list", *options, *form)
    assert (ran.code, ran.out) == (0, "[]\n" if form else "no schedule matches\n")
    if hint:
        assert ran.complaint == f"no schedule is {hint}"
    else:
        assert ran.err == ""


def test_a_record_that_cannot_be_read_is_told_in_one_line(
    cli: Cli, store: Store, digest: mq.Job[str, None]
) -> None:
    """A list names it beside the others; what needs the record refuses; it can be removed."""
    raw(store).hdel(store.keys.schedule("digest", "hourly"), "queue")
    ran = cli.run("schedules", "list", "--json")
    assert ran.code == 0
    assert len(json.loads(ran.out)) == 2
    assert ran.complaint.startswith("schedule digest:hourly is left out, its record cannot be read")
    for verb in ("show", "pause", "resume", "run-now"):
        ran = cli.run("schedules", verb, "digest:hourly")
        assert (ran.code, ran.out) == (1, "")
        assert ran.complaint.startswith("schedule digest:hourly cannot be read: it has no 'queue'")
    assert cli.run("schedules", "remove", "digest:hourly").code == 0
    assert cli.run("schedules", "list").err == ""


def test_a_store_without_schedules_hints_at_no_mistake(cli: Cli, store: Store) -> None:
    """Whatever was asked for, and whatever jobs there are."""
    ran = cli.run("schedules", "list", "--name", "digest")
    assert (ran.code, ran.out, ran.err) == (0, "no schedules\n", "")


def test_a_key_may_have_spaces_and_any_letter(cli: Cli, store: Store) -> None:
    """The whole label is one word of the command line, in every command."""
    app = mq.App(cli.url)
    job: mq.Job[str, None] = app.define("spaced", payload=str, result=None)
    key, label = " Caf\u00e9: every  morning ", "spaced: Caf\u00e9: every  morning "
    job.schedule(key, every="1h", payload="p")
    job.schedule("short", every="1h", payload="p")
    head, *rows = cli.run("schedules", "list").out.splitlines()
    at = head.index("falls due")
    assert {row[:at].rstrip() for row in rows} == {label.rstrip(), "spaced:short"}
    assert {row[at : at + 8] for row in rows} == {"every 1h"}
    assert json.loads(cli.run("schedules", "show", label, "--json").out)["key"] == key
    for verb, told in (
        ("pause", "paused"), ("resume", "resumed"), ("run-now", "enqueued"), ("remove", "removed"),
    ):  # fmt: skip
        ran = cli.run("schedules", verb, label)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.startswith(f"{label}: {told}")
    assert [one.key for one in store.list_schedules()] == ["short"]
    job_ids = [one.id for one in store.list(name="spaced").items]
    assert [job_id.startswith(f"sched/spaced/{key}/now-") for job_id in job_ids] == [True]
    app.close()


def test_no_schedules_are_said_to_be_none(cli: Cli) -> None:
    """An empty store is no mistake."""
    assert cli.run("schedules", "list").out == "no schedules\n"
    assert json.loads(cli.run("schedules", "list", "--json").out) == []


def test_a_narrow_terminal_gets_fewer_columns(cli: Cli, digest: mq.Job[str, None]) -> None:
    """The schedule's whole name stands there: it is what other commands take."""
    with at_terminal(cli, "schedules", "list", columns=80) as terminal:
        assert terminal.wait() == 0
        lines = [re.sub(r"\x1b\[\d*m", "", line) for line in terminal.shown.splitlines()]
    assert max(map(len, lines)) <= 80
    assert re.split(r"  +", lines[0].strip()) == ["schedule", "falls due", "next"]
    assert any("digest:eu:daily" in line for line in lines)


def test_one_is_shown_with_the_job_it_makes(cli: Cli, digest: mq.Job[str, None]) -> None:
    """Its payload only when it is asked for."""
    plain = json.loads(cli.run("schedules", "show", "digest:eu:daily", "--json").out)
    assert "payload" not in plain
    asked = ("schedules", "show", "digest:eu:daily", "--payload")
    shown = json.loads(cli.run(*asked, "--json").out)
    assert (shown["key"], shown["payload"], shown["priority"]) == ("eu:daily", "d", 3)
    assert (shown["metadata"], shown["overlap"]) == ({"region": "eu"}, "allow")
    assert shown["keep"] == encode_keep(mq.Keep(count=5))
    text = cli.run(*asked).out
    for line in (
        r"^schedule +digest:eu:daily$",
        r"^falls due +30 2 \* \* \* Europe/Paris$",
        r"^kept +the newest 5$",
        r"^metadata +region=eu$",
        r'^payload +"d"$',
    ):
        assert re.search(line, text, re.MULTILINE), line
    hourly = cli.run("schedules", "show", "digest:hourly").out
    assert re.search(r"^overlap +skipped while the last job runs$", hourly, re.MULTILINE)
    assert re.search(r"^skipped if later than +5m$", hourly, re.MULTILINE)
    assert "payload" not in hourly
    assert "paused" not in hourly


def test_a_paused_schedule_makes_no_jobs_until_it_is_resumed(
    cli: Cli, store: Store, digest: mq.Job[str, None]
) -> None:
    """What was asked for twice says so, and is no failure."""
    first = cli.run("schedules", "pause", "digest:hourly", "digest:eu:daily")
    assert (first.code, first.out) == (0, "digest:hourly: paused\ndigest:eu:daily: paused\n")
    again = cli.run("schedules", "pause", "digest:hourly")
    assert (again.code, again.out, again.err) == (0, "digest:hourly: was paused before\n", "")
    found = store.get_schedule("digest", "hourly")
    assert found is not None
    assert found.paused_at is not None
    assert cli.run("schedules", "resume", "digest:hourly").out == "digest:hourly: resumed\n"
    last = cli.run("schedules", "resume", "digest:hourly")
    assert (last.code, last.out, last.err) == (0, "digest:hourly: was not paused\n", "")
    after = store.get_schedule("digest", "hourly")
    assert after == attrs.evolve(found, paused_at=None)


def test_resuming_what_is_not_paused_skips_nothing(cli: Cli, store: Store) -> None:
    """An occurrence that is due stays due."""
    app = mq.App(cli.url)
    job: mq.Job[str, None] = app.define("late", payload=str, result=None)
    job.schedule("k", every="1h", payload="p")
    found = store.get_schedule("late", "k")
    assert found is not None
    overdue = found.next_run_at - 2 * 3_600_000
    assert store.advance_schedule("late", "k", found.next_run_at, overdue)
    assert cli.run("schedules", "resume", "late:k").out == "late:k: was not paused\n"
    assert [one.next_run_at for one in store.due_schedules().schedules] == [overdue]
    app.close()


def test_run_now_makes_a_job_beside_the_occurrences(
    cli: Cli, store: Store, digest: mq.Job[str, None]
) -> None:
    """With what the schedule says; the schedule stays where it is, and a paused one runs too."""
    store.pause_schedule("digest", "eu:daily")
    before = store.get_schedule("digest", "eu:daily")
    ran = cli.run("schedules", "run-now", "digest:eu:daily")
    told = re.fullmatch(r"digest:eu:daily: enqueued (sched/digest/eu:daily/now-\d{13})\n", ran.out)
    assert told is not None, ran.out
    assert (ran.code, ran.err) == (0, "")
    found = digest.get_job(told[1])
    assert found is not None
    assert found.payload == "d"
    record = found.record
    assert (record.state, record.queue, record.priority) == (JobState.WAITING, "mail", 3)
    assert (record.metadata, record.keep) == ({"region": "eu"}, encode_keep(mq.Keep(count=5)))
    assert store.get_schedule("digest", "eu:daily") == before
    (shown,) = json.loads(cli.run("schedules", "run-now", "digest:hourly", "--json").out)
    assert (shown["schedule"], shown["outcome"]) == ("digest:hourly", "enqueued")
    assert store.get_states([shown["job"]]) == [JobState.WAITING]


def test_a_removed_schedule_is_gone_and_its_jobs_stay(
    cli: Cli, store: Store, digest: mq.Job[str, None]
) -> None:
    """Removed twice it is not there."""
    job_id = store.run_schedule_now("digest", "hourly")
    assert job_id is not None
    assert cli.run("schedules", "remove", "digest:hourly").out == "digest:hourly: removed\n"
    assert store.get_schedule("digest", "hourly") is None
    assert store.get_states([job_id]) == [JobState.WAITING]
    assert cli.run("schedules", "remove", "digest:hourly").code == 1


@pytest.mark.parametrize("verb", ["pause", "resume", "run-now", "remove"])
def test_one_that_is_not_there_is_refused_and_the_others_are_done(
    cli: Cli, store: Store, digest: mq.Job[str, None], verb: str
) -> None:
    """On stderr, with exit code 1."""
    ran = cli.run("schedules", verb, "digest:nope", "report:quarterly", "--json")
    assert ran.code == 1
    assert ran.complaint.startswith("no schedule 'digest:nope' at ")
    first, second = json.loads(ran.out)
    assert first == {"schedule": "digest:nope", "outcome": "not_found"}
    assert (second["schedule"], second["outcome"] != "not_found") == ("report:quarterly", True)
    assert store.get_schedule("digest", "nope") is None


def test_show_of_one_that_is_not_there(cli: Cli) -> None:
    """One line and exit code 1."""
    for form in ((), ("--json",)):
        ran = cli.run("schedules", "show", "digest:nope", *form)
        assert (ran.code, ran.out) == (1, "")
        assert ran.complaint.startswith("no schedule 'digest:nope' at ")


def test_a_zone_that_is_not_known_here_leaves_the_schedule_paused(cli: Cli, store: Store) -> None:
    """It was registered where the zone is known."""
    app = mq.App(cli.url)
    job: mq.Job[str, None] = app.define("far", payload=str, result=None)
    job.schedule("k", cron="0 3 * * *", payload="p")
    found = store.get_schedule("far", "k")
    assert found is not None
    store.upsert_schedule(attrs.evolve(found, cadence=Cadence("0 3 * * *", "Mars/Base")))
    store.pause_schedule("far", "k")
    ran = cli.run("schedules", "resume", "far:k")
    assert ran.code == 1
    assert ran.complaint.startswith("schedule far:k stays paused: zone 'Mars/Base' is not known")
    after = store.get_schedule("far", "k")
    assert after is not None
    assert after.paused_at is not None
    app.close()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("pause",), "Missing argument 'SCHEDULE...'"),
        (("show",), "Missing argument 'SCHEDULE'"),
        (("run-now", "digest"), "'digest' is no schedule: write job-name:key"),
        (("remove", "a b:key"), "job name 'a b' must be 1 to 64 of"),
        (("remove", "digest:"), "schedule key"),
        (("list", "--group", "a b"), "group 'a b' must be 1 to 64 of"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    cli: Cli, args: tuple[str, ...], said: str
) -> None:
    """With exit code 2."""
    ran = cli.run("schedules", *args)
    assert said in ran.complaint
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize(
    "args", [("schedules",), ("schedules", "list"), ("schedules", "run-now"), ("flows", "show")]
)
def test_help_shows_an_example(cli: Cli, args: tuple[str, ...]) -> None:
    """Of the command itself."""
    shown = cli.run(*args, "--help").out
    assert f"mq {args[0]} {args[1] if len(args) > 1 else 'list'}" in shown.partition("Example:")[2]


@pytest.mark.parametrize(
    ("cadence", "text"),
    [
        (Cadence(every_ms=5_400_000), "every 1h30m"),
        (Cadence("0 3 * * 1", "UTC"), "0 3 * * 1 UTC"),
    ],
)
def test_a_cadence_reads_as_it_is_written(cadence: Cadence, text: str) -> None:
    """An interval as a duration, an expression with its zone."""
    assert cadence_text(cadence) == text


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        (None, None),
        (mq.Keep(count=100), "the newest 100"),
        (mq.Keep(age="1d"), "for 1d"),
        (mq.Keep(count=100, age="90m"), "the newest 100, for 1h30m"),
        (mq.Keep(count=0), "none"),
        (mq.Keep(count=5, age=0), "none"),
        (
            {"completed": mq.Keep(count=0), "failed": mq.Keep(age="7d")},
            "completed: none; failed: for 7d",
        ),
        (
            {"completed": mq.Keep(age="1h"), "cancelled": mq.Keep(age="1h")},
            "completed, cancelled: for 1h",
        ),
    ],
)
def test_a_policy_reads_as_people_say_it(keep: Any, text: str | None) -> None:
    """Once for all states when it is one."""
    assert keep_text(encode_keep(keep)) == text
