"""``sanitize_metadata``: whatever goes in, what comes out can travel."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import importlib.util
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlmesh.wire.meta import encode_map, sanitize_metadata


class Kind(enum.Enum):
    A = 1
    B = object()


Pair = collections.namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Kind.A, 1),
        (Kind.B, "B"),
        (Pair(1, (2, 3)), {"x": 1, "y": [2, 3]}),
        (2**80, 2**80),
        ({2: {3: 4}}, {"2": {"3": 4}}),
        (np.float32(1.5), 1.5),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.arange(3), [0, 1, 2]),
        (np.array(3.5), 3.5),
        (np.array([1.5], np.longdouble), [1.5]),
        (np.array([{"a": np.int8(1)}, None], object), [{"a": 1}, None]),
        (np.datetime64("2020-01-01"), "2020-01-01"),
        (np.array([1 + 2j]), ["(1+2j)"]),
        (b"x", b"x"),
        (bytearray(b"y"), b"y"),
        ({4}, "{4}"),
        (decimal.Decimal("1.5"), "1.5"),
        (datetime.date(2020, 1, 1), "2020-01-01"),
        (None, None),
    ],
)
def test_cleaned(value: Any, expected: Any) -> None:
    assert sanitize_metadata({"v": value}) == {"v": expected}


def test_keys_become_str() -> None:
    cleaned = sanitize_metadata({None: 1, (1, 2): 2, np.str_("s"): 3})
    assert cleaned == {"None": 1, "(1, 2)": 2, "s": 3}
    assert all(type(key) is str for key in cleaned)


if importlib.util.find_spec("torch"):

    def test_torch_tensors_become_lists() -> None:
        import torch

        cleaned = sanitize_metadata({"t": torch.ones(2, requires_grad=True), "s": torch.tensor(3)})
        assert cleaned == {"t": [1.0, 1.0], "s": 3}
        unreadable = torch.zeros(1, dtype=torch.bfloat16)
        assert sanitize_metadata({"t": unreadable}) == {"t": str(unreadable)}


@pytest.mark.parametrize("value", [[1], None, "x", {1}])
def test_only_mappings(value: Any) -> None:
    with pytest.raises(TypeError, match="sanitize_metadata expects a mapping, got"):
        sanitize_metadata(value)


def test_a_cycle_is_named_by_path() -> None:
    info: dict[str, Any] = {}
    info["a"] = {"b": [info]}
    with pytest.raises(ValueError, match=r"'a.b\[0\]'.*contains itself"):
        sanitize_metadata(info)


def test_the_same_value_twice_is_no_cycle() -> None:
    shared = [1]
    assert sanitize_metadata({"a": shared, "b": [shared, shared]}) == {"a": [1], "b": [[1], [1]]}


def test_endless_nesting_is_an_error_not_a_crash() -> None:
    value: Any = 1
    for _ in range(10_000):
        value = [value]
    with pytest.raises(ValueError, match=r"'a(\[0\]){7}...': expected at most 200 levels"):
        sanitize_metadata({"a": value})


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.complex_numbers()
    | st.dates()
    | st.sampled_from([Kind.A, Kind.B, np.float16(1), np.arange(2), {1, 2}]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text("ab"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.integers() | st.text("abc") | st.none(), ANYTHING, max_size=4))
def test_the_result_always_travels(info: dict[Any, Any]) -> None:
    encode_map(sanitize_metadata(info))
