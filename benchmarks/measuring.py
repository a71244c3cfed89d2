"""What several benchmarks need: a limit of time, the server's slow log, tables, a producer."""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis

from mq import scripts
from mq.records import Request
from mq.store import Store

# Times and calls


class TimeUpError(Exception):
    """The limit given for the whole run is over."""


class Limit:
    """When the run has to end."""

    def __init__(self, limit_s: float) -> None:
        self._until = time.monotonic() + limit_s

    def check(self, *_: object) -> None:
        """Raise when it is over."""
        if time.monotonic() > self._until:
            raise TimeUpError


CALLS: collections.Counter[str] = collections.Counter()
"""How often this process called each script, by its SHA-1."""


def counting_client(url: str) -> redis.Redis:
    """Return a client whose connections count the scripts that they call."""
    pool = redis.ConnectionPool.from_url(url)

    class Counting(pool.connection_class):  # type: ignore[name-defined,misc]
        def send_command(self, *args: Any, **options: Any) -> None:
            if args[0] == "EVALSHA":
                CALLS[args[1]] += 1
            super().send_command(*args, **options)

        def pack_commands(self, commands: Any) -> Any:
            commands = list(commands)
            CALLS.update(args[1] for args in commands if args[0] == "EVALSHA")
            return super().pack_commands(commands)

    return redis.Redis(
        connection_pool=redis.ConnectionPool(connection_class=Counting, **pool.connection_kwargs)
    )


class Watch:
    """How long scripts of one prefix took, as the server tells it by its slow log."""

    SETTINGS = ("slowlog-log-slower-than", "slowlog-max-len")
    LENGTH = 50_000

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._client = client
        self._keys = b"{%s}" % prefix.encode()
        self._names = {script.sha.encode(): name for name, script in scripts.load_scripts().items()}
        self._last = -1
        self.seen: dict[str, list[float]] = {}
        self.lost = 0

    @contextlib.contextmanager
    def settings_kept(self) -> Iterator[None]:
        """Put the server's own settings back at the end."""
        kept = {name: self._client.config_get(name)[name] for name in self.SETTINGS}
        self._client.config_set("slowlog-max-len", self.LENGTH)
        try:
            yield
        finally:
            for name, value in kept.items():
                self._client.config_set(name, value)

    def above(self, threshold_us: int) -> None:
        """From here on note what takes longer; forget what was not read."""
        self._client.config_set("slowlog-log-slower-than", threshold_us)
        newest = self._client.slowlog_get(1)
        self._last = newest[0]["id"] if newest else -1

    def read(self) -> dict[str, list[float]]:
        """Return the milliseconds of each script since the last reading."""
        newest = self._client.slowlog_get(1)
        expected = newest[0]["id"] - self._last if newest else 0
        found = self._client.slowlog_get(expected + 8) if expected else []
        fresh = [entry for entry in found if entry["id"] > self._last]
        self.lost += max(0, expected - len(fresh))
        self._last = max((entry["id"] for entry in fresh), default=self._last)
        times: dict[str, list[float]] = {}
        for entry in fresh:
            words = bytes(entry["command"]).split(b" ", 4)
            if words[0] == b"EVALSHA" and words[3].startswith(self._keys):
                times.setdefault(self._names[words[1]], []).append(entry["duration"] / 1000)
        for name, spent in times.items():
            self.seen.setdefault(name, []).extend(spent)
        return times

    def cpu_ms(self) -> float:
        """Return the processor time the server used, which other processes leave alone."""
        info = self._client.info("cpu")
        kinds = ("used_cpu_user", "used_cpu_sys")
        return sum(info.get(f"{kind}_main_thread", info[kind]) for kind in kinds) * 1000


def ms_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def timed(action: Callable[[], Any], repeats: int) -> list[float]:
    """Return the milliseconds of each repetition."""
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        took.append(ms_since(began))
    return took


