"""Upkeep: what workers do for the store as a whole, in bounded steps, whoever comes first."""

from __future__ import annotations

from collections.abc import Sequence

from mq import ids
from mq.states import JobState
from mq.store.reading import Reading
from mq.validation import check_count, check_list, check_name

_PRUNED = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)

WINDOW_BATCH = 50
BACKFILL_BATCH = 50
PRUNE_BATCH = 50
MAX_PRUNE = 500
PRUNE_PAIRS = 40
"""Pairs of (queue, name) one call of prune looks at: 7 sets each."""


class Upkeep(Reading):
    """Finished jobs and dedup windows that are over, and metadata indexes that are new."""

    def prune(self, limit: int = PRUNE_BATCH) -> int:
        """Remove finished jobs past their retention; call again while it returns `limit` or more.

        A job goes by the age on its own record, by the store's `history_ttl`, and by the policy of
        the newest job of its queue, name and state, whichever comes first.
        """
        check_count(limit, "limit", 1, MAX_PRUNE)
        removed = 0
        pairs = self.seen_pairs()
        ceilings = [self.history_ttl_ms.get(state.value, "") for state in _PRUNED]
        for start in range(0, len(pairs), PRUNE_PAIRS):
            flat = [text for pair in pairs[start : start + PRUNE_PAIRS] for text in pair]
            removed += int(self._caller.call("prune", self._now(), limit, *ceilings, *flat)[1])
        if removed < limit:
            removed += int(self._caller.call("prune", self._now(), limit, *ceilings)[1])
        return removed

    def window_sweep(self, limit: int = WINDOW_BATCH) -> int:
        """Delete dedup windows that are over; call again while it returns `limit`."""
        return int(self._caller.call("window_sweep", self._now(), limit)[1])

    def declare_index(self, keys: Sequence[str]) -> int:
        """Keep a sorted set for each value of these metadata keys, from now on.

        Jobs that are there already are added by `backfill`; until then lists that ask for the key
        step through other jobs. A declaration holds for every writer of the store, and for good.

        Returns:
            How many of them are new to the store.
        """
        named = [check_name(key, "metadata key") for key in check_list(keys, "metadata keys")]
        if not named:
            return 0
        nonce = ids.new_nonce()
        return int(self._caller.call_told("declare_index", [self._now(), nonce], named)[1])

    def backfill(self, limit: int = BACKFILL_BATCH) -> tuple[str, int] | None:
        """Do one step of the work that a new metadata index needs.

        Returns:
            The key and how many jobs were looked at; None when every index is complete.
        """
        reply = self._caller.call("backfill", self._now(), limit)
        return None if reply[0] == b"done" else (reply[1].decode(), int(reply[2]))

    def index_states(self) -> dict[str, bool]:
        """Return the declared metadata keys, and whether the index of each is complete."""
        keys = self.keys.meta()
        found = self._caller.repeat(
            lambda _: self._caller.client.execute_command("HGET", keys, "indexed")
        )
        declared = found.decode().split() if found else []
        ready = self._caller.repeat(
            lambda _: self._caller.client.execute_command(
                "HMGET", keys, "schema", *(f"ready:{key}" for key in declared)
            )
        )[1:]
        return {key: one is not None for key, one in zip(declared, ready, strict=True)}
