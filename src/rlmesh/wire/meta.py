"""Free-form maps on the wire: contract metadata, reset options, step infos.

``fill_map`` and ``encode_map`` write a Python mapping into a ``MetaMap`` message, ``decode_map``
reads one back. A ``MetaMap`` can hold null, bool, int64, double, text, bytes, lists and maps with
text keys; everything else either has an obvious image among these or is refused by name.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, cast

import numpy as np

from rlmesh.errors import ProtocolException
from rlmesh.wire import messages
from rlmesh.wire._refusal import Path, Refused, foreign_array, path_text, type_name
from rlmesh.wire._sanitize import sanitize_metadata

__all__ = [
    "ARRAY_CAPABILITY",
    "MAX_DEPTH",
    "MAX_LISTED_ELEMENTS",
    "OnDrop",
    "decode_map",
    "encode_map",
    "fill_map",
    "sanitize_metadata",
]

OnDrop = Callable[[str, str], None]
"""Called with the path of a value that was left out and with what is wrong with it."""

ARRAY_CAPABILITY = "rlmesh.meta.ndarray.v1"
"""The handshake capability of a peer that reads arrays in a ``MetaMap``."""

MAX_DEPTH = 30
"""Levels of nesting. Protobuf parsers stop at 100 messages deep and a map level takes three."""

MAX_LISTED_ELEMENTS = 65_536
"""Elements of an array sent as nested lists; each then costs a message of its own."""

_ARRAY_KEY = "rlmesh.ndarray"
_ARRAY_KEYS = {_ARRAY_KEY, "shape", "data"}
_ARRAY_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in {
        "bool": "?",
        "int8": "i1",
        "int16": "<i2",
        "int32": "<i4",
        "int64": "<i8",
        "uint8": "u1",
        "uint16": "<u2",
        "uint32": "<u4",
        "uint64": "<u8",
        "float16": "<f2",
        "float32": "<f4",
        "float64": "<f8",
    }.items()
}
_LISTABLE = "bool, integers, floats, strings and bytes"
_REMEDIES = {
    "c": "send .real and .imag",
    "M": "send .astype(str) or .astype('int64')",
    "m": "send .astype('int64')",
    "V": "send its fields under keys of their own",
}
_SENDABLE = "None, bool, int, float, str, bytes, an array, or a list or str-keyed mapping of these"

Writer = Callable[[Any, Any, "_State", Path, Any], None]


class _State:
    """What one call was asked for; passed down the tree."""

    __slots__ = ("arrays", "on_drop")

    def __init__(self, arrays: bool, on_drop: OnDrop | None) -> None:
        self.arrays = arrays
        self.on_drop = on_drop


def encode_map(
    mapping: Mapping[str, Any],
    *,
    arrays: bool = False,
    on_drop: OnDrop | None = None,
    what: str = "metadata",
) -> Any:
    """Return a new ``MetaMap`` holding ``mapping``; see :func:`fill_map`."""
    message = messages.spaces.MetaMap()
    fill_map(message, mapping, arrays=arrays, on_drop=on_drop, what=what)
    return message


def fill_map(
    message: Any,
    mapping: Mapping[str, Any],
    *,
    arrays: bool = False,
    on_drop: OnDrop | None = None,
    what: str = "metadata",
) -> None:
    """Write ``mapping`` into the (empty) ``MetaMap`` ``message``.

    Args:
        message: the message to fill, often a field of another one.
        mapping: str keys. Numpy scalars become Python scalars, named tuples maps, enums their value
            (or their name where the value cannot travel), tuples lists, object arrays lists of
            their elements.
        arrays: the peer announced ``ARRAY_CAPABILITY``: arrays keep dtype and shape. Otherwise they
            become nested lists, up to ``MAX_LISTED_ELEMENTS`` elements.
        on_drop: when given, a mapping entry that cannot travel is left out, its siblings are kept,
            and ``on_drop(path, detail)`` is called. A value that contains itself is left out whole.
        what: the word for ``mapping`` in messages.

    Raises:
        TypeError: without ``on_drop``, for a value or key of a kind that cannot travel.
        ValueError: without ``on_drop``, for an int outside int64, too large an array, text that is
            not UTF-8, too deep a nesting or a value that contains itself. ``message`` is then
            half filled.
    """
    try:
        _write_entries(message, mapping, _State(arrays, on_drop), ())
    except Refused as error:
        raise error.kind(f"{what} {path_text(error.path)!r}: {error.detail}") from None


def _write_entries(message: Any, mapping: Mapping[Any, Any], state: _State, path: Path) -> None:
    entries = message.entries
    find = _WRITERS.get
    for key, value in mapping.items():
        slot = None
        try:
            if key.__class__ is not str:
                key = _text_key(key, path)
            try:
                slot = entries[key]
            except ValueError:  # UnicodeEncodeError, or the pure Python protobuf's own
                raise _bad_text((*path, key), f"a key {key!r}", "rename it") from None
            find(value.__class__, _write_other)(slot, value, state, path, key)
        except Refused as refused:
            if state.on_drop is None or (refused.whole and path):
                raise
            if slot is not None:
                del entries[key]
            state.on_drop(path_text(refused.path), refused.detail)


def _bad_text(path: Path, received: str, remedy: str) -> Refused:
    return Refused(path, f"expected text that is valid UTF-8, got {received}; {remedy}", ValueError)


def _text_key(key: Any, path: Path) -> str:
    """Return a str subclass (``numpy.str_``, a str enum) as the plain str it holds."""
    if isinstance(key, str):
        return str.__str__(key)
    raise Refused(
        (*path, key), f"expected a str key, got {type(key).__name__} {key!r}; use str(key)"
    )


# One writer a type; all take (slot, value, state, path of the container, key in it).


def _write_none(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    pass


def _write_bool(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    slot.bool = bool(value)


def _write_int(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    try:
        slot.integer = int(value)
    except ValueError:
        raise Refused(
            (*path, key), f"expected an integer of int64, got {value}; send it as str", ValueError
        ) from None


def _write_float(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    slot.number = float(value)


def _write_plain_float(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    slot.number = value


def _write_text(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    try:
        slot.text = value if value.__class__ is str else str.__str__(value)
    except ValueError:
        raise _bad_text((*path, key), repr(value[:80]), "send it as bytes") from None


def _write_bytes(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    slot.bytes = bytes(value)


def _write_map(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    inner = _descend(path, key)
    message = slot.map
    message.SetInParent()  # an empty map is not null
    _write_entries(message, value, state, inner)


def _write_list(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    inner = _descend(path, key)
    message = slot.list
    message.SetInParent()
    add = message.items.add
    find = _WRITERS.get
    for index, item in enumerate(cast("Iterable[Any]", value)):
        find(item.__class__, _write_other)(add(), item, state, inner, index)


def _descend(path: Path, key: Any) -> Path:
    if len(path) >= MAX_DEPTH:
        detail = (
            f"expected at most {MAX_DEPTH} levels, got a deeper value or one that contains itself; "
            "flatten it"
        )
        raise Refused((*path, key), detail, ValueError, whole=True)
    return (*path, key)


def _write_array(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    kind = value.dtype.kind
    if kind not in "biufUSO":
        _refuse_dtype(value.dtype, (*path, key))
    if value.ndim == 0:
        item = float(value) if kind == "f" else value.item()
        path = _descend(path, key) if kind == "O" else path
        _WRITERS.get(item.__class__, _write_other)(slot, item, state, path, key)
    elif state.arrays and value.dtype.name in _ARRAY_DTYPES:
        _descend(path, key)
        entries = slot.map.entries
        name = value.dtype.name
        entries[_ARRAY_KEY].text = name
        shape = entries["shape"].list
        shape.SetInParent()
        for dim in value.shape:
            shape.items.add().integer = dim
        entries["data"].bytes = value.astype(_ARRAY_DTYPES[name], copy=False).tobytes()
    elif value.size > MAX_LISTED_ELEMENTS:
        detail = (
            f"expected at most {MAX_LISTED_ELEMENTS} elements, got {value.dtype.name}"
            f"{list(value.shape)}; put it in the observation, or connect with a client that takes "
            f"arrays (capability {ARRAY_CAPABILITY})"
        )
        raise Refused((*path, key), detail, ValueError)
    else:
        if kind == "f" and value.dtype.itemsize > 8:
            value = value.astype(np.float64)
        _write_list(slot, value.tolist(), state, path, key)


def _refuse_dtype(dtype: np.dtype[Any], path: Path) -> NoReturn:
    fields = dtype.kind != "V" or dtype.names
    remedy = _REMEDIES[dtype.kind] if fields else "cast it to float32"  # bfloat16 and the like
    raise Refused(path, f"expected an array of {_LISTABLE}, got {dtype}; {remedy}")


def _write_enum(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    try:
        inner = value.value
        strict = _State(state.arrays, None)
        _WRITERS.get(inner.__class__, _write_other)(slot, inner, strict, path, key)
    except Refused:
        slot.Clear()
        slot.text = value.name


def _write_other(slot: Any, value: Any, state: _State, path: Path, key: Any) -> None:
    """Write a value whose exact type has no writer: a subclass, a foreign array, or a refusal."""
    if isinstance(value, enum.Enum):
        return _write_enum(slot, value, state, path, key)
    if isinstance(value, np.generic) and not isinstance(value, bytes | str):
        return _write_array(slot, np.asarray(cast("Any", value)), state, path, key)
    if isinstance(value, tuple) and hasattr(cast("Any", value), "_asdict"):
        return _write_map(slot, cast("Any", value)._asdict(), state, path, key)
    for base, writer in _BASES:
        if isinstance(value, base):
            return writer(slot, value, state, path, key)
    array = foreign_array(value, (*path, key))
    if array is None:
        raise Refused(
            (*path, key),
            f"expected {_SENDABLE}, got {type_name(cast('object', value))}; convert it",
        )
    _write_array(slot, array, state, path, key)


_WRITERS: dict[type[Any], Writer] = {
    type(None): _write_none,
    bool: _write_bool,
    int: _write_int,
    float: _write_plain_float,
    str: _write_text,
    bytes: _write_bytes,
    dict: _write_map,
    list: _write_list,
    tuple: _write_list,
    np.ndarray: _write_array,
    np.bool_: _write_bool,
    np.str_: _write_text,
    np.bytes_: _write_bytes,
    **dict.fromkeys((np.float16, np.float32, np.float64), _write_float),
    **dict.fromkeys((np.int8, np.int16, np.int32, np.int64), _write_int),
    **dict.fromkeys((np.uint8, np.uint16, np.uint32, np.uint64), _write_int),
}

_BASES: tuple[tuple[Any, Writer], ...] = (
    (int, _write_int),
    (float, _write_float),
    (str, _write_text),
    ((bytes, bytearray, memoryview), _write_bytes),
    (Mapping, _write_map),
    ((list, tuple), _write_list),
    (np.ndarray, _write_array),
)


def decode_map(message: Any) -> dict[str, Any]:
    """Return the mapping a ``MetaMap`` holds, keys sorted. Arrays are writable, the caller's own.

    Raises:
        ProtocolException: an array whose dtype, shape and bytes do not agree.
    """
    entries = message.entries
    # Protobuf maps have no order of their own; sorting makes what the caller prints repeatable.
    return {key: _read(entries[key]) for key in sorted(entries)}


def _read(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    if kind == "list":
        return [_read(item) for item in value.list.items]
    if kind == "map":
        inner = decode_map(value.map)
        return _read_array(inner) if inner.keys() == _ARRAY_KEYS else inner
    return getattr(value, kind)


def _read_array(entries: dict[str, Any]) -> np.ndarray[Any, Any]:
    name, shape, data = entries[_ARRAY_KEY], entries["shape"], entries["data"]
    dtype = _ARRAY_DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise ProtocolException(f"array in a map: expected a dtype of the wire, got {name!r}")
    if not (isinstance(data, bytes) and isinstance(shape, list)):
        raise ProtocolException("array in a map: expected shape as a list and data as bytes")
    dims = cast("list[Any]", shape)
    if len(dims) > 32 or not all(type(dim) is int and dim >= 0 for dim in dims):
        raise ProtocolException(f"array in a map: expected a shape of sizes, got {dims[:40]!r}")
    if math.prod(dims) * dtype.itemsize != len(data):
        raise ProtocolException(
            f"array in a map: expected {name}{dims!r}, got {len(data)} bytes of data"
        )
    flat: Any = np.frombuffer(data, np.uint8 if name == "bool" else dtype)
    flat = flat != 0 if name == "bool" else flat.astype(name)
    try:
        return flat.reshape(dims)
    except ValueError:  # no elements, and dimensions too large for numpy
        raise ProtocolException(f"array in a map: shape {dims!r} is too large") from None
