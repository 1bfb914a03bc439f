"""What holds for every space, over random nested ones."""

from __future__ import annotations

import copy
import pickle
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from space_strategies import boxes, spaces

from rlmesh.spaces import Box, Dict, Discrete, Space, SpaceSpec, Text, Tuple, space_from_spec


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return type(a) is type(b) and a == b


@given(spaces, st.integers(0, 2**70))
def test_samples_are_members_and_repeat_with_the_seed(space: Space, seed: int) -> None:
    assert space.seed(seed) == seed
    first = [space.sample() for _ in range(3)]
    assert all(space.contains(value) for value in first)
    space.seed(seed)
    assert same(tuple(first), tuple(space.sample() for _ in range(3)))


@given(boxes())
def test_box_samples_have_the_declared_form_and_are_finite(space: Box) -> None:
    value = space.sample()
    assert isinstance(value, np.ndarray)
    assert value.dtype == space.np_dtype
    assert list(value.shape) == space.shape
    assert value.flags.writeable
    assert np.isfinite(value).all()
    assert space.contains(value.tolist())


@given(spaces)
def test_copies_are_equal_and_continue_the_same_stream(space: Space) -> None:
    space.seed(1)
    space.sample()
    copies = [copy.copy(space), copy.deepcopy(space), pickle.loads(pickle.dumps(space))]
    expected = space.sample()
    for other in copies:
        assert other == space
        assert repr(other) == repr(space)
        assert same(other.sample(), expected)


@given(spaces, spaces)
def test_spaces_are_equal_exactly_when_their_descriptions_are(a: Space, b: Space) -> None:
    assert a == a.spec == a.to_space()
    if a == b:
        assert a._to_dict() == b._to_dict()
    assert (a != b) is not (a == b)


@given(spaces, st.sampled_from([None, "", "x", 1.5, b"", [], {}, (), object(), [[1], [2, 3]]]))
def test_contains_answers_for_any_value(space: Space, value: Any) -> None:
    assert space.contains(value) in (True, False)


class Upper:
    """A framework that marks what passes through it."""

    class Array:
        def __init__(self, array: Any) -> None:
            self.array = array

    def from_host(self, array: Any) -> Any:
        assert isinstance(array, np.ndarray)
        return self.Array(array)

    def to_host(self, value: Any) -> Any:
        return value.array


def test_a_bound_space_samples_and_checks_the_frameworks_arrays() -> None:
    plain = Dict({"a": Box(-1, 1, (2,)), "b": Tuple([Discrete(3), Text(4)])})
    bound = plain.bound_to(Upper())
    value = bound.sample()
    assert isinstance(value["a"], Upper.Array)
    assert isinstance(value["b"][0], int)
    assert isinstance(value["b"][1], str)
    assert bound.contains(value)
    assert not plain.contains(value)
    assert isinstance(bound["a"].sample(), Upper.Array)
    assert isinstance(plain.sample()["a"], np.ndarray)
    assert bound == plain
    assert isinstance(space_from_spec(plain, bridge=Upper()).sample()["a"], Upper.Array)
    assert isinstance(space_from_spec(plain).sample()["a"], np.ndarray)


class Foreign:
    """An array of another library."""

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if not self.values:
            raise RuntimeError("on another device")
        return np.array(self.values, dtype)


def test_foreign_arrays_are_members() -> None:
    box = Box(-1, 1, (2,))
    assert box.contains(Foreign([0.5, 1]))
    assert not box.contains(Foreign([0.5, 1.5]))
    assert not box.contains(Foreign([]))
    assert Box(Foreign([0, 1]), Foreign([2, 3])) == Box([0, 1], [2, 3])
    with pytest.raises(TypeError, match="which numpy cannot read"):
        Box(Foreign([]), 1)


if find_spec("torch"):

    def test_arrays_of_torch_are_members() -> None:
        torch = import_module("torch")
        box = Box(-1, 1, (2,))
        assert box.contains(torch.zeros(2))
        assert not box.contains(torch.zeros(3))
        assert not box.contains(torch.zeros(2, requires_grad=True))
        assert Discrete(3).contains(torch.tensor(2))
        assert Box(0, 1, (1,), torch.float64).dtype == "float64"


def test_a_space_is_immutable_and_unhashable() -> None:
    space = Box([0, 1], [2, 3])
    with pytest.raises(AttributeError, match="immutable"):
        space.low = 3
    with pytest.raises(AttributeError, match="immutable"):
        del space._shape
    with pytest.raises(ValueError, match="read-only"):
        space.low[0] = 3
    with pytest.raises(ValueError, match="read-only"):
        pickle.loads(pickle.dumps(space)).low[0] = 3
    space.shape.append(4)
    assert space.shape == [2]
    with pytest.raises(TypeError, match="unhashable"):
        hash(space)
    with pytest.raises(TypeError, match="abstract"):
        Space()
    assert SpaceSpec is Space


def test_unknown_attributes_name_the_conversion() -> None:
    with pytest.raises(AttributeError, match=r"rlmesh\.spaces\.to_gymnasium_space"):
        getattr(Box(0, 1, (1,)), "np_random")  # noqa: B009
    with pytest.raises(AttributeError, match=r"^_missing$"):
        getattr(Box(0, 1, (1,)), "_missing")  # noqa: B009
    assert not hasattr(Dict({}), "np_dtype")


def test_seed_draws_a_fresh_one_and_refuses_bad_ones() -> None:
    space = Discrete(2**60)
    seeds = {space.seed() for _ in range(4)}
    assert len(seeds) == 4
    assert min(seeds) >= 0
    assert space.seed(np.int64(5)) == 5
    with pytest.raises(ValueError, match="expected an int >= 0, got -1"):
        space.seed(-1)
    with pytest.raises(TypeError, match=r"expected an int, got 1\.5"):
        space.seed(1.5)


def test_a_child_used_twice_draws_two_values() -> None:
    child = Box(0, 1, (8,), "float64")
    pair = Tuple([child, child])
    pair.seed(0)
    first, second = pair.sample()
    assert not np.array_equal(first, second)
