"""The page on redis-cli prints what Redis answers, on every server."""

from __future__ import annotations

import subprocess

import pytest
from docs.blocks import DOCS, blocks_of
from docs.generate import generate
from docs.session import Session, redis_cli
from servers import Server

PAGE = DOCS / "redis-cli.md"


def test_every_answer_is_what_the_server_says(server: Server) -> None:
    """The store that the example fills is asked what the page asks."""
    generate.seed(server.url)
    text = PAGE.read_text(encoding="utf-8")
    assert generate.redis_page(text, server.cli) == text


def test_the_page_changes_nothing(one_server: Server) -> None:
    """Whoever follows it on a live store does no harm."""
    generate.seed(one_server.url)
    before = {key: one_server.cli("DUMP", key) for key in one_server.cli("KEYS", "*")}
    generate.redis_page(PAGE.read_text(encoding="utf-8"), one_server.cli)
    after = {key: one_server.cli("DUMP", key) for key in one_server.cli("KEYS", "*")}
    assert after == before


def test_commands_for_the_shell_print_what_the_page_says(session: Session) -> None:
    """Payloads and exits are unpacked by the commands given."""
    if redis_cli() is None:
        pytest.skip("no redis-cli here")
    generate.seed(session.server.url)
    session.play(PAGE)


def test_replies_are_written_as_redis_cli_writes_them(real_server: Server) -> None:
    """The page's answers are typeset by a function; the real one prints the same."""
    cli = redis_cli()
    if cli is None:
        pytest.skip("no redis-cli here")
    generate.seed(real_server.url)
    commands = [
        line.removeprefix(generate.REDIS_PROMPT)
        for block in blocks_of(PAGE)
        if block.language == "redis"
        for line in block.text.splitlines()
        if line.startswith(generate.REDIS_PROMPT)
    ]
    socket = real_server.url.removeprefix("unix://")
    printed = subprocess.run(
        [cli, "-s", socket, "--no-raw"],
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    answers = [generate.shown(real_server.cli(*command.split())) for command in commands]
    assert printed.splitlines() == "\n".join(answers).splitlines()
