"""Fixtures for stories about workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from servers import Server

import mq
from mq.store import Store


@pytest.fixture
def app(one_server: Server) -> Iterator[mq.App]:
    """An app without jobs on an empty server."""
    made = mq.App(one_server.url)
    yield made
    made.close()


@pytest.fixture
def store(app: mq.App) -> Store:
    """The store of the app."""
    return app.store


@pytest.fixture
def process_app(one_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[mq.App]:
    """The app that worker processes run, as their producer sees it."""
    made = mq.App(one_server.url)
    for name in ("note", "stay", "hang", "polite"):
        made.define(name, payload=str, result=str)
    made.define("die", payload=str, result=str, attempts=2)
    made.define("noop", payload=type(None), result=None)
    made.define("poison", payload=str, result=None)
    yield made
    made.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """What mq has logged so far at or above a level."""
    caplog.set_level(logging.INFO, logger="mq")

    def so_far(level: int = logging.INFO) -> list[str]:
        return [
            one.getMessage()
            for one in caplog.records
            if one.name.startswith("mq") and one.levelno >= level
        ]

    return so_far
