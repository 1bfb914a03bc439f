"""Value trees in tests: strict equality, stacking, and the trip through a socket's bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlmesh.spaces import Dict, Space, Text, Tuple

__all__ = ["assert_same", "batched", "received", "sent"]


def assert_same(got: Any, expected: Any, path: str = "value") -> None:
    """Fail unless both have the same structure, types, dtypes, shapes and bits."""
    if isinstance(expected, Mapping):
        assert isinstance(got, Mapping), f"{path}: {type(got)}"
        assert list(got) == list(expected), path
        for key in expected:
            assert_same(got[key], expected[key], f"{path}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        assert type(got) is type(expected), f"{path}: {type(got)}, expected {type(expected)}"
        assert len(got) == len(expected), path
        for i, (g, e) in enumerate(zip(got, expected, strict=True)):
            assert_same(g, e, f"{path}[{i}]")
    elif isinstance(expected, np.ndarray):
        assert type(got) is np.ndarray, f"{path}: {type(got)}"
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), path
        np.testing.assert_array_equal(got, expected, err_msg=path)
    else:
        assert type(got) is type(expected), f"{path}: {type(got)}, expected {type(expected)}"
        assert got == expected, path


def batched(space: Space, values: Sequence[Any]) -> Any:
    """Return the tree that holds ``values``, one a lane, as gymnasium batches them."""
    if isinstance(space, Dict):
        return {k: batched(s, [v[k] for v in values]) for k, s in space.items()}
    if isinstance(space, Tuple):
        return tuple(batched(s, [v[i] for v in values]) for i, s in enumerate(space.spaces))
    if isinstance(space, Text):
        return list(values)
    return np.array(values, space.np_dtype).reshape(len(values), *space.shape)


def sent(leaves: Sequence[Any]) -> list[bytes]:
    """Return the bytes of encoded leaves as they go over a socket."""
    return [leaf.tobytes() for leaf in leaves]


def received(leaves: Sequence[Any]) -> list[memoryview]:
    """Return encoded leaves as they come off a socket: writable views over fresh memory."""
    return [memoryview(bytearray(data)) for data in sent(leaves)]
