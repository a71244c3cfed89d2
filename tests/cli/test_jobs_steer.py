"""`mq jobs cancel|retry|promote|remove`: one by one, and all that filters let through."""

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
from command_line import Cli
from conformance.build import TOKEN, job, take
from helpers import wait_until
from servers import Server

from mq.cli.jobs_bulk import MOST_COUNTED
from mq.cli.verbs import CANCEL, PROMOTE, REMOVE, RETRY
from mq.states import JobState
from mq.store import Store
from mq.store.lists import CANCELLABLE, REMOVABLE

HOUR_MS = 3_600_000
NOWHERE = {"MQ_URL": "redis://127.0.0.1:1/0"}


def seed(store: Store) -> None:
    """A job in each state that one can be in, its id the state's word."""
    for word in ("completed", "failed", "active"):
        store.enqueue(job(word))
    assert take(store, 3) == ["completed", "failed", "active"]
    store.ack_completed("completed", TOKEN, b"")
    store.ack_failed("failed", TOKEN, None)
    store.enqueue(job("cancelled"))
    store.cancel("cancelled")
    store.enqueue(job("delayed", delay_ms=HOUR_MS))
    store.enqueue(job("waiting"))


def states(store: Store, *job_ids: str) -> list[str]:
    """Where jobs stand; `-` for one that is gone."""
    return [state.value if state else "-" for state in store.get_states(job_ids)]


WORDS = ("waiting", "delayed", "active", "completed", "failed", "cancelled")


def test_cancel_tells_of_each_id_what_became_of_it(cli: Cli, store: Store) -> None:
    """A running job is told to stop; a finished one and an unknown id are refused, on stderr."""
    seed(store)
    ran = cli.run("jobs", "cancel", "waiting", "nobody", "active", "failed", "delayed")
    assert ran.code == 1
    assert ran.out == ("waiting: cancelled\nactive: running, told to stop\ndelayed: cancelled\n")
    assert ran.err == (
        "mq: no job has the id 'nobody'\n"
        "mq: job failed is failed: only a job that is not finished can be cancelled\n"
    )
    assert states(store, *WORDS) == [
        *("cancelled", "cancelled", "active", "completed", "failed", "cancelled"),
    ]
    record = store.get_job("active")
    assert record is not None
    assert record.cancel_requested


def test_retry_revives_the_failed_ones(cli: Cli, store: Store) -> None:
    """Others are refused with where they stand."""
    seed(store)
    assert cli.run("jobs", "retry", "failed").out == "failed: retried, waiting again\n"
    ran = cli.run("jobs", "retry", "failed", "nobody")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "mq: job failed is waiting: only a failed job can be retried\n"
        "mq: no job has the id 'nobody'\n"
    )
    assert states(store, "failed") == ["waiting"]


def test_promote_makes_delayed_jobs_runnable(cli: Cli, store: Store) -> None:
    """Others are refused with where they stand."""
    seed(store)
    ran = cli.run("jobs", "promote", "delayed", "active")
    assert (ran.code, ran.out) == (1, "delayed: promoted, waiting now\n")
    assert ran.complaint == "job active is active: only a delayed job can be promoted"
    assert states(store, "delayed", "active") == ["waiting", "active"]


def test_remove_deletes_what_no_worker_holds(cli: Cli, store: Store) -> None:
    """An active job is refused with what to do first, an unknown id is said to be none."""
    seed(store)
    ran = cli.run("jobs", "remove", *WORDS, "nobody")
    assert ran.code == 1
    assert ran.out == "".join(f"{word}: removed\n" for word in WORDS if word != "active")
    assert ran.err == (
        "mq: job active is active: cancel it first, then remove it\n"
        "mq: no job has the id 'nobody'\n"
    )
    assert states(store, *WORDS) == ["-", "-", "active", "-", "-", "-"]


def test_an_id_that_is_given_twice_is_done_once(cli: Cli, store: Store) -> None:
    """It would be refused the second time."""
    seed(store)
    ran = cli.run("jobs", "cancel", "waiting", "waiting")
    assert (ran.code, ran.out, ran.err) == (0, "waiting: cancelled\n", "")


def test_ids_as_json_are_a_list_of_outcomes(cli: Cli, store: Store) -> None:
    """In the order of the ids; a refusal says where the job stands."""
    seed(store)
    ran = cli.run("jobs", "cancel", "waiting", "active", "failed", "nobody", "--json")
    assert ran.code == 1
    assert json.loads(ran.out) == [
        {"id": "waiting", "outcome": "cancelled"},
        {"id": "active", "outcome": "cancel_requested"},
        {"id": "failed", "outcome": "not_cancellable", "state": "failed"},
        {"id": "nobody", "outcome": "not_found", "state": None},
    ]
    removed = cli.run("jobs", "remove", "active", "failed", "--json")
    assert json.loads(removed.out) == [
        {"id": "active", "outcome": "not_removable", "state": "active"},
        {"id": "failed", "outcome": "removed"},
    ]


