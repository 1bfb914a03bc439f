"""Gymnasium envs whose every number can be told beforehand."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np

__all__ = ["Countdown", "Everything", "countdowns"]


class Countdown(gymnasium.Env):  # type: ignore[type-arg]
    """Ends after ``length`` steps, by termination, or by truncation after ``limit``.

    An observation is [first number drawn after the seed, steps taken, last action]; the reward is
    the action. ``reset(options={"length": n})`` changes the length of that episode.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, length: int = 3, limit: int = 1000, render_mode: str | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(5)
        self.render_mode = render_mode
        self.length = self._length = length
        self.limit = limit
        self.closed = False
        self._steps = self._action = 0
        self._drawn = 0

    def _observation(self) -> Any:
        return np.array([self._drawn, self._steps, self._action], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._length = (options or {}).get("length", self.length)
        self._steps = self._action = 0
        self._drawn = int(self.np_random.integers(1000))
        return self._observation(), {"drawn": self._drawn}

    def step(self, action: Any) -> Any:
        self._steps += 1
        self._action = int(action)
        terminated = self._steps >= self._length
        truncated = self._steps >= self.limit and not terminated
        info: dict[str, Any] = {
            "steps": self._steps,
            "half": self._steps / 2,
            "even": self._steps % 2 == 0,
            "place": np.array([self._steps, self._action], np.int16),
            "name": f"step {self._steps}",
            "deep": {"er": self._action},
        }
        if terminated or truncated:
            info["is_success"] = terminated
        return self._observation(), float(self._action), terminated, truncated, info

    def render(self) -> Any:
        """Return a frame filled with the number of steps taken."""
        if self.render_mode is None:
            return None
        return np.full((2, 3, 3), self._steps, np.uint8)

    def close(self) -> None:
        self.closed = True


def countdowns(*lengths: int, **options: Any) -> list[Any]:
    """Return one function per length that makes such a :class:`Countdown`."""
    return [lambda length=length: Countdown(length, **options) for length in lengths]


class Everything(gymnasium.Env):  # type: ignore[type-arg]
    """A Dict observation with an image, a text and every other kind; a nested action."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, length: int = 5, render_mode: str | None = "rgb_array") -> None:
        spaces = gymnasium.spaces
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (4, 5, 3), np.uint8),
                "task": spaces.Text(12, charset="abc ", min_length=0),
                "state": spaces.Box(-1.0, 1.0, (3,), np.float32),
                "scale": spaces.Box(0.0, 1.0, (), np.float64),
                "gear": spaces.Discrete(5, start=-2),
                "pad": spaces.MultiDiscrete([3, 4]),
                "keys": spaces.MultiBinary(4),
                "pair": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2, 2), np.float16))),
            }
        )
        self.action_space = spaces.Dict(
            {
                "arm": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "grip": spaces.Discrete(2),
                "say": spaces.Text(6, charset="abc"),
                "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
            }
        )
        self.render_mode = render_mode
        self.actions: list[Any] = []
        self._length = length
        self._steps = 0

    def _observation(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        assert action in self.action_space, action
        self.actions.append(action)
        self._steps += 1
        return self._observation(), 0.5, self._steps >= self._length, False, {}

    def render(self) -> Any:
        return np.full((6, 8, 3), self._steps, np.uint8)
