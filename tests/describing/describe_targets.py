"""What is described in the tests; imported by the published package, too."""

from __future__ import annotations

import enum
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

import rlmesh
import rlmesh.numpy
from rlmesh import adapters as adapt
from rlmesh import spaces
from rlmesh.params import Param, ParamSpec, Vector


class Env:
    """Two numbers and a picture in, two numbers out."""

    metadata: ClassVar[Any] = {}
    observation_space: Any = spaces.Dict(
        {
            "state": spaces.Box(-1, 1, (2,)),
            "camera": spaces.Box(0, 255, (4, 4, 3), "uint8"),
            "task": spaces.Text(10),
        }
    )
    action_space: Any = spaces.Box(-1, 1, (2,))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        raise AssertionError("nothing is run")

    def step(self, action: Any) -> Any:
        raise AssertionError("nothing is run")

    def close(self) -> None:
        pass


def tags(role: str) -> adapt.EnvTags:
    return adapt.EnvTags(
        {"state": adapt.StateTag(role), "camera": adapt.ImageTag(adapt.IMAGE_PRIMARY)},
        adapt.Action(adapt.Actuator("x/wheels", 2, range=(-1, 1), clip=True)),
    )


SPEC = adapt.ModelSpec(
    {
        "image": adapt.Image(adapt.IMAGE_PRIMARY, height=8, width=8, stack=2),
        "state": adapt.State("x/left", dim=2),
        "task": adapt.Text(adapt.INSTRUCTION),
    },
    adapt.Action(adapt.Actuator("x/wheels", 2)),
)


class Unprintable:
    def __repr__(self) -> str:
        return "<Unprintable>"


class Colour(enum.Enum):
    RED = 1


# Envs


class Bare(rlmesh.EnvFactory):
    def make(self) -> Any:
        return Env()


class Tagged(rlmesh.EnvFactory):
    tags = tags("x/left")
    reset_options = ("trial_index",)

    def make(self) -> Any:
        return Env()


class Parameters(rlmesh.EnvFactory):
    params = ParamSpec(
        Param("suite", "enum", choices=("a", "b"), description="Which ünit", group="Tasks"),
        Param("count", int),
        Param("axis", Vector(3, unit=True)),
        Param("speed", "float", choices=(1, 2.5)),
        Param("scene", "scene"),
        extra="passthrough",
    )

    def make(
        self,
        suite: Any = "a",
        count: int = 3,
        axis: Any = (0, 0, 1),
        speed: Any = 1.0,
        scene: Any = None,
        hidden: bool = True,
        *,
        colour: Any = Colour.RED,
        thing: Any = Unprintable(),  # noqa: B008
        limit: Any = float("inf"),
        names: list[str] = [],  # noqa: B006
        also: int | None = None,
        **rest: Any,
    ) -> Any:
        return Env()


class Requires(rlmesh.EnvFactory):
    def make(self, suite: Any) -> Any:
        return Env()


class Branches(rlmesh.EnvFactory):
    tags = tags("x/left")
    params = ParamSpec(Param("side", choices=("left", "right")), Param("count", "int"))
    tag_params = ("side",)

    def make(self, side: Any = "left", count: Any = 3) -> Any:
        if side == "right":
            raise KeyError("no right side")
        return Env()

    @classmethod
    def tags_for(cls, *, side: Any) -> Any:
        return tags(f"x/{side}")


class Catalogue(rlmesh.EnvFactory):
    params = ParamSpec(Param("count", "int"))

    def make(self, count: Any = 1) -> Any:
        return Env()

    @classmethod
    def enumerate_variants(cls) -> Any:
        yield rlmesh.Variant("one", {"count": 1}, name="One", weight=float("nan"), at=(1, 2))
        yield {"id": "two", "params": {"count": 2}, "metadata": {"nested": [1, {"x": None}]}}
        yield {"id": "three"}
        yield rlmesh.Variant("odd", {}, thing=Unprintable(), colour=Colour.RED, raw=b"ab")

    @classmethod
    def enumerate_params(cls) -> Any:
        return {
            "count": range(2),
            "suite": "spatial",
            "mixed": [None, True, 1.5, float("inf"), Unprintable()],
            "keys": {"a": 1},
            3: [1],
        }


class EmptyCatalogue(rlmesh.EnvFactory):
    def make(self) -> Any:
        return Env()

    @classmethod
    def enumerate_variants(cls) -> Any:
        return []

    @classmethod
    def enumerate_params(cls) -> Any:
        return {}


class Unbuildable(rlmesh.EnvFactory):
    params = ParamSpec(Param("count", "int"))

    def make(self, count: Any = 1) -> Any:
        return Env()

    @classmethod
    def enumerate_variants(cls) -> Any:
        return [rlmesh.Variant("text", {"count": "x"}), rlmesh.Variant("extra", {"zz": 1})]


class Numbers(rlmesh.EnvFactory):
    """What NumPy and sets hold, and an integer that no float is."""

    def make(self, seed: Any = np.int64(3)) -> Any:  # noqa: B008
        return Env()

    @classmethod
    def enumerate_variants(cls) -> Any:
        return [
            rlmesh.Variant("a", {"x": np.float32(0.5)}, at=np.arange(3), big=2**70, s={"b", "a"})
        ]

    @classmethod
    def enumerate_params(cls) -> Any:
        return {"x": np.arange(2)}


