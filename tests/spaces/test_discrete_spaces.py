"""Discrete, MultiBinary and MultiDiscrete."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlmesh.spaces import Discrete, MultiBinary, MultiDiscrete, Space

I64 = 2**63 - 1


def test_discrete() -> None:
    space = Discrete(4, start=-1)
    assert (space.kind, space.n, space.start, space.shape) == ("discrete", 4, -1, [])
    assert (space.dtype, space.np_dtype) == ("int64", np.dtype("int64"))
    assert [repr(s) for s in (space, Discrete(3), Discrete(3, dtype="uint8"))] == [
        "Discrete(4, start=-1)",
        "Discrete(3)",
        "Discrete(3, dtype=uint8)",
    ]
    assert space == Discrete(4, -1)
    assert all(space != s for s in (Discrete(4), Discrete(3, -1), Discrete(4, -1, "int32")))
    space.seed(0)
    values = [space.sample() for _ in range(100)]
    assert set(values) == {-1, 0, 1, 2}
    assert {type(value) for value in values} == {int}
    assert space._to_dict()["details"] == {"n": 4, "start": -1}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (2, True),
        (-1, True),
        (-2, False),
        (3, False),
        (True, True),
        (np.int8(2), True),
        (np.uint64(2), True),
        (np.uint64(2**64 - 1), False),
        (np.array(1), True),
        (np.bool_(True), True),
        (np.array([1]), False),
        ([1], False),
        (1.0, False),
        (np.float32(1), False),
        ("1", False),
        (None, False),
        (10**30, False),
    ],
)
def test_discrete_contains(value: Any, expected: bool) -> None:
    assert Discrete(4, start=-1).contains(value) is expected


def test_multi_binary() -> None:
    flat, grid = MultiBinary(3), MultiBinary((2, 3), "int8")
    assert (flat.kind, flat.shape, flat.dtype, flat.size, flat.dims) == (
        "multi_binary",
        [3],
        "uint8",
        3,
        None,
    )
    assert (grid.shape, grid.dtype, grid.size, grid.dims) == ([2, 3], "int8", None, [2, 3])
    assert repr(flat) == "MultiBinary((3,))"
    assert repr(grid) == "MultiBinary((2, 3), dtype=int8)"
    assert flat == MultiBinary([3])
    assert all(flat != s for s in (MultiBinary(4), MultiBinary(3, "bool"), MultiBinary((3, 1))))
    assert grid.sample().dtype == np.int8
    assert flat._to_dict()["details"] == {"size": 3}
    assert grid._to_dict()["details"] == {"dims": [2, 3]}
    wide = MultiBinary(100, bool)
    assert set(wide.sample().tolist()) == {False, True}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, 0], True),
        ((True, False), True),
        (np.array([1, 0], np.int64), True),
        ([1, 2], False),
        ([1, -1], False),
        ([1], False),
        ([1.0, 0.0], False),
        (1, False),
    ],
)
def test_multi_binary_contains(value: Any, expected: bool) -> None:
    assert MultiBinary(2).contains(value) is expected


def test_multi_discrete() -> None:
    space = MultiDiscrete([2, 3])
    assert (space.kind, space.nvec, space.shape, space.dtype) == (
        "multi_discrete",
        [2, 3],
        [2],
        "int64",
    )
    assert repr(space) == "MultiDiscrete([2, 3])"
    grid = MultiDiscrete(np.array([[2, 3], [4, 256]]), "uint8")
    assert (grid.nvec, grid.shape) == ([2, 3, 4, 256], [2, 2])
    assert repr(grid) == "MultiDiscrete([[2, 3], [4, 256]], dtype=uint8)"
    assert grid.nvec_array.tolist() == [[2, 3], [4, 256]]
    assert not grid.nvec_array.flags.writeable
    assert grid.sample().dtype == np.uint8
    assert grid.contains([[1, 2], [3, 255]])
    assert not grid.contains([[1, 2], [3, 256]])
    assert all(space != s for s in (MultiDiscrete([3, 2]), MultiDiscrete([2, 3], "int8"), grid))
    assert space._to_dict()["details"] == {"nvec": [2, 3]}
    wide = MultiDiscrete([I64])
    assert wide.contains([I64 - 1])
    assert not wide.contains([I64])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, 2], True),
        (np.array([1, 2], np.uint8), True),
        ([2, 2], False),
        ([-1, 0], False),
        ([1], False),
        ([1.0, 2.0], False),
        (None, False),
    ],
)
def test_multi_discrete_contains(value: Any, expected: bool) -> None:
    assert MultiDiscrete([2, 3]).contains(value) is expected


@pytest.mark.parametrize(
    ("make", "args", "error", "message"),
    [
        (Discrete, (0,), ValueError, "n must be > 0, got 0"),
        (Discrete, (2.0,), TypeError, r"n: expected an int, got 2\.0"),
        (Discrete, (2, "a"), TypeError, "start: expected an int"),
        (Discrete, (300, 0, "uint8"), ValueError, "value 299 does not fit dtype uint8"),
        (Discrete, (2, -1, "uint8"), ValueError, "value -1 does not fit dtype uint8"),
        (Discrete, (2, I64), ValueError, f"value {I64 + 1} does not fit"),
        (Discrete, (2, I64, "uint64"), ValueError, f"value {I64 + 1} does not fit"),
        (Discrete, (2, 0, "float32"), ValueError, "expected an integer dtype, got float32"),
        (Discrete, (2, 0, "bool"), ValueError, "expected an integer dtype, got bool"),
        (MultiBinary, (0,), ValueError, r"shape\[0\] must be > 0"),
        (MultiBinary, ((),), ValueError, r"rank >= 1"),
        (MultiBinary, (2.5,), TypeError, "expected a sequence of ints"),
        (MultiBinary, (2, "int64"), ValueError, "expected uint8, int8 or bool, got int64"),
        (MultiDiscrete, ([],), ValueError, "must be > 0"),
        (MultiDiscrete, (3,), ValueError, "rank >= 1"),
        (MultiDiscrete, ([2, 0],), ValueError, r"nvec\[1\] must be > 0, got 0"),
        (MultiDiscrete, ([2.0],), TypeError, "expected an array of int64 counts"),
        (MultiDiscrete, ([[2], [3, 4]],), TypeError, "expected an array of int64 counts"),
        (MultiDiscrete, ([2, 257], "uint8"), ValueError, "value 256 does not fit dtype uint8"),
        (MultiDiscrete, ([2], "float32"), ValueError, "expected an integer dtype"),
    ],
)
def test_refusals(make: type[Space], args: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(*args)
