"""A signal whose handler raises, as Ctrl-C does, ends a call of the store and not the process."""

from __future__ import annotations

from helpers import Processes
from servers import Server

PRODUCER = """
import signal
import sys

from mq.records import Request
from mq.store import Store


def stop(*_):
    raise KeyboardInterrupt


signal.signal(signal.SIGALRM, stop)
store = Store(sys.argv[1])
requests = [Request(name="n", queue="q", payload=b"\\x01", delay_ms=1_000)] * 200
for turn in range(1, 301):
    try:
        signal.setitimer(signal.ITIMER_REAL, turn / 30_000)
        # Bounded: an interrupt that comes while an object is being freed is lost to Python itself.
        for _ in range(20):
            store.enqueue_many(requests)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
print("went on")
"""


def test_an_interrupt_while_a_command_is_packed_is_an_exception(
    proc: Processes, one_server: Server
) -> None:
    """No number may reach hiredis: it crashes when it packs one while a signal is pending."""
    producer = proc.python("-c", PRODUCER, one_server.url)
    assert producer.wait(120) == 0
    assert producer.stdout == "went on\n"
