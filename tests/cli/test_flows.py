"""`mq flows show`: a parent and its children as a tree; and what `mq jobs show` says of both."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from command_line import Cli
from conformance.build import job

from mq.manifests import ParentRef, encode_row
from mq.policies import Keep, encode_keep
from mq.records import Child
from mq.store import Store
from mq.store.families import ChildReport, ChildRow

TOKEN = "token"


def fan_out(
    store: Store, parent: str, children: Sequence[str], *, depth: int = 1, away: str = ""
) -> list[str]:
    """Claim a parent that waits, fan it out, and enqueue its children; their ids.

    Args:
        store: the parent's and the children's.
        parent: its id.
        children: their keys.
        depth: where they stand.
        away: key of one that lives in a store called `audit`.
    """
    rows, made = [], []
    for key in children:
        ref = ParentRef(depth, "default", parent, key).encode()
        request = job(f"flow/default/{parent}/{key}", name="child", parent=ref)
        where = "audit" if key == away else "default"
        rows.append(ChildRow(key, encode_row(Child(key, where, request))))
        made.append(request)
    claimed = store.claim(["q"], ["parent", "child"], TOKEN, 60_000, 100).jobs
    assert parent in [one.id for one in claimed]
    store.write_manifest(parent, TOKEN, rows, "continue")
    store.ack_fanned_out(parent, TOKEN)
    store.enqueue_many(made)
    return [request.id or "" for request in made]


def digest(store: Store, children: Sequence[str], **options: Any) -> list[str]:
    """A parent `digest` with children."""
    store.enqueue(job("digest", name="parent", keep=options.pop("keep", "")))
    return fan_out(store, "digest", children, **options)


def report(store: Store, key: str, outcome: str) -> None:
    """Report one child of `digest`."""
    assert store.record_child_results([ChildReport("digest", key, outcome, b"")]) == [True]


def lines_of(text: str) -> list[str]:
    """The lines of a table, with a bar for each gap between two cells."""
    return [re.sub(r"(?<![│ ])  +", " | ", line.strip()) for line in text.splitlines()]


def test_a_flow_is_shown_as_a_tree(cli: Cli, store: Store) -> None:
    """The parent with its numbers, then each child with its outcome and id."""
    digest(store, ["ada", "bob", "cyd"])
    report(store, "ada", "completed")
    report(store, "bob", "failed")
    ran = cli.run("flows", "show", "digest")
    assert (ran.code, ran.err) == (0, "")
    assert lines_of(ran.out) == [
        "job | outcome | name | children | id",
        "digest | waiting-children | parent | 3: 1 completed, 1 failed, 1 pending",
        "├─ ada | completed | child | flow/default/digest/ada",
        "├─ bob | failed | child | flow/default/digest/bob",
        "└─ cyd | pending | child | flow/default/digest/cyd",
    ]
    shown = json.loads(cli.run("flows", "show", "digest", "--json").out)
    counts = {"total": 3, "completed": 1, "failed": 1, "cancelled": 0, "pending": 1}
    assert shown == {
        "id": "digest",
        "name": "parent",
        "state": "waiting-children",
        "counts": counts,
        "children": [
            {
                "key": key,
                "outcome": outcome,
                "name": "child",
                "id": f"flow/default/digest/{key}",
                "store": "default",
                "flow": None,
            }
            for key, outcome in (("ada", "completed"), ("bob", "failed"), ("cyd", "pending"))
        ],
        "more": 0,
    }


def test_flows_that_nest_are_shown_below_their_parent(cli: Cli, store: Store) -> None:
    """With numbers of their own; the lines lead down to what hangs."""
    (first, _) = digest(store, ["a", "b"])
    fan_out(store, first, ["x", "y"], depth=2)
    assert lines_of(cli.run("flows", "show", "digest").out)[1:] == [
        "digest | waiting-children | parent | 2: 2 pending",
        "├─ a | pending | child | 2: 2 pending | flow/default/digest/a",
        f"│  ├─ x | pending | child | flow/default/{first}/x",
        f"│  └─ y | pending | child | flow/default/{first}/y",
        "└─ b | pending | child | flow/default/digest/b",
    ]
    shown = json.loads(cli.run("flows", "show", "digest", "--json").out)
    below = shown["children"][0]["flow"]
    assert [one["key"] for one in below["children"]] == ["x", "y"]
    assert (below["counts"]["total"], shown["children"][1]["flow"]) == (2, None)


@pytest.mark.parametrize(("limit", "given"), [(20, ()), (7, ("--limit", "7")), (0, ("--limit=0",))])
def test_a_big_flow_says_how_many_more_there_are(
    cli: Cli, store: Store, limit: int, given: tuple[str, ...]
) -> None:
    """The first by their keys; the numbers are of all."""
    digest(store, [f"{at:03}" for at in range(120)])
    lines = lines_of(cli.run("flows", "show", "digest", *given).out)
    assert lines[1].endswith("120: 120 pending")
    assert len(lines) == limit + 3
    assert lines[-1] == f"└─ … {120 - limit} more: --limit shows others"
    shown = json.loads(cli.run("flows", "show", "digest", *given, "--json").out)
    assert [one["key"] for one in shown["children"]] == [f"{at:03}" for at in range(limit)]
    assert (shown["more"], shown["counts"]["total"]) == (120 - limit, 120)


def test_a_child_in_another_store_says_where(cli: Cli, store: Store) -> None:
    """It cannot be followed from here."""
    digest(store, ["a", "b"], away="b")
    lines = lines_of(cli.run("flows", "show", "digest").out)
    assert lines[-1] == "└─ b | pending | child | (in store audit) | flow/default/digest/b"
    shown = json.loads(cli.run("flows", "show", "digest", "--json").out)
    assert [one["store"] for one in shown["children"]] == ["default", "audit"]


def test_a_cancelled_parent_shows_its_open_children_cancelled(cli: Cli, store: Store) -> None:
    """At once, whatever is delivered by then."""
    digest(store, ["a", "b"])
    report(store, "a", "completed")
    store.cancel("digest")
    assert lines_of(cli.run("flows", "show", "digest").out)[1:] == [
        "digest | cancelled | parent | 2: 1 completed, 1 cancelled",
        "├─ a | completed | child | flow/default/digest/a",
        "└─ b | cancelled | child | flow/default/digest/b",
    ]


def test_a_parent_that_fanned_out_nothing_has_no_children(cli: Cli, store: Store) -> None:
    """It is a flow all the same."""
    digest(store, [])
    assert lines_of(cli.run("flows", "show", "digest").out)[1:] == [
        "digest | waiting | parent | none"
    ]


def test_what_is_no_flow_is_refused(cli: Cli, store: Store) -> None:
    """In one line: a plain job, and an id that nobody has."""
    store.enqueue(job("plain"))
    ran = cli.run("flows", "show", "plain")
    assert (ran.code, ran.out) == (1, "")
    assert ran.complaint == (
        "job plain has no children, or has not fanned out yet: see mq jobs show plain"
    )
    ran = cli.run("flows", "show", "nope", "--json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.complaint.startswith("no job has the id 'nope' at ")


@pytest.mark.parametrize("args", [(), ("digest", "--limit", "501"), ("digest", "--limit", "-1")])
def test_a_wrong_command_line_is_told_in_one_line(cli: Cli, args: tuple[str, ...]) -> None:
    """With exit code 2."""
    ran = cli.run("flows", "show", *args)
    assert (ran.code, ran.out) == (2, "")
    assert ran.complaint


def test_a_job_shows_its_retention_flow_and_parent(cli: Cli, store: Store) -> None:
    """Of a parent that it has fanned out, of a child where it reports to."""
    (child,) = digest(store, ["ada"], keep=encode_keep(Keep(count=10, age="1d")))
    parent = cli.run("jobs", "show", "digest").out
    assert re.search(r"^kept +the newest 10, for 1d$", parent, re.MULTILINE)
    assert re.search(r"^flow +has fanned out: see mq flows show$", parent, re.MULTILINE)
    text = cli.run("jobs", "show", child).out
    assert re.search(r"^child of +digest, under key ada$", text, re.MULTILINE)
    assert re.search(r"^parent's store +default$", text, re.MULTILINE)
    shown = [json.loads(cli.run("jobs", "show", one, "--json").out) for one in ("digest", child)]
    assert [(one["flow"], one["parent"]) for one in shown] == [
        ("collect", None),
        (None, {"id": "digest", "store": "default", "key": "ada"}),
    ]
    assert shown[0]["keep"] == encode_keep(Keep(count=10, age="1d"))
    assert shown[1]["keep"] is None


def test_the_tree_as_a_whole_is_bounded(store: Store) -> None:
    """Whatever each flow may show: levels multiply."""
    from mq.cli.flows import Reader

    (first, second) = digest(store, ["a", "b"])
    fan_out(store, first, ["x", "y"], depth=2)
    tree = Reader(store, 20, left=3).flow("digest")
    shown = [attrs.evolve(node, child=None) for node in tree.nodes]
    assert [(node.key, node.flow and node.flow.more) for node in shown] == [("a", 1), ("b", None)]
    assert second
