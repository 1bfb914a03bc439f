"""The codec over random spaces: whose arrays a value is made of changes not one bit on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
from framework_kinds import ALL
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spaces.space_strategies import spaces
from support.trees import batched, received, sent

from rlmesh.spaces import Space
from rlmesh.values import Framework, compile_codec
from rlmesh.values.tree import is_array, tree_adopter, tree_map, tree_to_host

frameworks = st.sampled_from(list(ALL.values()))


def adopted(tree: Any, framework: Framework) -> Any:
    """Return the tree in the framework; no example where it would hold a value in too few bits."""
    try:
        return tree_adopter(framework)(tree)
    except ValueError as exc:
        assume("does not fit" not in str(exc))
        raise


def hashable(tree: Any) -> Any:
    """Return what is equal for equal values, whatever their width."""

    def plain(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        kind = "q" if leaf.dtype.kind in "iu" else leaf.dtype
        return leaf.shape, leaf.astype(object).tolist() if kind == "q" else leaf.tobytes()

    return tree_map(plain, tree_to_host(tree))


@settings(max_examples=150, deadline=None)
@given(spaces, st.integers(0, 2**32 - 1), frameworks, frameworks)
def test_any_value_in_any_framework(
    space: Space, seed: int, sends: Framework, reads: Framework
) -> None:
    """BCK-7: encoded from one framework, decoded to another."""
    space.seed(seed)
    value = space.sample()
    plain = compile_codec(space, "observation")
    leaves = plain.encode(adopted(value, sends))
    assert sent(leaves) == sent(plain.encode(value))
    adopted(value, reads)
    got = compile_codec(space, "observation", framework=reads).decode(received(leaves))
    assert hashable(got) == hashable(value)
    kinds: list[bool] = []
    tree_map(lambda leaf: kinds.append(reads.is_array(leaf) or not is_array(leaf)), got)
    assert all(kinds)


@settings(max_examples=100, deadline=None)
@given(spaces, st.integers(0, 2**32 - 1), frameworks, frameworks, st.integers(1, 3))
def test_any_lanes_in_any_framework(
    space: Space, seed: int, sends: Framework, reads: Framework, lanes: int
) -> None:
    """VEC-6: as one batched tree and as one value a lane."""
    space.seed(seed)
    rows = [space.sample() for _ in range(lanes)]
    tree = batched(space, rows)
    plain = compile_codec(space, "action")
    expected = sent(plain.encode_rows(rows))
    assert sent(plain.encode_rows([adopted(row, sends) for row in rows])) == expected
    assert sent(plain.encode_batch(adopted(tree, sends), lanes)) == expected
    adopted(tree, reads)
    codec = compile_codec(space, "action", framework=reads)
    leaves = plain.encode_rows(rows)
    assert hashable(codec.decode_batch(received(leaves), lanes)) == hashable(tree)
    assert hashable(codec.decode_rows(received(leaves), lanes)) == hashable(rows)
