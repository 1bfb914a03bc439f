"""Spaces made of other spaces."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, cast

import numpy as np

from rlmesh.spaces.base import Framework, Space, quoted

__all__ = ["Dict", "Tuple"]

_Self = TypeVar("_Self", bound="_Container")


class _Container(Space):
    @abstractmethod
    def _replace_children(self: _Self, change: Callable[[Space], Space]) -> _Self:
        """Itself, a copy nobody has seen yet, now holding ``change(child)`` for every child."""

    # A copy shares no random state, that of its children included.
    def __copy__(self: _Self) -> _Self:
        return super().__copy__()._replace_children(lambda child: child.__copy__())

    def bound_to(self: _Self, framework: Framework | None) -> _Self:
        """A copy whose samples hold the arrays of ``framework`` at every leaf."""
        return (
            super().bound_to(framework)._replace_children(lambda child: child.bound_to(framework))
        )


class Dict(_Container):
    """Dicts with a fixed set of string keys, each with a space of its own.

    Reads as a mapping: ``space["key"]``, iteration, ``len``, ``in`` (for a string), ``keys``,
    ``values``, ``items``, ``get``.

    Args:
        spaces: Mapping from key to space. Keys are sorted; :meth:`ordered` keeps their order.

    Raises:
        TypeError: A key is no string or a value no space.
        ValueError: A key is empty or given twice.

    >>> robot = Dict({"gripper": Discrete(2), "arm": Box(-1.0, 1.0, (7,))})
    >>> robot
    Dict("arm": Box(-1.0, 1.0, (7,), float32), "gripper": Discrete(2))
    >>> list(robot), robot["gripper"].n
    (['arm', 'gripper'], 2)
    >>> robot.contains({"arm": [0.0] * 7, "gripper": 1}), robot.contains({"gripper": 1})
    (True, False)
    """

    kind: ClassVar[str] = "dict"

    _spaces: dict[str, Space]

    def __init__(self, spaces: Mapping[str, Space]) -> None:
        entries = _entries(spaces)
        self._freeze(_shape=(), _spaces={key: entries[key] for key in sorted(entries)})

    @classmethod
    def ordered(cls, items: Mapping[str, Space] | Iterable[tuple[str, Space]]) -> Dict:
        """A Dict that keeps the order of ``items``, which is the order its leaves travel in."""
        entries = _entries(items)
        space = cls(entries)
        space._freeze(_spaces=entries)
        return space

    @property
    def spaces(self) -> Mapping[str, Space]:
        """Read-only mapping from key to space, in layout order."""
        return MappingProxyType(self._spaces)

    def keys(self) -> KeysView[str]:
        """The keys in layout order."""
        return self._spaces.keys()

    def values(self) -> ValuesView[Space]:
        """The spaces in layout order."""
        return self._spaces.values()

    def items(self) -> ItemsView[str, Space]:
        """Pairs of key and space in layout order."""
        return self._spaces.items()

    def get(self, key: str, default: Any = None) -> Any:
        """The space at ``key``, or ``default``."""
        return self._spaces.get(key, default)

    def __getitem__(self, key: str) -> Space:
        return self._spaces[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._spaces)

    def __len__(self) -> int:
        return len(self._spaces)

    def __contains__(self, value: object) -> bool:
        """Whether a string is a key; anything else is looked at as a value, as in Gymnasium."""
        return value in self._spaces if isinstance(value, str) else self.contains(value)

    def contains(self, value: object) -> bool:
        """Whether ``value`` is a mapping with exactly these keys and a member at each."""
        if not isinstance(value, Mapping):
            return False
        mapping = cast("Mapping[object, object]", value)
        return mapping.keys() == self._spaces.keys() and all(
            space.contains(mapping[key]) for key, space in self._spaces.items()
        )

    def _replace_children(self, change: Callable[[Space], Space]) -> Dict:
        self._freeze(_spaces={key: change(space) for key, space in self._spaces.items()})
        return self

    def _draw(self, rng: np.random.Generator) -> dict[str, Any]:
        return {key: space._draw(rng) for key, space in self._spaces.items()}

    def _same(self, other: Dict) -> bool:
        return list(self._spaces.items()) == list(other._spaces.items())

    def _details(self) -> dict[str, Any]:
        return {"spaces": {key: space._to_dict() for key, space in self._spaces.items()}}

    def __repr__(self) -> str:
        pairs = (f"{quoted(k)}: {s!r}" for k, s in self._spaces.items())
        return f"Dict({', '.join(pairs)})"


class Tuple(_Container):
    """Tuples of a fixed length, each place with a space of its own.

    Reads as a sequence: ``space[0]``, iteration, ``len``.

    Args:
        spaces: The spaces in order.

    Raises:
        TypeError: An item is no space.

    >>> pair = Tuple([Discrete(2), Text(3)])
    >>> pair
    Tuple(Discrete(2), Text(1, 3))
    >>> pair.contains((1, "abc")), pair.contains((1,))
    (True, False)
    """

    kind: ClassVar[str] = "tuple"

    _spaces: tuple[Space, ...]

    def __init__(self, spaces: Iterable[Space]) -> None:
        items = tuple(spaces)
        for i, space in enumerate(items):
            _check_space(space, f"Tuple item {i}")
        self._freeze(_shape=(), _spaces=items)

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The spaces in order."""
        return self._spaces

    def __getitem__(self, index: int) -> Space:
        return self._spaces[index]

    def __iter__(self) -> Iterator[Space]:
        return iter(self._spaces)

    def __len__(self) -> int:
        return len(self._spaces)

    def contains(self, value: object) -> bool:
        """Whether ``value`` (a tuple, list or array) has this length and a member at each place."""
        if not isinstance(value, (tuple, list, np.ndarray)):
            return False
        items = list(cast("Iterable[object]", value))
        return len(items) == len(self._spaces) and all(
            space.contains(item) for space, item in zip(self._spaces, items, strict=True)
        )

    def _replace_children(self, change: Callable[[Space], Space]) -> Tuple:
        self._freeze(_spaces=tuple(change(space) for space in self._spaces))
        return self

    def _draw(self, rng: np.random.Generator) -> tuple[Any, ...]:
        return tuple(space._draw(rng) for space in self._spaces)

    def _same(self, other: Tuple) -> bool:
        return self._spaces == other._spaces

    def _details(self) -> dict[str, Any]:
        return {"spaces": [space._to_dict() for space in self._spaces]}

    def __repr__(self) -> str:
        return f"Tuple({', '.join(map(repr, self._spaces))})"


def _entries(items: Mapping[str, Space] | Iterable[tuple[str, Space]]) -> dict[str, Space]:
    pairs: Any = cast("Mapping[Any, Any]", items).items() if isinstance(items, Mapping) else items
    try:
        pairs = [(key, space) for key, space in pairs]
    except (TypeError, ValueError):
        raise TypeError(
            f"Dict: expected a mapping from key to space, got {items!r}; pass a dict"
        ) from None
    entries: dict[str, Space] = {}
    for key, space in pairs:
        if not isinstance(key, str):
            raise TypeError(
                f"Dict key: expected a str, got {key!r} ({type(key).__name__}); use str(key)"
            )
        if not key:
            raise ValueError("Dict keys must be non-empty: expected a name, got ''; name the entry")
        if key in entries:
            raise ValueError(f"Dict key {key!r} was given twice; rename one of the entries")
        _check_space(space, f"Dict entry {key!r}")
        entries[key] = space
    return entries


def _check_space(space: object, what: str) -> None:
    if not isinstance(space, Space):
        raise TypeError(
            f"{what}: expected an rlmesh space, got {space!r} ({type(space).__name__}); convert a "
            "Gymnasium space with rlmesh.spaces.from_gymnasium_space(...)"
        )
