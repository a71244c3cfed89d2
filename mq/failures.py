"""Errors as data: bounded text of any exception, whatever its own code does.

Nothing here trusts an exception: its `__str__` may raise, its message may be 50 MB, its traceback
thousands of frames deep, its causes a circle.
"""

from __future__ import annotations

import collections
import traceback
from collections.abc import Iterator
from types import TracebackType

import attrs

MAX_TYPE_BYTES = 256
MAX_MESSAGE_BYTES = 8 * 1024
MAX_TRACEBACK_BYTES = 32 * 1024
MAX_SUMMARY_BYTES = 64
MAX_FRAMES = 50
# Of a chain of causes, and of the members of a group.
_MAX_LINKS = 10
_MAX_NOTES = 5
_LINK_MESSAGE_BYTES = 1024
_LINE_CHARACTERS = 300
_ROOM_FOR_MARKER = 48
_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"


@attrs.frozen
class Description:
    """An exception as text: type path, message and formatted traceback, each bounded."""

    type: str
    message: str
    traceback: str


def describe(error: BaseException) -> Description:
    """Return an exception as bounded text; never raises."""
    message = truncate(_message(error), MAX_MESSAGE_BYTES)
    try:
        text = "".join(_format(error))
    except Exception as failure:  # noqa: BLE001 a broken traceback must not hide the failure
        text = f"(the traceback could not be formatted: {type(failure).__name__})\n"
    return Description(type_path(type(error)), message, truncate_head(text, MAX_TRACEBACK_BYTES))


def error_summary(error: BaseException) -> str:
    """Return `Type: message` on one line of at most 64 bytes; never raises."""
    return summary(type_path(type(error)), _message(error))


def summary(error_type: str, message: str) -> str:
    """Return the one-line summary of an error known by its type path and message."""
    name = error_type.rpartition(".")[2]
    # Longer than the line can be, and short enough to cost nothing.
    start = message[: 4 * MAX_SUMMARY_BYTES]
    text = f"{name}: {start}" if start else name
    line = " ".join("".join(c if c.isprintable() else " " for c in clean(text)).split())
    if len(line.encode()) <= MAX_SUMMARY_BYTES:
        return line
    ellipsis = "…"
    return _cut(line, MAX_SUMMARY_BYTES - len(ellipsis.encode())).rstrip() + ellipsis


def type_path(kind: type) -> str:
    """Return a class's module and qualified name, the module left out for builtins."""
    # A metaclass may answer anything, so ask type itself.
    module = type.__dict__["__module__"].__get__(kind)
    name = type.__dict__["__qualname__"].__get__(kind)
    path = name if module in ("builtins", "__main__") else f"{module}.{name}"
    return _cut(" ".join(clean(path).split()), MAX_TYPE_BYTES)


def clean(text: str) -> str:
    """Return text that utf-8 can carry: half surrogate pairs become their escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def truncate(text: str, limit: int) -> str:
    """Return text of at most `limit` bytes, keeping its beginning, with a marker when cut."""
    if len(text) <= limit and len(cleaned := clean(text).encode()) <= limit:
        return cleaned.decode()
    kept = _cut(clean(text[:limit]), limit - _ROOM_FOR_MARKER)
    return f"{kept}... [truncated {max(_size(text) - len(kept.encode()), 0)} bytes]"


def truncate_head(text: str, limit: int) -> str:
    """Return text of at most `limit` bytes, keeping its end: of a traceback the end says why."""
    data = clean(text).encode()
    if len(data) <= limit:
        return data.decode()
    kept = data[-(limit - _ROOM_FOR_MARKER) :]
    # Whole lines only, which also steps over half a character at the cut.
    kept = kept.partition(b"\n")[2] or kept
    return f"... [truncated {len(data) - len(kept)} bytes]\n{kept.decode('utf-8', 'ignore')}"


def _cut(text: str, limit: int) -> str:
    return text.encode()[:limit].decode("utf-8", "ignore")


def _size(text: str) -> int:
    """Return the size in utf-8, in pieces: a second copy of 50 MB would cost as much again."""
    if text.isascii():
        return len(text)
    step = 1 << 16
    pieces = (text[at : at + step] for at in range(0, len(text), step))
    return sum(len(piece.encode("utf-8", "backslashreplace")) for piece in pieces)


def _message(error: BaseException) -> str:
    try:
        # str.__str__ makes a plain str of any subclass, whose methods could be anything.
        return str.__str__(str(error))
    # A __str__ that raises SystemExit or overflows the stack must not end the worker's thread.
    except BaseException as failure:  # noqa: BLE001
        return f"<the message is unavailable: __str__ raised {type_path(type(failure))}>"


def _format(error: BaseException) -> Iterator[str]:
    """Yield the lines of a chain of exceptions, the first cause first."""
    chain: list[tuple[BaseException, str]] = [(error, "")]
    seen = {id(error)}
    while len(chain) < _MAX_LINKS:
        link = chain[-1][0]
        if link.__cause__ is not None:
            previous, joint = link.__cause__, _CAUSE
        elif link.__context__ is not None and not link.__suppress_context__:
            previous, joint = link.__context__, _CONTEXT
        else:
            break
        if id(previous) in seen:
            break
        seen.add(id(previous))
        chain.append((previous, joint))
    for link, joint in reversed(chain):
        yield from _format_one(link)
        yield joint


def _format_one(error: BaseException) -> Iterator[str]:
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):\n"
        yield from _frames(error.__traceback__)
    yield _headline(error)
    notes = getattr(error, "__notes__", None)
    for note in notes[:_MAX_NOTES] if isinstance(notes, list) else ():
        if isinstance(note, str):
            yield truncate(str.__str__(note), _LINK_MESSAGE_BYTES) + "\n"
    if isinstance(error, BaseExceptionGroup):
        members = error.exceptions
        for member in members[:_MAX_LINKS]:
            yield f"  | {_headline(member)}"
        if len(members) > _MAX_LINKS:
            yield f"  | ... [{len(members) - _MAX_LINKS} more exceptions]\n"


def _headline(error: BaseException) -> str:
    message = truncate(_message(error), _LINK_MESSAGE_BYTES)
    name = type_path(type(error))
    return f"{name}: {message}\n" if message else f"{name}\n"


def _frames(start: TracebackType) -> Iterator[str]:
    last: collections.deque[tuple[TracebackType, int]] = collections.deque(maxlen=MAX_FRAMES)
    count = 0
    step: TracebackType | None = start
    while step is not None:
        last.append((step, step.tb_lineno))
        count += 1
        step = step.tb_next
    if count > MAX_FRAMES:
        yield f"  ... [{count - MAX_FRAMES} earlier frames left out]\n"
    frames = ((link.tb_frame, line) for link, line in last)
    for frame in traceback.StackSummary.extract(frames):
        yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n'
        if frame.line:
            yield f"    {frame.line[:_LINE_CHARACTERS]}\n"
