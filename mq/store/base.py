"""What every part of a store needs: address, keys and clock, and the keyspace as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mq import ids
from mq.calls import ScriptCaller, ServerInfo, Waiter
from mq.clock import Clock, ServerClock
from mq.connection import REDIS_FAILURES, endpoint_of, store_error
from mq.doorbell import Doorbell
from mq.durations import Duration, to_ms
from mq.keys import Keys
from mq.policies import check_history_ttl

if TYPE_CHECKING:
    import redis


class StoreBase:
    """One Redis under one prefix; the arguments are those of `mq.store.Store`."""

    def __init__(
        self,
        target: str | redis.Redis | None = None,
        *,
        prefix: str = "mq",
        clock: Clock | None = None,
        retry_for: float | str = "5s",
        id_generator: Callable[[], str] = ids.new_id,
        history_ttl: Duration | Mapping[str, Duration] | None = None,
        **settings: Any,
    ) -> None:
        self.keys = Keys(prefix)
        self.clock: Clock = clock or ServerClock()
        self.endpoint = endpoint_of(target, **settings)
        self._new_id = id_generator
        self.history_ttl_ms = check_history_ttl(history_ttl)
        self._caller = ScriptCaller(self.endpoint, self.keys.meta(), to_ms(retry_for, "retry_for"))
        self._waiters = threading.local()
        self.doorbell = Doorbell(self.endpoint, self.keys.done())
        # Names the claims of callers that give no worker id, together with process and thread: a
        # repeated claim is recognised only while its caller makes no other.
        self._anonymous = ids.new_nonce()

    @property
    def in_process(self) -> bool:
        """Whether the store lives in this process alone and keeps nothing (memory://)."""
        return self.endpoint.in_process

    def __repr__(self) -> str:
        """Return address and prefix, never a password."""
        return f"<Store {self.endpoint.label} prefix={self.keys.prefix}>"

    def check(self) -> None:
        """Reach the server once, without repetition; StoreError says what is wrong."""
        try:
            self._caller.check_server()
        except REDIS_FAILURES as error:
            raise store_error(error, self.endpoint.label) from error

    def server_info(self) -> ServerInfo:
        """Return what the server says of itself."""
        return self._caller.repeat(lambda _: self._caller.server_info())

    def keyspace_version(self) -> int | None:
        """Return the version of the keyspace under this prefix; None before the first job."""
        found = self._caller.repeat(
            lambda _: self._caller.client.execute_command("HGET", self.keys.meta(), "schema")
        )
        return None if found is None else int(found)

    def close(self) -> None:
        """Close the connections; the store opens new ones when it is used again."""
        self._caller.client.close()
        self.doorbell.close()
        waiter: Waiter | None = getattr(self._waiters, "waiter", None)
        if waiter is not None:
            waiter.close()

    def destroy(self) -> int:
        """Delete every key of this prefix, in bounded steps, and return how many there were."""
        cursor, deleted = self._destroy_from(0)
        while cursor:
            cursor, more = self._destroy_from(cursor)
            deleted += more
        return deleted

    def _destroy_from(self, cursor: int) -> tuple[int, int]:
        client = self._caller.client

        def step(_: bool) -> tuple[int, int]:
            after, keys = client.scan(cursor, match=self.keys.root + "*", count=1000)
            return after, int(client.execute_command("UNLINK", *keys)) if keys else 0

        return self._caller.repeat(step)

    def _now(self) -> str:
        now = self.clock.now_ms()
        return "" if now is None else str(now)
