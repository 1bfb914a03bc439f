"""Sending only what a policy reads: the part of a space that holds some of its leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from rlmesh.spaces import Dict, Space, Tuple

__all__ = ["leaves_under", "project"]

_Path = tuple["str | int", ...]


def leaves_under(space: Space, paths: Sequence[_Path]) -> list[int]:
    """Return the pre-order indices of the leaves at or below any of ``paths``."""
    return [
        index
        for index, leaf in enumerate(_leaf_paths(space, ()))
        if any(leaf[: len(path)] == path for path in paths)
    ]


def project(space: Space, leaves: Collection[int]) -> Space | None:
    """Return the part of ``space`` with these leaves; None if that is all of it or nothing.

    Dict keys without any of them fall away. A Tuple stays whole, as its items have no names.
    """
    counter = iter(range(1 << 30))
    part = _prune(space, frozenset(leaves), counter)
    return None if part is None or part == space else part


def _prune(space: Space, wanted: frozenset[int], counter: Iterator[int]) -> Space | None:
    if isinstance(space, Dict):
        items = [(key, _prune(child, wanted, counter)) for key, child in space.items()]
        kept = [(key, child) for key, child in items if child is not None]
        return Dict.ordered(kept) if kept else None
    count = sum(1 for _ in _leaf_paths(space, ()))
    indices = [next(counter) for _ in range(count)]
    return space if any(index in wanted for index in indices) else None


def _leaf_paths(space: Space, path: _Path) -> Iterator[_Path]:
    if isinstance(space, Dict):
        for key, child in space.items():
            yield from _leaf_paths(child, (*path, key))
    elif isinstance(space, Tuple):
        for index, child in enumerate(space):
            yield from _leaf_paths(child, (*path, index))
    else:
        yield path
