"""Arrays of a fixed shape between a lower and an upper bound."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from rlmesh.spaces.arrays import Array, exact_integers, frozen, parse_shape, real_numbers
from rlmesh.spaces.base import LeafSpace, Space
from rlmesh.spaces.bounds import Bound, read_bound
from rlmesh.spaces.dtypes import integer_range, is_exact, resolve_dtype

__all__ = ["Box"]

Scalar = float | int
ArrayLike = Any


class Box(LeafSpace):
    """Arrays of one shape and dtype whose every element lies in ``[low, high]``.

    Args:
        low: Lower bound: a float or int (kept exact for integer dtypes), ``"-inf"``, or an array of
            ``shape``. A Box as the only argument is copied.
        high: Upper bound, likewise; ``"inf"`` for none.
        shape: Shape of a value; may be left out when a bound is an array. ``()`` is one 0-d array.
        dtype: Element type, default float32: bool, int8 to int64, uint8 to uint64, float16 to
            float64, as a name or as the dtype of numpy, torch or jax.

    Raises:
        TypeError: ``high`` or ``shape`` is missing, or a bound is no number.
        ValueError: A dimension is not positive, low > high, a bound is NaN or does not fit the
            dtype, or the dtype is not supported.

    >>> arm = Box(-1.0, 1.0, (3,))
    >>> arm
    Box(-1.0, 1.0, (3,), float32)
    >>> arm.contains([0.5, 0.0, -1.0])
    True
    >>> arm.contains([0.5, 0.0, -1.5])
    False
    >>> Box([-1.0, 0.0], [1.0, "inf"], dtype="float64").bounds_kind
    'elementwise'
    >>> Box(0, 255, (64, 64, 3), "uint8").sample().shape
    (64, 64, 3)
    """

    kind: ClassVar[str] = "box"

    _low: Array  # 0-d when the bounds are uniform, otherwise of the shape
    _high: Array
    _unbounded: bool

    def __init__(
        self,
        low: ArrayLike | Space,
        high: ArrayLike | None = None,
        shape: object = None,
        dtype: object = "float32",
    ) -> None:
        if isinstance(low, Space):
            if not isinstance(low, Box) or high is not None or shape is not None:
                raise TypeError(
                    f"Box: expected a Box as the only argument or bounds, got {low!r}; pass "
                    "low, high and shape"
                )
            self._freeze(**{**vars(low), "_rng": None})
            return
        if high is None:
            raise TypeError(
                'Box high is required: expected a bound for high, got None; pass "inf" for none'
            )
        np_dtype = resolve_dtype(dtype)
        lower = read_bound(low, np_dtype, "low")
        upper = read_bound(high, np_dtype, "high")
        dims = _common_shape(low, high, shape, lower.values, upper.values)
        _check_order(lower.values, upper.values)
        self._freeze(_shape=dims, _dtype=np_dtype, **_canonical(lower, upper, dims))

    @property
    def low(self) -> Any:
        """Lower bound: a Python scalar when all elements share it, else a read-only array."""
        return self._low if self._low.ndim else self._low.item()

    @property
    def high(self) -> Any:
        """Upper bound: a Python scalar when all elements share it, else a read-only array."""
        return self._high if self._high.ndim else self._high.item()

    @property
    def low_array(self) -> Array:
        """Lower bound as a read-only array of the full shape and dtype."""
        return np.broadcast_to(self._low, self._shape)

    @property
    def high_array(self) -> Array:
        """Upper bound as a read-only array of the full shape and dtype."""
        return np.broadcast_to(self._high, self._shape)

    @property
    def bounds_kind(self) -> str:
        """unbounded, uniform or elementwise; the last two begin with ``typed_`` for integers."""
        if self._unbounded:
            return "unbounded"
        name = "elementwise" if self._low.ndim else "uniform"
        return f"typed_{name}" if is_exact(self._dtype) else name

    @property
    def bounds_implied(self) -> bool:
        """Whether no number of the dtype can lie outside the bounds (NaN is no number)."""
        if self._low.ndim or self._unbounded:
            return self._unbounded
        if not is_exact(self._dtype):
            return False
        return (int(self._low), int(self._high)) == integer_range(self._dtype)

    def contains(self, value: object) -> bool:
        """Whether ``value`` (an array, list or number) has the shape and lies within the bounds.

        It is compared as the dtype would hold it: float64 values are rounded to a float32 Box,
        integers of any width are compared exactly, and a float is no member of an integer Box.
        NaN is no member of any Box.
        """
        read = exact_integers if is_exact(self._dtype) else real_numbers
        array = read(self._receive(value), self._dtype)
        if array is None or array.shape != self._shape:
            return False
        return bool(((array >= self._low) & (array <= self._high)).all())

    def _draw(self, rng: np.random.Generator) -> Any:
        draw = self._draw_integers if is_exact(self._dtype) else self._draw_floats
        # numpy turns 0-d results into scalars along the way.
        return self._emit(np.asarray(draw(rng)))

    def _draw_integers(self, rng: np.random.Generator) -> Array:
        if not self._unbounded or self._dtype.kind == "b":
            return rng.integers(self._low, self._high, self._shape, self._dtype, endpoint=True)
        spread = rng.normal if self._dtype.kind == "i" else rng.exponential
        return np.floor(spread(size=self._shape)).astype(self._dtype)

    def _draw_floats(self, rng: np.random.Generator) -> Array:
        """Uniform between two bounds, exponential beside one, normal without any."""
        low = self.low_array.astype(np.float64)
        high = self.high_array.astype(np.float64)
        below, above = np.isfinite(low), np.isfinite(high)
        out = np.empty(self._shape)
        both, floor, ceiling, free = below & above, below & ~above, ~below & above, ~below & ~above
        with np.errstate(over="ignore"):
            # high - low may overflow, a weighted mean of the two may not.
            share = rng.random(np.count_nonzero(both))
            out[both] = low[both] * (1.0 - share) + high[both] * share
            out[floor] = low[floor] + rng.exponential(size=np.count_nonzero(floor))
            out[ceiling] = high[ceiling] - rng.exponential(size=np.count_nonzero(ceiling))
            out[free] = rng.normal(size=np.count_nonzero(free))
        finite = np.finfo(self._dtype)
        np.clip(out, float(finite.min), float(finite.max), out=out)
        return np.clip(out.astype(self._dtype), self._low, self._high)

    def _same(self, other: Box) -> bool:
        return (
            self._dtype == other._dtype
            and self._unbounded == other._unbounded
            and np.array_equal(self._low, other._low)
            and np.array_equal(self._high, other._high)
        )

    def _details(self) -> dict[str, Any]:
        details: dict[str, Any] = {"bounds_kind": self.bounds_kind}
        if not self._unbounded:
            for side, bound in (("low", self._low), ("high", self._high)):
                scalar = self.bounds_kind == "uniform"
                details[side] = bound.item() if scalar else bound.ravel().tolist()
        return details

    def __repr__(self) -> str:
        if self._unbounded:
            low, high = "-inf", "inf"
        else:
            low, high = (
                "[…]" if bound.ndim else str(bound[()]) for bound in (self._low, self._high)
            )
        return f"Box({low}, {high}, {self._shape}, {self.dtype})"


def _common_shape(
    low: object, high: object, shape: object, lower: Array, upper: Array
) -> tuple[int, ...]:
    """The shape asked for, or the one the array bounds have; ValueError where they disagree."""
    given = {
        "low": lower.shape if lower.ndim or isinstance(low, np.ndarray) else None,
        "high": upper.shape if upper.ndim or isinstance(high, np.ndarray) else None,
    }
    if shape is None:
        shape = next((dims for dims in given.values() if dims is not None), None)
        if shape is None:
            raise TypeError(
                "Box shape is required: expected a sequence of ints beside scalar bounds, got "
                "None; write shape=(1,) for one value"
            )
    dims = parse_shape(shape, "Box", min_rank=0)
    for side, bound in (("low", lower), ("high", upper)):
        if bound.ndim and bound.shape != dims:
            raise ValueError(
                f"Box {side}: expected a scalar or an array of shape {dims}, got shape "
                f"{bound.shape}; give both bounds the shape of a value"
            )
    return dims


def _check_order(lower: Array, upper: Array) -> None:
    wrong = np.argwhere(np.atleast_1d(lower > upper))
    if len(wrong):
        low, high = np.broadcast_arrays(np.atleast_1d(lower), np.atleast_1d(upper))
        index = tuple(int(i) for i in wrong[0])
        raise ValueError(
            f"Box: expected low <= high, got low > high: {low[index]} > {high[index]} at index "
            f"{index}; swap the two"
        )


def _canonical(lower: Bound, upper: Bound, dims: tuple[int, ...]) -> dict[str, Any]:
    """The bounds in their smallest form, so that equal boxes have equal fields."""
    low, high = lower.values, upper.values
    if low.size and (low == low.flat[0]).all() and (high == high.flat[0]).all():
        low, high = low.reshape(-1)[0], high.reshape(-1)[0]
    else:
        low, high = np.broadcast_to(low, dims).copy(), np.broadcast_to(high, dims).copy()
    return {
        "_low": frozen(np.array(low)),
        "_high": frozen(np.array(high)),
        "_unbounded": lower.is_open and upper.is_open,
    }
