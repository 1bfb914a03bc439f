"""Short ways to say an adapter in a test."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlmesh.adapters as adapt
from rlmesh.spaces import Box, Dict

__all__ = ["JOINTS", "camera", "joints", "resolve", "resolve_image", "resolve_state", "vector"]


def vector(width: int, low: float = -np.inf, high: float = np.inf, dtype: str = "float32") -> Box:
    return Box(low, high, (width,), dtype)


def camera(height: int = 6, width: int = 8, channels: int = 3) -> Box:
    return Box(0, 255, (height, width, channels), "uint8")


def joints(dim: int = 2, **fields: Any) -> adapt.Action:
    return adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, dim, **fields))


JOINTS = joints()


def resolve(
    tags: Any,
    space: Any,
    inputs: Any,
    *,
    env: adapt.Action = JOINTS,
    model: adapt.Action = JOINTS,
    action_space: Any = None,
    **options: Any,
) -> adapt.Adapter:
    return adapt.resolve(
        adapt.EnvTags(tags, env),
        space,
        vector(env.dim) if action_space is None else action_space,
        adapt.ModelSpec(inputs, model),
        **options,
    )


def resolve_state(tag: Any, width: int, leaf: Any, **options: Any) -> adapt.Adapter:
    return resolve({"s": tag}, Dict({"s": vector(width)}), {"x": leaf}, **options)


def resolve_image(leaf: Any, space: Any = None, tag: Any = None, **options: Any) -> adapt.Adapter:
    tag = tag or adapt.ImageTag(adapt.IMAGE_PRIMARY)
    return resolve({"rgb": tag}, Dict({"rgb": space or camera()}), {"image": leaf}, **options)
