"""How a store is connected: clients handed over, time-outs, passwords, forks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
from conformance.build import NAME, QUEUE, TOKEN, job, record, take
from helpers import Processes
from proxy import Proxy
from redis.backoff import ExponentialBackoff
from redis.connection import Encoder
from redis.retry import Retry
from servers import Server

from mq.errors import StoreError
from mq.states import JobState
from mq.store import Store

SECRET = "a#b@c:/%[]?&+ "


class LoudEncoder(Encoder):
    """An encoder that would break every command."""

    def encode(self, value: object) -> bytes:
        """Refuse."""
        raise AssertionError(value)


@pytest.mark.parametrize(
    "given",
    [
        {"decode_responses": True},
        {"decode_responses": False},
        {"protocol": 2},
        {"protocol": 3, "decode_responses": True},
        {"encoding": "utf-16"},
        {"db": 13},
        {"retry": Retry(ExponentialBackoff(), 10)},
        {"socket_timeout": 1},
        {"socket_timeout": None},
        {"health_check_interval": 1, "client_name": "somebody"},
        {"single_connection_client": True},
    ],
    ids=lambda given: "-".join(f"{key}={'own' if key == 'retry' else given[key]}" for key in given),
)
def test_a_client_handed_over_works_however_it_is_configured(
    real_server: Server, given: dict[str, object]
) -> None:
    """Its address and account are copied; what a store depends on is the store's own."""
    path = real_server.url.removeprefix("unix://")
    client = redis.Redis(unix_socket_path=path, **given)  # type: ignore[arg-type]
    store = Store(client)
    body = bytes(range(256))
    store.enqueue(job("a", payload=body, metadata={"k": "ü"}))
    [claimed] = store.claim([QUEUE], [NAME], TOKEN, 1_000).jobs
    assert (claimed.payload, claimed.metadata) == (body, {"k": "ü"})
    assert store.ack_completed("a", TOKEN, body) == "completed"
    assert record(store, "a").exit == body
    assert store.counts()[JobState.COMPLETED] == 1
    assert store.wait([QUEUE], [NAME], 20) is False
    store.rearm(store.keys.wake(QUEUE, NAME))
    assert store.wait([QUEUE], [NAME], 20) is True
    assert store.destroy() > 0
    store.close()
    client.close()


def test_a_client_with_an_encoder_of_its_own_works(real_server: Server) -> None:
    """The store does not take it over."""
    pool = redis.ConnectionPool.from_url(real_server.url, encoder_class=LoudEncoder)
    store = Store(redis.Redis(connection_pool=pool))
    store.enqueue(job("a"))
    assert take(store) == ["a"]
    store.close()
    pool.disconnect()


def test_closing_a_store_leaves_the_client_that_was_handed_over_alone(real_server: Server) -> None:
    """It belongs to its owner."""
    client = redis.Redis(unix_socket_path=real_server.url.removeprefix("unix://"))
    client.ping()
    store = Store(client)
    store.enqueue(job("a"))
    store.close()
    assert client.ping()
    assert record(store, "a").state is JobState.WAITING  # a store opens again by itself
    store.close()
    client.close()


@pytest.mark.parametrize("socket_timeout", [0.1, 1, 5, None])
def test_a_wait_is_never_cut_short_by_the_socket(
    real_server: Server, socket_timeout: float | None
) -> None:
    """The blocking read has a time-out of its own, longer than the wait."""
    path = real_server.url.removeprefix("unix://")
    client = redis.Redis(unix_socket_path=path, socket_timeout=socket_timeout)
    store = Store(client)
    assert store.wait([QUEUE], [NAME], 200) is False
    store.enqueue(job("a"))
    assert store.wait([QUEUE], [NAME], 30_000) is True
    store.close()
    client.close()


# Passwords


@pytest.fixture
def accounts(real_server: Server) -> Iterator[None]:
    """A password for everybody, and a user of the same one."""
    real_server.cli("ACL", "SETUSER", "bob@x", "on", f">{SECRET}", "~*", "&*", "+@all")
    real_server.cli("CONFIG", "SET", "requirepass", SECRET)
    yield
    real_server.cli("CONFIG", "SET", "requirepass", "")
    real_server.cli("ACL", "DELUSER", "bob@x")


def _works(store: Store) -> bool:
    store.enqueue(job("a"))
    found = store.get_job("a") is not None
    store.destroy()
    store.close()
    return found


