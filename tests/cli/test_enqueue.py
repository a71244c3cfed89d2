"""`mq enqueue`: single payloads, files, stdin; what does not fit is told, the rest is taken in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from command_line import Cli
from helpers import wait_until
from servers import Server

from mq.codec import to_json
from mq.states import JobState
from mq.store import Store

DOUBLE = ("enqueue", "jobs:app", "double")


def waiting_payloads(server: Server, name: str = "double") -> list[Any]:
    """The payloads of the waiting jobs of a name, in their order."""
    ids = server.cli("ZRANGE", f"{{mq}}:waiting:default:{name}", 0, -1)
    return [to_json(server.cli("GET", b"{mq}:payload:" + job_id)) for job_id in ids]


def test_a_single_payload_prints_the_id_alone(cli: Cli, store: Store) -> None:
    """What stands on stdout is the id, ready for a variable of a shell."""
    ran = cli.run(*DOUBLE, "--payload", '{"n": 4}')
    assert (ran.code, ran.err) == (0, "")
    record = store.get_job(ran.out.removesuffix("\n"))
    assert record is not None
    assert (record.name, record.state) == ("double", JobState.WAITING)
    assert to_json(record.payload or b"") == {"n": 4}


def test_the_options_of_enqueue_stand_on_the_record(cli: Cli, store: Store) -> None:
    """Each option of the contract has its flag."""
    options = (
        *("--delay", "1h30m", "--priority", "-7", "--attempts", "3", "--timeout", "2.5"),
        *("--queue", "other", "--metadata", "a=1", "--metadata", "b=x=y", "--job-id", "mine/1"),
    )
    ran = cli.run(*DOUBLE, "--payload", '{"n": 4}', *options, "--json")
    assert json.loads(ran.out) == {
        "id": "mine/1",
        "name": "double",
        "duplicate": False,
        "replaced": False,
    }
    record = store.get_job("mine/1")
    assert record is not None
    assert record.run_at - record.enqueued_at == 5_400_000
    assert (record.priority, record.attempts_max, record.timeout_ms) == (-7, 3, 2_500)
    assert (record.queue, record.metadata) == ("other", {"a": "1", "b": "x=y"})


def test_an_id_that_exists_is_said_to_exist(cli: Cli) -> None:
    """The id is printed all the same, and nothing is enqueued."""
    first = cli.run(*DOUBLE, "--payload", '{"n": 4}', "--job-id", "mine/1")
    again = cli.run(*DOUBLE, "--payload", '{"n": 5}', "--job-id", "mine/1")
    assert (again.code, again.out) == (0, first.out)
    assert "existed already" in again.complaint
    other = cli.run("enqueue", "jobs:app", "later", "--payload", '{"n": 5}', "--job-id", "mine/1")
    assert other.code == 1
    assert "belongs to a job named 'double'" in other.complaint


def test_a_producer_needs_no_handler(cli: Cli, one_server: Server) -> None:
    """A job that is only defined can be enqueued."""
    assert cli.run("enqueue", "jobs:app", "later", "--payload", '{"n": 1}').code == 0
    assert waiting_payloads(one_server, "later") == [{"n": 1}]


@pytest.mark.parametrize("source", ["file", "stdin", "dash"])
def test_lines_are_enqueued_in_their_order(cli: Cli, one_server: Server, source: str) -> None:
    """Empty lines, Windows line ends, a byte order mark and a missing last line end are fine."""
    text = b'\xef\xbb\xbf{"n": 1}\r\n\n   \n{"n": 2}\n{"n": 3}'
    (cli.folder / "in.jsonl").write_bytes(text)
    args = {"file": ("--from", "in.jsonl"), "stdin": ("--from", "-"), "dash": ("-",)}[source]
    ran = cli.run(*DOUBLE, *args, stdin=b"" if source == "file" else text)
    assert (ran.code, ran.out, ran.err) == (0, "3 enqueued\n", "")
    assert waiting_payloads(one_server) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_lines_that_do_not_fit_are_told_and_the_others_enqueued(
    cli: Cli, one_server: Server
) -> None:
    """Each is named with its number; the exit code is 1 and the last line counts them."""
    lines = [
        b'{"n": 1}',
        b'{"n": ',
        b'{"n": "x"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"n": Infinity}',
        b'{"n": 2}',
    ]
    ran = cli.run(*DOUBLE, "-", stdin=b"\n".join(lines))
    told = ran.err.splitlines()
    assert ran.code == 1
    assert told[0] == "mq: stdin:2: not JSON at column 7: expecting value"
    assert told[1].startswith("mq: stdin:3: payload of job 'double' $.n: expected int")
    assert told[2] == "mq: stdin:4: not UTF-8 at byte 1"
    assert told[3].startswith("mq: stdin:5: not ")
    assert told[4] == "mq: stdin:6: not JSON: Infinity is no JSON value, write null or text"
    assert told[5:] == ["mq: 5 of 7 lines of stdin were refused, the others enqueued"]
    assert waiting_payloads(one_server) == [{"n": 1}, {"n": 2}]


def test_a_line_longer_than_any_payload_is_told_and_not_kept(cli: Cli, one_server: Server) -> None:
    """Memory stays bounded whatever comes in."""
    text = b'{"n": 1}\n' + b"7" * (9 * 1024 * 1024) + b'\n{"n": 2}\n'
    ran = cli.run(*DOUBLE, "-", stdin=text)
    assert ran.code == 1
    assert ran.err.startswith(f"mq: stdin:2: longer than {8 * 1024 * 1024} bytes")
    assert waiting_payloads(one_server) == [{"n": 1}, {"n": 2}]


def test_jobs_that_existed_are_counted_apart(cli: Cli) -> None:
    """An idempotency key makes a file safe to send twice."""
    text = b'{"n": 1}\n{"n": 2}\n'
    assert cli.run("enqueue", "jobs:app", "keyed", "-", stdin=text).out == "2 enqueued\n"
    again = cli.run("enqueue", "jobs:app", "keyed", "-", stdin=text + b'{"n": 3}\n')
    assert (again.code, again.out) == (0, "1 enqueued, 2 existed already\n")
    counts = cli.run("enqueue", "jobs:app", "keyed", "-", "--json", stdin=text)
    assert json.loads(counts.out) == {"enqueued": 0, "duplicates": 2, "refused": 0}


def test_a_line_does_not_wait_for_the_next_one(cli: Cli, store: Store) -> None:
    """What a slow program writes is enqueued as it comes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mq", *DOUBLE, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=cli.folder,
        env={**os.environ, "MQ_URL": cli.url},
    )
    with process:
        assert process.stdin is not None
        for number in (1, 2):
            process.stdin.write(b'{"n": 1}\n')
            process.stdin.flush()
            wait_until(lambda n=number: store.counts()[JobState.WAITING] == n, what="the job")
        process.stdin.close()
        assert process.wait(30) == 0


