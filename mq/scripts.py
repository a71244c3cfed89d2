"""The Lua scripts: found, put together, versioned; this module knows no Redis.

A script is one file under `lua/`; a line `-- include: name` pulls `lua/fragments/name.lua` in at
that place, depth first, each fragment once. The assembled text is deterministic, so its SHA-1 is
both the name EVALSHA calls it by and the fingerprint that `lua/VERSIONS` locks.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

_INCLUDE = re.compile(r"^-- include: ([a-z_]+)$")
_HEADER = re.compile(r"^-- (Script|Version|Args|Moves|Returns|Events): +(.+)$")
HEADER_FIELDS = ("Script", "Version", "Args", "Moves", "Returns", "Events")


class ScriptError(Exception):
    """A script cannot be assembled: the installation is broken, not the caller."""


@attrs.frozen
class Script:
    """One assembled script.

    Args:
        name: the file's name without its ending; the verb of the transition.
        version: rises whenever behaviour changes.
        text: what Redis runs, fragments included.
        sha: SHA-1 of the text, the name EVALSHA and SLOWLOG use.
        header: the fixed header fields.
    """

    name: str
    version: int
    text: str = attrs.field(repr=False)
    sha: str
    header: Mapping[str, str] = attrs.field(repr=False)


def script_folder() -> Path:
    """Return the folder of the scripts: in the installed package, else beside pyproject.toml."""
    package = Path(__file__).resolve().parent
    installed, checkout = package / "lua", package.parent / "lua"
    if installed.is_dir():
        return installed
    if checkout.is_dir() and (package.parent / "pyproject.toml").is_file():
        return checkout
    raise ScriptError(f"no Lua scripts at {installed} nor at {checkout}: reinstall mq")


def assemble(name: str, folder: Path) -> str:
    """Return the text of script `name` with every include replaced by its fragment."""
    return "\n".join(_expand(folder / f"{name}.lua", folder, set(), ())) + "\n"


def _expand(path: Path, folder: Path, done: set[str], above: tuple[str, ...]) -> list[str]:
    if path.stem in above:
        raise ScriptError(f"include cycle: {' -> '.join([*above, path.stem])}")
    try:
        source = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScriptError(f"{path.name} is missing from {path.parent}") from None
    lines: list[str] = []
    for line in source.splitlines():
        include = _INCLUDE.match(line)
        if include is None:
            lines.append(line)
        elif include[1] not in done:
            fragment = folder / "fragments" / f"{include[1]}.lua"
            lines += _expand(fragment, folder, done, (*above, path.stem))
            done.add(include[1])
    return lines


def parse_header(text: str) -> dict[str, str]:
    """Return the header fields at the top of a script, in the order they stand."""
    header: dict[str, str] = {}
    for line in text.splitlines():
        field = _HEADER.match(line)
        if field is None:
            break
        header[field[1]] = field[2]
    return header


def load_script(name: str, folder: Path) -> Script:
    """Assemble script `name` and read its header; ScriptError when the header is not whole."""
    text = assemble(name, folder)
    header = parse_header(text)
    if tuple(header) != HEADER_FIELDS or header["Script"] != name:
        raise ScriptError(f"{name}.lua does not begin with the fixed header {HEADER_FIELDS}")
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, int(header["Version"]), text, sha, header)


@functools.cache
def load_scripts() -> Mapping[str, Script]:
    """Return every script by name, assembled once for the process."""
    folder = script_folder()
    return {path.stem: load_script(path.stem, folder) for path in sorted(folder.glob("*.lua"))}


def versions_text(scripts: Mapping[str, Script]) -> str:
    """Return what `lua/VERSIONS` must say: a line of name, version and SHA-1 for each script."""
    return "".join(f"{script.name} {script.version} {script.sha}\n" for script in scripts.values())


if __name__ == "__main__":
    (script_folder() / "VERSIONS").write_text(versions_text(load_scripts()), encoding="utf-8")
