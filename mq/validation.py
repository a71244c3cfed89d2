"""Checks of names, ids, counts, metadata and instants: pure functions, one line per refusal."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from mq.errors import PayloadError

MAX_ATTEMPTS = 1_000_000
MAX_PRIORITY = 1_000
MAX_ID_BYTES = 512
MAX_METADATA_PAIRS = 16
MAX_METADATA_BYTES = 512
MAX_SCHEDULE_KEY_BYTES = 256
"""The id of an occurrence holds name, key and instant, and must be a job id."""
MAX_INSTANT_MS = 253_402_300_799_999
"""The last one a datetime can say, at the end of the year 9999."""
# Ids that mq makes itself begin with these words and a slash.
RESERVED_JOB_NAMES = frozenset({"sched", "flow"})

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_name(name: object, what: str) -> str:
    """Return a queue, job or metadata-key name, or raise if it is not one.

    Raises:
        TypeError: when it is not text.
        ValueError: when it is not 1 to 64 of `A-Z a-z 0-9 . _ -`.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what} must be text, got {type(name).__name__}")
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{what} {_shown(name)} must be 1 to 64 of A-Z a-z 0-9 . _ -")
    return str(name)


def check_job_name(name: object) -> str:
    """Return a job name, or raise if it is malformed or reserved."""
    checked = check_name(name, "job name")
    if checked in RESERVED_JOB_NAMES:
        raise ValueError(f"job name {checked!r} is reserved for mq's own ids; choose another")
    return checked


def check_text(value: object, what: str, *, min_bytes: int = 1, max_bytes: int) -> str:
    """Return free text that may stand in a key: bounded, encodable, without control characters.

    Raises:
        TypeError: when it is not text.
        ValueError: when it is too long or short, or holds what utf-8 or a terminal cannot.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, got {type(value).__name__}; pass str(...)")
    if len(value) > max_bytes:
        raise ValueError(f"{what} must be at most {max_bytes} bytes, got {len(value)} characters")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} {_shown(value)} holds half a surrogate pair") from None
    if not min_bytes <= size <= max_bytes:
        raise ValueError(f"{what} must be {min_bytes} to {max_bytes} bytes, got {size}")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise ValueError(f"{what} {_shown(value)} holds a control character; leave it out")
    # A subclass of str compares and hashes as it likes: only its text travels on.
    return str.__str__(value)


def check_job_id(job_id: object) -> str:
    """Return an explicit job id: 1 to 512 bytes of text without control characters."""
    return check_text(job_id, "job id", max_bytes=MAX_ID_BYTES)


def id_bytes(job_id: object) -> bytes:
    """Return the bytes of an id that is looked up; one that no job can have is merely unknown.

    Raises:
        TypeError: when it is not text.
    """
    if not isinstance(job_id, str):
        raise TypeError(f"job id must be text, got {type(job_id).__name__}")
    return job_id.encode("utf-8", "surrogatepass")


def check_list(values: object, what: str) -> list[Any]:
    """Return what was given as a list; a text, which is one of characters, is none."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a list, got {_shown(repr(values))}")
    return list(values)


def all_id_bytes(job_ids: object) -> list[bytes]:
    """Return the bytes of each of the ids that are looked up, as `id_bytes` does."""
    return [id_bytes(job_id) for job_id in check_list(job_ids, "job ids")]


def check_count(value: object, what: str, low: int, high: int) -> int:
    """Return a whole number between `low` and `high`, both allowed; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be a whole number, got {type(value).__name__}")
    if not low <= value <= high:
        shown = value if abs(value) < 10**20 else "one of more than 20 digits"
        raise ValueError(f"{what} must be {low} to {high}, got {shown}")
    return int(value)


def check_attempts(value: object) -> int:
    """Return the total number of runs a job may have, the first included."""
    return check_count(value, "attempts", 1, MAX_ATTEMPTS)


def check_priority(value: object) -> int:
    """Return a priority: higher is claimed first."""
    return check_count(value, "priority", -MAX_PRIORITY, MAX_PRIORITY)


def check_metadata(metadata: object) -> dict[str, str]:
    """Return metadata as a plain dict of at most 16 pairs.

    Raises:
        PayloadError: naming the key that is at fault.
    """
    if not isinstance(metadata, Mapping):
        raise PayloadError("metadata", f"must be a dict of text, got {type(metadata).__name__}")
    if len(metadata) > MAX_METADATA_PAIRS:
        reason = f"has {len(metadata)} pairs; at most {MAX_METADATA_PAIRS} are indexed per job"
        raise PayloadError("metadata", reason)
    checked = {}
    for key, value in metadata.items():
        try:
            name = check_name(key, "metadata key")
        except (TypeError, ValueError) as error:
            raise PayloadError("metadata", str(error)) from None
        try:
            checked[name] = check_text(value, "value", min_bytes=0, max_bytes=MAX_METADATA_BYTES)
        except (TypeError, ValueError) as error:
            raise PayloadError(f"metadata[{name!r}]", str(error)) from None
    return checked


def check_indexed(keys: object) -> tuple[str, ...]:
    """Return the metadata keys that are to be indexed, each once."""
    if isinstance(keys, str) or not isinstance(keys, Sequence):
        raise TypeError(f"indexed_metadata must be a list of metadata keys, got {keys!r}")
    return tuple(dict.fromkeys(check_name(key, "indexed metadata key") for key in keys))


def check_instant(at: object, what: str = "at") -> int:
    """Return an aware datetime as ms since 1970, what is finer than 1 ms cut off.

    Raises:
        TypeError: when it is not a datetime.
        ValueError: when it is naive: mq does not guess a zone.
    """
    if not isinstance(at, datetime):
        raise TypeError(f"{what} must be a datetime with a zone, got {type(at).__name__}")
    if at.utcoffset() is None:
        raise ValueError(
            f"{what} must have a zone, got the naive {at.isoformat()}; "
            "pass datetime.now(timezone.utc) or set tzinfo=ZoneInfo(...)"
        )
    return (at - _EPOCH) // timedelta(milliseconds=1)


def check_instant_ms(value: object, what: str) -> int:
    """Return an instant given as whole ms since 1970; 0 is one like any other."""
    return check_count(value, what, 0, MAX_INSTANT_MS)


def check_schedule_key(key: object) -> str:
    """Return the key of a schedule: 1 to 256 bytes of text without control characters."""
    return check_text(key, "schedule key", max_bytes=MAX_SCHEDULE_KEY_BYTES)


def _shown(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 80 else shown[:77] + "..."
