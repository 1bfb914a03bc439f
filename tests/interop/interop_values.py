"""Values as JSON that loses nothing: what crosses between a test and a reference program.

None, bool, int, float, str and list are plain JSON; everything else is an object of one key, its
kind: ``{"tuple": [...]}``, ``{"dict": [[key, value], ...]}``, ``{"array": [dtype, shape, hex]}``.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping

import numpy as np

_LARGE = 100_000  # bytes from which an array crosses as its digest


def pack(value):
    """Return ``value`` as plain JSON data."""
    if type(value) in (type(None), bool, int, float, str):
        return value
    if isinstance(value, list):
        return [pack(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [pack(item) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[pack(key), pack(item)] for key, item in value.items()]}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, np.generic):
        return {"scalar": [value.dtype.str, value.tobytes().hex()]}
    if type(value).__name__ == "Tensor":
        return {"tensor": [str(value.dtype), list(value.shape), value.tobytes().hex()]}
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        if value.nbytes >= _LARGE:
            return {"digest": [value.dtype.str, list(value.shape), digest(value)]}
        return {"array": [value.dtype.str, list(value.shape), value.tobytes().hex()]}
    if isinstance(value, enum.Enum):
        return {"other": [type(value).__name__, value.value]}
    return {"other": [type(value).__name__, repr(value)]}


def unpack(data):
    """Return the value that :func:`pack` was given, or a stand-in for what has none here."""
    if isinstance(data, list):
        return [unpack(item) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, body),) = data.items()
    if kind == "tuple":
        return tuple(unpack(item) for item in body)
    if kind == "dict":
        return {unpack(key): unpack(item) for key, item in body}
    if kind == "bytes":
        return bytes.fromhex(body)
    if kind == "array":
        return _array(*body)
    if kind == "scalar":
        return _array(body[0], [], body[1])[()]
    if kind == "digest":
        return Digest(*body)
    if kind == "tensor":
        return Tensorial(_array(*body))
    return Other(*body)


def digest(array):
    """Return a hash of the array's elements."""
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()


def _array(dtype, shape, text):
    return np.frombuffer(bytearray.fromhex(text), dtype).reshape(shape)


class Digest:
    """A large array, of which only dtype, shape and hash crossed."""

    def __init__(self, dtype, shape, sha256):
        self.dtype, self.shape, self.sha256 = np.dtype(dtype), tuple(shape), sha256


class Tensorial:
    """A leaf that was an ``rlmesh.Tensor``; ``array`` holds its elements."""

    def __init__(self, array):
        self.array = array


class Other:
    """A value of some other type: its name, and its ``repr`` (an enum's value)."""

    def __init__(self, kind, text):
        self.kind, self.text = kind, text
