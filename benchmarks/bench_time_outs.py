"""A thousand time-outs at full concurrency, and what each executor costs a job.

    BENCH_URL=redis://127.0.0.1:6379/15 python benchmarks/bench_time_outs.py

A quarter each of the runs is cooperative, asleep, stuck in one call into C for three seconds, and
swallows every exception for three seconds. Printed: how many runs are recorded as timed out
exactly once, how many slots there are before and after, and how many interrupts reached a job
that was not meant. Then the time of a no-op job in a thread and in a child process, beside a
plain call of the same function.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
import time

import mq

app = mq.App(os.environ.get("BENCH_URL", "memory://"), prefix="bench")
LIMITS = {"timeout": "200ms", "interrupt_grace": "200ms"}
STUCK_S = 3.0


@app.job("cooperative", **LIMITS)
def cooperative(payload: int, ctx: mq.Context) -> None:
    while True:
        ctx.check()
        ctx.sleep(0.01)


@app.job("asleep", **LIMITS)
def asleep(payload: int) -> None:
    for _ in range(300):
        time.sleep(0.01)


@app.job("stuck", **LIMITS)
def stuck(payload: int) -> None:
    time.sleep(STUCK_S)


@app.job("swallowing", **LIMITS)
def swallowing(payload: int) -> None:
    until = time.monotonic() + STUCK_S
    while time.monotonic() < until:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


@app.job("quick")
def quick(payload: int) -> int:
    return sum(range(200)) + payload


@app.job("in-thread")
def in_thread(payload: int) -> None: ...


@app.job("in-child", executor="process")
def in_child(payload: int) -> None: ...


def slots() -> int:
    """Count the threads that run jobs."""
    return sum(one.name.startswith("mq-run-") for one in threading.enumerate())


def drain(expected: int, limit_s: float) -> float:
    """Wait until so many jobs have finished; the seconds it took."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        if sum(n for state, n in app.store.counts().items() if state.finished) >= expected:
            break
        time.sleep(0.02)
    return time.monotonic() - began


def storm(total: int, concurrency: int) -> None:
    """Time out `total` runs of all kinds, mixed, with quick jobs between them."""
    jobs = [cooperative, asleep, stuck, swallowing]
    ids = [(jobs[n % 4], jobs[n % 4].enqueue(n)) for n in range(total)]
    checks = quick.enqueue_many(range(total))
    worker = mq.Worker(app, concurrency=concurrency, max_strays=total, lock_duration="60s")
    with worker:
        before = slots()
        took_s = drain(2 * total, 600)
        give_up_at = time.monotonic() + 4 * STUCK_S
        while worker.interrupter.strays and time.monotonic() < give_up_at:
            time.sleep(0.05)
        time.sleep(0.1)
        after = slots()
    once = 0
    for job, job_id in ids:
        ledger = job.attempts(job_id)
        exits = [entry.exit for entry in ledger]
        once += len(ledger) == 1 and getattr(exits[0], "kind", "") == "timeout"
    right = sum(
        getattr(quick.poll(job_id).exit, "value", None) == sum(range(200)) + n
        for n, job_id in enumerate(checks)
    )
    print(f"time-outs recorded exactly once   {once} of {total}, in {took_s:.0f} s")
    strays = worker.interrupter.strays
    print(f"slots before / after              {before} / {after}, strays left {strays}")
    print(f"jobs between them that were right {right} of {total}")


def cost(total: int) -> None:
    """Time no-op jobs in both executors, and plain calls."""
    began = time.perf_counter()
    for n in range(total):
        in_thread(n)
    plain_us = (time.perf_counter() - began) / total * 1e6
    print(f"plain call                        {plain_us:8.1f} us")
    for job in (in_thread, in_child):
        app.store.destroy()
        with mq.Worker(app, concurrency=2):
            for warm in range(20):
                job.execute(warm)
            job.enqueue_many(range(total))
            took_s = drain(total + 20, 120)
        print(f"{job.name:<10} job                    {took_s / total * 1e6:8.1f} us")


def main() -> None:
    """Run both and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--total", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=3000)
    options = parser.parse_args()
    app.store.destroy()
    storm(options.total, options.concurrency)
    app.store.destroy()
    cost(options.jobs)
    app.store.destroy()


if __name__ == "__main__":
    main()
