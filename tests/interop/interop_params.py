"""Factories and models with declared parameters, for both interpreters; and what serving makes of
a configuration, told in the same words by both packages.
"""

from __future__ import annotations

import json
import math
import threading
import time

import gymnasium as gym
import numpy as np

import rlmesh
import rlmesh.serve
from rlmesh import EnvFactory, Param, ParamSpec, Vector

__all__ = ["CASES", "FACTORIES", "MODELS", "envelope", "outcome", "published"]


class Got(Exception):
    """What make() or load() was called with."""


class Some:
    def __repr__(self):
        return "<some>"


SOME = Some()


def factory(make, **attributes):
    return type("Factory", (EnvFactory,), {"make": make, **attributes})


def model(load, **attributes):
    return type(
        "Policy",
        (rlmesh.numpy.Model,),
        {"load": load, "predict": lambda self, observation: 0, **attributes},
    )


def wide(
    self,
    suite="spatial",
    task=0,
    at=(0, 0, 1),
    camera=None,
    kind=1,
    gain=1.0,
    flag=False,
    extra: int = 3,
    *,
    note="n",
    other: float = 0.5,
):
    raise Got({name: value for name, value in locals().items() if name != "self"})


def opened(self, suite, *, steps: int = 1, **rest):
    raise Got({"suite": suite, "steps": steps, **rest})


def closed(self, suite, *, steps: int = 1):
    raise Got({"suite": suite, "steps": steps})


def required(self, b, a, c, d=4):
    raise Got({"a": a, "b": b, "c": c, "d": d})


def shown(
    self,
    a,
    b: float = 1.0,
    c="x",
    d: int | None = None,
    e=True,
    f=SOME,
    g=math.nan,
    *more,
    h,
    **rest,
):
    raise Got({})


WIDE = ParamSpec(
    Param("suite", str, ("spatial", "object"), "Task suite", "Tasks"),
    Param("task", int),
    Param("at", Vector(3, unit=True)),
    Param("camera", "camera"),
    Param("kind", "enum", (1, "x", None)),
    Param("gain", float),
    Param("flag", "bool"),
)
SUITE = Param("suite")
FACTORIES = {
    "wide": factory(wide, params=WIDE),
    "passthrough": factory(opened, params=ParamSpec(SUITE, extra="passthrough")),
    "passthrough, closed": factory(closed, params=ParamSpec(SUITE, extra="passthrough")),
    "forbid, open": factory(opened, params=ParamSpec(SUITE)),
    "required": factory(required, params=ParamSpec(Param("a"), Param("b"))),
    "unreceived": factory(closed, params=ParamSpec(SUITE, Param("sweet", int))),
    "undeclared": factory(closed),
    "shown": factory(
        shown, params=ParamSpec(Param("c", choices=("x", "y")), Param("v", Vector(2)))
    ),
    "shown, undeclared": factory(shown),
}
MODELS = {
    "declared": model(wide, params=WIDE),
    "undeclared": model(closed),
    "undeclared, open": model(opened),
}

VALUES = {
    "suite": ["object", "Object", "", None, 1, True],
    "task": [0, -3, 3.0, 3.5, "3", True, None, math.nan, math.inf, 2**70, [1]],
    "at": [
        [0, 1, 0],
        [0.0, 0.9995, 0.0],
        [0, 0.99, 0],
        [0, 0, 1, 0],
        [0, 1],
        [0, 0, True],
        [0, 0, "1"],
        [math.nan, 0, 1],
        "abc",
        3,
        None,
        {},
    ],
    "camera": [None, 3, "front", {"a": [1]}],
    "kind": [1, 1.0, "x", None, True, False, "y", 2, [1]],
    "gain": [0.5, 3, "1", True, None, math.nan, -math.inf],
    "flag": [True, False, 1, 0, "true", None],
    "extra": [2, 2.0, 2.5, "2", True, None],
    "note": ["m", 3, None],
    "other": [2, 0.25, True, "x"],
    "extr": [1],
    "SUITE": ["object"],
}
CASES = [
    *(["wide", {name: value}] for name, values in VALUES.items() for value in values),
    ["wide", {}],
    ["wide", {"suite": "object", "task": 1.0, "zzz": 1, "aaa": 2}],
    ["passthrough", {}],
    ["passthrough", {"suite": "a", "zz": 1, "y": "any"}],
    ["passthrough", {"suite": "a", "steps": 2.0}],
    ["passthrough", {"suite": "a", "steps": "x"}],
    ["passthrough, closed", {"suite": "a"}],
    ["passthrough, closed", {"suite": "a", "zz": 1}],
    ["forbid, open", {"suite": "a", "zz": 1}],
    ["required", {}],
    ["required", {"a": "1"}],
    ["required", {"a": "1", "b": "2"}],
    ["required", {"a": "1", "b": "2", "c": 3}],
    ["unreceived", {"suite": "a", "sweet": 3}],
    ["undeclared", {"suite": 3}],
    ["undeclared", {"suite": 3, "steps": "x"}],
]
"""A factory, and what it is served with."""


def outcome(name, config, kind="env"):
    """Return what make() or load() was called with, or what was raised before."""
    try:
        if kind == "env":
            rlmesh.serve.serve_env(FACTORIES[name], "127.0.0.1:0", **config)
        else:
            MODELS[name].from_config(**config)
    except Got as exc:
        return {"got": exc.args[0]}
    except Exception as exc:
        found = {"raised": type(exc).__name__}
        for attribute in ("name", "names"):
            if hasattr(exc, attribute):
                found[attribute] = getattr(exc, attribute)
        return found
    raise AssertionError("it is served")


def envelope(name, kind="env"):
    """Return what is told of the parameters."""
    return rlmesh.describe((FACTORIES if kind == "env" else MODELS)[name])["params"]


class Still(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, True, False, {}


class Published(EnvFactory):
    params = ParamSpec(*WIDE.params[:3], extra="passthrough")
    reset_options = ("trial_index", "length")

    def make(self, suite="spatial", task=0, at=(0, 0, 1), extra: float = 1.0, **rest):
        return Still()


def published(config, port):
    """Serve a factory with ``config`` and return the metadata that a client sees."""

    def serve():
        rlmesh.serve.serve_env(Published, f"127.0.0.1:{port}", **config)

    threading.Thread(target=serve, daemon=True).start()
    deadline = time.monotonic() + 20
    while True:
        try:
            client = rlmesh.numpy.RemoteEnv(f"127.0.0.1:{port}")
            break
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    found = {key: value for key, value in client.metadata.items() if key.startswith("rlmesh.")}
    client.close()
    return json.loads(json.dumps(found))
