"""Getting at a leaf of a raw observation, and at nothing else in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from rlmesh.adapters.trees import Path, path_name
from rlmesh.values.frameworks import to_host

__all__ = ["leaf_reader", "number_reader", "numeric_array"]

Array = np.ndarray[Any, Any]
Getter = Callable[[Any], Any]


def leaf_reader(path: Path) -> Getter:
    """A function from a raw observation to its leaf at ``path``.

    It raises ValueError where the observation has no such leaf.
    """
    if not path:
        return lambda raw: raw
    if len(path) == 1:
        key = path[0]

        def read_one(raw: Any) -> Any:
            try:
                return raw[key]
            except (KeyError, IndexError, TypeError):
                raise _missing(path, raw) from None

        return read_one

    def read(raw: Any) -> Any:
        value = raw
        for depth, key in enumerate(path):
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                raise _missing(path, value, depth) from None
        return value

    return read


def _missing(path: Path, node: Any, depth: int = 0) -> ValueError:
    where = f" inside '{path_name(path[:depth])}'" if depth else ""
    if isinstance(node, Mapping):
        found = f"available: {sorted(map(str, cast('Mapping[Any, Any]', node)))}"
    elif isinstance(node, (list, tuple)):
        found = f"it has {len(cast('tuple[Any, ...]', node))} item(s)"
    else:
        found = f"it is no container but {type(node).__name__}"
    return ValueError(
        f"observation is missing entry {path[depth]!r}{where} for source '{path_name(path)}'; "
        f"{found}"
    )


def numeric_array(value: Any, name: str) -> Array:
    """A leaf as a NumPy array of numbers.

    Raises:
        ValueError: it is text, bytes, None, or no array at all.
    """
    if isinstance(value, (str, bytes)) or value is None:
        raise ValueError(f"'{name}': expected numbers, got {type(value).__name__} {value!r:.40}")
    try:
        array = to_host(value)
    except ValueError as exc:
        raise ValueError(f"'{name}': expected numbers: {exc}") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"'{name}': expected numbers, got dtype {array.dtype}")
    return array


def number_reader(path: Path, leaf_width: int, start: int | None, width: int) -> Getter:
    """A function from a raw observation to the flat numbers of a leaf, or of a slice of it.

    It raises ValueError where the leaf has another number of elements than its space.
    """
    get, name = leaf_reader(path), path_name(path)
    stop = None if start is None else start + width

    def read(raw: Any) -> Array:
        value = get(raw)
        array = value if type(value) is np.ndarray else numeric_array(value, name)
        if array.size != leaf_width:
            raise ValueError(
                f"state piece '{name}' resolved to {leaf_width} dims but the runtime observation "
                f"yields {array.size}; the env's space and its observations disagree"
            )
        if array.ndim != 1:
            array = array.reshape(-1)
        return array if start is None else array[start:stop]

    return read
