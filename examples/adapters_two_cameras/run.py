"""A two-camera arm in MuJoCo, driven through a spec like that of a vision-language-action policy.

The policy sees what such a policy sees (two 224x224 frames, a proprioception vector with a 6-D
rotation, an instruction) and gives what it gives (7 numbers). It is a few lines of visual servoing
by the wrist camera, which the robot carries upside down. The second run leaves that out of the
env's tags: nothing raises, and nothing succeeds. Also writes the preview page of both cameras.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import rlmesh
from arm_env import TAGS, ArmEnv
from rlmesh import adapters as adapt
from rlmesh.numpy import Model

SEEDS = range(5)
STEPS = 25


class Servo(Model):
    """Centres the block named in the instruction under the fingers, and goes down."""

    spec = adapt.ModelSpec(
        {
            "image": adapt.Image(adapt.IMAGE_PRIMARY, size=224, fit="pad", resample="bilinear_aa"),
            "wrist_image": adapt.Image(
                adapt.IMAGE_WRIST, size=224, fit="pad", resample="bilinear_aa"
            ),
            "state": adapt.Concat(
                adapt.State(adapt.EEF_POS, frame="world"),
                adapt.State(adapt.EEF_ROT, encoding="rot6d", frame="world"),
                adapt.State(adapt.GRIPPER_POS, range=(0.0, 1.0)),
            ),
            "prompt": adapt.Text(adapt.INSTRUCTION),
        },
        adapt.Action(
            adapt.Actuator(adapt.ACTION_DELTA_POS, 3, range=(-1.0, 1.0), frame="world"),
            adapt.Actuator(adapt.ACTION_DELTA_ROT, 3, encoding="euler_xyz", frame="world"),
            adapt.Actuator(adapt.ACTION_GRIPPER, 1, range=(0.0, 1.0), invert=True),  # 1 is open
        ),
    )
    focal, centre = 109.5, 111.5
    """Of the wrist camera after resizing, in pixels."""
    ahead, above, block = 0.07, 0.11, 0.04
    """Where the camera sits from the fingertips, and the height of the block, in metres."""
    stride = 0.02
    """What an action of 1 asks of the hand."""

    def predict(self, seen: dict[str, Any]) -> np.ndarray:
        found = self.locate(seen["wrist_image"], seen["prompt"])
        if found is None:
            return np.array([0, 0, 0, 0, 0, 0, 1.0])
        height = seen["state"][2] - self.block
        depth = height + self.above
        down, right = (np.array(found) - self.centre) * depth / self.focal
        delta = np.array([self.ahead - down, -right, 0.0])  # in the world: x is up in the image
        if np.abs(delta).max() < 0.015:
            delta[2] = 0.01 - height
        return np.concatenate([np.clip(delta / self.stride, -1, 1), np.zeros(3), [1.0]])

    @staticmethod
    def locate(image: np.ndarray, prompt: str) -> tuple[float, float] | None:
        """Row and column of the centre of what has the colour the instruction names."""
        channel = next(i for i, name in enumerate(("red", "green", "blue")) if name in prompt)
        others = np.delete(image, channel, axis=-1).max(axis=-1).astype(int)
        rows, columns = np.nonzero(image[..., channel] > 2 * others + 20)
        return (rows.mean(), columns.mean()) if len(rows) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out",
        default=f"{tempfile.gettempdir()}/two_cameras_preview.html",
        help="where to write the preview page (default %(default)s)",
    )
    args = parser.parse_args()

    env, model = ArmEnv(), Servo()
    adapter = adapt.resolve(TAGS, env.observation_space, env.action_space, model.spec)
    print(adapter.explain())
    for advisory in adapter.advisories():
        print(f"{advisory.severity}: {advisory}")
    observation, _ = env.reset(seed=0)
    title = "What the servo policy sees of the two-camera arm"
    Path(args.out).write_text(adapter.preview(observation, title=title), encoding="utf-8")
    print(f"preview: {args.out}\n")

    right = rlmesh.run(model, env, seeds=SEEDS, max_episode_steps=STEPS)
    upright = adapt.ImageTag(adapt.IMAGE_WRIST)
    adapt.tag(env, replace(TAGS, observation={**TAGS.observation, "wrist": upright}))
    wrong = rlmesh.run(model, env, seeds=SEEDS, max_episode_steps=STEPS)
    env.close()
    print(f"success, wrist camera tagged upside down: {right.success_rate:.0%}")
    print(f"success, that left out of the tag:        {wrong.success_rate:.0%}")
    return 0 if right.success_rate == 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
