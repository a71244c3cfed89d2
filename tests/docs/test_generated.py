"""What follows from the code stands on the pages as the code has it."""

from __future__ import annotations

import re

import pytest
from docs.blocks import DOCS, ROOT
from docs.generate import generate

from mq.errors import ListOrderUnsupportedError
from mq.listing import ROUTES, read_query, route
from mq.states import SCRIPT_OF_VERB, TRANSITIONS, JobState

BUILT = tuple(dict.fromkeys(row.verb for row in TRANSITIONS if row.built))
DELETING = {"remove", "prune"}
"""They lead out of every picture: they have their sections, and the picture does without."""
VERBS = tuple(dict.fromkeys(row.verb for row in TRANSITIONS))


@pytest.mark.parametrize("name", [*generate.PARTS, "redis-cli.md"])
def test_a_page_is_what_is_generated(name: str) -> None:
    """Run python docs/_generate.py after a change of states, scripts, keys or commands."""
    assert (DOCS / name).read_text(encoding="utf-8") == generate.generated(name)


@pytest.mark.parametrize("name", generate.PARTS)
def test_every_part_has_its_place(name: str) -> None:
    """A part that the page lost would be missed by nobody else."""
    text = (DOCS / name).read_text(encoding="utf-8")
    assert sorted(generate.part_names(text)) == sorted(generate.PARTS[name])


def test_every_verb_has_a_section() -> None:
    """A heading of its name, so that a link to it can be guessed."""
    lines = (DOCS / "lifecycle.md").read_text(encoding="utf-8").splitlines()
    assert [verb for verb in VERBS if f"## {verb}" not in lines] == []


def test_every_section_of_a_built_verb_leads_to_script_and_worker() -> None:
    """What happens, the script that does it, and the file that goes on."""
    text = (DOCS / "lifecycle.md").read_text(encoding="utf-8")
    for verb in BUILT:
        section = text.partition(f"\n## {verb}\n")[2].partition("\n## ")[0]
        assert f"](../lua/{SCRIPT_OF_VERB.get(verb, verb)}.lua)" in section
        assert "](../mq/" in section


def test_planned_verbs_are_marked() -> None:
    """Nobody reads of a verb that does not exist without being told."""
    text = (DOCS / "lifecycle.md").read_text(encoding="utf-8")
    for verb in set(VERBS) - set(BUILT):
        section = text.partition(f"\n## {verb}\n")[2].partition("\n## ")[0]
        assert "*Planned:" in section


@pytest.mark.parametrize("page", ["docs/lifecycle.md", "README.md"])
def test_the_picture_shows_the_way_of_a_job(page: str) -> None:
    """All states and every verb that moves a job from one to another, none that is planned."""
    pictures = [
        text for text in (ROOT / page).read_text(encoding="utf-8").split("```") if "───" in text
    ]
    assert len(pictures) == 1
    words = set(re.findall(r"[\w-]+", pictures[0]))
    states = {state.value for state in JobState}
    on_their_way = {row.verb for row in TRANSITIONS if row.built and row.source != row.target}
    assert states | (on_their_way - DELETING) <= words
    assert words & (set(VERBS) - set(BUILT)) == set()


def test_every_way_a_list_can_be_refused_is_shown() -> None:
    """An unknown order, and each option that a route does not serve; one question for each."""
    shown = []
    for asked in generate.REFUSED_QUESTIONS:
        with pytest.raises(ListOrderUnsupportedError) as refused:
            route(read_query(**asked))
        shown.append((asked["order_by"], refused.value.option))
    orders = [row.order_by for row in ROUTES]
    wanted = [
        (row.order_by, option)
        for row in ROUTES
        for option, refuses in (
            ("states", row.states != "any"),
            ("queue", row.queue),
            ("metadata", not row.metadata),
        )
        if refuses
    ]
    assert [one for one in shown if one[0] in orders] == wanted
    assert [option for order_by, option in shown if order_by not in orders] == ["order_by"]


def test_the_table_of_steering_verbs_has_all_of_them() -> None:
    """Every built verb that asks for no token and adds no job."""
    of_workers = {"claim", "extend", "release", "stall_sweep", "prune", "settle"}
    asked_by_people = [
        verb
        for verb in BUILT
        if verb not in of_workers | {"enqueue", "replace"} and not verb.startswith("ack_")
    ]
    assert list(generate.STEERING) == asked_by_people
