"""A codec of a part carries what the whole one carries of it, and looks at nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spaces.space_strategies import spaces
from support.trees import assert_same, batched, received

from rlmesh.spaces import Box, Dict, Discrete, Space, Tuple
from rlmesh.values import Policy, SpacePart, compile_codec, leaf_spaces, leaves_under
from rlmesh.values.views import Replaced

seeds = st.integers(0, 2**32 - 1)


def parts(space: Space) -> st.SearchStrategy[frozenset[int]]:
    count = sum(1 for _ in leaf_spaces(space))
    return st.frozensets(st.integers(0, max(0, count - 1)) if count else st.nothing())


def pruned(space: Space, value: Any, keep: frozenset[int], counter: Any) -> Any:
    """Return (whether anything is left, what), written down a second time."""
    if isinstance(space, Dict):
        found = {key: pruned(child, value[key], keep, counter) for key, child in space.items()}
        kept = {key: inner for key, (any_left, inner) in found.items() if any_left}
        return bool(kept), kept
    if isinstance(space, Tuple):
        items = [pruned(child, value[i], keep, counter) for i, child in enumerate(space.spaces)]
        return any(left for left, _ in items), tuple(v if left else None for left, v in items)
    left = next(counter) in keep
    return left, value if left else None


def expected(space: Space, value: Any, keep: frozenset[int]) -> Any:
    left, inner = pruned(space, value, keep, iter(range(1 << 20)))
    return inner if left or isinstance(space, Dict) else None


@settings(max_examples=200, deadline=None)
@given(st.data(), spaces, seeds, st.integers(1, 3))
def test_a_part_of_a_value_survives_the_trip(
    data: st.DataObject, space: Space, seed: int, lanes: int
) -> None:
    keep = data.draw(parts(space))
    space.seed(seed)
    values = [space.sample() for _ in range(lanes)]
    codec = compile_codec(space, "observation", policy=Policy.STRICT).of_part(SpacePart(keep))
    assert codec.leaves == len(keep)
    one = codec.decode(received(codec.encode(values[0])))
    assert_same(one, expected(space, values[0], keep))
    assert_same(codec.conform(values[0]), one)
    rows = codec.decode_rows(received(codec.encode_rows(values)), lanes)
    assert_same(rows, [expected(space, value, keep) for value in values])
    tree = batched(space, values)
    again = codec.decode_rows(received(codec.encode_batch(tree, lanes)), lanes)
    assert_same(again, rows)


class Untouchable(Mapping[str, Any]):
    """Has keys, and breaks where one of its other values is asked for."""

    def __init__(self, values: dict[str, Any], *keys: str) -> None:
        self._values, self._keys = values, keys

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            raise AssertionError(f"{key!r} was read")
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Any:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def test_what_is_left_out_is_neither_read_nor_checked() -> None:
    space = Dict({"a": Box(0, 1, (2,)), "b": Box(0, 1, (2,)), "c": Dict({"d": Discrete(3)})})
    codec = compile_codec(space, "observation", policy=Policy.STRICT)
    part = codec.of_part(SpacePart(frozenset({1})))
    value = Untouchable({"b": np.zeros(2, np.float32)}, "a", "b", "c")
    assert_same(part.decode(received(part.encode(value))), {"b": np.zeros(2, np.float32)})
    with pytest.raises(ValueError, match="missing key 'b'"):
        part.encode({"a": 1})
    with pytest.raises(ValueError, match=r"observation\['b'\]"):
        part.encode({"b": np.full(2, 7.0, np.float32)})  # what is sent is still checked


def test_a_replaced_leaf_is_checked_as_what_it_is() -> None:
    space = Dict({"a": Discrete(3), "b": Box(0, 255, (4, 6, 3), "uint8")})
    small = Box(0, 255, (2, 3, 3), "uint8")
    halved = Replaced(small, lambda frame: frame[::2, ::2])
    codec = compile_codec(space, "observation", policy=Policy.STRICT)
    server = codec.of_part(SpacePart(frozenset({0, 1}), {1: halved}))
    client = codec.of_part(SpacePart(frozenset({0, 1}), {1: Replaced(small)}))
    space.seed(0)
    values = [space.sample() for _ in range(3)]
    meant = [{"a": v["a"], "b": np.ascontiguousarray(v["b"][::2, ::2])} for v in values]
    assert_same(client.decode(received(server.encode(values[0]))), meant[0])
    assert_same(client.decode_rows(received(server.encode_rows(values)), 3), meant)
    tree = batched(space, values)
    assert_same(client.decode_rows(received(server.encode_batch(tree, 3)), 3), meant)
    picked = server.encode_batch(tree, 3, rows=[2, 0])
    assert_same(client.decode_rows(received(picked), 2), [meant[2], meant[0]])
    assert_same(client.decode(received(client.encode(meant[1]))), meant[1])
    for wrong in (np.zeros((2, 3, 3), np.uint8), np.full((4, 6, 3), 300), "picture"):
        with pytest.raises(ValueError, match=r"observation\['b'\]"):
            server.encode({"a": 0, "b": wrong})


def test_one_codec_for_one_part() -> None:
    codec = compile_codec(Dict({"a": Discrete(2), "b": Discrete(2)}), "observation")
    part = codec.of_part(SpacePart(frozenset({0})))
    assert codec.of_part(None) is codec
    assert part.of_part(SpacePart(frozenset({0}))) is part
    assert part.of_part(None).leaves == 2


def test_leaves_under_paths() -> None:
    space = Dict(
        {"a": Discrete(2), "b": Tuple([Discrete(2), Dict({"x": Discrete(2), "y": Discrete(2)})])}
    )
    assert leaves_under(space, [("b", 1)]) == [2, 3]
    assert leaves_under(space, [("a",), ("b", 0), ("b", 1, "y")]) == [0, 1, 3]
    assert leaves_under(space, [()]) == [0, 1, 2, 3]
    assert leaves_under(space, []) == []
