"""Sends SIGTERM at each bytecode of the wait for it, and prints at how many it came through."""

from __future__ import annotations

import faulthandler
import signal
import sys
from types import FrameType
from typing import Any

from mq.worker.signals import StopSignals

faulthandler.dump_traceback_later(30, exit=True)


def waited(step: int) -> bool:
    """Wait, with a signal before the given step; False when the wait has fewer."""
    signals = StopSignals()
    signals.install()
    steps = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        if event == "opcode":
            steps += 1
            if steps == step:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)
        return trace

    sys.settrace(trace)
    try:
        signals.drain.wait(0.02)
    finally:
        sys.settrace(None)
    if steps < step:
        return False
    assert signals.drain.is_set()
    assert signals.drain.wait(0)
    return True


step = 1
while waited(step):
    step += 1
sys.stdout.write(f"{step - 1}\n")
