"""Envs with cameras that nobody reads, and policies that act on every bit they are given."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Text, Tuple

from rlmesh import adapters as adapt
from rlmesh.numpy import Model

__all__ = ["CUSTOM", "SPECS", "PairRig", "Rig", "Witness", "rigs"]

LENGTHS = (5, 1, 8, 3)
JOINTS = adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2))
DEPTH = "x/depth"


class Rig(gymnasium.Env):  # type: ignore[type-arg]
    """Four cameras full of noise that follows the actions, an arm and a task; tagged.

    ``side`` has its channels first and hangs upside down; ``depth`` is a float image.

    Args:
        scale: how many times as large each side of a camera is.
    """

    metadata: ClassVar[dict[str, Any]] = {}

    def __init__(self, scale: int = 1) -> None:
        def camera(height: int, width: int, *, chw: bool = False) -> Box:
            sides = (scale * height, scale * width)
            return Box(0, 255, (3, *sides) if chw else (*sides, 3), np.uint8)

        self.observation_space = Dict(
            {
                "arm": Box(-np.inf, np.inf, (2,), np.float32),
                "depth": Box(0.0, 1.0, (12, 16, 1), np.float32),
                "front": camera(36, 48),
                "side": camera(30, 40, chw=True),
                "task": Text(40, charset="acehr0123456789 fo"),
                "wrist": camera(32, 32),
            }
        )
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.metadata = {}
        tags = {
            "arm": adapt.StateTag(adapt.JOINT_POS),
            "depth": adapt.ImageTag(DEPTH),
            "front": adapt.ImageTag(adapt.IMAGE_PRIMARY),
            "side": adapt.ImageTag(adapt.IMAGE_SECONDARY, layout="chw", upside_down=True),
            "task": adapt.TextTag(adapt.INSTRUCTION),
            "wrist": adapt.ImageTag(adapt.IMAGE_WRIST),
        }
        adapt.tag(self, adapt.EnvTags(tags, JOINTS))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._n, self._seed = 0, seed or 0
        self._length = LENGTHS[self._seed % len(LENGTHS)]
        self._arm = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self._look(), {}

    def _look(self) -> dict[str, Any]:
        entropy = [self._seed, self._n, *self._arm.view(np.uint32).tolist()]
        rng = np.random.default_rng(entropy)
        seen: dict[str, Any] = {"arm": self._arm.copy(), "task": f"reach for {self._seed % 7}"}
        for key in ("front", "side", "wrist"):
            shape = self.observation_space[key].shape  # type: ignore[index]
            seen[key] = rng.integers(0, 256, shape, np.uint8)
        seen["depth"] = rng.random((12, 16, 1), np.float32)
        return seen

    def step(self, action: Any) -> Any:
        self._n += 1
        self._arm = (self._arm * np.float32(0.5) + action * np.float32(0.5)).astype(np.float32)
        over = self._n >= self._length
        info = {"success": bool(self._arm[0] > 0)} if over else {}
        return self._look(), float(self._arm.sum()), over, False, info


class PairRig(gymnasium.ObservationWrapper):  # type: ignore[type-arg]
    """A Rig whose observation is a tuple: (front, (wrist, arm))."""

    def __init__(self) -> None:
        super().__init__(Rig())
        spaces: Any = self.env.observation_space
        self.observation_space = Tuple((spaces["front"], Tuple((spaces["wrist"], spaces["arm"]))))
        tags = (
            adapt.ImageTag(adapt.IMAGE_PRIMARY),
            (adapt.ImageTag(adapt.IMAGE_WRIST), adapt.StateTag(adapt.JOINT_POS)),
        )
        self.metadata = {}  # type: ignore[misc]
        adapt.tag(self, adapt.EnvTags(tags, JOINTS))

    def observation(self, observation: Any) -> Any:
        return observation["front"], (observation["wrist"], observation["arm"])


def rigs(count: int) -> list[Rig]:
    """Return several, to be served as lanes."""
    return [Rig() for _ in range(count)]


def _front(**fields: Any) -> adapt.Image:
    return adapt.Image(adapt.IMAGE_PRIMARY, **fields)


def _side(**fields: Any) -> adapt.Image:
    return adapt.Image(adapt.IMAGE_SECONDARY, **fields)


def _spec(**inputs: Any) -> adapt.ModelSpec:
    return adapt.ModelSpec({**inputs, "arm": adapt.State(adapt.JOINT_POS)}, JOINTS)


SPECS: Mapping[str, adapt.ModelSpec] = {
    "bilinear": _spec(a=_front(height=18, width=24)),
    "pillow": _spec(a=_front(size=20, fit="stretch", resample="bilinear_aa", layout="chw")),
    "area": _spec(a=_front(size=16, fit="crop", resample="area", channel_order="bgr")),
    "lanczos": _spec(
        a=_front(size=16, fit="pad", resample="lanczos3_aa", normalize=True, dtype="float32")
    ),
    "zoom": _spec(a=_front(size=14, crop=0.875, fit="stretch", resample="bilinear_aa")),
    "zoom area": _spec(a=_front(height=12, width=16, crop_area=0.81, fit="pad", lead_dims=1)),
    "slice": _spec(a=_front(crop=0.5, crop_mode="slice", upside_down=True)),
    "jpeg": _spec(a=_front(height=9, width=12, jpeg_quality=70, upside_down=True)),
    "turned": _spec(a=_side(height=15, width=20)),
    "side as it is": _spec(a=_side(height=15, width=20, upside_down=True, layout="chw")),
    "stack": _spec(
        a=_front(height=9, width=12, stack=3, offsets=(-4, -1, 0), stack_pad="black"),
        task=adapt.Text(adapt.INSTRUCTION),
    ),
    "two cameras": _spec(a=_front(size=10, fit="stretch"), b=_side(size=10, fit="stretch")),
    "one camera twice": _spec(
        a=_front(height=9, width=12), b=_front(height=9, width=12, normalize=True, dtype="float32")
    ),
    "one camera, unlike": _spec(a=_front(height=9, width=12), b=_front(height=18, width=24)),
    "one camera, begun alike": _spec(
        a=_front(crop=0.5, crop_mode="slice", height=9, width=12),
        b=_front(crop=0.5, crop_mode="slice", layout="chw"),
    ),
    "floats": _spec(a=adapt.Image(DEPTH, height=6, width=8), b=_front(height=18, width=24)),
    "upscaled": _spec(a=_front(height=72, width=96, allow_upscale=True)),
    "no camera": _spec(),
    "nothing": adapt.ModelSpec({"a": adapt.State("proprio/gripper", optional=True, dim=1)}, JOINTS),
}
"""What policies read, by a name."""


def _custom(observation: Mapping[str, Any]) -> Any:
    return np.array([observation["wrist"].sum() % 251], np.float32)


CUSTOM = _spec(a=_front(height=18, width=24), own=adapt.Custom(_custom))


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key in sorted(value):
            _feed(digest, value[key])
    elif isinstance(value, str):
        digest.update(value.encode())
    else:
        array = np.asarray(value)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())


class Witness(Model):
    """Acts on a hash of what it is given, so one bit more or less is another trajectory.

    ``given`` has the hash of each prediction's input, by the episode's seed and its number.
    """

    def load(self, name: str) -> None:
        self.spec = CUSTOM if name == "custom" else SPECS[name]
        self.given: dict[tuple[Any, int], str] = {}

    def predict_chunk(self, observation: Any, context: Any) -> Any:
        digest = hashlib.sha256()
        _feed(digest, observation)
        self.given[context["episode_seed"], context["predict_index"]] = digest.hexdigest()
        numbers = np.frombuffer(digest.digest()[:12], np.int16)
        return (numbers.reshape(3, 2) / np.float32(32768)).astype(np.float32)


def rig_without_opencv() -> Rig:
    """Return a Rig; in this process OpenCV cannot be imported."""
    sys.modules["cv2"] = None  # type: ignore[assignment]
    return Rig()


def rig_with_another_opencv() -> Rig:
    """Return a Rig; in this process OpenCV claims another version."""
    import cv2

    cv2.__version__ = "4.0.1"
    return Rig()


def rig_with_other_pixels() -> Rig:
    """Return a Rig; in this process OpenCV rounds in another way, and claims nothing."""
    import cv2

    resize = cv2.resize

    def other(*arguments: Any) -> Any:
        out = resize(*arguments)
        out[0, 0, 0] ^= 1
        return out

    cv2.resize = other
    return Rig()
