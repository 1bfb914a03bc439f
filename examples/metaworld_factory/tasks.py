"""Meta-World's MT10 as one env factory: a parameter chooses the task, every task is a variant.

rlmesh serve tasks:MetaWorld --kwargs-json '{"task": "door-open-v3"}'
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import rlmesh
from rlmesh import adapters as adapt

sys.path.append(str(Path(__file__).resolve().parents[1] / "metaworld_mt10"))

from task_env import TASKS, SeededTask  # found by the line above


class MetaWorld(rlmesh.EnvFactory):
    """A task of MT10 in which `reset(seed=)` chooses one of its 50 variations."""

    params = rlmesh.ParamSpec(
        rlmesh.Param("task", "enum", choices=TASKS, description="which of the ten tasks"),
        rlmesh.Param("max_steps", int, description="truncates an episode at that step, 1 to 500"),
    )
    tags = adapt.EnvTags(
        adapt.Split(
            adapt.Field(adapt.EEF_POS, 3),
            adapt.Field(adapt.GRIPPER_POS, 1),  # 1 is open
            adapt.Field("x/object_pos", 3),
            adapt.Field("x/object_rot", 4, encoding="quat_xyzw"),
            adapt.Field(None, 7),  # a second object, zero in most tasks
            adapt.Field(None, 18),  # the same of the step before
            adapt.Field("x/goal_pos", 3),
        ),
        adapt.Action(
            adapt.Actuator(adapt.ACTION_DELTA_POS, 3),  # [-1, 1], from the space: 1 is a centimetre
            adapt.Actuator(adapt.ACTION_GRIPPER, 1),  # [-1, 1]: 1 closes
        ),
    )

    def make(self, task: str = "reach-v3", max_steps: int = 500) -> SeededTask:
        if not 1 <= max_steps <= 500:
            raise rlmesh.params.ParamError(f"max_steps must be 1 to 500, got {max_steps}")
        env = SeededTask(task)
        env.unwrapped.max_path_length = max_steps
        return env

    @classmethod
    def enumerate_variants(cls) -> Iterator[rlmesh.Variant]:
        for task in TASKS:
            verb, _, rest = task.removesuffix("-v3").partition("-")
            name = " ".join([verb, *rest.split("-")])
            yield rlmesh.Variant(task, {"task": task}, name=name)
