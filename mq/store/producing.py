"""Producing: how jobs come into a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mq import ids, wire
from mq.errors import StoreError
from mq.records import Enqueued, Request
from mq.store.base import StoreBase
from mq.wire import Argument

_ID_TRIES = 5


class Producing(StoreBase):
    """The verbs of a producer."""

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
            items: list[Argument] = []
            for at, job_id in named:
                items += wire.enqueue_item(chunk[at], job_id, f"{call}.{at}")
            reply = self._caller.call_told("enqueue", [self._now()], items)
            open_at = []
            for (at, job_id), (word, name, keyed_id) in zip(
                named, zip(*[iter(reply[1:])] * 3, strict=True), strict=True
            ):
                found = keyed_id.decode() or job_id
                answers[at] = Enqueued(
                    found, word != b"enqueued", name.decode(), word == b"replaced"
                )
                # An id that the store made itself and that is taken is a collision, no duplicate.
                if word == b"duplicate" and not keyed_id and chunk[at].id is None:
                    open_at.append(at)
            if not open_at:
                return [answers[at] for at in range(len(chunk))]
        raise StoreError(
            f"id_generator made {_ID_TRIES} ids in a row that exist: it must make unique ones"
        )
