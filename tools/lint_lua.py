"""Runs luacheck on the scripts as Redis gets them: with their fragments in place.

A fragment may define what one script does not need; only what no script needs is a finding.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from mq.scripts import assemble

ROOT = Path(__file__).resolve().parent.parent
# Unused, never read, filled and never read.
UNUSED = re.compile(r"\(W(?:211|231|241)\) (?:unused )?(?:variable|function) '(\w+)'")


def findings_of(name: str, text: str) -> list[str]:
    """The lines luacheck prints about one assembled script."""
    options = ["--config", str(ROOT / ".luacheckrc"), "--formatter", "plain", "--codes"]
    checked = subprocess.run(
        ["luacheck", "-", "--filename", f"lua/{name}.lua", *options],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if checked.returncode > 2:  # 1 and 2: warnings and errors in the script
        sys.exit(f"luacheck failed: {checked.stdout}{checked.stderr}")
    return checked.stdout.splitlines()


def main() -> int:
    """Print what is wrong; the exit code is 1 when something is."""
    luacheck = shutil.which("luacheck")
    if luacheck is None:
        print("luacheck is not installed: the Lua scripts were not checked")
        return 0
    wrong: list[str] = []
    unused: Counter[str] = Counter()
    names = [path.stem for path in sorted((ROOT / "lua").glob("*.lua"))]
    texts = {name: assemble(name, ROOT / "lua") for name in names}
    for name, text in texts.items():
        for line in findings_of(name, text):
            match = UNUSED.search(line)
            if match:
                unused[match[1]] += 1
            else:
                wrong.append(f"{line} (line of the assembled text)")
    for what, times in sorted(unused.items()):
        defined = re.compile(rf"^\s*local (?:function )?{what}\b", re.MULTILINE)
        if times == sum(1 for text in texts.values() if defined.search(text)):
            wrong.append(f"lua: no script reads {what!r}")
    print("\n".join(wrong) or f"{len(names)} Lua scripts are clean")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