def test_many_ids_are_done_in_one_command(cli: Cli, store: Store) -> None:
    """As xargs gives them: more than one call of the store takes."""
    ids = [f"a{number}" for number in range(260)]
    store.enqueue_many(job(job_id) for job_id in ids)
    ran = cli.run("jobs", "cancel", *ids)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [f"{job_id}: cancelled" for job_id in ids]
    assert store.counts()[JobState.CANCELLED] == 260


def test_ctrl_c_among_ids_says_how_many_were_answered(cli: Cli, store: Store) -> None:
    """Here nobody reads what it prints, so it cannot get to the end."""
    ids = [f"a-long-id-{number:04}" for number in range(6_000)]
    store.enqueue_many(job(job_id) for job_id in ids)
    process = subprocess.Popen(
        [sys.executable, "-m", "mq", "jobs", "cancel", *ids],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "MQ_URL": cli.url}, cwd=cli.folder,
    )  # fmt: skip
    with process:
        wait_until(lambda: store.counts()[JobState.CANCELLED], timeout=30, what="a first call")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130
    told = re.match(rb"mq: interrupted after (\d+) of 6000 ids, of the batch under way", err)
    assert told is not None, err
    done = store.counts()[JobState.CANCELLED]
    assert done < 6_000
    assert int(told[1]) <= done <= int(told[1]) + 50


def test_cancel_reaches_the_handler_of_a_worker(cli: Cli, store: Store) -> None:
    """Told by one process, interrupted in another."""
    made = cli.run("enqueue", "jobs:app", "hold", "--payload", '{"n": 1}')
    job_id = made.out.strip()
    worker = cli.worker()
    cli.wait_for_file("holding")
    assert cli.run("jobs", "cancel", job_id).out == f"{job_id}: running, told to stop\n"
    wait_until(lambda: states(store, job_id) == ["cancelled"], timeout=30, what="the cancel")
    worker.signal()
    assert worker.wait() == 0


# By filter


