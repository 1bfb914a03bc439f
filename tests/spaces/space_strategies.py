"""Random spaces, ours and Gymnasium's, for the property tests of this folder."""

from __future__ import annotations

import math
import string
from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "float32", "float64"]

shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
charsets = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)


def integer_values(dtype: str) -> st.SearchStrategy[int]:
    info = np.iinfo(dtype)
    edges = st.sampled_from([int(info.min), int(info.max), int(info.min) + 1, int(info.max) - 1])
    return edges | st.integers(int(info.min), int(info.max))


@st.composite
def bounds(draw: st.DrawFn, dtype: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Two arrays of ``dtype`` and ``shape`` with low <= high, infinities where floats allow it."""
    if dtype == "bool":
        elements: st.SearchStrategy[Any] = st.booleans()
    elif dtype in FLOATS:
        width = int(dtype.removeprefix("float"))
        elements = st.floats(width=width, allow_nan=False, allow_infinity=False)
    else:
        elements = integer_values(dtype)
    pair = [draw(hnp.arrays(dtype, shape, elements=elements)) for _ in range(2)]
    low, high = np.asarray(np.minimum(*pair)), np.asarray(np.maximum(*pair))
    if dtype in FLOATS:
        low = np.where(draw(hnp.arrays(bool, shape)), -np.inf, low).astype(dtype)
        high = np.where(draw(hnp.arrays(bool, shape)), np.inf, high).astype(dtype)
    return low, high


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    dtype = draw(st.sampled_from(["bool", *INTEGERS, *FLOATS]))
    shape = draw(shapes)
    if draw(st.booleans()):
        return Box(-math.inf, "inf", shape, dtype)
    low, high = draw(bounds(dtype, shape if draw(st.booleans()) else ()))
    return Box(low, high, shape, dtype)


@st.composite
def discretes(draw: st.DrawFn) -> Discrete:
    dtype = draw(st.sampled_from(INTEGERS))
    lowest, highest = int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max), 2**63 - 1)
    start = draw(st.integers(lowest, highest))
    return Discrete(draw(st.integers(1, min(highest - start + 1, 2**63 - 1))), start, dtype)


multi_binaries = st.builds(
    MultiBinary, shapes.filter(len), st.sampled_from(["uint8", "int8", "bool"])
)


@st.composite
def multi_discretes(draw: st.DrawFn) -> MultiDiscrete:
    dtype = draw(st.sampled_from(INTEGERS))
    counts = st.integers(1, min(int(np.iinfo(dtype).max), 2**63 - 1))
    shape = draw(shapes.filter(len))
    return MultiDiscrete(draw(hnp.arrays("int64", shape, elements=counts)), dtype)


@st.composite
def texts(draw: st.DrawFn) -> Text:
    shortest = draw(st.integers(0, 5))
    return Text(max(1, shortest + draw(st.integers(0, 2000))), shortest, draw(charsets))


leaves = boxes() | discretes() | multi_binaries | multi_discretes() | texts()

spaces: st.SearchStrategy[Space] = st.recursive(
    leaves,
    lambda children: (
        st.dictionaries(keys, children, max_size=3).map(Dict)
        | st.dictionaries(keys, children, max_size=3).map(Dict.ordered)
        | st.lists(children, max_size=3).map(Tuple)
    ),
    max_leaves=6,
)


# Gymnasium's own


@st.composite
def gym_boxes(draw: st.DrawFn) -> Any:
    dtype = draw(st.sampled_from(["bool", *INTEGERS, *FLOATS]))
    low, high = draw(bounds(dtype, draw(shapes)))
    if draw(st.booleans()):
        low, high = np.full_like(low, low.min()), np.full_like(high, high.max())
    return gymnasium.spaces.Box(low, high, low.shape, np.dtype(dtype).type)


@st.composite
def gym_texts(draw: st.DrawFn) -> Any:
    shortest = draw(st.integers(0, 5))
    longest = max(1, shortest + draw(st.integers(0, 5)))
    if draw(st.booleans()):
        return gymnasium.spaces.Text(longest, min_length=shortest)
    charset = draw(charsets.filter(len) | st.just(string.printable))
    charset = frozenset(charset) if draw(st.booleans()) else charset
    return gymnasium.spaces.Text(longest, min_length=shortest, charset=charset)


@st.composite
def gym_multi_discretes(draw: st.DrawFn) -> Any:
    space = draw(multi_discretes())
    return gymnasium.spaces.MultiDiscrete(space.nvec_array, dtype=space.np_dtype.type)


@st.composite
def gym_discretes(draw: st.DrawFn) -> Any:
    start = draw(st.integers(-(2**63), 2**63 - 2))
    # Gymnasium adds the two as int64 in contains().
    n = draw(st.integers(1, min(2**63 - 1 - start, 2**63 - 1)))
    return gymnasium.spaces.Discrete(n, start=start)


gym_leaves = (
    gym_boxes()
    | gym_texts()
    | gym_multi_discretes()
    | gym_discretes()
    # MultiBinary(3) and MultiBinary((3,)) differ for Gymnasium only, which compares n as given.
    | shapes.filter(lambda shape: len(shape) > 1).map(gymnasium.spaces.MultiBinary)
    | st.integers(1, 4).map(gymnasium.spaces.MultiBinary)
)

gym_spaces: st.SearchStrategy[Any] = st.recursive(
    gym_leaves,
    lambda children: (
        st.dictionaries(keys, children, max_size=3).map(gymnasium.spaces.Dict)
        | st.dictionaries(keys, children, max_size=3).map(OrderedDict).map(gymnasium.spaces.Dict)
        | st.lists(children, max_size=3).map(gymnasium.spaces.Tuple)
    ),
    max_leaves=6,
)
