"""The demo tells when something did not end as its plan says."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from mq.cli import main
from mq.demo import play
from mq.demo.plan import read_plan


@pytest.fixture
def _handlers_kept() -> Iterator[None]:
    """The demo handles signals for its own end."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_handlers_kept")
def test_another_outcome_than_planned_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The table says NO for the kind, and the last line counts the jobs."""
    wrong = [
        attrs.evolve(planned, times=2, runs=planned.runs + (planned.job == "greet"), options={})
        for planned in read_plan()
        if planned.runs == 1
    ]
    monkeypatch.setattr(play, "read_plan", lambda: wrong)
    monkeypatch.setenv("MQ_REDIS_SERVER", str(tmp_path / "none"))
    monkeypatch.setenv("MQ_URL", os.environ.get("MQ_URL", ""))
    assert main(["demo"]) == 1
    told = capsys.readouterr()
    assert any(line.startswith("greet ") and line.endswith(" NO") for line in told.out.splitlines())
    assert "mq: 4 jobs did not end as planned: greet\n" in told.err
