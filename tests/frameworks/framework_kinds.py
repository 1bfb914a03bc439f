"""What the tests of frameworks share: each of them, its dtypes, and values at their limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import FunctionEnv

from rlmesh.jax import JAX
from rlmesh.spaces import Box, Dict, Space, Text
from rlmesh.torch import TORCH
from rlmesh.values import NUMPY

__all__ = [
    "ALL",
    "DTYPES",
    "SERVED",
    "SHAPES",
    "SpokenEnv",
    "both",
    "every",
    "held_as",
    "same_bits",
    "values",
    "wide",
]

ALL = {"numpy": NUMPY, "torch": TORCH, "jax": JAX}
both = pytest.mark.parametrize("framework", [TORCH, JAX], ids=lambda framework: framework.name)
every = pytest.mark.parametrize("framework", ALL.values(), ids=lambda framework: framework.name)

DTYPES = [
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "float32", "float64"),
]
SERVED: list[tuple[int, ...]] = [(), (3,), (2, 3)]
SHAPES = [*SERVED, (0, 2)]


def values(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Return random values with the dtype's limits among them; integers that 32 bits hold."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(kind)
    if kind.kind == "f":
        info = np.finfo(kind)
        edges = [info.max, info.min, info.tiny, -0.0, 1 / 3]
        array = np.asarray(rng.standard_normal(shape)).astype(kind)
    else:
        bounds = np.iinfo(np.dtype(f"{kind.kind}{min(kind.itemsize, 4)}"))
        edges = [bounds.min, bounds.max]
        array = np.asarray(rng.integers(bounds.min, bounds.max, shape, endpoint=True)).astype(kind)
    flat = array.reshape(-1)
    if flat.size and rng.integers(2):
        flat[rng.integers(flat.size)] = edges[rng.integers(len(edges))]
    return array


def held_as(dtype: str, framework: Any) -> str:
    """Return the dtype that ``framework`` holds values of ``dtype`` in, without jax_enable_x64."""
    return dtype.replace("int64", "int32") if framework is JAX else dtype


def same_bits(leaf: Any, array: np.ndarray[Any, Any], framework: Any) -> None:
    """Fail unless ``leaf`` is the framework's array with exactly the values of ``array``."""
    assert framework.is_array(leaf), type(leaf)
    host = framework.to_host(leaf)
    assert host.dtype.name == held_as(array.dtype.name, framework)
    assert host.shape == array.shape
    assert host.astype(array.dtype).tobytes() == array.tobytes()


class SpokenEnv(FunctionEnv):
    """The default env of the tests, whose observations are a framework's arrays."""

    def __init__(self, framework: Any, **members: Any) -> None:
        super().__init__(**members)
        self._framework = framework

    def observation(self) -> Any:
        return self._framework.from_host(super().observation())


def wide() -> Space:
    """Return a space with a leaf of every dtype and of every shape that a Box may have; a text."""
    leaves: dict[str, Space] = {
        f"{dtype}{list(shape)}": Box("-inf", "inf", shape, dtype)
        for dtype in DTYPES
        for shape in SERVED
    }
    return Dict({**leaves, "text": Text(20)})
