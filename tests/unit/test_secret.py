"""Secrets: never shown by accident."""

from __future__ import annotations

import copy
import logging

import pytest

from mq.secret import Secret


def test_a_secret_shows_a_mask_however_it_is_printed() -> None:
    """Repr, text, formats, containers and logs."""
    secret = Secret("hush")
    record = logging.LogRecord("mq", logging.INFO, "", 0, "%s %r", (secret, secret), None)
    for shown in (repr(secret), str(secret), f"{secret:>9}", f"{[secret]!r}", record.getMessage()):
        assert "hush" not in shown
        assert "***" in shown


def test_reveal_gives_the_value() -> None:
    """The one way to it."""
    assert Secret("hush").reveal() == "hush"


def test_secrets_compare_by_value_with_secrets_only() -> None:
    """A bare value is no secret."""
    assert Secret("a") == Secret("a", persist=False)
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


def test_a_secret_cannot_be_pickled() -> None:
    """A pickle would show it."""
    with pytest.raises(TypeError, match="reveal"):
        Secret("hush").__reduce_ex__(2)


def test_a_copied_secret_is_a_secret() -> None:
    """With a value and a rule of its own."""
    secret = Secret(["hush"], persist=False)
    copied = copy.deepcopy(secret)
    assert copied == secret
    assert copied.reveal() is not secret.reveal()
    assert (copied.persist, copy.copy(secret)) == (False, secret)
