"""Running: what a worker asks of a store, from the claim of a job to its ack."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from mq import wire
from mq.calls import Call, Waiter
from mq.records import Ack, Claim, ClaimRequest, Extended, Recovered
from mq.store.base import StoreBase
from mq.store.refusals import REFUSALS, refused
from mq.wire import Argument

PROMOTE_BATCH = 50
SWEEP_BATCH = 50


class Running(StoreBase):
    """The verbs of a worker."""

    def claim(
        self,
        queues: Sequence[str],
        names: Sequence[str],
        token: str,
        lock_ms: int,
        limit: int = 1,
        worker: str | None = None,
    ) -> Claim:
        """Take runnable jobs of these queues and names, best first, under `token`."""
        request = ClaimRequest(queues, names, token, lock_ms, limit, worker or "")
        claim = self.exchange((), request)[1]
        assert claim is not None
        return claim

    def exchange(
        self,
        acks: Sequence[tuple[str, Ack]],
        claim: ClaimRequest | None,
        *,
        repeated: bool = False,
    ) -> tuple[list[str], Claim | None]:
        """Send acks and a claim as one round trip.

        Args:
            acks: pairs of verb (ack_completed, ack_retried, ack_failed, ack_cancelled, release)
                and ack.
            claim: what to claim after them; None to claim nothing.
            repeated: whether this claim was sent before and its answer never came.

        Returns:
            One outcome word an ack, aligned (`lost` and `not_found` are the refusals), and the
            claim.
        """
        order, batches = wire.ack_batches(acks)

        def calls(again: bool) -> list[Call]:
            now = self._now()
            made: list[Call] = [(verb, (now, *args)) for verb, args in batches]
            if claim is not None:
                made.append(("claim", self._claim_args(claim, repeated or again, now)))
            return made

        replies = self._caller.call_all(calls) if batches or claim else []
        words = [""] * len(acks)
        for (_, _), positions, reply in zip(batches, order, replies, strict=False):
            for at, word in zip(positions, reply[1:], strict=True):
                words[at] = word.decode()
        return words, wire.claim_of(replies[-1], claim) if claim else None

    def _claim_args(self, claim: ClaimRequest, repeated: bool, now: str) -> list[Argument]:
        wire.check_claim(claim.limit, claim.lock_ms)
        caller = claim.worker or f"{self._anonymous}:{os.getpid()}:{threading.get_ident()}"
        return [
            now, claim.nonce, int(repeated), caller, wire.held_as(claim.worker, "worker id"),
            wire.held_as(claim.token, "token"), claim.lock_ms, claim.limit,
            PROMOTE_BATCH, len(claim.queues), *claim.queues, *claim.names,
        ]  # fmt: skip

    def extend(self, held: Sequence[tuple[str, str]], lock_ms: int) -> Extended:
        """Extend the locks of (id, token) pairs to `lock_ms` from now, even expired ones."""
        lost: list[str] = []
        cancelled: list[str] = []
        for start in range(0, len(held), wire.ACK_BATCH):
            batch = held[start : start + wire.ACK_BATCH]
            flat = [text for pair in batch for text in pair]
            words = self._caller.call("extend", self._now(), lock_ms, *flat)[1:]
            for (job_id, _), word in zip(batch, words, strict=True):
                if word == b"lost":
                    lost.append(job_id)
                elif word == b"cancel_requested":
                    cancelled.append(job_id)
        return Extended(tuple(lost), tuple(cancelled))

    def ack_completed(
        self,
        job_id: str,
        token: str,
        exit: bytes | None = None,  # noqa: A002 the contract's word for how a run ended
        *,
        worker: str = "",
    ) -> str:
        """End a run with a result; returns `completed`, or what landed before under this token."""
        return self._ack("ack_completed", Ack(job_id, token, exit, worker))

    def ack_retried(
        self,
        job_id: str,
        token: str,
        delay_ms: int,
        exit: bytes | None = None,  # noqa: A002
        *,
        worker: str = "",
        summary: str = "",
    ) -> str:
        """End a failed run with budget left; answers `cancelled` when a cancel was pending."""
        return self._ack("ack_retried", Ack(job_id, token, exit, worker, summary, delay_ms))

    def ack_failed(
        self,
        job_id: str,
        token: str,
        exit: bytes | None = None,  # noqa: A002
        *,
        worker: str = "",
        summary: str = "",
    ) -> str:
        """End the last failed run, and the job with it."""
        return self._ack("ack_failed", Ack(job_id, token, exit, worker, summary))

    def ack_cancelled(self, job_id: str, token: str, *, worker: str = "") -> str:
        """End a run that was interrupted for a cancel."""
        return self._ack("ack_cancelled", Ack(job_id, token, None, worker))

    def release(self, job_id: str, token: str) -> str:
        """Give a job back unfinished: no attempt spent; `cancelled` when a cancel was pending."""
        return self._ack("release", Ack(job_id, token))

    def _ack(self, verb: str, ack: Ack) -> str:
        word = self.exchange([(verb, ack)], None)[0][0]
        if word in REFUSALS:
            raise refused(word, ack.id)
        return word

    def stall_sweep(self, max_stalled: int, limit: int = SWEEP_BATCH) -> list[Recovered]:
        """Deal with jobs whose lock expired; call again while it returns `limit` of them."""
        reply = self._caller.call("stall_sweep", self._now(), max_stalled, limit)[1:]
        found = []
        for at in range(0, len(reply), 6):
            job_id, word, queue, name, worker, since = (
                value.decode() for value in reply[at : at + 6]
            )
            found.append(
                Recovered(job_id, word, queue, name, worker or None, int(since) if since else None)
            )
        return found

    def progress(self, job_id: str, token: str, value: bytes) -> str:
        """Store what a running handler reports; `lost` or `not_found` when it holds no job."""
        return str(self._caller.call("progress", self._now(), job_id, token, value)[0].decode())

    # Waking

    def wait(self, queues: Sequence[str], names: Sequence[str], timeout_ms: int) -> bool:
        """Block until a job of these may be runnable, or `timeout_ms` is over; True when woken."""
        keys = [self.keys.wake(queue, name) for queue in queues for name in names]
        waiter: Waiter | None = getattr(self._waiters, "waiter", None)
        if waiter is None or waiter.longest_block_ms < timeout_ms:
            waiter = self._waiters.waiter = self.waiter(max(timeout_ms, 5_000))
        return waiter.wait(keys, timeout_ms) is not None

    def waiter(self, longest_block_ms: int) -> Waiter:
        """Return a connection of its own to block on, for one thread."""
        return Waiter(self.endpoint, longest_block_ms)

    def rearm(self, key: str) -> None:
        """Put a wake marker back that was taken by a worker with no free slot."""
        self._caller.repeat(lambda _: self._caller.client.execute_command("ZADD", key, 0, "1"))

    def poke(self, worker: str) -> None:
        """Wake the listener of a worker without telling it to cancel anything."""
        key = self.keys.control(worker)

        def send(_: bool) -> None:
            pipe = self._caller.client.pipeline(transaction=False)
            pipe.execute_command("ZADD", key, 0, "")
            pipe.execute_command("PEXPIRE", key, 60_000)
            pipe.execute()

        self._caller.repeat(send)
