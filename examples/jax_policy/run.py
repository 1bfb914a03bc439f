"""Train a JAX policy on JAX dynamics, and evaluate it on gymnasium's CartPole in another process.

The vector env is served by `rlmesh.serve`; one forward pass serves its eight lanes. Exits non-zero
unless every episode balances for all of its 500 steps.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import rlmesh
from policy import Balance, train

LANES, EPISODES = 8, 20


@contextmanager
def served() -> Iterator[str]:
    """Give the address of a process that serves a vector env."""
    command = [sys.executable, "-m", "rlmesh.serve", "--env", "CartPole-v1"]
    command += ["--num-envs", str(LANES), "--vectorization-mode", "sync"]
    ready, theirs = os.pipe()
    command += ["--address", "127.0.0.1:0", "--idle-timeout", "60", "--ready-fd", str(theirs)]
    process = subprocess.Popen(command, pass_fds=[theirs])
    os.close(theirs)
    try:
        with os.fdopen(ready) as file:
            address = file.readline().strip()
        if not address:
            raise RuntimeError("the server did not start; see its output above")
        yield address
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="balance-") as directory, served() as address:
        began = time.perf_counter()
        weights, steps = train(seed=0)
        path = f"{directory}/balance.npz"
        np.savez(path, **{name: np.asarray(leaf) for name, leaf in weights.items()})
        print(f"trained in {time.perf_counter() - began:.1f} s, survives {steps:.0f} steps in JAX")
        model = Balance.from_config(weights=path)
        result = rlmesh.run(model, address, seeds=range(EPISODES))
        reached = sum(episode.steps == 500 for episode in result.episodes)
        print(f"mean reward {result.mean_reward:.1f} of 500, by socket")
        print(f"balanced to the end: {reached} of {EPISODES}")
    return 0 if reached == EPISODES else 1


if __name__ == "__main__":
    sys.exit(main())
