"""`Tensor`: a framework-neutral, read-only array that array libraries adopt without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn, cast

import numpy as np

from rlmesh.spaces.dtypes import resolve_dtype

__all__ = ["Tensor"]

_CPU = (1, 0)
_CONVERT = "np.asarray(tensor), torch.from_dlpack(tensor) or jax.dlpack.from_dlpack(tensor)"


class Tensor(np.ndarray[Any, Any]):
    """A read-only, C-contiguous block of numbers with a shape and a dtype.

    The value that ``rlmesh.RemoteEnv`` and ``rlmesh.Model`` hand out for array leaves. It does no
    arithmetic of its own: adopt it with ``np.asarray(t)``, ``torch.from_dlpack(t)``,
    ``jax.dlpack.from_dlpack(t)`` or ``memoryview(t)``, none of which copies.

    Args:
        buffer: bytes, memoryview, array or Tensor; its bytes are copied.
        shape: dimensions; ``()`` and zero-size shapes are allowed.
        dtype: one of bool, uint8..uint64, int8..int64, float16, float32, float64.

    Raises:
        ValueError: unknown dtype, or the byte length does not fit ``shape`` and ``dtype``.

    Example:
        >>> import numpy as np
        >>> t = Tensor(np.arange(6, dtype="float32"), [2, 3], "float32")
        >>> t
        Tensor(dtype="float32", shape=[2, 3], bytes=24)
        >>> np.asarray(t).sum()
        np.float32(15.0)
    """

    # A subclass of ndarray because before Python 3.12 nothing else written in Python can offer the
    # buffer protocol. Everything that is not Tensor's own is switched off below.

    def __new__(cls, buffer: Any, shape: Sequence[int], dtype: Any) -> Tensor:
        try:
            kind = resolve_dtype(dtype)
        except (TypeError, ValueError) as exc:
            raise ValueError(f"unsupported tensor dtype {dtype!r}: {exc}") from None
        raw = _raw_bytes(buffer)
        dims = tuple(int(n) for n in shape)
        if min(dims, default=0) < 0:
            raise ValueError(f"tensor shape: expected dimensions >= 0, got {list(dims)}")
        expected = math.prod(dims) * kind.itemsize
        if len(raw) != expected:
            raise ValueError(
                f"tensor byte length mismatch: expected {expected} bytes for shape {list(dims)} "
                f'and dtype "{kind.name}", got {len(raw)}'
            )
        return cls.adopt(np.ndarray(dims, kind, raw))

    @classmethod
    def adopt(cls, array: np.ndarray[Any, Any]) -> Tensor:
        """Return a Tensor over the memory of ``array`` (C-contiguous), without a copy."""
        if not array.flags.c_contiguous:
            array = np.ascontiguousarray(array).reshape(array.shape)
        view: Tensor = np.ndarray.view(array, cls)
        np.ndarray.setflags(view, write=False)
        return view

    @classmethod
    def from_dlpack(cls, obj: Any) -> Tensor:
        """Return an owned copy of any CPU array that exports DLPack.

        Args:
            obj: an object with ``__dlpack__`` and ``__dlpack_device__``, or a DLPack capsule.
                Strided input is made contiguous.

        Raises:
            TypeError: ``obj`` is neither.
            ValueError: its dtype or device is none of ours (bfloat16, a GPU).
        """
        if type(obj).__name__ == "PyCapsule":
            obj = _Capsule(obj)
        if not hasattr(obj, "__dlpack__"):
            raise TypeError(
                f"expected a DLPack capsule or an object with __dlpack__, got {type(obj).__name__}"
            )
        try:
            array: np.ndarray[Any, Any] = np.from_dlpack(obj)
            resolve_dtype(array.dtype)
        except (BufferError, RuntimeError, ValueError) as exc:
            raise ValueError(
                f"cannot adopt {type(obj).__name__} through DLPack: {exc}; expected a CPU array of "
                "bool, integers or floats (bfloat16 is not supported on the wire: cast to float32)"
            ) from None
        return cls.adopt(np.array(array, order="C"))

    # Attributes. ndarray's own are numpy objects; these are plain data.

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """A read-only NumPy view of the same memory."""
        return np.ndarray.view(self, np.ndarray)

    @property
    def shape(self) -> list[int]:  # type: ignore[override]
        """The dimensions, as a list of int."""
        return list(self.array.shape)

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """The dtype's name, e.g. ``"float32"``."""
        return self.array.dtype.name

    @property
    def strides(self) -> list[int]:  # type: ignore[override]
        """Bytes from one element to the next in each dimension (C order)."""
        steps: list[int] = []
        step = self.array.itemsize  # NumPy's own strides mean nothing where a dimension is 1
        for n in reversed(self.array.shape):
            steps.insert(0, step)
            step *= n
        return steps

    @property
    def device(self) -> str:  # type: ignore[override]
        """Always ``"cpu"``."""
        return "cpu"

    @property
    def buffer(self) -> memoryview:
        """The elements as a read-only memoryview of bytes."""
        return memoryview(self.array.reshape(-1).view(np.uint8))

    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps: always True."""
        return True

    def reshape(self, shape: int | Sequence[int], *rest: int) -> Tensor:  # type: ignore[override]
        """Return a Tensor over the same memory with another shape; one dimension may be -1.

        Raises:
            ValueError: the element counts differ, or more than one dimension is -1.
        """
        dims = (shape, *rest) if isinstance(shape, int) else tuple(shape)
        size = self.array.size
        unknown = [i for i, n in enumerate(dims) if n == -1]
        if len(unknown) > 1:
            raise ValueError(f"at most one -1 is allowed in a shape, got {list(dims)}")
        count = math.prod(n for n in dims if n != -1)
        if unknown and count and size % count == 0:
            dims = tuple(size // count if n == -1 else n for n in dims)
            count = size
        if count != size or min(dims, default=0) < 0:
            raise ValueError(f"cannot reshape {size} elements into {count}: {list(dims)}")
        return Tensor.adopt(self.array.reshape(dims))

    def copy(self, order: Any = "C") -> Tensor:
        """Return a Tensor that shares no memory with this one."""
        return Tensor.adopt(self.array.copy())

    def __copy__(self) -> Tensor:
        return self.copy()

    def __deepcopy__(self, memo: Any, /) -> Tensor:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self.tobytes(), self.shape, self.dtype)

    # DLPack

    def __dlpack_device__(self) -> Any:
        return _CPU

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the memory as a DLPack capsule.

        A consumer that announces ``max_version >= (1, 0)`` gets the versioned capsule with the
        read-only flag; an older one gets the legacy capsule, which has no such flag, and must not
        write to it. ``copy=True`` exports a fresh writable buffer.

        Raises:
            BufferError: ``stream`` is given or the device is not the CPU.
        """
        if stream is not None:
            raise BufferError(f"a CPU tensor takes no stream, got {stream!r}")
        if dl_device is not None and tuple(dl_device) != _CPU:
            raise BufferError(f"only CPU (1, 0) is supported, got device {tuple(dl_device)}")
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        source = self.array.copy() if copy else self.array
        if versioned and _NUMPY_VERSIONED:
            return source.__dlpack__(max_version=max_version)
        return _writable_alias(source).__dlpack__()

    # Switched off: a Tensor is opaque, compared and hashed by identity.

    def __eq__(self, other: object) -> Any:
        return self is other

    def __ne__(self, other: object) -> Any:
        return self is not other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __len__(self) -> int:
        _opaque("has no length; its dimensions are in .shape")

    def __getitem__(self, key: Any) -> Any:
        _opaque("cannot be indexed")

    def __setitem__(self, key: Any, value: Any) -> None:
        _opaque("is read-only")

    def __iter__(self) -> Any:
        _opaque("cannot be iterated")

    def __repr__(self) -> str:
        return f'Tensor(dtype="{self.dtype}", shape={self.shape}, bytes={self.nbytes})'

    __str__ = __repr__

    def __contains__(self, item: object) -> bool:
        _opaque("cannot be searched")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*(_plain(x) for x in inputs), **_plain(kwargs))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return func(*_plain(args), **_plain(kwargs))


