"""msgpack with NumPy arrays as openpi writes them, read strictly: numbers only, and no code.

An array is the map ``{b"__ndarray__": True, b"data": bytes, b"dtype": "<f4", b"shape": [..]}``, a
NumPy scalar ``{b"__npgeneric__": True, b"data": number, b"dtype": "<f4"}``. A dtype is one of the
booleans, integers and floats below and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

import numpy as np

__all__ = ["pack", "unpack"]

_ARRAY, _SCALAR = b"__ndarray__", b"__npgeneric__"
_DATA, _DTYPE, _SHAPE = b"data", b"dtype", b"shape"
_DTYPES = {
    np.dtype(order + kind).str: np.dtype(order + kind)
    for order in "<>"
    for kind in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}


def pack(value: Any) -> bytes:
    """Return ``value``, a tree of maps, lists, arrays, numbers and text, as msgpack.

    Raises:
        TypeError: something in it cannot be written, such as an array of objects.
    """
    return _msgpack().packb(value, default=_write)


def unpack(data: bytes) -> Any:
    """Return the tree that ``data`` holds; its arrays are read-only.

    Raises:
        ValueError: it is no msgpack, or holds anything but maps, lists, numbers, text, bytes and
            arrays of numbers whose size is what their shape says.
    """
    try:
        return _msgpack().unpackb(data, object_hook=_read, ext_hook=_no_extension)
    except ValueError:
        raise
    except Exception as exc:  # truncated, too deep, not hashable: msgpack has a class for each
        raise ValueError(f"not msgpack: {exc or type(exc).__name__}") from exc


def _msgpack() -> Any:
    return import_module("msgpack")  # an extra, and untyped


def _write(leaf: Any) -> Any:
    if not isinstance(leaf, (np.ndarray, np.generic)):
        raise TypeError(f"cannot send a {type(leaf).__name__}: expected arrays, numbers and text")
    array = cast("np.ndarray[Any, Any]", leaf)
    if array.dtype.str not in _DTYPES:
        raise TypeError(f"cannot send dtype {array.dtype}: expected booleans, integers or floats")
    if isinstance(leaf, np.generic):
        return {_SCALAR: True, _DATA: array.item(), _DTYPE: array.dtype.str}
    return {
        _ARRAY: True,
        _DATA: array.tobytes(),
        _DTYPE: array.dtype.str,
        _SHAPE: array.shape,
    }


def _read(mapping: Mapping[Any, Any]) -> Any:
    if _ARRAY in mapping:
        return _read_array(mapping)
    if _SCALAR in mapping:
        kind, number = _dtype(mapping, _SCALAR), mapping.get(_DATA)
        if not isinstance(number, (bool, int) if kind.kind in "biu" else (int, float)):
            raise ValueError(f"NumPy scalar: expected a number, got {type(number).__name__}")
        try:
            return kind.type(number)
        except (OverflowError, TypeError) as exc:
            raise ValueError(f"NumPy scalar of {kind}: {exc}") from exc
    return mapping


def _read_array(mapping: Mapping[Any, Any]) -> Any:
    kind = _dtype(mapping, _ARRAY, _SHAPE)
    data, shape = mapping[_DATA], mapping[_SHAPE]
    if not isinstance(data, bytes):
        raise ValueError(f"array data: expected bytes, got {type(data).__name__}")
    if not isinstance(shape, list) or not all(
        type(size) is int and size >= 0 for size in cast("list[Any]", shape)
    ):
        raise ValueError(f"array shape: expected a list of sizes, got {shape!r}")
    sizes = cast("list[int]", shape)
    wanted = math.prod(sizes) * kind.itemsize
    if len(data) != wanted:
        raise ValueError(f"array of {kind}{sizes}: expected {wanted} bytes, got {len(data)}")
    array = np.frombuffer(data, kind) if data else np.empty(0, kind)
    return array.reshape(sizes).astype(kind.newbyteorder("="), copy=False)


def _dtype(mapping: Mapping[Any, Any], *keys: bytes) -> np.dtype[Any]:
    wanted = {*keys, _DATA, _DTYPE}
    if set(mapping) != wanted:
        raise ValueError(f"encoded array: expected the keys {sorted(wanted)}, got {list(mapping)}")
    name = mapping[_DTYPE]
    kind = _DTYPES.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"dtype {name!r}: expected booleans, integers or floats")
    return kind


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"msgpack extension type {code} is not read")
