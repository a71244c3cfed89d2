"""The child process of the process executor: imports the app, then runs its handlers.

Started by `process.py`. The main thread runs handlers, so that a signal can interrupt one: Python
runs signal handlers there, between two bytecodes. A second thread reads what the worker says, and
sends the signal. When the worker is gone the child kills its process group: nobody is left who
could use what it does.
"""

from __future__ import annotations

import importlib
import logging
import os
import queue
import runpy
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Any

from mq.app import App
from mq.context import Context, Interrupted
from mq.failures import describe
from mq.worker.executors.frames import Frames
from mq.worker.executors.interrupts import Answer, Window
from mq.worker.invocation import invoke


class SignalWindow(Window):
    """A window that a signal interrupts, handled in the very thread the handler runs in."""

    def signalled(self) -> None:
        """Raise Interrupted here and now if the handler runs, else as soon as it begins."""
        # No lock: this thread may hold it at this moment, and nobody else touches the flags.
        if self._closed or self._asked:
            return
        self._asked = True
        if self._thread_id is not None:
            raise Interrupted("told to end")

    def _close(self) -> None:
        self._closed = True

    def interrupt(self) -> Answer:
        """Refuse: only the signal interrupts a child."""
        return "refused"


class Child:
    """Serves one worker over its end of a socket.

    Runs are numbered. What the worker says about one may arrive before it began or after it ended,
    and must never touch another.

    Args:
        frames: the socket.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._orders: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._run_number = 0
        self._told_number = 0
        self._interrupted_number = 0
        self._context: Context | None = None
        self._window: SignalWindow | None = None

    def serve(self) -> None:
        """Import the app as told, then run handlers until the worker is gone."""
        signal.signal(signal.SIGTERM, self._on_term)
        os.register_at_fork(after_in_child=self._leave_to_parent)
        setup = self._frames.receive()
        if setup is None:
            return
        _, app_module, app_name, script, modules, max_bytes, level = setup
        # From here on the child ends with its worker, also while an import takes its time.
        threading.Thread(target=self._read, name="mq-child-reader", daemon=True).start()
        logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
        try:
            app = _load(app_module, app_name, script, modules)
        except BaseException as error:  # noqa: BLE001 whatever an import raises is told to the worker
            self._frames.send("broken", describe(error).traceback)
            return
        self._frames.send("ready")
        while True:
            self._run(app, self._orders.get(), max_bytes)

    def _leave_to_parent(self) -> None:
        """Make a process that a handler forked neither answer nor listen to the worker."""
        self._frames.forget()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._window is not None and self._interrupted_number == self._run_number:
            self._window.signalled()

    def _read(self) -> None:
        while (message := self._frames.receive()) is not None:
            if message[0] == "run":
                self._orders.put(message)
                continue
            kind, number = message
            with self._lock:
                if kind == "told":
                    self._told_number = number
                    if self._context is not None and self._run_number == number:
                        self._context.cancelled.set()
                else:
                    self._interrupted_number = number
                    if self._window is not None and self._run_number == number:
                        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    def _run(self, app: App, order: list[Any], max_bytes: int) -> None:
        _, number, payload, fields = order
        context = Context(
            **fields, report=lambda value: self._frames.send("progress", number, value)
        )
        window = SignalWindow()
        with self._lock:
            self._run_number, self._context, self._window = number, context, window
            if self._told_number == number:
                context.cancelled.set()
            if self._interrupted_number == number:
                window.signalled()
        report = invoke(app.jobs[context.name], payload, context, window, max_bytes)
        with self._lock:
            self._context = self._window = None
        self._frames.send(
            "ended", number, report.completed, report.exit, report.summary, report.traceback,
            report.spent, report.interrupted,
        )  # fmt: skip


def _load(app_module: str, app_name: str, script: str, modules: list[str]) -> App:
    if script:
        found = runpy.run_path(script, run_name="__mq_child__")[app_name]
    else:
        found = getattr(importlib.import_module(app_module), app_name)
    for name in modules:
        importlib.import_module(name)
    app: App = found
    return app


def main() -> None:
    """Serve the worker whose socket's number is the argument."""
    end = socket.socket(fileno=int(sys.argv[1]))
    Child(Frames(end)).serve()


if __name__ == "__main__":
    main()
