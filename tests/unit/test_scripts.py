"""How scripts are put together from files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from mq import scripts
from mq.scripts import ScriptError, assemble, load_script, load_scripts, script_folder

HEADER = """\
-- Script:  {name}
-- Version: 3
-- Args:    now
-- Moves:   - (reads only)
-- Returns: ok
-- Events:  -
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of scripts."""
    (tmp_path / "fragments").mkdir()
    return tmp_path


def _script(folder: Path, name: str, *lines: str) -> None:
    (folder / f"{name}.lua").write_text("\n".join(lines) + "\n")


def _fragment(folder: Path, name: str, *lines: str) -> None:
    (folder / "fragments" / f"{name}.lua").write_text("\n".join(lines) + "\n")


def test_an_include_is_replaced_where_it_stands(folder: Path) -> None:
    """What is before it stays before, what is behind stays behind."""
    _fragment(folder, "part", "the part")
    _script(folder, "whole", "before", "-- include: part", "behind")
    assert assemble("whole", folder) == "before\nthe part\nbehind\n"


def test_includes_go_depth_first(folder: Path) -> None:
    """What a fragment needs stands above it."""
    _fragment(folder, "base", "base")
    _fragment(folder, "middle", "-- include: base", "middle")
    _fragment(folder, "top", "-- include: middle", "top")
    _script(folder, "s", "-- include: top", "end")
    assert assemble("s", folder) == "base\nmiddle\ntop\nend\n"


def test_a_fragment_is_included_once(folder: Path) -> None:
    """A fragment that several others need is not defined twice."""
    _fragment(folder, "base", "base")
    _fragment(folder, "left", "-- include: base", "left")
    _fragment(folder, "right", "-- include: base", "right")
    _script(folder, "s", "-- include: left", "-- include: right", "-- include: base", "end")
    assert assemble("s", folder) == "base\nleft\nright\nend\n"


@pytest.mark.parametrize("second", ["a", "b"])
def test_a_cycle_is_an_error_that_shows_it(folder: Path, second: str) -> None:
    """A fragment that includes itself, at once or by way of another."""
    _fragment(folder, "a", f"-- include: {second}")
    _fragment(folder, "b", "-- include: a")
    _script(folder, "s", "-- include: a")
    with pytest.raises(ScriptError, match=r"cycle: s -> a( -> b)? -> a$"):
        assemble("s", folder)


def test_a_missing_file_is_an_error_that_names_it(folder: Path) -> None:
    """A script or a fragment."""
    _script(folder, "s", "-- include: gone")
    with pytest.raises(ScriptError, match=r"gone\.lua is missing"):
        assemble("s", folder)
    with pytest.raises(ScriptError, match=r"nothing\.lua is missing"):
        assemble("nothing", folder)


def test_only_the_exact_form_is_an_include(folder: Path) -> None:
    """Indented, commented or misspelt lines stay what they are: comments."""
    lines = ["  -- include: part", "--include: part", "-- include: Part", "-- includes: part"]
    _script(folder, "s", *lines)
    assert assemble("s", folder).splitlines() == lines


def test_the_sha_is_that_of_the_text(folder: Path) -> None:
    """It is the name by which the server knows the script."""
    _script(folder, "s", *HEADER.format(name="s").splitlines(), "return 1")
    script = load_script("s", folder)
    assert script.sha == hashlib.sha1(script.text.encode()).hexdigest()
    assert (script.name, script.version, script.header["Returns"]) == ("s", 3, "ok")


@pytest.mark.parametrize(
    "header",
    [
        "",
        HEADER.format(name="another"),
        HEADER.format(name="s").replace("-- Events:  -\n", ""),
        "\n" + HEADER.format(name="s"),
    ],
    ids=["none", "of another script", "a line short", "not at the top"],
)
def test_a_script_without_the_whole_header_is_an_error(folder: Path, header: str) -> None:
    """Name, version and contract stand at the top of each."""
    _script(folder, "s", *header.splitlines(), "return 1")
    with pytest.raises(ScriptError, match="fixed header"):
        load_script("s", folder)


def test_assembling_twice_gives_the_same_text() -> None:
    """The text is the same in every process, so its SHA is, too."""
    folder = script_folder()
    for name, script in load_scripts().items():
        assert assemble(name, folder) == script.text


def test_every_script_file_is_loaded() -> None:
    """None is left out, and they are loaded once for the process."""
    stems = {path.stem for path in script_folder().glob("*.lua")}
    assert set(load_scripts()) == stems
    assert load_scripts() is load_scripts()


def test_every_fragment_is_used() -> None:
    """A fragment that no script includes would be tested by nothing."""
    texts = [script.text for script in load_scripts().values()]
    for path in script_folder().glob("fragments/*.lua"):
        first = path.read_text().splitlines()[0]
        assert any(first in text for text in texts), path.name


def test_scripts_are_found_beside_the_package_or_inside_it() -> None:
    """The checkout has them beside the package, a wheel inside."""
    package = Path(scripts.__file__).parent
    assert script_folder() in {package / "lua", package.parent / "lua"}
