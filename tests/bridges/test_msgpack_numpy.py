"""The codec of the openpi bridge: the bytes of openpi-client, read without trust."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis.extra.numpy as arrays
import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpi_client import msgpack_numpy

from rlmesh.bridges.msgpack_numpy import pack, unpack

KINDS = ["?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", ">f4"]
leaves = st.one_of(
    st.sampled_from(KINDS).flatmap(
        lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, min_side=0))
    ),
    st.sampled_from(KINDS[:-1]).flatmap(lambda kind: arrays.from_dtype(np.dtype(kind))),
    st.text(max_size=8),
    st.floats(),
    st.integers(-(2**63), 2**64 - 1),
    st.booleans(),
    st.none(),
    st.binary(max_size=8),
)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        # The bridge hands out arrays of the machine's byte order.
        return (
            isinstance(b, np.ndarray)
            and a.shape == b.shape
            and a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=")
            and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
        )
    if isinstance(a, float | np.floating) and np.isnan(a):
        return bool(np.isnan(b))
    return type(a) is type(b) and bool(a == b)


@settings(deadline=None)
@given(trees)
def test_it_writes_the_bytes_of_openpi_client_and_reads_them_alike(tree: Any) -> None:
    data = msgpack_numpy.packb(tree)
    assert pack(tree) == data
    assert same(msgpack_numpy.unpackb(data), unpack(data))


@pytest.mark.parametrize(
    "leaf", [np.array([object()]), np.array(["a"]), np.array([1j]), np.complex64(1), object(), {1}]
)
def test_what_it_does_not_write(leaf: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot send (a|dtype) \S+"):
        pack({"leaf": leaf})


def encoded(**changes: Any) -> bytes:
    array: dict[bytes, Any] = {
        b"__ndarray__": True,
        b"data": bytes(8),
        b"dtype": "<f4",
        b"shape": [2],
    }
    array.update({key.encode(): value for key, value in changes.items()})
    return msgpack.packb({"a": array})


def test_a_good_array() -> None:
    assert unpack(encoded())["a"].tolist() == [0.0, 0.0]
    assert not unpack(encoded())["a"].flags.writeable


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (encoded(dtype="|O"), "dtype '|O'"),
        (encoded(dtype="|V4"), "dtype '|V4'"),
        (encoded(dtype="<U2"), "dtype '<U2'"),
        (encoded(dtype="<c8"), "dtype '<c8'"),
        (encoded(dtype=[["a", "<f4"]]), "dtype [['a', '<f4']]"),
        (encoded(dtype=b"<f4"), "dtype b'<f4'"),
        (encoded(dtype="float32"), "dtype 'float32'"),
        (encoded(data="text"), "expected bytes, got str"),
        (encoded(data=bytes(7)), "expected 8 bytes, got 7"),
        (encoded(shape=[-1]), "list of sizes"),
        (encoded(shape=[2.0]), "list of sizes"),
        (encoded(shape=[True, 2]), "list of sizes"),
        (encoded(shape=2), "list of sizes"),
        (encoded(shape=[2**40, 2**40]), "expected"),
        (encoded(shape=[0, 2**62]), "expected 0 bytes"),
        (encoded(strides=[4]), "expected the keys"),
        (msgpack.packb({b"__ndarray__": True}), "expected the keys"),
        (
            msgpack.packb({b"__npgeneric__": True, b"data": "1", b"dtype": "<f4"}),
            "expected a number",
        ),
        (
            msgpack.packb({b"__npgeneric__": True, b"data": 1.5, b"dtype": "<i4"}),
            "expected a number",
        ),
        (
            msgpack.packb({b"__npgeneric__": True, b"data": 300, b"dtype": "|u1"}),
            "scalar of uint8",
        ),
        (msgpack.packb(msgpack.ExtType(4, b"x")), "extension type 4"),
        (msgpack.packb({"a": 1})[:-1], ""),
        (b"\xc1", ""),
        (b"", ""),
        (msgpack.packb(1) * 2, ""),
        (b"\x91" * 100_000 + b"\xc0", ""),
        (b"\x81\x90\x01", ""),
        (b"\xdf\xff\xff\xff\xff", ""),
    ],
)
def test_what_it_does_not_read(data: bytes, words: str) -> None:
    """Only numbers of a known dtype become an array, and of just the bytes that are there."""
    with pytest.raises(ValueError) as caught:
        unpack(data)
    assert words in str(caught.value)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        unpack(data)
