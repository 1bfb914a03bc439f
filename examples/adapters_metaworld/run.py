"""Meta-World's scripted expert, behind a spec that shares neither layout nor units with the env.

The env is served by a process of its own and tagged there (serve.py). The policy below takes named
parts and answers with the gripper first, in [0, 1] with 1 open, and the displacement in metres.
Prints the plan and both results, and exits non-zero unless it does as well as the raw expert.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from metaworld.policies import ENV_POLICY_MAP

import rlmesh
from rlmesh import adapters as adapt
from rlmesh.numpy import Model
from serve import TASK, SeededTask

SEEDS = range(10)
METRES = 0.01
"""What an action of 1 asks of the hand."""


class Expert:
    """Meta-World's policy, clipped to the action space as the simulator clips it."""

    def __init__(self) -> None:
        self.policy = ENV_POLICY_MAP[TASK]()

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it overshoots on purpose, and warns
            return np.clip(self.policy.get_action(observation), -1.0, 1.0)


class NamedParts(Model):
    """The same expert as a policy of another make would be: its own names, order and units."""

    spec = adapt.ModelSpec(
        {
            "hand": {
                "position": adapt.State(adapt.EEF_POS, dtype="float64"),
                "opening": adapt.State(adapt.GRIPPER_POS, dtype="float64"),
            },
            "object": adapt.State("x/object_pos", dtype="float64"),
            "goal": adapt.State("x/goal_pos", dtype="float64"),
        },
        adapt.Action(
            adapt.Actuator(adapt.ACTION_GRIPPER, 1, range=(0.0, 1.0), invert=True),
            adapt.Actuator(adapt.ACTION_DELTA_POS, 3, range=(-METRES, METRES)),
        ),
    )

    def load(self) -> None:
        self.expert = Expert()

    def predict(self, parts: dict[str, Any]) -> np.ndarray:
        flat = np.zeros(39)
        flat[:3] = parts["hand"]["position"]
        flat[3:4] = parts["hand"]["opening"]
        flat[4:7] = parts["object"]
        flat[-3:] = parts["goal"]
        *delta, effort = self.expert(flat)
        opening = (1.0 - effort) / 2.0
        return np.array([opening, *(METRES * step for step in delta)])


@contextmanager
def served() -> Iterator[str]:
    """Give the address of a server process, which ends with the block."""
    script = Path(__file__).with_name("serve.py")
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError("the server did not start; see its output above")
        yield address
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def main() -> int:
    raw = rlmesh.run(Expert(), SeededTask(TASK), seeds=SEEDS)
    with served() as address:
        model = NamedParts()
        with rlmesh.RemoteEnv(address) as env:
            adapter = adapt.resolve_from_contract(env.env_contract, model.spec)
        print(adapter.explain())
        adapted = rlmesh.run(model, address, seeds=SEEDS)

    print(f"\n{'':<22}{'success':>9}{'steps':>8}")
    for name, result in (("raw, in process", raw), ("adapted, by socket", adapted)):
        print(f"{name:<22}{result.success_rate:>9.0%}{result.total_steps:>8}")
    same = [e.success for e in raw.episodes] == [e.success for e in adapted.episodes]
    print("the same episodes succeeded" if same else "DIFFERENT episodes succeeded")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