def test_filters_with_yes_are_done_at_once(cli: Cli, store: Store) -> None:
    """All that match and nothing else; the line says how many."""
    for number in range(120):
        store.enqueue(job(f"a{number}", metadata={"customer": str(number % 2)}))
    store.enqueue(job("elsewhere", queue="p", metadata={"customer": "1"}))
    ran = cli.run("jobs", "cancel", "-q", "q", "-n", "n", "--metadata", "customer=1", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "60 jobs cancelled; those that were running are told to stop\n"
    assert states(store, "a0", "a1", "a118", "a119", "elsewhere") == [
        *("waiting", "cancelled", "waiting", "cancelled", "waiting"),
    ]
    one = cli.run("jobs", "remove", "--queue", "p", "-y")
    assert (one.code, one.out) == (0, "1 job removed\n")
    assert store.counts()[JobState.WAITING] == 60


def test_every_verb_for_many_does_what_it_does_for_one(cli: Cli, store: Store) -> None:
    """Only to the states it is for, and to those alone that are asked for."""
    seed(store)
    assert cli.run("jobs", "cancel", "--state", "delayed", "-y").out == "1 job cancelled\n"
    assert states(store, "waiting", "delayed") == ["waiting", "cancelled"]
    removed = cli.run("jobs", "remove", "--state", "cancelled", "--state", "completed", "-y")
    assert removed.out == "3 jobs removed\n"
    assert cli.run("jobs", "retry", "-q", "q", "-y").out == "1 job retried\n"
    assert states(store, *WORDS) == ["waiting", "-", "active", "-", "waiting", "-"]
    rest = json.loads(cli.run("jobs", "cancel", "-q", "q", "-y", "--json").out)
    assert set(rest.pop("ids")) == {"failed", "active", "waiting"}
    assert rest == {"dry_run": False, "count": 3, "refused": {}}
    assert states(store, "waiting", "active") == ["cancelled", "active"]


def test_all_failed_jobs_are_retried_by_their_state_alone(cli: Cli, store: Store) -> None:
    """Of every queue and name."""
    for number in range(3):
        store.enqueue(job(f"a{number}", queue=f"q{number}"))
        assert take(store, queues=(f"q{number}",)) == [f"a{number}"]
        store.ack_failed(f"a{number}", TOKEN, None)
    assert cli.run("jobs", "retry", "--state", "failed", "-y").out == "3 jobs retried\n"
    assert states(store, "a0", "a1", "a2") == ["waiting"] * 3


def test_a_dry_run_prints_ids_and_changes_nothing(cli: Cli, store: Store) -> None:
    """One a line on stdout, how many on stderr; it needs no --yes."""
    seed(store)
    before = states(store, *WORDS)
    ran = cli.run("jobs", "remove", "-q", "q", "--dry-run")
    assert ran.code == 0
    assert set(ran.out.splitlines()) == set(WORDS) - {"active"}
    assert ran.complaint == "5 jobs would be removed; nothing was changed"
    data = json.loads(cli.run("jobs", "retry", "-q", "q", "--dry-run", "--json").out)
    assert data == {"dry_run": True, "count": 1, "ids": ["failed"], "refused": {}}
    with_yes = cli.run("jobs", "cancel", "-q", "q", "--dry-run", "--yes")
    assert with_yes.complaint == "3 jobs would be cancelled; nothing was changed"
    assert states(store, *WORDS) == before


def test_filters_that_nothing_matches_say_so(cli: Cli, store: Store) -> None:
    """A queue that nobody ever used may be a typing mistake."""
    seed(store)
    for extra in ("--yes", "--dry-run"):
        ran = cli.run("jobs", "cancel", "-q", "qq", extra)
        assert (ran.code, ran.out) == (0, "no job matches, none was cancelled\n")
        assert ran.complaint == "no job was ever seen in queue 'qq'; there are: q"
        data = cli.run("jobs", "cancel", "-q", "qq", extra, "--json")
        assert (data.code, json.loads(data.out)["count"]) == (0, 0)
        assert data.complaint == ran.complaint


USAGE: list[Any] = [
    pytest.param(("cancel",), "say which jobs: give ids, or filters", id="nothing"),
    pytest.param(("remove", "--yes"), "say which jobs: give ids, or filters", id="yes alone"),
    pytest.param(("retry", "a", "-q", "q"), "give ids or filters, not both", id="both"),
    pytest.param(("remove", "a", "--dry-run"), "--dry-run goes with filters", id="dry id"),
    pytest.param(("promote",), "Missing argument 'ID...'", id="promote nothing"),
    pytest.param(("promote", "-q", "q"), "No such option", id="promote many"),
    pytest.param(
        ("cancel", "--state", "failed", "-y"),
        "'failed' is not one of 'waiting', 'delayed', 'active', 'waiting-children'",
        id="cancel finished",
    ),
    pytest.param(
        ("retry", "--state", "completed", "-y"), "'completed' is not", id="retry completed"
    ),
    pytest.param(
        ("remove", "--state", "active", "-y"),
        "'active' is not one of 'waiting', 'delayed', 'completed', 'failed', 'cancelled'",
        id="remove active",
    ),
    pytest.param(("cancel", "a\nb"), "holds a control character", id="id"),
    pytest.param(("cancel", ""), "job id must be 1 to 512 bytes, got 0", id="empty id"),
    pytest.param(
        ("cancel", "-q", "q"),
        "nobody can be asked here whether to cancel all jobs that match: give --yes, or --dry-run",
        id="unasked",
    ),
]


@pytest.mark.parametrize(("args", "said"), USAGE)
def test_a_command_that_cannot_be_meant_asks_no_server(
    cli: Cli, args: tuple[str, ...], said: str
) -> None:
    """Exit code 2 and one line."""
    ran = cli.run("jobs", *args, env=NOWHERE)
    assert said in ran.complaint
    assert (ran.code, ran.out) == (2, "")


def test_filters_without_a_terminal_and_yes_change_nothing(cli: Cli, store: Store) -> None:
    """A script that forgot --yes is told, even one that writes `y` into its stdin."""
    seed(store)
    before = states(store, *WORDS)
    for stdin in (b"", b"y\n"):
        ran = cli.run("jobs", "remove", "-q", "q", stdin=stdin)
        assert ran.code == 2
        assert "give --yes" in ran.complaint
    assert states(store, *WORDS) == before


def test_states_of_a_verb_are_those_of_the_store() -> None:
    """What the command line offers and what the store takes are one list."""
    assert CANCEL.states == CANCELLABLE
    assert set(REMOVE.states) == set(REMOVABLE)
    assert RETRY.states == (JobState.FAILED,)
    assert PROMOTE.states == (JobState.DELAYED,)


# At a terminal


@pytest.mark.parametrize("answer", ["y", "YES", " y "])
def test_a_terminal_asks_and_yes_does_it(cli: Cli, store: Store, answer: str) -> None:
    """The question says what, how many, and where."""
    seed(store)
    with at_terminal(cli, "jobs", "cancel", "-q", "q") as terminal:
        terminal.wait_for("Cancel 3 jobs at ")
        terminal.wait_for("under prefix 'mq'? [y/N] ")
        assert states(store, "waiting") == ["waiting"]
        terminal.type(answer + "\n")
        assert terminal.wait() == 0
        assert "3 jobs cancelled" in terminal.shown
    assert states(store, "waiting", "delayed") == ["cancelled", "cancelled"]


@pytest.mark.parametrize("answer", ["n\n", "\n", "yess\n", "\x04"])
def test_any_other_answer_changes_nothing(cli: Cli, store: Store, answer: str) -> None:
    """No, nothing, something else, and the end of the input; the exit code is 1."""
    seed(store)
    before = states(store, *WORDS)
    with at_terminal(cli, "jobs", "remove", "-q", "q", "--state", "failed") as terminal:
        terminal.wait_for("Remove 1 job at ")
        terminal.type(answer)
        assert terminal.wait() == 1
        assert "mq: nothing was changed" in terminal.shown
    assert states(store, *WORDS) == before


def test_ctrl_c_at_the_question_changes_nothing(cli: Cli, store: Store) -> None:
    """It ends as every command does that is interrupted."""
    seed(store)
    with at_terminal(cli, "jobs", "retry", "-q", "q") as terminal:
        terminal.wait_for("[y/N] ")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.wait() == 130
        assert "mq: nothing was changed" in terminal.shown
        assert "Traceback" not in terminal.shown
    assert states(store, "failed") == ["failed"]


def test_nothing_is_asked_where_there_is_nothing_to_ask(cli: Cli, store: Store) -> None:
    """No job matches, or --yes was given, or the jobs were named."""
    seed(store)
    for args, told in (
        (("retry", "-q", "qq"), "no job matches, none was retried"),
        (("retry", "-q", "q", "--yes"), "1 job retried"),
        (("cancel", "waiting"), "waiting: cancelled"),
    ):
        with at_terminal(cli, "jobs", *args) as terminal:
            assert terminal.wait() == 0
            assert told in terminal.shown
            assert "[y/N]" not in terminal.shown


def test_ctrl_c_in_the_middle_says_how_many_were_done(
    cli: Cli, store: Store, one_server: Server
) -> None:
    """Those stay done, the others stay as they are; of very many the question tells no number."""
    total = MOST_COUNTED + 100
    store.enqueue_many(job(f"a{number}") for number in range(total))
    with at_terminal(cli, "jobs", "cancel", "-q", "q") as terminal:
        terminal.wait_for(f"Cancel more than {MOST_COUNTED} jobs at ")
        terminal.type("y\n")
        wait_until(lambda: store.counts()[JobState.CANCELLED], timeout=30, what="a first page")
        # Every script waits from here on, so the command is in the middle of one.
        one_server.cli("CLIENT", "PAUSE", 60_000, "WRITE")
        try:
            terminal.process.send_signal(signal.SIGINT)
            assert terminal.wait() == 130
        finally:
            one_server.cli("CLIENT", "UNPAUSE")
        told = re.search(r"mq: interrupted; (\d+) jobs were cancelled, of the", terminal.shown)
        assert told is not None, terminal.shown
        assert "Traceback" not in terminal.shown
    done = store.counts()[JobState.CANCELLED]
    assert int(told[1]) <= done <= int(told[1]) + 50
    assert done < total


def test_a_server_that_goes_away_in_the_middle_leaves_a_number(
    cli: Cli, own_server: Callable[..., str]
) -> None:
    """One line with what is wrong and how many were done before."""
    path = own_server()
    store = Store(f"unix://{path}")
    store.enqueue_many(job(f"a{number}") for number in range(5_000))
    process = subprocess.Popen(
        [sys.executable, "-m", "mq", "jobs", "cancel", "-q", "q", "--yes"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "MQ_URL": f"unix://{path}"}, cwd=cli.folder,
    )  # fmt: skip
    with process:
        wait_until(lambda: store.counts()[JobState.CANCELLED], timeout=30, what="a first page")
        store.close()
        with store.endpoint.client() as client:
            client.shutdown(nosave=True)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert re.fullmatch(rb"mq: .*; \d+ jobs were cancelled, some more may be\n", err)
