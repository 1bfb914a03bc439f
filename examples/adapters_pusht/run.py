"""PushT from pixels and agent position, by a small policy with units and sizes of its own.

The env gives a 96x96 frame and a position in [0, 512]. The policy takes a 48x48 float image,
channels first, and positions in [-1, 1], and answers in [-1, 1]. Prints the plan, what the policy
saw of the block, and its reward beside that of random actions on the same seeds.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # no window; read when pygame is imported

import gymnasium
import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of pygame's own imports
    import gym_pusht  # noqa: F401 - registers the env

import rlmesh
from rlmesh import adapters as adapt
from rlmesh.numpy import Model

SEEDS = range(4)
STEPS = 100
AGENT, TARGET = "x/agent_pos", "x/agent_target"
"""PushT's hand has two coordinates and `EEF_POS` is 3-D by convention, so its roles are private."""

TAGS = adapt.EnvTags(
    {
        "pixels": adapt.ImageTag(adapt.IMAGE_PRIMARY),
        "agent_pos": adapt.StateTag(AGENT, labels=("x", "y")),  # its space says [0, 512]
    },
    adapt.Action(adapt.Actuator(TARGET, 2, labels=("x", "y"))),
)


class Pusher(Model):
    """Goes behind the grey T and pushes its centre to where the green one has its own."""

    spec = adapt.ModelSpec(
        {
            "image": adapt.Image(
                adapt.IMAGE_PRIMARY,
                size=48,
                resample="area",
                layout="chw",
                dtype="float32",
                normalize=True,
            ),
            "agent": adapt.State(AGENT, range=(-1.0, 1.0)),
        },
        adapt.Action(adapt.Actuator(TARGET, 2, range=(-1.0, 1.0))),
    )
    goal = np.array([-0.112, 0.112])  # the centre of the green T
    behind, aside = 0.42, 0.5

    def predict(self, seen: dict[str, Any]) -> np.ndarray:
        block, agent = self.locate(seen["image"]), seen["agent"]
        way = self.goal - block
        distance = np.linalg.norm(way)
        if distance < 0.03:
            return agent
        way /= distance
        offset = agent - block
        along, across = offset @ way, offset @ [-way[1], way[0]]
        if along < -0.1 and abs(across) < 0.12:
            return block + way * min(distance, 0.15)  # push
        if along < -0.1:
            return block - way * self.behind  # line up
        side = np.array([-way[1], way[0]]) * (1.0 if across > 0 else -1.0)
        return block + side * self.aside - way * self.behind  # go round

    @staticmethod
    def locate(image: np.ndarray) -> np.ndarray:
        """The centre of the bluish grey pixels, x and y in [-1, 1]."""
        red, _, blue = image
        grey = (blue - red > 0.08) & (blue - red < 0.3)
        rows, columns = np.nonzero(grey)
        return (np.array([columns.mean(), rows.mean()]) + 0.5) / image.shape[-1] * 2.0 - 1.0


class Watch(rlmesh.RunHooks):
    """Compares the block that the policy sees with the one the simulator has."""

    image = Pusher.spec.input["image"]

    def __init__(self) -> None:
        self.errors: list[float] = []

    def on_step(self, event: rlmesh.StepEvent) -> None:
        if event.step:
            seen = Pusher.locate(event.read(self.image))
            x, y, angle = self.pose
            # The T is a bar of 120 x 30 and a stem of 30 x 90; its pose is that of the bar's edge.
            centre = np.array([x, y]) + 40.7 * np.array([-np.sin(angle), np.cos(angle)])
            self.errors.append(float(np.linalg.norm((seen + 1) * 256 - centre)))
        self.pose = event.info["block_pose"]


def make_env() -> gymnasium.Env:
    env = gymnasium.make(
        "gym_pusht/PushT-v0", obs_type="pixels_agent_pos", disable_env_checker=True
    )
    return adapt.tag(env, TAGS)


def main() -> int:
    env, model, watch = make_env(), Pusher(), Watch()
    print(adapt.resolve(TAGS, env.observation_space, env.action_space, model.spec).explain())
    pushed = rlmesh.run(model, env, seeds=SEEDS, max_episode_steps=STEPS, hooks=watch)
    chance = rlmesh.run(rlmesh.RANDOM_SAMPLE, env, seeds=SEEDS, max_episode_steps=STEPS)
    env.close()
    print(f"\nblock as seen, against the simulator's: {np.mean(watch.errors):.1f} px of 512 off")
    print(f"mean reward, policy: {pushed.mean_reward:.2f}")
    print(f"mean reward, random: {chance.mean_reward:.2f}")
    return 0 if pushed.mean_reward > chance.mean_reward else 1


if __name__ == "__main__":
    sys.exit(main())
