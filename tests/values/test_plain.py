"""Anything as JSON data, the same in every process."""

from __future__ import annotations

import json
import math
from collections import UserDict, namedtuple
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh.values.plain import plain, text_of


class Level(IntEnum):
    HIGH = 3


class Colour(Enum):
    RED = "r"


class Name(str, Enum):
    A = "a"


class Text(str): ...


class Real(float): ...


class Broken:
    def __repr__(self) -> str:
        raise ValueError


class BrokenMapping(UserDict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise ValueError


PairOf = namedtuple("PairOf", "a b")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (1.5, 1.5),
        (math.nan, None),
        (-math.inf, None),
        ("ü", "ü"),
        ("\udc80", "\\udc80"),
        ((1, [2, {"a": (3,)}]), [1, [2, {"a": [3]}]]),
        ({2: 2, None: 3, True: 4, 1.5: 5}, {"2": 2, "null": 3, "true": 4, "1.5": 5}),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        (Level.HIGH, 3),
        (Name.A, "a"),
        (Text("ü"), "ü"),
        (Real("inf"), None),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({2, "x"}), ["x", 2]),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.float64("nan"), None),
        (np.arange(3), [0, 1, 2]),
        (np.array([[1.0, np.inf]]), [[1.0, None]]),
        (np.zeros(1025, np.uint8), "<uint8[1025] array>"),
        (PairOf(1, 2), [1, 2]),
        (UserDict(a=1), {"a": 1}),
        (b"ab", "b'ab'"),
        (Colour.RED, "<Colour.RED: 'r'>"),
        (object(), "<object object>"),
        (Broken(), "<Broken>"),
        (BrokenMapping(a=1), "{'a': 1}"),
        (int, "<class 'int'>"),
        ("x" * 5000, "x" * 5000),
    ],
)
def test_values(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


def test_cycles_and_depth_end() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = [loop]
    assert plain(loop) == {"self": ["..."]}
    deep: Any = 0
    for _ in range(10_000):
        deep = [deep]
    assert "..." in json.dumps(plain(deep))


def test_what_is_there_twice_is_no_cycle() -> None:
    shared = [1]
    assert plain([shared, shared]) == [[1], [1]]


def test_long_texts_of_objects_are_cut() -> None:
    assert len(plain([object()] * 1 + [range(10**6)])[1]) < 100
    assert len(text_of(ValueError("x" * 10**6))) < 1100


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text() | st.integers(), inner)
        ),
    )
)
def test_whatever_it_is_strict_json_holds_it_and_again_is_the_same(value: Any) -> None:
    found = plain(value)
    text = json.dumps(found, sort_keys=True, allow_nan=False, ensure_ascii=False)
    text.encode()
    assert plain(json.loads(text)) == json.loads(text)
