"""`Tensor`: its attributes, and the buffer protocol and DLPack in both directions."""

from __future__ import annotations

import array
import copy
import ctypes
import gc
import pickle
from typing import Any

import numpy as np
import pytest

import rlmesh
from rlmesh import Tensor
from rlmesh.values.tensor import _NUMPY_VERSIONED

DTYPES = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
]


def six(dtype: str = "float32") -> Tensor:
    return Tensor(np.arange(6).astype(dtype), [2, 3], dtype)


def capsule_name(capsule: Any) -> str:
    function = ctypes.pythonapi.PyCapsule_GetName
    function.restype, function.argtypes = ctypes.c_char_p, [ctypes.py_object]
    return function(capsule).decode()


@pytest.mark.parametrize("dtype", DTYPES)
def test_attributes(dtype: str) -> None:
    """VAL-3, SPC-13: plain data, for every dtype of the wire."""
    t = six(dtype)
    size = np.dtype(dtype).itemsize
    assert (t.shape, t.dtype, t.ndim, t.size, t.nbytes) == ([2, 3], dtype, 2, 6, 6 * size)
    assert (t.strides, t.itemsize, t.device) == ([3 * size, size], size, "cpu")
    assert type(t.shape) is list and type(t.dtype) is str
    assert t.is_contiguous() is True
    assert t.tobytes() == bytes(t.buffer) == np.arange(6).astype(dtype).tobytes()
    assert t.buffer.readonly and t.buffer.format == "B" and t.buffer.ndim == 1
    assert repr(t) == f'Tensor(dtype="{dtype}", shape=[2, 3], bytes={6 * size})'
    np.testing.assert_array_equal(np.asarray(t), np.arange(6).astype(dtype).reshape(2, 3))


def test_strides_are_those_of_c_order_whatever_numpy_keeps() -> None:
    """VAL-3: NumPy leaves the strides of a dimension of one undefined."""
    source = np.zeros((4, 1, 3), np.float32)[::2][:1]
    assert Tensor.adopt(source).strides == [12, 12, 4]


@pytest.mark.parametrize(
    "buffer",
    [
        np.arange(3, dtype="<f4").tobytes(),
        bytearray(np.arange(3, dtype="<f4").tobytes()),
        memoryview(np.arange(3, dtype="<f4")),
        memoryview(np.arange(6, dtype="<f4") // 2)[::2],
        array.array("f", [0, 1, 2]),
        np.arange(3, dtype="<f4"),
        np.arange(3, dtype=">f4"),
        np.asfortranarray(np.arange(3, dtype="<f4")[:, None]),
        (np.arange(6, dtype="<f4") // 2)[::2],
        Tensor(np.arange(3, dtype="<f4"), [3], "float32"),
    ],
    ids=lambda b: type(b).__name__,
)
def test_construction_from_any_buffer(buffer: Any) -> None:
    """VAL-2: bytes, memoryview, array or Tensor; strided and big-endian ones are set right."""
    assert np.asarray(Tensor(buffer, [3], "float32")).tolist() == [0, 1, 2]


def test_construction_copies() -> None:
    """VAL-2: the elements are copied."""
    source = np.arange(3, dtype=np.float32)
    t = Tensor(source, [3], "float32")
    source[:] = 9
    assert np.asarray(t).tolist() == [0, 1, 2]


@pytest.mark.parametrize("shape", [[], [0], [0, 3], [2, 0, 3]])
def test_zero_dimensions_and_zero_sizes(shape: list[int]) -> None:
    """VAL-2: 0-d and zero-size are allowed, from bytes and from arrays."""
    source = np.zeros(shape, np.float32)
    for buffer in (source, source.tobytes()):
        t = Tensor(buffer, shape, "float32")
        assert (t.shape, t.nbytes) == (shape, source.nbytes)
        assert bytes(t.buffer) == source.tobytes()
        assert Tensor.from_dlpack(t).shape == shape


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("float32"), "<f4", "FLOAT32".lower(), "f4"])
def test_dtype_spellings(dtype: Any) -> None:
    """SPC-13: names and NumPy's dtypes."""
    assert Tensor(bytes(4), [1], dtype).dtype == "float32"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            (bytes(3), [1], "float32"),
            "tensor byte length mismatch: expected 4 bytes for shape [1] and dtype "
            '"float32", got 3',
        ),
        ((bytes(4), [1], "bfloat16"), "unsupported tensor dtype"),
        ((bytes(8), [1], "complex64"), "unsupported tensor dtype"),
        ((bytes(4), [1], "object"), "unsupported tensor dtype"),
        ((bytes(4), [-1], "float32"), "dimensions >= 0"),
    ],
)
def test_bad_construction(arguments: Any, words: str) -> None:
    """VAL-2, VAL-10: length and dtype are checked."""
    with pytest.raises(ValueError) as caught:
        Tensor(*arguments)
    assert words in str(caught.value)


