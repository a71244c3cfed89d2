"""Ends a handler that runs in a thread of this process, by an exception raised inside it.

CPython delivers such an exception (`PyThreadState_SetAsyncExc`) between two bytecodes of the
thread, some time after it was set: never while a call into C blocks, and possibly after the
handler has returned. Hence a window: it opens before the handler is called and closes after it
ended, under one lock, and closing clears an exception that is set and not delivered. An interrupt
meant for one run can therefore not reach the next job on that thread, and one that arrives
between the handler's return and the closing is swallowed.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Literal

from mq.context import Interrupted

_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_async_exc.restype = ctypes.c_int
_clear_async_exc = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


Answer = Literal["raised", "refused", "later"]

# `with lock:` is safe: no bytecode runs between taking a lock of C and the block. These take one in
# Python code of their own, or in an `acquire(); try:` that an exception can come between.
_LOCK_TAKERS = frozenset({"__enter__", "acquire", "_acquire_restore", "__exit__", "release"})


def _takes_a_lock(thread_id: int) -> bool:
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 documented; no other way to look
    if frame is None:
        return False
    module = str(frame.f_globals.get("__name__", ""))
    if module == "threading":
        return frame.f_code.co_name in _LOCK_TAKERS
    return module.partition(".")[0] == "logging"


class Window:
    """The time in which one call of a handler may be interrupted; at most once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self._asked = False
        self._closed = False

    def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Call the handler in this thread, with the window open while it runs.

        Returns or raises what the handler did; an interrupt that surfaces after it ended is
        swallowed. One that was asked for before the call is raised instead of calling.
        """
        # CPython looks for a pending exception after each call and at each jump back. The handler
        # is called from C and its value stored from C (a missing key of a defaultdict), so nothing
        # is looked at between the two: a value that was returned is there whatever arrives next.
        returned: dict[str, Any] = defaultdict(functools.partial(function, *arguments))
        raised: BaseException | None = None
        try:
            self._open()
            returned["value"]
        except BaseException as error:  # noqa: BLE001 whatever a handler raises is its outcome
            raised = error
        while True:
            try:
                self._close()
                break
            except Interrupted:
                # Delivered before the window was closed; the handler has ended, it counts no more.
                continue
        if "value" in returned:
            return returned["value"]
        assert raised is not None
        raise raised

    def _open(self) -> None:
        with self._lock:
            self._thread_id = threading.get_ident()
            if self._asked:
                raise Interrupted("told to end before it began")

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            if self._asked and self._thread_id is not None:
                _clear_async_exc(self._thread_id, None)

    def interrupt(self) -> Answer:
        """Raise Interrupted in the handler, once.

        Returns:
            `refused` when it has ended or was told before; `later` when it is at this moment in
            code that takes a lock, which an exception would leave held for ever.
        """
        # A fresh turn: nobody takes this thread's place between the look and the raising.
        time.sleep(0)
        with self._lock:
            if self._closed or self._asked:
                return "refused"
            if self._thread_id is not None and _takes_a_lock(self._thread_id):
                return "later"
            self._asked = True
            if self._thread_id is not None:
                _set_async_exc(self._thread_id, Interrupted)
            return "raised"

    @property
    def thread_id(self) -> int | None:
        """The thread the handler runs in; None before it was called."""
        return self._thread_id
