"""Every mistake of a user is one line that names the thing and the fix, and writes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Cli
from servers import Server

DOUBLE = ("enqueue", "jobs:app", "double")

USAGE = [
    pytest.param(("worker",), "Missing argument 'MODULE:APP'", id="no app"),
    pytest.param(("worker", "jobs"), "'jobs' names no app: write module:attribute", id="no colon"),
    pytest.param(("worker", "jobs.py:app"), "name the module, such as jobs:app", id="a path"),
    pytest.param(("worker", "jobs:app", "-c", "0"), "concurrency must be 1 to 1000", id="zero"),
    pytest.param(("worker", "jobs:app", "-c", "x"), "is not a valid integer", id="no number"),
    pytest.param(("worker", "jobs:app", "--nope"), "see mq worker --help", id="no such option"),
    pytest.param(
        ("worker", "jobs:app", "--store", "audit"), "no store is named 'audit'", id="store"
    ),
    pytest.param(("worker", "jobs:app", "-q", "a", "-q", "a"), "named twice", id="queue twice"),
    pytest.param(("worker", "jobs:app", "-q", "a:x"), "such as a:3", id="weight"),
    pytest.param(("worker", "jobs:app", "-q", "a b"), "queue 'a b' must be", id="queue name"),
    pytest.param(("worker", "jobs:app", "--strict"), "name the queues with -q", id="strict"),
    pytest.param(
        ("worker", "jobs:app", "--lock-duration", "-5s"), "must not be negative", id="negative"
    ),
    pytest.param(
        ("worker", "jobs:app", "--poll-interval", "0"), "poll_interval must be at least", id="never"
    ),
    pytest.param(
        ("worker", "jobs:app", "--shutdown-grace", "300y"), "cannot read '300y'", id="unit"
    ),
    pytest.param(
        (*DOUBLE, "--payload", '{"n": 1}', "--delay", "99999999h"), "at most 100 years", id="absurd"
    ),
    pytest.param((*DOUBLE, "--payload", '{"n": 1}', "--delay", "nan"), "be finite", id="nan"),
    pytest.param(
        (*DOUBLE, "--payload", '{"n": 1}', "--timeout", "0"), "longer than 0", id="no time"
    ),
    pytest.param(
        (*DOUBLE, "--payload", '{"n": 1}', "--attempts", "0"), "attempts must be", id="runs"
    ),
    pytest.param(
        (*DOUBLE, "--payload", '{"n": 1}', "--priority", "1001"), "-1000 to 1000", id="priority"
    ),
    pytest.param(
        (*DOUBLE, "--payload", '{"n": 1}', "--metadata", "x"), "write key=value", id="metadata"
    ),
    pytest.param(
        (*DOUBLE, "--payload", '{"n": 1}', "--job-id", "a\nb"), "control character", id="id"
    ),
    pytest.param((*DOUBLE, "--payload", '{"n": '), "not JSON at column", id="half a JSON"),
    pytest.param((*DOUBLE, "--payload", '{"n": NaN}'), "NaN is no JSON value", id="NaN"),
    pytest.param((*DOUBLE, "--payload", '{"n": 1, "n": 2}'), "stands twice", id="key twice"),
    pytest.param((*DOUBLE, "--payload", '{"n": "1"}'), "$.n: expected int, got str", id="type"),
    pytest.param((*DOUBLE, "--payload", '{"m": 1}'), "$.m: is no field of Number", id="field"),
    pytest.param(DOUBLE, "exactly one of --payload JSON, --from FILE", id="no source"),
    pytest.param((*DOUBLE, "-", "--job-id", "a"), "--job-id names a single job", id="id of many"),
    pytest.param((*DOUBLE, "--from", "none.jsonl"), "cannot read none.jsonl", id="no file"),
    pytest.param((*DOUBLE, "--from", "."), "cannot read .: Is a directory", id="a folder"),
    pytest.param(
        ("enqueue", "jobs:app", "triple", "--payload", "1"),
        "no job is named 'triple' in jobs:app; it defines deaf, double, hold, keyed, later",
        id="no such job",
    ),
    pytest.param(("info", "--store", "x"), "give --app module:app", id="store without app"),
    pytest.param(("info", "--app", "jobs:app", "--url", "x"), "not both", id="app and url"),
    pytest.param(("info", "--prefix", "a{b"), "prefix 'a{b' is not usable", id="prefix"),
    pytest.param(("info", "--prefix", ""), "--prefix is empty: give one", id="empty prefix"),
    pytest.param(("info", "--url", ""), "--url is empty: give one", id="empty URL"),
    pytest.param(
        ("info", "--app", "jobs:app", "--store", ""), "--store is empty: give one", id="empty store"
    ),
    pytest.param((*DOUBLE, "--from", ""), "--from is empty: name a file", id="empty file name"),
    pytest.param(("frobnicate",), "No such command 'frobnicate'", id="no such command"),
    pytest.param(("jobs", "shwo"), "No such command 'shwo'", id="no such verb"),
]


@pytest.mark.parametrize(("args", "said"), USAGE)
def test_a_wrong_command_line_ends_with_2(
    cli: Cli, one_server: Server, args: tuple[str, ...], said: str
) -> None:
    """Nothing is written, and the line says what is wrong."""
    ran = cli.run(*args)
    assert said in ran.complaint
    assert (ran.code, ran.out) == (2, "")
    assert one_server.cli("DBSIZE") == 0


def test_a_module_that_is_not_there_is_named(cli: Cli) -> None:
    """The module itself is missing: the line says where it was looked for."""
    ran = cli.run("worker", "jobz:app")
    assert ran.code == 1
    assert ran.complaint.startswith(f"no module named 'jobz' in {cli.folder.resolve()}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import nothing_like_it\n", "No module named 'nothing_like_it' at broken.py:1"),
        ("x = 1\n\nraise KeyError('x')\n", "KeyError: 'x' at broken.py:3"),
        ("import json\njson.loads('{')\n", "at broken.py:2"),
        ("from inner import app\n", "ZeroDivisionError: division by zero at inner.py:2"),
        ("def f(:\n", "SyntaxError: invalid syntax at broken.py:1"),
        ("import sys\nsys.exit(0)\n", "SystemExit: 0 at broken.py:2"),
        (
            "import mq\napp = mq.App()\n@app.job\ndef f(x: open) -> None: ...\n",
            "at broken.py:3",
        ),
        ("raise ValueError('a' * 5000)\n", "a… at broken.py:1"),
        ("raise ValueError('two\\nlines')\n", "two lines at broken.py:1"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(
    cli: Cli, text: str, said: str
) -> None:
    """The innermost line of the user's own code stands in the message."""
    (cli.folder / "broken.py").write_text(text)
    (cli.folder / "inner.py").write_text("x = 0\n1 / x\n")
    ran = cli.run("worker", "broken:app")
    assert ran.code == 1
    assert said in ran.complaint


