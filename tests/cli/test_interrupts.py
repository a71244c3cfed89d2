"""Ctrl-C while modules are loaded, and in the middle of a call of the store."""

from __future__ import annotations

import pytest
from helpers import Processes
from servers import Server

HASTY = """
import sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())

from mq.cli import main

sys.exit(main(sys.argv[2:]))
"""

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


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("attrs", ("jobs", "list")),
        ("click", ("jobs", "list")),
        ("mq.cli.failures", ("jobs", "list")),
        ("mq.cli.jobs", ("jobs", "list")),
        ("mq.store", ("jobs", "list")),
        ("redis", ("jobs", "list")),
        ("click", ("--help",)),
        ("mq.worker.signals", ("worker", "jobs:app")),
        ("click", ("worker", "jobs:app")),
    ],
)
def test_ctrl_c_while_modules_are_loaded_ends_without_a_word(
    proc: Processes, module: str, command: tuple[str, ...]
) -> None:
    """Impatience is no mistake: whatever is being imported, the code says that it was stopped."""
    stopped = proc.python("-c", HASTY, module, *command)
    assert stopped.wait() == 130
    assert (stopped.stdout, stopped.stderr.strip()) == ("", "")  # the line of ^C may be ended


def test_next_to_nothing_is_loaded_before_ctrl_c_is_answered(proc: Processes) -> None:
    """What is imported for the entry function itself is imported without a handler."""
    code = "import sys; before = {*sys.modules}; import mq.cli; print(*{*sys.modules} - before)"
    told = proc.python("-c", code)
    assert told.wait() == 0
    assert set(told.stdout.split()) == {"__future__", "mq", "mq.unrecoverable", "mq.cli"}
