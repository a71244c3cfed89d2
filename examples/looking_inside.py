"""Fills a store with one job in every situation that docs/redis-cli.md looks at.

Time is a FakeClock's, so that every instant on that page is the one you will see:

    python examples/looking_inside.py redis://localhost:6379/0
"""

import sys
from datetime import UTC, datetime, timedelta

import attrs

import mq
from mq import codec
from mq.clock import FakeClock
from mq.records import JobRecord

TEN = datetime(2026, 1, 5, 10, tzinfo=UTC)


@attrs.frozen
class Email:
    to: str
    subject: str


@attrs.frozen
class Invoice:
    number: str
    cents: int


@attrs.frozen
class Declined(Exception):
    reason: str


def fill(url: str, prefix: str = "mq") -> FakeClock:
    """Enqueue, claim and ack as producers and workers would; return the clock, at 10:03:00."""
    clock = FakeClock(int(TEN.timestamp() * 1000))
    app = mq.App(url, prefix=prefix, clock=clock)
    send_email = app.define("send-email", payload=Email, queue="mail")
    charge = app.define(
        "charge",
        payload=Invoice,
        result=str,
        error=Declined,
        queue="billing",
        attempts=3,
        backoff=mq.exponential("1m"),
    )
    store = app.store

    def claim(job: mq.Job, worker: str) -> JobRecord:
        token = f"token-{clock.now_ms()}"
        return store.claim([job.queue], [job.name], token, lock_ms=30_000, worker=worker).jobs[0]

    def succeed(record: JobRecord, value: object) -> None:
        exit_ = charge.exit_codec.encode_success(value)
        store.ack_completed(record.id, record.token, exit_)

    def decline(record: JobRecord, reason: str, *, last: bool = False) -> None:
        error = Declined(reason)
        exit_, _ = charge.exit_codec.encode_failure(error)
        summary = codec.error_summary(error)
        if last:
            store.ack_failed(record.id, record.token, exit_, summary=summary)
        else:
            store.ack_retried(record.id, record.token, 60_000, exit_, summary=summary)

    # 10:00:00  A-17 is charged in a quarter of a second.
    charge.enqueue(Invoice("A-17", 1250), job_id="A-17", metadata={"customer": "ada"})
    record = claim(charge, "web-1:4711:9f3c")
    clock.advance(250)
    succeed(record, "A-17: 1250 cents")

    # 10:00:00.250  A-18 is declined, and a minute later again, by an error that will not pass.
    charge.enqueue(Invoice("A-18", 99_900), job_id="A-18")
    record = claim(charge, "web-1:4711:9f3c")
    clock.advance(750)
    decline(record, "the bank is closed")
    clock.advance(60_000)
    record = claim(charge, "web-2:4802:1b7e")
    clock.advance(500)
    decline(record, "the card expired in November, ask for another one", last=True)

    # 10:01:01.500  The worker of order-dan is lost, and a sweep that allows no stall fails the job.
    send_email.enqueue(Email("dan@example.com", "Your order"), job_id="order-dan")
    claim(send_email, "web-9:5120:77aa")
    clock.advance(30_500)
    store.stall_sweep(max_stalled=0)

    # 10:01:32  The worker of order-eve is lost too, and nobody has swept since.
    send_email.enqueue(Email("eve@example.com", "Your order"), job_id="order-eve")
    claim(send_email, "web-9:5120:77aa")

    # 10:01:59  A-19 is declined and has its second run in a minute; A-20 is for tomorrow.
    clock.advance(26_500)
    charge.enqueue(Invoice("A-19", 500), job_id="A-19")
    record = claim(charge, "web-1:4711:9f3c")
    clock.advance(500)
    decline(record, "the bank is closed")
    charge.enqueue(Invoice("A-20", 500), job_id="A-20", at=TEN + timedelta(days=1))

    # 10:02:50  A worker takes A-21; three mails are waiting, one of them urgent.
    clock.advance(51_000)
    charge.enqueue(Invoice("A-21", 700), job_id="A-21")
    claim(charge, "web-2:4802:1b7e")
    send_email.enqueue(Email("ada@example.com", "Welcome"), job_id="welcome-ada")
    send_email.enqueue(Email("bob@example.com", "Welcome"), job_id="welcome-bob")
    send_email.enqueue(Email("cy@example.com", "Your new password"), job_id="reset-cy", priority=10)

    # 10:03:00  This is when we look.
    clock.advance(10_000)
    return clock


if __name__ == "__main__":
    fill(*sys.argv[1:])
    print("filled; it is 10:03:00 on 5 January 2026 for this store")