def test_a_hundred_thousand_lines_stream_in_bounded_chunks(cli: Cli, one_server: Server) -> None:
    """The store sees hundreds of calls of at most 100 jobs, never all of them at once."""
    count = 100_000
    (cli.folder / "many.jsonl").write_bytes(b"".join(b'{"n": %d}\n' % n for n in range(count)))
    one_server.cli("CONFIG", "RESETSTAT")
    ran = cli.run(*DOUBLE, "--from", "many.jsonl", "--json")
    assert json.loads(ran.out) == {"enqueued": count, "duplicates": 0, "refused": 0}
    stats = one_server.cli("INFO", "commandstats").decode()
    calls = int(stats.partition("cmdstat_evalsha:calls=")[2].partition(",")[0])
    assert count / 100 <= calls < count / 50
    assert one_server.cli("ZCARD", "{mq}:waiting:default:double") == count


def test_ctrl_c_ends_with_130_and_says_how_far_it_came(cli: Cli, store: Store) -> None:
    """No traceback."""
    import signal

    process = subprocess.Popen(
        [sys.executable, "-m", "mq", *DOUBLE, "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cli.folder,
        env={**os.environ, "MQ_URL": cli.url},
    )
    with process:
        assert process.stdin is not None
        # The store has a job before the command has heard so; with the second it knows the first.
        for number in (1, 2):
            process.stdin.write(b'{"n": %d}\n' % number)
            process.stdin.flush()
            wait_until(
                lambda number=number: store.counts()[JobState.WAITING] == number, what="jobs"
            )
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr is not None
        told = process.stderr.read().decode()
    assert re.fullmatch(
        "mq: interrupted; at least [12] jobs were enqueued, of the batch under way some may be",
        told.strip(),
    )
