"""One of n consecutive integers."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlmesh.spaces.arrays import as_int, host_array
from rlmesh.spaces.base import LeafSpace
from rlmesh.spaces.dtypes import integer_range, resolve_dtype

__all__ = ["Discrete"]


class Discrete(LeafSpace):
    """The integers ``start, start + 1, ..., start + n - 1``.

    Args:
        n: How many values there are, > 0.
        start: The smallest of them.
        dtype: Integer dtype they travel in, default int64.

    Raises:
        TypeError: ``n`` or ``start`` is no int.
        ValueError: ``n`` is not positive, the dtype is no integer one, or a value does not fit it
            (or int64, which carries ``n`` and ``start``).

    >>> moves = Discrete(4, start=-1)
    >>> moves
    Discrete(4, start=-1)
    >>> moves.contains(2), moves.contains(3), moves.contains(0.5)
    (True, False, False)
    >>> moves.seed(7), moves.sample() in moves
    (7, True)
    """

    kind: ClassVar[str] = "discrete"

    n: int
    start: int

    def __init__(self, n: int, start: int = 0, dtype: object = "int64") -> None:
        n, start = as_int(n, "Discrete n"), as_int(start, "Discrete start")
        if n <= 0:
            raise ValueError(f"Discrete n must be > 0, got {n}; a space needs at least one value")
        np_dtype = resolve_dtype(dtype)
        if np_dtype.kind not in "iu":
            raise ValueError(
                f"Discrete dtype: expected an integer dtype, got {np_dtype.name}; use int64"
            )
        lowest, highest = integer_range(np_dtype)
        highest = min(highest, 2**63 - 1)
        for value in (start, start + n - 1):
            if not lowest <= value <= highest:
                raise ValueError(
                    f"Discrete value {value} does not fit dtype {np_dtype.name}: expected values "
                    f"in [{lowest}, {highest}]; declare a wider dtype or fewer values"
                )
        self._freeze(_shape=(), _dtype=np_dtype, n=n, start=start)

    def contains(self, value: object) -> bool:
        """Whether ``value`` is one of the integers: an int, numpy integer or 0-d integer array."""
        value = self._receive(value)
        if not isinstance(value, int):
            array = host_array(value)
            if array is None or array.ndim or array.dtype.kind not in "biu":
                return False
            value = int(array)
        return self.start <= value < self.start + self.n

    def _draw(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.start, self.start + self.n - 1, endpoint=True))

    def _same(self, other: Discrete) -> bool:
        return (self.n, self.start, self.dtype) == (other.n, other.start, other.dtype)

    def _details(self) -> dict[str, Any]:
        return {"n": self.n, "start": self.start}

    def __repr__(self) -> str:
        start = f", start={self.start}" if self.start else ""
        dtype = f", dtype={self.dtype}" if self.dtype != "int64" else ""
        return f"Discrete({self.n}{start}{dtype})"
