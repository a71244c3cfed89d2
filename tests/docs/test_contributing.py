"""The templates in the contributing page are such as they ask for."""

from __future__ import annotations

import shutil
from pathlib import Path

from docs.blocks import ROOT, blocks_of
from helpers import Processes

from mq.scripts import HEADER_FIELDS, load_script, script_folder

PAGE = ROOT / "CONTRIBUTING.md"


def test_the_script_template_can_be_assembled(tmp_path: Path) -> None:
    """It has the whole header, and its includes exist."""
    block = next(one for one in blocks_of(PAGE) if one.language == "lua")
    folder = tmp_path / "lua"
    shutil.copytree(script_folder(), folder)
    (folder / "rename.lua").write_text(block.text, encoding="utf-8")
    script = load_script("rename", folder)
    assert tuple(script.header) == HEADER_FIELDS


def test_the_test_template_is_a_test_that_passes(proc: Processes, tmp_path: Path) -> None:
    """With the fixtures of the folder it is written for."""
    block = next(one for one in blocks_of(PAGE) if one.language == "python")
    assert block.file is not None
    tests = tmp_path / "tests"
    shutil.copytree(ROOT / "tests", tests, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    env = {"MQ_TEST_SERVERS": "memory", "CI": ""}
    run = proc.python("-m", "pytest", "-q", block.file, cwd=tmp_path, env=env)
    assert run.wait(60) == 0, run.stdout + run.stderr
    assert "1 passed" in run.stdout
