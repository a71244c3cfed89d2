"""Steering: what a person or another service asks of jobs and queues that are already there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mq import ids
from mq.policies import check_key
from mq.states import JobState
from mq.store.base import StoreBase
from mq.store.refusals import REFUSALS, refused
from mq.validation import all_id_bytes, check_name

STEER_BATCH = 25
"""Jobs one script call cancels, retries, promotes or removes."""

Verb = Literal["cancel_request", "retry", "promote", "remove"]


class Steering(StoreBase):
    """The verbs of whoever looks after the jobs."""

    def cancel(self, job_id: str) -> str:
        """Cancel a job, wherever it stands.

        A job that is not running is cancelled at once. A running one is flagged: its worker hears
        of it by a push, by its heartbeat at the latest, and interrupts the handler. A result that
        the handler returns all the same stands.

        Returns:
            `cancelled`, or `cancel_requested` for a running job; asked for twice, the same again.

        Raises:
            JobNotFoundError: no such job.
            JobNotCancellableError: it has finished.
        """
        return self._steer_one("cancel_request", job_id)

    def cancel_by_key(self, name: str, key: str) -> bool:
        """Cancel the pending job that a dedup key of a job name stands for; False when none is."""
        name, key = check_name(name, "job name"), check_key(key)
        reply = self._caller.call_told("cancel_by_key", [self._now(), ids.new_nonce()], [name, key])
        return bool(reply[0] != b"none")

    def retry(self, job_id: str) -> None:
        """Give a failed job a fresh budget and send it to the back of the line; its ledger stays.

        Raises:
            JobNotFoundError: no such job.
            JobNotRetryableError: it has not failed.
        """
        self._steer_one("retry", job_id)

    def promote(self, job_id: str) -> None:
        """Make a delayed job runnable now, at its place in line.

        Raises:
            JobNotFoundError: no such job.
            JobNotPromotableError: it is not delayed.
        """
        self._steer_one("promote", job_id)

    def remove(self, job_id: str) -> bool:
        """Delete a job with its ledger, and free its dedup key unless that has a window.

        Returns:
            Whether it was there and is gone; False for one that is active or waiting for children
            (cancel it first), and for an unknown id.
        """
        return self.steer("remove", [job_id])[0][0] == "removed"

    def steer(
        self, verb: Verb, job_ids: Sequence[str], states: Sequence[JobState] = ()
    ) -> list[tuple[str, str]]:
        """Do one of these verbs to many jobs, in calls of at most STEER_BATCH.

        Args:
            verb: the script.
            job_ids: the jobs.
            states: leave a job alone that is in another state than these, as `changed`; none for
                all.

        Returns:
            A word for each id, aligned, and the state it was found in where the script tells.
            Refusals are words like any other: nothing is raised for them.
        """
        answers: list[tuple[str, str]] = []
        meant = " ".join(states)
        asked = all_id_bytes(job_ids)
        for start in range(0, len(asked), STEER_BATCH):
            batch = asked[start : start + STEER_BATCH]
            if verb == "remove":
                words = self._caller.call_told(
                    verb, [self._now(), ids.new_nonce()], [meant, *batch]
                )[1:]
                answers += [(word.decode(), "") for word in words]
            else:
                flat = self._caller.call(verb, self._now(), ids.new_nonce()[:11], meant, *batch)[1:]
                texts = [text.decode() for text in flat]
                answers += zip(texts[::2], texts[1::2], strict=True)
        return answers

    def _steer_one(self, verb: Verb, job_id: str) -> str:
        word, state = self.steer(verb, [job_id])[0]
        if word in REFUSALS:
            raise refused(word, job_id, state)
        return word

    def pause(self, queue: str) -> bool:
        """Hold a queue for every worker: jobs come in and fall due, and none of them starts.

        Runs that have begun go on. It lasts until `resume`, through restarts of every process.

        Returns:
            Whether it was not paused before.
        """
        return self._turn("pause", queue) == b"paused"

    def resume(self, queue: str) -> bool:
        """Let workers take from a queue again, idle ones at once; False when it was not paused."""
        return self._turn("resume", queue) == b"resumed"

    def _turn(self, verb: Literal["pause", "resume"], queue: str) -> bytes:
        args = [check_name(queue, "queue")]
        reply = self._caller.call_told(verb, [self._now(), ids.new_nonce()], args)
        return bytes(reply[0])
