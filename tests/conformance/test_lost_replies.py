"""A reply can be lost: the store asks again, and what happened happened once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from conformance.build import LOCK_MS, NAME, QUEUE, TOKEN, job, take
from proxy import Fault, Proxy
from servers import Server
from transitions.invariants import violations
from transitions.seed import snapshot

from mq.clock import FakeClock
from mq.records import Ack, ClaimRequest
from mq.store import Store

Verb = Callable[[Store], Any]

CLAIM = ClaimRequest([QUEUE], [NAME], TOKEN, LOCK_MS, 2, "worker")


def _exchange(store: Store) -> Any:
    acks = [
        ("ack_completed", Ack("h1", TOKEN, b"r")),
        ("ack_retried", Ack("h2", TOKEN, b"e", delay_ms=0)),
        ("release", Ack("cancel", TOKEN)),
        ("ack_failed", Ack("nobody", TOKEN)),
    ]
    words, claim = store.exchange(acks, attrs.evolve(CLAIM))
    assert claim is not None
    return words, [one.id for one in claim.jobs]


VERBS: dict[str, Verb] = {
    "enqueue": lambda s: s.enqueue(job("new")),
    "enqueue made id": lambda s: s.enqueue(job()),
    "enqueue duplicate": lambda s: s.enqueue(job("w1")),
    "enqueue delayed": lambda s: s.enqueue(job("new", delay_ms=50, metadata={"k": "v"})),
    "enqueue_many": lambda s: s.enqueue_many([job(), job("w1"), job("new"), job("new"), job()]),
    "claim": lambda s: [one.id for one in s.claim([QUEUE], [NAME], TOKEN, LOCK_MS, 2, "w").jobs],
    "claim anonymous": lambda s: [one.id for one in s.claim([QUEUE], [NAME], TOKEN, 9).jobs],
    "claim of nothing": lambda s: s.claim([QUEUE], ["none"], TOKEN, LOCK_MS).next_run_at,
    "extend": lambda s: s.extend([("h1", TOKEN), ("h2", "other"), ("cancel", TOKEN)], LOCK_MS * 3),
    "ack_completed": lambda s: s.ack_completed("h1", TOKEN, b"x" * 99),
    "ack_retried now": lambda s: s.ack_retried("h1", TOKEN, 0, b"e", summary="no"),
    "ack_retried later": lambda s: s.ack_retried("h1", TOKEN, 70, b"e"),
    "ack_retried cancelled": lambda s: s.ack_retried("cancel", TOKEN, 0, b"e"),
    "ack_failed": lambda s: s.ack_failed("h1", TOKEN, b"e"),
    "ack_cancelled": lambda s: s.ack_cancelled("cancel", TOKEN),
    "release": lambda s: s.release("h1", TOKEN),
    "exchange": _exchange,
    "progress": lambda s: s.progress("h1", TOKEN, b"half"),
    "watch": lambda s: s.watch("h1"),
    "get": lambda s: (repr(s.get_job("h1")), s.get_attempts("done")),
    "counts": lambda s: s.counts(),
    "seen_pairs": lambda s: s.seen_pairs(),
    "rearm": lambda s: s.rearm(s.keys.wake(QUEUE, NAME)),
    "poke": lambda s: s.poke("worker"),
}


@pytest.fixture
def proxy(real_server: Server) -> Iterator[Proxy]:
    """A proxy in front of each real server."""
    opened = Proxy(real_server.url.removeprefix("unix://"))
    yield opened
    opened.close()


def _store(url: str, prefix: str, clock: FakeClock) -> Store:
    """A store with something in every state a verb may meet, and all its scripts loaded."""
    made = itertools.count(1)
    store = Store(
        url, prefix=prefix, clock=clock, socket_timeout=0.15,
        id_generator=lambda: f"made-{next(made)}",
    )  # fmt: skip
    for name in store._caller._scripts:
        store._caller._load(name)
    store.enqueue_many(job(job_id) for job_id in ("h1", "h2", "cancel", "done"))
    take(store, 4)
    store.ack_completed("done", TOKEN, b"r")
    store.cancel("cancel")
    store.enqueue_many([job("w1"), job("w2"), job("w3"), job("d1", delay_ms=30)])
    return store


def _told_apart_by_nothing_else(store: Store) -> dict[str, Any]:
    """The keyspace without its prefix and without the nonces that every call draws anew."""
    content = {}
    for key, value in snapshot(store).items():
        bare = key.removeprefix(store.keys.root)
        if bare.startswith("claims:"):
            named = bare in {"claims:w", "claims:worker"}
            content[bare if named else "claims: nobody"] = value.partition("\n")[2]
        else:
            if isinstance(value, dict):
                for field in [field for field in value if field.endswith("nonce")]:
                    del value[field]
            content[bare] = value
    return content


@pytest.mark.parametrize("how", ["close", "hang"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_whose_reply_is_lost_answers_and_acts_as_if_it_were_not(
    proxy: Proxy, real_server: Server, clock: FakeClock, verb: str, how: Fault
) -> None:
    """Same answer and same keyspace as beside a store whose replies all came."""
    faulty = _store(proxy.url, "faulty", clock)
    sound = _store(real_server.url, "sound", clock)

    proxy.swallow_next_reply(how)
    answer = VERBS[verb](faulty)

    assert proxy.swallowed == 1
    assert answer == VERBS[verb](sound)
    assert _told_apart_by_nothing_else(faulty) == _told_apart_by_nothing_else(sound)
    assert violations(faulty) == []
    faulty.close()
    sound.close()


@pytest.mark.parametrize("how", ["close", "hang"])
def test_a_sweep_whose_reply_is_lost_recovers_once(
    proxy: Proxy, clock: FakeClock, how: Fault
) -> None:
    """Its repeat finds nothing left: what was recovered is told by the ledger alone."""
    store = _store(proxy.url, "faulty", clock)
    clock.advance(LOCK_MS)
    proxy.swallow_next_reply(how)
    assert store.stall_sweep(1) == []
    assert [entry.outcome.value for entry in store.get_attempts("h1")] == ["stalled"]
    assert violations(store) == []
    store.close()


def test_a_destroy_whose_reply_is_lost_deletes_all(proxy: Proxy, clock: FakeClock) -> None:
    """Only the number it tells may miss what the lost reply counted."""
    store = _store(proxy.url, "faulty", clock)
    proxy.swallow_next_reply("close")
    store.destroy()
    assert snapshot(store) == {}
    store.close()


def test_connections_cut_between_calls_cost_nothing(proxy: Proxy, clock: FakeClock) -> None:
    """A firewall that drops idle connections, a server that was restarted."""
    store = _store(proxy.url, "faulty", clock)
    for number in range(5):
        proxy.drop_all()
        assert store.enqueue(job(f"n{number}")).duplicate is False
    assert violations(store) == []
    store.close()
