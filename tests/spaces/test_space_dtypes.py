from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from rlmesh.spaces.dtypes import DTYPES, integer_range, is_exact, resolve_dtype


class Named:
    """A dtype object of another library, known by its name only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


@pytest.mark.parametrize("name", list(DTYPES))
def test_every_spelling_gives_the_native_dtype(name: str) -> None:
    native = np.dtype(name)
    spellings = [name, native, native.type, native.newbyteorder(">"), native.str]
    spellings += [f"torch.{name}", Named(f"torch.{name}"), f"jax.numpy.{name}"]
    for spelling in spellings:
        assert resolve_dtype(spelling) == native
        assert resolve_dtype(spelling).isnative


def test_python_types_are_64_bits_wide() -> None:
    assert [resolve_dtype(t).name for t in (bool, int, float)] == ["bool", "int64", "float64"]
    assert resolve_dtype("float").name == "float64"


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("bfloat16", "bfloat16"),
        (Named("torch.bfloat16"), "bfloat16"),
        (complex, "complex128"),
        ("complex64", "complex64"),
        (np.longdouble, np.dtype(np.longdouble).name),
        (str, "str"),
        (object, "object"),
        ("datetime64[s]", r"datetime64\[s\]"),
        (None, "None"),
        ("floaty", "floaty"),
        ([1, 2], r"\[1, 2\]"),
    ],
)
def test_other_dtypes_are_refused_with_a_remedy(dtype: Any, name: str) -> None:
    with pytest.raises(
        ValueError,
        match=f'unsupported dtype "{name}": expected one of bool.*cast|'
        f'unsupported dtype "{name}".*axis',
    ):
        resolve_dtype(dtype)


if find_spec("torch"):

    def test_dtype_objects_of_torch() -> None:
        torch = import_module("torch")
        for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32"):
            assert resolve_dtype(getattr(torch, name)).name == name
        with pytest.raises(ValueError, match=r'unsupported dtype "bfloat16".*float32'):
            resolve_dtype(torch.bfloat16)


def test_ranges() -> None:
    assert integer_range(np.dtype("uint64")) == (0, 2**64 - 1)
    assert integer_range(np.dtype("bool")) == (0, 1)
    assert [is_exact(DTYPES[n]) for n in ("bool", "int8", "uint64", "float16")] == [1, 1, 1, 0]
