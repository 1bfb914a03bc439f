"""Factories that ``python -m rlmesh.serve`` is pointed at in the tests."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from serve_targets import noted
from support.zoo import Countdown

import rlmesh
from rlmesh import NO_ADAPTER, Param, ParamSpec, Variant
from rlmesh import adapters as adapt
from rlmesh.numpy import Model


class Countdowns(rlmesh.EnvFactory):
    """Notes in ``folder`` what happens; the envs take trials."""

    params = ParamSpec(
        Param("length", int, description="Steps an episode takes"),
        Param("size", choices=("small", "large")),
        Param("folder"),
    )
    reset_options = ("trial_index",)

    def __init__(self) -> None:
        self.folder = ""

    def make(self, length: int = 2, size: str = "small", folder: str = "") -> Any:
        self.folder = folder
        noted(folder, "made")
        return Noted(folder, length + (size == "large"))

    def close(self) -> None:
        # Only once its envs are closed.
        noted(self.folder, "closed" if self.open == 0 else "closed too early")

    @property
    def open(self) -> int:
        if not self.folder:
            return 0
        sizes = [_size(self.folder, name) for name in ("made", "env-closed")]
        return sizes[0] - sizes[1]

    @classmethod
    def enumerate_variants(cls) -> Any:
        yield Variant("long", {"length": 9}, name="A long one")


def _size(folder: str, name: str) -> int:
    path = Path(folder) / name
    return len(path.read_text()) if path.exists() else 0


class Noted(Countdown):
    def __init__(self, folder: str, length: int) -> None:
        super().__init__(length)
        self.folder = folder
        self.trial: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, info = super().reset(seed=seed)
        trial = rlmesh.trial_index(options)
        return observation, {**info, "trial": -1 if trial is None else trial}

    def close(self) -> None:
        noted(self.folder, "env-closed")


countdowns = Countdowns()


class Failing(Countdowns):
    """Fails with its second env, unless it is prepared to fail already."""

    def prepare(self) -> None:
        self.made = 0

    def make(self, length: int = 2, size: str = "small", folder: str = "") -> Any:
        self.made += 1
        if self.made == 2:
            raise OSError("no second one")
        return super().make(length, size, folder)


class Slow(Countdowns):
    """Makes one env, and then none until it is interrupted."""

    def make(self, length: int = 2, size: str = "small", folder: str = "") -> Any:
        if self.open:
            noted(folder, "waiting")
            threading.Event().wait()
        return super().make(length, size, folder)


class Arm(gymnasium.Env):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.observation_space = Box(-9.0, 9.0, (2,))
        self.action_space = Box(-1.0, 1.0, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, True, False, {}


def arm_tags(action: str) -> adapt.EnvTags:
    return adapt.EnvTags(adapt.StateTag(adapt.JOINT_POS), adapt.Action(adapt.Actuator(action, 2)))


class Arms(rlmesh.EnvFactory):
    """Tagged by branch."""

    tags = arm_tags(adapt.ACTION_JOINT_POS)
    params = ParamSpec(Param("mode", choices=("position", "velocity")))
    tag_params = ("mode",)

    def make(self, mode: str = "position") -> Any:
        return Arm()

    @classmethod
    def tags_for(cls, mode: str) -> adapt.EnvTags:
        velocity = mode == "velocity"
        return arm_tags(adapt.ACTION_JOINT_VEL if velocity else adapt.ACTION_JOINT_POS)


class Old(Arms):
    workflow_edition = "1999.01"


class Sized(Model):
    """Declares what its load takes."""

    spec = NO_ADAPTER
    params = ParamSpec(Param("size", choices=("small", "large")), Param("action", int))

    def load(self, size: str, action: int = 1, folder: str = "") -> None:
        noted(folder, "loaded")
        self.action = action + 10 * (size == "large")

    def predict(self, observation: Any) -> Any:
        return self.action % 5
