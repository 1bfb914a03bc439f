"""Identifiers that clients mint."""

from __future__ import annotations

import os
import time
import uuid

__all__ = ["uuid7"]


def uuid7() -> str:
    """Return a UUID version 7 (RFC 9562): time-ordered, 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80
    value |= 0x7 << 76 | (random >> 64 & 0xFFF) << 64
    value |= 0b10 << 62 | random & (1 << 62) - 1
    return str(uuid.UUID(int=value))
