"""Spaces as ``SpaceSpec`` messages, with every rule the protocol has for them.

Two spaces of ours have no ``SpaceSpec``: a 0-d Box and a Text that may be empty. Their values have
the same bytes as those of a Box of shape (1,) and a Text of min_length 1, so they travel as these,
and ``space_extensions`` says beside the message what they really are. A client that does not know
of extensions sees a space it can use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from rlmesh.errors import ProtocolException
from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from rlmesh.wire import messages

__all__ = [
    "MAX_SPACE_DEPTH",
    "apply_extensions",
    "space_extensions",
    "space_from_message",
    "space_to_message",
]

MAX_SPACE_DEPTH = 40
"""Levels of Dict and Tuple. Protobuf parsers stop at 100 messages deep and a level takes two."""

_DTYPE_NAMES = (
    "",
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
)
_DTYPE_NUMBERS = {name: number for number, name in enumerate(_DTYPE_NAMES)}


def space_to_message(space: Space) -> Any:
    """Return the ``SpaceSpec`` message for ``space``.

    Raises:
        ValueError: the space is nested too deeply.
        TypeError: ``space`` is not one of the seven kinds.
    """
    message = messages.spaces.SpaceSpec()
    _write(message, space, ())
    return message


def _write(message: Any, space: Space, path: tuple[str, ...]) -> None:
    if len(path) > MAX_SPACE_DEPTH:
        raise ValueError(
            f"{_where(path[:6])}...: expected at most {MAX_SPACE_DEPTH} levels of Dict and "
            "Tuple, got more; flatten it"
        )
    message.dtype = _DTYPE_NUMBERS[space.dtype]
    if isinstance(space, Box):
        message.shape.extend(space.shape or [1])
        _write_bounds(message.box, space)
    elif isinstance(space, Discrete):
        message.discrete.n = space.n
        message.discrete.start = space.start
    elif isinstance(space, MultiBinary):
        message.shape.extend(space.shape)
        message.multi_binary.SetInParent()
    elif isinstance(space, MultiDiscrete):
        message.shape.extend(space.shape)
        message.multi_discrete.nvec.extend(space.nvec)
    elif isinstance(space, Text):
        message.text.min_length = max(space.min_length, 1)
        message.text.max_length = space.max_length
        message.text.charset = space.charset
    elif isinstance(space, Dict | Tuple):
        inner = message.dict if isinstance(space, Dict) else message.tuple
        inner.SetInParent()
        for name, child in _children(space):
            if isinstance(space, Dict):
                inner.keys.append(name)
            _write(inner.spaces.add(), child, (*path, name))
    else:
        raise TypeError(
            f"{_where(path)}: expected Box, Discrete, MultiBinary, MultiDiscrete, Text, "
            f"Dict or Tuple, got {type(space).__name__}; convert it with from_gymnasium_space"
        )


def _write_bounds(message: Any, space: Box) -> None:
    kind = space.bounds_kind
    if kind == "unbounded":
        message.unbounded = True
        return
    bounds = message.elementwise if kind.endswith("elementwise") else message.uniform
    dtype = _little_endian(space.dtype)
    bounds.low = np.asarray(space.low, dtype).tobytes()
    bounds.high = np.asarray(space.high, dtype).tobytes()


def _little_endian(dtype: str) -> np.dtype[Any]:
    plain: Any = np.dtype(dtype)
    return plain.newbyteorder("<")


def space_from_message(message: Any) -> Space:
    """Return the space a ``SpaceSpec`` message describes.

    Raises:
        ProtocolException: the message breaks a rule of the protocol; the text says where and which.
    """
    return _read(message, ())


def _read(message: Any, path: tuple[str, ...]) -> Space:
    kind: str | None = message.WhichOneof("spec")
    if kind is None:
        _refuse(path, "space", "a kind of space", "none that this build knows")
    if len(path) > MAX_SPACE_DEPTH:
        _refuse(path[:6], kind, f"at most {MAX_SPACE_DEPTH} levels of Dict and Tuple", "more")
    number: int = message.dtype
    if not 0 <= number < len(_DTYPE_NAMES):
        _refuse(path, kind, "a dtype of the protocol", f"number {number}")
    dtype = _DTYPE_NAMES[number]
    shape = tuple(message.shape)
    _check_dtype(kind, dtype, path)
    _check_shape(kind, shape, path)
    try:
        return _READERS[kind](getattr(message, kind), shape, dtype, path)
    except (ValueError, TypeError, OverflowError) as error:
        raise ProtocolException(f"{_where(path)}: {error}") from None


_BYTE = ("bool", "uint8", "int8")
_INTEGERS = tuple(name for name in _DTYPE_NAMES if "int" in name)
_DTYPES_OF = {
    "box": _DTYPE_NAMES[1:],
    "discrete": _INTEGERS,
    "multi_binary": _BYTE,
    "multi_discrete": _INTEGERS,
    "text": ("uint8",),
    "dict": ("",),
    "tuple": ("",),
}
_ARRAY_KINDS = ("box", "multi_binary", "multi_discrete")


def _check_dtype(kind: str, dtype: str, path: tuple[str, ...]) -> None:
    allowed = _DTYPES_OF[kind]
    if dtype not in allowed:
        names = ", ".join(name or "UNSPECIFIED" for name in allowed)
        _refuse(path, kind, f"dtype {names}", dtype or "UNSPECIFIED")


def _check_shape(kind: str, shape: tuple[int, ...], path: tuple[str, ...]) -> None:
    if kind not in _ARRAY_KINDS:
        if shape:
            _refuse(path, kind, "an empty shape", str(list(shape[:8])))
        return
    if not shape:
        _refuse(path, kind, "a shape of at least one axis", "an empty one")
    if len(shape) > 32:
        _refuse(path, kind, "at most 32 axes", str(len(shape)))
    for index, dim in enumerate(shape):
        if dim <= 0:
            _refuse(path, kind, f"shape[{index}] > 0", str(dim))
    if math.prod(shape) >= 2**60:
        _refuse(path, kind, "fewer than 2**60 elements", f"shape {list(shape)}")


def _read_box(spec: Any, shape: tuple[int, ...], dtype: str, path: tuple[str, ...]) -> Space:
    form = spec.WhichOneof("bounds")
    if form is None:
        _refuse(path, "box", "bounds", "none")
    if form == "unbounded":
        return Box(-math.inf, math.inf, shape, dtype)
    count = 1 if form == "uniform" else math.prod(shape)
    bounds = getattr(spec, form)
    sides: list[Any] = []
    for side in ("low", "high"):
        data: bytes = getattr(bounds, side)
        expected = count * np.dtype(dtype).itemsize
        if len(data) != expected:
            _refuse(path, "box", f"{expected} bytes of {side}", f"{len(data)}")
        if dtype == "bool" and data.strip(b"\x00\x01"):
            _refuse(path, "box", f"bytes 0 and 1 as {side}", "others")
        values: Any = np.frombuffer(data, _little_endian(dtype)).astype(dtype)
        sides.append(values[0] if form == "uniform" else values.reshape(shape))
    return Box(sides[0], sides[1], shape, dtype)


def _read_discrete(spec: Any, shape: tuple[int, ...], dtype: str, path: tuple[str, ...]) -> Space:
    return Discrete(spec.n, spec.start, dtype)


def _read_multi_binary(
    spec: Any, shape: tuple[int, ...], dtype: str, path: tuple[str, ...]
) -> Space:
    return MultiBinary(shape, dtype)


def _read_multi_discrete(
    spec: Any, shape: tuple[int, ...], dtype: str, path: tuple[str, ...]
) -> Space:
    if len(spec.nvec) != math.prod(shape):
        _refuse(path, "multi_discrete", f"{math.prod(shape)} counts", str(len(spec.nvec)))
    nvec: Any = np.array(spec.nvec, np.int64)
    return MultiDiscrete(nvec.reshape(shape), dtype)


def _read_text(spec: Any, shape: tuple[int, ...], dtype: str, path: tuple[str, ...]) -> Space:
    if spec.min_length <= 0:
        _refuse(path, "text", "min_length > 0", str(spec.min_length))
    return Text(spec.max_length, spec.min_length, spec.charset or None)


def _read_dict(spec: Any, shape: tuple[int, ...], dtype: str, path: tuple[str, ...]) -> Space:
    keys = list(spec.keys)
    if len(keys) != len(spec.spaces):
        _refuse(path, "dict", f"{len(keys)} spaces, one per key", str(len(spec.spaces)))
    return Dict.ordered(
        [(key, _read(child, (*path, key))) for key, child in zip(keys, spec.spaces, strict=True)]
    )


def _read_tuple(spec: Any, shape: tuple[int, ...], dtype: str, path: tuple[str, ...]) -> Space:
    return Tuple(_read(child, (*path, str(index))) for index, child in enumerate(spec.spaces))


_READERS = {
    "box": _read_box,
    "discrete": _read_discrete,
    "multi_binary": _read_multi_binary,
    "multi_discrete": _read_multi_discrete,
    "text": _read_text,
    "dict": _read_dict,
    "tuple": _read_tuple,
}


def _refuse(path: tuple[str, ...], kind: str, expected: str, received: str) -> NoReturn:
    raise ProtocolException(f"{_where(path)}: {kind}: expected {expected}, got {received}")


def space_extensions(space: Space) -> dict[str, dict[str, Any]]:
    """Return what ``space_to_message(space)`` does not say, by the path of the leaf.

    A path is a JSON pointer: ``""`` is the space itself, ``"/arm/0"`` the first item of ``arm``.
    The value is ``{"shape": []}`` for a 0-d Box and ``{"min_length": 0}`` for a Text that may be
    empty. Most spaces have none.
    """
    return dict(_extensions(space, ()))


def _extensions(space: Space, path: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(space, Dict | Tuple):
        for name, child in _children(space):
            yield from _extensions(child, (*path, name))
    elif isinstance(space, Box) and not space.shape:
        yield _pointer(path), {"shape": []}
    elif isinstance(space, Text) and space.min_length < 1:
        yield _pointer(path), {"min_length": 0}


def apply_extensions(space: Space, extensions: Mapping[str, Any]) -> Space:
    """Return ``space`` with ``space_extensions`` of the peer applied.

    Extensions only ever widen a space to one with the same bytes, so those this build does not know
    are passed over: the space as it came is then still a usable one.
    """
    return _apply(space, extensions, ()) if extensions else space


def _apply(space: Space, extensions: Mapping[str, Any], path: tuple[str, ...]) -> Space:
    if isinstance(space, Dict):
        return Dict.ordered(
            [(name, _apply(child, extensions, (*path, name))) for name, child in _children(space)]
        )
    if isinstance(space, Tuple):
        return Tuple(_apply(child, extensions, (*path, name)) for name, child in _children(space))
    extension = extensions.get(_pointer(path))
    if not isinstance(extension, Mapping):
        return space
    facts: dict[str, Any] = dict(extension)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(space, Box) and facts.get("shape") == [] and space.shape == [1]:
        low, high = space.low_array[0], space.high_array[0]
        if space.bounds_kind == "unbounded":
            low, high = -math.inf, math.inf
        return Box(low, high, (), space.dtype)
    if isinstance(space, Text) and facts.get("min_length") == 0:
        return Text(space.max_length, 0, space.charset or None)
    return space


def _children(space: Dict | Tuple) -> Iterator[tuple[str, Space]]:
    if isinstance(space, Dict):
        yield from space.items()
    else:
        for index, child in enumerate(space.spaces):
            yield str(index), child


def _where(path: tuple[str, ...]) -> str:
    return f"space at {_pointer(path)}" if path else "space"


def _pointer(path: tuple[str, ...]) -> str:
    """Return ``path`` as a JSON pointer (RFC 6901)."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