class SelfTagged(rlmesh.EnvFactory):
    """The env says itself what it means."""

    def make(self) -> Any:
        return adapt.tag(Env(), tags("x/left"))


class Twice(rlmesh.EnvFactory):
    def make(self) -> Any:
        return Env()

    @classmethod
    def enumerate_variants(cls) -> Any:
        return [rlmesh.Variant("a", {}), rlmesh.Variant("a", {})]


class CatalogueFails(rlmesh.EnvFactory):
    def make(self) -> Any:
        return Env()

    @classmethod
    def enumerate_variants(cls) -> Any:
        yield rlmesh.Variant("a", {})
        raise RuntimeError("no list of scenes")

    @classmethod
    def enumerate_params(cls) -> Any:
        raise RuntimeError("no list of params")


class PrepareFails(rlmesh.EnvFactory):
    def prepare(self) -> None:
        raise OSError("no assets")

    def make(self) -> Any:
        return Env()


class MakeFails(rlmesh.EnvFactory):
    tags = tags("x/left")

    def make(self) -> Any:
        raise KeyError("boom")


class InitFails(rlmesh.EnvFactory):
    def __init__(self) -> None:
        raise ValueError("no licence")

    def make(self) -> Any:
        return Env()


class Pinned(rlmesh.EnvFactory):
    workflow_edition = "2026.06"

    def make(self) -> Any:
        return Env()


class OfAnotherEdition(rlmesh.EnvFactory):
    workflow_edition = "1999.01"

    def make(self) -> Any:
        return Env()


class AllSpaces(rlmesh.EnvFactory):
    def make(self) -> Any:
        def box(low: Any, high: Any, dtype: str) -> Any:
            return gym.spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)  # type: ignore[arg-type]

        env = Env()
        env.action_space = gym.spaces.Discrete(3, start=-1)
        env.observation_space = gym.spaces.Tuple(
            [
                box([-1, -np.inf], [1, 2], "float32"),
                box([-1.5, 0.1], [1, 2], "float64"),
                box([0, 1], [3, 4], "int32"),
                gym.spaces.Box(-np.inf, np.inf, (2,)),
                gym.spaces.Box(0, np.inf, (2,)),
                gym.spaces.Box(0, 2**64 - 1, (2,), np.uint64),
                gym.spaces.Box(0, 255, (4, 4, 3), np.uint8),
                gym.spaces.MultiDiscrete([2, 3]),
                gym.spaces.Text(5, min_length=2, charset="ab"),
                gym.spaces.Dict({"b": gym.spaces.Discrete(2), "a": gym.spaces.Dict({})}),
            ]
        )
        return env


class Vector2:
    num_envs = 2
    metadata: ClassVar[Any] = {}
    single_observation_space = spaces.Box(0, 1, (2,))
    single_action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0, 1, (2, 2))
    action_space = spaces.MultiDiscrete([2, 2])

    def reset(self, *, seed: Any = None, options: Any = None) -> Any: ...

    def step(self, actions: Any) -> Any: ...

    def close(self) -> None: ...


class Vectorized(rlmesh.EnvFactory):
    def make(self) -> Any:
        return Vector2()


class CartPole(rlmesh.EnvFactory):
    def make(self) -> Any:
        return gym.make("CartPole-v1")


class Outer:
    class Inner(rlmesh.EnvFactory):
        def make(self) -> Any:
            return Env()


def make_env(count: int = 3) -> Any:
    return Env()


factory = Tagged()

# Models


class Plain(rlmesh.numpy.Model):
    def load(self, checkpoint: Any = "a", *, size: int = 3) -> None:
        raise AssertionError("nothing is loaded")

    def predict(self, observation: Any) -> Any:
        return 0


class Chunker(rlmesh.numpy.Model):
    spec = SPEC
    native_chunk = 4
    params = ParamSpec(Param("checkpoint"), Param("seed", "int"))

    def load(self, checkpoint: Any, seed: Any = 0) -> None:
        raise AssertionError("nothing is loaded")

    def predict_chunk(self, observation: Any, execution_horizon: int = 1) -> Any:
        return 0

    def predict_batch(self, observations: Any, context: Any) -> Any:
        return 0

    @classmethod
    def enumerate_variants(cls) -> Any:
        return [rlmesh.Variant("small", {"checkpoint": "s"})]


class Misfits(rlmesh.numpy.Model):
    def load(self, checkpoint: Any, steps: int = 3) -> None: ...

    def predict(self, observation: Any) -> Any:
        return 0

    @classmethod
    def enumerate_variants(cls) -> Any:
        yield rlmesh.Variant("fits", {"checkpoint": "a"})
        yield rlmesh.Variant("unknown", {"checkpoint": "a", "zz": 1})
        yield rlmesh.Variant("missing", {})


class Raw(rlmesh.Model):
    spec = rlmesh.NO_ADAPTER

    def predict(self, observation: Any) -> Any:
        return 0


class Policy:
    def predict(self, observation: Any) -> Any:
        return 0
