"""The two ends of an evaluation over a link: three cameras, of which the policy reads one at 224.

``serve env`` and ``serve model`` wait at the far end; ``run`` answers each ``{"steps": n}`` line on
stdin with the seconds and the bytes that a step took, between the first and the last of a run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import gymnasium as gym
import numpy as np

import floor
import rlmesh
from harness import announce, end_with_driver
from payloads import Payload
from rlmesh import adapters as adapt
from rlmesh.numpy import Model

DEVICE = Path("/sys/class/net/v0/statistics")
ROLES = {"front": adapt.IMAGE_PRIMARY, "left": adapt.IMAGE_SECONDARY, "wrist": adapt.IMAGE_WRIST}
SHAPE = (480, 640, 3)
SIDE = 224
JOINTS = adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 7))
ACTION = np.full(7, 0.25, np.float32)

WAYS = ("everything", "projection", "pushdown")
TRAVELS = {
    "everything": Payload("", "", dict.fromkeys(ROLES, (SHAPE, "uint8"))),
    "projection": Payload("", "", {"": (SHAPE, "uint8")}),
    "pushdown": Payload("", "", {"": ((SIDE, SIDE, 3), "uint8")}),
}
"""What of an observation has to cross."""


class Marks:
    """When the first and the last step of a run began, and what had crossed the link by then."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._steps = 0

    def note(self, last: int) -> None:
        self._steps += 1
        if self._steps == 1:
            self._first = (time.perf_counter(), crossed())
        elif self._steps == last:
            assert self._first is not None
            taken = time.perf_counter() - self._first[0]
            nbytes = crossed() - self._first[1]
            announce(step_s=taken / (last - 1), bytes=nbytes / (last - 1))


def crossed() -> int:
    return sum(int((DEVICE / name).read_text()) for name in ("rx_bytes", "tx_bytes"))


class Cameras(gym.Env[Any, Any]):
    """Costs nothing; never ends."""

    observation_space = gym.spaces.Dict(
        {name: gym.spaces.Box(0, 255, SHAPE, np.uint8) for name in ROLES}
    )
    action_space = gym.spaces.Box(-1.0, 1.0, (7,), np.float32)
    marks: Marks | None = None
    last = 0

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._seen: Any = {name: rng.integers(0, 256, SHAPE, np.uint8) for name in ROLES}
        tags = adapt.EnvTags({name: adapt.ImageTag(role) for name, role in ROLES.items()}, JOINTS)
        adapt.tag(self, tags)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._seen, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.marks is not None:
            self.marks.note(self.last)
        return self._seen, 1.0, False, False, {}


class Reader(Model):
    """Says what it reads."""

    spec = adapt.ModelSpec(adapt.Image(adapt.IMAGE_PRIMARY, size=SIDE, fit="stretch"), JOINTS)
    marks: Marks | None = None
    last = 0

    def predict(self, observation: Any) -> np.ndarray:
        if self.marks is not None:
            self.marks.note(self.last)
        return ACTION


class Taker(Reader):
    """Takes whole observations, and resizes the camera itself."""

    spec = rlmesh.NO_ADAPTER

    def predict(self, observation: Any) -> np.ndarray:
        cv2.resize(observation["front"], (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
        return super().predict(observation)


def model(way: str) -> Reader:
    return Taker() if way == "everything" else Reader()


def serve(what: str, way: str, address: str) -> None:
    if what == "floor":
        floor.serve(TRAVELS[way], address, "step")
        return
    server: Any
    if what == "env":
        server = rlmesh.EnvServer(Cameras(), address)
    else:
        server = rlmesh.ModelServer(model(way), address)
    end_with_driver()
    announce(address=server.address)
    server.serve()


def run(what: str, way: str, address: str) -> None:
    announce(ready=True)
    ping = floor.connect(TRAVELS[way], address, "step") if what == "floor" else None
    for text in sys.stdin:
        steps = json.loads(text)["steps"] + 1
        marks = Marks()
        if ping is not None:
            for _ in range(steps):
                marks.note(steps)
                ping()
        elif what == "env":
            policy = model(way)
            policy.marks, policy.last = marks, steps
            pushed = way == "pushdown"
            rlmesh.run(policy, address, seeds=[0], max_episode_steps=steps, pushdown=pushed)
        else:
            env = Cameras()
            env.marks, env.last = marks, steps
            rlmesh.run(rlmesh.RemoteModel(address), env, seeds=[0], max_episode_steps=steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("end", choices=("serve", "run"))
    parser.add_argument("what", choices=("env", "model", "floor"))
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("address")
    args = parser.parse_args()
    end = serve if args.end == "serve" else run
    end(args.what, args.way, args.address)


if __name__ == "__main__":
    main()
