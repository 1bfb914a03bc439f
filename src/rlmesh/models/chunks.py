"""Action chunks: what counts as one, how it splits into actions, and the queue that replays them.

Everything here works on host values: trees of NumPy arrays, numbers and text.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from rlmesh.values.tree import describe_tree, tree_map

__all__ = [
    "MAX_EXECUTION_HORIZON",
    "ChunkLength",
    "ChunkQueue",
    "check_horizon",
    "chunk_length",
    "first_action",
    "split_chunk",
]

MAX_EXECUTION_HORIZON: Final = 1024


def check_horizon(value: Any) -> int:
    """Return ``value`` if it is a possible ``execution_horizon``.

    Raises:
        TypeError: it is no integer.
        ValueError: it is below 1 or above 1024.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"execution_horizon must be an int, got {value!r}")
    horizon = int(cast("int", value))
    if horizon < 1:
        raise ValueError(f"execution_horizon must be >= 1, got {horizon}")
    if horizon > MAX_EXECUTION_HORIZON:
        raise ValueError(f"execution_horizon must be <= {MAX_EXECUTION_HORIZON}, got {horizon}")
    return horizon


def chunk_length(chunk: Any) -> int:
    """Return how many actions ``chunk`` holds.

    The leading axis of an array and the length of a list or tuple count actions. A mapping is a
    Dict action whose leaves carry the chunk axis, so they must agree. Whatever has no axis at all
    is one action: text, bytes, a number, a mapping of those.

    Raises:
        ValueError: the leaves of a mapping disagree; names two of them.
    """
    length = _axis(chunk)
    return 1 if length is None else length


def _axis(chunk: Any) -> int | None:
    """Return the length of the chunk axis, or None where there is none."""
    if isinstance(chunk, (list, tuple)):
        return len(cast("Sequence[Any]", chunk))
    if isinstance(chunk, Mapping):
        return _common_axis(cast("Mapping[Any, Any]", chunk))
    shape = getattr(chunk, "shape", None)  # of an array of any library
    return shape[0] if shape else None


def _common_axis(chunk: Mapping[Any, Any]) -> int | None:
    lengths = {key: _axis(leaf) for key, leaf in chunk.items()}
    distinct = set(lengths.values())
    if len(distinct) <= 1:
        return distinct.pop() if distinct else None
    first, *rest = lengths
    other = next(key for key in rest if lengths[key] != lengths[first])
    raise ValueError(
        f"action chunk leaves disagree on length: {first!r} has {_frames(lengths[first])}, "
        f"{other!r} has {_frames(lengths[other])} ({describe_tree(chunk)})"
    )


def _frames(length: int | None) -> str:
    return "no chunk axis" if length is None else f"{length} frames"


def first_action(chunk: Any) -> Any:
    """Return the first action of a chunk that is not empty, in whatever library it is."""
    if isinstance(chunk, Mapping):
        leaves = cast("Mapping[Any, Any]", chunk)
        return {key: first_action(leaf) for key, leaf in leaves.items()}
    return chunk if _axis(chunk) is None else chunk[0]


def split_chunk(chunk: Any, limit: int | None = None) -> list[Any]:
    """Split a chunk into its first ``limit`` actions (all by default), by :func:`chunk_length`.

    The actions share no memory with the chunk, so they may wait in a queue while the model reuses
    its buffers.

    Raises:
        ValueError: the leaves of a mapping disagree on the length.
    """
    length = _axis(chunk)
    if length is None:
        return [tree_map(_own, chunk)]
    return _split(chunk, length if limit is None else min(length, limit))


def _split(chunk: Any, count: int) -> list[Any]:
    if isinstance(chunk, np.ndarray):
        copy: Any = np.array(cast("Any", chunk)[:count])
        return list(copy)
    if isinstance(chunk, Mapping):
        leaves = cast("Mapping[Any, Any]", chunk)
        columns = [_split(leaf, count) for leaf in leaves.values()]
        return [dict(zip(leaves, row, strict=True)) for row in zip(*columns, strict=True)]
    return [tree_map(_own, action) for action in chunk[:count]]


def _own(leaf: Any) -> Any:
    return np.array(cast("Any", leaf)) if isinstance(leaf, np.ndarray) else leaf


class ChunkLength:
    """What a chunk corner may return, given the ``native_chunk`` its author declared."""

    __slots__ = ("_native", "_warned")

    def __init__(self, native_chunk: int | None) -> None:
        self._native = native_chunk
        self._warned: set[int] = set()

    def check(self, length: int, horizon: int) -> None:
        """Raise ValueError for a chunk that is empty or not of the declared length.

        A chunk shorter than the horizon is legal where no length was declared: it is replayed as
        far as it goes, with one RuntimeWarning a horizon.
        """
        if length == 0:
            raise ValueError("returned an empty chunk; return at least one action")
        native = self._native
        if native is not None:
            if length != native:
                raise ValueError(
                    f"model declares native_chunk={native} but its chunk corner returned {length} "
                    f"frames at execution_horizon={horizon}: return the whole chunk and leave "
                    "cutting it to the runtime, or drop native_chunk"
                )
        elif length < horizon and horizon not in self._warned:
            self._warned.add(horizon)
            warnings.warn(
                f"the model returned {length} actions for execution_horizon={horizon}; replaying "
                "those and predicting again. Declare native_chunk to have the horizon checked "
                "before the run",
                RuntimeWarning,
                stacklevel=2,
            )


class ChunkQueue:
    """The actions one lane has still to execute before its next predict.

    Example:
        >>> queue = ChunkQueue()
        >>> queue.start(["a", "b", "c"])
        'a'
        >>> queue.take(), len(queue)
        ('b', 1)
        >>> queue.clear()
        >>> bool(queue)
        False
    """

    __slots__ = ("_actions",)

    def __init__(self) -> None:
        self._actions: deque[Any] = deque()

    def start(self, actions: Sequence[Any]) -> Any:
        """Return the first of a fresh plan's actions, and queue the rest in place of what waits."""
        waiting = self._actions
        waiting.clear()
        if len(actions) > 1:
            waiting.extend(actions)
            return waiting.popleft()
        return actions[0]

    def extend(self, actions: Sequence[Any]) -> None:
        """Queue a plan made ahead of time, to be executed after what waits."""
        self._actions.extend(actions)

    def take(self) -> Any:
        """Return the next action and drop it from the queue; IndexError when there is none."""
        return self._actions.popleft()

    def clear(self) -> None:
        """Drop what waits: the episode is over, and a chunk never outlives it."""
        self._actions.clear()

    def __len__(self) -> int:
        return len(self._actions)
