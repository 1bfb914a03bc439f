"""Temporal ensembling as a hand-written adapter, on Meta-World's reach task.

The policy predicts ten actions at every step, each with an error of its own, as a network does.
Once only the first of each chunk is executed, once the mean of all that the last ten chunks say
about the step. Prints how much successive actions differ, and the success rates.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import rlmesh
from ensembling import TemporalEnsembling
from rlmesh import adapters as adapt
from rlmesh.numpy import Model

sys.path.append(str(Path(__file__).resolve().parents[1] / "metaworld_mt10"))

from task_env import SeededTask  # found by the line above

SEEDS = range(5)
CHUNK = 10

TAGS = adapt.EnvTags(
    adapt.Split(
        adapt.Field(adapt.EEF_POS, 3),
        adapt.Field(None, 33),
        adapt.Field("x/goal_pos", 3),
    ),
    adapt.Action(
        adapt.Actuator(adapt.ACTION_DELTA_POS, 3),
        adapt.Actuator(None, 1),  # the gripper has nothing to do: always 0
        clip=(-1.0, 1.0),
    ),
)
SPEC = adapt.ModelSpec(
    {"hand": adapt.State(adapt.EEF_POS), "goal": adapt.State("x/goal_pos")},
    adapt.Action(adapt.Actuator(adapt.ACTION_DELTA_POS, 3)),
)


class Planner:
    """Ten steps towards the goal, by a crude model of the hand, with errors."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def __call__(self, seen: dict[str, Any]) -> np.ndarray:
        hand = seen["hand"].astype(float)
        chunk = np.empty((CHUNK, 3))
        for row in chunk:
            row[:] = np.clip(5.0 * (seen["goal"] - hand), -1.0, 1.0)
            hand += 0.01 * row  # an action of 1 is a centimetre
        return chunk + self.rng.normal(0.0, 0.3, chunk.shape)


class Roughness(rlmesh.RunHooks):
    """How much each action differs from the one before it."""

    def __init__(self) -> None:
        self.differences: list[float] = []

    def on_step(self, event: rlmesh.StepEvent) -> None:
        if event.step:
            self.differences.append(float(np.abs(event.action - self.last).mean()))
        self.last = event.action


def evaluate(adapter: adapt.AdapterBase[np.ndarray], policy: Any) -> tuple[rlmesh.RunResult, float]:
    """Run the policy behind an adapter of our own; the model itself then takes raw values."""
    model = Model(
        adapter.wrap_predict(policy),
        spec=rlmesh.NO_ADAPTER,
        on_episode_end=lambda: adapter.reset(),  # without the episode's id: there is only one
    )
    hooks = Roughness()
    env = SeededTask("reach-v3")
    result = rlmesh.run(model, env, seeds=SEEDS, hooks=hooks, close_env=True)
    return result, float(np.mean(hooks.differences))


def main() -> int:
    env = SeededTask("reach-v3")
    inner = adapt.resolve(TAGS, env.observation_space, env.action_space, SPEC)
    env.close()
    ensembling = TemporalEnsembling(inner)
    print(f"{ensembling.explain()}\n")

    planner = Planner()
    first, rough = evaluate(inner, lambda seen: planner(seen)[0])
    mean, smooth = evaluate(ensembling, Planner())
    print(f"{'executed':<22}{'success':>9}{'steps':>7}   change of the action a step")
    for name, result, change in (("first of each chunk", first, rough), ("ensemble", mean, smooth)):
        print(f"{name:<22}{result.success_rate:>9.0%}{result.total_steps:>7}   {change:.3f}")
    return 0 if smooth < rough / 2 and mean.success_rate == 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
