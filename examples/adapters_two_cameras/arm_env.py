"""A small arm on a table, seen by two cameras, as an env that says what its numbers mean."""

from __future__ import annotations

import os
import string
from pathlib import Path
from typing import Any

os.environ.setdefault("MUJOCO_GL", "osmesa")  # renders without a display; read on import

import gymnasium
import mujoco
import numpy as np
from gymnasium.spaces import Box, Dict, Text

from rlmesh import adapters as adapt

HEIGHT, WIDTH = 240, 320
OPEN = 0.08
"""Opening of the gripper in metres; 0 is closed."""
SUBSTEPS = 15

TAGS = adapt.EnvTags(
    {
        "front": adapt.ImageTag(adapt.IMAGE_PRIMARY),
        "wrist": adapt.ImageTag(adapt.IMAGE_WRIST, upside_down=True),  # mounted that way
        "hand_pos": adapt.StateTag(adapt.EEF_POS, frame="world", labels=("x", "y", "z")),
        "hand_quat": adapt.StateTag(adapt.EEF_ROT, encoding="quat_wxyz", frame="world"),
        "opening": adapt.StateTag(adapt.GRIPPER_POS),
        "task": adapt.TextTag(adapt.INSTRUCTION),
    },
    adapt.Action(
        adapt.Actuator(adapt.ACTION_DELTA_POS, 3, frame="world"),
        adapt.Actuator(adapt.ACTION_DELTA_ROT, 3, encoding="axis_angle", frame="world"),
        adapt.Actuator(adapt.ACTION_GRIPPER, 1),  # [-1, 1], from the space: 1 closes
    ),
)


class ArmEnv(gymnasium.Env):
    """Bring the hand to the red block. Success and the end: the fingertips are within 4 cm of it.

    An action is a displacement in metres (up to 2 cm), a turn as axis-angle in radians (up to 0.1
    per axis) and the gripper (-1 opens, 1 closes).
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self) -> None:
        frame = Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        self.observation_space = Dict(
            {
                "front": frame,
                "wrist": frame,
                "hand_pos": Box(-2.0, 2.0, (3,), np.float64),
                "hand_quat": Box(-1.0, 1.0, (4,), np.float64),
                "opening": Box(0.0, OPEN, (1,), np.float64),
                "task": Text(60, charset=string.ascii_lowercase + " "),
            }
        )
        limit = np.array([0.02] * 3 + [0.1] * 3 + [1.0])
        self.action_space = Box(-limit, limit, dtype=np.float64)
        self.render_mode = "rgb_array"
        self.model = mujoco.MjModel.from_xml_path(str(Path(__file__).with_name("arm.xml")))
        self.data = mujoco.MjData(self.model)
        self.renderer = mujoco.Renderer(self.model, HEIGHT, WIDTH)
        self.tip = self.model.site("tip").id
        adapt.tag(self, TAGS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.mocap_pos[0] = [*self.np_random.uniform((0.38, -0.11), (0.52, 0.11)), 0.02]
        self.data.qpos[6:] = self.data.ctrl[6:] = OPEN / 2
        mujoco.mj_forward(self.model, self.data)
        self.target = self.hand_pos.copy()
        self.turn = self.hand_quat
        return self.observation(), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        delta = np.asarray(action, np.float64)
        self.target += delta[:3]
        self.turn = _turned(self.turn, delta[3:6])
        self.data.ctrl[6:] = OPEN / 2 * (1.0 - delta[6]) / 2.0
        for _ in range(SUBSTEPS):
            self.data.ctrl[:6] = self.data.qpos[:6] + self._joint_step()
            mujoco.mj_step(self.model, self.data)
        distance = float(np.linalg.norm(self.hand_pos - self.data.mocap_pos[0]))
        success = distance < 0.04
        return self.observation(), -distance, success, False, {"success": success}

    def _joint_step(self) -> np.ndarray:
        """Damped least squares towards the target pose."""
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        jacobian = np.zeros((6, self.model.nv))
        mujoco.mj_jacSite(self.model, self.data, jacobian[:3], jacobian[3:], self.tip)
        j = jacobian[:, :6]
        error = np.concatenate([self.target - self.hand_pos, _turn(self.hand_quat, self.turn)])
        return j.T @ np.linalg.solve(j @ j.T + 1e-3 * np.eye(6), error)

    @property
    def hand_pos(self) -> np.ndarray:
        return self.data.site_xpos[self.tip]

    @property
    def hand_quat(self) -> np.ndarray:
        quat = np.zeros(4)
        mujoco.mju_mat2Quat(quat, self.data.site_xmat[self.tip])
        return quat

    def observation(self) -> dict[str, Any]:
        return {
            "front": self._frame("front"),
            "wrist": self._frame("wrist"),
            "hand_pos": self.hand_pos.copy(),
            "hand_quat": self.hand_quat,
            "opening": np.clip(self.data.qpos[6:].sum(keepdims=True), 0, OPEN),
            "task": "move the hand to the red block",
        }

    def _frame(self, camera: str) -> np.ndarray:
        self.renderer.update_scene(self.data, camera)
        return self.renderer.render()

    def render(self) -> np.ndarray:
        return self._frame("front")

    def close(self) -> None:
        self.renderer.close()


def _turned(quat: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """`quat` after a turn about the world's axes."""
    angle = float(np.linalg.norm(turn))
    step, out = np.zeros(4), np.zeros(4)
    mujoco.mju_axisAngle2Quat(step, turn / angle if angle else np.array([1.0, 0, 0]), angle)
    mujoco.mju_mulQuat(out, step, quat)
    return out


def _turn(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The axis-angle, about the world's axes, that leads from one quaternion to another."""
    back, between, out = np.zeros(4), np.zeros(4), np.zeros(3)
    mujoco.mju_negQuat(back, start)
    mujoco.mju_mulQuat(between, end, back)
    mujoco.mju_quat2Vel(out, between, 1.0)
    return out
