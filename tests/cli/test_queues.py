"""`mq queues`: which there are, which are held, and how many jobs stand where."""

from __future__ import annotations

import json
import re

import pytest
from cli.terminal import at_terminal
from command_line import Cli
from conformance.build import job, take

from mq.states import JobState
from mq.store import Store

ZEROS = dict.fromkeys((state.value for state in JobState), 0)
UNSEEN = "no job was ever seen in queue 'bilng'; there are: billing, mail"


def seed(store: Store) -> None:
    """Two queues; jobs of two names in one of them."""
    store.enqueue(job("a", queue="mail", name="note"))
    store.enqueue(job("b", queue="billing", name="invoice"))
    store.enqueue(job("c", queue="billing", name="dunning", delay_ms=60_000))


def test_queues_are_listed_with_names_counts_and_pauses(cli: Cli, store: Store) -> None:
    """Those that ever held a job, and those that are paused before any came."""
    seed(store)
    assert cli.run("queues", "pause", "mail", "later").code == 0
    found = json.loads(cli.run("queues", "list", "--json").out)
    since = {one["queue"]: one.pop("paused_since") for one in found}
    assert found == [
        {
            "queue": "billing",
            "paused": False,
            "names": ["dunning", "invoice"],
            "counts": ZEROS | {"waiting": 1, "delayed": 1},
        },
        {"queue": "later", "paused": True, "names": [], "counts": ZEROS},
        {"queue": "mail", "paused": True, "names": ["note"], "counts": ZEROS | {"waiting": 1}},
    ]
    record = store.get_job("a")
    assert record is not None
    assert since["billing"] is None
    assert since["mail"] >= record.enqueued_at
    assert since["later"] >= since["mail"]
    heading, billing, later, mail = cli.run("queues", "list").out.splitlines()
    assert re.split(r"  +", heading) == ["queue", "paused", "job names", *ZEROS]
    assert re.fullmatch(r"billing +no +dunning, invoice +1 +1 +0 +0 +0 +0 +0", billing)
    assert re.fullmatch(r"later +since 20\S+Z \(\w.*\) +0 +0 +0 +0 +0 +0 +0", later)
    assert re.fullmatch(r"mail +since 20\S+Z \(\w.*\) +note +1 +0 +0 +0 +0 +0 +0", mail)


def test_no_queues_are_said_to_be_none(cli: Cli) -> None:
    """An empty store is no mistake."""
    assert cli.run("queues", "list").out == "no job was ever enqueued here\n"
    assert json.loads(cli.run("queues", "list", "--json").out) == []


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(cli: Cli, store: Store) -> None:
    """What was asked for twice says so, and is no failure."""
    seed(store)
    assert cli.run("queues", "pause", "mail", "mail").out == "mail: paused\n"
    assert take(store, queues=("mail",), names=("note",)) == []
    again = cli.run("queues", "pause", "mail", "billing")
    assert (again.code, again.out) == (0, "mail: was paused before\nbilling: paused\n")
    assert store.paused_queues() == ["billing", "mail"]
    assert cli.run("queues", "resume", "mail", "billing").out == "mail: resumed\nbilling: resumed\n"
    assert take(store, queues=("mail",), names=("note",)) == ["a"]
    last = cli.run("queues", "resume", "mail")
    assert (last.code, last.out, last.err) == (0, "mail: was not paused\n", "")


def test_outcomes_as_json(cli: Cli, store: Store) -> None:
    """A word for each queue."""
    seed(store)
    store.pause("mail")
    assert json.loads(cli.run("queues", "pause", "mail", "billing", "--json").out) == [
        {"queue": "mail", "outcome": "paused_before"},
        {"queue": "billing", "outcome": "paused"},
    ]
    store.resume("mail")
    assert json.loads(cli.run("queues", "resume", "mail", "billing", "--json").out) == [
        {"queue": "mail", "outcome": "not_paused"},
        {"queue": "billing", "outcome": "resumed"},
    ]


def test_a_queue_that_nobody_used_is_paused_with_a_hint(cli: Cli, store: Store) -> None:
    """It may be a typing mistake, and may be meant: the pause holds."""
    first = cli.run("queues", "pause", "bilng")
    assert (first.code, first.out) == (0, "bilng: paused\n")
    assert first.complaint == "no job was ever enqueued here: check --url and --prefix"
    seed(store)
    again = cli.run("queues", "pause", "bilng")
    assert (again.code, again.out) == (0, "bilng: was paused before\n")
    assert again.complaint == UNSEEN
    assert store.paused_queues() == ["bilng"]
    assert cli.run("queues", "resume", "bilng").complaint == UNSEEN


def test_counts_of_a_queue_that_nobody_used_are_zeros_with_a_hint(cli: Cli, store: Store) -> None:
    """One that only ran empty gets none."""
    seed(store)
    unknown = cli.run("queues", "counts", "bilng", "--json")
    assert (unknown.code, json.loads(unknown.out)) == (0, {"bilng": ZEROS})
    assert unknown.complaint == UNSEEN
    assert store.remove("a")
    empty = cli.run("queues", "counts", "mail", "--json")
    assert (json.loads(empty.out), empty.err) == ({"mail": ZEROS}, "")


def test_a_narrow_terminal_leaves_out_states_without_jobs(cli: Cli, store: Store) -> None:
    """The table fits, and what is left out is zero."""
    seed(store)
    store.pause("mail")
    for command in (("queues", "list"), ("queues", "counts")):
        with at_terminal(cli, *command, columns=80) as terminal:
            assert terminal.wait() == 0
            lines = [re.sub(r"\x1b\[\d*m", "", line) for line in terminal.shown.splitlines()]
            assert max(map(len, lines)) <= 80
            assert re.search(r"waiting +delayed$", lines[0].strip())
            assert re.fullmatch(r" billing .* 1 +1", lines[2])


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("pause",), "Missing argument 'QUEUE...'"),
        (("resume",), "Missing argument 'QUEUE...'"),
        (("pause", "a b"), "queue 'a b' must be 1 to 64 of"),
        (("resume", "mail", ""), "queue '' must be 1 to 64 of"),
        (("counts", "a:b"), "queue 'a:b' must be 1 to 64 of"),
    ],
)
def test_a_wrong_queue_changes_nothing(
    cli: Cli, store: Store, args: tuple[str, ...], said: str
) -> None:
    """Not even the queues that stand beside it."""
    store.pause("mail")
    ran = cli.run("queues", *args)
    assert said in ran.complaint
    assert (ran.code, ran.out) == (2, "")
    assert store.paused_queues() == ["mail"]
