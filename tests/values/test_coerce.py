"""What a leaf accepts: every array-like of the right numbers, and a clear refusal of the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.trees import sent

from rlmesh import Tensor
from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from rlmesh.values import Codec, Policy, compile_codec

ARM = Box(-1.0, 1.0, (2, 3), "float32")
VALUES = np.array([[0, 0.5, 1], [-1, -0.5, 0.25]])
EXPECTED = VALUES.astype("<f4").tobytes()


def action(space: Space) -> Codec:
    return compile_codec(space, "action", policy=Policy.OFF)


def observation(space: Space) -> Codec:
    return compile_codec(space, "observation", lenient=True)


class HasArray:
    """A foreign array: NumPy can read it, and that is all that is known of it."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self._values, dtype)


class Elsewhere:
    """An array in the memory of some device, which its library will not copy unasked."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("the array lies on device 3")


class HasDLPack:
    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return (1, 0)


def read_only(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.setflags(write=False)
    return values


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize(
    "value",
    [
        VALUES.astype("f4"),
        VALUES.astype("f8"),
        VALUES.astype("f2"),
        VALUES.astype(">f4"),
        VALUES.astype(">f8"),
        np.asfortranarray(VALUES.astype("f4")),
        np.repeat(VALUES.astype("f4"), 2, axis=1)[:, ::2],
        VALUES.astype("f4")[::-1][::-1],
        read_only(VALUES.astype("f4")),
        VALUES.astype("f4").view(Subclass),
        VALUES.tolist(),
        tuple(map(tuple, VALUES.tolist())),
        [row for row in VALUES.astype("f4")],
        Tensor(VALUES.astype("f4"), [2, 3], "float32"),
        Tensor(VALUES, [2, 3], "float64"),
        memoryview(VALUES.astype("f4")),
        HasArray(VALUES),
        HasDLPack(VALUES.astype("f4")),
    ],
    ids=lambda v: f"{type(v).__name__}-{getattr(v, 'dtype', '')}",
)
def test_the_same_numbers_in_any_dress(value: Any) -> None:
    """CNF-5, VAL-8: dtype, layout, byte order, library do not matter: the numbers do.

    The published client refuses an array of another dtype; NumPy users send float64, so a float64
    action for a float32 Box is coerced here (issue 2).
    """
    assert sent(action(ARM).encode(value)) == [EXPECTED]
    assert sent(action(ARM).encode_rows([value, value])) == [EXPECTED * 2]
    assert sent(action(ARM).encode_batch([value, value], 2)) == [EXPECTED * 2]


@pytest.mark.parametrize("value", [np.int8([0, 1, 1]), [0, 1, True], np.array([False, True, True])])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64", "bool"])
def test_integers_and_bools_convert_where_each_fits(value: Any, dtype: str) -> None:
    """CNF-4, CNF-5: integers to floats and to integers of any width, bools to anything."""
    space = Box(0, 1, (3,), dtype)
    assert sent(action(space).encode(value)) == [np.array([0, 1, 1], dtype).tobytes()]


@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i8", ">u8"]),
        hnp.array_shapes(max_dims=2, max_side=3),
    ),
    st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]),
)
def test_integers_arrive_exactly_or_not_at_all(value: np.ndarray, dtype: str) -> None:
    """CNF-4: an integer is never wrapped."""
    info = np.iinfo(dtype)
    codec = action(Box(int(info.min), int(info.max), value.shape, dtype))
    numbers = [int(v) for v in value.ravel()]
    if all(info.min <= v <= info.max for v in numbers):
        (leaf,) = codec.encode(value)
        assert [int(v) for v in np.asarray(leaf).ravel()] == numbers
    else:
        with pytest.raises(ValueError, match=f"do not fit {dtype}"):
            codec.encode(value)


def test_one_number_in_any_dress() -> None:
    """VAL-11: Discrete takes every kind of integer, 0-d arrays included."""
    codec = action(Discrete(7))
    for value in (3, np.int64(3), np.uint8(3), np.array(3), Tensor(b"\3", [], "uint8")):
        assert sent(codec.encode(value)) == [b"\3" + bytes(7)]
    assert sent(codec.encode(True)) == [b"\1" + bytes(7)]
    zero_d = action(Box(0.0, 1.0, (), "float32"))
    for value in (0.5, np.float64(0.5), np.array(0.5)):
        assert sent(zero_d.encode(value)) == [np.float32(0.5).tobytes()]


@pytest.mark.parametrize("layout", ["one", "batch"])
def test_arrays_that_fit_are_not_copied(layout: str) -> None:
    """Issue 2: a contiguous array of the declared dtype travels from where it lies."""
    value = np.zeros((4, 3), np.float32)
    if layout == "one":
        (leaf,) = action(Box(-1, 1, (4, 3))).encode(value)
    else:
        (leaf,) = action(Box(-1, 1, (3,))).encode_batch(value, 4)
    assert leaf is value
    (leaf,) = action(Box(-1, 1, (2, 3))).encode(Tensor(VALUES.astype("f4"), [2, 3], "float32"))
    assert isinstance(leaf, np.ndarray)
    tensor = Tensor(VALUES.astype("f4"), [2, 3], "float32")
    (leaf,) = action(ARM).encode(tensor)
    assert np.shares_memory(leaf, np.asarray(tensor))
    alias = np.zeros(5, "longlong")  # int64 under its other name
    (leaf,) = action(Box(0, 1, (5,), "int64")).encode(alias)
    assert np.shares_memory(leaf, alias)


def refusal(space: Space, value: Any) -> str:
    with pytest.raises(ValueError) as caught:
        action(space).encode(value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("space", "value", "words"),
    [
        (ARM, None, ["action: expected float32[2, 3], got None; give numbers"]),
        (ARM, "up", ["action: expected float32[2, 3], got str"]),
        (ARM, {"a": 1}, ["got dict"]),
        (ARM, object(), ["got object"]),
        (ARM, Elsewhere(), ["action: ", "cannot read Elsewhere as an array: the array lies on"]),
        (ARM, np.zeros((3, 2)), ["got float64[3, 2]", "reshape it to [2, 3]"]),
        (ARM, np.zeros((1, 2, 3)), ["got float64[1, 2, 3]"]),
        (ARM, [[1, 2], [3]], ["action: expected float32[2, 3], got list"]),
        (ARM, VALUES * 1j, ["dtype complex128"]),
        (ARM, VALUES.astype(str), ["expected float32, got dtype <U"]),
        (ARM, VALUES.astype(object), ["expected float32, got dtype object"]),
        (ARM, VALUES * 1e300, ["5e+299 of float64 does not fit float32", "3.403e+38"]),
        (
            Box(-1, 1, (7,)),
            np.zeros(8),
            ["expected float32[7], got float64[8]", "1 value too many"],
        ),
        (Box(-1, 1, (7,)), [0] * 4, ["got int64[4]", "3 values too few"]),
        (Box(-1, 1, (7,)), np.zeros((5, 7)), ["drop the batch axis"]),
        (Box(-1, 1, (7,)), np.zeros((5, 8)), ["give the shape that the space declares"]),
        (Box(-1, 1, (7,)), np.zeros((3, 5, 7)), ["give the shape that the space declares"]),
        (Box(0, 9, (2,), "int32"), [0.5, 1.0], ["float64 does not convert to int32", "astype"]),
        (MultiDiscrete([3, 3]), [1.0, 2.0], ["float64 does not convert to int64"]),
        (MultiBinary(2), np.zeros(2), ["float64 does not convert to uint8"]),
        (Discrete(3), 1.0, ["float64 does not convert to int64"]),
        (Discrete(3), None, ["got None"]),
        (Discrete(3), [1], ["expected int64[], got int64[1]"]),
        (Discrete(3), 2**70, ["got 1180591620717411303424"]),
        (Text(3), 3, ["action: expected str", "got int"]),
        (Text(3), b"abc", ["expected str", "got bytes"]),
        (Text(3), "\ud800", ["action: expected text that is valid UTF-8"]),
        (Box(0, 255, (3,), "uint8"), b"abc", ["got bytes"]),
        (Dict({"a": ARM}), {"b": 1}, ["action: missing key 'a'", "got ['b']"]),
        (Dict({"a": ARM}), [1], ["action: expected a mapping with keys ['a'], got list"]),
        (Dict({"a": Dict({"b": Text(2)})}), {"a": {"b": 1}}, ["action['a']['b']: expected str"]),
        (Dict({"a": ARM}), {"a": np.zeros(2)}, ["action['a']: expected float32[2, 3]"]),
        (Tuple([Discrete(2), ARM]), (1,), ["action: expected 2 items, got 1"]),
        (Tuple([Discrete(2), ARM]), 1, ["action: expected a tuple of 2 items, got int"]),
        (Tuple([Discrete(2), ARM]), (1, 2), ["action[1]: expected float32[2, 3]"]),
        (Tuple([Discrete(2)]), "a", ["action: expected a tuple"]),
    ],
)
def test_refusals_name_the_leaf_both_forms_and_the_remedy(
    space: Space, value: Any, words: list[str]
) -> None:
    """CNF-1, CNF-7: what cannot be converted without loss, or has another structure."""
    message = refusal(space, value)
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("space", "values", "words"),
    [
        (
            Box(-1, 1, (7,)),
            [np.zeros(7), np.zeros(7), np.zeros(8)],
            ["action of lane 2", "float64[8]"],
        ),
        (Box(-1, 1, (2,)), [[0, 0], [0], [0, 0]], ["action of lane 1: expected float32[2]"]),
        (Box(-1, 1, (2,)), [[0, 0], None, [0, 0]], ["action of lane 1", "got None"]),
        (Box(-1, 1, (2,)), [[0, 0], [0, 0]], ["action: expected 3 batched values, got 2"]),
        (Box(-1, 1, (2,)), np.zeros((2, 2)), ["expected 3 batched values", "got 2"]),
        (Box(-1, 1, (2,)), np.zeros(2), ["expected 3 batched values"]),
        (Box(-1, 1, (2,)), 0.5, ["expected 3 batched values", "got a single value"]),
        (Box(-1, 1, (2,)), np.zeros((3, 4)), ["expected float32[3, 2], got float64[3, 4]"]),
        (Discrete(4), [0, 1], ["expected 3 batched values, got 2"]),
        (Discrete(4), [0, 1.5, 1], ["action of lane 1", "float64 does not convert to int64"]),
        (Discrete(4), 1, ["expected 3 batched values"]),
        (Text(4), ["a", "b"], ["action: expected 3 batched values, got 2"]),
        (Text(4), "abc", ["action: expected a list of 3 strings, got str"]),
        (Text(4), ["a", 1, "b"], ["action of lane 1: expected str"]),
        (Dict({"a": Discrete(4)}), [{"a": 1}] * 2, ["action: expected 3 batched values, got 2"]),
        (Dict({"a": Discrete(4)}), [{"a": 1}, {}, {"a": 1}], ["action of lane 1: missing key 'a'"]),
        (Dict({"a": ARM}), [{"a": VALUES}, {"a": 1}, {"a": VALUES}], ["action['a'] of lane 1"]),
        (Dict({"a": ARM}), {"a": VALUES}, ["action['a']: expected 3 batched values"]),
        (Tuple([Discrete(4)]), [(1,), (1, 2), (1,)], ["action of lane 1: expected 1 items, got 2"]),
    ],
)
def test_refusals_of_a_batch_name_the_lane(space: Space, values: Any, words: list[str]) -> None:
    """VEC-6: one action a lane, as a batched tree or a list; the message says which lane."""
    with pytest.raises(ValueError) as caught:
        action(space).encode_batch(values, 3)
    for word in words:
        assert word in str(caught.value)


def test_a_sequence_of_actions_may_be_a_tuple_where_that_says_one_thing() -> None:
    """VEC-6: a tuple of N actions; only for a Tuple space is a tuple the batched tree."""
    box = Box(-1, 1, (2,))
    rows = (np.zeros(2), np.ones(2))
    assert sent(action(box).encode_batch(rows, 2)) == sent(action(box).encode_rows(rows))
    pair = Dict({"a": Discrete(3)})
    assert sent(action(pair).encode_batch(({"a": 1}, {"a": 2}), 2)) == sent(
        action(pair).encode_batch({"a": [1, 2]}, 2)
    )
    both = Tuple([Discrete(3), Discrete(3)])
    tree = sent(action(both).encode_batch((np.array([0, 1]), np.array([2, 2])), 2))
    assert tree == sent(action(both).encode_batch([(0, 2), (1, 2)], 2))


def test_observations_of_integers_may_come_as_whole_floats() -> None:
    """CNF-4: float to integer only when finite, integral and representable; observations only."""
    codec = observation(Box(0, 255, (3,), "uint8"))
    assert sent(codec.encode(np.array([0.0, 7.0, 255.0]))) == [bytes([0, 7, 255])]
    for value in ([0.5, 1, 1], [np.nan, 1, 1], [np.inf, 1, 1], [256.0, 1, 1], [-1.0, 1, 1]):
        with pytest.raises(ValueError, match="observation: "):
            codec.encode(np.array(value))
    wide = observation(Box("-inf", "inf", (1,), "int64"))
    with pytest.raises(ValueError, match="do not fit int64"):
        wide.encode(np.array([2.0**63]))
    assert sent(wide.encode(np.array([-(2.0**63)]))) == [np.int64([-(2**63)]).tobytes()]


def test_observations_too_large_for_their_dtype_become_infinite() -> None:
    """CNF-4: float64 to float32 is allowed for observations, which may hold infinities."""
    codec = observation(Box("-inf", "inf", (2,), "float32"))
    (leaf,) = codec.encode(np.array([1e300, -1e300]))
    assert leaf.tolist() == [np.inf, -np.inf]


def test_converting_an_action_never_writes_to_it() -> None:
    """The caller's array is read, not changed, whatever has to be done to it."""
    values = [VALUES.astype(">f8"), np.asfortranarray(VALUES), VALUES.astype("f4")]
    for value in values:
        before = value.copy()
        action(ARM).encode(value)
        np.testing.assert_array_equal(value, before)