def test_buffer_protocol_out() -> None:
    """VAL-4: memoryview and np.asarray, read-only and without a copy."""
    t = six()
    view = memoryview(t)
    assert view.readonly and view.format == "f" and view.shape == (2, 3)
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    out = np.asarray(t)
    assert type(out) is np.ndarray and not out.flags.writeable
    assert np.shares_memory(out, np.asarray(view))
    assert np.array(t).flags.writeable


def test_reshape() -> None:
    """VAL-5: one -1, the same memory, counts checked."""
    t = six()
    for shape, expected in (([3, 2], [3, 2]), ([-1], [6]), ([3, -1], [3, 2]), ((1, 6), [1, 6])):
        reshaped = t.reshape(shape)
        assert type(reshaped) is Tensor and reshaped.shape == expected
        assert np.shares_memory(np.asarray(reshaped), np.asarray(t))
    assert t.reshape(6).shape == t.reshape(-1).shape == [6]
    assert Tensor(b"", [0, 3], "float32").reshape([3, 0]).shape == [3, 0]
    assert t.reshape([6]).reshape([1, 2, 3]).shape == [1, 2, 3]
    assert Tensor(bytes(4), [1], "float32").reshape([]).shape == []
    with pytest.raises(ValueError, match="cannot reshape 6 elements into 4"):
        t.reshape([4])
    with pytest.raises(ValueError, match="at most one -1"):
        t.reshape([-1, -1])
    for shape in ([4, -1], [0, -1], [-2, -3]):
        with pytest.raises(ValueError, match="cannot reshape"):
            t.reshape(shape)


