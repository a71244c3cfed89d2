"""Fills a store with one job in every situation that docs/redis-cli.md looks at.

Time is a FakeClock's, so that every instant on that page is the one you will see:

    python examples/looking_inside.py redis://localhost:6379/0
"""

import sys
from datetime import UTC, datetime, timedelta

import attrs

import mq
from mq import codec, manifests
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


class Shop:
    """A store, its two kinds of jobs, and what producers and workers do to them."""

    def __init__(self, url: str, prefix: str) -> None:
        self.clock = FakeClock(int(TEN.timestamp() * 1000))
        app = mq.App(url, prefix=prefix, clock=self.clock, indexed_metadata=["customer"])
        self.store = app.store
        self.send_email = app.define("send-email", payload=Email, queue="mail")
        self.charge = app.define(
            "charge",
            payload=Invoice,
            result=str,
            error=Declined,
            queue="billing",
            attempts=3,
            backoff=mq.exponential("1m"),
        )
        self.fetch_rates = app.define("fetch-rates", payload=str, queue="rates")
        self.remind = app.define(
            "remind", payload=Invoice, result=str, error=Declined, queue="reminders"
        )
        self.close_month = app.define("close-month", payload=str, queue="months")
        self.month = app.flow("month", parent=self.close_month, children=[self.remind])

    def claim(self, job: mq.Job, worker: str) -> JobRecord:
        token = f"token-{self.clock.now_ms()}"
        claim = self.store.claim([job.queue], [job.name], token, lock_ms=30_000, worker=worker)
        return claim.jobs[0]

    def succeed(self, record: JobRecord, value: object) -> None:
        exit_ = self.charge.exit_codec.encode_success(value)
        self.store.ack_completed(record.id, record.token, exit_)

    def decline(self, record: JobRecord, reason: str, *, last: bool = False) -> None:
        error = Declined(reason)
        exit_, _ = self.charge.exit_codec.encode_failure(error)
        summary = codec.error_summary(error)
        if last:
            self.store.ack_failed(record.id, record.token, exit_, summary=summary)
        else:
            self.store.ack_retried(record.id, record.token, 60_000, exit_, summary=summary)


def fill(url: str, prefix: str = "mq") -> FakeClock:
    """Do what producers, workers and people would; return the clock, at 10:03:00."""
    shop = Shop(url, prefix)
    run_jobs(shop)
    steer_jobs(shop)
    tick_and_fan_out(shop)
    return shop.clock


def run_jobs(shop: Shop) -> None:
    """From 10:00:00 to 10:02:50: jobs that ended, were lost, wait or run."""
    clock, store, charge, send_email = shop.clock, shop.store, shop.charge, shop.send_email

    # 10:00:00  Rates are fetched every two minutes, and at half past two in Paris for the books.
    shop.fetch_rates.schedule("euro", every="2m", payload="EUR")
    shop.fetch_rates.schedule("books", cron="30 2 * * *", tz="Europe/Paris", payload="EUR")
    shop.fetch_rates.schedule("dollar", every="2m", payload="USD")

    # A-17 is charged in a quarter of a second.
    charge.enqueue(Invoice("A-17", 1250), job_id="A-17", metadata={"customer": "ada"})
    record = shop.claim(charge, "web-1:4711:9f3c")
    clock.advance(250)
    shop.succeed(record, "A-17: 1250 cents")

    # 10:00:00.250  A-18 is declined, and a minute later again, by an error that will not pass.
    metadata = {"customer": "bob", "plan": "free"}
    charge.enqueue(Invoice("A-18", 99_900), job_id="A-18", metadata=metadata)
    record = shop.claim(charge, "web-1:4711:9f3c")
    clock.advance(750)
    shop.decline(record, "the bank is closed")
    clock.advance(60_000)
    record = shop.claim(charge, "web-2:4802:1b7e")
    clock.advance(500)
    shop.decline(record, "the card expired in November, ask for another one", last=True)

    # 10:01:01.500  The worker of order-dan is lost, and a sweep that allows no stall fails the job.
    send_email.enqueue(Email("dan@example.com", "Your order"), job_id="order-dan")
    shop.claim(send_email, "web-9:5120:77aa")
    clock.advance(30_500)
    store.stall_sweep(max_stalled=0)

    # 10:01:32  The worker of order-eve is lost too, and nobody has swept since.
    send_email.enqueue(Email("eve@example.com", "Your order"), job_id="order-eve")
    shop.claim(send_email, "web-9:5120:77aa")

    # 10:01:59  A-19 is declined and has its second run in a minute; A-20 is for tomorrow.
    clock.advance(26_500)
    charge.enqueue(Invoice("A-19", 500), job_id="A-19", dedupe="A-19")
    record = shop.claim(charge, "web-1:4711:9f3c")
    clock.advance(500)
    shop.decline(record, "the bank is closed")
    tomorrow = TEN + timedelta(days=1)
    charge.enqueue(Invoice("A-20", 500), job_id="A-20", at=tomorrow, metadata={"customer": "ada"})

    # 10:02:50  A worker takes A-21; three mails are waiting, one of them urgent.
    clock.advance(51_000)
    charge.enqueue(Invoice("A-21", 700), job_id="A-21")
    shop.claim(charge, "web-2:4802:1b7e")
    send_email.enqueue(Email("ada@example.com", "Welcome"), job_id="welcome-ada")
    send_email.enqueue(Email("bob@example.com", "Welcome"), job_id="welcome-bob")
    send_email.enqueue(Email("cy@example.com", "Your new password"), job_id="reset-cy", priority=10)


