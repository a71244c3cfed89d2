"""The readme does what it says, and keeps its form."""

from __future__ import annotations

import sys
import unicodedata

from docs.blocks import DOCS, ROOT, blocks_of, steps_of
from docs.session import Session, stable
from helpers import Processes

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
MAKE = next(block for block in blocks_of(README) if block.text.startswith("$ make"))


def test_the_readme_runs_as_it_stands(session: Session) -> None:
    """Its program is written, a worker started, and every command prints what is shown."""
    session.play(README)


def test_the_example_of_a_test_passes(session: Session) -> None:
    """What a reader copies to test their own jobs is a test that passes."""
    file = next(block for block in blocks_of(README) if block.file == "test_double.py")
    session.play_block(file)
    run = session.processes.python("-m", "pytest", "-q", str(file.file), cwd=session.folder)
    assert run.wait() == 0, run.stdout


def test_the_demo_prints_what_is_shown(proc: Processes) -> None:
    """Every line below `make demo` but the dots is one that the demo prints."""
    shown = next(steps_of(MAKE.text))
    demo = proc.python("-m", "mq", "demo")
    assert demo.wait(60) == 0, demo.stderr
    printed = [line.split(": /")[0].split(" (")[0] for line in stable(demo.stdout).splitlines()]
    wanted = [line.split(": /")[0].split(" (")[0] for line in stable(shown.output).splitlines()]
    # Which server it is depends on the machine.
    missing = [line for line in wanted[1:] if line != "..." and line not in printed]
    assert missing == [], demo.stdout
    assert printed[0].split()[0] == wanted[0].split()[0] == "server"


def test_both_commands_are_targets_of_the_makefile() -> None:
    """They are the first thing that a newcomer types."""
    commands = [step.command for step in steps_of(MAKE.text)]
    assert commands == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").splitlines()
    assert [one for one in ("demo:", "test:") if not any(one in line for line in makefile)] == []


def test_make_test_says_its_servers_in_the_words_shown() -> None:
    """The line is pytest's header; the servers are those of the machine."""
    shown = list(steps_of(MAKE.text))[1].output
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    assert shown.startswith("mq servers: memory (fakeredis)")
    assert "mq servers: " in conftest


def test_the_program_is_the_one_in_examples() -> None:
    """Both places can be copied from, and the quickstart's as well."""
    example = (ROOT / "examples" / "invoices.py").read_text(encoding="utf-8")
    for page in (README, DOCS / "quickstart.md"):
        shown = next(block for block in blocks_of(page) if block.file == "invoices.py")
        assert shown.text == example


def test_the_picture_is_that_of_the_lifecycle_page() -> None:
    """One picture, two places."""

    def picture(text: str) -> str:
        return next(part for part in text.split("```") if "───" in part)

    assert picture(TEXT) == picture((DOCS / "lifecycle.md").read_text(encoding="utf-8"))


def test_the_form_is_kept() -> None:
    """At most 150 lines, the program by line 25, no emoji."""
    lines = TEXT.splitlines()
    program = next(block for block in blocks_of(README) if block.language == "python")
    pictures = {c for c in TEXT if unicodedata.category(c) in {"So", "Cs"}} - set("─│┌┐└┘├┤")
    assert (len(lines) <= 150, program.line <= 25, pictures) == (True, True, set())


def test_the_program_needs_nothing_that_is_not_installed() -> None:
    """What it imports comes with mq or with Python."""
    program = next(block for block in blocks_of(README) if block.language == "python")
    imported = {line.split()[1] for line in program.text.splitlines() if line.startswith("import ")}
    assert imported - set(sys.stdlib_module_names) <= {"attrs", "mq"}
