"""Waiting for something to become true, never for some time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["eventually", "within"]

T = TypeVar("T")


def eventually(check: Callable[[], T], what: str, *, seconds: float = 20.0) -> T:
    """Return the first true result of ``check``; AssertionError if there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what} (last: {result!r})")
        time.sleep(0.005)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if the block takes longer: for waits that the code under test promises to bound."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took < seconds, f"took {took:.2f} s, expected less than {seconds} s"