def steer_jobs(shop: Shop) -> None:
    """From 10:02:52 to 10:02:58: a pause, dedup keys, cancels and a new metadata index."""
    clock, store, charge, send_email = shop.clock, shop.store, shop.charge, shop.send_email

    # 10:02:52  Somebody pauses the mails. Ada gets one digest an hour, however many are asked for,
    # and of the reminders to Bob within ten minutes only the first goes out.
    clock.advance(2_000)
    store.pause("mail")
    send_email.enqueue(
        Email("ada@example.com", "Your digest"),
        job_id="digest-ada",
        delay="5m",
        dedupe=mq.Dedupe("digest/ada", ttl="1h", replace=True),
    )
    send_email.enqueue(
        Email("bob@example.com", "Do not forget"),
        job_id="remind-bob",
        dedupe=mq.Dedupe("remind/bob", ttl="10m"),
    )

    # 10:02:54  A-22 is cancelled before it runs, A-23 in its run.
    clock.advance(2_000)
    charge.enqueue(Invoice("A-22", 300), job_id="A-22", delay="1h")
    store.cancel("A-22")
    charge.enqueue(Invoice("A-23", 300), job_id="A-23")
    record = shop.claim(charge, "web-1:4711:9f3c")
    clock.advance(1_000)
    store.cancel("A-23")
    clock.advance(20)
    store.ack_cancelled(record.id, record.token)

    # 10:02:56  A cancel of A-21 is asked for, and its worker has not heard of it yet.
    clock.advance(980)
    store.cancel("A-21")

    # 10:02:58  A new release declares another metadata key; a worker begins to index what is there.
    clock.advance(2_000)
    store.declare_index(["plan"])
    store.backfill(limit=2)


def tick_and_fan_out(shop: Shop) -> None:
    """From 10:02:58 to 10:03:00: an occurrence becomes a job, and a parent has three children."""
    store, remind = shop.store, shop.remind

    # 10:02:58  A worker makes the job of 10:02:00, and somebody pauses the schedule for dollars.
    store.pause_schedule("fetch-rates", "dollar")
    (due,) = store.due_schedules().schedules
    next_run_at = due.next_after(shop.clock.now_ms())
    request = due.occurrence(due.next_run_at)
    store.tick(due.name, due.key, due.next_run_at, next_run_at, request)

    # A month is closed: three reminders are enqueued.
    shop.close_month.enqueue("2025-12", job_id="month-12")
    parent = shop.claim(shop.close_month, "web-1:4711:9f3c")
    children = [remind.child(number, Invoice(number, 500)) for number in ("A-18", "A-19", "A-20")]
    rows = manifests.manifest_of(shop.month, parent, children)
    store.write_manifest(parent.id, parent.token, rows, "continue")
    store.ack_fanned_out(parent.id, parent.token)
    for row in store.next_children(parent.id):
        store.enqueue(manifests.decode_row(row.key, row.row).request)
    store.next_children(parent.id, started=[child.key for child in children])

    # 10:02:59  One has been sent, and its report was carried to the parent.
    shop.clock.advance(1_000)
    shop.succeed(shop.claim(remind, "web-1:4711:9f3c"), "sent")
    (entry,) = store.peek_outbox()
    _, report = manifests.report_of(entry.parent, entry.outcome, entry.exit)
    store.record_child_results([report])
    store.delete_outbox([entry.id])

    # 10:03:00  Another one fails, and its report is on the way. This is when we look.
    shop.clock.advance(1_000)
    shop.decline(shop.claim(remind, "web-2:4802:1b7e"), "no such mailbox", last=True)


if __name__ == "__main__":
    fill(*sys.argv[1:])
    print("filled; it is 10:03:00 on 5 January 2026 for this store")
