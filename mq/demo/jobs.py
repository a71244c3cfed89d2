"""A small service's jobs: some work at once, some fail and are tried again, one never succeeds.

A service of your own would write `import mq` and `mq.App`, `mq.Context`, `mq.fixed`.
"""

from __future__ import annotations

import attrs

from mq.app import App
from mq.context import Context
from mq.policies import exponential, fixed

app = App()  # the store is the one that MQ_URL names


@attrs.frozen
class Visitor:
    """Whom to greet."""

    name: str


@app.job("greet")
def greet(visitor: Visitor) -> str:
    """Return at once."""
    return f"Hello, {visitor.name}!"


@attrs.frozen
class Picture:
    """A picture, and the size that is wanted."""

    path: str
    width: int


@attrs.frozen
class Thumbnail:
    """What came of a picture."""

    path: str
    bytes: int


@app.job("make-thumbnail", queue="pictures")
def make_thumbnail(picture: Picture, ctx: Context) -> Thumbnail:
    """Take a few milliseconds, as work does."""
    ctx.sleep(0.02)
    return Thumbnail(f"{picture.path}.{picture.width}.jpg", picture.width * 97)


@attrs.frozen
class Charge:
    """A card payment that the bank declines a few times first."""

    order: str
    cents: int
    declined_first: int


@attrs.frozen
class CardDeclined(Exception):
    """A typed failure: it is stored with its fields and comes back as this class."""

    order: str
    reason: str


@app.job(
    "charge-card", queue="billing", error=CardDeclined, attempts=4, backoff=exponential("100ms")
)
def charge_card(charge: Charge, ctx: Context) -> str:
    """Fail as often as the payload says, then succeed."""
    if ctx.attempt <= charge.declined_first:
        raise CardDeclined(charge.order, f"no answer, try {ctx.attempt}")
    return f"receipt-{charge.order}"


@attrs.frozen
class Feed:
    """A feed to fetch."""

    url: str


@attrs.frozen
class FeedDown(Exception):
    """The feed's server is gone for good."""

    url: str
    status: int


@app.job("sync-feed", error=FeedDown, attempts=3, backoff=fixed("200ms"))
def sync_feed(feed: Feed) -> int:
    """Never succeed: the budget of three runs is spent, and the job is failed."""
    raise FeedDown(feed.url, 503)


@attrs.frozen
class Report:
    """Sales of a month."""

    month: str
    total: int
    orders: int


@app.job("average-order")
def average_order(report: Report) -> float:
    """Hold a bug: a month without orders. What is not declared as an error is a defect."""
    return report.total / report.orders


@attrs.frozen
class Reminder:
    """Something to say later."""

    text: str


@app.job("remind")
def remind(reminder: Reminder) -> str:
    """Run when the delay it was enqueued with is over."""
    return reminder.text


@app.job("page-on-call")
def page_on_call(reminder: Reminder) -> None:
    """Be claimed before everything else that waits in its queue."""
