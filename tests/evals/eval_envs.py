"""Envs and policies of the evaluation tests: every number of an episode follows from its seed.

Arithmetic is elementary (no transcendental functions), so a batch computes the bits of its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from support import Gate

from rlmesh.numpy import Model

__all__ = [
    "LENGTHS",
    "Feedback",
    "Held",
    "OpenLoop",
    "Walk",
    "feedback",
    "helds",
    "open_loop",
    "walks",
]

LENGTHS = (3, 1, 11, 4, 7, 2, 9, 5)


class Walk(gymnasium.Env):  # type: ignore[type-arg]
    """An episode of seed s has ``lengths[s % len(lengths)]`` steps, an unseeded one 2.

    ``x`` reacts to actions, ``key`` is drawn from the seed and stays, ``clock`` counts steps.
    ``resets`` has the seed of every reset, ``steps`` how many steps were taken in all.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, lengths: Sequence[int] = LENGTHS) -> None:
        box = gymnasium.spaces.Box
        self.observation_space = gymnasium.spaces.Dict(
            {
                "clock": box(0, 10**6, (1,), np.int32),
                "key": box(-10.0, 10.0, (1,), np.float64),
                "x": box(-100.0, 100.0, (3,), np.float32),
            }
        )
        self.action_space = box(-4.0, 4.0, (2,), np.float32)
        self.lengths = tuple(lengths)
        self.resets: list[int | None] = []
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.resets.append(seed)
        rng = np.random.default_rng(None if seed is None else seed % 2**32)
        self._n = 0
        self._length = 2 if seed is None else self.lengths[seed % len(self.lengths)]
        self._key = 0.0 if seed is None else float(rng.uniform(-1, 1))
        self._x = rng.uniform(-1, 1, 3).astype(np.float32)
        return self._observation(), {}

    def _observation(self) -> dict[str, Any]:
        return {
            "clock": np.array([self._n], np.int32),
            "key": np.array([self._key]),
            "x": self._x.copy(),
        }

    def step(self, action: Any) -> Any:
        assert action.dtype == np.float32 and action.shape == (2,)
        self.steps += 1
        self._n += 1
        push = np.array([action[0], action[1], action[0]])
        self._x = (self._x * np.float32(0.9) + push * np.float32(0.1)).astype(np.float32)
        info: dict[str, Any] = {"n": self._n}
        terminated = self._n >= self._length and self._length % 4 != 0
        truncated = self._n >= self._length and self._length % 4 == 0
        if terminated or truncated or self._n % 3 == 0:
            info["success"] = bool(self._x[0] > 0)
        return self._observation(), float(self._x.sum()) / 3, terminated, truncated, info


class Held(Walk):
    """Waits at a gate in step ``at`` of the episode of a seed, once: while ``armed`` is there."""

    def __init__(self, folder: str, seed: int, at: int = 1) -> None:
        super().__init__()
        self.gate = Gate(folder)
        self._held = (seed, at)

    def step(self, action: Any) -> Any:
        armed = self.gate.folder / "armed"
        if (self.resets[-1], self._n) == self._held and armed.exists():
            armed.unlink()
            self.gate.pass_through()
        return super().step(action)


def helds(count: int, **arguments: Any) -> list[Held]:
    """Return that many, as lanes."""
    return [Held(**arguments) for _ in range(count)]


def walks(count: int, lengths: Sequence[int] = LENGTHS) -> list[Walk]:
    """Return that many; what :func:`support.server_process` serves as lanes."""
    return [Walk(lengths) for _ in range(count)]


def feedback(observation: Any) -> Any:
    """Return an action that depends on all of the observation."""
    x, clock = observation["x"], observation["clock"]
    return np.array([x[0] * 0.5 - x[1], x[2] + clock[0] * 0.125 - 0.25], np.float32)


class Feedback(Model):
    """:func:`feedback`, batched."""

    def predict_batch(self, observations: Any) -> Any:
        x, clock = observations["x"], observations["clock"]
        columns = [x[:, 0] * 0.5 - x[:, 1], x[:, 2] + clock[:, 0] * 0.125 - 0.25]
        return np.stack(columns, 1).astype(np.float32)


def open_loop(observation: Any, ahead: int = 0) -> Any:
    """Return the action for ``ahead`` steps later: it needs nothing that is not known yet."""
    clock = int(observation["clock"][0]) + ahead
    return np.array([observation["key"][0] * (clock % 5), clock * 0.125 - 0.5], np.float32)


class OpenLoop(Model):
    """:func:`open_loop` in chunks of six, batched."""

    def predict_chunk_batch(self, observations: Any) -> Any:
        rows = [
            {"clock": clock, "key": key}
            for clock, key in zip(observations["clock"], observations["key"], strict=True)
        ]
        return np.stack([np.stack([open_loop(row, k) for k in range(6)]) for row in rows])
