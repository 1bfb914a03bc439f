from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from space_strategies import INTEGERS, bounds, integer_values, shapes

from rlmesh.spaces import Box, Discrete

U64 = 2**64 - 1
I64 = 2**63 - 1


@pytest.mark.parametrize(
    ("args", "kind", "low", "high", "text"),
    [
        ((-1, 1, (3,)), "uniform", -1.0, 1.0, "Box(-1.0, 1.0, (3,), float32)"),
        ((0, "inf", (2,)), "uniform", 0.0, math.inf, "Box(0.0, inf, (2,), float32)"),
        (("-inf", "inf", (2,)), "unbounded", -math.inf, math.inf, "Box(-inf, inf, (2,), float32)"),
        ((0, 255, (2,), "uint8"), "typed_uniform", 0, 255, "Box(0, 255, (2,), uint8)"),
        ((0, U64, (1,), "uint64"), "typed_uniform", 0, U64, f"Box(0, {U64}, (1,), uint64)"),
        ((-I64 - 1, I64, (1,), int), "typed_uniform", -I64 - 1, I64, None),
        (("-inf", "inf", (2,), "int8"), "unbounded", -128, 127, "Box(-inf, inf, (2,), int8)"),
        ((0, 1, (2,), bool), "typed_uniform", False, True, "Box(False, True, (2,), bool)"),
        (([1, 1], [2, 2]), "uniform", 1.0, 2.0, "Box(1.0, 2.0, (2,), float32)"),
        ((np.float16(0), 0.5, (), "float16"), "uniform", 0.0, 0.5, "Box(0.0, 0.5, (), float16)"),
        ((0, math.inf, (1,), "int16"), "typed_uniform", 0, 2**15 - 1, None),
        ((0.1, 0.2, (1,)), "uniform", float(np.float32(0.1)), float(np.float32(0.2)), None),
    ],
)
def test_forms_of_bounds(args: Any, kind: str, low: Any, high: Any, text: str | None) -> None:
    box = Box(*args)
    assert box.kind == "box"
    assert box.bounds_kind == kind
    assert (box.low, box.high) == (low, high)
    assert type(box.low) is type(low)
    assert text is None or repr(box) == text
    assert box.low_array.shape == box.high_array.shape == tuple(box.shape)
    assert box.low_array.dtype == box.np_dtype


def test_elementwise_bounds() -> None:
    box = Box([[-1, 0]], [["inf", 2.5]])
    assert box.bounds_kind == "elementwise"
    assert box.shape == [1, 2]
    assert repr(box) == "Box([…], […], (1, 2), float32)"
    np.testing.assert_array_equal(box.high, np.array([[np.inf, 2.5]], np.float32))
    assert Box(np.array([0, 1]), 5, dtype="int32").bounds_kind == "typed_elementwise"
    assert Box([0, 2**63], U64, dtype="uint64").low.tolist() == [0, 2**63]
    assert Box([-(2**63), 0], I64, dtype="int64").low.tolist() == [-(2**63), 0]


