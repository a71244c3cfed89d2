"""Where the time of a transition comes from."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from mq.clock import FakeClock, ServerClock
from mq.records import Request
from mq.scripts import script_folder
from mq.store import Store


def test_the_servers_clock_leaves_the_instant_to_the_script() -> None:
    """No worker's own clock ever decides."""
    assert ServerClock().now_ms() is None


def test_a_fake_clock_moves_only_when_told() -> None:
    """It stands, is advanced, and can be set back."""
    clock = FakeClock(5)
    assert [clock.now_ms(), clock.now_ms()] == [5, 5]
    assert clock.advance(10) == 15
    clock.set(3)
    assert clock.now_ms() == 3


def test_a_fake_clock_counts_every_advance_of_many_threads() -> None:
    """Tests with several workers share one."""
    clock = FakeClock(0)
    threads = [
        threading.Thread(target=lambda: [clock.advance(1) for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now_ms() == 2000


@pytest.mark.parametrize("start", [0, 1, 2**41])
def test_zero_is_an_instant_like_any_other(start: int) -> None:
    """A store whose clock stands at 0 works, and says 0."""
    clock = FakeClock(start)
    store = Store("memory://", clock=clock)
    store.enqueue(Request(name="n", queue="q", payload=b"", id="a"))
    claim = store.claim(["q"], ["n"], "t", 100)
    assert claim.now == start
    store.ack_completed("a", "t")
    record, ledger = store.get_whole("a") or (None, [])
    assert record is not None
    assert (record.enqueued_at, record.run_at, record.processed_at) == (start, start, start)
    assert record.finished_at == start
    assert (ledger[0].started_at, ledger[0].finished_at) == (start, start)
    store.close()


def test_the_server_gives_the_time_when_the_clock_gives_none() -> None:
    """Two calls one after the other never go back."""
    store = Store("memory://")
    first = store.claim(["q"], ["n"], "t", 100).now
    second = store.claim(["q"], ["n"], "t", 100).now
    assert 1_600_000_000_000 < first <= second
    store.close()


def _files() -> list[Path]:
    folder = script_folder()
    return sorted([*folder.glob("*.lua"), *folder.glob("fragments/*.lua")])


@pytest.mark.parametrize("path", _files(), ids=lambda path: path.stem)
def test_one_fragment_alone_reads_the_time(path: Path) -> None:
    """Every other script gets the instant from it."""
    reads = "'TIME'" in path.read_text()
    assert reads == (path.parent.name == "fragments" and path.stem == "clock")
