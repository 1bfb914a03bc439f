"""Envs and models of the served-model tests: every number follows from seeds and actions alone.

Models work row by row, so that a batch computes the bits of its rows.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from evals.eval_envs import Walk
from evals.view_envs import Witness
from gymnasium.spaces import Box, Dict, Text

from rlmesh import adapters as adapt
from rlmesh.numpy import Model

__all__ = ["KINDS", "Flawed", "Gated", "Recall", "Reused", "Still", "Studio", "Tally"]

LENGTHS = (6, 1, 11, 4, 9, 2)
CAMERAS = {"front": adapt.IMAGE_PRIMARY, "side": adapt.IMAGE_SECONDARY, "wrist": adapt.IMAGE_WRIST}


class Studio(gymnasium.Env[dict[str, Any], Any]):
    """Three cameras, an arm and a task; tagged. All of it follows the actions.

    The frames are drawn into the same arrays at every step, as some simulators do.
    """

    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.observation_space = Dict(
            {name: Box(0, 255, (24, 32, 3), np.uint8) for name in CAMERAS}
            | {
                "arm": Box(-np.inf, np.inf, (2,), np.float32),
                "task": Text(40, charset="acehr0123456789 fo"),
            }
        )
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        tags: Any = {name: adapt.ImageTag(role) for name, role in CAMERAS.items()}
        tags |= {"arm": adapt.StateTag(adapt.JOINT_POS), "task": adapt.TextTag(adapt.INSTRUCTION)}
        self.metadata = {}
        action = adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2))
        adapt.tag(self, adapt.EnvTags(tags, action))
        self._frames = {name: np.zeros((24, 32, 3), np.uint8) for name in CAMERAS}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._n, self._seed = 0, seed or 0
        self._length = LENGTHS[self._seed % len(LENGTHS)]
        self._arm = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._look(), {}

    def _look(self) -> dict[str, Any]:
        for place, frame in enumerate(self._frames.values()):
            tint = abs(float(self._arm[place % 2])) * 97 + 13 * place + 7 * self._n
            frame[...] = (np.arange(24 * 32 * 3).reshape(24, 32, 3) + int(tint)) % 251
        return {**self._frames, "arm": self._arm.copy(), "task": f"reach for {self._seed % 7}"}

    def step(self, action: Any) -> Any:
        self._n += 1
        self._arm = (self._arm * np.float32(0.75) + action * np.float32(0.25)).astype(np.float32)
        over = self._n >= self._length
        info = {"success": bool(self._arm[0] > 0)} if over else {}
        return self._look(), float(self._arm.sum()), over, False, info


class Reused(Walk):
    """A Walk whose observations are the same arrays, written anew at every step."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, Any] = {}

    def _observation(self) -> dict[str, Any]:
        fresh = super()._observation()
        for key, value in fresh.items():
            self._kept.setdefault(key, np.empty_like(value))[...] = value
        return dict(self._kept)


def _spec(**image: Any) -> adapt.ModelSpec:
    return adapt.ModelSpec(
        {
            "image": adapt.Image(adapt.IMAGE_PRIMARY, **image),
            "arm": adapt.Concat(adapt.JOINT_POS, adapt.Previous(adapt.ACTION_JOINT_POS)),
            "task": adapt.Text(adapt.INSTRUCTION),
        },
        adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2)),
    )


class Recall(Model):
    """Chunks of four from stacked frames, the action before and what its context remembers."""

    spec = _spec(stack=3)

    def predict_chunk_batch(self, obs: Any, execution_horizon: int = 1, context: Any = ()) -> Any:
        rows = [
            self.plan(image, arm, task, given)
            for image, arm, task, given in zip(
                obs["image"], obs["arm"], obs["task"], context, strict=True
            )
        ]
        return np.stack(rows)

    def plan(self, image: Any, arm: Any, task: str, given: Any) -> Any:
        state = given["state"]
        state["seen"] = state.get("seen", 0) * 31 + int(image.astype(np.int64).sum()) % 1009
        assert given["predict_index"] == state.setdefault("count", 0)
        state["count"] += 1
        noise = 0 if given["predict_seed"] is None else given["predict_seed"] % 1000
        first = (state["seen"] % 997 + len(task) + noise) / 4096 - 0.3
        second = float(arm @ np.array([0.5, -0.25, 0.125, 0.0625], np.float32))
        steps = np.arange(4) / 16
        return np.stack([first + steps, second - steps], 1).astype(np.float32).clip(-1, 1)


class Echo(Model):
    """Chunks of four from the arm and the action before; no frame is kept."""

    spec = _spec()

    def predict_chunk(self, obs: Any) -> Any:
        first = obs["arm"] @ np.array([0.5, -0.25, 0.75, 0.0625], np.float32)
        steps = np.arange(4) / 16
        return np.stack([first + steps, 0.25 - first * steps], 1).astype(np.float32).clip(-1, 1)


class Tally(Model):
    """No adapter: the state of the episode alone, kept in its context.

    One prediction at a time, so nothing may be fused.
    """

    def predict(self, observation: Any, context: Any = None) -> Any:
        state = context["state"]
        state["sum"] = state.get("sum", 0.0) + float(observation["x"][0])
        count = context["predict_index"]
        return np.array([state["sum"] / (count + 1), count * 0.125], np.float32)


class Feedback(Model):
    """An action from all of the observation, in batches."""

    def predict_batch(self, observations: Any) -> Any:
        x, clock = observations["x"], observations["clock"]
        columns = [x[:, 0] * 0.5 - x[:, 1], x[:, 2] + clock[:, 0] * 0.125 - 0.25]
        return np.stack(columns, 1).astype(np.float32)


class Still(Feedback):
    """The same with chunks: a prediction for the next five steps, from the clock of this one."""

    def predict_chunk_batch(self, observations: Any) -> Any:
        now = self.predict_batch(observations)
        return np.stack([now + np.float32(ahead / 8) for ahead in range(5)], 1)


class Flawed(Feedback):
    """Raises for a negative key; at 7 steps kills its own process, once a folder."""

    def load(self, folder: str = "") -> None:
        self.folder = folder

    def predict_batch(self, observations: Any) -> Any:
        if (observations["key"] < 0).any():
            raise KeyError("a negative key")
        if self.folder and (observations["clock"] == 7).any():
            died = Path(self.folder, "died")
            if not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().predict_batch(observations)


class Gated(Feedback):
    """Waits, in a prediction, until ``gate`` appears; says so by ``inside``."""

    def load(self, folder: str = "") -> None:
        self.folder = Path(folder)

    def predict_batch(self, observations: Any) -> Any:
        self.folder.joinpath("inside").touch()
        while not self.folder.joinpath("gate").exists():
            time.sleep(0.01)
        return super().predict_batch(observations)


KINDS = {
    kind.__name__: kind for kind in (Recall, Echo, Tally, Feedback, Still, Flawed, Gated, Witness)
}
