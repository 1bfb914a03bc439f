"""Maps on the wire: what travels, what becomes of it, what is refused and how."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import importlib.util
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from rlmesh.errors import ProtocolException
from rlmesh.wire import messages
from rlmesh.wire.meta import (
    MAX_DEPTH,
    MAX_LISTED_ELEMENTS,
    decode_map,
    encode_map,
    fill_map,
)


def travel(mapping: Any, **options: Any) -> dict[str, Any]:
    data = encode_map(mapping, **options).SerializeToString()
    return decode_map(messages.parse(messages.spaces.MetaMap, data))


def same(left: Any, right: Any) -> bool:
    """Equal, of the same types, NaN equal to NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right, equal_nan=True)
    return bool(left == right)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | TEXT
    | st.binary(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ARRAYS = npst.arrays(
    st.sampled_from(
        ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i4", ">f8"]
    ),
    npst.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4),
)


@given(st.dictionaries(TEXT, VALUES, max_size=6))
def test_what_a_map_can_hold_comes_back_as_it_was(mapping: dict[str, Any]) -> None:
    assert same(travel(mapping), mapping)
    assert same(travel(mapping, arrays=True), mapping)


@given(ARRAYS)
@example(np.zeros((0, 3), np.uint8))
@example(np.arange(6, dtype=">i4").reshape(2, 3).T)
def test_arrays_keep_dtype_shape_and_bytes_when_the_peer_takes_them(array: Any) -> None:
    back = travel({"x": {"y": [array]}}, arrays=True)["x"]["y"][0]
    assert back.dtype == array.dtype.newbyteorder("=")
    assert back.shape == array.shape
    assert np.array_equal(back, array, equal_nan=array.dtype.kind == "f")
    assert back.flags.writeable
    assert back.flags.owndata or back.base.flags.owndata


@given(ARRAYS.filter(lambda a: a.dtype != np.uint64))
def test_arrays_become_nested_lists_otherwise(array: Any) -> None:
    assert same(travel({"x": array})["x"], array.tolist())


class Color(enum.Enum):
    RED = "red"
    OPAQUE = object()


class Level(enum.IntEnum):
    HIGH = 3


class Mode(str, enum.Enum):
    FAST = "fast"


Point = collections.namedtuple("Point", "x y")