@given(st.data(), st.sampled_from(INTEGERS), shapes)
def test_integer_bounds_stay_exact(data: st.DataObject, dtype: str, shape: Any) -> None:
    low, high = data.draw(bounds(dtype, shape))
    given_as_lists = Box(low.tolist(), high.tolist(), shape, dtype)
    assert given_as_lists == Box(low, high, shape, dtype)
    assert given_as_lists.low_array.tolist() == low.tolist()
    assert given_as_lists.high_array.tolist() == high.tolist()


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((0, 1, (0,)), ValueError, r"shape\[0\] must be > 0, got 0"),
        ((0, 1, (3, -1)), ValueError, r"shape\[1\] must be > 0"),
        ((0, 1, (1,) * 33), ValueError, "at most 32 axes, got 33"),
        ((0, 1, (2**40, 2**40)), ValueError, "at most"),
        ((0, 1, (2.0,)), TypeError, r"shape\[0\]: expected an int, got 2\.0"),
        ((0, 1, 2), TypeError, r"for one axis write \(n,\)"),
        ((0, 1), TypeError, "shape is required"),
        ((0,), TypeError, "high is required"),
        ((2, 1, (1,)), ValueError, r"low > high: 2\.0 > 1\.0 at index \(0,\)"),
        (([0, 2], [1, 1]), ValueError, r"low > high: 2\.0 > 1\.0 at index \(1,\)"),
        ((math.nan, 1, (1,)), ValueError, "low: expected real numbers, got NaN"),
        ((0, [1, math.nan]), ValueError, "high: expected real numbers, got NaN"),
        ((math.nan, 1, (1,), "int8"), ValueError, "low: expected an integer for int8, got nan"),
        ((0, 256, (1,), "uint8"), ValueError, r"high: expected an integer in \[0, 255\].* 256"),
        ((-1, 1, (1,), "uint8"), ValueError, r"low: expected an integer in \[0, 255\].* -1"),
        ((0, np.array([1, 300]), None, "uint8"), ValueError, "300, which is out of range"),
        ((0, [2**64], None, "uint64"), ValueError, "out of range"),
        ((0, 0.5, (1,), "int8"), ValueError, r"high: expected an integer for int8, got 0\.5"),
        ((0, 2, (1,), bool), ValueError, r"\[0, 1\] for bool"),
        ((0, 1e39, (1,)), ValueError, "overflows it; use inf"),
        ((0, 10**400, (1,)), ValueError, "a larger int"),
        (("inf", "inf", (1,)), ValueError, "low: expected a bound that a finite value can meet"),
        ((0, -math.inf, (1,), "int8"), ValueError, "got -inf"),
        (("zero", 1, (1,)), TypeError, "low: expected a number.*got 'zero'"),
        ((0, [[1], [2, 3]]), TypeError, "high: expected"),
        ((0, 1j, (1,)), TypeError, "got 1j"),
        (([0, 0], [1, 1], (3,)), ValueError, r"array of shape \(3,\), got shape \(2,\)"),
        (([0, 0], [1, 1, 1]), ValueError, r"array of shape \(2,\), got shape \(3,\)"),
        ((0, 1, (1,), "bfloat16"), ValueError, 'unsupported dtype "bfloat16".*cast'),
        ((0, 1, (1,), "complex64"), ValueError, 'unsupported dtype "complex64"'),
        ((Discrete(2),), TypeError, r"expected a Box as the only argument.*Discrete\(2\)"),
        ((Box(0, 1, (1,)), 1), TypeError, "expected a Box as the only argument"),
    ],
)
def test_refusals(args: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Box(*args)


def test_a_box_is_copied_from_its_spec() -> None:
    box = Box(0, 5, (2,), "int16")
    box.seed(3)
    assert Box(box.spec) == box
    assert Box(box.spec) is not box


def test_equality_looks_at_everything() -> None:
    box = Box(0, 1, (2,))
    assert box == Box(0.0, [1, 1])
    others = [Box(0, 1, (1,)), Box(0, 1, (2, 1)), Box(0, 2, (2,)), Box(0, 1, (2,), "float64")]
    assert all(box != other for other in [*others, Box([0, 0.5], 1), Discrete(2), 3, None])
    assert Box("-inf", "inf", (1,), "int8") != Box(-128, 127, (1,), "int8")


@pytest.mark.parametrize(
    ("box", "implied"),
    [
        (Box(0, 255, (4,), "uint8"), True),
        (Box(0, 254, (4,), "uint8"), False),
        (Box("-inf", "inf", (4,)), True),
        (Box(-1, 1, (4,)), False),
        (Box([0, 1], 255, dtype="uint8"), False),
        (Box("-inf", "inf", (4,), "int64"), True),
    ],
)
def test_bounds_implied_by_the_dtype(box: Box, implied: bool) -> None:
    assert box.bounds_implied is implied


@pytest.mark.parametrize(
    ("box", "value", "expected"),
    [
        (Box(0, 1, (2,)), [0, 1], True),
        (Box(0, 1, (2,)), (0.0, 1.0), True),
        (Box(0, 1, (2,)), np.array([0.5, 1.0]), True),
        (Box(0, 1, (2,)), np.array([True, False]), True),
        (Box(0, 1, (2,)), [0.5], False),
        (Box(0, 1, (2,)), [[0.5, 0.5]], False),
        (Box(0, 1, (2,)), [0.5, 1.01], False),
        (Box(0, 1, (2,)), [0.5, math.nan], False),
        (Box("-inf", "inf", (1,)), [math.nan], False),
        (Box("-inf", "inf", (1,)), [math.inf], True),
        (Box("-inf", "inf", (1,)), [1e39], False),
        (Box("-inf", "inf", (1,)), [2**70], True),
        (Box("-inf", "inf", (1,)), [10**400], False),
        (Box("-inf", "inf", (1,)), ["1.0"], False),
        (Box("-inf", "inf", (1,)), [None], False),
        (Box(0.1, 0.7, (2,)), [0.1, 0.7], True),
        (Box(0, 1, ()), 0.5, True),
        (Box(0, 1, ()), np.float32(0.5), True),
        (Box(0, 1, ()), [0.5], False),
        (Box(0, 5, (1,), "int32"), [2], True),
        (Box(0, 5, (1,), "int32"), [2.0], False),
        (Box(0, 5, (1,), "int32"), np.array([2.0]), False),
        (Box(0, 5, (1,), "int32"), np.array([5], np.uint64), True),
        (Box(0, 5, (1,), "int32"), [True], True),
        (Box(0, 5, (1,), "uint8"), [256 + 2], False),
        (Box(0, 5, (1,), "uint8"), np.array([-1]), False),
        (Box(0, U64 - 1, (1,), "uint64"), [U64 - 1], True),
        (Box(0, U64 - 1, (1,), "uint64"), [U64], False),
        (Box(0, U64 - 1, (1,), "uint64"), np.array([U64], np.uint64), False),
        (Box(-I64, I64 - 1, (2,), "int64"), [I64 - 1, -I64], True),
        (Box(-I64, I64 - 1, (2,), "int64"), [I64, -I64], False),
        (Box(-I64, I64 - 1, (2,), "int64"), [I64 - 1, -I64 - 1], False),
        (Box(-I64, I64, (2,), "int64"), [2**63, -1], False),
        (Box(0, 1, (2,), bool), [0, 1], True),
        (Box(0, 1, (2,), bool), [0, 2], False),
        (Box(0, 1, (2,)), "ab", False),
        (Box(0, 1, (2,)), {"a": 1}, False),
    ],
)
def test_contains(box: Box, value: Any, expected: bool) -> None:
    assert box.contains(value) is expected
    assert (value in box) is expected


@given(st.data(), st.sampled_from(INTEGERS))
def test_contains_compares_integers_exactly(data: st.DataObject, dtype: str) -> None:
    low, high = sorted([data.draw(integer_values(dtype)), data.draw(integer_values(dtype))])
    value = data.draw(st.integers(-(2**65), 2**65) | integer_values(dtype))
    assert Box(low, high, (1,), dtype).contains([value]) is (low <= value <= high)


def test_samples_reach_both_ends_and_the_whole_range() -> None:
    for dtype, low, high in (("uint8", 3, 5), ("int64", I64 - 2, I64), ("uint64", U64 - 2, U64)):
        box = Box(low, high, (200,), dtype)
        box.seed(0)
        assert set(box.sample().tolist()) == set(range(low, high + 1))
    wide = Box(0, U64, (200,), "uint64")
    wide.seed(0)
    assert wide.sample().max() > 2**63
    signed = Box(-I64 - 1, I64, (200,), "int64")
    signed.seed(0)
    assert signed.sample().min() < -(2**62)
    assert signed.sample().max() > 2**62


def test_sample_distributions_follow_gymnasium() -> None:
    shape = (20_000,)
    cases = {
        "uniform": (Box(-2, 4, shape), 1.0, 3**0.5),
        "exponential": (Box(5, "inf", shape), 6.0, 1.0),
        "mirrored": (Box("-inf", 5, shape), 4.0, 1.0),
        "normal": (Box("-inf", "inf", shape), 0.0, 1.0),
        "integer": (Box(0, 9, shape, "int32"), 4.5, 8.25**0.5),
    }
    for name, (box, mean, deviation) in cases.items():
        box.seed(0)
        values = box.sample().astype(float)
        assert abs(values.mean() - mean) < 0.06, name
        assert abs(values.std() - deviation) < 0.06, name


def test_extreme_floats_sample_without_overflow() -> None:
    for dtype in ("float16", "float32", "float64"):
        most = float(np.finfo(dtype).max)
        for low, high in ((-most, most), (most, "inf"), ("-inf", -most), (most, most)):
            assert np.isfinite(Box(low, high, (50,), dtype).sample()).all()


def test_describe_form() -> None:
    assert Box(0, 1, (1,))._to_dict() == {
        "kind": "box",
        "shape": [1],
        "dtype": "float32",
        "details": {"bounds_kind": "uniform", "low": 0.0, "high": 1.0},
    }
    assert Box(0, 3, (1,), "int32")._to_dict()["details"]["low"] == [0]
    assert Box([0, 1], 2)._to_dict()["details"]["high"] == [2.0, 2.0]
    assert Box("-inf", "inf", (1,))._to_dict()["details"] == {"bounds_kind": "unbounded"}
