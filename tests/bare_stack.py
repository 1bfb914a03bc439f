"""What works where only `pip install rlmesh` was run: a program, as there is no pytest either.

It serves an env that knows no gymnasium and a model, each in a process of its own, and evaluates
them over both doors; the numbers are those of a run in process.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import rlmesh
from rlmesh.numpy import Model, RemoteModel

ABSENT = ("cv2", "PIL", "scipy", "gymnasium", "torch", "jax", "rich", "click", "pytest")
SEEDS = range(6)


class Counter:
    """Counts down from a number drawn by the seed; an action of 1 is what counts."""

    observation_space = rlmesh.spaces.Box(0.0, 100.0, [2], "float32")
    action_space = rlmesh.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.left = int(np.random.default_rng(seed).integers(3, 9))
        self.steps = 0
        return self.seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= action
        self.steps += 1
        info = {"success": self.left == 0}
        return self.seen(), 0.1 * self.left, self.left == 0, self.steps == 20, info

    def seen(self) -> np.ndarray[Any, Any]:
        return np.array([self.left, self.steps], np.float32)

    def close(self) -> None:
        pass


class EverySecond(Model):
    """Counts at every second step."""

    def predict_batch(self, observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return observations[:, 1].astype(np.int64) % 2


@contextmanager
def served(name: str, *options: str) -> Iterator[str]:
    ready, theirs = os.pipe()
    command = [sys.executable, "-W", "error", "-m", "rlmesh.serve", f"bare_stack:{name}"]
    command += ["--address", "127.0.0.1:0", "--ready-fd", str(theirs), *options]
    process = subprocess.Popen(command, cwd=Path(__file__).parent, pass_fds=[theirs])
    os.close(theirs)
    try:
        with os.fdopen(ready) as file:
            yield file.readline().strip()
    finally:
        process.terminate()
        assert process.wait(20) == 0


def numbers(result: rlmesh.RunResult) -> list[tuple[Any, ...]]:
    assert result.num_episodes == len(SEEDS)
    return [(e.seed, e.steps, e.reward, e.success) for e in result.episodes]


def main() -> None:
    present = [name for name in ABSENT if importlib.util.find_spec(name) is not None]
    assert not present, f"this environment is not bare: it holds {present}"
    expected = numbers(rlmesh.run(EverySecond(), Counter(), seeds=SEEDS))
    assert all(success for *_, success in expected)
    with (
        served("Counter") as env,
        served("Counter", "--num-envs", "3") as lanes,
        served("EverySecond") as model,
    ):
        over_grpc = env.replace("tcp://", "http://")
        for place in (env, over_grpc, lanes, [env, lanes]):
            assert numbers(rlmesh.run(EverySecond(), place, seeds=SEEDS)) == expected
            assert numbers(rlmesh.run(RemoteModel(model), place, seeds=SEEDS)) == expected
    command = [sys.executable, "-m", "rlmesh", "version"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1 and "rlmesh[cli]" in refused.stderr, refused
    print("serves and evaluates with numpy, protobuf and grpcio alone")


if __name__ == "__main__":
    main()
