"""Checks and canonical forms shared by the tags, specs and actuators a person writes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np

__all__ = ["accept_set", "axis_values", "is_number", "label_tuple", "pair", "take_plain"]


def take_plain(spec: Any) -> None:
    """Make NumPy scalars, arrays and lists in a frozen dataclass plain numbers and tuples.

    So that it hashes, compares and serialises.
    """
    for item in dataclasses.fields(spec):
        value = getattr(spec, item.name)
        plain = _plain(value)
        if plain is not value:
            object.__setattr__(spec, item.name, plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return cast("Any", value).item()
    if isinstance(value, (np.ndarray, list)):
        return tuple(_plain(item) for item in cast("list[Any]", value))
    if isinstance(value, tuple):
        items = cast("tuple[Any, ...]", value)
        if any(isinstance(item, (np.generic, np.ndarray)) for item in items):
            return tuple(_plain(item) for item in items)
        return items
    return value


def is_number(value: object) -> bool:
    """Whether a value is a real number; bools are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def accept_set(value: Any, who: str, what: str = "encoding") -> Any:
    """One name, or several in order of preference; one in a list is that one.

    Raises:
        ValueError: a number, or a member of the sequence is no string.
    """
    if isinstance(value, (int, float)):
        raise ValueError(
            f"{who}: {what} must be a name, got {value!r}; a width is given as dim={value!r}"
        )
    if value is None or isinstance(value, str) or not isinstance(value, Iterable):
        return value
    members = tuple(cast("Iterable[Any]", value))
    for member in members:
        if not isinstance(member, str):
            raise ValueError(
                f"{who}: an {what} accept-set must contain only names (strings), got "
                f"{type(member).__name__}; a CustomEncoding stands alone, not in a set"
            )
    return members[0] if len(members) == 1 else members


def label_tuple(labels: Any, who: str) -> tuple[str, ...] | None:
    """The labels as a tuple of distinct strings, None if there are none to check.

    Raises:
        ValueError: no label, a repeated one, or one that is no string.
    """
    if labels is None:
        return None
    if isinstance(labels, str):
        raise ValueError(
            f"{who}: labels must be a sequence of names, got the string {labels!r}; "
            f"write ({labels!r},) for one"
        )
    names = tuple(cast("Iterable[Any]", labels))
    if not names:
        raise ValueError(f"{who}: labels must name at least one element; drop labels otherwise")
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"{who}: labels must be strings, got {name!r}")
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{who}: labels must not repeat a name, got {repeated!r} twice")
    return names


def axis_values(value: Any) -> Any:
    """A number as it is, a per-axis sequence as a tuple of floats."""
    if value is None or is_number(value):
        return value
    return tuple(float(item) for item in cast("Sequence[Any]", value))


def pair(value: Any, who: str) -> Any:
    """A range as a tuple (low, high), None as None.

    Raises:
        ValueError: not two finite numbers in order.
    """
    if value is None:
        return None
    items: tuple[Any, ...] = (
        tuple(cast("Iterable[Any]", value)) if isinstance(value, Iterable) else (value,)
    )
    if len(items) != 2 or not all(is_number(item) for item in items):
        raise ValueError(f"{who} must be a pair of numbers (min, max), got {value!r}")
    low, high = items
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{who} must be finite, got {value!r}; leave it out for no bound")
    if low > high:
        raise ValueError(f"{who} must have min <= max, got {value!r}; swap the two")
    return items
