"""The envs and policies of this suite, for both interpreters: NumPy and gymnasium, nothing else.

Every env is a function of its seed and actions alone. A reset without a seed goes by the env's lane
and the number of its episode, so that autoreset is reproducible too.
"""

from __future__ import annotations

import os
import signal
import time
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv


def limits(dtype):
    """Return the bounds of the Box of a dtype in Dtypes."""
    if np.dtype(dtype).kind == "f":
        return -60000.0, 60000.0
    return (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


class Seeded(gym.Env):
    """Draws everything from ``self.rng``; subclasses say what a step draws."""

    def __init__(self, lane=0, render_mode=None):
        self.lane = lane
        self.render_mode = render_mode
        self.episode = 0
        self.t = 0

    def reset(self, *, seed=None, options=None):
        self.episode += 1
        self.t = 0
        self.rng = np.random.default_rng([self.lane, self.episode] if seed is None else seed)
        self.begin(options or {})
        return self.observe(), self.info()

    def step(self, action):
        self.t += 1
        reward, terminated, truncated = self.advance(action)
        return self.observe(), reward, terminated, truncated, self.info()

    def begin(self, options):
        """Draw what an episode starts with."""

    def info(self):
        return {}


class Tracker(Seeded):
    """A noisy point that the action pushes. Ends after 4 to 9 steps: as truncated if even."""

    metadata: ClassVar = {
        "render_modes": ["rgb_array"],
        "render_fps": 10,
        "authors": ["a", "b"],
        "scale": 0.1,
    }
    observation_space = spaces.Box(-50.0, 50.0, (4,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def begin(self, options):
        shift = np.float32(options.get("offset", 0) + options.get("trial_index", 0))
        self.state = self.rng.normal(size=4).astype(np.float32) + shift
        self.length = int(self.rng.integers(4, 10))

    def advance(self, action):
        push = np.concatenate([action, action])
        noise = self.rng.normal(size=4).astype(np.float32)
        self.state = np.float32(0.75) * self.state + push + np.float32(0.25) * noise
        done = self.t == self.length
        reward = 0.1 * (float(self.state[0]) - float(self.state[3]))
        return reward, done and self.length % 2 == 1, done and self.length % 2 == 0

    def observe(self):
        return self.state.copy()

    def info(self):
        return {"is_success": bool(self.t and self.state[0] > 0), "t": self.t}

    def render(self):
        return picture(self.lane + self.t, (24, 32, 3)) if self.render_mode else None


class Strays(Tracker):
    """A Tracker that leaves the bounds it declares."""

    observation_space = spaces.Box(-0.01, 0.01, (4,), np.float32)


class Trials(Tracker):
    """A Tracker that asks for the index of the trial."""

    metadata: ClassVar = {"render_modes": [], "rlmesh.env.v1.reset_options": ["trial_index"]}


class Cameras(Seeded):
    """An arm and two cameras full of noise, with tags: what adapters read, by role."""

    metadata: ClassVar = {
        "rlmesh.adapters.v1.env_tags": {
            "observation": {
                "arm": {"type": "state", "role": "proprio/joint_pos"},
                "front": {"type": "image", "role": "image/primary", "layout": "hwc"},
                "wrist": {"type": "image", "role": "image/wrist", "layout": "hwc"},
            },
            "action": {"components": [{"role": "action/joint_pos", "dim": 2}]},
        }
    }
    observation_space = spaces.Dict(
        {
            "arm": spaces.Box(-9.0, 9.0, (2,), np.float32),
            "front": spaces.Box(0, 255, (36, 48, 3), np.uint8),
            "wrist": spaces.Box(0, 255, (32, 32, 3), np.uint8),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def begin(self, options):
        self.arm = self.rng.normal(size=2).astype(np.float32)
        self.length = int(self.rng.integers(3, 8))

    def advance(self, action):
        self.arm = np.float32(0.5) * (self.arm + action)
        return float(self.arm.sum()), self.t == self.length, False

    def observe(self):
        frames = self.rng.integers(0, 256, (2, 36, 48, 3), np.uint8)
        return {"arm": self.arm.copy(), "front": frames[0], "wrist": frames[1, :32, :32].copy()}


CHARSET = "abc ÄÖÜ✓🤖"


class Zoo(Seeded):
    """Every kind of space in one observation and one action; the observation echoes the action."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (12, 16, 3), np.uint8),
            "wrist": spaces.Box(0, 255, (2, 6, 5, 1), np.uint8),
            "depth": spaces.Box(0.0, np.inf, (6, 5), np.float16),
            "state": spaces.Box(-np.inf, np.inf, (3,), np.float64),
            "counter": spaces.Box(-(2**63), 2**63 - 1, (1,), np.int64),
            "flags": spaces.Box(0, 1, (2,), bool),
            "instruction": spaces.Text(40, charset=CHARSET),
            "mood": spaces.Discrete(4, start=-2),
            "bits": spaces.MultiBinary(5),
            "panel": spaces.MultiBinary([2, 3]),
            "grid": spaces.MultiDiscrete([3, 4, 5]),
            "table": spaces.MultiDiscrete([[3, 4], [5, 6]]),
            "pair": spaces.Tuple(
                (
                    spaces.Discrete(3),
                    spaces.Dict({"z": spaces.Text(8), "a": spaces.Box(-1.0, 1.0, (2,))}),
                )
            ),
            "heard": spaces.Text(40, charset=CHARSET),
            "moved": spaces.Box(-1.0, 1.0, (2, 2), np.float32),
            "chosen": spaces.Box(-10, 10, (8,), np.int16),
        }
    )
    action_space = spaces.Dict(
        {
            "move": spaces.Box(-1.0, 1.0, (2, 2), np.float32),
            "mood": spaces.Discrete(5, start=-2),
            "buttons": spaces.MultiBinary(4),
            "knobs": spaces.Tuple((spaces.MultiDiscrete([3, 2]), spaces.Discrete(9))),
            "say": spaces.Text(40, charset=CHARSET),
        }
    )

    def begin(self, options):
        self.spoken = options.get("instruction", "abc ✓")
        self.action = None

    def advance(self, action):
        self.action = action
        return float(np.float64(self.rng.normal())), False, self.t == 6

    def observe(self):
        rng, action = self.rng, self.action
        mood, buttons, (knobs, dial), say, move = (
            (0, [0] * 4, ([0, 0], 0), "a", np.zeros((2, 2), np.float32))
            if action is None
            else (action[key] for key in ("mood", "buttons", "knobs", "say", "move"))
        )
        return {
            "camera": rng.integers(0, 256, (12, 16, 3)).astype(np.uint8),
            "wrist": rng.integers(0, 256, (2, 6, 5, 1)).astype(np.uint8),
            "depth": rng.uniform(0, 9, (6, 5)).astype(np.float16),
            "state": rng.normal(size=3),
            "counter": rng.integers(-(2**63), 2**63 - 1, (1,)),
            "flags": rng.integers(0, 2, (2,)).astype(bool),
            "instruction": self.spoken,
            "mood": np.int64(rng.integers(-2, 2)),
            "bits": rng.integers(0, 2, 5).astype(np.int8),
            "panel": rng.integers(0, 2, (2, 3)).astype(np.int8),
            "grid": rng.integers(0, [3, 4, 5]),
            "table": rng.integers(0, [[3, 4], [5, 6]]),
            "pair": (
                np.int64(rng.integers(0, 3)),
                {"z": "spam"[: rng.integers(1, 5)], "a": rng.uniform(-1, 1, 2).astype(np.float32)},
            ),
            "heard": say,
            "moved": np.asarray(move, np.float32),
            "chosen": np.array([mood, *buttons, *knobs, dial], np.int16),
        }


class Talker(Seeded):
    """Text in, text out."""

    observation_space = spaces.Text(60, charset=CHARSET)
    action_space = spaces.Text(20, charset=CHARSET)

    def begin(self, options):
        self.said = "a"

    def advance(self, action):
        assert type(action) is str
        self.said = action + " " + action[::-1]
        return float(len(action)), self.t == 5, False

    def observe(self):
        return self.said


class Edges(Seeded):
    """What gymnasium has and 0.1.0 has not: a 0-d Box and an empty text."""

    observation_space = spaces.Dict(
        {"level": spaces.Box(-5.0, 5.0, (), np.float32), "note": spaces.Text(4, min_length=0)}
    )
    action_space = spaces.Box(-1.0, 1.0, (), np.float32)

    def begin(self, options):
        self.level = np.float32(self.rng.normal())

    def advance(self, action):
        assert np.shape(action) == (), np.shape(action)
        self.level = np.float32(0.5) * self.level + np.float32(action)
        return float(self.level), False, self.t == 4

    def observe(self):
        return {"level": np.asarray(self.level), "note": "" if self.t % 2 else "ab"}


class Annotated(Seeded):
    """Infos and metadata with everything that simulators put there."""

    metadata: ClassVar = {
        "render_modes": [],
        "robot": {"name": "arm", "joints": [1, 2.5, None, True]},
    }
    observation_space = spaces.Discrete(10)
    action_space = spaces.Discrete(2)

    def advance(self, action):
        return np.float32(0.1), False, self.t == 3

    def observe(self):
        return self.t

    def info(self):
        return {
            "flag": np.bool_(True),
            "count": np.int64(-7),
            "unsigned": np.uint8(200),
            "error": np.float32(0.1),
            "exact": np.float64(0.1),
            "zero_d": np.array(1.5),
            "path": self.rng.normal(size=(2, 3)),
            "mask": np.array([True, False]),
            "empty": np.zeros((0, 3)),
            "nested": {"deep": {"values": np.arange(3), "pair": (1, "two")}},
            "text": "Grüße ✓",
            "raw": b"\x00\xff",
            "nothing": None,
            "big": 2**62,
            "list": [np.float64(1.25), {"a": np.int32(3)}],
        }


class Untidy(Seeded):
    """An info with values that no message can hold."""

    observation_space = action_space = spaces.Discrete(2)

    def advance(self, action):
        return 0.0, False, False

    def observe(self):
        return 0

    def info(self):
        return {"fine": 1.5, "mujoco": object(), "huge": 2**70, "nan": float("nan")}


class Dtypes(Seeded):
    """Every dtype there is; the observation is the last action."""

    DTYPES = (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64"),
    )
    observation_space = spaces.Dict(
        {name: spaces.Box(*limits(name), (2, 3), np.dtype(name)) for name in DTYPES}
        | {"choice": spaces.Discrete(5, start=-3, dtype=np.int32), "none": spaces.Tuple(())}
    )
    action_space = observation_space

    @classmethod
    def draw(cls, rng):
        """Return a value of the space, extremes included."""
        value = {
            name: rng.choice(np.array([*limits(name), 1], name), (2, 3)) for name in cls.DTYPES
        }
        return {**value, "choice": np.int32(rng.integers(-3, 2)), "none": ()}

    def begin(self, options):
        self.action = self.draw(self.rng)

    def advance(self, action):
        self.action = action
        return 0.0, False, self.t == 5

    def observe(self):
        return self.action


class Faulty(Seeded):
    """Fails on demand: the action says how."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(5)
    FINE, RAISE, SLEEP, DIE, MISSHAPE = range(5)

    def begin(self, options):
        if options.get("fail"):
            raise ValueError("no such scene")

    def advance(self, action):
        self.action = action
        if action == self.RAISE:
            raise KeyError("boom")
        if action == self.SLEEP:
            time.sleep(1.5)
        if action == self.DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1.0, False, False

    def observe(self):
        wrong = self.t and self.action == self.MISSHAPE
        return np.full(3 if wrong else 2, 0.5, np.float32)

    def render(self):
        raise RuntimeError("no display")


class Unbounded(Seeded):
    """Takes any action, so that only its value can be at fault."""

    observation_space = action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def begin(self, options):
        self.action = np.zeros(2, np.float32)

    def advance(self, action):
        self.action = action
        return 0.0, False, False

    def observe(self):
        return self.action


class Frames(Seeded):
    """Renders pictures of every form that makes an encoder choose differently."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 10}
    observation_space = action_space = spaces.Discrete(100)

    def advance(self, action):
        return 0.0, False, False

    def observe(self):
        return self.t

    def render(self):
        return picture(self.t, FRAME_SHAPES[self.t % len(FRAME_SHAPES)])


FRAME_SHAPES = [(24, 32, 3), (1, 1, 3), (7, 5, 3), (48, 64, 3), (3, 200, 3), (200, 3, 3), (9, 8, 4)]


class Panorama(Seeded):
    """Observations and actions beyond gRPC's own message limit of 4 MiB."""

    observation_space = spaces.Box(0, 255, (1400, 1300, 3), np.uint8)
    action_space = spaces.Box(-1.0, 1.0, (1_200_000,), np.float32)

    def advance(self, action):
        return float(action[-1]), False, False

    def observe(self):
        return self.rng.integers(0, 256, (1400, 1300, 3), dtype=np.uint8)


def picture(kind, shape):
    """Return an image: smooth, noisy, flat or edged, so that every PNG row filter has its turn."""
    height, width, channels = shape
    rows, columns = np.mgrid[0:height, 0:width]
    ramp = (rows * 3 + columns * 5 + kind)[:, :, None] + 40 * np.arange(channels)
    noise = np.random.default_rng(kind).integers(0, 256, shape)
    edges = np.where((rows // 4 + columns // 4) % 2, 250, 5)[:, :, None] + np.arange(channels)
    options = (ramp, noise, np.full(shape, 77), edges, ramp // 7 + noise // 60)
    return (options[kind % len(options)] % 256).astype(np.uint8)


def vector(mode, lanes=3, render_mode=None):
    """Return Trackers as gymnasium's vector env."""
    makers = [lambda lane=lane: Tracker(lane, render_mode) for lane in range(lanes)]
    return SyncVectorEnv(makers, autoreset_mode=mode)


ENVS = {
    "tracker": Tracker,
    "tracker_rgb": lambda: Tracker(render_mode="rgb_array"),
    "cartpole": lambda: gym.make("CartPole-v1"),
    "trials": Trials,
    "trial_lanes": lambda: [Trials(lane) for lane in range(2)],
    "panorama": Panorama,
    "zoo": Zoo,
    "talker": Talker,
    "edges": Edges,
    "annotated": Annotated,
    "untidy": Untidy,
    "dtypes": Dtypes,
    "faulty": Faulty,
    "unbounded": Unbounded,
    "frames": lambda: Frames(render_mode="rgb_array"),
    "next_step": lambda: vector(AutoresetMode.NEXT_STEP),
    "next_step_rgb": lambda: vector(AutoresetMode.NEXT_STEP, render_mode="rgb_array"),
    "same_step": lambda: vector(AutoresetMode.SAME_STEP),
    "disabled": lambda: vector(AutoresetMode.DISABLED),
    "zoo_vector": lambda: SyncVectorEnv([Zoo, Zoo], autoreset_mode=AutoresetMode.NEXT_STEP),
    "lanes": lambda: [Tracker(lane) for lane in range(2)],
    "lanes_rgb": lambda: [Tracker(lane, "rgb_array") for lane in range(2)],
    "zoo_lanes": lambda: [Zoo(0), Zoo(1)],
    "cameras": Cameras,
    "camera_lanes": lambda: [Cameras(0), Cameras(1)],
    "stray_lanes": lambda: [Strays(0), Strays(1)],
}
"""How to make each env, by the name that tests and reference programs share."""


def steer(observation):
    """A policy for Tracker: back towards the origin; one observation or a batch of them."""
    return np.clip(np.float32(-0.5) * observation[..., :2], -1, 1)


def balance(observation):
    """A policy for CartPole that keeps the pole up for a while."""
    return int(observation[2] + observation[3] > 0)


def chatter(observation):
    """A policy for Zoo that looks at all of its parts."""
    state = np.clip(observation["state"], -1, 1).astype(np.float32)
    light = int(observation["camera"].sum(dtype=np.int64))
    return {
        "move": np.array([[state[0], state[1]], [state[2], observation["flags"][0]]], np.float32),
        "mood": observation["mood"],
        "buttons": observation["bits"][:4],
        "knobs": (observation["grid"][:2] % [3, 2], light % 9),
        "say": observation["instruction"][: 1 + light % 3],
    }


def stacked(trees):
    """Return one tree a lane as a tree of batched leaves; texts become a list."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: stacked([tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked(list(children)) for children in zip(*trees, strict=True))
    return list(trees) if isinstance(first, str) else np.stack(trees)


POLICIES = {
    "steer": steer,
    "balance": balance,
    "chatter": chatter,
    "idle": lambda observation: Faulty.FINE,
    "provoke": lambda observation: Faulty.RAISE,
}
