"""One Meta-World task as an environment whose `reset(seed=)` chooses the episode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import metaworld
import numpy as np
from gymnasium.envs.registration import EnvSpec
from metaworld.env_dict import MT10_V3

TASKS: tuple[str, ...] = tuple(MT10_V3)

BENCHMARK_SEED = 3
"""Draws the 50 variations of every task, the same in every process."""


class SeededTask(gym.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """A Meta-World task that plays variation `seed % 50` and ends at its first success.

    Meta-World documents that its `reset` ignores `seed`: the variation comes from `set_task`, or
    from a random state that moves on with every reset. This wrapper names the variation by the
    seed, so the same seed is the same episode whatever ran before. It adds two more things an
    evaluation needs: `terminated` at the first success (Meta-World goes on to its 500-step limit),
    and the observation space with the goal in it (the one made at construction says it is zero).

    Args:
        name: A task of MT10, such as `"reach-v3"`. Observations are `float64[39]`, actions
            `float32[4]` in [-1, 1]: three hand displacements and the gripper's effort.
    """

    def __init__(self, name: str) -> None:
        benchmark = metaworld.MT1(name, seed=BENCHMARK_SEED)
        env = benchmark.train_classes[name]()
        env.spec = EnvSpec(id=f"Meta-World/{name}")
        env.set_task(benchmark.train_tasks[0])
        super().__init__(env)
        self.observation_space = env.sawyer_observation_space
        self._variations = benchmark.train_tasks
        self._next = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        variation = (self._next if seed is None else seed) % len(self._variations)
        self._next = variation + 1
        self.env.set_task(self._variations[variation])  # type: ignore[attr-defined]
        return self.env.reset()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, _, truncated, info = self.env.step(action)
        return observation, reward, bool(info["success"]), truncated, info
