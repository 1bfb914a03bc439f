"""Spaces as messages: exact round trips, and every rule of the protocol on what arrives."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh.errors import ProtocolException
from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from rlmesh.wire import messages
from rlmesh.wire.spaces_codec import (
    MAX_SPACE_DEPTH,
    apply_extensions,
    space_extensions,
    space_from_message,
    space_to_message,
)

SpaceSpec = messages.spaces.SpaceSpec

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
NUMBERS = {
    name: number
    for number, name in enumerate(["bool", *INTEGERS[4:], *INTEGERS[:4], *FLOATS], start=1)
}


def travel(space: Space) -> Space:
    data = space_to_message(space).SerializeToString()
    back = space_from_message(messages.parse(SpaceSpec, data))
    return apply_extensions(back, space_extensions(space))


# Spaces, hypothesis.


def limits(dtype: str) -> tuple[Any, Any]:
    if dtype == "bool":
        return 0, 1
    if dtype in FLOATS:
        return -1000.0, 1000.0
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def numbers(dtype: str) -> st.SearchStrategy[Any]:
    low, high = limits(dtype)
    if dtype in FLOATS:
        return st.floats(low, high, width=int(dtype[5:]))
    return st.integers(low, high)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    dtype = draw(st.sampled_from(["bool", *INTEGERS, *FLOATS]))
    shape = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    form = draw(st.sampled_from(["unbounded", "uniform", "elementwise", "half"]))
    if form == "unbounded":
        return Box(-math.inf, math.inf, shape, dtype)
    if form == "half" and dtype in FLOATS:
        return Box(-math.inf, draw(numbers(dtype)), shape, dtype)
    if form == "uniform":
        low, high = sorted([draw(numbers(dtype)), draw(numbers(dtype))])
        return Box(low, high, shape, dtype)
    count = math.prod(shape)
    sides = [draw(st.lists(numbers(dtype), min_size=count, max_size=count)) for _ in "lh"]
    first, second = (np.array(side, dtype).reshape(shape) for side in sides)
    return Box(np.minimum(first, second), np.maximum(first, second), shape, dtype)


@st.composite
def discretes(draw: st.DrawFn) -> Discrete:
    dtype = draw(st.sampled_from(INTEGERS))
    low, high = limits(dtype)
    first, last = sorted([draw(st.integers(low, min(high, 2**63 - 1))) for _ in "fl"])
    return Discrete(min(last - first + 1, 2**63 - 1), first, dtype)


@st.composite
def multi_discretes(draw: st.DrawFn) -> MultiDiscrete:
    dtype = draw(st.sampled_from(INTEGERS))
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    top = min(limits(dtype)[1] + 1, 2**63 - 1)
    count = math.prod(shape)
    nvec = draw(st.lists(st.integers(1, top), min_size=count, max_size=count))
    return MultiDiscrete(np.array(nvec, np.int64).reshape(shape), dtype)


@st.composite
def texts(draw: st.DrawFn) -> Text:
    shortest, longest = sorted([draw(st.integers(0, 20)), draw(st.integers(1, 20))])
    charset = draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=6))
    return Text(longest, shortest, charset or None)


KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4) | st.sampled_from(
    ["a/b", "~", "~1", "0"]
)
LEAVES = (
    boxes()
    | discretes()
    | multi_discretes()
    | texts()
    | st.builds(
        MultiBinary,
        st.lists(st.integers(1, 4), min_size=1, max_size=3),
        st.sampled_from(["uint8", "int8", "bool"]),
    )
)
SPACES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(Tuple)
        | st.dictionaries(KEYS, inner, max_size=3).map(lambda d: Dict.ordered(list(d.items())))
    ),
    max_leaves=6,
)


@given(SPACES)
def test_every_space_comes_back_equal(space: Space) -> None:
    back = travel(space)
    assert back == space
    assert repr(back) == repr(space)


@given(SPACES)
def test_without_extensions_the_leaves_keep_their_size(space: Space) -> None:
    """A 0.1.0 client, which does not know of extensions, reads the same bytes."""
    back = space_from_message(space_to_message(space))

    def sizes(node: Space) -> list[Any]:
        if isinstance(node, Dict):
            return [size for child in node.values() for size in sizes(child)]
        if isinstance(node, Tuple):
            return [size for child in node.spaces for size in sizes(child)]
        return [(node.kind, node.dtype, math.prod(node.shape))]

    assert sizes(back) == sizes(space)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_a_space_or_refused(data: bytes) -> None:
    try:
        space = space_from_message(messages.parse(SpaceSpec, data))
    except ProtocolException as error:
        assert str(error)
    else:
        assert travel(space) == space


@given(SPACES, st.data())
def test_damaged_specs_are_a_space_or_refused(space: Space, data: st.DataObject) -> None:
    raw = bytearray(space_to_message(space).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        back = space_from_message(messages.parse(SpaceSpec, bytes(raw)))
    except ProtocolException as error:
        assert str(error)
    else:
        assert isinstance(back, Space)


JSON = st.recursive(
    st.none() | st.integers(-2, 3) | st.text(max_size=2) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(
        st.sampled_from(["", "/0", "/a", "shape", "min_length", "max_length"]), inner, max_size=4
    ),
    max_leaves=8,
)


@given(SPACES, st.dictionaries(st.sampled_from(["", "/0", "/1", "/a"]), JSON, max_size=3))
def test_hostile_extensions_leave_a_space(space: Space, extensions: dict[str, Any]) -> None:
    plain = space_from_message(space_to_message(space))
    assert isinstance(apply_extensions(plain, extensions), Space)


# The messages our spaces become.


@pytest.mark.parametrize("dtype", NUMBERS)
def test_dtype_numbers(dtype: str) -> None:
    assert space_to_message(Box(0, 1, (2,), dtype)).dtype == NUMBERS[dtype]


def test_box_bounds_are_little_endian_scalars_of_the_dtype() -> None:
    uniform = space_to_message(Box(-1, 2, (3,), "int16")).box.uniform
    assert (uniform.low, uniform.high) == (struct.pack("<h", -1), struct.pack("<h", 2))
    elementwise = space_to_message(Box([0.0, -1.0], [0.5, 2.0])).box.elementwise
    assert elementwise.low == struct.pack("<2f", 0, -1)
    assert elementwise.high == struct.pack("<2f", 0.5, 2)
    assert space_to_message(Box("-inf", "inf", (3,))).box.unbounded is True


def test_integer_bounds_are_exact() -> None:
    space = travel(Box(-(2**63), 2**63 - 1, (1,), "int64"))
    assert (space.low, space.high) == (-(2**63), 2**63 - 1)  # type: ignore[attr-defined]


def test_a_discrete_of_all_zeros_still_has_its_kind() -> None:
    assert space_to_message(Discrete(1)).WhichOneof("spec") == "discrete"
    assert space_to_message(MultiBinary(2)).WhichOneof("spec") == "multi_binary"
    assert space_to_message(Dict({})).WhichOneof("spec") == "dict"
    assert space_to_message(Tuple([])).WhichOneof("spec") == "tuple"


def test_dict_order_is_the_declared_one() -> None:
    space = Dict.ordered([("b", Discrete(2)), ("a", Discrete(3))])
    assert list(space_to_message(space).dict.keys) == ["b", "a"]
    assert list(travel(space)) == ["b", "a"]  # type: ignore[call-overload]


def test_what_the_wire_has_no_word_for_travels_beside_it() -> None:
    space = Dict({"x/y": Box(-1, 1, ()), "t": Tuple([Text(4, 0), Text(4)]), "z": Discrete(2)})
    message = space_to_message(space)
    assert space_extensions(space) == {"/x~1y": {"shape": []}, "/t/0": {"min_length": 0}}
    plain = space_from_message(message)
    assert plain["x/y"].shape == [1]  # type: ignore[index]
    assert plain["t"][0].min_length == 1  # type: ignore[index]
    assert apply_extensions(plain, space_extensions(space)) == space


def test_extensions_do_not_apply_where_the_bytes_would_differ() -> None:
    wide = Box(-1, 1, (2,))
    assert apply_extensions(wide, {"": {"shape": []}}) == wide
    assert apply_extensions(Text(4, 2), {"": {"min_length": 0, "max_length": 9}}) == Text(4, 0)
    assert apply_extensions(Discrete(3), {"": {"shape": [], "min_length": 0}}) == Discrete(3)


def test_an_unknown_space_is_refused() -> None:
    with pytest.raises(TypeError, match=r"space at /a: expected Box, .* got Strange"):
        space_to_message(Dict({"a": Strange()}))


class Strange(Space):
    kind = "strange"

    def __init__(self) -> None:
        self._freeze(_shape=())

    def contains(self, value: object) -> bool:
        return False

    def _draw(self, rng: Any) -> Any:
        return None

    def _same(self, other: Any) -> bool:
        return True

    def _details(self) -> dict[str, Any]:
        return {}


def nested(depth: int) -> Space:
    space: Space = Discrete(2)
    for _ in range(depth):
        space = Dict({"k": space})
    return space


def test_the_deepest_space_allowed_can_be_parsed_inside_a_handshake() -> None:
    space = nested(MAX_SPACE_DEPTH)
    response = messages.env.HandshakeResponse()
    response.env_contract.spec.observation_space.CopyFrom(space_to_message(space))
    parsed = messages.parse(messages.env.HandshakeResponse, response.SerializeToString())
    assert space_from_message(parsed.env_contract.spec.observation_space) == space
    with pytest.raises(ValueError, match=f"at most {MAX_SPACE_DEPTH} levels"):
        space_to_message(nested(MAX_SPACE_DEPTH + 1))


def test_a_deeper_space_of_a_peer_is_refused() -> None:
    message = space_to_message(nested(MAX_SPACE_DEPTH))
    outer = SpaceSpec()
    outer.tuple.spaces.add().CopyFrom(message)
    with pytest.raises(ProtocolException, match=f"at most {MAX_SPACE_DEPTH} levels"):
        space_from_message(outer)


# The rules of wire.md section 4, one broken at a time.


def spec(dtype: int, shape: list[int], kind: str, **fields: Any) -> Any:
    message = SpaceSpec(dtype=dtype, shape=shape)
    inner = getattr(message, kind)
    inner.SetInParent()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(inner, name).extend(value)
        elif hasattr(value, "SerializeToString"):
            getattr(inner, name).CopyFrom(value)
        else:
            setattr(inner, name, value)
    return message


def uniform(low: bytes, high: bytes) -> Any:
    return messages.spaces.UniformBounds(low=low, high=high)


def elementwise(low: bytes, high: bytes) -> Any:
    return messages.spaces.ElementwiseBounds(low=low, high=high)


def f32(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


NAN, INF = math.nan, math.inf
DISCRETE = spec(9, [], "discrete", n=2)
BROKEN: dict[str, tuple[Any, str]] = {
    "no kind": (SpaceSpec(dtype=11, shape=[2]), "expected a kind of space"),
    "unknown dtype": (spec(99, [2], "box", unbounded=True), "dtype of the protocol, got number 99"),
    "negative dtype": (spec(-1, [2], "box", unbounded=True), "got number -1"),
    "box without dtype": (spec(0, [2], "box", unbounded=True), "got UNSPECIFIED"),
    "box of rank 0": (spec(11, [], "box", unbounded=True), "at least one axis"),
    "box of size 0": (spec(11, [2, 0], "box", unbounded=True), r"shape\[1\] > 0, got 0"),
    "box of negative size": (spec(11, [-1], "box", unbounded=True), r"shape\[0\] > 0, got -1"),
    "box of rank 33": (spec(11, [1] * 33, "box", unbounded=True), "at most 32 axes, got 33"),
    "box beyond any memory": (spec(11, [2**40] * 2, "box", unbounded=True), "fewer than 2"),
    "box without bounds": (spec(11, [2], "box"), "expected bounds, got none"),
    "short uniform low": (
        spec(11, [2], "box", uniform=uniform(b"12", f32(1))),
        "expected 4 bytes of low, got 2",
    ),
    "long uniform high": (
        spec(11, [2], "box", uniform=uniform(f32(0), f32(1, 1))),
        "expected 4 bytes of high, got 8",
    ),
    "short elementwise low": (
        spec(11, [2], "box", elementwise=elementwise(f32(0), f32(1, 1))),
        "expected 8 bytes of low, got 4",
    ),
    "low above high": (spec(11, [2], "box", uniform=uniform(f32(2), f32(1))), "low"),
    "one low above high": (
        spec(11, [2], "box", elementwise=elementwise(f32(0, 2), f32(1, 1))),
        "low",
    ),
    "NaN bound": (spec(11, [2], "box", uniform=uniform(f32(NAN), f32(1))), "NaN"),
    "NaN high": (spec(11, [2], "box", uniform=uniform(f32(0), f32(NAN))), "NaN"),
    "bool bound of 2": (spec(1, [2], "box", uniform=uniform(b"\0", b"\2")), "bytes 0 and 1"),
    "discrete of floats": (spec(11, [], "discrete", n=2), "got float32"),
    "discrete of bools": (spec(1, [], "discrete", n=2), "got bool"),
    "discrete without dtype": (spec(0, [], "discrete", n=2), "got UNSPECIFIED"),
    "discrete with a shape": (spec(9, [1], "discrete", n=2), r"empty shape, got \[1\]"),
    "discrete n 0": (spec(9, [], "discrete"), "n must be > 0, got 0"),
    "discrete n negative": (spec(9, [], "discrete", n=-3), "n must be > 0, got -3"),
    "discrete past int64": (spec(9, [], "discrete", n=2, start=2**63 - 1), "does not fit"),
    "discrete past its dtype": (spec(2, [], "discrete", n=300), "299 does not fit dtype uint8"),
    "discrete below its dtype": (spec(2, [], "discrete", n=3, start=-1), "-1 does not fit"),
    "multi binary of int64": (spec(9, [3], "multi_binary"), "dtype bool, uint8, int8, got int64"),
    "multi binary of rank 0": (spec(2, [], "multi_binary"), "at least one axis"),
    "multi binary of size 0": (spec(2, [0], "multi_binary"), r"shape\[0\] > 0"),
    "multi discrete, empty": (spec(9, [0], "multi_discrete"), r"shape\[0\] > 0"),
    "multi discrete of rank 0": (spec(9, [], "multi_discrete", nvec=[3]), "at least one axis"),
    "multi discrete, too few": (spec(9, [3], "multi_discrete", nvec=[2, 3]), "3 counts, got 2"),
    "multi discrete, too many": (spec(9, [1], "multi_discrete", nvec=[2, 3]), "1 counts, got 2"),
    "multi discrete, zero": (spec(9, [2], "multi_discrete", nvec=[2, 0]), r"nvec\[1\] must be > 0"),
    "multi discrete of floats": (spec(12, [1], "multi_discrete", nvec=[2]), "got float64"),
    "multi discrete of bools": (spec(1, [1], "multi_discrete", nvec=[2]), "got bool"),
    "multi discrete past its dtype": (
        spec(6, [1], "multi_discrete", nvec=[300]),
        "299 does not fit dtype int8",
    ),
    "text of int64": (spec(9, [], "text", min_length=1, max_length=2), "dtype uint8, got int64"),
    "text without dtype": (spec(0, [], "text", min_length=1, max_length=2), "got UNSPECIFIED"),
    "text with a shape": (spec(2, [1], "text", min_length=1, max_length=2), "an empty shape"),
    "text of min_length 0": (spec(2, [], "text", max_length=2), "min_length > 0, got 0"),
    "text of max_length 0": (spec(2, [], "text", min_length=1), "max_length"),
    "text of min above max": (spec(2, [], "text", min_length=3, max_length=2), "length"),
    "dict with a dtype": (spec(11, [], "dict"), "dtype UNSPECIFIED, got float32"),
    "dict with a shape": (spec(0, [1], "dict"), "an empty shape"),
    "dict, too few spaces": (
        spec(0, [], "dict", keys=["a", "b"], spaces=[DISCRETE]),
        "2 spaces, one per key, got 1",
    ),
    "dict, same key twice": (
        spec(0, [], "dict", keys=["a", "a"], spaces=[DISCRETE] * 2),
        "'a' was given twice",
    ),
    "dict, empty key": (spec(0, [], "dict", keys=[""], spaces=[DISCRETE]), "non-empty"),
    "tuple with a dtype": (spec(9, [], "tuple"), "dtype UNSPECIFIED, got int64"),
    "tuple with a shape": (spec(0, [2], "tuple"), "an empty shape"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_refused(rule: str) -> None:
    message, text = BROKEN[rule]
    with pytest.raises(ProtocolException, match=text) as caught:
        space_from_message(message)
    assert str(caught.value).startswith("space: ")


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_is_refused_where_it_is(rule: str) -> None:
    inner = spec(0, [], "tuple", spaces=[DISCRETE, BROKEN[rule][0]])
    outer = spec(0, [], "dict", keys=["arm"], spaces=[inner])
    with pytest.raises(ProtocolException, match=BROKEN[rule][1]) as caught:
        space_from_message(outer)
    assert str(caught.value).startswith("space at /arm/1: ")


KEPT: dict[str, tuple[Any, Space]] = {
    "unbounded": (spec(11, [2], "box", unbounded=True), Box("-inf", "inf", (2,))),
    "unbounded, said as false": (
        spec(11, [2], "box", unbounded=False),
        Box("-inf", "inf", (2,)),
    ),
    "half bounded": (
        spec(11, [2], "box", uniform=uniform(f32(-INF), f32(1))),
        Box("-inf", 1, (2,)),
    ),
    "bool box": (spec(1, [2], "box", uniform=uniform(b"\0", b"\1")), Box(0, 1, (2,), "bool")),
    "uint8 discrete": (spec(2, [], "discrete", n=256), Discrete(256, dtype="uint8")),
    "whole int64": (
        spec(9, [], "discrete", n=2**63 - 1, start=-(2**62)),
        Discrete(2**63 - 1, -(2**62)),
    ),
    "int8 multi binary": (spec(6, [2, 2], "multi_binary"), MultiBinary((2, 2), "int8")),
    "2-d multi discrete": (
        spec(9, [2, 2], "multi_discrete", nvec=[1, 2, 3, 4]),
        MultiDiscrete([[1, 2], [3, 4]]),
    ),
    "charset": (spec(2, [], "text", min_length=1, max_length=5, charset="ab"), Text(5, 1, "ab")),
    "very long text": (spec(2, [], "text", min_length=1, max_length=2**40), Text(2**40)),
    "empty dict": (spec(0, [], "dict"), Dict({})),
    "empty tuple": (spec(0, [], "tuple"), Tuple([])),
    "vast multi binary": (spec(2, [2**40], "multi_binary"), MultiBinary(2**40)),
}


@pytest.mark.parametrize("rule", KEPT)
def test_what_the_protocol_allows_is_read(rule: str) -> None:
    message, space = KEPT[rule]
    assert space_from_message(message) == space
