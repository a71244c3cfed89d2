"""Errors as text: bounded in size and cost, whatever an exception's own code does."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.failures import (
    MAX_FRAMES,
    MAX_MESSAGE_BYTES,
    MAX_SUMMARY_BYTES,
    MAX_TRACEBACK_BYTES,
    describe,
    error_summary,
    truncate,
    truncate_head,
)


class Evil(str):
    """Text with opinions."""

    __slots__ = ()

    def __len__(self) -> int:
        """Lie."""
        return 0

    def encode(self, *_: Any, **__: Any) -> bytes:
        """Raise."""
        raise RuntimeError


class Raises(Exception):
    """Cannot be shown."""

    def __str__(self) -> str:
        """Raise."""
        raise ValueError("no text today")

    __repr__ = __str__


class Exits(Exception):
    """Ends the process that shows it."""

    def __str__(self) -> str:
        """Exit."""
        raise SystemExit(3)


class Endless(Exception):
    """Overflows the stack of who shows it."""

    def __str__(self) -> str:
        """Recurse."""
        return str(self)


class Lies(Exception):
    """Text of a class of its own."""

    def __str__(self) -> str:
        """Answer text with opinions."""
        return Evil("plain")


class NotText(Exception):
    """Not text at all."""

    def __str__(self) -> str:
        """Answer a number."""
        return 5  # type: ignore[return-value]  # noqa: PLE0307 the point


class Property(Exception):
    """Has one attribute that raises."""

    @property
    def __notes__(self) -> Any:
        """Raise."""
        raise KeyError


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """Return the error after it was raised."""
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 that is what is asked for
        return caught


def deep(frames: int) -> BaseException:
    """Return an error that passed that many frames."""

    def down(left: int) -> None:
        if left == 0:
            raise ValueError("at the bottom")
        down(left - 1)

    try:
        down(frames)
    except ValueError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "message", "summary"),
    [
        (ValueError("bad invoice"), "bad invoice", "ValueError: bad invoice"),
        (ValueError(), "", "ValueError"),
        (KeyError("x"), "'x'", "KeyError: 'x'"),
        (ValueError("a\nb\tc\u2028d\x00e"), "a\nb\tc\u2028d\x00e", "ValueError: a b c d e"),
        (ValueError("\ud83d"), "\\ud83d", "ValueError: \\ud83d"),
        (ValueError("é" * 100), "é" * 100, "ValueError: " + "é" * 24 + "…"),
        (Lies(), "plain", "Lies: plain"),
        (Raises(), "<the message is unavailable: __str__ raised ValueError>", "Raises: "),
        (Exits(), "<the message is unavailable: __str__ raised SystemExit>", "Exits: "),
        (Endless(), "<the message is unavailable: __str__ raised RecursionError>", "Endless: "),
        (NotText(), "<the message is unavailable: __str__ raised TypeError>", "NotText: "),
        (type("A\nB" * 100, (Exception,), {})("x"), "x", "A BA B"),
    ],
)
def test_every_exception_has_a_message_and_a_summary(
    error: Exception, message: str, summary: str
) -> None:
    """One line of at most 64 bytes, cut between characters."""
    assert describe(raised(error)).message == message
    line = error_summary(error)
    assert line.startswith(summary)
    assert len(line.encode()) <= MAX_SUMMARY_BYTES
    assert line.isprintable()


@settings(max_examples=60)
@given(st.text(st.characters(codec=None)), st.integers(60, 200))
def test_any_text_is_cut_to_what_utf8_can_carry(text: str, limit: int) -> None:
    """Half surrogates included; a text that fits is kept."""
    for cut in (truncate(text, limit), truncate_head(text, limit)):
        assert len(cut.encode()) <= limit
        assert "[truncated " in cut or cut == text.encode("utf-8", "backslashreplace").decode()


def test_a_huge_message_is_cut_with_a_marker_that_says_how_much() -> None:
    """Fifty megabytes of plain and of wide text."""
    for text in ("x" * 50_000_000, "é" * 5_000_000):
        size = len(text) if text.isascii() else 2 * len(text)
        told = describe(raised(ValueError(text)))
        kept, _, marker = told.message.partition("... [truncated ")
        assert len(told.message.encode()) <= MAX_MESSAGE_BYTES
        assert int(marker.removesuffix(" bytes]")) + len(kept.encode()) == size
        assert len(told.traceback) < 4_000


@pytest.mark.parametrize("frames", [0, 45, 900])
def test_a_traceback_keeps_its_last_frames(frames: int) -> None:
    """The end says why."""
    told = describe(deep(frames))
    assert told.traceback.startswith("Traceback (most recent call last):\n")
    assert told.traceback.endswith("ValueError: at the bottom\n")
    assert told.traceback.count("  File ") == min(frames + 2, MAX_FRAMES)
    assert ("earlier frames left out]" in told.traceback) == (frames + 2 > MAX_FRAMES)
    assert len(told.traceback.encode()) <= MAX_TRACEBACK_BYTES


def _five_thousand_frames() -> BaseException:
    error = deep(10)
    for _ in range(500):
        try:
            raise error.with_traceback(deep(10).__traceback__)
        except ValueError as again:
            error = again
    trace = error.__traceback__
    for _ in range(5_000):
        assert trace is not None
        trace = types.TracebackType(trace, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    return error.with_traceback(trace)


def _circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__context__, second.__context__ = second, first
    return first


def _chain(length: int) -> BaseException:
    error: BaseException = ValueError("link 0")
    for number in range(1, length):
        error = raised(ValueError(f"link {number}"), error)
    return error


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (_five_thousand_frames, ["earlier frames left out]"]),
        (_circle, ["second", "During handling", "first"]),
        (lambda: _chain(3), ["link 0", "direct cause", "link 1", "direct cause", "link 2"]),
        (lambda: _chain(3_000), ["link 2999"]),
        (lambda: ExceptionGroup("many", [Raises()] * 1_000), ["many", "unavailable", "990 more"]),
        (lambda: _chain(2).with_traceback(None), ["link 0", "link 1"]),
        (lambda: Property("odd"), ["could not be formatted: KeyError"]),
    ],
)
def test_odd_tracebacks_are_bounded_text(
    make: Callable[[], BaseException], parts: list[str]
) -> None:
    """Chains, circles, groups and what raises while it is looked at."""
    text = describe(make()).traceback
    assert len(text.encode()) <= MAX_TRACEBACK_BYTES
    at = 0
    for part in parts:
        at = text.index(part, at) + len(part)


def test_notes_are_shown_and_suppressed_contexts_are_not() -> None:
    """As Python itself does."""
    error = raised(ValueError("shown"))
    error.__context__, error.__suppress_context__ = KeyError("hidden"), True
    error.add_note("a note")
    text = describe(error).traceback
    assert "a note" in text
    assert "hidden" not in text


def test_a_type_is_known_by_its_module_and_qualified_name() -> None:
    """Builtins go without."""
    assert describe(ValueError()).type == "ValueError"
    assert describe(Raises()).type == f"{__name__}.Raises"
