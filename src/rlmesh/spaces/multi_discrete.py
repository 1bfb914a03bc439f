"""Arrays of integers, each with its own number of values."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlmesh.spaces.arrays import Array, exact_integers, frozen, parse_shape
from rlmesh.spaces.base import LeafSpace
from rlmesh.spaces.dtypes import DTYPES, integer_range, resolve_dtype

__all__ = ["MultiDiscrete"]


class MultiDiscrete(LeafSpace):
    """Integer arrays whose element ``i`` lies in ``0, ..., nvec[i] - 1``.

    Args:
        nvec: Number of values of each element, all > 0, as a list or array of any shape; a value
            has the same shape.
        dtype: Integer dtype of a value, default int64.

    Raises:
        TypeError: ``nvec`` holds something else than ints.
        ValueError: ``nvec`` is empty or a count is not positive, the dtype is no integer one, or a
            value does not fit it.

    >>> pad = MultiDiscrete([5, 2, 2])
    >>> pad
    MultiDiscrete([5, 2, 2])
    >>> pad.contains([4, 1, 0]), pad.contains([5, 0, 0])
    (True, False)
    >>> MultiDiscrete([[2, 3], [4, 5]], dtype="uint8").shape
    [2, 2]
    """

    kind: ClassVar[str] = "multi_discrete"

    _nvec: Array

    def __init__(self, nvec: object, dtype: object = "int64") -> None:
        np_dtype = resolve_dtype(dtype)
        if np_dtype.kind not in "iu":
            raise ValueError(
                f"MultiDiscrete dtype: expected an integer dtype, got {np_dtype.name}; use int64"
            )
        counts = exact_integers(nvec, DTYPES["int64"])
        if counts is None:
            raise TypeError(
                f"MultiDiscrete nvec: expected an array of int64 counts, got {nvec!r}; pass ints"
            )
        dims = parse_shape(counts.shape, "MultiDiscrete nvec")
        highest = integer_range(np_dtype)[1]
        for i, count in enumerate(counts.ravel().tolist()):
            if count <= 0:
                raise ValueError(f"MultiDiscrete nvec[{i}] must be > 0, got {count}")
            if count - 1 > highest:
                raise ValueError(
                    f"MultiDiscrete nvec[{i}]: value {count - 1} does not fit dtype "
                    f"{np_dtype.name}, whose largest is {highest}; declare a wider dtype"
                )
        self._freeze(_shape=dims, _dtype=np_dtype, _nvec=frozen(counts.copy()))

    @property
    def nvec(self) -> list[int]:
        """Number of values of each element, flat in C order."""
        return self._nvec.ravel().tolist()

    @property
    def nvec_array(self) -> Array:
        """Number of values of each element as a read-only int64 array of the shape of a value."""
        return self._nvec

    def contains(self, value: object) -> bool:
        """Whether ``value`` (an integer array or list) has the shape and fits ``nvec``."""
        array = exact_integers(self._receive(value), DTYPES["int64"])
        if array is None or array.shape != self._shape:
            return False
        return bool(((array >= 0) & (array < self._nvec)).all())

    def _draw(self, rng: np.random.Generator) -> Any:
        return self._emit(rng.integers(0, self._nvec, self._shape).astype(self._dtype))

    def _same(self, other: MultiDiscrete) -> bool:
        return self._dtype == other._dtype and np.array_equal(self._nvec, other._nvec)

    def _details(self) -> dict[str, Any]:
        return {"nvec": self.nvec}

    def __repr__(self) -> str:
        dtype = f", dtype={self.dtype}" if self.dtype != "int64" else ""
        return f"MultiDiscrete({self._nvec.tolist()}{dtype})"
