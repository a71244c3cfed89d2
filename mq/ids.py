"""Ids and nonces: made by the client, so that a call can be repeated without coordination."""

from __future__ import annotations

import base64
import os

import uuid_utils

# The generator lives in native memory that a forked child inherits: without a new seed, parent
# and child would draw the same random bits.
os.register_at_fork(after_in_child=uuid_utils.reseed_rng)


def new_id() -> str:
    """Return a job id of 26 characters whose text order is the order of making.

    A UUIDv7 in base 32 with the alphabet that keeps byte order; increasing within a process,
    across its threads, and by the clock's millisecond between processes.
    """
    return base64.b32hexencode(uuid_utils.uuid7().bytes)[:26].decode().lower()


def new_nonce() -> str:
    """Return 22 characters of 128 random bits, straight from the system: safe across forks."""
    return base64.urlsafe_b64encode(os.urandom(16))[:22].decode()