class FakeTensor:
    """The part of torch.Tensor the encoder uses: works where torch is not installed."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def detach(self) -> FakeTensor:
        return self

    def cpu(self) -> FakeTensor:
        return self

    def numpy(self) -> Any:
        return self.array


class ArrayLike:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([1, 2], np.int16)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.float32(0.5), 0.5),
        (np.float16(0.5), 0.5),
        (np.longdouble(0.5), 0.5),
        (np.int8(-3), -3),
        (np.uint64(2**63 - 1), 2**63 - 1),
        (np.longlong(5), 5),
        (np.bool_(True), True),
        (np.str_("abc"), "abc"),
        (np.bytes_(b"abc"), b"abc"),
        (np.array(1.5, np.float32), 1.5),
        (np.array(7), 7),
        (np.array(True), True),
        (np.array("text"), "text"),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([b"a", b"bc"]), [b"a", b"bc"]),
        (np.array([1.5], np.longdouble), [1.5]),
        (np.array([{"a": np.int64(1)}, None, "x"], object), [{"a": 1}, None, "x"]),
        (np.array({"a": 1}, object), {"a": 1}),
        (np.zeros((0,)), []),
        ((1, (2.0, "x")), [1, [2.0, "x"]]),
        (Point(1, [2]), {"x": 1, "y": [2]}),
        (Color.RED, "red"),
        (Color.OPAQUE, "OPAQUE"),
        (Level.HIGH, 3),
        (Mode.FAST, "fast"),
        (bytearray(b"xy"), b"xy"),
        (memoryview(b"xy"), b"xy"),
        (collections.OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        (collections.UserDict(a=1), {"a": 1}),
        (FakeTensor(np.array([1.0, 2.0], np.float32)), [1.0, 2.0]),
        (FakeTensor(np.array(3)), 3),
        (ArrayLike(), [1, 2]),
        (math.inf, math.inf),
        (-0.0, -0.0),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
    ],
)
def test_values_with_an_obvious_image(value: Any, expected: Any) -> None:
    assert same(travel({"v": value})["v"], expected)


@pytest.mark.parametrize("key", [np.str_("k"), Mode.FAST])
def test_str_subclasses_are_keys(key: str) -> None:
    assert list(travel({key: 1})) == [str.__str__(key)]


if importlib.util.find_spec("torch"):

    def test_torch_tensors() -> None:
        import torch

        tensor = torch.arange(3, dtype=torch.float32, requires_grad=True)
        assert same(travel({"t": tensor, "s": torch.tensor(2)}), {"t": [0.0, 1.0, 2.0], "s": 2})
        assert travel({"t": tensor}, arrays=True)["t"].dtype == np.float32
        with pytest.raises(
            TypeError, match=r"metadata 't': expected a tensor that converts to numpy"
        ):
            travel({"t": torch.zeros(2, dtype=torch.bfloat16)})


REFUSED: list[tuple[Any, type[Exception], str]] = [
    (object(), TypeError, r"expected None, bool, int, .* got object; convert it"),
    ({1, 2}, TypeError, r"got set"),
    (decimal.Decimal(1), TypeError, r"got decimal.Decimal"),
    (datetime.date(2020, 1, 1), TypeError, r"got datetime.date"),
    (1 + 2j, TypeError, r"got complex"),
    (int, TypeError, r"got type"),
    (np.ndarray, TypeError, r"got type"),
    (len, TypeError, r"got builtin_function_or_method"),
    (2**63, ValueError, r"expected an integer of int64, got 9223372036854775808; send it as str"),
    (-(2**63) - 1, ValueError, r"integer of int64"),
    (np.uint64(2**63), ValueError, r"integer of int64"),
    ("\ud800", ValueError, r"expected text that is valid UTF-8"),
    (np.datetime64("2020-01-01"), TypeError, r"got datetime64\[D\]; send .astype\(str\)"),
    (np.timedelta64(1, "s"), TypeError, r"got timedelta64\[s\]; send .astype\('int64'\)"),
    (np.array([1 + 2j]), TypeError, r"got complex128; send .real and .imag"),
    (np.complex64(1), TypeError, r"got complex64"),
    (np.zeros(2, [("a", "i4")]), TypeError, r"send its fields under keys of their own"),
    (np.zeros(2, "V3"), TypeError, r"cast it to float32"),
    (np.zeros(MAX_LISTED_ELEMENTS + 1, np.uint8), ValueError, r"got uint8\[65537\]; put it in the"),
]


def pair_array(first: Any, second: Any) -> Any:
    """An object array of two; ``np.array`` would merge arrays among them."""
    array = np.empty(2, object)
    array[0], array[1] = first, second
    return array


@pytest.mark.parametrize(("value", "error", "text"), REFUSED)
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda v: {"v": v}, "v"),
        (lambda v: {"a": {"b": [0, v]}}, "a.b[1]"),
        (lambda v: {"a": pair_array(None, v)}, "a[1]"),
    ],
)
def test_what_cannot_travel_is_refused_by_path(
    value: Any, error: type[Exception], text: str, wrap: Any, path: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        encode_map(wrap(value), what="info")
    assert str(caught.value).startswith(f"info '{path}': ")


@pytest.mark.parametrize(("value", "error", "text"), REFUSED)
def test_what_cannot_travel_is_dropped_alone(value: Any, error: type[Exception], text: str) -> None:
    drops: list[tuple[str, str]] = []
    mapping = {"before": 1, "in": {"list": [1, {"bad": value, "good": 2}], "x": 3}, "after": 4}
    back = travel(mapping, on_drop=lambda path, detail: drops.append((path, detail)))
    assert back == {"before": 1, "in": {"list": [1, {"good": 2}], "x": 3}, "after": 4}
    assert [path for path, _ in drops] == ["in.list[1].bad"]
    assert "expected" in drops[0][1]


def test_a_list_with_a_bad_item_is_dropped_whole() -> None:
    drops: list[str] = []
    back = travel({"a": [1, object(), 2], "b": 5}, on_drop=lambda path, _: drops.append(path))
    assert back == {"b": 5}
    assert drops == ["a[1]"]


@pytest.mark.parametrize("key", [3, None, 1.5, ("a",), b"k", Color.RED])
def test_a_key_that_is_no_str_is_named(key: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a str key, got .*; use str\(key\)"):
        encode_map({"a": {key: 1}})
    drops: list[str] = []
    back = travel({"a": {key: 1, "ok": 2}, key: 3}, on_drop=lambda path, _: drops.append(path))
    assert back == {"a": {"ok": 2}}
    assert len(drops) == 2


def test_a_key_that_is_not_utf8_is_named() -> None:
    with pytest.raises(ValueError, match="valid UTF-8"):
        encode_map({"\ud800": 1})
    drops: list[str] = []
    assert travel({"\ud800": 1, "ok": 2}, on_drop=lambda p, _: drops.append(p)) == {"ok": 2}
    assert len(drops) == 1


def cyclic(kind: str) -> Any:
    if kind == "dict":
        mapping: dict[str, Any] = {"x": 1}
        mapping["self"] = mapping
        return mapping
    if kind == "list":
        items: list[Any] = []
        items.append([items])
        return {"self": items}
    array = np.empty(1, object)
    array[0] = array
    return {"self": array}


@pytest.mark.parametrize("kind", ["dict", "list", "array"])
def test_a_value_that_contains_itself_is_refused_or_dropped_whole(kind: str) -> None:
    with pytest.raises(ValueError, match="contains itself"):
        encode_map(cyclic(kind))
    drops: list[str] = []
    back = travel({"bad": cyclic(kind), "ok": 1}, on_drop=lambda path, _: drops.append(path))
    assert back == {"ok": 1}
    assert len(drops) == 1
    assert drops[0].startswith("bad")


def test_a_zero_dimensional_object_array_that_holds_itself() -> None:
    array = np.empty((), object)
    array[()] = array
    with pytest.raises(ValueError, match="contains itself"):
        encode_map({"a": array})


@pytest.mark.parametrize("wrap", [lambda v: {"k": v}, lambda v: [v]])
def test_the_deepest_map_allowed_can_be_parsed(wrap: Any) -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = wrap(value)
    response = messages.env.JoinResponse()
    fill_map(response.step.completed_episodes.add().final_info, {"k": value})
    parsed = messages.parse(messages.env.JoinResponse, response.SerializeToString())
    assert decode_map(parsed.step.completed_episodes[0].final_info) == {"k": value}
    with pytest.raises(ValueError, match=f"at most {MAX_DEPTH} levels"):
        encode_map({"k": wrap(value)})


def test_large_arrays_travel_when_the_peer_takes_them() -> None:
    array = np.arange(MAX_LISTED_ELEMENTS + 1)
    assert np.array_equal(travel({"a": array}, arrays=True)["a"], array)
    assert len(travel({"a": array[1:]})["a"]) == MAX_LISTED_ELEMENTS


def test_a_tensor_whose_conversion_fails_is_refused() -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise RuntimeError("on the moon")

    with pytest.raises(TypeError, match="on the moon"):
        encode_map({"a": Broken()})


def test_empty_map_and_list_are_not_null() -> None:
    assert travel({"m": {}, "l": [], "n": None}) == {"m": {}, "l": [], "n": None}


def test_keys_come_back_sorted() -> None:
    keys = [f"key_{i}" for i in range(50)]
    assert list(travel(dict.fromkeys(reversed(keys), 1))) == sorted(keys)


def test_fill_map_writes_into_a_field_of_another_message() -> None:
    response = messages.env.StepResponse()
    fill_map(response.infos, {"is_success": np.bool_(True)})
    assert decode_map(response.infos) == {"is_success": True}


def test_the_infos_of_a_gymnasium_vector_env() -> None:
    infos = {
        "distance": np.array([0.5, 0.0]),
        "_distance": np.array([True, False]),
        "final_info": {"episode": {"r": np.array([1.0, 0.0], np.float32)}},
        "final_obs": np.array([np.array([1.0, 2.0]), None], dtype=object),
        "_final_obs": np.array([True, False]),
    }
    assert travel(infos) == {
        "distance": [0.5, 0.0],
        "_distance": [True, False],
        "final_info": {"episode": {"r": [1.0, 0.0]}},
        "final_obs": [[1.0, 2.0], None],
        "_final_obs": [True, False],
    }
    kept = travel(infos, arrays=True)
    assert kept["final_obs"][1] is None
    assert np.array_equal(kept["final_obs"][0], [1.0, 2.0])
    assert kept["_final_obs"].dtype == np.bool_


BAD_ARRAYS = [
    {"rlmesh.ndarray": "float32", "shape": [2], "data": b"123"},
    {"rlmesh.ndarray": "object", "shape": [1], "data": b"12345678"},
    {"rlmesh.ndarray": 3, "shape": [1], "data": b"12345678"},
    {"rlmesh.ndarray": "uint8", "shape": [-1], "data": b"1"},
    {"rlmesh.ndarray": "uint8", "shape": [1.0], "data": b"1"},
    {"rlmesh.ndarray": "uint8", "shape": [True], "data": b"1"},
    {"rlmesh.ndarray": "uint8", "shape": 1, "data": b"1"},
    {"rlmesh.ndarray": "uint8", "shape": [1], "data": "1"},
    {"rlmesh.ndarray": "uint8", "shape": [0, 2**62, 2**62], "data": b""},
    {"rlmesh.ndarray": "uint8", "shape": [2**62, 2**62, 16], "data": b""},
    {"rlmesh.ndarray": "uint8", "shape": [1] * 40, "data": b"1"},
]


@pytest.mark.parametrize("payload", BAD_ARRAYS)
def test_an_array_that_does_not_add_up_is_refused(payload: dict[str, Any]) -> None:
    with pytest.raises(ProtocolException, match="array in a map"):
        travel({"a": payload})


@pytest.mark.parametrize(
    "mapping",
    [
        {"rlmesh.ndarray": "float32"},
        {"rlmesh.ndarray": "uint8", "shape": [1], "data": b"1", "more": 1},
    ],
)
def test_a_map_that_only_looks_like_an_array_stays_a_map(mapping: dict[str, Any]) -> None:
    assert travel({"a": mapping}) == {"a": mapping}


def test_bool_bytes_other_than_one_are_true() -> None:
    back = travel({"a": {"rlmesh.ndarray": "bool", "shape": [3], "data": b"\x00\x01\xff"}})["a"]
    assert back.view(np.uint8).tolist() == [0, 1, 1]


@given(st.binary(max_size=300))
def test_hostile_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        decode_map(messages.parse(messages.spaces.MetaMap, data))
    except ProtocolException:
        pass
    else:
        assert isinstance(decode_map(messages.parse(messages.spaces.MetaMap, data)), dict)


@given(
    st.dictionaries(
        st.sampled_from(["rlmesh.ndarray", "shape", "data"]),
        SCALARS | st.sampled_from(["uint8", "float64"]) | st.lists(SCALARS, max_size=4),
        min_size=3,
        max_size=3,
    )
)
def test_hostile_arrays_decode_or_are_refused(payload: dict[str, Any]) -> None:
    try:
        array = travel({"a": payload})["a"]
    except ProtocolException as error:
        assert "array in a map" in str(error)
    else:
        assert isinstance(array, np.ndarray)