def test_an_attribute_that_is_no_app_is_told_from_one_that_is_missing(cli: Cli) -> None:
    """Both lines list the apps that the module has."""
    missing = cli.run("worker", "jobs:ap")
    assert missing.code == 1
    assert missing.complaint == "jobs has no attribute 'ap'; its Apps: jobs:app"
    other = cli.run("worker", "jobs:double")
    assert other.code == 1
    assert other.complaint == "jobs:double is of type Job, not an mq.App; its Apps: jobs:app"
    (cli.folder / "empty.py").touch()
    assert "write app = mq.App() there" in cli.run("worker", "empty:app").complaint


def test_an_app_without_handlers_is_no_work_for_a_worker(cli: Cli) -> None:
    """A worker that could run nothing says so instead of idling."""
    (cli.folder / "apart.py").write_text(
        "import mq\napp = mq.App()\nping = app.define('ping', payload=int)\n"
    )
    ran = cli.run("worker", "apart:app")
    assert ran.code == 1
    assert "nothing to run" in ran.err
    assert "Traceback" not in ran.err


def test_a_queue_of_another_store_is_named_with_both(cli: Cli) -> None:
    """The line says which store it belongs to."""
    (cli.folder / "two.py").write_text(
        "import mq\n"
        f"app = mq.App(stores={{'audit': mq.Store({cli.url!r}, prefix='audit')}})\n"
        "@app.job(queue='trail', store='audit')\ndef note(x: int) -> None: ...\n"
        "@app.job\ndef ping(x: int) -> None: ...\n"
    )
    ran = cli.run("worker", "two:app", "-q", "trail")
    assert ran.code == 1
    assert "'trail' belongs to store 'audit'" in ran.complaint


