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
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from mq.context import Interrupted

_set_async_exc = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_async_exc.restype = ctypes.c_int
_clear_async_exc = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


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

    def interrupt(self) -> bool:
        """Raise Interrupted in the handler, once; False when it has ended or was told before."""
        with self._lock:
            if self._closed or self._asked:
                return False
            self._asked = True
            if self._thread_id is not None:
                _set_async_exc(self._thread_id, Interrupted)
            return True

    @property
    def thread_id(self) -> int | None:
        """The thread the handler runs in; None before it was called."""
        return self._thread_id
