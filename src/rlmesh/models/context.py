"""What a predict is told of its episode: `PredictContext`, and the state kept for the episode."""

from __future__ import annotations

import os
from operator import index
from typing import Any, TypedDict

__all__ = ["EPISODE_CAPACITY", "EpisodeContexts", "PredictContext", "predict_seed"]

EPISODE_CAPACITY = 65_536
"""Live episodes one model may hold state of; ``RLMESH_EPISODE_CAPACITY`` overrides it."""

_CAPACITY_VARIABLE = "RLMESH_EPISODE_CAPACITY"
_FNV_OFFSET, _FNV_PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


class PredictContext(TypedDict):
    """The ``context`` of a predict: a corner that declares the parameter gets it.

    Batch corners get a list, one per row.
    """

    episode_id: str
    """Names the episode; "" for an anonymous lane."""
    episode_seed: int | None
    """What the episode's reset was given."""
    predict_index: int
    """How many predictions this episode has had before, from 0: re-plans, not steps."""
    predict_seed: int | None
    """:func:`predict_seed` of the two above, in [0, 2**32); None for an unseeded episode."""
    state: dict[str, Any]
    """The policy's own, empty at first, dropped at the episode's end."""


def predict_seed(episode_seed: int, predict_index: int) -> int:
    """Return the seed of one prediction: the same for the same episode seed and index, anywhere.

    The low 32 bits of FNV-1a-64 (the hash of Fowler, Noll and Vo) over the seed as 8 little-endian
    bytes in two's complement, the byte 0xFE and the index as 8 little-endian bytes.

    Args:
        episode_seed: int64.
        predict_index: 0 or more.

    Raises:
        OverflowError: an argument does not fit its 8 bytes.
        TypeError: an argument is no integer.

    Example:
        >>> predict_seed(0, 0)
        3060724065
    """
    seed, count = index(episode_seed), index(predict_index)
    try:
        data = seed.to_bytes(8, "little", signed=True) + b"\xfe" + count.to_bytes(8, "little")
    except OverflowError:
        raise OverflowError(
            "predict_seed: expected an int64 seed and an index in [0, 2**64), got "
            f"{episode_seed} and {predict_index}"
        ) from None
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & _MASK
    return value & 0xFFFFFFFF


class EpisodeContexts:
    """The live episodes of one model: the state and the predict count of each.

    An entry is made by an episode's first predict and dropped by :meth:`end`. Nothing is evicted:
    losing a policy's state would change its actions in silence.

    Args:
        capacity: most episodes at once. Default: ``RLMESH_EPISODE_CAPACITY``, or 65536.

    Raises:
        ValueError: the capacity is not a positive integer.
    """

    __slots__ = ("_capacity", "_live")

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = _capacity_from_environment() if capacity is None else capacity
        if self._capacity < 1:
            raise ValueError(f"episode capacity: expected 1 or more, got {self._capacity}")
        self._live: dict[str, PredictContext] = {}

    def next(self, episode_id: str, episode_seed: int | None) -> PredictContext:
        """Return the context of the episode's next predict, and count it.

        The anonymous episode "" shares nothing: every predict is its first.

        Raises:
            RuntimeError: a new episode, while as many as the capacity allows are live.
        """
        last = self._live.get(episode_id)
        if last is None:
            count, state = 0, {}
            if episode_id and len(self._live) >= self._capacity:
                raise RuntimeError(
                    f"{self._capacity} episodes hold predict state and none has ended, so episode "
                    f"{episode_id} gets none; end episodes, or raise {_CAPACITY_VARIABLE}"
                )
        else:
            count, state = last["predict_index"] + 1, last["state"]
        context = PredictContext(
            episode_id=episode_id,
            episode_seed=episode_seed,
            predict_index=count,
            predict_seed=None if episode_seed is None else predict_seed(episode_seed, count),
            state=state,
        )
        if episode_id:
            # A copy: what the policy does to its dict must not reach the next predict's.
            self._live[episode_id] = context.copy()
        return context

    def end(self, episode_id: str) -> None:
        """Drop what is held for the episode; one never predicted for is ignored."""
        self._live.pop(episode_id, None)

    def clear(self) -> None:
        """Drop every episode."""
        self._live.clear()

    def __len__(self) -> int:
        return len(self._live)


def _capacity_from_environment() -> int:
    text = os.environ.get(_CAPACITY_VARIABLE, "").strip()
    if not text:
        return EPISODE_CAPACITY
    try:
        capacity = int(text)
    except ValueError:
        capacity = 0
    if capacity < 1:
        raise ValueError(f"{_CAPACITY_VARIABLE}: expected a positive integer, got {text!r}")
    return capacity
