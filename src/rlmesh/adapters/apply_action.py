"""Running the action plan: the model's action in, the env's out, for one lane or for N."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from rlmesh.adapters.apply_state import exact_integers, run_steps
from rlmesh.adapters.custom_encodings import repack
from rlmesh.adapters.plan import ActionPlan, ModelBlock
from rlmesh.values.frameworks import to_host

__all__ = ["action_writer", "model_action", "shaped_action"]

Array = np.ndarray[Any, Any]


def model_action(action: Any, dim: int) -> Array:
    """A model's action as a flat float32 array of its own.

    Raises:
        TypeError: it is a mapping, None, or nothing numeric.
        ValueError: it has another number of elements, or holds text.
    """
    # An rlmesh.Tensor is a subclass of ndarray that switches its arithmetic off.
    flat: Array = action if type(action) is np.ndarray else _numbers(action, dim)
    if flat.dtype.kind not in "biuf":
        raise ValueError(f"expected {dim}-dim model action, got an array of dtype {flat.dtype}")
    if flat.size != dim:
        raise ValueError(f"expected {dim}-dim model action, got shape {flat.shape}")
    return np.array(flat, dtype=np.float32).reshape(-1)


def _numbers(action: Any, dim: int) -> Array:
    if isinstance(action, Mapping):
        raise TypeError(
            f"expected a flat array action of {dim} numbers, got a mapping with keys "
            f"{sorted(map(str, cast('Mapping[Any, Any]', action)))}"
        )
    if isinstance(action, (str, bytes)):
        raise ValueError(f"expected a {dim}-dim model action, got {type(action).__name__}")
    if action is None:
        raise TypeError(f"expected a {dim}-dim model action, got None; predict returned nothing")
    if isinstance(action, (list, tuple)):
        items = list(_flatten(cast("list[Any]", action), dim))
        return np.array(items, dtype=np.float32)
    return to_host(action)


def _flatten(items: Any, dim: int) -> Iterator[Any]:
    for item in items:
        if isinstance(item, (list, tuple)):
            yield from _flatten(item, dim)
        elif isinstance(item, (str, bytes, Mapping)):
            raise ValueError(
                f"expected a {dim}-dim model action, got {type(cast('Any', item)).__name__} in it"
            )
        elif item is None:
            raise TypeError(f"expected a {dim}-dim model action, got None in it")
        else:
            yield from to_host(item).reshape(-1)


def action_writer(plan: ActionPlan) -> Callable[[Array], Array]:
    """A function from model actions [dim] or [N, dim], float32, to env actions of the same form."""
    parts: list[tuple[slice, Callable[[Array], Any]]] = []
    at = 0
    for block in plan.blocks:
        place = slice(at, at + block.dim)
        if isinstance(block, ModelBlock):
            parts.append((place, _block(block)))
        else:
            parts.append((place, _constant(block.fill)))
        at += block.dim
    width = at

    def write(actions: Array) -> Array:
        actions = _decode(plan, actions)
        out = np.empty((*actions.shape[:-1], width), np.float32)
        for place, values in parts:
            out[..., place] = values(actions)
        if plan.clip is not None:
            out.clip(*plan.clip, out=out)
        return out

    return write


def shaped_action(plan: ActionPlan, action: Array) -> Array:
    """An env action [dim] in the shape and dtype of the env's Box.

    Raises:
        ValueError: the Box holds integers and a value is none, or is too large.
    """
    dtype = np.dtype(plan.dtype)
    if dtype.kind != "f":
        action = exact_integers(action, dtype, "action")
    return action.astype(dtype, copy=False).reshape(plan.shape)


def _constant(value: float) -> Callable[[Array], Any]:
    return lambda actions: value


def _block(block: ModelBlock) -> Callable[[Array], Array]:
    place = slice(block.start, block.stop)
    steps = block.steps
    if not steps:
        return lambda actions: actions[..., place]
    return lambda actions: run_steps(steps, actions[..., place])


def _decode(plan: ActionPlan, actions: Array) -> Array:
    """The actions with every CustomEncoding brought to its base."""
    if not plan.encodings:
        return actions
    decoded = actions.copy()
    rows = decoded.reshape(-1, plan.model_dim)
    for step in plan.encodings:
        place = slice(step.start, step.start + step.encoding.width)
        for row in rows:
            row[place] = repack(step.encoding, "to_base", row[place].copy())
    return decoded