def test_copies_and_pickles() -> None:
    """VAL-6: copies share no memory; a Tensor pickles by value."""
    t = six("int16")
    for other in (t.copy(), copy.copy(t), copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(other) is Tensor and repr(other) == repr(t)
        np.testing.assert_array_equal(np.asarray(other), np.asarray(t))
        assert not np.shares_memory(np.asarray(other), np.asarray(t))
        assert not np.asarray(other).flags.writeable


def test_a_tensor_is_opaque() -> None:
    """VAL-3: no length, indexing or iteration; compared and hashed by identity."""
    t, other = six(), six()
    assert t != other and t in [t]
    assert (t == other) is False
    assert len({t, other, t}) == 2
    for use in (len, iter, list, lambda t: t[0], lambda t: 1 in t):
        with pytest.raises(TypeError, match=r"a Tensor .*np\.asarray\(tensor\)"):
            use(t)
    with pytest.raises(TypeError, match="read-only"):
        t[0] = 1  # type: ignore[index]
    with pytest.raises(ValueError, match="read-only"):
        t += 1
    for name in ("T", "astype", "sum", "tolist", "resize", "setflags", "view", "real"):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(t, name)
    assert {n for n in dir(t) if not n.startswith("_") and hasattr(t, n)} == {
        *("array", "buffer", "copy", "device", "dtype", "flags", "from_dlpack", "is_contiguous"),
        *("adopt", "itemsize", "nbytes", "ndim", "reshape", "shape", "size", "strides", "tobytes"),
    }


def test_numpy_functions_take_tensors() -> None:
    """VAL-4: NumPy's own functions see the array and give arrays."""
    t = six()
    for result in (np.stack([t, t]), np.concatenate([t, t]), t * 2, np.add(t, t), np.clip(t, 0, 1)):
        assert type(result) is np.ndarray
    assert np.sum(t) == 15


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_out(dtype: str) -> None:
    """VAL-7: NumPy adopts a Tensor through DLPack, without a copy, and cannot write to it."""
    t = six(dtype)
    assert t.__dlpack_device__() == (1, 0)
    got = np.from_dlpack(t)
    np.testing.assert_array_equal(got, np.asarray(t))
    assert got.dtype == np.dtype(dtype)
    assert np.shares_memory(got, np.asarray(t))
    assert not got.flags.writeable


def test_dlpack_capsules() -> None:
    """VAL-7: the capsule a consumer asks for; ``copy=True`` exports a buffer of its own."""
    t = six()
    assert capsule_name(t.__dlpack__()) == "dltensor"
    assert capsule_name(t.__dlpack__(max_version=(0, 8))) == "dltensor"
    # NumPy before 2.1 makes no versioned capsules; the protocol lets an older one answer.
    versioned = "dltensor_versioned" if _NUMPY_VERSIONED else "dltensor"
    assert capsule_name(t.__dlpack__(max_version=(1, 0))) == versioned
    assert capsule_name(t.__dlpack__(max_version=(2, 0), copy=True)) == versioned
    fresh = Tensor.from_dlpack(t.__dlpack__(copy=True))
    assert not np.shares_memory(np.asarray(fresh), np.asarray(t))
    assert not np.asarray(t).flags.writeable


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_keeps_the_memory_alive(version: Any) -> None:
    """VAL-7: the consumer may outlive the Tensor."""
    held = [Tensor(np.full(100_000, i, np.float32), [100_000], "float32") for i in range(4)]
    adopted = [np.from_dlpack(OnlyCapsule(t.__dlpack__(max_version=version))) for t in held]
    del held
    gc.collect()
    noise = [np.full(100_000, 9, np.float32) for _ in range(8)]
    assert [(a.min(), a.max()) for a in adopted] == [(i, i) for i in range(4)]
    del noise


def test_dlpack_refusals() -> None:
    """VAL-7: a CPU tensor has no stream and no other device."""
    t = six()
    with pytest.raises(BufferError, match="stream"):
        t.__dlpack__(stream=1)
    with pytest.raises(BufferError, match=r"only CPU \(1, 0\) is supported"):
        t.__dlpack__(dl_device=(2, 0))
    assert capsule_name(t.__dlpack__(dl_device=(1, 0))) == "dltensor"


class OnlyCapsule:
    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> Any:
        return (1, 0)


class OnlyDLPack:
    """An array of a library that NumPy knows nothing of."""

    def __init__(self, source: np.ndarray) -> None:
        self._source = source

    def __dlpack__(self, **options: Any) -> Any:
        return self._source.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._source.__dlpack_device__()


def test_dlpack_in() -> None:
    """VAL-8: objects and capsules of both kinds, strided or not; always an owned copy."""
    source = np.arange(12, dtype=np.float32).reshape(3, 4)
    strided = source.T[::2]
    for obj, expected in (
        (source, source),
        (strided, strided),
        (OnlyDLPack(source), source),
        (source.__dlpack__(), source),
        (six(), np.asarray(six())),
        (six().__dlpack__(), np.asarray(six())),
    ):
        t = Tensor.from_dlpack(obj)
        np.testing.assert_array_equal(np.asarray(t), expected)
        assert np.asarray(t).flags.c_contiguous
        assert not np.shares_memory(np.asarray(t), source)
    if _NUMPY_VERSIONED:
        assert Tensor.from_dlpack(six().__dlpack__(max_version=(1, 0))).shape == [2, 3]


def test_dlpack_in_refusals() -> None:
    """VAL-8, VAL-10: anything else is a TypeError; a dtype of no wire type a ValueError."""
    for obj in ([1.0], b"abc", object()):
        with pytest.raises(TypeError, match="__dlpack__"):
            Tensor.from_dlpack(obj)
    for dtype in (object, complex):
        with pytest.raises(ValueError, match="cannot adopt"):
            Tensor.from_dlpack(np.zeros(2, dtype))


def test_numpy_module_conversions() -> None:
    """VAL-11: rlmesh.numpy turns Tensors into writable arrays, and scalars into Python numbers."""
    t = six()
    out = rlmesh.numpy.asarray(t)
    out[:] = 0
    assert np.asarray(t).tolist() == [[0, 1, 2], [3, 4, 5]]
    back = rlmesh.numpy.from_array(out)
    assert type(back) is Tensor and back.shape == [2, 3]
    for scalar, expected in (
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array(7), 7),
    ):
        got = rlmesh.numpy.from_array(scalar)
        assert (got, type(got)) == (expected, type(expected))
    with pytest.raises(TypeError, match=r"expects a numpy\.ndarray, got list"):
        rlmesh.numpy.from_array([1])
