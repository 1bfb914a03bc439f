"""What the command is pointed at in the tests; they note in a folder what was done to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from evals.eval_envs import Held, Walk, feedback

import rlmesh
from rlmesh.numpy import Model


def note(folder: str, what: str) -> None:
    if folder:
        with (Path(folder) / what).open("a") as file:
            file.write("x")


class Noted(Walk):
    """Notes its closing; raises in the ``fails``-th reset."""

    def __init__(self, folder: str = "", fails: int = 0) -> None:
        super().__init__()
        self.folder, self.fails = folder, fails

    def reset(self, **arguments: Any) -> Any:
        if len(self.resets) + 1 == self.fails:
            raise OSError("the renderer is gone")
        return super().reset(**arguments)

    def close(self) -> None:
        note(self.folder, "env closed")


class Stubborn(Walk):
    def close(self) -> None:
        raise OSError("the window is stuck")


class Gated(Held):
    """Waits in the first step of seed 2; notes its closing."""

    def __init__(self, folder: str, seed: int = 2) -> None:
        super().__init__(folder, seed)

    def close(self) -> None:
        note(str(self.gate.folder), "env closed")


class Walks(rlmesh.EnvFactory):
    params = rlmesh.ParamSpec(rlmesh.Param("folder", str))

    def make(self, folder: str = "") -> Any:
        self.folder = folder
        note(folder, "made")
        return Noted(folder)

    def close(self) -> None:
        note(self.folder, "factory closed")


class Feedback(Model):
    """:func:`feedback`, stronger by ``gain``."""

    spec = rlmesh.NO_ADAPTER

    def load(self, gain: float = 1.0, folder: str = "") -> None:
        self.gain, self.folder = gain, folder

    def predict(self, observation: Any) -> Any:
        return (feedback(observation) * self.gain).astype(np.float32)

    def close(self) -> None:
        note(self.folder, "model closed")


class Policy:
    def predict(self, observation: Any) -> Any:
        return feedback(observation)


class Breaks(Model):
    spec = rlmesh.NO_ADAPTER
    left: ClassVar[int] = 10

    def predict(self, observation: Any) -> Any:
        self.left -= 1
        if not self.left:
            raise KeyError("state")
        return feedback(observation)


class NoNumbers(Walk):
    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float("nan"), *rest


class Chatty(Walk):
    """Prints in Python, in C, and when the process ends."""

    def step(self, action: Any) -> Any:
        print("python says step")
        os.write(1, b"C says step\n")
        return super().step(action)

    def close(self) -> None:
        import atexit

        atexit.register(print, "the end")
