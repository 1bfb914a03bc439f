"""Dict and Tuple."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlmesh.spaces import Box, Dict, Discrete, Space, Text, Tuple


def test_dict_reads_as_a_mapping_with_sorted_keys() -> None:
    space = Dict({"b": Discrete(2), "a": Discrete(3)})
    assert (space.kind, space.shape, space.dtype) == ("dict", [], "")
    assert list(space) == list(space.keys()) == ["a", "b"]
    assert [key for key, _ in space.items()] == ["a", "b"]
    assert list(space.values()) == [Discrete(3), Discrete(2)]
    assert space["a"] == space.get("a") == Discrete(3)
    assert space.get("c") is None
    assert dict(space) == dict(space.spaces)
    assert len(space) == 2
    assert "a" in space
    assert "c" not in space
    assert {"a": 1, "b": 1} in space
    with pytest.raises(KeyError):
        space["c"]
    with pytest.raises(TypeError, match="item assignment"):
        space.spaces["c"] = Discrete(1)
    assert repr(space) == 'Dict("a": Discrete(3), "b": Discrete(2))'
    assert repr(Dict({})) == "Dict()"
    assert Dict({}).sample() == {}
    assert list(space.sample()) == ["a", "b"]


def test_ordered_dict_keeps_the_order_as_part_of_the_layout() -> None:
    items = [("b", Discrete(2)), ("a", Discrete(3))]
    space = Dict.ordered(items)
    assert list(space) == list(space.sample()) == ["b", "a"]
    assert space == Dict.ordered(dict(items))
    assert space != Dict(dict(items))
    with pytest.raises(ValueError, match="'a' was given twice"):
        Dict.ordered([("a", Discrete(2)), ("a", Discrete(2))])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "b": "x"}, True),
        ({"b": "x", "a": 1}, True),
        ({"a": 1}, False),
        ({"a": 1, "b": "x", "c": 0}, False),
        ({"a": 2, "b": "x"}, False),
        ([1, "x"], False),
        (None, False),
    ],
)
def test_dict_contains(value: Any, expected: bool) -> None:
    assert Dict({"a": Discrete(2), "b": Text(1)}).contains(value) is expected


def test_tuple() -> None:
    space = Tuple(iter([Discrete(2), Text(3)]))
    assert (space.kind, space.shape, space.dtype) == ("tuple", [], "")
    assert space.spaces == tuple(space) == (Discrete(2), Text(3))
    assert (space[1], len(space)) == (Text(3), 2)
    assert repr(space) == "Tuple(Discrete(2), Text(1, 3))"
    assert space != Tuple([Text(3), Discrete(2)])
    assert (Tuple([]).sample(), repr(Tuple([]))) == ((), "Tuple()")
    assert isinstance(space.sample(), tuple)
    for value in ((1, "a"), [1, "a"]):
        assert space.contains(value)
    for value in ((1,), (1, "a", 2), (2, "a"), "ab", None, {0: 1}):
        assert not space.contains(value)
    assert Tuple([Discrete(2), Discrete(2)]).contains(np.array([0, 1]))


def test_describe_form_names_a_dtype_for_containers() -> None:
    described = Dict({"a": Tuple([Discrete(2)])})._to_dict()
    assert (described["kind"], described["dtype"], described["shape"]) == ("dict", "float32", [])
    inner = described["details"]["spaces"]["a"]
    assert inner["details"]["spaces"] == [Discrete(2)._to_dict()]


@pytest.mark.parametrize(
    ("make", "arg", "error", "message"),
    [
        (Dict, {1: Discrete(2)}, TypeError, r"expected a str, got 1 \(int\)"),
        (Dict, {"": Discrete(2)}, ValueError, "non-empty"),
        (Dict, {"a": 3}, TypeError, r"Dict entry 'a': expected an rlmesh space, got 3 \(int\)"),
        (Dict, 3, TypeError, "expected a mapping from key to space, got 3"),
        (Dict, Discrete(2), TypeError, "expected a mapping"),
        (Tuple, [Discrete(2), "x"], TypeError, "Tuple item 1: expected an rlmesh space"),
    ],
)
def test_refusals(make: type[Space], arg: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(arg)


def test_seeding_a_container_leaves_its_children_alone() -> None:
    child = Box(0, 1, (1,))
    child.seed(0)
    expected = Box(child)
    expected.seed(0)
    Tuple([child]).seed(5)
    assert child.sample() == expected.sample()
