"""Trees of values: mapping, adopting into a framework, stacking over lanes and splitting again."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh.values import NATIVE, NUMPY, Tensor
from rlmesh.values.tree import (
    describe_tree,
    tree_adopter,
    tree_map,
    tree_stack,
    tree_to_host,
    tree_unstack,
)

Pose = namedtuple("Pose", "position rotation")


class Foreign:
    """An array of a library that only speaks ``__array__``."""

    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)
        self.shape, self.dtype = self.data.shape, self.data.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.data.astype(dtype or self.data.dtype)


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, in structure, class of leaf, dtype and shape."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        alike = type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape
        return alike and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


# Mapping


def test_containers_are_recursed_and_other_leaves_are_leaves() -> None:
    tree = {"a": [1, (2, 3)], "b": Pose(4, {"c": None})}
    assert tree_map(lambda leaf: (leaf,), {"x": 1}) == {"x": (1,)}
    mapped = tree_map(str, tree)
    assert mapped == {"a": ["1", ("2", "3")], "b": Pose("4", {"c": "None"})}
    assert isinstance(mapped["b"], Pose)


def test_a_mapping_of_another_class_becomes_a_dict() -> None:
    assert type(tree_map(str, OrderedDict(a=1))) is dict


# Adopting


def test_numpy_adopts_foreign_arrays_and_leaves_the_rest_alone() -> None:
    opaque = object()
    array = np.zeros(3, np.float32)
    tree = {"a": Foreign([1.0, 2.0]), "t": "go", "n": 3, "x": opaque, "s": np.int8(2), "own": array}
    adopted = tree_adopter(NUMPY)(tree)
    assert same(adopted["a"], np.array([1.0, 2.0]))
    assert adopted["own"] is array
    assert adopted["x"] is opaque
    assert (adopted["t"], adopted["n"], type(adopted["s"])) == ("go", 3, np.int8)


def test_a_tensor_becomes_a_writable_array_of_its_own() -> None:
    tensor = Tensor(np.arange(3, dtype=np.float32), [3], "float32")
    adopted = tree_adopter(NUMPY)({"t": tensor})["t"]
    adopted += 1
    assert type(adopted) is np.ndarray
    assert np.asarray(tensor).tolist() == [0.0, 1.0, 2.0]


def test_native_adopts_arrays_as_tensors_over_the_same_memory() -> None:
    array = np.arange(4.0)
    adopted = tree_adopter(NATIVE)((array, "t"))
    assert isinstance(adopted[0], Tensor)
    assert np.shares_memory(np.asarray(adopted[0]), array)
    array[0] = 9
    assert np.asarray(adopted[0])[0] == 9


def test_text_arrays_are_no_array_leaves() -> None:
    words = np.array(["a", "b"])
    assert tree_adopter(NATIVE)([words])[0] is words


def test_to_host_brings_every_array_leaf_to_numpy() -> None:
    tensor = Tensor(np.arange(3), [3], "int64")
    hosted = tree_to_host({"a": tensor, "b": [Foreign([1])], "c": 1.5, "d": "x"})
    assert type(hosted["a"]) is type(hosted["b"][0]) is np.ndarray
    assert (hosted["c"], hosted["d"]) == (1.5, "x")


# Stacking


def test_every_leaf_gains_a_leading_axis_and_text_stays_a_list() -> None:
    rows = [
        {
            "image": np.full((2, 2, 3), i, np.uint8),
            "task": f"t{i}",
            "n": i,
            "pair": (np.ones(1), [i]),
        }
        for i in range(3)
    ]
    fused = tree_stack(rows, NUMPY)
    assert (fused["image"].shape, fused["image"].dtype) == ((3, 2, 2, 3), np.uint8)
    assert fused["task"] == ["t0", "t1", "t2"]
    assert same(fused["n"], np.array([0, 1, 2]))
    assert same(fused["pair"], (np.ones((3, 1)), [np.array([0, 1, 2])]))


def test_a_namedtuple_keeps_its_names() -> None:
    fused = tree_stack([Pose(np.zeros(3), np.ones(4))] * 2, NUMPY)
    assert fused.rotation.shape == (2, 4)


def test_arrays_of_several_libraries_fuse() -> None:
    rows = [np.zeros(2), Foreign([1.0, 1.0]), Tensor(np.full(2, 2.0), [2], "float64")]
    for order in (rows, rows[::-1]):
        assert sorted(tree_stack(order, NUMPY)[:, 0].tolist()) == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("lanes", [1, 3])
def test_rank_0_and_empty_leaves_stack(lanes: int) -> None:
    fused = tree_stack([(np.array(1.5, np.float32), np.zeros((0, 4)))] * lanes, NUMPY)
    assert (fused[0].shape, fused[0].dtype, fused[1].shape) == ((lanes,), np.float32, (lanes, 0, 4))


def test_native_leaves_stack_to_a_tensor() -> None:
    rows = [Tensor(np.full(2, i), [2], "int64") for i in range(3)]
    fused = tree_stack(rows, NATIVE)
    assert isinstance(fused, Tensor)
    assert [np.asarray(row).tolist() for row in tree_unstack(fused, 3, NATIVE)] == [
        [0, 0],
        [1, 1],
        [2, 2],
    ]


RAGGED = {
    "shape": (np.zeros(2), np.zeros(3), ["float64[2]", "float64[3]"]),
    "rank": (np.zeros(2), np.zeros((2, 1)), ["float64[2]", "float64[2, 1]"]),
    "dtype": (np.zeros(2), np.zeros(2, np.float32), ["float64[2]", "float32[2]"]),
    "kind": (np.zeros(2), "go", ["float64[2]", "str"]),
    "number": (1, "go", ["int", "str"]),
    "text": ("go", 1, ["str", "int"]),
    "opaque": (Foreign([1]), object(), ["int64[1]", "object"]),
    "keys": ({"a": 1}, {"b": 1}, ["{a: int}", "{b: int}"]),
    "no mapping": ({"a": 1}, 1, ["{a: int}", "int"]),
    "length": ((1, 2), (1, 2, 3), ["(int, int)", "(int, int, int)"]),
}


@pytest.mark.parametrize("case", RAGGED)
def test_a_ragged_leaf_names_the_leaf_both_shapes_and_the_lanes(case: str) -> None:
    first, other, shown = RAGGED[case]
    rows = [{"cam": [0, row]} for row in (first, first, other)]
    with pytest.raises(ValueError, match=r"observation\['cam'\]\[1\]") as caught:
        tree_stack(rows, NUMPY)
    text = str(caught.value)
    assert f"lane 0 has {shown[0]}" in text
    assert f"lane 2 has {shown[1]}" in text
    assert "share an observation space" in text


def test_lanes_are_called_what_the_caller_calls_them() -> None:
    rows = [np.zeros(2), np.zeros(3)]
    with pytest.raises(ValueError, match=r"lane 7 has float64\[2\], lane b@10 has float64\[3\]"):
        tree_stack(rows, NUMPY, lanes=["lane 7", "lane b@10"])


@pytest.mark.parametrize("lane", [0, 1])
def test_a_none_leaf_cannot_be_fused(lane: int) -> None:
    rows: list[Any] = [{"a": np.zeros(2)}, {"a": np.zeros(2)}]
    rows[lane]["a"] = None
    with pytest.raises(
        ValueError, match=r"cannot fuse a None observation leaf.*\['a'\] of lane"
    ) as e:
        tree_stack(rows, NUMPY)
    assert f"lane {lane}" in str(e.value)


def test_an_unknown_leaf_cannot_be_fused() -> None:
    with pytest.raises(ValueError, match=r"cannot fuse a object leaf.*observation\[0\] of lane 0"):
        tree_stack([[object()]] * 2, NUMPY)


# Unstacking


def test_only_the_batch_axis_is_split() -> None:
    rows = tree_unstack({"a": np.arange(12).reshape(2, 3, 2), "t": ["x", "y"]}, 2, NUMPY)
    assert [row["a"].shape for row in rows] == [(3, 2), (3, 2)]
    assert [row["t"] for row in rows] == ["x", "y"]


def test_a_list_is_one_value_per_lane_and_a_tuple_a_container() -> None:
    a, b = np.zeros(2), np.ones(2)
    assert tree_unstack([a, b], 2, NUMPY)[1] is b
    pairs = tree_unstack((np.arange(3), np.arange(3) * 10), 3, NUMPY)
    assert pairs == [(0, 0), (1, 10), (2, 20)]


def test_foreign_arrays_are_split_on_the_host() -> None:
    assert tree_unstack(Foreign([[1], [2]]), 2, NUMPY)[1].tolist() == [2]


@pytest.mark.parametrize(
    ("value", "where", "shown"),
    [
        (np.zeros((3, 2)), "action:", r"float64\[3, 2\]"),
        (np.zeros(()), "action:", r"float64\[\]"),
        ({"a": {"b": np.zeros(3)}}, r"action\['a'\]\['b'\]:", r"float64\[3\]"),
        ((np.zeros(2), np.zeros(3)), r"action\[1\]:", r"float64\[3\]"),
        ([1, 2, 3], "action:", r"\[int, int, int\]"),
        (1.5, "action:", "float"),
        ("go", "action:", "str"),
        (None, "action:", "None"),
        (Foreign([1]), "action:", r"int64\[1\]"),
    ],
)
def test_a_wrong_count_names_the_leaf_and_what_it_is(value: Any, where: str, shown: str) -> None:
    with pytest.raises(ValueError, match=rf"{where} expected a leading batch axis of 2.*{shown}"):
        tree_unstack(value, 2, NUMPY)


def test_an_empty_container_has_as_many_rows_as_lanes() -> None:
    assert tree_unstack({}, 2, NUMPY) == [{}, {}]


DTYPES = st.sampled_from(["uint8", "int64", "float16", "float32", "float64", "bool"])
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
LEAF = st.tuples(st.just("array"), DTYPES, SHAPES) | st.just(("text",))
SPEC = st.recursive(
    LEAF,
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(dict)
        | st.lists(inner, min_size=1, max_size=3).map(lambda items: ("tuple", items))
    ),
    max_leaves=5,
)


def draw_value(spec: Any, rng: np.random.Generator) -> Any:
    if isinstance(spec, dict):
        return {key: draw_value(item, rng) for key, item in spec.items()}
    if spec[0] == "tuple":
        return tuple(draw_value(item, rng) for item in spec[1])
    if spec[0] == "text":
        return str(rng.integers(1000))
    return rng.integers(0, 2, spec[2]).astype(spec[1]) * rng.integers(0, 9, spec[2]).astype(spec[1])


@given(spec=SPEC, lanes=st.integers(1, 5), seed=st.integers(0, 2**32))
def test_unstack_is_the_inverse_of_stack(spec: Any, lanes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [draw_value(spec, rng) for _ in range(lanes)]
    split = tree_unstack(tree_stack(rows, NUMPY), lanes, NUMPY)
    assert len(split) == lanes
    for row, back in zip(rows, split, strict=True):
        # A row of a rank-1 slab is a NumPy scalar; the bytes are the same.
        assert same(tree_map(plain_rank_0, row), tree_map(plain_rank_0, back))


def plain_rank_0(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, np.generic) else leaf


# Showing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"image": np.zeros((4, 4, 3), np.uint8), "task": "go"},
            "{image: uint8[4, 4, 3], task: str}",
        ),
        ((np.float32(1), 2, None), "(float32, int, None)"),
        ([np.zeros(3)] * 9, "[float64[3] x 9]"),
        (Tensor(np.zeros(2), [2], "float64"), "float64[2]"),
        (np.zeros(()), "float64[]"),
    ],
)
def test_a_value_is_shown_by_keys_dtypes_and_shapes(value: Any, text: str) -> None:
    assert describe_tree(value) == text
