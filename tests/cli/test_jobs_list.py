"""`mq jobs list`: pages and whole lists, for people and for programs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from cli.terminal import at_terminal
from command_line import Cli, Ran
from conformance.build import TOKEN, job, take
from servers import Server

from mq.store import Store

NOWHERE = {"MQ_URL": "redis://127.0.0.1:1/0"}


def listed(ran: Ran) -> list[str]:
    """The ids of the jobs in a list as JSON."""
    assert (ran.code, ran.err) == (0, "")
    return [one["id"] for one in json.loads(ran.out)["jobs"]]


def fail(store: Store, *job_ids: str) -> None:
    """Let waiting jobs run and fail, those that are next."""
    assert take(store, len(job_ids)) == list(job_ids)
    for job_id in job_ids:
        store.ack_failed(job_id, TOKEN, None, summary="Declined: no \x1b[31mcover")


def started(cli: Cli, *args: str) -> subprocess.Popen[bytes]:
    """A command whose output is read by the test, as slowly as it likes."""
    return subprocess.Popen(
        [sys.executable, "-m", "mq", *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cli.folder,
        env={**os.environ, "MQ_URL": cli.url},
    )


def test_the_latest_jobs_come_first_in_a_table(cli: Cli, store: Store) -> None:
    """Where each stands, its time with the distance from now, its error; nothing of its payload."""
    store.enqueue(job("a", payload=b"\xa6hidden"))
    fail(store, "a")
    store.enqueue(job("b", delay_ms=3_600_000, attempts_max=3))
    ran = cli.run("jobs", "list")
    heading, first, second = ran.out.splitlines()
    assert re.split(r"  +", heading) == [
        *("id", "name", "queue", "state", "attempts", "enqueued", "last error"),
    ]
    assert re.fullmatch(r"b +n +q +delayed +0 of 3 +20\d\d-\d\d-\d\dT[\d:.]+Z \(.+\)", first)
    assert re.fullmatch(
        r"a +n +q +failed +1 of 1 +20\S+Z \(.+\) +Declined: no \\x1b\[31mcover", second
    )
    assert heading.index("queue") == first.index(" q ") + 1 == second.index(" q ") + 1
    assert "hidden" not in ran.out
    assert "\x1b" not in ran.out


def test_what_a_dashboard_asks_for_is_one_command(cli: Cli, store: Store) -> None:
    """The failed jobs of one name in one queue with one metadata value, the latest first."""
    for number in range(4):
        store.enqueue(job(f"a{number}", metadata={"customer": str(number % 2), "plan": "free"}))
    fail(store, "a0", "a1", "a2", "a3")
    store.enqueue(job("waits", metadata={"customer": "1", "plan": "free"}))
    store.enqueue(job("other", name="m", metadata={"customer": "1", "plan": "free"}))
    options = ("-q", "q", "-n", "n", "--state", "failed", "--metadata", "customer=1")
    both = (*options, "--metadata", "plan=free")
    assert listed(cli.run("jobs", "list", *options, "--json")) == ["a3", "a1"]
    assert listed(cli.run("jobs", "list", *both, "--json")) == ["a3", "a1"]
    assert listed(cli.run("jobs", "list", *options, "--metadata", "plan=paid", "--json")) == []


def test_an_order_lists_the_states_it_is_of(cli: Cli, store: Store) -> None:
    """What runs next in a queue, and what just finished in any, without naming states."""
    store.enqueue(job("first"))
    store.enqueue(job("second"))
    fail(store, "first", "second")
    store.enqueue(job("there", queue="p", name="m"))
    store.cancel("there")
    store.enqueue(job("late", delay_ms=7_200_000))
    store.enqueue(job("soon", delay_ms=3_600_000))
    store.enqueue(job("now"))
    nexts = ("jobs", "list", "--order-by", "run_at", "--order", "asc", "-q", "q")
    assert listed(cli.run(*nexts, "--json")) == ["soon", "late"]
    table = cli.run(*nexts).out.splitlines()
    assert table[0].split()[5:7] == ["runs", "from"]
    assert re.search(r"Z \(in (1h|59m\d*s?)\)$", table[1])
    finished = cli.run("jobs", "list", "--order-by", "finished_at", "--json")
    assert listed(finished)[0] == "there"
    assert set(listed(finished)) == {"there", "first", "second"}
    cancelled = ("--order-by", "finished_at", "--state", "cancelled", "--json")
    assert listed(cli.run("jobs", "list", *cancelled)) == ["there"]


def test_json_has_what_stands_on_the_record(cli: Cli, store: Store) -> None:
    """All that `mq jobs show --json` has, payload, exit and ledger left out."""
    store.enqueue(job("a", priority=3, metadata={"k": "v"}, timeout_ms=500))
    (one,) = json.loads(cli.run("jobs", "list", "--json").out)["jobs"]
    shown = json.loads(cli.run("jobs", "show", "a", "--json").out)
    assert one == {key: shown[key] for key in shown if key not in ("exit", "attempts")}
    assert (one["priority"], one["metadata"], one["timeout_ms"]) == (3, {"k": "v"}, 500)


@pytest.mark.parametrize("order", ["desc", "asc"])
def test_cursors_lead_through_all_jobs(cli: Cli, store: Store, order: str) -> None:
    """Each page says how to go on, the last one has no cursor."""
    wanted = [f"a{number}" for number in range(5)]
    for job_id in wanted:
        store.enqueue(job(job_id))
    found: list[str] = []
    cursor: list[str] = []
    lengths = []
    while not lengths or cursor:
        ran = cli.run("jobs", "list", "--limit", "2", "--order", order, "--json", *cursor)
        page = json.loads(ran.out)
        found += [one["id"] for one in page["jobs"]]
        lengths.append(len(page["jobs"]))
        cursor = ["--cursor", page["cursor"]] if page["cursor"] else []
    assert found == (wanted if order == "asc" else wanted[::-1])
    assert lengths == [2, 2, 1]


def test_a_table_that_ends_early_says_how_to_go_on(cli: Cli, store: Store) -> None:
    """On stderr, so that a pipe gets jobs alone; a table that is complete says nothing."""
    for job_id in "abc":
        store.enqueue(job(job_id))
    ran = cli.run("jobs", "list", "--limit", "2", "--order", "asc")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["id", "a", "b"]
    told = re.fullmatch(r"more may follow: the same command with --cursor (\S+)", ran.complaint)
    assert told is not None
    rest = cli.run("jobs", "list", "--limit", "2", "--order", "asc", "--cursor", told[1])
    assert [line.split()[0] for line in rest.out.splitlines()] == ["id", "c"]
    assert rest.err == ""


def test_a_page_goes_on_where_a_call_looked_at_enough(cli: Cli, store: Store) -> None:
    """A rare job is found by one command, however many others a call would step through."""
    store.enqueue(job("rare", metadata={"plan": "gold"}))
    store.enqueue_many(job(f"a{number}", metadata={"plan": "free"}) for number in range(1_200))
    filters = {"queue": "q", "metadata": {"plan": "gold"}}
    assert store.list(**filters).items == []  # type: ignore[arg-type] # spread
    options = ("-q", "q", "--metadata", "plan=gold", "--limit", "1")
    assert listed(cli.run("jobs", "list", *options, "--json")) == ["rare"]
    assert cli.run("jobs", "list", *options).out.splitlines()[1].startswith("rare ")


def test_all_goes_through_every_page(cli: Cli, store: Store) -> None:
    """A line of JSON for each job, or one table whose columns stay where they are."""
    wanted = [f"a{number:04}" for number in range(1_203)]
    store.enqueue_many(job(job_id) for job_id in wanted)
    lines = cli.run("jobs", "list", "--all", "--order", "asc", "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in lines] == wanted
    table = cli.run("jobs", "list", "--all").out.splitlines()
    assert [line.split()[0] for line in table] == ["id", *wanted[::-1]]
    assert len({line.index(" waiting ") for line in table[1:]}) == 1


def test_all_may_begin_behind_a_cursor(cli: Cli, store: Store) -> None:
    """And needs no limit."""
    for job_id in "abc":
        store.enqueue(job(job_id))
    cursor = json.loads(cli.run("jobs", "list", "--limit", "1", "--json").out)["cursor"]
    rest = cli.run("jobs", "list", "--all", "--cursor", cursor, "--json").out.splitlines()
    assert [json.loads(line)["id"] for line in rest] == ["b", "a"]


def test_all_reads_no_further_than_somebody_listens(
    cli: Cli, store: Store, one_server: Server
) -> None:
    """Pages are printed as they come, and a reader that leaves is no mistake."""
    store.enqueue_many(job(f"a{number}") for number in range(6_000))
    one_server.cli("CONFIG", "RESETSTAT")
    with started(cli, "jobs", "list", "--all", "--json") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["id"] == "a5999"
        stats = one_server.cli("INFO", "commandstats").decode()
        calls = int(stats.partition("cmdstat_evalsha:calls=")[2].partition(",")[0])
        assert calls < 6_000 / 100 / 2, "half of all records were read before the first was wanted"
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(30)


def test_ctrl_c_says_how_to_go_on(cli: Cli, store: Store) -> None:
    """What was printed and what follows behind the cursor is the whole list."""
    store.enqueue_many(job(f"a{number}") for number in range(3_000))
    with started(cli, "jobs", "list", "--all", "--json") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(600)]
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        rest, complaint = process.stdout.readlines(), process.stderr.read()
        assert process.wait(30) == 130
    told = re.fullmatch(
        rb"mq: interrupted; to go on: the same command with --cursor (\S+)\s*", complaint
    )
    assert told is not None, complaint
    printed = [line for line in [*lines, *rest] if line.endswith(b"\n")]
    after = cli.run("jobs", "list", "--all", "--json", "--cursor", told[1].decode())
    found = {json.loads(line)["id"] for line in [*printed, *after.out.encode().splitlines()]}
    assert found == {f"a{number}" for number in range(3_000)}
    assert len(after.out.splitlines()) < 3_000


def test_a_server_that_goes_away_says_how_to_go_on(
    cli: Cli, own_server: Callable[..., str]
) -> None:
    """In the line that says what is wrong."""
    url = f"unix://{own_server()}"
    store = Store(url)
    store.enqueue_many(job(f"a{number}") for number in range(3_000))
    store.close()
    with started(cli, "jobs", "list", "--all", "--json", "--url", url) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(600):
            process.stdout.readline()
        with store.endpoint.client() as client:
            client.shutdown(nosave=True)
        process.stdout.read()
        complaint = process.stderr.read()
        assert process.wait(30) == 1
    assert re.fullmatch(
        rb"mq: cannot reach .*; to go on: the same command with --cursor \S+\n", complaint
    )


def test_a_list_without_jobs_says_so_and_names_what_may_be_mistyped(cli: Cli, store: Store) -> None:
    """An empty store, a filter that nothing matches, a queue and a name that nobody ever used."""
    empty = cli.run("jobs", "list")
    assert (empty.code, empty.out) == (0, "no jobs\n")
    assert empty.complaint == "no job was ever enqueued here: check --url and --prefix"
    store.enqueue(job("a"))
    store.enqueue(job("b", queue="p", name="m"))
    none = cli.run("jobs", "list", "--state", "failed")
    assert (none.code, none.out, none.err) == (0, "no job matches\n", "")
    queue = cli.run("jobs", "list", "-q", "qq")
    assert (queue.code, queue.out) == (0, "no job matches\n")
    assert queue.complaint == "no job was ever seen in queue 'qq'; there are: p, q"
    name = cli.run("jobs", "list", "-n", "nn")
    assert name.complaint == "no job was ever seen of job name 'nn'; there are: m, n"
    data = cli.run("jobs", "list", "-q", "qq", "--json")
    assert json.loads(data.out) == {"jobs": [], "cursor": None}
    assert data.complaint == queue.complaint
    lines = cli.run("jobs", "list", "-q", "qq", "--all", "--json")
    assert (lines.out, lines.complaint) == ("", queue.complaint)


RUN_AT = ("--order-by", "run_at")
FINISHED_AT = ("--order-by", "finished_at")
USAGE: list[Any] = [
    pytest.param(RUN_AT, "--order-by run_at is of one queue: give --queue", id="queue"),
    pytest.param(
        (*RUN_AT, "-q", "q", "--state", "waiting"),
        "--order-by run_at is of states delayed: leave other --state out",
        id="not delayed",
    ),
    pytest.param(
        (*RUN_AT, "-q", "q", "--metadata", "a=b"),
        "--order-by run_at does not go with --metadata",
        id="metadata",
    ),
    pytest.param(
        (*FINISHED_AT, "--state", "failed", "--state", "active"),
        "is of states completed, failed, cancelled: leave other --state out",
        id="not finished",
    ),
    pytest.param(
        (*FINISHED_AT, "--metadata", "a=b"),
        "--order-by finished_at does not go with --metadata; --order-by enqueued_at goes with",
        id="finished metadata",
    ),
    pytest.param(("--order-by", "priority"), "'priority' is not one of 'enqueued_at'", id="order"),
    pytest.param(("--order", "up"), "'up' is not one of 'desc', 'asc'", id="direction"),
    pytest.param(
        ("--state", "done"), "'done' is not one of 'waiting', 'delayed', 'active'", id="state"
    ),
    pytest.param(("--limit", "0"), "'--limit': 0 is not in the range", id="limit"),
    pytest.param(("--limit", "3", "--all"), "--all lists jobs to the end: leave", id="all"),
    pytest.param(("--cursor", "nonsense"), "--cursor is not one that a list gave", id="cursor"),
    pytest.param(("--metadata", "plan"), "'plan' is no pair: write key=value", id="pair"),
    pytest.param(
        ("--metadata", "a=1", "--metadata", "a=2"), "--metadata names 'a' twice", id="twice"
    ),
    pytest.param(("--metadata", "a b=1"), "--metadata: metadata key 'a b' must be", id="key"),
    pytest.param(("--metadata", "a=\x01"), "--metadata: value '\\x01' holds a", id="value"),
    pytest.param(("-q", "a b"), "queue 'a b' must be 1 to 64 of", id="queue name"),
    pytest.param(("-n", "a:b"), "job name 'a:b' must be 1 to 64 of", id="job name"),
]


@pytest.mark.parametrize(("args", "said"), USAGE)
def test_a_list_that_cannot_be_is_refused_before_any_server_is_asked(
    cli: Cli, args: tuple[str, ...], said: str
) -> None:
    """One line in the words of the command line."""
    ran = cli.run("jobs", "list", *args, env=NOWHERE)
    assert said in ran.complaint
    assert (ran.code, ran.out) == (2, "")


def test_a_cursor_of_another_list_is_refused(cli: Cli, store: Store) -> None:
    """Filters and order may not change from page to page."""
    store.enqueue(job("a"))
    store.enqueue(job("b"))
    cursor = json.loads(cli.run("jobs", "list", "--limit", "1", "--json").out)["cursor"]
    ran = cli.run("jobs", "list", "--state", "waiting", "--cursor", cursor)
    assert ran.code == 2
    assert ran.complaint.startswith("--cursor belongs to a list with other options")


WITHOUT_STYLES = re.compile(r"\x1b\[\d*m")


def shown_at(cli: Cli, columns: int, *args: str) -> list[str]:
    """The lines that a terminal of so many columns shows, the rule below the headings left out."""
    with at_terminal(cli, "jobs", "list", *args, columns=columns) as terminal:
        assert terminal.wait() == 0
        lines = [line.rstrip() for line in WITHOUT_STYLES.sub("", terminal.shown).splitlines()]
    assert max(map(len, lines)) <= columns
    return [line for line in lines if line and "─" not in line]


def test_a_narrow_terminal_shows_ids_whole(cli: Cli, store: Store) -> None:
    """A job is one line whose id can be copied: long names are cut, and columns left out."""
    store.enqueue(job(queue="a-queue-" * 5, name="a-name-" * 6))
    job_id = store.enqueue(job(queue="a-queue-" * 5, name="a-name-" * 6)).id
    seen = {columns: shown_at(cli, columns) for columns in (220, 120, 80, 60, 40)}
    assert {len(lines) for lines in seen.values()} == {3}
    assert all(job_id in lines[1] for lines in seen.values())
    assert re.search(rf"{job_id}  {'a-name-' * 6}  {'a-queue-' * 5}  .*Z \(.+\)$", seen[220][1])
    assert re.fullmatch(
        rf" *{job_id}  a-name-[-aenm]*…  a-queue-[-aequ]*…  waiting .*", seen[120][1]
    )
    headings = {columns: lines[0].split() for columns, lines in seen.items()}
    assert headings[120] == [
        "id",
        "name",
        "queue",
        "state",
        "attempts",
        "enqueued",
        "last",
        "error",
    ]
    assert headings[80] == ["id", "name", "queue", "state", "enqueued"]
    assert headings[60] == ["id", "name", "state"]
    assert headings[40] == ["id", "state"]


def test_an_id_that_is_wider_than_the_terminal_goes_on_below(cli: Cli, store: Store) -> None:
    """All of it is there."""
    job_id = "customer-4711-" * 6
    store.enqueue(job(job_id))
    lines = shown_at(cli, 40)
    assert "".join(map(str.strip, lines[1:])) == job_id
