"""Interrupts aimed at the end of a handler, where they are most likely to hit what comes after."""

from __future__ import annotations

import io
import logging
import random
import sys
import threading
from collections.abc import Iterator

import pytest

from mq.context import Interrupted
from mq.worker.executors.interrupts import Window


@pytest.fixture
def fast_switching() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Attacker(threading.Thread):
    """Interrupts the current window as soon as the handler says it is about to end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.window: Window | None = None
        # Plain attributes: an Event takes a lock in Python code, where an interrupt leaves it held.
        self.ending = False
        self.stopped = False

    def run(self) -> None:
        """Attack until stopped."""
        while not self.stopped:
            if not self.ending:
                continue
            self.ending = False
            window = self.window
            if window is not None:
                for _ in range(random.randrange(60)):
                    pass
                window.interrupt()


def storm(runs: int) -> dict[str, int]:
    """Run handlers one after the other on this thread under attack; count what surfaced where."""
    attacker = Attacker()
    attacker.start()
    seen = {"value": 0, "interrupted": 0, "lost": 0, "leaked": 0}
    returning: list[int] = []

    def handler(number: int) -> int:
        attacker.ending = True
        for _ in range(random.randrange(60)):
            pass
        returning.append(number)
        return number

    try:
        for number in range(runs):
            try:
                window = Window()
                attacker.window = window
                try:
                    assert window.call(handler, (number,)) == number
                    seen["value"] += 1
                except Interrupted:
                    seen["interrupted"] += 1
                attacker.window = None
                for _ in range(60):
                    pass
            except Interrupted:
                seen["leaked"] += 1
    finally:
        attacker.stopped = True
        attacker.join(5)
    return seen


def test_no_interrupt_reaches_what_follows_a_handler(fast_switching: None) -> None:
    """Each run ends by its value or by its own interrupt, and none surfaces between two runs."""
    seen = storm(3_000)
    assert seen["leaked"] == 0
    assert seen["value"] + seen["interrupted"] == 3_000
    assert seen["value"] > 0


@pytest.mark.stress
def test_no_interrupt_reaches_what_follows_a_handler_in_a_long_storm(fast_switching: None) -> None:
    """The same a hundred times as long."""
    seen = storm(300_000)
    assert seen["leaked"] == 0
    assert seen["value"] + seen["interrupted"] == 300_000


def test_an_interrupt_asked_for_before_the_call_keeps_the_handler_from_beginning() -> None:
    """A cancel that comes between claim and start is not lost."""
    window = Window()
    assert window.interrupt() == "raised"
    called: list[int] = []
    with pytest.raises(Interrupted):
        window.call(called.append, (1,))
    assert called == []


def test_an_interrupt_after_the_end_is_refused() -> None:
    """Nothing is raised in a thread whose handler has ended."""
    window = Window()
    assert window.call(len, ("ab",)) == 2
    assert window.interrupt() == "refused"


def test_an_interrupt_does_not_leave_the_lock_of_a_log_handler_held() -> None:
    """A handler that logs all the time is interrupted between two lines, not inside one."""
    stream = logging.StreamHandler(io.StringIO())
    logger = logging.getLogger("mq-test-interrupts")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(stream)

    def handler() -> None:
        while True:
            logger.info("a line")

    for _ in range(50):
        window = Window()
        attack = threading.Thread(target=_until_raised, args=(window,))
        attack.start()
        with pytest.raises(Interrupted):
            window.call(handler, ())
        attack.join(30)
        free = threading.Thread(target=logger.info, args=("another thread",), daemon=True)
        free.start()
        free.join(10)
        assert not free.is_alive()
        stream.stream.truncate(0)
    logger.removeHandler(stream)


def _until_raised(window: Window) -> None:
    while window.thread_id is None or window.interrupt() == "later":
        pass