COMMANDS = [
    pytest.param(("worker", "jobs:app"), id="worker"),
    pytest.param((*DOUBLE, "--payload", '{"n": 1}'), id="enqueue one"),
    pytest.param((*DOUBLE, "-"), id="enqueue many"),
    pytest.param(("jobs", "show", "x"), id="jobs show"),
    pytest.param(("jobs", "list"), id="jobs list"),
    pytest.param(("jobs", "cancel", "x"), id="jobs cancel"),
    pytest.param(("jobs", "remove", "-q", "x", "--yes"), id="jobs remove"),
    pytest.param(("queues", "list"), id="queues list"),
    pytest.param(("queues", "pause", "x"), id="queues pause"),
    pytest.param(("queues", "counts"), id="queues counts"),
    pytest.param(("info",), id="info"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_that_is_not_there_ends_a_command(
    cli: Cli, closed_port: str, command: tuple[str, ...]
) -> None:
    """A refused connection is told with its address, and not tried again."""
    ran = cli.run(*command, env={"MQ_URL": closed_port})
    assert ran.code == 1
    assert ran.complaint.startswith(f"cannot reach Redis at {closed_port.removeprefix('redis://')}")
    assert "Connection refused" in ran.complaint


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:6379", "Redis URL has no scheme: use redis://host:port/db"),
        ("http://localhost", "Redis URL has scheme 'http'"),
        ("redis://", "names no host"),
        ("redis://localhost/abc", "has database 'abc'"),
        ("redis://:s3cret#@localhost/0", "percent-encode reserved characters"),
        ("unix:///nowhere/redis.sock", "cannot reach Redis at unix:///nowhere/redis.sock"),
        ("memory://", "memory:// lives in one process"),
    ],
)
def test_a_url_that_cannot_work_is_refused(cli: Cli, url: str, said: str) -> None:
    """The line says what is wrong with it, never a password."""
    ran = cli.run("worker", "jobs:app", env={"MQ_URL": url})
    assert ran.code == 1
    assert said in ran.complaint
    assert "s3cret" not in ran.err


def test_memory_is_refused_by_all_that_need_a_second_process(cli: Cli) -> None:
    """One line, with what to use instead."""
    for command in ((*DOUBLE, "--payload", '{"n": 1}'), ("info",)):
        ran = cli.run(*command, env={"MQ_URL": "memory://"})
        assert ran.code == 1
        assert "use mq demo or a real Redis" in ran.complaint


def test_a_wrong_password_is_never_printed(cli: Cli, own_server: Callable[..., str]) -> None:
    """With a wrong one, and with none at all."""
    path = own_server(password="right-one")
    for url in (f"unix://:wr0ng-one@{path}", f"unix://{path}"):
        for command in (("worker", "jobs:app"), ("info",), (*DOUBLE, "--payload", '{"n": 1}')):
            ran = cli.run(*command, env={"MQ_URL": url})
            assert ran.code == 1
            assert "refused the user or password" in ran.complaint
            assert "wr0ng" not in ran.err
    assert cli.run("info", env={"MQ_URL": f"unix://:right-one@{path}"}).code == 0


def test_a_read_only_replica_is_refused_by_what_writes(
    cli: Cli, own_server: Callable[..., str]
) -> None:
    """Looking at it is fine."""
    url = f"unix://{own_server('--replicaof', '127.0.0.1', '1')}"
    for command in (
        ("worker", "jobs:app"),
        (*DOUBLE, "--payload", '{"n": 1}'),
        ("jobs", "retry", "x"),
        ("jobs", "promote", "x"),
        ("jobs", "cancel", "--queue", "x", "--yes"),
        ("queues", "pause", "x"),
        ("queues", "resume", "x"),
    ):
        ran = cli.run(*command, env={"MQ_URL": url})
        assert ran.code == 1
        assert "read-only replica: give the address of the primary" in ran.complaint
    looked = cli.run("info", env={"MQ_URL": url})
    assert looked.code == 0
    assert "replica" in looked.out