def test_a_password_with_reserved_characters_works(
    proxy: Proxy, accounts: None, real_server: Server
) -> None:
    """Percent-encoded in the URL, or as a setting of its own; with and without a user."""
    encoded, address = quote(SECRET, safe=""), f"127.0.0.1:{proxy.port}/0"
    assert _works(Store(f"redis://:{encoded}@{address}"))
    assert _works(Store(f"redis://bob%40x:{encoded}@{address}"))
    assert _works(Store(f"redis://{address}", password=SECRET))
    assert _works(Store(f"redis://{address}", username="bob@x", password=SECRET))
    assert _works(Store(f"redis://wrong:wrong@{address}", username="bob@x", password=SECRET))
    assert _works(Store(real_server.url, password=SECRET))
    assert _works(Store(f"unix://:{encoded}@{real_server.url.removeprefix('unix://')}"))


@pytest.mark.parametrize("password", ["wr0ng-p4ss", "", None])
def test_a_wrong_password_is_refused_and_never_printed(
    proxy: Proxy, accounts: None, password: str | None
) -> None:
    """At once, in one line; not in the store's own text either."""
    store = Store(proxy.url, password=password)
    with pytest.raises(StoreError, match="refused the user or password") as caught:
        store.enqueue(job("a"))
    shown = f"{caught.value!r} {caught.value} {store!r} {store.endpoint!r}"
    assert "wr0ng" not in shown
    assert SECRET not in shown
    assert proxy.accepted <= 2
    store.close()


def test_a_user_without_a_right_is_told_which(real_server: Server, proxy: Proxy) -> None:
    """It can be granted then."""
    real_server.cli("ACL", "SETUSER", "low", "on", ">p", "~*", "+@all", "-evalsha")
    store = Store(proxy.url, username="low", password="p")
    with pytest.raises(StoreError, match=r"denies a right this user needs: .*evalsha") as caught:
        store.enqueue(job("a"))
    assert "\n" not in str(caught.value)
    store.close()
    real_server.cli("ACL", "DELUSER", "low")


# Forks

FORK = """
import multiprocessing, os, sys
from mq.records import Request
from mq.store import Store

def work(store, who, count=200):
    for at in range(count):
        answer = store.enqueue(Request(name="n", queue="q", payload=who.encode(), id=f"{who}/{at}"))
        assert (answer.id, answer.duplicate) == (f"{who}/{at}", False), answer
        found = store.get_job(f"{who}/{at}")
        assert found is not None and found.payload == who.encode(), found
    store.enqueue_many(Request(name="n", queue="q", payload=b"") for _ in range(50))

def work_at(url, who):
    work(Store(url), who)

if __name__ == "__main__":
    url, method = sys.argv[1:]
    store = Store(url)
    store.enqueue(Request(name="n", queue="q", payload=b"", id="first"))
    store.wait(["q"], ["n"], 1)
    if method == "os.fork":
        child = os.fork()
        work(store, "child" if child == 0 else "parent")
        store.wait(["q"], ["none"], 5)
        if child == 0:
            os._exit(0)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
    else:
        context = multiprocessing.get_context(method)
        target, args = (work, (store, "child")) if method == "fork" else (work_at, (url, "child"))
        process = context.Process(target=target, args=args)
        process.start()
        work(store, "parent")
        process.join()
        code = process.exitcode
    store.close()
    sys.exit(code)
"""


@pytest.mark.parametrize("method", ["os.fork", "fork", "spawn", "forkserver"])
def test_parent_and_child_of_a_fork_each_have_their_own_connections(
    one_server: Server, proc: Processes, tmp_path: Path, method: str
) -> None:
    """Both enqueue at once: no mixed replies, no lock that hangs, no id made twice."""
    program = tmp_path / "fork.py"
    program.write_text(FORK)
    running = proc.python("-W", "ignore::DeprecationWarning", str(program), one_server.url, method)
    assert running.wait(60) == 0, running.stderr
    store = Store(one_server.url)
    assert store.counts()[JobState.WAITING] == 1 + 2 * 250
    store.close()


@pytest.mark.parametrize("step", ["on_connect", "read_response"])
def test_a_call_that_was_interrupted_leaves_nothing_to_the_next(
    one_server: Server, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Neither a connection that is half set up, nor one on which a reply is under way."""
    before = Store(one_server.url)
    before.enqueue(job("a"))
    store = Store(one_server.url) if step == "on_connect" else before
    parser: Any = store.endpoint.client().connection_pool.make_connection()._parser

    def interrupt(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(type(parser), step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.get_job("a")
    assert store.counts()[JobState.WAITING] == 1
    assert record(store, "a").name == NAME
    store.close()
    before.close()
