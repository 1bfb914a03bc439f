"""A good env, and one for each way to be bad: what a check must pass, and what it must catch."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlmesh.spaces import Box, Dict, Discrete

LENGTH = 12


class Good:
    """Walks by its actions and its own dice; ends after 12 steps, with success."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    render_mode: str | None = "rgb_array"
    observation_space: Any = Box(-1e6, 1e6, (3,))
    action_space: Any = Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.rng = np.random.default_rng(seed)
        self.steps = 0
        self.place = float(self.rng.uniform())
        return self.observation(), {}

    def observation(self) -> Any:
        return np.array([self.place, self.steps, 0], np.float32)

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.place += int(action) + float(self.rng.uniform())
        done = self.steps >= LENGTH
        return self.observation(), self.reward(), done, False, self.info(done)

    def reward(self) -> Any:
        return self.place

    def info(self, done: bool) -> Any:
        return {"success": True} if done else {}

    def render(self) -> Any:
        return np.zeros((4, 5, 3), np.uint8)

    def close(self) -> None:
        pass


# Seeds


class IgnoresSeed(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset()


class NothingIsSeeded(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=0)


class Remembers(Good):
    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episodes += 1
        return super().reset(seed=seed)

    def observation(self) -> Any:
        return np.array([self.place, self.steps, self.episodes], np.float32)


class DrawnWhenMade(Good):
    def __init__(self) -> None:
        self.offset = random.random()

    def reward(self) -> Any:
        return self.place + self.offset


class SharedDice(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        np.random.seed(seed)
        return super().reset(seed=seed)

    def reward(self) -> Any:
        return float(np.random.uniform())


class OfItsProcess(Good):
    def reward(self) -> Any:
        return float(os.getpid())


class OfItsHash(Good):
    def reward(self) -> Any:
        return float(hash("gripper") % 2**32)


class LastDigits(Good):
    episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episodes += 1
        return super().reset(seed=seed)

    def reward(self) -> Any:
        return self.place * (1 + self.episodes * 2.0**-52)


class OtherWhenServed(Good):
    def reward(self) -> Any:
        return float(any(t.name.startswith("rlmesh-") for t in threading.enumerate()))


# What reset and step return


class NoSeed(Good):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class RaisesInReset(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise FileNotFoundError("no assets")


class RaisesInStep(Good):
    def step(self, action: Any) -> Any:
        if self.steps == 4:
            raise KeyError("gripper")
        return super().step(action)


class ExitsInStep(Good):
    def step(self, action: Any) -> Any:
        raise SystemExit("licence")


class BareReset(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class InfoIsNone(Good):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], None


class FourParts(Good):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class ThreeParts(Good):
    def step(self, action: Any) -> Any:
        return super().step(action)[:3]


class FlagsAreNumbers(Good):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, int(terminated), 0, info


class WritesIntoActions(Good):
    action_space = Box(-1.0, 1.0, (2,))

    def step(self, action: Any) -> Any:
        action *= 0.5
        return super().step(1)


# Observations


class WrongShape(Good):
    def observation(self) -> Any:
        return np.zeros(4, np.float32)


class NotANumber(Good):
    def observation(self) -> Any:
        return np.array([np.nan if self.steps == 3 else 0, self.place, 0], np.float32)


class WrongDtype(Good):
    def observation(self) -> Any:
        return super().observation().astype(np.float64)


class AList(Good):
    def observation(self) -> Any:
        return super().observation().tolist()


class OutOfBounds(Good):
    observation_space = Box(-1.0, 5.0, (3,))


class Infinite(Good):
    observation_space = Box("-inf", "inf", (3,))

    def observation(self) -> Any:
        return np.array([np.inf, self.place, 0], np.float32)


class MissingKey(Good):
    observation_space = Dict({"a": Box(-9.0, 9.0, (1,)), "b": Discrete(3)})

    def observation(self) -> Any:
        return {"a": np.zeros(1, np.float32)}


class ExtraKey(MissingKey):
    def observation(self) -> Any:
        return {"a": np.array([self.rng.uniform()], np.float32), "b": 2, "debug": self.rng}


class Overwrites(Good):
    buffer = np.zeros(3, np.float32)

    def observation(self) -> Any:
        self.buffer[:] = super().observation()
        return self.buffer


class NoSpace(Good):
    observation_space = None


# Rewards, infos, metadata, outcomes


class RewardNotANumber(Good):
    def reward(self) -> Any:
        return float("nan")


class RewardInfinite(Good):
    def reward(self) -> Any:
        return float("inf")


class TwoRewards(Good):
    def reward(self) -> Any:
        return np.zeros(2)


class InfoWithObject(Good):
    def info(self, done: bool) -> Any:
        return {"sim": {"handle": threading.Lock()}, **super().info(done)}


class OutcomeIsAnObject(Good):
    def info(self, done: bool) -> Any:
        return {"success": complex(1, 0)} if done else {}


class NoOutcome(Good):
    def info(self, done: bool) -> Any:
        return {}


class MetadataWithObject(Good):
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "lock": threading.Lock()}


class NeverEnds(Good):
    def step(self, action: Any) -> Any:
        self.steps = 0
        return super().step(action)


# Frames, closing, threads, processes


class FloatFrames(Good):
    def render(self) -> Any:
        return np.zeros((4, 5, 3))


class NoFrame(Good):
    def render(self) -> Any:
        return None


class RaisesInRender(Good):
    def render(self) -> Any:
        raise RuntimeError("no display")


class UnlistedMode(Good):
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["human"]}


class ClosesOnce(Good):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("already closed")
        self.closed = True


class RaisesInClose(Good):
    def close(self) -> None:
        raise RuntimeError("cannot close")


class OfItsThread(Good):
    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def step(self, action: Any) -> Any:
        if threading.get_ident() != self.thread:
            self.elsewhere()
        return super().step(action)

    def elsewhere(self) -> None:
        raise RuntimeError("wrong thread")


class HangsElsewhere(OfItsThread):
    def elsewhere(self) -> None:
        threading.Event().wait()


class DiesElsewhere(OfItsThread):
    def elsewhere(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Hangs(Good):
    def __init__(self, pid_file: str = os.devnull) -> None:
        self.pid_file = pid_file

    def step(self, action: Any) -> Any:
        Path(self.pid_file).write_text(f"{os.getpid()}\n")
        threading.Event().wait()


class Dies(Good):
    def step(self, action: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)


class Chatty(Good):
    def step(self, action: Any) -> Any:
        print("python says step")
        os.write(1, b"C says step\n")
        return super().step(action)


def make_good(render_mode: str | None = None) -> Good:
    env = Good()
    env.render_mode = render_mode
    return env


a_good_one = Good()


def policy(observation: Any) -> int:
    return 1
