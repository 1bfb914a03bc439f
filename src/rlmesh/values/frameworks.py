"""Array frameworks, each behind one small object.

The codec, the clients and the models know no framework: they hold a :class:`Framework` and hand it
NumPy arrays. Adding a framework is one class with these members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np

from rlmesh.values.tensor import Tensor

__all__ = ["NATIVE", "NUMPY", "Framework", "to_host"]


class Framework(Protocol):
    """What rlmesh needs to know of an array library."""

    @property
    def name(self) -> str:
        """The framework's name, as it is written on a command line."""
        ...

    @property
    def array_type(self) -> type:
        """The exact class of an array leaf: a value of this class needs no conversion."""
        ...

    @property
    def fuses(self) -> bool:
        """Whether leaves have axes to stack along and to index; False for opaque values."""
        ...

    @property
    def has_device(self) -> bool:
        """Whether leaves live on a device that :meth:`to_device` can change."""
        ...

    def from_host(self, array: np.ndarray[Any, Any], /) -> Any:
        """Adopt a C-contiguous, writable NumPy array that nobody else holds."""
        ...

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        """Return ``leaf`` as a NumPy array in host memory; copied only where it must be."""
        ...

    def is_array(self, leaf: Any, /) -> bool:
        """Return whether ``leaf`` is an array leaf of this framework."""
        ...

    def stack(self, leaves: Sequence[Any], /) -> Any:
        """Return array leaves of one shape and dtype as one leaf with a new leading axis.

        A lone leaf may be returned as a view.
        """
        ...

    def unstack(self, leaf: Any, /) -> list[Any]:
        """Return the rows of an array leaf along its leading axis, as views where there are any."""
        ...

    def to_device(self, leaf: Any, device: Any, /) -> Any:
        """Return an array leaf on ``device``; ValueError where there are no devices."""
        ...


class _OnHost:
    """The members that NumPy arrays and Tensors share."""

    name = ""
    has_device = False

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        return to_host(leaf)

    def to_device(self, leaf: Any, device: Any, /) -> Any:
        raise ValueError(f"{self.name} values have no device, so they cannot move to {device!r}")


class _Numpy(_OnHost):
    name = "numpy"
    array_type = np.ndarray
    fuses = True

    def from_host(self, array: np.ndarray[Any, Any], /) -> np.ndarray[Any, Any]:
        return array

    def is_array(self, leaf: Any, /) -> bool:
        return isinstance(leaf, np.ndarray) and not isinstance(leaf, Tensor)

    def stack(self, leaves: Sequence[Any], /) -> np.ndarray[Any, Any]:
        # np.stack does the same at three to five times the cost for small leaves.
        return leaves[0][None] if len(leaves) == 1 else np.array(leaves)

    def unstack(self, leaf: Any, /) -> list[Any]:
        return list(leaf)


class _Native(_OnHost):
    name = "native"
    array_type = Tensor
    fuses = False

    def from_host(self, array: np.ndarray[Any, Any], /) -> Tensor:
        return Tensor.adopt(array)

    def is_array(self, leaf: Any, /) -> bool:
        return isinstance(leaf, Tensor)

    def stack(self, leaves: Sequence[Any], /) -> Tensor:
        return Tensor.adopt(np.array([leaf.array for leaf in leaves]))

    def unstack(self, leaf: Any, /) -> list[Any]:
        rows: np.ndarray[Any, Any] = leaf.array
        return [Tensor.adopt(rows[i, ...]) for i in range(rows.shape[0])]


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
        return np.asarray(cast("Any", leaf))
    try:
        if hasattr(leaf, "detach"):  # torch: drop the graph and the device first
            if str(getattr(leaf, "dtype", "")).endswith("bfloat16"):
                raise ValueError("bfloat16 is not supported on the wire; cast to float32 first")
            return np.asarray(leaf.detach().cpu())
        if hasattr(leaf, "__dlpack__") and not hasattr(leaf, "__array__"):
            return np.from_dlpack(leaf)
        return np.asarray(leaf)
    except (TypeError, RuntimeError, BufferError) as exc:
        raise ValueError(f"cannot read {type(leaf).__name__} as an array: {exc}") from None
