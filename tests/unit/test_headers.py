"""What every Lua file must say, and what none may use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mq.scripts import HEADER_FIELDS, Script, load_scripts, script_folder
from mq.states import SCRIPT_OF_VERB, TRANSITIONS
from mq.store import REFUSALS

SCRIPTS = [pytest.param(script, id=name) for name, script in load_scripts().items()]
FILES = sorted([*script_folder().glob("*.lua"), *script_folder().glob("fragments/*.lua")])
SCRIPT_LINES = 60
FRAGMENT_LINES = 120
LONGER = {
    "claim": "promotion, merging the heads of several names and waking the next belong together",
}
INSERTS_AS = {"tick": "enqueue"}
"""Scripts that make a job through the fragment of another verb: they move what that one inserts."""
BANNED = {
    "cjson and its kin": r"\b(cjson|cmsgpack|struct|bit)\s*[.:\[]",
    "code from text": r"\b(loadstring|load|dofile|require|setfenv|getfenv)\s*\(",
    "the outside world": r"\b(os|io|debug|package)\s*\.",
    "a shebang": r"^#!",
    "another protocol": r"setresp|replicate_commands|breakpoint",
    "blocking calls": r"'(BLPOP|BRPOP|BZPOPMIN|BZPOPMAX|WAIT|SUBSCRIBE)'",
    "commands newer than Redis 6.2": (
        r"'(ZMPOP|LMPOP|ZINTERCARD|SINTERCARD|HEXPIRE|SPUBLISH|EXPIRETIME|PEXPIRETIME|LCS|FCALL)'"
    ),
    "walking the keyspace": r"'(KEYS|SCAN|FLUSHALL|FLUSHDB|RANDOMKEY)'",
}


def code_of(text: str) -> str:
    """The text without comments, and with nothing in its place."""
    return "\n".join(re.sub(r"--.*$", "", line).rstrip() for line in text.splitlines())


def lines_of_code(text: str) -> int:
    """How many lines hold code."""
    return sum(1 for line in code_of(text).splitlines() if line.strip())


def _source(script: Script) -> str:
    return (script_folder() / f"{script.name}.lua").read_text()


def _verbs(script: Script) -> set[str]:
    """The built verbs that a script carries out."""
    return {
        row.verb
        for row in TRANSITIONS
        if row.built and SCRIPT_OF_VERB.get(row.verb, row.verb) == script.name
    }


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_opens_with_the_fixed_header_and_a_reason(script: Script) -> None:
    """Six fields in order, then why the step must be atomic, then the includes."""
    lines = _source(script).splitlines()
    fields = [line.split(":")[0].removeprefix("-- ") for line in lines[: len(HEADER_FIELDS)]]
    assert tuple(fields) == HEADER_FIELDS
    assert lines[6] == "--"
    assert lines[7].startswith("-- Atomic ")
    assert int(script.header["Version"]) >= 1
    assert script.header["Args"].split()[0] == "now"


def _moves(script: Script) -> set[tuple[str, str]]:
    """The pairs (source, target) that the header promises; none when it begins with a dash."""
    moves = script.header["Moves"]
    if moves.startswith("- ("):
        return set()
    pairs = set()
    for part in moves.split(", "):
        source, _, targets = part.partition(" -> ")
        pairs |= {(source, target) for target in targets.split(" | ")}
    return pairs


@pytest.mark.parametrize("script", SCRIPTS)
def test_moves_agrees_with_the_table(script: Script) -> None:
    """The header promises the moves of its rows, each in one direction, and no other."""
    rows = [row for row in TRANSITIONS if row.built and row.verb in _verbs(script)]
    rows += [
        row for row in TRANSITIONS if row.verb == INSERTS_AS.get(script.name) and row.source is None
    ]
    in_table = {
        (row.source.value if row.source else "-", row.target.value if row.target else "-")
        for row in rows
        # A duplicate moves nothing; claiming a delayed job is promoting it and claiming that.
        if row.word != "duplicate" and (row.verb, row.word) != ("claim", "claimed")
    }
    if script.name == "claim":
        in_table.add(("waiting", "active"))
    assert _moves(script) == in_table


@pytest.mark.parametrize("script", [one for one in SCRIPTS if _verbs(one.values[0])])
def test_returns_agrees_with_the_table(script: Script) -> None:
    """Every word of the rows is promised; what else is, is a refusal or an earlier landing."""
    told = set(re.findall(r"[a-z_]+", script.header["Returns"].partition(": ")[2]))
    told |= set(re.findall(r"[a-z_]+", script.header["Returns"]))
    words = {row.word for row in TRANSITIONS if row.built and row.verb in _verbs(script)}
    # A promoted job is not in the reply of a claim: only what was claimed is. Nor is a parent that
    # a report settles in the reply of that: only whether the report was applied.
    assert words - {"promoted", "settled"} <= told
    landings = {"completed", "retried", "failed", "cancelled", "released"}
    every_word = {row.word for row in TRANSITIONS}
    assert told & every_word <= words | set(REFUSALS) | landings


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("what", BANNED)
def test_no_file_uses_what_differs_between_servers(path: Path, what: str) -> None:
    """Six servers and the one in memory run the same text."""
    found = re.search(BANNED[what], code_of(path.read_text()), re.MULTILINE)
    assert found is None, f"{path.name}: {found}"


STRING_COMPARISON = re.compile(r"(\.id|'[^']*'|\bid\b|\bname\b|\bkey\b)\s*(<=?|>=?)\s")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_file_orders_text(path: Path) -> None:
    """Lua orders text by the server's locale, sorted sets by bytes."""
    code = code_of(path.read_text())
    assert STRING_COMPARISON.search(code) is None
    for sort in re.findall(r"table\.sort\([^\n]*", code):
        assert ".score <" in sort


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_one_fragment_writes_the_state(path: Path) -> None:
    """A job changes its state in one place, and there it changes its structures, too."""
    writes = re.search(r"'(HSET|HMSET|HSETNX)'[^\n]*'state'", code_of(path.read_text()))
    assert bool(writes) == (path.name == "move.lua")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_only_the_keys_fragment_spells_keys(path: Path) -> None:
    """Every other file asks it, so that the layout is in one place."""
    code = code_of(path.read_text())
    assert ("ROOT" in code) == (path.name == "keys.lua")
    assert "KEYS[" not in code or path.name == "keys.lua"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_numbers_are_written_out_by_one_function(path: Path) -> None:
    """Lua's own conversion keeps 14 digits and turns to exponents."""
    code = code_of(path.read_text())
    assert "tostring" not in code
    if path.name != "text.lua":
        formats = set(re.findall(r"string\.format\('([^']*)'", code))
        assert formats <= {"%.0f"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_stays_small(path: Path) -> None:
    """A script fits a screen or says here why not; so does a fragment."""
    size = lines_of_code(path.read_text())
    if path.parent.name == "fragments":
        assert size <= FRAGMENT_LINES
    elif path.stem not in LONGER:
        assert size <= SCRIPT_LINES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_include_stands_before_the_code(path: Path) -> None:
    """Whoever reads a file sees at its head what it builds on."""
    lines = path.read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if line and not line.startswith("--"))
    assert not any(line.startswith("-- include:") for line in lines[first:])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_everything_is_local(path: Path) -> None:
    """A global would be refused by a server and outlive the script in memory."""
    code = code_of(path.read_text())
    assert re.search(r"^(\s*)function\s+\w", code, re.MULTILINE) is None