def share(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def spread(values: Sequence[float]) -> list[str]:
    """Return median, p99 and worst, as cells."""
    if not values:
        return ["-"] * 3
    return [f"{share(values, part):.2f}" for part in (0.5, 0.99, 1)]


def longest(times: dict[str, list[float]]) -> str:
    """Return the longest run of each script, as a cell."""
    worst = sorted(((max(spent), name) for name, spent in times.items()), reverse=True)
    return ", ".join(f"{name} {ms:.2f}" for ms, name in worst) or "none noted"


def heading(title: str, *columns: str) -> None:
    """Begin a table; a column is a text on the left, a number on the right when it ends in `:`."""
    print(f"\n{title}\n\n| {' | '.join(column.rstrip(':') for column in columns)} |")
    print(f"| {' | '.join('--:' if column.endswith(':') else '---' for column in columns)} |")


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def used_memory(client: redis.Redis) -> int:
    """Return the bytes in use once what was deleted is freed."""
    give_up_at = time.monotonic() + 10
    while time.monotonic() < give_up_at:
        if not client.info("memory").get("lazyfree_pending_objects"):
            break
        time.sleep(0.01)
    return int(client.info("memory")["used_memory"])


# A producer beside the work


class Latencies(list[float]):
    """The milliseconds of one enqueue after another, and when each began, by `perf_counter`."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[float] = []

    def between(self, begin_s: float, end_s: float) -> list[float]:
        """Return those of the enqueues that began then; the clock is the same in all processes."""
        both = zip(self.began, self, strict=True)
        return [ms for began_s, ms in both if begin_s <= began_s <= end_s]


def produce(url: str, request: Request, prefix: str, ready: Any, stop: Any, answer: Any) -> None:
    """Enqueue one job after another until told to stop; answers when each began, and its ms."""
    store = Store(url, prefix=prefix)
    store.enqueue(request)
    ready.set()
    took: list[tuple[float, float]] = []
    while not stop.is_set():
        began = time.perf_counter()
        store.enqueue(request)
        took.append((began, ms_since(began)))
        time.sleep(0.001)
    answer.send(took)


@contextlib.contextmanager
def producer(url: str, request: Request, prefix: str) -> Iterator[Latencies]:
    """Run a producer in a process of its own; the list holds its latencies afterwards."""
    fresh = multiprocessing.get_context("spawn")
    ready, stop = fresh.Event(), fresh.Event()
    receive, answer = fresh.Pipe(duplex=False)
    process = fresh.Process(
        target=produce, args=(url, request, prefix, ready, stop, answer), daemon=True
    )
    process.start()
    took = Latencies()
    try:
        if not ready.wait(30):
            raise RuntimeError("the producer did not start")
        yield took
    finally:
        stop.set()
        if receive.poll(30):
            for began_s, ms in receive.recv():
                took.began.append(began_s)
                took.append(ms)
        process.join(10)
        process.kill()
    CALLS[scripts.load_scripts()["enqueue"].sha] += len(took)


class BesideProducer:
    """Does work while a producer enqueues; a row for each kind of work."""

    def __init__(self, url: str, watch: Watch, request: Request, prefix: str) -> None:
        self._producing = (url, request, prefix)
        self._watch = watch
        heading(
            "Work beside a producer (latency of its single enqueues in ms)",
            "work", "jobs:", "s:", "jobs/s:", "longest scripts, ms",
            "enqueues:", "p50:", "p99:", "max:",
        )  # fmt: skip

    def run(self, label: str, work: Callable[[], int | None]) -> None:
        """Do one kind of work, which returns how many jobs it dealt with."""
        self._watch.above(200)
        with producer(*self._producing) as took:
            began = time.perf_counter()
            jobs = work()
            spent_s = time.perf_counter() - began
        inside = self._watch.read()
        rate = ("-", f"{spent_s:.1f}", "-") if jobs is None else (
            f"{jobs:,}", f"{spent_s:.1f}", f"{jobs / spent_s:,.0f}"
        )  # fmt: skip
        row(label, *rate, longest(inside), f"{len(took):,}", *spread(took))


def ping_for(client: redis.Redis, limit_s: float, pause_s: float = 0) -> None:
    """Ping for so long, with a pause behind each."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        client.ping()
        if pause_s:
            time.sleep(pause_s)
