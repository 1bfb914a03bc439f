from __future__ import annotations

import string
from typing import Any

import numpy as np
import pytest

from rlmesh.spaces import Text


def test_attributes() -> None:
    space = Text(5)
    assert (space.kind, space.min_length, space.max_length, space.charset) == ("text", 1, 5, "")
    assert (space.dtype, space.np_dtype, space.shape) == ("uint8", np.dtype("uint8"), [])
    assert repr(space) == "Text(1, 5)"
    assert repr(Text(5, charset="ab")) == 'Text(1, 5, charset="ab")'
    assert repr(Text(5, charset='"\n')) == 'Text(1, 5, charset="\\"\\n")'
    assert Text(5, charset=None) == Text(5, charset="") == space
    assert Text(5, charset="ab") == Text(5, charset="ba")
    assert all(space != s for s in (Text(4), Text(5, 0), Text(5, charset="a")))
    assert space._to_dict()["details"] == {"min_length": 1, "max_length": 5, "charset": ""}


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (Text(3), "abc", True),
        (Text(3), "äöü", True),
        (Text(3), "abcd", False),
        (Text(3), "", False),
        (Text(3, 0), "", True),
        (Text(3, charset="ab"), "aba", True),
        (Text(3, charset="ab"), "abc", False),
        (Text(3), np.str_("abc"), True),
        (Text(3), b"abc", False),
        (Text(3), ["a"], False),
        (Text(3), 1, False),
        (Text(3), "\ud800", False),
    ],
)
def test_contains(space: Text, value: Any, expected: bool) -> None:
    assert space.contains(value) is expected


def test_samples() -> None:
    space = Text(4, 2)
    space.seed(0)
    samples = [space.sample() for _ in range(500)]
    assert {len(s) for s in samples} == {2, 3, 4}
    letters = set("".join(samples))
    assert letters <= set(string.printable)
    assert all(c.isprintable() for c in letters)
    assert set(Text(300, 300, "xyz").sample()) == set("xyz")
    # A limit of 2**40 characters must not be filled.
    assert len(Text(2**40).sample()) <= 1024
    assert len(Text(2**40, 2000).sample()) == 2000


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((0,), ValueError, "max_length must be > 0, got 0"),
        ((2, -1), ValueError, "min_length must be >= 0, got -1"),
        ((2, 3), ValueError, "min_length must be <= max_length, got 3 > 2"),
        ((2**63,), ValueError, "must fit int64"),
        ((2.0,), TypeError, "max_length: expected an int"),
        ((2, 1, {"a"}), TypeError, "charset: expected a string"),
        ((2, 1, "\ud800"), ValueError, "lone surrogate"),
    ],
)
def test_refusals(args: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Text(*args)
