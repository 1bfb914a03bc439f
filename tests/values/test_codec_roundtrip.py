"""The codec over random spaces and values in its three forms, and against bytes by hand."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spaces.space_strategies import spaces
from support.trees import assert_same, batched, received, sent

from rlmesh.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Space,
    Text,
    Tuple,
    space_from_spec,
)
from rlmesh.values import NATIVE, Policy, Tensor, compile_codec

seeds = st.integers(0, 2**32 - 1)


def samples(space: Space, seed: int, count: int) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def both_sides(space: Space, name: str) -> tuple[Any, Any]:
    """A sender and a receiver with every check on: a sample of the space breaks none of them."""
    sender = compile_codec(space, name, policy=Policy.STRICT)
    receiver = compile_codec(space, name, policy=Policy.STRICT, decode_checked=True)
    return sender, receiver


@settings(max_examples=150, deadline=None)
@given(spaces, seeds, st.sampled_from(["action", "observation"]))
def test_a_value_survives_the_trip(space: Space, seed: int, name: str) -> None:
    """VAL-1, VAL-9: what arrives equals what was sent, bit by bit, and belongs to the space."""
    (value,) = samples(space, seed, 1)
    sender, receiver = both_sides(space, name)
    got = receiver.decode(received(sender.encode(value)))
    assert_same(got, value)
    assert space.contains(got)


@settings(max_examples=150, deadline=None)
@given(spaces, seeds, st.integers(1, 4))
def test_lanes_survive_the_trip_in_every_form(space: Space, seed: int, lanes: int) -> None:
    """VEC-6, VEC-7: a batched tree and a list of values are the same bytes, read back as either."""
    values = samples(space, seed, lanes)
    tree = batched(space, values)
    sender, receiver = both_sides(space, "observation")
    slabs = sender.encode_rows(values)
    assert sent(sender.encode_batch(tree, lanes)) == sent(slabs)
    assert sent(sender.encode_batch(list(values), lanes)) == sent(slabs)
    assert_same(receiver.decode_batch(received(slabs), lanes), tree)
    assert_same(receiver.decode_rows(received(slabs), lanes), values)


@settings(max_examples=60, deadline=None)
@given(spaces, seeds, st.permutations(range(4)).map(lambda order: order[:2]))
def test_some_lanes_of_a_batch(space: Space, seed: int, lanes: list[int]) -> None:
    """A partial reset sends the rows of the lanes that were reset, in their order."""
    values = samples(space, seed, 4)
    codec = compile_codec(space, "observation")
    expected = sent(codec.encode_rows([values[lane] for lane in lanes]))
    assert sent(codec.encode_batch(batched(space, values), 4, lanes)) == expected
    assert sent(codec.encode_batch(list(values), 4, lanes)) == expected


@settings(max_examples=60, deadline=None)
@given(spaces, seeds)
def test_native_values_are_tensors_and_travel_back(space: Space, seed: int) -> None:
    """VAL-1: the framework-free classes hand out Tensor leaves, which encode to the same bytes."""
    (value,) = samples(space, seed, 1)
    codec = compile_codec(space, "action", framework=NATIVE)
    slabs = codec.encode(value)
    native = codec.decode(received(slabs))
    assert_tensors(space, native)
    assert sent(codec.encode(native)) == sent(slabs)
    rows = codec.decode_rows(received(codec.encode_rows([value, value])), 2)
    assert sent(codec.encode_rows(rows)) == sent(codec.encode_rows([value, value]))


def assert_tensors(space: Space, value: Any) -> None:
    if isinstance(space, Dict):
        for key, child in space.items():
            assert_tensors(child, value[key])
    elif isinstance(space, Tuple):
        for child, item in zip(space.spaces, value, strict=True):
            assert_tensors(child, item)
    else:
        expected = {Discrete: int, Text: str}.get(type(space), Tensor)
        assert type(value) is expected


EVERYTHING = Dict.ordered(
    {
        "pose": Box(-1.0, 1.0, (2,), "float32"),
        "image": Box(0, 255, (1, 2, 3), "uint8"),
        "gear": Discrete(5, start=-2),
        "keys": MultiBinary(3),
        "pad": MultiDiscrete([4, 300], dtype="uint16"),
        "pair": Tuple([Discrete(200, dtype="uint8"), Text(9)]),
        "task": Text(20, min_length=0),
        "scale": Box(0.0, 9.0, (), "float64"),
    }
)
FIRST = {
    "pose": np.array([0.5, -1.0], np.float32),
    "image": np.arange(6, dtype=np.uint8).reshape(1, 2, 3),
    "gear": -1,
    "keys": np.array([1, 0, 1], np.uint8),
    "pad": np.array([3, 258], np.uint16),
    "pair": (7, "é"),
    "task": "",
    "scale": np.array(2.0),
}
SECOND = {
    "pose": np.array([0.0, 1.0], np.float32),
    "image": np.arange(6, 12, dtype=np.uint8).reshape(1, 2, 3),
    "gear": 2,
    "keys": np.array([0, 1, 0], np.uint8),
    "pad": np.array([0, 1], np.uint16),
    "pair": (200 - 1, "abc"),
    "task": "go",
    "scale": np.array(0.25),
}


def test_the_bytes_are_those_of_the_wire_table() -> None:
    """wire.md section 5: pre-order leaves, little-endian, the start included, text as a slab."""
    codec = compile_codec(EVERYTHING, "observation")
    pack = struct.pack
    assert sent(codec.encode(FIRST)) == [
        pack("<2f", 0.5, -1.0),
        bytes(range(6)),
        pack("<q", -1),
        bytes([1, 0, 1]),
        pack("<2H", 3, 258),
        bytes([7]),
        pack("<2Q", 1, 2) + "é".encode(),
        pack("<2Q", 1, 0),
        pack("<d", 2.0),
    ]
    assert sent(codec.encode_rows([FIRST, SECOND])) == [
        pack("<4f", 0.5, -1.0, 0.0, 1.0),
        bytes(range(12)),
        pack("<2q", -1, 2),
        bytes([1, 0, 1, 0, 1, 0]),
        pack("<4H", 3, 258, 0, 1),
        bytes([7, 199]),
        pack("<3Q", 2, 2, 3) + "éabc".encode(),
        pack("<3Q", 2, 0, 2) + b"go",
        pack("<2d", 2.0, 0.25),
    ]


def test_a_dict_travels_in_declared_order() -> None:
    """wire.md sections 4 and 5: key order is the declared one, whatever the value's own order."""
    space = Dict.ordered({"z": Discrete(9), "a": Discrete(9)})
    codec = compile_codec(space, "action")
    (z, a) = sent(codec.encode({"a": 1, "z": 2, "more": 3}))
    assert (z, a) == (struct.pack("<q", 2), struct.pack("<q", 1))


