"""Shapes and foreign values, read exactly: the checks that all array-like spaces share."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from rlmesh.spaces.dtypes import AnyDType, integer_range

__all__ = [
    "Array",
    "as_int",
    "exact_integers",
    "frozen",
    "host_array",
    "parse_shape",
    "real_numbers",
]

Array = np.ndarray[Any, AnyDType]

# NumPy before 2.0 has no array of a higher rank.
_MAX_RANK = 32
_MAX_ELEMENTS = 2**59

_NUMBERS = (bool, int, float, np.number, np.bool_)
_INTEGERS = (bool, int, np.integer, np.bool_)


def as_int(value: object, what: str) -> int:
    """``value`` as a Python int; TypeError naming ``what`` when it is none."""
    try:
        return operator.index(cast(Any, value))
    except TypeError:
        raise TypeError(
            f"{what}: expected an int, got {value!r} ({type(value).__name__}); pass int(...)"
        ) from None


def parse_shape(shape: object, kind: str, *, min_rank: int = 1) -> tuple[int, ...]:
    """A shape of positive dimensions; TypeError or ValueError naming ``kind`` and the dimension."""
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise TypeError(
            f"{kind} shape: expected a sequence of ints, got {shape!r}; for one axis write (n,)"
        )
    dims = tuple(
        as_int(dim, f"{kind} shape[{i}]") for i, dim in enumerate(cast("Iterable[object]", shape))
    )
    if len(dims) < min_rank:
        raise ValueError(
            f"{kind} shape must be set (rank >= {min_rank}), got {dims}; use (1,) for one value"
        )
    if len(dims) > _MAX_RANK:
        raise ValueError(
            f"{kind} shape: expected at most {_MAX_RANK} axes, got {len(dims)}; merge some of them"
        )
    for i, dim in enumerate(dims):
        if dim <= 0:
            raise ValueError(
                f"{kind} shape[{i}] must be > 0, got {dim} in {dims}; leave an empty value out of "
                "the space"
            )
    # NumPy counts bytes in a signed 64-bit word.
    if math.prod(dims) > _MAX_ELEMENTS:
        raise ValueError(
            f"{kind} shape: expected at most {_MAX_ELEMENTS} elements, got {dims}; make it smaller"
        )
    return dims


def frozen(array: Array) -> Array:
    """``array`` itself, made read-only."""
    array.setflags(write=False)
    return array


def host_array(value: object) -> Array | None:
    """``value`` as a numpy array, or None when numpy cannot read it (ragged lists, GPU tensors)."""
    if isinstance(value, np.ndarray):
        return np.asarray(cast(Array, value))  # of a subclass, the plain array
    try:
        return np.asarray(value)
    # Foreign objects raise what they like from __array__; none of it makes the value a member.
    except Exception:
        return None


def exact_integers(value: object, dtype: AnyDType) -> Array | None:
    """``value`` as an array of the integer ``dtype``, or None when that would change it."""
    array = host_array(value)
    if array is None:
        return None
    if array.dtype.kind not in "biu":
        # numpy reads a list that mixes big and negative ints as floats or objects.
        objects = _elements(value, _INTEGERS)
        if objects is None or not _within([int(x) for x in objects.flat], dtype):
            return None
        return np.array(objects.tolist(), dtype=dtype)
    # Python ints compare exactly where numpy would compare int64 with uint64 as floats.
    if array.dtype != dtype and array.size and not _within([array.min(), array.max()], dtype):
        return None
    return array.astype(dtype, copy=False)


def real_numbers(value: object, dtype: AnyDType) -> Array | None:
    """``value`` rounded to the float ``dtype``, or None when it is no number or overflows it."""
    array = host_array(value)
    if array is not None and array.dtype.kind == "O":
        array = _elements(value, _NUMBERS)
    if array is None or array.dtype.kind not in "biufO":
        return None
    if array.dtype == dtype:
        return array
    try:
        with np.errstate(over="ignore"):
            rounded = array.astype(dtype)
            if np.any(np.isinf(rounded) & ~np.isinf(array.astype(np.float64))):
                return None
    except (OverflowError, TypeError, ValueError):
        return None
    return rounded


def _within(integers: Iterable[Any], dtype: AnyDType) -> bool:
    lowest, highest = integer_range(dtype)
    return all(lowest <= int(integer) <= highest for integer in integers)


def _elements(value: object, types: tuple[type, ...]) -> Array | None:
    """The elements of a (nested) list as objects, or None when one is not of ``types``."""
    if not isinstance(value, (list, tuple, int)):
        return None
    try:
        objects = cast(Array, np.array(value, dtype=object))
    except ValueError:
        return None
    return objects if all(isinstance(x, types) for x in objects.flat) else None
