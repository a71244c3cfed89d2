"""The guide on cancelling and administration names every verb and command there is."""

from __future__ import annotations

import re

import click
import pytest
from docs.blocks import DOCS

from mq.cli.root import root
from mq.job_verbs import JobVerbs

TEXT = (DOCS / "guides" / "cancellation-and-admin.md").read_text(encoding="utf-8")
ELSEWHERE = {"await_result", "name", "queue", "store", "payload_codec", "exit_codec"}
"""Results are awaited in another guide; the rest are no verbs."""


@pytest.mark.parametrize("group", ["jobs", "queues"])
def test_every_command_is_on_the_page(group: str) -> None:
    """By its whole name, so that it can be searched for."""
    found = root.get_command(click.Context(root), group)
    assert isinstance(found, click.Group)
    assert [name for name in found.commands if f"mq {group} {name}" not in TEXT] == []


def test_every_verb_of_a_definition_is_on_the_page() -> None:
    """As a call, or as the name of its kind."""
    verbs = [name for name in vars(JobVerbs) if not name.startswith("_") and name not in ELSEWHERE]
    words = set(re.findall(r"\w+", TEXT))
    assert len(verbs) > 10
    assert [verb for verb in verbs if verb not in words] == []
