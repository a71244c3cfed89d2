"""Reading: records, ledgers and counts, as they stand at one instant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mq import wire
from mq.records import Attempt, JobRecord
from mq.states import JobState
from mq.store.base import StoreBase
from mq.validation import all_id_bytes, check_list, check_name, id_bytes

COUNT_BATCH = 36
"""Pairs of (queue, name) a counts call reads: 7 sets each, at most 256 sets a script."""


class Reading(StoreBase):
    """The questions that change nothing, and the mark that an answer is awaited."""

    def get_job(self, job_id: str, *, bodies: bool = True) -> JobRecord | None:
        """Return the record of a job, with payload and exit unless they are not wanted, or None."""
        found = self._get([job_id], "body" if bodies else "bare")[0]
        return found and found[0]

    def get_attempts(self, job_id: str) -> list[Attempt]:
        """Return the ledger of a job, oldest first; empty for an unknown id."""
        found = self._get([job_id], "whole")[0]
        return found[1] if found else []

    def get_whole(self, job_id: str) -> tuple[JobRecord, list[Attempt]] | None:
        """Return a record and its ledger of one instant, or None."""
        return self._get([job_id], "whole")[0]

    def get_states(self, job_ids: Sequence[str]) -> list[JobState | None]:
        """Return where jobs stand, aligned, without reading payloads or exits."""
        states: list[JobState | None] = []
        asked = check_list(job_ids, "job ids")
        for start in range(0, len(asked), wire.ACK_BATCH):
            found = self._get(asked[start : start + wire.ACK_BATCH], "bare")
            states += (whole[0].state if whole else None for whole in found)
        return states

    def _get(
        self,
        job_ids: Sequence[str],
        kind: Literal["bare", "body", "whole"],
        max_bytes: int | None = None,
        *,
        all_must_fit: bool = False,
    ) -> list[tuple[JobRecord, list[Attempt]] | None]:
        asked = all_id_bytes(job_ids)
        most = "" if max_bytes is None else max_bytes
        reply = self._caller.call("get", self._now(), kind, most, int(all_must_fit), *asked)
        return [wire.whole(found) if found else None for found in reply[1:]]

    def watch(self, job_id: str) -> str:
        """Mark a job as awaited; `finished` when there is nothing to wait for, or `not_found`."""
        return str(self._caller.call("watch", self._now(), id_bytes(job_id))[0].decode())

    def counts(self, queue: str | None = None, name: str | None = None) -> dict[JobState, int]:
        """Return the number of jobs in each of the seven states, at a cost independent of it.

        Args:
            queue: of this queue alone.
            name: of this job name alone.

        Raises:
            ValueError, TypeError: what no queue or job can be called.
        """
        totals = dict.fromkeys(JobState, 0)
        pairs = self.seen_pairs(queue, name)
        for start in range(0, len(pairs), COUNT_BATCH):
            flat = [text for pair in pairs[start : start + COUNT_BATCH] for text in pair]
            reply = self._caller.call("counts", self._now(), *flat)[1:]
            for state, number in zip(JobState, reply, strict=True):
                totals[state] += int(number)
        return totals

    def seen_pairs(
        self, queue: str | None = None, name: str | None = None
    ) -> list[tuple[str, str]]:
        """Return every (queue, name) that ever held a job, sorted, or those of one of them."""
        if queue is not None:
            check_name(queue, "queue")
        if name is not None:
            check_name(name, "job name")
        pairs = (rest.partition(":")[::2] for rest in self._meta_fields("seen"))
        return sorted(
            pair
            for pair in pairs
            if (queue is None or pair[0] == queue) and (name is None or pair[1] == name)
        )

    def paused_queues(self) -> list[str]:
        """Return the queues that are paused, sorted."""
        return sorted(self._meta_fields("paused"))

    def paused_since(self) -> dict[str, int]:
        """Return the queues that are paused, sorted, and the instant of each pause, ms."""
        queues = self.paused_queues()
        if not queues:
            return {}
        fields = [f"paused:{queue}" for queue in queues]
        instants = self._caller.repeat(
            lambda _: self._caller.client.execute_command("HMGET", self.keys.meta(), *fields)
        )
        # One that was resumed meanwhile has none.
        return {queue: int(at) for queue, at in zip(queues, instants, strict=True) if at}

    def _meta_fields(self, kind: str) -> list[str]:
        fields = self._caller.repeat(
            lambda _: self._caller.client.execute_command("HKEYS", self.keys.meta())
        )
        texts = (field.decode() for field in fields)
        return [text.partition(":")[2] for text in texts if text.startswith(kind + ":")]
