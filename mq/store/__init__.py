"""The store: one method for each script, bytes in and bytes out.

A store is one Redis and one prefix. It is usable without an App, by producers, workers and admin
tools alike; it knows no definitions and never looks into a payload or an exit. Single forms of a
verb raise the typed error of a refusal; batch forms return one outcome word an item.
"""

from __future__ import annotations

from mq.store.families import Families
from mq.store.lists import Lists
from mq.store.reading import COUNT_BATCH
from mq.store.refusals import REFUSALS
from mq.store.running import PROMOTE_BATCH, SWEEP_BATCH
from mq.store.scheduling import Scheduling
from mq.store.upkeep import PRUNE_BATCH, WINDOW_BATCH, Upkeep

__all__ = [
    "COUNT_BATCH",
    "PROMOTE_BATCH",
    "PRUNE_BATCH",
    "REFUSALS",
    "SWEEP_BATCH",
    "WINDOW_BATCH",
    "Store",
]


class Store(Scheduling, Families, Lists, Upkeep):
    """Jobs in one Redis under one prefix.

    Args:
        target: a URL (redis://, rediss://, unix://, memory://) or a `redis.Redis` whose settings
            are copied; None for redis://localhost:6379/0.
        prefix: 1 to 64 of `A-Z a-z 0-9 . _ -`; two prefixes on one database never meet.
        clock: where the time of transitions comes from; the server's own by default.
        retry_for: how long an operation is repeated while Redis cannot be reached.
        id_generator: makes the ids of jobs enqueued without one.
        history_ttl: ceiling of retention: the longest time finished jobs are kept, whatever their
            own policy, or one for each of some states; workers of this store apply it.
        settings: username, password, db and redis-py's ssl and socket options.

    Raises:
        StoreError: the address or an option cannot work.
    """
