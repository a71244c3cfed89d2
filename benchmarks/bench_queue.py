"""Throughput of no-op jobs, library against library, on one Redis in one run.

    python benchmarks/bench_queue.py --jobs 10000 --rounds 3 mq dramatiq huey

For each library and round: enqueue one job a call (a tenth of the jobs), enqueue all of them the
fastest way the library has, then start one worker process and time the drain between the job a
tenth of the way in and the last one, so that start-up does not count. Rounds alternate the
libraries; what is printed is the median and the ratio to the first library named. Loads are
bounded by --jobs and --limit seconds a drain.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import redis

HERE = Path(__file__).resolve().parent


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that `action` takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def one_round(name: str, jobs: int, limit_s: float, client: redis.Redis) -> dict[str, float]:
    """Enqueue and drain once with one library; rates in jobs a second."""
    client.flushall()
    peer = importlib.import_module(f"peers.with_{name}")
    singles = jobs // 10
    single_s = timed(lambda: [peer.enqueue_one(-1) for _ in range(singles)])
    bulk_s = timed(lambda: peer.enqueue_all(range(jobs)))
    worker = subprocess.Popen(
        peer.WORKER, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        give_up_at = time.monotonic() + limit_s
        while not client.exists("bench:last") and time.monotonic() < give_up_at:
            time.sleep(0.05)
        last, first = client.get("bench:last"), client.get("bench:first")
    finally:
        worker.terminate()
        try:
            worker.wait(15)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    counted = jobs - 1 - int(os.environ["BENCH_FIRST"])
    drained = float("nan") if not last or not first else counted / (float(last) - float(first))
    return {"enqueue": singles / single_s, "enqueue_many": jobs / bulk_s, "drain": drained}


def main() -> None:
    """Run the rounds and print a table."""
    parser = argparse.ArgumentParser(description="No-op throughput, library against library.")
    parser.add_argument("libraries", nargs="*", default=["mq"])
    parser.add_argument("--url", default="redis://127.0.0.1:6379/15")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    options = parser.parse_args()
    os.environ["BENCH_URL"] = options.url
    os.environ["BENCH_FIRST"] = str(options.jobs // 10)
    os.environ["BENCH_LAST"] = str(options.jobs - 1)
    sys.path.insert(0, str(HERE))
    client = redis.Redis.from_url(options.url)
    if client.dbsize():
        parser.error(
            f"{options.url} is not empty: the benchmark flushes its server, give a scratch one"
        )
    found: dict[str, list[dict[str, float]]] = {name: [] for name in options.libraries}
    for _ in range(options.rounds):
        for name in options.libraries:
            found[name].append(one_round(name, options.jobs, options.limit, client))
    client.flushall()
    base: dict[str, float] = {}
    print(
        f"{'library':<10} "
        + " ".join(f"{kind + '/s':>15} {'ratio':>6}" for kind in found[options.libraries[0]][0])
    )
    for name, rounds in found.items():
        medians = {kind: statistics.median(one[kind] for one in rounds) for kind in rounds[0]}
        base = base or medians
        print(
            f"{name:<10} "
            + " ".join(
                f"{value:>15,.0f} {value / base[kind]:>6.2f}" for kind, value in medians.items()
            )
        )


if __name__ == "__main__":
    main()
