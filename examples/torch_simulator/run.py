"""Serve a simulator that lives on a torch device, and evaluate two policies on it by socket.

Actions reach `step` as tensors on the simulator's device; observations, rewards and flags come off
it once a step. The same controller is written in PyTorch, on its own device, and in NumPy: both are
given the same bits. Exits non-zero unless every episode succeeds, in the same number of steps.

    python run.py --device cuda
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import torch

import rlmesh
from point_masses import PointMasses
from rlmesh.numpy import Model as NumpyModel
from rlmesh.torch import Model as TorchModel

LANES = 16
SEEDS = range(32)
STIFF, DAMP = 1.0, 1.0
"""Of the controller; whole numbers, so that every library rounds alike."""


class Controller(TorchModel):
    """Pulls like a spring, in torch, on its device."""

    def load(self, device: str = "cpu") -> None:
        self.device = device

    def predict_batch(self, states: torch.Tensor) -> torch.Tensor:  # float32 [N, 6]
        position, velocity, goal = states.split(2, dim=1)
        return (STIFF * (goal - position) - DAMP * velocity).clamp(-1.0, 1.0)


class OnHost(NumpyModel):
    """The same in NumPy."""

    def predict_batch(self, states: np.ndarray) -> np.ndarray:
        position, velocity, goal = np.split(states, 3, axis=1)
        return np.clip(STIFF * (goal - position) - DAMP * velocity, -1.0, 1.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="of simulator and policy (default cpu)")
    device = parser.parse_args().device

    results = []
    env = PointMasses(LANES, device)
    with rlmesh.EnvServer(env, framework="torch", device=device) as server:
        server.start()
        for model in (Controller.from_config(device=device), OnHost()):
            result = rlmesh.run(model, server.address, seeds=SEEDS)
            results.append(result)
            print(f"{type(model).__name__:<12}{result!r}")
    steps = [[episode.steps for episode in result.episodes] for result in results]
    same = steps[0] == steps[1]
    print("the same episodes, step for step" if same else "DIFFERENT episodes")
    return 0 if same and all(result.success_rate == 1.0 for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
