"""Spaces back from the form in which an envelope holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlmesh.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Text,
    Tuple,
)

__all__ = ["space_from_form"]


def space_from_form(form: Mapping[str, Any]) -> Space:
    """Return the space that an envelope's ``{"kind", "shape", "dtype", "details"}`` stands for.

    Raises:
        KeyError, TypeError, ValueError: it stands for none.
    """
    kind, shape, details = form["kind"], tuple(form["shape"]), form["details"]
    dtype = str(form["dtype"])
    if kind == "box":
        return _box(shape, dtype, details)
    if kind == "discrete":
        return Discrete(details["n"], details["start"], dtype)
    if kind == "multi_binary":
        return MultiBinary(shape, dtype)
    if kind == "multi_discrete":
        return MultiDiscrete(np.array(details["nvec"], object).reshape(shape).tolist(), dtype)
    if kind == "text":
        return Text(details["max_length"], details["min_length"], details["charset"] or None)
    if kind == "dict":
        return Dict({key: space_from_form(inner) for key, inner in details["spaces"].items()})
    if kind == "tuple":
        return Tuple([space_from_form(inner) for inner in details["spaces"]])
    raise ValueError(f"unknown kind of space {kind!r}")


def _box(shape: tuple[int, ...], dtype: str, details: Mapping[str, Any]) -> Box:
    if details["bounds_kind"] == "unbounded":
        return Box("-inf", "inf", shape, dtype)
    low, high = (_bound(details[side], shape, end) for side, end in _ENDS)
    return Box(low, high, shape, dtype)


_ENDS = (("low", "-inf"), ("high", "inf"))


def _bound(values: Any, shape: tuple[int, ...], infinity: str) -> Any:
    """Return a bound; where JSON has null, there is none."""
    if not isinstance(values, list):
        return infinity if values is None else values
    items: list[Any] = [float(infinity) if item is None else item for item in values]  # pyright: ignore[reportUnknownVariableType]
    return items[0] if len(items) == 1 else np.array(items, object).reshape(shape)
