"""Vector envs without gymnasium: in every autoreset mode, right, and wrong by a step."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlmesh.spaces import Box, Discrete

__all__ = ["Lanes", "three_lanes"]


class Lanes:
    """Lanes that walk by their actions; lane i ends after ``lengths[i]`` steps.

    Args:
        says: the mode in the metadata.
        does: what happens: ``NextStep``, ``SameStep`` or ``Disabled``.
        masked: whether ``reset_mask`` is looked at.
        seeded: whether a masked reset takes its seeds.
        forgets: a lane that ended rolls, though it was reset by mask.
        told: whether the info has final_obs, under the mode ``tells``.
        reward: of every step.
        roll_reward: of a step that is a reset.
    """

    render_mode = None

    def __init__(
        self,
        says: str,
        does: str | None = None,
        *,
        lengths: tuple[int, ...] = (5, 9, 7),
        masked: bool = True,
        seeded: bool = True,
        forgets: bool = False,
        told: bool = True,
        tells: str = "SameStep",
        reward: float = 1.0,
        roll_reward: float = 0.0,
    ) -> None:
        self.metadata = {"autoreset_mode": says}
        self.does = does or says
        self.num_envs = len(lengths)
        self.lengths = np.array(lengths)
        self.masked, self.seeded, self.forgets, self.told = masked, seeded, forgets, told
        self.tells = tells
        self.rewards = (reward, roll_reward)
        self.single_observation_space = Box(-1e6, 1e6, (2,))
        self.single_action_space = Discrete(4)
        self.place = np.zeros(self.num_envs)
        self.steps = np.zeros(self.num_envs, int)
        self.over = np.zeros(self.num_envs, bool)
        self.dice: list[Any] = [np.random.default_rng(i) for i in range(self.num_envs)]

    def observation(self) -> Any:
        return np.stack([self.place, self.steps], 1).astype(np.float32)

    def _begin(self, lane: int) -> None:
        self.place[lane] = self.dice[lane].uniform()
        self.steps[lane] = 0
        self.over[lane] = False

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        mask = (options or {}).get("reset_mask") if self.masked else None
        if not isinstance(seed, (list, tuple)):
            seed = [None if seed is None else seed + lane for lane in range(self.num_envs)]
        for lane in range(self.num_envs):
            if mask is not None and not mask[lane]:
                continue
            if seed[lane] is not None and (self.seeded or mask is None):
                self.dice[lane] = np.random.default_rng(seed[lane])
            ended = bool(self.over[lane])
            self._begin(lane)
            self.over[lane] = self.forgets and mask is not None and ended
        return self.observation(), {}

    def step(self, actions: Any) -> Any:
        rewards = np.zeros(self.num_envs)
        done = np.zeros(self.num_envs, bool)
        info: dict[str, Any] = {}
        for lane in range(self.num_envs):
            if self.over[lane] and self.does == "NextStep":
                self._begin(lane)
                rewards[lane] = self.rewards[1]
                continue
            self.steps[lane] += 1
            self.place[lane] += int(actions[lane])
            rewards[lane] = self.rewards[0]
            done[lane] = self.over[lane] = self.steps[lane] >= self.lengths[lane]
        if done.any():
            info = {"success": done.copy(), "_success": done.copy()}
        if done.any() and self.told and self.metadata["autoreset_mode"] == self.tells:
            info |= {"final_obs": self.observation(), "_final_obs": done.copy()}
            info |= {"final_info": {"success": done.copy(), "_success": done.copy()}}
        if self.does == "SameStep":
            for lane in np.flatnonzero(done):
                self._begin(int(lane))
        return self.observation(), rewards, done, np.zeros(self.num_envs, bool), info

    def close(self) -> None:
        pass


def three_lanes(says: str = "NextStep", does: str | None = None) -> Lanes:
    return Lanes(says, does)
