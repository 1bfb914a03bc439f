"""Strings of a bounded length."""

from __future__ import annotations

import string
from typing import Any, ClassVar

import numpy as np

from rlmesh.spaces.arrays import as_int
from rlmesh.spaces.base import LeafSpace, quoted
from rlmesh.spaces.dtypes import DTYPES

__all__ = ["Text"]

_PRINTABLE = "".join(c for c in string.printable if c.isprintable())

# A max_length of millions is a limit, not a wish for samples of millions of characters.
_LONGEST_SAMPLE = 1024


class Text(LeafSpace):
    """Strings of ``min_length`` to ``max_length`` characters, all of them from ``charset``.

    Args:
        max_length: Largest number of characters, > 0.
        min_length: Smallest number of characters, default 1; 0 allows the empty string.
        charset: The characters allowed; None or ``""`` allows any. Their order only affects
            which samples a seed gives.

    Raises:
        TypeError: A length is no int or the charset no string.
        ValueError: The lengths are negative or out of order, or the charset holds a lone surrogate.

    >>> task = Text(5, charset="ab")
    >>> task
    Text(1, 5, charset="ab")
    >>> task.contains("abba"), task.contains("abc"), task.contains("")
    (True, False, False)
    >>> Text(200).contains("pick up the 🍎")
    True
    """

    kind: ClassVar[str] = "text"

    min_length: int
    max_length: int
    charset: str
    _characters: frozenset[str]

    def __init__(self, max_length: int, min_length: int = 1, charset: str | None = None) -> None:
        shortest = as_int(min_length, "Text min_length")
        longest = as_int(max_length, "Text max_length")
        if longest <= 0:
            raise ValueError(f"Text max_length must be > 0, got {longest}; use at least 1")
        if longest >= 2**63:
            raise ValueError(f"Text max_length must fit int64, got {longest}; use a lower limit")
        if shortest < 0:
            raise ValueError(f"Text min_length must be >= 0, got {shortest}; 0 allows empty text")
        if shortest > longest:
            raise ValueError(
                f"Text min_length must be <= max_length, got {shortest} > {longest}; swap the two"
            )
        if charset is not None and not isinstance(charset, str):  # type: ignore[redundant-expr]
            raise TypeError(
                f"Text charset: expected a string of the allowed characters, got {charset!r}; "
                'write "".join(sorted(charset))'
            )
        charset = charset or ""
        if not _is_unicode(charset):
            raise ValueError(
                f"Text charset: expected Unicode characters, got a lone surrogate in {charset!r}; "
                "remove it, it cannot be sent as UTF-8"
            )
        self._freeze(
            _shape=(),
            _dtype=DTYPES["uint8"],
            min_length=shortest,
            max_length=longest,
            charset=charset,
            _characters=frozenset(charset),
        )

    def contains(self, value: object) -> bool:
        """Whether ``value`` is a string of allowed length (in characters) and characters."""
        if not isinstance(value, str) or not self.min_length <= len(value) <= self.max_length:
            return False
        if self._characters:
            return self._characters.issuperset(value)
        return _is_unicode(value)

    def _draw(self, rng: np.random.Generator) -> str:
        """Any length up to 1024 characters, printable ASCII where any character is allowed."""
        alphabet = list(dict.fromkeys(self.charset)) or list(_PRINTABLE)
        longest = min(self.max_length, max(self.min_length, _LONGEST_SAMPLE))
        length = rng.integers(self.min_length, longest, endpoint=True)
        picks: list[int] = rng.integers(len(alphabet), size=length).tolist()
        return "".join(alphabet[pick] for pick in picks)

    def _same(self, other: Text) -> bool:
        return (self.min_length, self.max_length, self._characters) == (
            other.min_length,
            other.max_length,
            other._characters,
        )

    def _details(self) -> dict[str, Any]:
        return {
            "min_length": self.min_length,
            "max_length": self.max_length,
            "charset": self.charset,
        }

    def __repr__(self) -> str:
        charset = quoted(self.charset)
        suffix = f", charset={charset}" if self.charset else ""
        return f"Text({self.min_length}, {self.max_length}{suffix})"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
