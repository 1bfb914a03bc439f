"""Arrays of zeros and ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from rlmesh.spaces.arrays import exact_integers, parse_shape
from rlmesh.spaces.base import LeafSpace
from rlmesh.spaces.dtypes import DTYPES, resolve_dtype

__all__ = ["MultiBinary"]


class MultiBinary(LeafSpace):
    """Arrays of one shape whose every element is 0 or 1.

    Args:
        shape: Shape of a value; an int ``n`` means ``(n,)``.
        dtype: uint8 (the default), int8 or bool: one byte an element.

    Raises:
        TypeError: The shape is neither an int nor a sequence of ints.
        ValueError: A dimension is not positive, or another dtype was given.

    >>> buttons = MultiBinary(3)
    >>> buttons
    MultiBinary((3,))
    >>> buttons.contains([1, 0, 1]), buttons.contains([1, 0, 2])
    (True, False)
    >>> buttons.sample().dtype
    dtype('uint8')
    """

    kind: ClassVar[str] = "multi_binary"

    def __init__(self, shape: int | Sequence[int], dtype: object = "uint8") -> None:
        dims = (shape,) if isinstance(shape, (int, np.integer)) else shape
        np_dtype = resolve_dtype(dtype)
        if np_dtype.name not in ("uint8", "int8", "bool"):
            raise ValueError(
                f"MultiBinary dtype: expected uint8, int8 or bool, got {np_dtype.name}; an element "
                "is one byte, or use a Box"
            )
        self._freeze(_shape=parse_shape(dims, "MultiBinary"), _dtype=np_dtype)

    @property
    def size(self) -> int | None:
        """Number of elements of a 1-d space, None for other shapes."""
        return self._shape[0] if len(self._shape) == 1 else None

    @property
    def dims(self) -> list[int] | None:
        """Shape of a space of two or more axes, None for a 1-d one."""
        return None if len(self._shape) == 1 else self.shape

    def contains(self, value: object) -> bool:
        """Whether ``value`` (an array or list of ints or bools) has the shape and only 0 and 1."""
        array = exact_integers(self._receive(value), DTYPES["bool"])
        return array is not None and array.shape == self._shape

    def _draw(self, rng: np.random.Generator) -> Any:
        return self._emit(rng.integers(0, 2, self._shape, np.uint8).astype(self._dtype))

    def _same(self, other: MultiBinary) -> bool:
        return self._dtype == other._dtype

    def _details(self) -> dict[str, Any]:
        return {"dims": self.dims} if self.size is None else {"size": self.size}

    def __repr__(self) -> str:
        dtype = f", dtype={self.dtype}" if self.dtype != "uint8" else ""
        return f"MultiBinary({self._shape}{dtype})"