def _switched_off(name: str) -> property:
    def refuse(tensor: Tensor) -> NoReturn:
        raise AttributeError(f"a Tensor has no attribute {name!r}; convert it with {_CONVERT}")

    return property(refuse)


_KEPT = {"flags", "itemsize", "nbytes", "ndim", "size", "tobytes"}
for _name in dir(np.ndarray):
    if not _name.startswith("_") and _name not in _KEPT and _name not in vars(Tensor):
        setattr(Tensor, _name, _switched_off(_name))


def _raw_bytes(buffer: Any) -> bytearray:
    """Return a copy of the elements, in C order and little-endian."""
    if isinstance(buffer, np.ndarray):
        array = np.asarray(cast("Any", buffer))
        return bytearray(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return bytearray(memoryview(buffer).tobytes())


class _Capsule:
    """Gives a bare DLPack capsule the two methods that ``np.from_dlpack`` asks for."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule


_NUMPY_VERSIONED = tuple(int(n) for n in np.__version__.split(".")[:2]) >= (2, 1)


def _writable_alias(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a view of the same memory that is flagged writable, for a legacy DLPack capsule.

    NumPy refuses to export a read-only array in the legacy form, which cannot say "read-only".
    """
    if array.flags.writeable:
        return array
    interface = dict(array.__array_interface__)
    interface["data"] = (interface["data"][0], False)
    return np.asarray(_Interface(interface, array))


class _Interface:
    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self._owner = owner


def _plain(value: Any) -> Any:
    """Return the arguments of a NumPy function with every Tensor replaced by its array."""
    if isinstance(value, Tensor):
        return value.array
    if type(value) in (list, tuple):
        return type(value)(_plain(item) for item in value)
    if type(value) is dict:
        items = cast("dict[Any, Any]", value).items()
        return {key: _plain(item) for key, item in items}
    return value


def _opaque(why: str) -> NoReturn:
    raise TypeError(f"a Tensor {why}; convert it with {_CONVERT}")
