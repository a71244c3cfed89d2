"""The fetcher: the one thread that claims, and that sends every ack.

It claims exactly as many jobs as there are free slots. Finished runs queue their acks, and the
next round trip carries all of them together with the next claim; batches form by themselves while
a call is in flight. Only when runs take less than a few milliseconds and the queues are full is a
moment added, so that the first of a batch to end does not travel alone. When a claim came back
short, the queues are known to be empty: the fetcher then sleeps until a push (see listener), the
next due time, or the poll interval, whichever is first.

A call that failed is repeated with the same claim, so jobs that were claimed by a call whose
reply was lost reach this worker all the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import attrs

from mq.errors import StoreError
from mq.ids import new_nonce
from mq.records import Claim, ClaimRequest
from mq.store import REFUSALS, Store
from mq.worker.options import WorkerOptions
from mq.worker.outage import Outage, Streak, blames_a_record
from mq.worker.queue_order import QueueOrder
from mq.worker.run import Run, Runs
from mq.worker.runner import Ended

log = logging.getLogger("mq.worker")

MAX_CLAIM = 50
SHORTEST_NAP_S = 0.01
SHORT_RUN_MS = 5.0
"""Below this a round trip costs more than the job; above it waiting for company would."""
LINGER_S = 0.0005


@attrs.define
class Tally:
    """What became of the runs of this worker, by the word the store answered."""

    words: dict[str, int] = attrs.field(factory=dict)

    def add(self, word: str) -> None:
        """Count one."""
        self.words[word] = self.words.get(word, 0) + 1

    def __getitem__(self, word: str) -> int:
        """Return how often the store answered `word`."""
        return self.words.get(word, 0)


class Fetcher(threading.Thread):
    """Claims jobs and lands acks.

    Args:
        store: where jobs are.
        names: job names it has handlers for.
        order: the queues of each claim.
        options: the worker's options.
        runs: the runs the worker holds.
        start_run: hands a claimed run to a slot.
        streak: outages, as the other duties see them.
    """

    landed: Callable[[Run, Ended, str], None] = staticmethod(lambda *_: None)
    """Told what the store answered to each ack."""
    displaced: Callable[[Run], None] = staticmethod(lambda _: None)
    """Told of a run whose job was claimed again, by this very worker: its lock had expired."""
    foretold: Callable[[Run], None] = staticmethod(lambda _: None)
    """Told of a run whose cancel was pushed before the claim was answered."""
    became_hungry: Callable[[], None] = staticmethod(lambda: None)
    """Called after a claim that found less than there are free slots."""

    def __init__(
        self,
        store: Store,
        names: tuple[str, ...],
        order: QueueOrder,
        options: WorkerOptions,
        runs: Runs,
        start_run: Callable[[Run], None],
        streak: Streak,
    ) -> None:
        super().__init__(name="mq-fetcher", daemon=True)
        self.tally = Tally()
        self._store = store
        self._names = names
        self._order = order
        self._options = options
        self._runs = runs
        self._start_run = start_run
        self._change = threading.Condition()
        self._ended: deque[tuple[Run, Ended]] = deque()
        self._free = options.concurrency
        self._claiming = True
        self._running = True
        self._nap_until = 0.0
        self._claims = 0
        self._typical_run_ms = SHORT_RUN_MS
        self._ran_dry = threading.Event()
        self._unanswered: ClaimRequest | None = None
        self._claim_out = False
        self._outdated = False
        self._halt = threading.Event()
        self._outage = Outage("claiming", self._halt, streak)

    # Told by other threads

    def finished(self, run: Run, ended: Ended) -> None:
        """Take the end of a run: its slot is free, its ack goes with the next round trip."""
        with self._change:
            self._ended.append((run, ended))
            self._free += 1
            self._typical_run_ms += (ended.took_ms - self._typical_run_ms) / 16
            if self._options.burst:
                self._nap_until = 0.0  # whether that was the last one is to be known at once
            self._change.notify()

    def woken(self, patience_s: float) -> bool:
        """Look for work now; True once a claim was made, False when there is no slot to fill."""
        with self._change:
            before = self._claims
            self._nap_until = 0.0
            self._change.notify()
            self._change.wait_for(
                lambda: self._claims > before or not self._claiming or self._free == 0, patience_s
            )
            return self._claims > before

    def look(self) -> None:
        """Look for work soon, whatever it was waiting for."""
        with self._change:
            self._nap_until = 0.0
            self._change.notify()

    @property
    def hungry(self) -> bool:
        """Whether it has free slots and found nothing to fill them with."""
        with self._change:
            return self._hungry()

    def _hungry(self) -> bool:
        return self._claiming and self._free > 0 and self._nap_until > 0 and not self._outage.on

    def stop_claiming(self) -> None:
        """Claim nothing more; acks go on being sent."""
        with self._change:
            self._claiming = False
            self._change.notify_all()

    def wait_until_settled(self, timeout_s: float) -> bool:
        """Wait until no claim is on its way: it may still bring jobs to a worker that stops.

        One that an outage holds up is not waited for: if it did claim, those jobs stall.
        """
        with self._change:
            return self._change.wait_for(lambda: not self._claim_out or self._outage.on, timeout_s)

    def halt(self) -> None:
        """End the thread once what it has is sent, without waiting out an outage."""
        with self._change:
            self._claiming = self._running = False
            self._halt.set()
            self._change.notify_all()

    def look_again(self) -> None:
        """Forget that a claim found nothing; the answer of one on its way does not count."""
        with self._change:
            self._ran_dry.clear()
            self._outdated = self._claim_out
            self._nap_until = 0.0
            self._change.notify()

    @property
    def is_dry(self) -> bool:
        """Whether a claim has found nothing while nothing ran; for a burst."""
        return self._ran_dry.is_set()

    # The thread

    def run(self) -> None:
        """Claim and ack until halted."""
        while True:
            with self._change:
                self._change.wait_for(self._has_work, self._nap_s())
                if self._typical_run_ms < SHORT_RUN_MS and self._nap_until == 0.0:
                    self._change.wait_for(self._has_company, LINGER_S)
                if not self._running and not self._ended:
                    return
                ended = list(self._ended)
                self._ended.clear()
                request = self._request()
                self._claim_out = request is not None
            try:
                self._exchange(ended, request)
            except StoreError as error:
                self._unanswered = request
                with self._change:
                    self._ended.extendleft(reversed(ended))
                    if not self._running:
                        return
                self._outage.failed(error)

    def _has_work(self) -> bool:
        return bool(self._ended) or not self._running or self._wants_claim()

    def _has_company(self) -> bool:
        return self._free * 2 > self._options.concurrency or not self._running

    def _wants_claim(self) -> bool:
        if self._unanswered is not None:
            return self._running
        return self._claiming and self._free > 0 and time.monotonic() >= self._nap_until

    def _nap_s(self) -> float | None:
        if not self._claiming or self._free == 0:
            return None
        return max(self._nap_until - time.monotonic(), SHORTEST_NAP_S)

    def _request(self) -> ClaimRequest | None:
        if not self._wants_claim():
            return None
        if self._unanswered is not None:
            return self._unanswered
        return ClaimRequest(
            self._order.next(),
            self._names,
            token=new_nonce(),
            lock_ms=self._options.lock_ms,
            limit=min(self._free, MAX_CLAIM),
            worker=self._options.id,
        )

    def _exchange(self, ended: list[tuple[Run, Ended]], request: ClaimRequest | None) -> None:
        sent = [(run, end) for run, end in ended if not run.lost]
        for run, _ in ended:
            if run.lost:
                self._runs.drop(run)
        if not sent and request is None:
            return
        repeated = request is not None and request is self._unanswered
        try:
            words, claim = self._send(sent, request, repeated=repeated)
        except StoreError as error:
            if not (sent and blames_a_record(error)):
                raise
            self._send_apart(sent)
            sent, words = [], []
            _, claim = self._send([], request, repeated=True)
        self._unanswered = None
        self._outage.worked()
        for (run, end), word in zip(sent, words, strict=True):
            self._landed(run, end, word)
        if claim is not None and request is not None:
            self._take(claim, request)

    def _send(
        self, sent: list[tuple[Run, Ended]], request: ClaimRequest | None, *, repeated: bool
    ) -> tuple[list[str], Claim | None]:
        acks = [(end.verb, end.ack) for _, end in sent]
        return self._store.exchange(acks, request, repeated=repeated)

    def _send_apart(self, sent: list[tuple[Run, Ended]]) -> None:
        """Send each ack by itself: one record that its script fails on must not hold up the rest.

        Its run is let go, so that its lock expires and the sweep has it. The acks of the batch that
        have landed are recognised, and so is the claim that went with them.
        """
        for run, end in sent:
            try:
                word = self._send([(run, end)], None, repeated=False)[0][0]
            except StoreError as error:
                if not blames_a_record(error):
                    raise
                log.error(  # noqa: TRY400 the trace is that of a round trip
                    "job %s: the ack of run #%d cannot be recorded, its lock will expire: %s",
                    run.job_id, run.attempt, error,
                )  # fmt: skip
                run.lost = True
                self._runs.drop(run)
            else:
                self._landed(run, end, word)

    def _landed(self, run: Run, end: Ended, word: str) -> None:
        self.tally.add(word)
        self._runs.drop(run)
        if word in REFUSALS:
            log.warning(
                "job %s: the ack of run #%d was refused (%s): it is no longer this run's to end",
                run.job_id, run.attempt, word,
            )  # fmt: skip
        self.landed(run, end, word)

    def _take(self, claim: Claim, request: ClaimRequest) -> None:
        short = len(claim.jobs) < request.limit
        nap_s = self._options.poll_ms / 1000
        if claim.next_run_at is not None:
            nap_s = min(nap_s, max((claim.next_run_at - claim.now) / 1000, SHORTEST_NAP_S))
        for record in claim.jobs:
            before = self._runs.add(Run(record, request.token))
            if before is not None:
                self.displaced(before)
        due = claim.next_run_at is not None and claim.next_run_at <= claim.now
        dry = not claim.jobs and not due and len(self._runs) == 0
        with self._change:
            self._free -= len(claim.jobs)
            outdated, self._outdated = self._outdated, False
            self._nap_until = time.monotonic() + nap_s if short and not outdated else 0.0
            self._claims += 1
            self._claim_out = False
            if dry and not outdated:
                self._ran_dry.set()
            self._change.notify_all()
        for record in claim.jobs:
            run = self._runs.get(record.id)
            if run is not None:
                self._start_run(run)
                if self._runs.is_cancelled_early(run):
                    self.foretold(run)
        if short:
            self.became_hungry()
