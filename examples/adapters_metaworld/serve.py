"""Serve Meta-World's pick-and-place with tags that say what its 39 numbers and 4 actions mean."""

from __future__ import annotations

import sys
from pathlib import Path

import rlmesh
from rlmesh import adapters as adapt

sys.path.append(str(Path(__file__).resolve().parents[1] / "metaworld_mt10"))

from task_env import SeededTask  # found by the line above

TASK = "pick-place-v3"

TAGS = adapt.EnvTags(
    adapt.Split(
        adapt.Field(adapt.EEF_POS, 3),
        adapt.Field(adapt.GRIPPER_POS, 1),  # 1 is open
        adapt.Field("x/object_pos", 3),
        adapt.Field("x/object_rot", 4, encoding="quat_xyzw"),
        adapt.Field(None, 7),  # a second object, which this task has not
        adapt.Field(None, 18),  # the same of the step before
        adapt.Field("x/goal_pos", 3),
    ),
    adapt.Action(
        adapt.Actuator(adapt.ACTION_DELTA_POS, 3),  # [-1, 1], from the space: 1 is a centimetre
        adapt.Actuator(adapt.ACTION_GRIPPER, 1),  # [-1, 1]: 1 closes
    ),
)


def main() -> None:
    options = rlmesh.ServeOptions(idle_timeout_seconds=60)
    server = rlmesh.EnvServer(SeededTask(TASK), "127.0.0.1:0", options=options, tags=TAGS)
    print(server.address, flush=True)
    server.serve()


if __name__ == "__main__":
    main()
