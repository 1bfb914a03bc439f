"""What ``python -m rlmesh.serve`` is pointed at in the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from support.zoo import Countdown

from rlmesh import NO_ADAPTER
from rlmesh import adapters as adapt
from rlmesh.numpy import Model
from rlmesh.spaces import Discrete

if "RLMESH_TEST_MARKER" in os.environ:
    Path(os.environ["RLMESH_TEST_MARKER"]).touch()


def noted(folder: str, what: str) -> None:
    if folder:
        with (Path(folder) / what).open("a") as file:
            file.write("x")


class Constant(Model):
    """Always the same action; notes in ``folder`` when it is loaded and closed."""

    spec = NO_ADAPTER

    def load(self, action: int = 1, folder: str = "") -> None:
        noted(folder, "loaded")
        self.action, self.folder = action, folder

    def predict(self, observation: Any) -> Any:
        return self.action

    def close(self) -> None:
        noted(self.folder, "closed")


class Needy(Model):
    def load(self, weights: str) -> None:
        raise FileNotFoundError(f"no weights at {weights}")

    def predict(self, observation: Any) -> Any:
        return 0


class Mover(Model):
    """Declares what it reads."""

    spec = adapt.ModelSpec(
        {"state": adapt.State(adapt.JOINT_POS, dim=3)},
        adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2)),
    )

    def predict(self, observation: Any) -> Any:
        return np.zeros(2, np.float32)


class Policy:
    """No Model, but with a corner."""

    def predict(self, observation: Any) -> Any:
        return 2


class Called:
    def __call__(self, observation: Any) -> Any:
        return 3


class Factory:
    """Makes envs, once it is prepared."""

    prepared: ClassVar[bool] = False

    def prepare(self) -> None:
        type(self).prepared = True

    def make(self, length: int = 2) -> Any:
        assert self.prepared
        return Countdown(length)


class Neither:
    pass


def policy(observation: Any) -> Any:
    return 4


def make_env(length: int = 2) -> Any:
    return Countdown(length)


def make_sized(length: int) -> Any:
    return Countdown(length)


def make_nothing() -> Any:
    return None


def make_exit() -> Any:
    sys.exit(3)


class Bare:
    """What an env must have, and nothing of gymnasium's own."""

    observation_space = Discrete(2)
    action_space = Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return 0, {}

    def step(self, action: Any) -> Any:
        return 0, 0.0, True, False, {}

    def close(self) -> None:
        pass


def make_bare() -> Any:
    return Bare()


constant = Constant()
a_policy = Policy()
an_env = Countdown(2)
a_factory = Factory()
a_number = 3
