"""Where two plays that should be the same one part."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlmesh.checks.findings import Level
from rlmesh.checks.playing import Leaf, Moment, Play
from rlmesh.spaces import Space, Text
from rlmesh.spaces.base import LeafSpace

__all__ = ["Difference", "first_difference", "lanes_difference", "row_of"]

Paths = Sequence[tuple[str, Space]]


@dataclass(frozen=True)
class Difference:
    """Where two plays part.

    Attributes:
        text: the first place, with both values.
        level: ``"warn"`` where numbers differ by rounding and nothing else does, to the end.
    """

    text: str
    level: Level

    def __str__(self) -> str:
        return f"{self.text} (by rounding, to the end)" if self.level == "warn" else self.text


def first_difference(one: Play, other: Play, paths: Paths) -> Difference | None:
    """Return where ``other`` first is not ``one``; None if it never is."""
    text = _first_text(one, other, paths)
    if not text:
        return None
    return Difference(text, "warn" if _rounded(one, other, paths) else "fail")


def _first_text(one: Play, other: Play, paths: Paths) -> str:
    for ours, theirs in zip(one.moments, other.moments, strict=False):
        if ours.what != theirs.what:
            return f"{ours.what} in one, {theirs.what} in the other"
        difference = _moment_difference(ours, theirs, paths)
        if difference:
            return f"{ours.what}: {difference}"
    if len(one.moments) != len(other.moments):
        stopped = one.stopped or other.stopped
        return stopped.message if stopped else "one play is longer than the other"
    return ""


def _rounded(one: Play, other: Play, paths: Paths) -> bool:
    """Whether two plays are the same but for the last digits of their numbers."""
    if len(one.moments) != len(other.moments):
        return False
    for ours, theirs in zip(one.moments, other.moments, strict=True):
        names = ("what", "terminated", "truncated", "outcomes")
        if any(getattr(ours, name) != getattr(theirs, name) for name in names):
            return False
        if not np.allclose(ours.rewards, theirs.rewards, rtol=1e-9, atol=1e-12, equal_nan=True):
            return False
        for (_, space), a, b in zip(paths, ours.leaves, theirs.leaves, strict=True):
            if a != b and not _close(_array(space, a), _array(space, b)):
                return False
    return True


def _close(a: np.ndarray[Any, Any] | None, b: np.ndarray[Any, Any] | None) -> bool:
    if a is None or b is None or a.shape != b.shape or a.dtype.kind != "f":
        return False
    near = 8 * float(np.finfo(a.dtype).eps)
    return bool(np.allclose(a, b, rtol=near, atol=near, equal_nan=True))


def _moment_difference(ours: Moment, theirs: Moment, paths: Paths) -> str | None:
    for (path, space), a, b in zip(paths, ours.leaves, theirs.leaves, strict=True):
        if a != b:
            return _leaf_difference(path, space, a, b)
    if _bits(ours.rewards) != _bits(theirs.rewards):
        return f"reward: {_shown(ours.rewards)} and {_shown(theirs.rewards)}"
    for name in ("terminated", "truncated"):
        a, b = getattr(ours, name), getattr(theirs, name)
        if a != b:
            return f"{name}: {_shown(a)} and {_shown(b)}"
    if ours.outcomes != theirs.outcomes:
        return f"success: {_shown([*ours.outcomes.values()])} and " + _shown(
            [*theirs.outcomes.values()]
        )
    return None


def lanes_difference(ours: Moment, theirs: Moment, paths: Paths, lanes: Sequence[int]) -> str:
    """Return where ``lanes`` differ in what they observed and earned; empty if they do not."""
    for (path, space), a, b in zip(paths, ours.leaves, theirs.leaves, strict=True):
        if len(a.rows) != len(b.rows) or len(a.rows) <= max(lanes, default=0):
            continue  # text, which has no rows of one size
        for lane in lanes:
            if a.rows[lane] != b.rows[lane]:
                return _leaf_difference(path, space, a, b, lane)
    for name in ("rewards", "terminated", "truncated"):
        a, b = getattr(ours, name), getattr(theirs, name)
        for lane in lanes:
            if a and b and a[lane] != b[lane]:
                return f"{name} of lane {lane}: {a[lane]} and {b[lane]}"
    return ""


def row_of(leaf: Leaf, lane: int) -> Leaf:
    """Return one lane's part of a leaf."""
    content = leaf.content
    if content is not None:
        size = len(content) // len(leaf.rows)
        content = content[lane * size : (lane + 1) * size]
    return Leaf(leaf.rows[lane : lane + 1], content)


def _leaf_difference(path: str, space: Space, a: Leaf, b: Leaf, lane: int | None = None) -> str:
    """Return path and values of the first element that differs, in ``lane`` if it is given."""
    ours, theirs = _array(space, a), _array(space, b)
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return f"{path} differs"
    # Bits are what is compared: -0.0 is not 0.0, and a NaN is like itself.
    parted = (_bytes(ours) != _bytes(theirs)).any(-1)
    if lane is not None:
        parted[:lane] = parted[lane + 1 :] = False
    index = tuple(int(i) for i in np.argwhere(parted)[0])
    where = str(list(index[1:])) if index[1:] else ""
    row = f" of lane {index[0]}" if len(a.rows) > 1 else ""
    return f"{path}{where}{row}: {ours[index].item()!r} and {theirs[index].item()!r}"


def _array(space: Space, leaf: Leaf) -> np.ndarray[Any, Any] | None:
    """Return the elements, a row a lane; None where they were not kept, or are text."""
    if leaf.content is None or isinstance(space, Text) or not isinstance(space, LeafSpace):
        return None
    flat: np.ndarray[Any, Any] = np.frombuffer(leaf.content, space.np_dtype)
    return flat.reshape(len(leaf.rows), *space.shape)


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array[..., None].view(np.uint8)


def _bits(numbers: Sequence[float]) -> list[bytes]:
    return [struct.pack("<d", number) for number in numbers]


def _shown(values: Sequence[Any]) -> str:
    return str(values[0] if len(values) == 1 else list(values))
