"""The doorbell: tells those who await jobs in this process that one has finished.

One subscription and one thread a store, however many wait. Only jobs marked as awaited are
announced, so nobody else pays. A ring is a hint: a waiter looks at the record then, and looks by
itself from time to time, so a lost ring or a forbidden channel costs time and never a result.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any

from mq.connection import REDIS_FAILURES, Endpoint, store_error

log = logging.getLogger("mq")

READ_S = 1.0
"""How long one read of the subscription blocks."""
QUIET_S = 30.0
"""How long the subscription is kept when nobody waits."""
PAUSE_S = 1.0


class Doorbell:
    """Rings for finished jobs.

    Args:
        endpoint: the server.
        channel: where finishing scripts announce awaited jobs, by id.
    """

    def __init__(self, endpoint: Endpoint, channel: str) -> None:
        self._endpoint = endpoint
        self._channel = channel
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[threading.Event]] = {}
        self._connected = threading.Event()
        self._reader: threading.Thread | None = None
        self._quiet_since = time.monotonic()
        self._closed = False

    def close(self) -> None:
        """End the thread within a read; the next waiter starts another."""
        with self._lock:
            self._closed = True

    @property
    def connected(self) -> bool:
        """Whether a job that finishes now would be heard of."""
        return self._connected.is_set()

    def expect(self, job_id: str, patience_s: float) -> threading.Event:
        """Return an event that is set when the job may have finished.

        Args:
            job_id: id of the job.
            patience_s: how long to wait for the subscription to stand.
        """
        if self._pid != os.getpid():
            # The thread and its socket stayed with the parent of a fork.
            self._reset()
        ring = threading.Event()
        with self._lock:
            self._closed = False
            self._waiting.setdefault(job_id, []).append(ring)
            if self._reader is None:
                self._reader = threading.Thread(
                    target=self._listen, name="mq-doorbell", daemon=True
                )
                self._reader.start()
        self._connected.wait(patience_s)
        return ring

    def forget(self, job_id: str, ring: threading.Event) -> None:
        """Drop an event that `expect` returned."""
        with self._lock:
            rings = self._waiting.get(job_id, [])
            if ring in rings:
                rings.remove(ring)
            if not rings:
                self._waiting.pop(job_id, None)
            self._quiet_since = time.monotonic()

    def _listen(self) -> None:
        warned = False
        while not self._may_end():
            try:
                self._read()
            except REDIS_FAILURES as error:
                if not warned and self._waiting:
                    failure = store_error(error, self._endpoint.label)
                    log.warning("results are polled for, not pushed, for now: %s", failure)
                    warned = True
                self._ring_all()
                time.sleep(PAUSE_S)
            else:
                warned = False

    def _read(self) -> None:
        client = self._endpoint.client()
        subscription = client.pubsub()
        try:
            subscription.subscribe(self._channel)
            while not self._quiet_for_long():
                message: Any = subscription.get_message(timeout=READ_S)
                if message is None:
                    continue
                if message["type"] == "subscribe":
                    self._connected.set()
                elif message["type"] == "message":
                    self._ring(message["data"].decode())
        finally:
            self._connected.clear()
            subscription.close()
            client.close()

    def _quiet_for_long(self) -> bool:
        with self._lock:
            return self._is_quiet()

    def _may_end(self) -> bool:
        with self._lock:
            if self._is_quiet():
                self._reader = None
            return self._reader is None

    def _is_quiet(self) -> bool:
        quiet_s = 0.0 if self._closed else QUIET_S
        return not self._waiting and time.monotonic() - self._quiet_since >= quiet_s

    def _ring(self, job_id: str) -> None:
        with self._lock:
            for ring in self._waiting.get(job_id, ()):
                ring.set()

    def _ring_all(self) -> None:
        with self._lock:
            for rings in self._waiting.values():
                for ring in rings:
                    ring.set()