def test_a_server_below_6_2_is_refused(cli: Cli, old_server: str) -> None:
    """The line says what it is and what is needed."""
    for command in (("worker", "jobs:app"), (*DOUBLE, "--payload", '{"n": 1}'), ("info",)):
        ran = cli.run(*command, env={"MQ_URL": old_server})
        assert ran.code == 1
        assert "is 6.0: mq needs 6.2 or later" in ran.complaint


def test_a_keyspace_of_another_release_is_refused(cli: Cli, one_server: Server) -> None:
    """Nothing is changed in it."""
    one_server.cli("HSET", "{mq}:meta", "schema", "99")
    for command in (("worker", "jobs:app"), (*DOUBLE, "--payload", '{"n": 1}'), ("info",)):
        ran = cli.run(*command)
        assert ran.code == 1
        assert "keyspace version 99" in ran.complaint
    assert one_server.cli("DBSIZE") == 1


def test_an_id_that_is_not_there_is_named_with_the_place(cli: Cli, tmp_path: Path) -> None:
    """The reader learns where it was looked for."""
    for verb in ("show", "attempts"):
        ran = cli.run("jobs", verb, "nope")
        assert ran.code == 1
        assert "no job has the id 'nope'" in ran.complaint
        assert "under prefix 'mq'" in ran.complaint


def test_control_characters_of_a_message_are_escaped(cli: Cli) -> None:
    """Text from the command line cannot steer the terminal."""
    ran = cli.run("jobs", "show", "\x1b[31mred")
    assert ran.code == 2
    assert "\x1b" not in ran.complaint


def test_a_user_with_few_rights_can_work(cli: Cli, one_server: Server) -> None:
    """HELLO and INFO are asked for, and done without."""
    one_server.cli(
        *("ACL", "SETUSER", "few", "reset", "on", ">pw", "~{mq}:*", "+@all", "-hello", "-info")
    )
    try:
        url = one_server.url.replace("unix://", "unix://few:pw@")
        ran = cli.run(*DOUBLE, "--payload", '{"n": 1}', env={"MQ_URL": url})
        assert (ran.code, ran.err) == (0, "")
        assert cli.run("info", env={"MQ_URL": url}).code == 0
    finally:
        one_server.cli("ACL", "DELUSER", "few")


def run_into(cli: Cli, out: str, *args: str) -> tuple[int, str]:
    """Run a command whose output goes to a device; tells its exit code and what it complained."""
    with Path(out).open("wb") as device:
        ran = subprocess.run(
            [sys.executable, "-m", "mq", *args],
            stdin=subprocess.DEVNULL,
            stdout=device,
            stderr=subprocess.PIPE,
            env={**os.environ, "MQ_URL": cli.url},
            cwd=cli.folder,
            timeout=60,
            check=False,
        )
    return ran.returncode, ran.stderr.decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
@pytest.mark.parametrize(
    "command",
    [
        ("--help",),
        ("scripts", "--json"),
        ("info",),
        ("queues", "list"),
        ("jobs", "list"),
        ("jobs", "list", "--all", "--json"),
        ("jobs", "cancel", "--queue", "default", "--dry-run"),
        (*DOUBLE, "--payload", '{"n": 1}'),
    ],
)
def test_output_that_cannot_be_written_is_one_line(cli: Cli, command: tuple[str, ...]) -> None:
    """A disk that is full is no traceback, and the exit code says that something is missing."""
    assert cli.run(*DOUBLE, "--payload", '{"n": 1}').code == 0
    code, told = run_into(cli, "/dev/full", *command)
    assert (code, told) == (1, "mq: cannot write the output: No space left on device\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
def test_a_complaint_that_cannot_be_written_leaves_the_exit_code(cli: Cli) -> None:
    """With stderr on a full disk, and with no stderr at all."""
    for where in ("2>/dev/full", "2>&-"):
        line = f"{sys.executable} -m mq jobs show nope {where}"
        ran = subprocess.run(
            ["/bin/sh", "-c", line],
            capture_output=True,
            env={**os.environ, "MQ_URL": cli.url},
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (1, b"", b"")
