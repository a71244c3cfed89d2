"""`mq jobs`, `mq queues`, `mq info`, `mq scripts`: for people, and as JSON."""

from __future__ import annotations

import json
import re

import pytest
from cli.terminal import at_terminal
from command_line import Cli
from servers import Server

from mq.codec import encode_defect
from mq.policies import Dedupe
from mq.records import Request
from mq.scripts import load_scripts
from mq.states import JobState
from mq.store import Store


@pytest.fixture
def failed(store: Store) -> str:
    """The id of a job that failed with a defect after a retry."""
    job_id = store.enqueue(
        Request(name="double", queue="default", payload=b"\x81\xa1n\x01", attempts_max=2)
    ).id
    exit_ = encode_defect("ValueError", "bad \x1b[31mcolour", "Traceback:\n  line 1 \x9b\n")
    for token, verb in (("a", "ack_retried"), ("b", "ack_failed")):
        store.claim(["default"], ["double"], token, 30_000, worker="w:1")
        if verb == "ack_retried":
            store.ack_retried(job_id, token, 0, exit_, summary="ValueError: bad")
        else:
            store.ack_failed(job_id, token, exit_, summary="ValueError: bad")
    return job_id


def test_show_tells_where_a_job_stands_without_its_payload(cli: Cli, failed: str) -> None:
    """Record and ledger, times with their distance from now, and nothing that steers a terminal."""
    ran = cli.run("jobs", "show", failed)
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"^state +failed$", ran.out, re.M)
    assert re.search(r"^enqueued +\d{4}-\d\d-\d\dT[0-9:.]+Z \(\S.*\)$", ran.out, re.M)
    assert re.search(r"^ +1 +retried +\d{4}-.*w:1 ", ran.out, re.M)
    assert re.search(r"^ +2 +failed +\d{4}-.*ValueError", ran.out, re.M)
    assert "payload" not in ran.out
    assert "\x1b" not in ran.out
    assert re.search(
        r'^payload +\{"n": 1\}$', cli.run("jobs", "show", failed, "--payload").out, re.M
    )


def test_show_as_json_has_record_and_ledger(cli: Cli, failed: str) -> None:
    """Times are integers, exits are named, the payload is there when it is asked for."""
    data = json.loads(cli.run("jobs", "show", failed, "--json").out)
    assert (data["id"], data["state"], data["attempts_made"]) == (failed, "failed", 2)
    assert isinstance(data["enqueued_at"], int)
    assert "payload" not in data
    assert [entry["outcome"] for entry in data["attempts"]] == ["retried", "failed"]
    assert data["exit"]["type"] == "ValueError"
    assert data["dedupe_key"] is None
    with_payload = json.loads(cli.run("jobs", "show", failed, "--json", "--payload").out)
    assert with_payload["payload"] == {"n": 1}


def test_show_tells_the_dedup_key(cli: Cli, store: Store) -> None:
    """Short or long, for people and as JSON."""
    for key in ("customer-4711", "k" * 300):
        request = Request(name="double", queue="mail", payload=b"\x01", dedupe=Dedupe(key))
        job_id = store.enqueue(request).id
        shown = cli.run("jobs", "show", job_id).out
        assert re.search(rf"^dedup key +{key}$", shown, re.M)
        assert json.loads(cli.run("jobs", "show", job_id, "--json").out)["dedupe_key"] == key


def test_attempts_shows_each_traceback(cli: Cli, failed: str) -> None:
    """The text that the worker recorded, control characters escaped."""
    ran = cli.run("jobs", "attempts", failed)
    assert ran.code == 0
    assert ran.out.count("Traceback:\n  line 1 \\x9b\n") == 2
    entries = json.loads(cli.run("jobs", "attempts", failed, "--json").out)
    assert [entry["attempt"] for entry in entries] == [1, 2]


def test_attempts_of_a_job_that_never_ran_says_so(cli: Cli, store: Store) -> None:
    """An empty ledger is no mistake."""
    job_id = store.enqueue(Request(name="double", queue="default", payload=b"\x01")).id
    assert cli.run("jobs", "attempts", job_id).out == "no run of this job has ended yet\n"
    assert json.loads(cli.run("jobs", "attempts", job_id, "--json").out) == []


def test_secrets_stay_hidden_even_when_the_payload_is_shown(cli: Cli) -> None:
    """What was declared a secret is masked without its definition at hand."""
    (cli.folder / "safe.py").write_text(
        "import mq\napp = mq.App()\nlogin = app.define('login', payload=mq.Secret[str])\n"
    )
    made = cli.run("enqueue", "safe:app", "login", "--payload", '"hunter2"')
    assert made.code == 0
    for extra in ((), ("--json",)):
        shown = cli.run("jobs", "show", made.out.strip(), "--payload", *extra)
        assert "***" in shown.out
        assert "hunter2" not in shown.out


