"""`Model.run` on a served env that costs nothing: ours or 0.1.0, whichever is installed.

The client answers `{"kind": "run" or "bare"}` lines on stdin with the seconds per step of a run of
some episodes, or of the same episodes by hand; connecting and the resets are in both.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

import rlmesh
from harness import announce, end_with_driver
from payloads import PAYLOADS, ConstantEnv
from rlmesh.numpy import Model, RemoteEnv

EPISODE_STEPS = 200


class EpisodicEnv(ConstantEnv):
    """Four floats; truncates at 200 steps."""

    def __init__(self) -> None:
        super().__init__(PAYLOADS["floats"])
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self._steps == EPISODE_STEPS, info


class Trivial(Model):
    """Returns the same action, whatever it sees."""

    def load(self) -> None:
        self._action = PAYLOADS["floats"].action()

    def predict(self, observation: np.ndarray) -> np.ndarray:
        return self._action


def serve(address: str) -> None:
    server = rlmesh.EnvServer(EpisodicEnv(), address)
    end_with_driver()
    announce(address=server.address)
    server.serve()


def run(address: str, episodes: int) -> int:
    result = Trivial().run(address, seeds=range(episodes))
    return sum(episode.steps for episode in result.episodes)


def bare(address: str, episodes: int) -> int:
    predict, steps = Trivial().predict, 0
    with RemoteEnv(address) as env:
        for seed in range(episodes):
            observation, _ = env.reset(seed=seed)
            done = False
            while not done:
                observation, _, terminated, truncated, _ = env.step(predict(observation))
                done = terminated or truncated
                steps += 1
    return steps


def drive(address: str, episodes: int) -> None:
    kinds = {"run": run, "bare": bare}
    run(address, 1)
    announce(ready=True)
    for text in sys.stdin:
        begun = time.perf_counter()
        steps = kinds[json.loads(text)["kind"]](address, episodes)
        taken = time.perf_counter() - begun
        assert steps == episodes * EPISODE_STEPS, steps
        announce(step_s=taken / steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("end", choices=("server", "client"))
    parser.add_argument("address")
    parser.add_argument("--episodes", type=int, default=5)
    args = parser.parse_args()
    if args.end == "server":
        serve(args.address)
    else:
        drive(args.address, args.episodes)


if __name__ == "__main__":
    main()
