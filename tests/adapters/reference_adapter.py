"""Run by an interpreter that holds the published rlmesh 0.1.0: its conversions, as a black box.

Answers each pickled job on stdin with a pickle on stdout: an array, or the text of the error. Needs
nothing but numpy, gymnasium and rlmesh.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

import rlmesh.adapters as adapters

ACTION = adapters.Action(adapters.Actuator("action/gripper", 1))
ACTION_SPACE = Box(-1.0, 1.0, (1,))


def convert_image(job: dict[str, Any]) -> Any:
    """One frame through an Image leaf; a float frame's range is the space's bounds."""
    value, shape = job["value"], tuple(job["shape"])
    low, high, dtype = job.get("low", 0), job.get("high", 255), np.dtype(job.get("dtype", "uint8"))
    tags = adapters.EnvTags(
        {"rgb": adapters.ImageTag("image/primary", **job.get("tag", {}))}, ACTION
    )
    spec = adapters.ModelSpec({"image": adapters.Image("image/primary", **job["image"])}, ACTION)
    space = Dict({"rgb": Box(low, high, shape, dtype)})
    adapter = adapters.resolve(tags, space, ACTION_SPACE, spec)
    return adapter.transform_obs({"rgb": value})["image"]


def convert_state(job: dict[str, Any]) -> Any:
    """Each row of `values` through a State leaf."""
    values = np.asarray(job["values"])
    state = dict(job["state"])
    if "post_rotate" in state:
        encoding, value = state["post_rotate"]
        state["post_rotate"] = adapters.Rotation(encoding=encoding, value=value)
    tags = adapters.EnvTags(
        {"state": adapters.StateTag("proprio/eef_rot", **job.get("tag", {}))}, ACTION
    )
    spec = adapters.ModelSpec({"state": adapters.State("proprio/eef_rot", **state)}, ACTION)
    space = Dict({"state": Box(-np.inf, np.inf, values.shape[1:], values.dtype)})
    adapter = adapters.resolve(tags, space, ACTION_SPACE, spec)
    return np.stack([adapter.transform_obs({"state": row})["state"] for row in values])


def convert_action(job: dict[str, Any]) -> Any:
    """Each row of `values` through a rotation actuator."""
    values = np.asarray(job["values"])
    role, source, target = "action/eef_rot", job["source"], job["target"]
    dims = adapters.ROTATION_DIMS
    env = adapters.Action(adapters.Actuator(role, dims[target], encoding=target))
    model = adapters.Action(adapters.Actuator(role, dims[source], encoding=source))
    tags = adapters.EnvTags({"x": adapters.StateTag("x/any")}, env)
    spec = adapters.ModelSpec({"x": adapters.State("x/any")}, model)
    space = Dict({"x": Box(-1.0, 1.0, (1,))})
    action_space = Box(-np.inf, np.inf, (dims[target],))
    adapter = adapters.resolve(tags, space, action_space, spec)
    return np.stack([adapter.transform_action(row) for row in values])


CONVERSIONS = {"image": convert_image, "state": convert_state, "action": convert_action}


def main() -> None:
    while True:
        try:
            job: dict[str, Any] = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = CONVERSIONS[job["kind"]](job)
        except (ValueError, TypeError) as exc:
            answer = f"{type(exc).__name__}: {exc}"
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
