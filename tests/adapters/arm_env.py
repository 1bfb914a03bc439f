"""An env with the observations of LIBERO (two raw cameras, end effector, gripper, language)."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Text

from rlmesh import adapters as adapt

__all__ = ["ArmEnv", "arm_tags", "untagged"]

Array = np.ndarray[Any, Any]


def arm_tags() -> adapt.EnvTags:
    return adapt.EnvTags(
        {
            "agentview_image": adapt.ImageTag(adapt.IMAGE_PRIMARY, upside_down=True),
            "robot0_eye_in_hand_image": adapt.ImageTag(adapt.IMAGE_WRIST, upside_down=True),
            "robot0_eef_pos": adapt.StateTag(adapt.EEF_POS),
            "robot0_eef_quat": adapt.StateTag(adapt.EEF_ROT, encoding="quat_xyzw"),
            "robot0_gripper_qpos": adapt.StateTag(adapt.GRIPPER_POS),
            "language": adapt.TextTag(adapt.INSTRUCTION),
        },
        adapt.Action(
            adapt.Actuator(adapt.ACTION_DELTA_POS, 3),
            adapt.Actuator(adapt.ACTION_DELTA_ROT, 3, encoding="axis_angle"),
            adapt.Actuator(adapt.ACTION_GRIPPER, 1, range=(-1.0, 1.0)),
            clip=(-1.0, 1.0),
        ),
    )


class ArmEnv(gymnasium.Env[dict[str, Any], Array]):
    """Nothing in it moves but a green mark, which goes right, and the hand, which turns.

    Upright, the red block is at the top and the table, brown, at the bottom.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, size: int = 256, **overrides: Any) -> None:
        self.observation_space = Dict(
            {
                "agentview_image": Box(0, 255, (size, size, 3), np.uint8),
                "robot0_eye_in_hand_image": Box(0, 255, (size, size, 3), np.uint8),
                "robot0_eef_pos": Box(-np.inf, np.inf, (3,)),
                "robot0_eef_quat": Box(-1.0, 1.0, (4,)),
                "robot0_gripper_qpos": Box(-1.0, 1.0, (2,)),
                "language": Text(200),
            }
        )
        self.action_space = Box(-1.0, 1.0, (7,))
        self.size, self.overrides, self.at = size, overrides, 0
        self.actions: list[Array] = []
        adapt.tag(self, arm_tags())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self._observation(), {}

    def step(self, action: Array) -> Any:
        assert self.action_space.contains(action)
        self.actions.append(action)
        self.at += 1
        return self._observation(), 0.0, False, False, {}

    def _observation(self) -> dict[str, Any]:
        t, wave = self.at, np.sin(0.3 * self.at + np.arange(1, 8))
        axis = np.array([0.48, 0.6, 0.64])
        turn = 1.1 + 0.2 * np.sin(0.7 * t)
        observation: dict[str, Any] = {
            "agentview_image": self._scene(4 * t)[::-1, ::-1].copy(),
            "robot0_eye_in_hand_image": self._scene(40 + 4 * t)[::-1, ::-1].copy(),
            "robot0_eef_pos": wave[:3].astype(np.float32),
            "robot0_eef_quat": np.append(axis * np.sin(turn), np.cos(turn)).astype(np.float32),
            "robot0_gripper_qpos": (0.02 + 0.01 * wave[3:5] * [1, -1]).astype(np.float32),
            "language": "put the bowl on the plate & <wait>",
        }
        for key, value in self.overrides.items():
            observation[key] = value(t) if callable(value) else value
        return observation

    def _scene(self, mark: int) -> Array:
        n = self.size
        y, x = np.mgrid[:n, :n] * 255 // n
        frame = np.stack([x // 2, y // 2, 90 + 0 * x], axis=-1).astype(np.uint8)
        frame[n // 12 : n // 4, n // 3 : n // 2] = (220, 40, 40)
        frame[n * 4 // 5 :] = (90, 60, 30)
        mark = mark * n // 256 % (n * 3 // 4)
        frame[n * 2 // 5 : n // 2, mark : mark + n // 9] = (30, 200, 60)
        return frame


def untagged() -> ArmEnv:
    env = ArmEnv(32)
    env.metadata = {}
    return env
