"""What the model tests share: bound model classes, corners from one row function, byte equality."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlmesh.models import Corners, model_corners
from rlmesh.models.model import Model
from rlmesh.values import NUMPY


class NumpyModel(Model):
    _framework = NUMPY


def make(base: type[Model] = NumpyModel, /, **members: Any) -> Model:
    """Return an instance of a fresh subclass of ``base`` with ``members``."""
    return type("Policy", (base,), members)()


def resolve(base: type[Model] = NumpyModel, /, **members: Any) -> Corners:
    return model_corners(make(base, **members))


ACTION = np.zeros(2, np.float32)
CHUNK = np.arange(10, dtype=np.float32).reshape(5, 2)


def bits(value: Any) -> Any:
    """Return a value as something equal only to what is the same to the last bit."""
    if isinstance(value, Mapping):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def stacked(rows: list[Any]) -> Any:
    """Return rows as the author of a batch corner would: arrays with a leading axis, per key."""
    if isinstance(rows[0], dict):
        return {key: stacked([row[key] for row in rows]) for key in rows[0]}
    return np.stack(rows)


def corner_functions(
    chunk_of: Callable[[Any], Any], split: Callable[[Any, int], Any], first: Callable[[Any], Any]
) -> dict[str, Callable[..., Any]]:
    """Return the four corners of the policy whose chunk for one row is ``chunk_of(row)``.

    ``split(observations, i)`` is row i of a fused observation and ``first`` a chunk's first action.
    """

    def rows_of(observations: Any) -> list[Any]:
        count = len(observations["s"])
        return [split(observations, i) for i in range(count)]

    return {
        "predict": lambda self, o: first(chunk_of(o)),
        "predict_chunk": lambda self, o: chunk_of(o),
        "predict_batch": lambda self, o: stacked([first(chunk_of(r)) for r in rows_of(o)]),
        "predict_chunk_batch": lambda self, o: stacked([chunk_of(r) for r in rows_of(o)]),
    }
