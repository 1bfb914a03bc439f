"""A simulator whose state never leaves the device: N point masses in PyTorch, stepped together.

Written as Isaac-style simulators are: observations, rewards and flags are tensors with a leading
lane axis, on whatever device they were made on. Nothing here knows rlmesh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

SECONDS, STEPS, NEAR = 0.05, 200, 0.05


class PointMasses:
    """Masses of 1 kg on a plane; an action is a force in N that moves one to its goal.

    Observations are `float32[N, 6]`: position (m), velocity (m/s), goal (m). An episode ends at the
    goal, with `info["is_success"]`, or after 200 steps. Nothing resets by itself: the lanes of
    `reset(options={"reset_mask": bool[N]})` are reset, the others go on.
    """

    single_observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float32)
    single_action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    metadata = {"autoreset_mode": "Disabled"}  # noqa: RUF012 - as gymnasium's envs have it
    render_mode = None

    def __init__(self, num_envs: int, device: str = "cpu") -> None:
        self.num_envs = num_envs
        self.device = torch.device(device)
        self.state = torch.zeros(num_envs, 6, device=device)
        self.steps = torch.zeros(num_envs, dtype=torch.int32, device=device)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + lane for lane in range(self.num_envs)]
        else:
            seeds = list(seed)
        for lane in np.flatnonzero(mask):
            # Drawn on the host, so that a seed is the same episode on every device.
            generator = torch.Generator()
            if seeds[lane] is None:
                generator.seed()
            else:
                generator.manual_seed(seeds[lane])
            draw = torch.rand(4, generator=generator) * 2 - 1
            self.state[lane, 0:2] = draw[:2].to(self.device)
            self.state[lane, 2:4] = 0.0
            self.state[lane, 4:6] = draw[2:].to(self.device)
            self.steps[lane] = 0
        return self.state.clone(), {}

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        position, velocity, goal = self.state.split(2, dim=1)
        velocity += SECONDS * actions.clamp(-1.0, 1.0)
        position += SECONDS * velocity
        self.steps += 1
        distance = torch.linalg.vector_norm(position - goal, dim=1)
        reached = distance < NEAR
        info = {"is_success": reached}
        return self.state.clone(), -distance, reached, self.steps >= STEPS, info

    def close(self) -> None:
        pass
