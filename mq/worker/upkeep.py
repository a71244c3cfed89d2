"""What a worker does for a whole store beside running jobs: any may do it, so all do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mq.errors import StoreError
from mq.store import Store
from mq.worker.duty import Duty
from mq.worker.flow_starter import FlowStarter
from mq.worker.flow_sweeper import FlowSweeper
from mq.worker.indexer import Indexer
from mq.worker.options import WorkerOptions
from mq.worker.outage import Streak
from mq.worker.pruner import Pruner
from mq.worker.relay import Relay
from mq.worker.stall_sweeper import StallSweeper
from mq.worker.ticker import Ticker
from mq.worker.window_sweeper import WindowSweeper

if TYPE_CHECKING:
    from mq.app import App


class Upkeep:
    """The duties for a store, each a thread of its own.

    Args:
        app: knows other stores by name, and declares schedules.
        store: whose jobs, schedules and flows they look after.
        keys: metadata keys to declare there.
        options: their intervals.
        streak: outages, as the other duties see them.
    """

    def __init__(
        self, app: App, store: Store, keys: Sequence[str], options: WorkerOptions, streak: Streak
    ) -> None:
        self.sweeper = StallSweeper(store, options, streak)
        self.starter = FlowStarter(app, store, options, streak)
        self.relay = Relay(app, store, options, streak)
        flow_sweeper = FlowSweeper(app, store, options, streak)
        self.relay.failures_carried = flow_sweeper.poke
        self.ticker = Ticker(store, app.schedule_sets, options, streak)
        self.duties: tuple[Duty, ...] = (
            self.sweeper,
            WindowSweeper(store, options, streak),
            Pruner(store, options, streak),
            self.starter,
            self.relay,
            flow_sweeper,
            self.ticker,
            Indexer(store, keys, options, streak),
        )
        self._made = 0

    def made_something(self) -> bool:
        """Whether flows and schedules have made jobs since this was asked last; looks now.

        A burst asks before it ends. An unreachable store makes nothing.
        """
        try:
            self.ticker.look()
            self.starter.look()
            self.relay.look()
        except StoreError:
            return False
        made = self.starter.done + self.relay.done + self.ticker.ticked
        before, self._made = self._made, made
        return made != before

    def stop(self) -> None:
        """End the threads; what they have begun ends with its call."""
        for duty in self.duties:
            duty.stop()

    def join(self, timeout_s: float) -> None:
        """Wait until they have ended, no longer than that for all together."""
        give_up_at = time.monotonic() + timeout_s
        for duty in self.duties:
            duty.join(max(0.0, give_up_at - time.monotonic()))
