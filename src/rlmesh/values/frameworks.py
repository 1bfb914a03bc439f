"""Array frameworks, each behind one small object.

The codec, the clients and the models know no framework: they hold a :class:`Framework` and hand it
NumPy arrays. Adding a framework is one class with these members.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from rlmesh.values.tensor import Tensor

__all__ = ["NATIVE", "NUMPY", "Framework", "to_host"]


class Framework(Protocol):
    """What rlmesh needs to know of an array library."""

    @property
    def name(self) -> str:
        """The framework's name, as it is written on a command line."""
        ...

    def from_host(self, array: np.ndarray[Any, Any], /) -> Any:
        """Adopt a C-contiguous, writable NumPy array that nobody else holds."""
        ...

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        """Return ``leaf`` as a NumPy array in host memory; copied only where it must be."""
        ...


class _Numpy:
    name = "numpy"

    def from_host(self, array: np.ndarray[Any, Any], /) -> np.ndarray[Any, Any]:
        return array

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        return to_host(leaf)


class _Native:
    name = "native"

    def from_host(self, array: np.ndarray[Any, Any], /) -> Tensor:
        return Tensor.adopt(array)

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        return to_host(leaf)


NUMPY: Framework = _Numpy()
"""Leaves are writable ``numpy.ndarray``."""

NATIVE: Framework = _Native()
"""Leaves are read-only :class:`~rlmesh.Tensor`: the classes of the top-level package."""


def to_host(leaf: Any) -> np.ndarray[Any, Any]:
    """Return any array-like (NumPy, Tensor, torch, jax, DLPack, list, number) as a NumPy array.

    Raises:
        ValueError: the value has no NumPy form, e.g. a ragged list or a bfloat16 tensor.
    """
    if isinstance(leaf, np.ndarray):
        return np.asarray(leaf)
    try:
        if hasattr(leaf, "detach"):  # torch: drop the graph and the device first
            if str(getattr(leaf, "dtype", "")).endswith("bfloat16"):
                raise ValueError("bfloat16 is not supported on the wire; cast to float32 first")
            return np.asarray(leaf.detach().cpu())
        return np.asarray(leaf)
    except (TypeError, RuntimeError) as exc:
        raise ValueError(f"cannot read {type(leaf).__name__} as an array: {exc}") from None
