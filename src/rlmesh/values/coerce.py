"""Bringing an array-like to the dtype, shape and layout its space declares, or refusing it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from rlmesh.values.frameworks import to_host

__all__ = ["coerce_array"]

Array = np.ndarray[Any, Any]


def coerce_array(
    value: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    path: str,
    *,
    lenient: bool = False,
    lanes: int | None = None,
    lane: int | None = None,
) -> Array:
    """Return ``value`` as a C-contiguous array of exactly ``shape`` and ``dtype``.

    Float widths, integers and bools convert freely where no value changes its meaning: float64 to
    float32, int to float, bool to either, integers where each fits. ``lenient`` also lets floats
    become integers where each is integral, and floats too large for a narrower dtype infinite.

    Args:
        path: the leaf's key path, for messages.
        lanes: the leading axis of ``shape`` is that many lanes.
        lane: the lane this single value belongs to, for messages.

    Raises:
        ValueError: naming path, lane, both shapes or dtypes, and the remedy.
    """
    where = path if lane is None else f"{path} of lane {lane}"
    want = f"{dtype.name}{list(shape)}"
    try:
        array = to_host(value)
    except ValueError as exc:
        raise ValueError(f"{where}: expected {want}, got {_describe(value)}: {exc}") from None
    if array.ndim == 0 and array.dtype.kind in "OUSMm":
        raise ValueError(f"{where}: expected {want}, got {_describe(value)}; give numbers")
    if array.shape != shape:
        if lanes is not None and (array.ndim == 0 or array.shape[0] != lanes):
            got = "a single value" if array.ndim == 0 else str(array.shape[0])
            raise ValueError(
                f"{where}: expected {lanes} batched values ({want}), got {got} "
                f"({_describe(array)}); give one row per lane"
            )
        raise ValueError(
            f"{where}: expected {want}, got {_describe(array)}; {_shape_hint(array, shape)}"
        )
    if array.dtype is not dtype:
        array = _cast(array, dtype, where, lenient)
    if not array.flags.c_contiguous:
        array = np.array(array, order="C")
    return array


def _shape_hint(array: Array, shape: tuple[int, ...]) -> str:
    size = int(np.prod(shape, dtype=np.int64))
    if array.size == size:
        return f"same element count: reshape it to {list(shape)}"
    if array.ndim == len(shape) + 1 and array.shape[1:] == shape:
        return "it has one axis too many: drop the batch axis, or connect with RemoteVectorEnv"
    if array.ndim == len(shape) == 1:
        extra = array.shape[0] - shape[0]
        values = "1 value" if abs(extra) == 1 else f"{abs(extra)} values"
        return f"{values} too {'many' if extra > 0 else 'few'}"
    return "give the shape that the space declares"


def _cast(array: Array, dtype: np.dtype[Any], where: str, lenient: bool) -> Array:
    source, target = array.dtype.kind, dtype.kind
    if source == target == "f" and array.dtype.itemsize > dtype.itemsize:
        return _narrow(array, dtype, where, lenient)
    if array.dtype.name == "bfloat16":
        raise ValueError(f"{where}: bfloat16 is not supported on the wire; cast to float32 first")
    if source not in "biuf":
        raise ValueError(
            f"{where}: expected {dtype.name}, got dtype {array.dtype}; give numbers of one of the "
            "numeric dtypes (bool, int8..64, uint8..64, float16..64)"
        )
    if target == "f" or source == "b":
        with np.errstate(over="ignore"):
            return array.astype(dtype, order="C", copy=False)
    if source == "f" and not (lenient and _integral(array)):
        raise ValueError(
            f"{where}: dtype {array.dtype.name} does not convert to {dtype.name} without loss; "
            f"round it and call .astype({dtype.name!r}) where you made it"
        )
    if array.size and not np.can_cast(array.dtype, dtype, "safe"):
        low, high = (0, 1) if target == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        smallest, largest = int(array.min()), int(array.max())
        if smallest < int(low) or largest > int(high):
            raise ValueError(
                f"{where}: values {smallest}..{largest} of {array.dtype.name} do not fit "
                f"{dtype.name}"
            )
    return array.astype(dtype, order="C", copy=False)


def _narrow(array: Array, dtype: np.dtype[Any], where: str, lenient: bool) -> Array:
    """Return the nearest floats of a narrower dtype; only ``lenient`` lets one become infinite."""
    try:
        with np.errstate(over="ignore" if lenient else "raise", invalid="ignore"):
            return array.astype(dtype, order="C", copy=False)
    except FloatingPointError:
        largest = float(np.finfo(dtype).max)
        beyond = array[np.isfinite(array) & (np.abs(array) > largest)]
        raise ValueError(
            f"{where}: {beyond.flat[0]} of {array.dtype.name} does not fit {dtype.name}, whose "
            f"largest number is {largest:.4g}"
        ) from None


def _integral(array: Array) -> bool:
    return bool(np.isfinite(array).all() and (array == np.trunc(array)).all())


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        return f"{array.dtype.name}{list(array.shape)}"
    return "None" if value is None else type(value).__name__
