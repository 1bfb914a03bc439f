"""``sanitize_metadata``: a lossy copy of an info map that is sure to travel."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from rlmesh.wire._refusal import Path, Refused, foreign_array, path_text, type_name

__all__ = ["sanitize_metadata"]

_MAX_LEVELS = 200


def sanitize_metadata(info: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a copy of ``info`` reduced to what can travel, whatever it holds.

    Keys become str; numpy scalars, arrays and tensors Python scalars and lists; tuples and object
    arrays lists; named tuples dicts; enums their value (or name); unknown objects their ``str``.
    Ints keep any size (only int64 travels).

    Raises:
        TypeError: ``info`` is not a mapping.
        ValueError: a value contains itself, or is nested too deeply; the message names the path.

    Example:
        >>> import numpy as np
        >>> sanitize_metadata({"xy": np.array([1.0, 2.0]), 3: (None, {4})})
        {'xy': [1.0, 2.0], '3': [None, '{4}']}
    """
    if not isinstance(cast("Any", info), Mapping):
        raise TypeError(f"sanitize_metadata expects a mapping, got {type_name(info)}")
    return _clean_map(info, (), set())


def _clean_map(mapping: Mapping[Any, Any], path: Path, open_ids: set[int]) -> dict[str, Any]:
    _enter(mapping, path, open_ids)
    cleaned = {
        _clean_key(key): _clean(value, (*path, key), open_ids) for key, value in mapping.items()
    }
    open_ids.discard(id(mapping))
    return cleaned


def _clean_key(key: Any) -> str:
    return str.__str__(key) if isinstance(key, str) else str(key)


def _clean_list(items: Iterable[Any], path: Path, open_ids: set[int]) -> list[Any]:
    _enter(items, path, open_ids)
    cleaned = [_clean(item, (*path, index), open_ids) for index, item in enumerate(items)]
    open_ids.discard(id(items))
    return cleaned


def _enter(container: Any, path: Path, open_ids: set[int]) -> None:
    if len(path) > _MAX_LEVELS:
        raise ValueError(
            f"metadata {path_text(path)!r}: expected at most {_MAX_LEVELS} levels; flatten it"
        )
    if id(container) in open_ids:
        raise ValueError(
            f"metadata {path_text(path)!r}: expected a tree, got a value that contains itself; "
            "break the reference cycle"
        )
    open_ids.add(id(container))


def _clean(value: Any, path: Path, open_ids: set[int]) -> Any:
    if isinstance(value, enum.Enum):
        return value.name if _clean_enum(value) is _UNKNOWN else _clean_enum(value)
    if isinstance(value, np.ndarray | np.generic):
        return _clean_array(cast("Any", value), path, open_ids)
    if isinstance(value, tuple) and hasattr(cast("Any", value), "_asdict"):
        return _clean_map(cast("Any", value)._asdict(), path, open_ids)
    if isinstance(value, Mapping):
        return _clean_map(cast("Mapping[Any, Any]", value), path, open_ids)
    if isinstance(value, list | tuple):
        return _clean_list(cast("Iterable[Any]", value), path, open_ids)
    scalar = _clean_scalar(value)
    if scalar is not _UNKNOWN:
        return scalar
    try:
        array = foreign_array(value, path)
    except Refused:
        array = None
    return str(value) if array is None else _clean_array(array, path, open_ids)


_UNKNOWN = object()


def _clean_enum(value: enum.Enum) -> Any:
    return _clean_scalar(value.value)


def _clean_scalar(value: Any) -> Any:
    """Return None, bool, int, float, str or bytes as the plain type, else ``_UNKNOWN``."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(cast("bytes", value))
    return _UNKNOWN


def _clean_array(value: Any, path: Path, open_ids: set[int]) -> Any:
    if value.dtype.kind in "Mmc":
        value = np.asarray(value).astype(str)
    if value.dtype.kind == "f" and value.dtype.itemsize > 8:
        value = np.asarray(value).astype(np.float64)
    items = value.tolist()
    if isinstance(items, list):
        return _clean_list(cast("list[Any]", items), path, open_ids)
    if isinstance(items, np.generic):
        return str(cast("Any", items))
    return _clean(items, path, open_ids)
