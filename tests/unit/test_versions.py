"""The lock file of scripts: a changed script is a visible change with a new number."""

from __future__ import annotations

import pytest

from mq.scripts import load_scripts, script_folder, versions_text

LOCK = script_folder() / "VERSIONS"


def _locked() -> dict[str, tuple[int, str]]:
    lines = (line.split() for line in LOCK.read_text().splitlines())
    return {name: (int(version), sha) for name, version, sha in lines}


@pytest.mark.parametrize("name", load_scripts())
def test_a_changed_script_has_a_new_version(name: str) -> None:
    """Text and number change together, so that a SLOWLOG line can be read years later."""
    script = load_scripts()[name]
    version, sha = _locked().get(name, (0, ""))
    if sha != script.sha:
        assert script.version > version, (
            f"the text of {name} changed (its own file or a fragment): raise its Version,"
            " then run python -m mq.scripts"
        )
    assert (version, sha) == (script.version, script.sha), (
        f"lua/VERSIONS does not know {name} {script.version}: run python -m mq.scripts"
    )


def test_the_lock_file_is_exactly_what_is_loaded() -> None:
    """No script that is gone stays in it."""
    assert LOCK.read_text() == versions_text(load_scripts()), "run python -m mq.scripts"
