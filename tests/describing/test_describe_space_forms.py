"""A space survives the form in which an envelope holds it, but for the order of a Dict's keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from spaces.space_strategies import spaces

from rlmesh.describing.space_forms import space_from_form
from rlmesh.spaces import Box, Dict, Space, Tuple
from rlmesh.values.plain import plain


def form(space: Space) -> Any:
    return json.loads(json.dumps(plain(space._to_dict()), allow_nan=False))


def in_order(space: Any) -> Any:
    """The space with the keys of its Dicts sorted."""
    if isinstance(space, Dict):
        return Dict({key: in_order(space[key]) for key in sorted(space)})
    return Tuple(map(in_order, space)) if isinstance(space, Tuple) else space


@given(spaces)
def test_any_space(space: Space) -> None:
    assert in_order(space_from_form(form(space))) == in_order(space)


@pytest.mark.parametrize(
    "space",
    [
        Box("-inf", "inf", (2,)),
        Box([-1, float("-inf")], [float("inf"), 2], (2,)),
        Box(0, 2**64 - 1, (1,), "uint64"),
        Box("-inf", "inf", (2,), "int32"),
        Box(0, 255, (4, 4, 3), "uint8"),
        Box([[0], [1]], [[3], [4]], (2, 1), "int64"),
    ],
)
def test_bounds(space: Space) -> None:
    assert space_from_form(form(space)) == space


def test_what_is_no_space() -> None:
    with pytest.raises(ValueError, match="unknown kind of space 'graph'"):
        space_from_form({"kind": "graph", "shape": [], "dtype": "float32", "details": {}})
