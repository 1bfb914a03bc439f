"""The rows of the table: what crosses the process border, and environments that cost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from string import ascii_lowercase
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

ACTION_SHAPE = (7,)
INSTRUCTION = "put the cup on the plate"

Leaves = dict[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True)
class Payload:
    """One row: the observation's arrays, and how many lanes of them a step carries.

    Args:
        key: Its name on the command line.
        title: Its name in the table.
        leaves: Shape and dtype of each array of one lane; a single leaf named "" is a bare Box.
        text: A Text leaf beside them, or None.
        lanes: 0 for a scalar environment, else the vector environment's `num_envs`.
    """

    key: str
    title: str
    leaves: Leaves
    text: str | None = None
    lanes: int = 0

    @cached_property
    def observation_space(self) -> spaces.Space[Any]:
        """The space of one lane."""
        boxes: dict[str, spaces.Space[Any]] = {
            name: _box(shape, dtype) for name, (shape, dtype) in self.leaves.items()
        }
        if self.text is not None:
            boxes["instruction"] = spaces.Text(max_length=64, charset=ascii_lowercase + " ")
        return boxes[""] if "" in boxes else spaces.Dict(boxes)

    @cached_property
    def action_space(self) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, ACTION_SHAPE, np.float32)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return (self.lanes,) if self.lanes else ()

    @property
    def nbytes(self) -> int:
        """Bytes of one step's observation."""
        arrays = sum(
            prod(shape) * np.dtype(dtype).itemsize for shape, dtype in self.leaves.values()
        )
        return (arrays + len(self.text or "")) * (self.lanes or 1)

    def observation(self, seed: int) -> Any:
        """A random observation with every lane of the row in it."""
        rng = np.random.default_rng(seed)
        values: dict[str, Any] = {
            name: _random(rng, (*self.batch_shape, *shape), dtype)
            for name, (shape, dtype) in self.leaves.items()
        }
        if self.text is not None:
            values["instruction"] = self.text
        return values.get("", values)

    def action(self) -> np.ndarray:
        return np.full((*self.batch_shape, *ACTION_SHAPE), 0.25, np.float32)

    def folded(self) -> Payload:
        """The same bytes as the observation of one scalar environment."""
        leaves = {
            n: ((*self.batch_shape, *shape), dtype) for n, (shape, dtype) in self.leaves.items()
        }
        return Payload(self.key, self.title, leaves, self.text)

    def make(self) -> gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any]:
        return ConstantVectorEnv(self) if self.lanes else ConstantEnv(self)


def _box(shape: tuple[int, ...], dtype: str) -> spaces.Box:
    if dtype == "uint8":
        return spaces.Box(0, 255, shape, np.uint8)
    return spaces.Box(-10.0, 10.0, shape, np.dtype(dtype).type)


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if dtype == "uint8":
        return rng.integers(0, 256, shape, np.uint8)
    return rng.uniform(-1.0, 1.0, shape).astype(dtype)


class ConstantEnv(gym.Env[Any, Any]):
    """Returns one of two preallocated observations; an episode never ends."""

    def __init__(self, payload: Payload) -> None:
        self.observation_space = payload.observation_space
        self.action_space = payload.action_space
        self._next, self._other = payload.observation(0), payload.observation(1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return self._next, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._next, self._other = self._other, self._next
        return self._next, 1.0, False, False, {}


class ConstantVectorEnv(gym.vector.VectorEnv[Any, Any, Any]):
    """The same for N lanes: one preallocated batch, no lane ever ends."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, payload: Payload) -> None:
        self.num_envs = payload.lanes
        self.single_observation_space = payload.observation_space
        self.single_action_space = payload.action_space
        batch = gym.vector.utils.batch_space
        self.observation_space = batch(payload.observation_space, payload.lanes)
        self.action_space = batch(payload.action_space, payload.lanes)
        self._next, self._other = payload.observation(0), payload.observation(1)
        self._reward = np.ones(payload.lanes)
        self._done = np.zeros(payload.lanes, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        return self._next, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        self._next, self._other = self._other, self._next
        return self._next, self._reward, self._done, self._done, {}


_FLOATS: Leaves = {"": ((4,), "float32")}
_CAMERAS: Leaves = {
    **{name: ((480, 640, 3), "uint8") for name in ("front", "left", "wrist")},
    "state": ((8,), "float32"),
}

PAYLOADS: dict[str, Payload] = {
    payload.key: payload
    for payload in (
        Payload("floats", "4 floats", _FLOATS),
        Payload("atari", "84x84x3", {"": ((84, 84, 3), "uint8")}),
        Payload("vision", "224x224x3", {"": ((224, 224, 3), "uint8")}),
        Payload("cameras", "3 cameras 480x640x3, state, text", _CAMERAS, INSTRUCTION),
        Payload("floats-8", "8 lanes of 4 floats", _FLOATS, lanes=8),
        Payload("floats-64", "64 lanes of 4 floats", _FLOATS, lanes=64),
        Payload("vision-8", "8 lanes of 224x224x3", {"": ((224, 224, 3), "uint8")}, lanes=8),
    )
}
