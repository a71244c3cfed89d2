import attrs

import mq

app = mq.App()  # at MQ_URL, else at redis://localhost:6379/0


@attrs.frozen
class Invoice:
    number: str
    cents: int


@attrs.frozen
class Declined(Exception):
    reason: str


@app.job("charge", error=Declined, attempts=3, backoff=mq.fixed("1s"))
def charge(invoice: Invoice, ctx: mq.Context) -> str:
    if ctx.attempt == 1:
        raise Declined("the bank is closed")
    return f"{invoice.number}: {invoice.cents} cents"


if __name__ == "__main__":
    job_id = charge.enqueue(Invoice("A-17", 1250))
    print(charge.await_result(job_id, timeout="10s"))
    for run in charge.attempts(job_id):
        print(run.attempt, run.outcome.value, run.exit)