def test_the_store_can_be_named_in_three_ways(cli: Cli, failed: str) -> None:
    """By MQ_URL, by --url and --prefix, and by an app."""
    nowhere = {"MQ_URL": "redis://127.0.0.1:1/0"}
    show = ("jobs", "show", failed, "--json")  # without "1s ago", which moves on between two calls
    by_url = cli.run(*show, "--url", cli.url, "--prefix", "mq", env=nowhere)
    assert by_url.code == 0
    assert cli.run(*show, "--app", "jobs:app").out == by_url.out
    other = cli.run("jobs", "show", failed, "--prefix", "other")
    assert (other.code, "under prefix 'other'" in other.err) == (1, True)


def test_counts_are_by_queue_and_state(cli: Cli, store: Store, failed: str) -> None:
    """All queues, or the one that is named."""
    store.enqueue(Request(name="note", queue="mail", payload=b"\x01", delay_ms=60_000))
    zeros = dict.fromkeys((state.value for state in JobState), 0)
    found = json.loads(cli.run("queues", "counts", "--json").out)
    assert found == {"default": zeros | {"failed": 1}, "mail": zeros | {"delayed": 1}}
    one = cli.run("queues", "counts", "mail")
    assert one.out.splitlines()[0].split() == ["queue", *zeros]
    assert one.out.splitlines()[1].split() == ["mail", "0", "1", "0", "0", "0", "0", "0"]


def test_info_tells_a_newcomer_what_there_is(cli: Cli, one_server: Server, failed: str) -> None:
    """Server, keyspace and what it holds."""
    data = json.loads(cli.run("info", "--json").out)
    binary = one_server.backend.binary
    assert binary is not None
    assert data["version"] == binary.version_text
    assert data["server"].lower() == binary.kind
    assert (data["prefix"], data["keyspace_version"], data["role"]) == ("mq", 1, "master")
    assert (data["queues"], data["names"], data["counts"]["failed"]) == (["default"], ["double"], 1)
    human = cli.run("info").out
    assert f"{binary.version_text}, standalone, master" in human
    assert re.search(r"^failed jobs +1$", human, re.M)


def test_looking_writes_nothing(cli: Cli, one_server: Server) -> None:
    """An empty server stays empty."""
    for command in (
        *(("info",), ("queues", "counts"), ("queues", "list"), ("jobs", "show", "x")),
        *(("jobs", "list"), ("jobs", "list", "--all"), ("jobs", "cancel", "-q", "x", "--dry-run")),
    ):
        cli.run(*command)
    assert one_server.cli("DBSIZE") == 0


def test_scripts_are_listed_with_what_slowlog_shows(cli: Cli) -> None:
    """Needs no server."""
    nowhere = {"MQ_URL": "redis://127.0.0.1:1/0"}
    found = json.loads(cli.run("scripts", "--json", env=nowhere).out)
    assert {one["name"]: one["sha"] for one in found} == {
        name: script.sha for name, script in load_scripts().items()
    }
    assert found[0]["sha"] in cli.run("scripts", env=nowhere).out


def on_a_terminal(cli: Cli, *args: str, env: dict[str, str] | None = None) -> str:
    """What a command writes to a terminal of its own."""
    with at_terminal(cli, *args, env=env) as terminal:
        terminal.wait()
        return terminal.shown


def test_colour_is_for_terminals_and_never_with_no_color(cli: Cli, failed: str) -> None:
    """A pipe gets plain text, and so does a terminal whose user wants none."""
    red = "\x1b[31m"
    assert red in on_a_terminal(cli, "jobs", "show", failed)
    assert red not in on_a_terminal(cli, "jobs", "show", failed, env={"NO_COLOR": "1"})
    assert "\x1b" not in cli.run("jobs", "show", failed).out


def test_the_progress_bar_is_for_terminals(cli: Cli) -> None:
    """It goes to stderr and is gone at the end."""
    (cli.folder / "in.jsonl").write_text('{"n": 1}\n' * 10)
    args = ("enqueue", "jobs:app", "double", "--from", "in.jsonl")
    assert "10 enqueued" in on_a_terminal(cli, *args)
    assert cli.run(*args).err == ""


def test_help_has_an_example_for_each_command(cli: Cli) -> None:
    """Every command and group shows how it is called."""
    from mq.cli.jobs import jobs
    from mq.cli.queues import queues
    from mq.cli.root import COMMANDS

    listed = cli.run("--help").out
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", listed, re.M)
        assert f"Example:\n    mq {name}" in cli.run(name, "--help").out
    for group, verbs in (("jobs", jobs), ("queues", queues)):
        for verb in verbs.commands:
            assert f"Example:\n    mq {group} {verb}" in cli.run(group, verb, "--help").out


def test_the_version_is_shown(cli: Cli) -> None:
    """`mq --version` needs nothing else."""
    ran = cli.run("--version")
    assert ran.code == 0
    assert ran.out.startswith("mq ")
