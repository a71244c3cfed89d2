"""The store: one method for each script, bytes in and bytes out.

A store is one Redis and one prefix. It is usable without an App, by producers, workers and admin
tools alike; it knows no definitions and never looks into a payload or an exit. Single forms of a
verb raise the typed error of a refusal; batch forms return one outcome word an item.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from mq import ids, wire
from mq.calls import Call, ScriptCaller, ServerInfo, Waiter
from mq.clock import Clock, ServerClock
from mq.connection import REDIS_FAILURES, endpoint_of, store_error
from mq.doorbell import Doorbell
from mq.durations import to_ms
from mq.errors import JobNotFoundError, JobNotRetryableError, LockLostError, MQError, StoreError
from mq.keys import Keys
from mq.records import (
    Ack,
    Attempt,
    Claim,
    ClaimRequest,
    Enqueued,
    Extended,
    JobRecord,
    Recovered,
    Request,
)
from mq.states import JobState
from mq.wire import Argument

if TYPE_CHECKING:
    import redis

PROMOTE_BATCH = 50
SWEEP_BATCH = 50
COUNT_BATCH = 36
"""Pairs of (queue, name) a counts call reads: 7 sets each, at most 256 sets a script."""
_ID_TRIES = 5

REFUSALS: dict[str, type[MQError]] = {
    "lost": LockLostError,
    "not_found": JobNotFoundError,
    "not_retryable": JobNotRetryableError,
}
"""Outcome words that are refusals, and the error the single form of a verb raises for each."""

_REFUSAL_TEXT = {
    "lost": "job {id} is no longer held under this token: its lock expired and it was taken over",
    "not_found": "no job has the id {id!r}",
    "not_retryable": "job {id} is {state}: only a failed job can be retried",
}


class Store:
    """Jobs in one Redis under one prefix.

    Args:
        target: a URL (redis://, rediss://, unix://, memory://) or a `redis.Redis` whose settings
            are copied; None for redis://localhost:6379/0.
        prefix: 1 to 64 of `A-Z a-z 0-9 . _ -`; two prefixes on one database never meet.
        clock: where the time of transitions comes from; the server's own by default.
        retry_for: how long an operation is repeated while Redis cannot be reached.
        id_generator: makes the ids of jobs enqueued without one.
        settings: username, password, db and redis-py's ssl and socket options.

    Raises:
        StoreError: the address or an option cannot work.
    """

    def __init__(
        self,
        target: str | redis.Redis | None = None,
        *,
        prefix: str = "mq",
        clock: Clock | None = None,
        retry_for: float | str = "5s",
        id_generator: Callable[[], str] = ids.new_id,
        **settings: Any,
    ) -> None:
        self.keys = Keys(prefix)
        self.clock: Clock = clock or ServerClock()
        self.endpoint = endpoint_of(target, **settings)
        self._new_id = id_generator
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

    def _now(self) -> str:
        now = self.clock.now_ms()
        return "" if now is None else str(now)

    # Producing

    def enqueue(self, request: Request) -> Enqueued:
        """Take one job in; an id that exists, in any state, is returned as a duplicate."""
        return self.enqueue_many([request])[0]

    def enqueue_many(self, requests: Iterable[Request]) -> list[Enqueued]:
        """Take jobs in as if one after the other, one round trip a chunk; not one transaction."""
        answers: list[Enqueued] = []
        for chunk in wire.chunks(requests):
            answers += self._enqueue_chunk(chunk)
        return answers

    def _enqueue_chunk(self, chunk: Sequence[Request]) -> list[Enqueued]:
        answers: dict[int, Enqueued] = {}
        open_at = list(range(len(chunk)))
        for _ in range(_ID_TRIES):
            named = [(at, chunk[at].id or self._new_id()) for at in open_at]
            call = ids.new_nonce()[:11]
            args: list[Argument] = [self._now()]
            for at, job_id in named:
                args += wire.enqueue_item(chunk[at], job_id, f"{call}.{at}")
            reply = self._caller.call("enqueue", *args)
            for nth, (at, job_id) in enumerate(named):
                word, name = reply[1 + 2 * nth], reply[2 + 2 * nth].decode()
                answers[at] = Enqueued(job_id, word == b"duplicate", name)
            # An id that the store made itself and that is taken is a collision, not a duplicate.
            open_at = [at for at, _ in named if answers[at].duplicate and chunk[at].id is None]
            if not open_at:
                return [answers[at] for at in range(len(chunk))]
        raise StoreError(
            f"id_generator made {_ID_TRIES} ids in a row that exist: it must make unique ones"
        )

    # Running

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
            raise _refused(word, ack.id)
        return word

    def retry(self, job_id: str) -> None:
        """Give a failed job a fresh budget and send it to the back of the line; its ledger stays.

        Raises:
            JobNotFoundError: no such job.
            JobNotRetryableError: it has not failed.
        """
        reply = self._caller.call("retry", self._now(), ids.new_nonce()[:11], job_id)
        word, state = reply[1].decode(), reply[2].decode()
        if word != "retried":
            raise _refused(word, job_id, state)

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

    # Reading

    def get_job(self, job_id: str) -> JobRecord | None:
        """Return the record of a job with payload and exit, or None."""
        found = self._get([job_id], with_bodies=True)[0]
        return found and found[0]

    def get_attempts(self, job_id: str) -> list[Attempt]:
        """Return the ledger of a job, oldest first; empty for an unknown id."""
        found = self._get([job_id], with_bodies=True)[0]
        return found[1] if found else []

    def get_whole(self, job_id: str) -> tuple[JobRecord, list[Attempt]] | None:
        """Return a record and its ledger of one instant, or None."""
        return self._get([job_id], with_bodies=True)[0]

    def get_states(self, job_ids: Sequence[str]) -> list[JobState | None]:
        """Return where jobs stand, aligned, without reading payloads or exits."""
        states: list[JobState | None] = []
        for start in range(0, len(job_ids), wire.ACK_BATCH):
            found = self._get(job_ids[start : start + wire.ACK_BATCH], with_bodies=False)
            states += (whole[0].state if whole else None for whole in found)
        return states

    def _get(
        self, job_ids: Sequence[str], *, with_bodies: bool
    ) -> list[tuple[JobRecord, list[Attempt]] | None]:
        reply = self._caller.call("get", self._now(), int(with_bodies), *job_ids)
        return [wire.whole(found) if found else None for found in reply[1:]]

    def watch(self, job_id: str) -> str:
        """Mark a job as awaited; `finished` when there is nothing to wait for, or `not_found`."""
        return str(self._caller.call("watch", self._now(), job_id)[0].decode())

    def counts(self, queue: str | None = None) -> dict[JobState, int]:
        """Return the number of jobs in each of the seven states, at a cost independent of it."""
        totals = dict.fromkeys(JobState, 0)
        pairs = [pair for pair in self.seen_pairs() if queue is None or pair[0] == queue]
        for start in range(0, len(pairs), COUNT_BATCH):
            flat = [text for pair in pairs[start : start + COUNT_BATCH] for text in pair]
            reply = self._caller.call("counts", self._now(), *flat)[1:]
            for state, number in zip(JobState, reply, strict=True):
                totals[state] += int(number)
        return totals

    def seen_pairs(self) -> list[tuple[str, str]]:
        """Return every (queue, name) that ever held a job, sorted."""
        fields = self._caller.repeat(
            lambda _: self._caller.client.execute_command("HKEYS", self.keys.meta())
        )
        texts = (field.decode() for field in fields)
        return sorted(
            (queue, name)
            for kind, _, rest in (text.partition(":") for text in texts)
            if kind == "seen"
            for queue, _, name in [rest.partition(":")]
        )

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


def _refused(word: str, job_id: str, state: str | None = None) -> MQError:
    text = _REFUSAL_TEXT[word].format(id=job_id, state=state)
    return REFUSALS[word](text, job_id=job_id, state=state or None)
