"""Whatever an author wrote, as JSON data that is the same in every process."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

__all__ = ["plain", "text_of"]

_MOST_LEVELS = 64
_MOST_ELEMENTS = 1024
_MOST_CHARACTERS = 1000

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def plain(value: Any) -> Any:
    """Return ``value`` as JSON data; never raises.

    Numbers that are not finite become None; NumPy's become Python's, and its arrays lists, or a
    word on their shape beyond 1024 elements. Mappings get text as keys, sets an order. Anything
    else is its ``repr`` without memory addresses, which differ from run to run.
    """
    return _plain(value, ())


def text_of(value: Any) -> str:
    """Return the ``str`` of ``value``, bounded and without memory addresses, whatever it raises."""
    return _bounded(str, value)


def _plain(value: Any, inside: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    # A subclass (a member of an IntEnum, say) counts as what it is to JSON.
    if isinstance(value, str):
        return _encodable(str.__str__(value))
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value) if math.isfinite(value) else None
    if id(value) in inside or len(inside) > _MOST_LEVELS:
        return "..."
    inside = (*inside, id(value))
    try:
        return _container(value, inside)
    except Exception:  # of the author's own class
        return _bounded(repr, value)


def _container(value: Any, inside: tuple[int, ...]) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return _array(cast("Any", value), inside)
    if isinstance(value, Mapping):
        items = list(cast("Mapping[Any, Any]", value).items())
        return {_key(key): _plain(item, inside) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_plain(item, inside) for item in cast("Iterable[Any]", value)]
    if isinstance(value, (set, frozenset)):
        items = [_plain(item, inside) for item in cast("Iterable[Any]", value)]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    return _bounded(repr, value)


def _array(value: Any, inside: tuple[int, ...]) -> Any:
    if value.size > _MOST_ELEMENTS:
        return f"<{value.dtype}{list(value.shape)} array>"
    items = value.tolist()
    # What NumPy hands back as its own has no Python form.
    return _bounded(repr, items) if isinstance(items, np.generic) else _plain(items, inside)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return _encodable(str.__str__(key))
    # As json.dumps writes them.
    return (
        json.dumps(plain(key)) if isinstance(key, (bool, int, float, type(None))) else text_of(key)
    )


def _bounded(write: Any, value: Any) -> str:
    try:
        text = write(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    text = _ADDRESS.sub("", text)
    if len(text) > _MOST_CHARACTERS:
        text = text[:_MOST_CHARACTERS] + "..."
    return _encodable(text)


def _encodable(text: str) -> str:
    """Return ``text`` with what UTF-8 cannot hold (lone surrogates) written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
