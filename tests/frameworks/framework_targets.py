"""What ``python -m rlmesh.serve`` is pointed at in the tests of frameworks."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlmesh.torch
from rlmesh.numpy import Model
from rlmesh.spaces import Box


class Telling:
    """An env that says in its info what its action was and where it lay."""

    observation_space = action_space = Box(-1, 1, (2,))
    metadata: dict[str, Any] = {}  # noqa: RUF012
    render_mode = None

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        kind = type(action).__module__.partition(".")[0]
        where = str(getattr(action, "device", None)) if kind != "numpy" else "host"
        return action, 0.0, False, False, {"kind": kind, "where": where}

    def close(self) -> None:
        pass


class Bound(rlmesh.torch.EnvFactory):
    """Makes them, for torch."""

    def make(self) -> Any:
        return Telling()


class Still(Model):
    """Does nothing."""

    spec = rlmesh.NO_ADAPTER

    def predict(self, observation: Any) -> Any:
        return np.zeros(2, np.float32)
