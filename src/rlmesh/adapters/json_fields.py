"""Reading the fields of one JSON object, with the place in every complaint."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from rlmesh.adapters.fields import pair

__all__ = [
    "Fields",
    "boolean",
    "count",
    "integers",
    "names",
    "number",
    "numbers",
    "range_of",
    "text",
]

T = TypeVar("T")
_MISSING = object()
IGNORED_PREFIXES = ("x-", "ext.")
"""How a field begins that any reader may ignore."""


class Fields:
    """The fields of one JSON value that are still to be read, and where the value stands."""

    def __init__(self, data: Any, what: str, where: str = "") -> None:
        self.data = data
        self.what = what
        self.where = where
        self._left: dict[str, Any] | None = None

    # Places

    def at(self, key: str) -> Fields:
        """The place of a key, without its value."""
        return Fields(None, self.what, f"{self.where}.{key}" if self.where else key)

    def item(self, index: int) -> Fields:
        """The place of an item of an array, without its value."""
        return Fields(None, self.what, f"{self.where}[{index}]")

    def of(self, data: Any) -> Fields:
        """The same place with a value."""
        return Fields(data, self.what, self.where)

    def fault(self, message: str) -> ValueError:
        """An error that names the place."""
        where = f" at {self.where}" if self.where else ""
        return ValueError(f"{self.what}{where}: {message}")

    # Reading

    def _fields(self) -> dict[str, Any]:
        if self._left is None:
            data: Any = self.data
            if not isinstance(data, Mapping):
                raise self.fault(f"expected an object, got {shown(data)}")
            self._left = {
                key: value
                for key, value in cast("Mapping[str, Any]", data).items()
                if not str(key).startswith(IGNORED_PREFIXES) and key != "type"
            }
        return self._left

    def take(self, key: str, default: Any = _MISSING) -> Any:
        """The value of a key; ValueError if it is missing and no default is given."""
        value = self._fields().pop(key, default)
        if value is _MISSING:
            raise self.fault(f"missing field {key!r}")
        return value

    def nested(self, key: str) -> Fields:
        """A required object, to be read in turn."""
        return self.at(key).of(self.take(key))

    def list_of(self, key: str) -> list[Fields]:
        """A required array, each item to be read in turn."""
        at, items = self.at(key), self.take(key)
        if not isinstance(items, list):
            raise at.fault(f"expected an array, got {shown(items)}")
        return [at.item(i).of(item) for i, item in enumerate(cast("list[Any]", items))]

    def required(self, key: str, read: Callable[[Any, Fields], T]) -> T:
        """A value that must be there."""
        return read(self.take(key), self.at(key))

    def read(self, **readers: Callable[[Any, Fields], Any]) -> dict[str, Any]:
        """The fields among ``readers`` that are there and not null."""
        out: dict[str, Any] = {}
        for key, read in readers.items():
            value = self.take(key, None)
            if value is not None:
                out[key] = read(value, self.at(key))
        return out

    def finish(self) -> None:
        """Refuse every field that nobody read."""
        for key in self._fields():
            raise self.fault(
                f'declares unrecognized field "{key}"; upgrade rlmesh, drop the field, or prefix '
                "it x- to mark it ignorable"
            )


def shown(value: Any) -> str:
    """A JSON value as a message names it."""
    try:
        return json.dumps(value)[:80]
    except (TypeError, ValueError):
        return f"a value JSON has no form for ({type(value).__name__})"


def text(value: Any, at: Fields) -> str:
    """A string."""
    if not isinstance(value, str):
        raise at.fault(f"expected a string, got {shown(value)}")
    return value


def boolean(value: Any, at: Fields) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise at.fault(f"expected a boolean, got {shown(value)}")
    return value


def count(value: Any, at: Fields) -> int:
    """A non-negative integer, written without a fraction."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise at.fault(f"must be a non-negative integer, got {shown(value)}")
    return value


def number(value: Any, at: Fields) -> float:
    """A finite number."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise at.fault(f"expected a number, got {shown(value)}")
    if value != value or value in (float("inf"), float("-inf")):
        raise at.fault(f"must be finite, got {value!r}; JSON has no NaN and no infinity")
    return float(value)


def _items(value: Any, at: Fields, what: str) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise at.fault(f"expected {what}, got {shown(value)}")
    return list(cast("list[Any]", value))


def numbers(value: Any, at: Fields) -> tuple[float, ...]:
    """An array of finite numbers."""
    items = _items(value, at, "an array of numbers")
    return tuple(number(item, at.item(i)) for i, item in enumerate(items))


def integers(value: Any, at: Fields) -> tuple[int, ...]:
    """An array of integers."""
    items = _items(value, at, "an array of integers")
    for item in items:
        if not isinstance(item, int) or isinstance(item, bool):
            raise at.fault(f"expected an array of integers, got {shown(value)}")
    return tuple(items)


def range_of(value: Any, at: Fields) -> tuple[float, float]:
    """A pair [min, max] of finite numbers in order."""
    try:
        low, high = pair(_items(value, at, "a pair [min, max]"), "range")
    except ValueError as exc:
        raise exc if str(exc).startswith(at.what) else at.fault(str(exc)) from None
    return float(low), float(high)


def names(value: Any, at: Fields) -> str | tuple[str, ...]:
    """A string or an array of strings."""
    if isinstance(value, str):
        return value
    items = _items(value, at, "a string or an array of strings")
    return tuple(text(item, at.item(i)) for i, item in enumerate(items))