def test_keys_not_declared_stay_at_home() -> None:
    """CNF-6: extra Dict keys are ignored."""
    codec = compile_codec(Dict({"a": Discrete(3)}), "observation")
    assert codec.decode(received(codec.encode({"a": 1, "b": object()}))) == {"a": 1}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda leaves: leaves[:-1], "expected 9 leaves"),
        (lambda leaves: [], "expected 1 observations, got 0"),
        (lambda leaves: [leaves[0][:-1], *leaves[1:]], "observation['pose']: length mismatch"),
        (lambda leaves: [*leaves[:2], leaves[2][:4], *leaves[3:]], "observation['gear']: length"),
        (lambda leaves: [*leaves[:7], leaves[7][:5], leaves[8]], "text slab header truncated"),
        (lambda leaves: [*leaves[:6], leaves[6][:-1], *leaves[7:]], "text slab body truncated"),
        (lambda leaves: [*leaves[:6], leaves[6] + b"x", *leaves[7:]], "1 bytes after the last"),
        (lambda leaves: [*leaves[:6], leaves[6][:-1] + b"x", *leaves[7:]], "is not UTF-8"),
        (
            lambda leaves: [*leaves[:6], struct.pack("<2Q", 3, 2) + b"ab", *leaves[7:]],
            "holds 3 texts, expected 1",
        ),
        (
            lambda leaves: [*leaves[:6], struct.pack("<2Q", 1, 2**64 - 1) + b"ab", *leaves[7:]],
            "text slab body truncated",
        ),
    ],
)
def test_leaves_of_a_wrong_size_are_refused(damage: Any, words: str) -> None:
    """wire.md section 5: the receiver knows every length beforehand; the message names the leaf."""
    codec = compile_codec(EVERYTHING, "observation")
    leaves = damage(sent(codec.encode(FIRST)))
    with pytest.raises(ValueError) as caught:
        codec.decode([memoryview(bytearray(leaf)) for leaf in leaves])
    assert words in str(caught.value)


