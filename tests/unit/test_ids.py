"""Ids: unique and in order, across threads and forks."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading

import pytest

from mq.ids import new_id, new_nonce


def test_ids_sort_by_when_they_were_made() -> None:
    """Within a process each is greater than the one before."""
    ids = [new_id() for _ in range(5_000)]
    assert ids == sorted(set(ids))
    assert {len(made) for made in ids} == {26}


def test_each_thread_sees_increasing_ids_and_no_two_are_equal() -> None:
    """One generator serves all threads."""
    made: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def fill(ids: list[str]) -> None:
        start.wait(10)
        ids.extend(new_id() for _ in range(500))

    threads = [threading.Thread(target=fill, args=(ids,)) for ids in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert all(ids == sorted(ids) for ids in made)
    assert len({made_id for ids in made for made_id in ids}) == 8 * 500


def test_nonces_have_one_length_and_never_repeat() -> None:
    """They hold no separator that a script would have to escape."""
    nonces = {new_nonce() for _ in range(2_000)}
    assert len(nonces) == 2_000
    assert {len(nonce) for nonce in nonces} == {22}
    assert all(nonce.replace("-", "").replace("_", "").isalnum() for nonce in nonces)


FORK = """
import os, sys
from mq.ids import new_id, new_nonce
new_id()
rows = []
for _ in range(20):
    reader, writer = os.pipe()
    child = os.fork()
    made = "".join(f"{new_id()} {new_nonce()}\\n" for _ in range(100))
    if child == 0:
        os.write(writer, made.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        rows += pipe.read().splitlines() + made.splitlines()
    os.waitpid(child, 0)
parts = [part for row in rows for part in row.split()]
print(len(parts), len(set(parts)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_parent_and_forked_children_never_make_the_same() -> None:
    """A child inherits the generator's memory, and draws its own bits all the same."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORK)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.stdout.split() == ["8000", "8000"]
