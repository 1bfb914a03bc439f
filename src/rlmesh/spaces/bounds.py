"""Reading the bounds of a Box: every form they may be given in, into exact arrays of its dtype."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np

from rlmesh.spaces.arrays import Array
from rlmesh.spaces.dtypes import AnyDType, integer_range, is_exact

__all__ = ["Bound", "read_bound"]

_INFINITIES = {"inf": math.inf, "+inf": math.inf, "-inf": -math.inf}

# Any keeps the values tested against these types from being narrowed to unknown ones.
_PLAIN: Any = (str, int, float, list, tuple)
_FLOATS: Any = (float, np.floating)


class Bound(NamedTuple):
    """One side of a Box."""

    values: Array
    """The bound in the dtype of the Box; 0-d when one scalar was given."""
    is_open: bool
    """Whether every element was given as infinity."""


def read_bound(value: object, dtype: AnyDType, side: str) -> Bound:
    """The ``side`` ("low" or "high") bound ``value`` of a Box of ``dtype``.

    Raises:
        TypeError: It is neither a number, "inf", "-inf" nor an array of numbers.
        ValueError: NaN, infinite on the wrong side, or not exact in ``dtype``.
    """
    array = _numeric(value, side)
    if not is_exact(dtype):
        return _read_floats(array, dtype, side)
    if array.dtype.kind in "biu":
        if array.size:
            _integer(array.min().item(), dtype, side)
            _integer(array.max().item(), dtype, side)
        return Bound(array.astype(dtype), False)
    items: list[Any] = array.ravel().tolist()
    exact = np.array([_integer(item, dtype, side) for item in items], dtype=dtype)
    is_open = all(isinstance(item, float) and math.isinf(item) for item in items)
    return Bound(exact.reshape(array.shape), is_open)


def _numeric(value: object, side: str) -> Array:
    """``value`` as an array of numbers; whatever was no array stays exact as Python objects."""
    try:
        if not isinstance(value, _PLAIN):
            array = cast(Array, np.asarray(value))
            if array.dtype.kind in "biuf":
                return array
        objects = cast(Array, np.array(value, dtype=object))
    # Foreign objects raise what they like from __array__.
    except Exception as exc:
        raise TypeError(
            f"Box {side}: expected a number or an array of numbers, got {value!r}, which numpy "
            f"cannot read ({exc}); convert it first"
        ) from None
    for i, item in enumerate(objects.flat):
        if isinstance(item, str) and item in _INFINITIES:
            objects.flat[i] = _INFINITIES[item]
        elif not isinstance(item, (int, float, np.integer, np.floating, np.bool_)):
            raise TypeError(
                f'Box {side}: expected a number, "inf", "-inf" or an array of numbers, got '
                f"{item!r} ({type(item).__name__}); convert it first"
            )
    return objects


def _integer(item: Any, dtype: AnyDType, side: str) -> int:
    lowest, highest = integer_range(dtype)
    if isinstance(item, _FLOATS):
        number = float(item)
        if math.isinf(number) and (number < 0) == (side == "low"):
            return lowest if side == "low" else highest
        if not number.is_integer():  # NaN and the wrong infinity included
            _refuse(side, f"an integer for {dtype.name}", f"{number}", "round it or use float32")
    if not lowest <= int(item) <= highest:
        _refuse(
            side,
            f"an integer in [{lowest}, {highest}] for {dtype.name}",
            f"{int(item)}, which is out of range",
            "declare a wider dtype or a tighter bound",
        )
    return int(item)


def _read_floats(array: Array, dtype: AnyDType, side: str) -> Bound:
    outward = -math.inf if side == "low" else math.inf
    try:
        wide = array.astype(np.float64)
    except OverflowError:
        _refuse(side, f"numbers {dtype.name} can hold", "a larger int", f"use {outward}")
    if np.isnan(wide).any():
        _refuse(side, "real numbers", "NaN", f"use {outward} where there is no bound")
    if (wide == -outward).any():
        _refuse(side, "a bound that a finite value can meet", f"{-outward}", f"use {outward}?")
    with np.errstate(over="ignore"):
        values = array.astype(dtype) if array.dtype.kind == "f" else wide.astype(dtype)
    lost = np.isinf(values) & ~np.isinf(wide)
    if lost.any():
        _refuse(
            side,
            f"a finite {dtype.name} or {outward}",
            f"{wide[lost].flat[0]}, which overflows it",
            f"use {outward} for no bound, or declare float64",
        )
    return Bound(values, bool((values == outward).all()))


def _refuse(side: str, expected: str, received: str, remedy: str) -> NoReturn:
    raise ValueError(f"Box {side}: expected {expected}, got {received}; {remedy}")