def test_a_missing_leaf_is_counted_in_every_form() -> None:
    """wire.md section 5: one, batch and rows."""
    codec = compile_codec(Dict({"a": Discrete(3), "b": Discrete(3)}), "action")
    leaves = received(codec.encode_rows([{"a": 1, "b": 2}] * 2))
    for decode in (codec.decode_batch, codec.decode_rows):
        with pytest.raises(ValueError, match=r"action: expected 2 leaves for Dict.*, got 1"):
            decode(leaves[:1], 2)
        with pytest.raises(ValueError, match="expected 1 actions, got 0"):
            decode([], 2)
        with pytest.raises(ValueError, match="expected 2 leaves"):
            decode([*leaves, leaves[0]], 2)


def test_a_slab_of_another_number_of_lanes_is_refused() -> None:
    """wire.md section 5: the lane count comes from the contract, never from dividing lengths."""
    codec = compile_codec(Dict({"a": Box(-1, 1, (3,))}), "action")
    leaves = received(codec.encode_rows([{"a": [0, 0, 0]}] * 2))
    with pytest.raises(ValueError, match=r"action\['a'\]: length mismatch: got 24 bytes.*3 lanes"):
        codec.decode_batch(leaves, 3)


def test_results_are_writable_and_own_their_memory() -> None:
    """VAL-9: decoded arrays are views over the buffer they were received into, nobody else's."""
    space = Dict({"a": Box(-1, 1, (3,)), "b": MultiBinary(2)})
    codec = compile_codec(space, "observation")
    leaves = received(codec.encode({"a": [0, 0, 0], "b": [0, 1]}))
    value = codec.decode(leaves)
    value["a"][:] = 1
    value["b"][0] = 1
    assert np.frombuffer(leaves[0], np.float32).tolist() == [1, 1, 1]
    again = codec.decode(received(codec.encode({"a": [0, 0, 0], "b": [0, 1]})))
    assert again["a"].tolist() == [0, 0, 0]
    rows = codec.decode_rows(received(codec.encode_rows([value, value])), 2)
    rows[0]["a"][:] = 7
    assert rows[1]["a"].tolist() == [1, 1, 1]


def test_empty_containers_and_bound_spaces() -> None:
    """SPC-6, SPC-7: Dict({}) and Tuple(()) are legal and have no leaves."""
    for space, value in ((Dict({}), {}), (Tuple(()), ())):
        codec = compile_codec(space, "action")
        assert codec.leaves == 0
        assert_same(codec.decode(codec.encode(value)), value)
    bound = space_from_spec(EVERYTHING, bridge=NATIVE)
    codec = compile_codec(bound, "observation", framework=NATIVE)
    assert sent(codec.encode(FIRST)) == sent(compile_codec(EVERYTHING, "x").encode(FIRST))
