"""The space-directed codec: values to wire leaves and back.

A space is compiled once into a tree of small nodes, one per fundamental leaf, in the wire's order
(pre-order, Dict in declared order). The hot path then touches no space object.

Each node knows three forms of a value:

* **one**: the value of a single env;
* **batch**: a tree whose leaves have a leading lane axis, as gymnasium's vector envs use;
* **rows**: a list of single values, as a list of envs produces.

All three travel as the same slab: row-major ``(lanes, *shape)``, little-endian. Encoding hands out
the arrays it was given where they fit; decoding hands out writable views over the buffers received.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from rlmesh.spaces import Dict, Discrete, Space, Text, Tuple
from rlmesh.values.coerce import coerce_array
from rlmesh.values.conformance import Check, Policy, Report, compile_check
from rlmesh.values.frameworks import NUMPY, Framework

__all__ = ["Codec", "LeafBuffer", "compile_codec"]

Array = np.ndarray[Any, Any]
LeafBuffer = Any
"""A C-contiguous buffer with ``nbytes``: an ndarray or a memoryview."""

_U64 = struct.Struct("<Q")


class _Node(Protocol):
    leaves: int

    def encode(self, value: Any, out: list[LeafBuffer]) -> None: ...
    def decode(self, leaves: Iterator[memoryview]) -> Any: ...
    def encode_batch(
        self, value: Any, lanes: int, rows: Sequence[int] | None, out: list[LeafBuffer]
    ) -> None: ...
    def decode_batch(self, leaves: Iterator[memoryview], lanes: int) -> Any: ...
    def encode_rows(self, rows: Sequence[Any], out: list[LeafBuffer]) -> None: ...
    def decode_rows(self, leaves: Iterator[memoryview], lanes: int) -> list[Any]: ...


class Codec:
    """Encoder and decoder of one space; build it with :func:`compile_codec`."""

    __slots__ = ("_name", "_root", "leaves", "space")

    def __init__(self, space: Space, root: _Node, name: str) -> None:
        self.space = space
        self.leaves = root.leaves
        self._root = root
        self._name = name

    def encode(self, value: Any) -> list[LeafBuffer]:
        """Return the leaves of a single value; ValueError names the leaf that does not fit."""
        out: list[LeafBuffer] = []
        self._root.encode(value, out)
        return out

    def decode(self, leaves: Sequence[memoryview]) -> Any:
        """Return the single value that ``leaves`` hold."""
        if len(leaves) != self.leaves:
            self._miscounted(leaves)
        return self._root.decode(iter(leaves))

    def encode_batch(
        self, value: Any, lanes: int, rows: Sequence[int] | None = None
    ) -> list[LeafBuffer]:
        """Return the slabs of a batched tree, or of a list with one value per lane.

        Args:
            lanes: how many lanes ``value`` holds.
            rows: encode only these lanes, in this order.
        """
        out: list[LeafBuffer] = []
        if isinstance(value, list) and isinstance(self.space, (Dict, Tuple)):
            items: list[Any] = value
            if len(items) != lanes:
                raise ValueError(f"expected {lanes} batched values, got {len(items)}")
            self._root.encode_rows(items if rows is None else [items[i] for i in rows], out)
        else:
            self._root.encode_batch(value, lanes, rows, out)
        return out

    def decode_batch(self, leaves: Sequence[memoryview], lanes: int) -> Any:
        """Return one tree whose leaves have a leading axis of ``lanes``; text leaves are lists."""
        if len(leaves) != self.leaves:
            self._miscounted(leaves)
        return self._root.decode_batch(iter(leaves), lanes)

    def encode_rows(self, rows: Sequence[Any]) -> list[LeafBuffer]:
        """Return the slabs of a list of single values."""
        out: list[LeafBuffer] = []
        self._root.encode_rows(rows, out)
        return out

    def decode_rows(self, leaves: Sequence[memoryview], lanes: int) -> list[Any]:
        """Return one single value per lane."""
        if len(leaves) != self.leaves:
            self._miscounted(leaves)
        return self._root.decode_rows(iter(leaves), lanes)

    def _miscounted(self, leaves: Sequence[memoryview]) -> None:
        if not leaves:
            raise ValueError(f"expected 1 {self._name}s, got 0")
        raise ValueError(
            f"{self._name}: expected {self.leaves} leaves for {self.space!r}, got {len(leaves)}"
        )


def compile_codec(
    space: Space,
    name: str,
    *,
    framework: Framework = NUMPY,
    policy: Policy = Policy.WARN,
    report: Report | None = None,
    lenient: bool = False,
    encode_checked: bool = True,
    decode_checked: bool = False,
) -> Codec:
    """Compile ``space``.

    Args:
        space: the declared space.
        name: ``"action"`` or ``"observation"``: the root of every key path in an error. Actions must
            be finite; observations may hold infinities.
        framework: what array leaves are decoded to.
        policy: what a value outside a Box's bounds does, where values are checked.
        report: receives range faults under ``Policy.WARN``.
        lenient: accept floats for an integer leaf where every element is integral.
        encode_checked: check the values of array leaves when encoding.
        decode_checked: the same when decoding, for values a foreign peer sent.
    """
    settings = _Settings(
        framework=None if framework is NUMPY else framework,
        policy=policy,
        report=report or _ignore,
        finite=name == "action",
        lenient=lenient,
        encode_checked=encode_checked,
        decode_checked=decode_checked,
    )
    return Codec(space, _compile(space, name, settings), name)


class _Settings:
    def __init__(self, **settings: Any) -> None:
        self.framework: Framework | None = settings["framework"]
        self.policy: Policy = settings["policy"]
        self.report: Report = settings["report"]
        self.finite: bool = settings["finite"]
        self.lenient: bool = settings["lenient"]
        self.encode_checked: bool = settings["encode_checked"]
        self.decode_checked: bool = settings["decode_checked"]


def _ignore(kind: str, path: str, detail: str) -> None:
    return None


def _compile(space: Space, path: str, settings: _Settings) -> _Node:
    if isinstance(space, Dict):
        children = {k: _compile(s, f"{path}[{k!r}]", settings) for k, s in space.items()}
        return _DictNode(path, children)
    if isinstance(space, Tuple):
        items = [_compile(s, f"{path}[{i}]", settings) for i, s in enumerate(space.spaces)]
        return _TupleNode(path, items)
    if isinstance(space, Text):
        return _TextNode(space, path, settings)
    check = compile_check(
        space, path, policy=settings.policy, report=settings.report, finite=settings.finite
    )
    node = _DiscreteNode if isinstance(space, Discrete) else _ArrayNode
    return node(space, path, check, settings)


class _ArrayNode:
    """Box, MultiBinary and MultiDiscrete."""

    leaves = 1

    def __init__(self, space: Space, path: str, check: Check | None, settings: _Settings) -> None:
        self.space = space
        self.path = path
        self.shape = tuple(space.shape)
        self.dtype = space.np_dtype
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self.encode_check = check if settings.encode_checked else None
        self.decode_check = check if settings.decode_checked else None
        self.lenient = settings.lenient
        self.adopt = settings.framework.from_host if settings.framework else None

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        if (
            type(value) is not np.ndarray
            or value.dtype is not self.dtype
            or value.shape != self.shape
            or not value.flags.c_contiguous
        ):
            value = coerce_array(value, self.shape, self.dtype, self.path, lenient=self.lenient)
        if self.encode_check is not None:
            self.encode_check(value)
        out.append(value)

    def decode(self, leaves: Iterator[memoryview]) -> Any:
        leaf = next(leaves)
        if leaf.nbytes != self.nbytes:
            self._wrong_length(leaf, 1)
        array = np.ndarray(self.shape, self.dtype, leaf)
        if self.decode_check is not None:
            self.decode_check(array)
        return array if self.adopt is None else self.adopt(array)

    def encode_batch(
        self, value: Any, lanes: int, rows: Sequence[int] | None, out: list[LeafBuffer]
    ) -> None:
        shape = (lanes, *self.shape)
        if (
            type(value) is not np.ndarray
            or value.dtype is not self.dtype
            or value.shape != shape
            or not value.flags.c_contiguous
        ):
            value = coerce_array(
                value, shape, self.dtype, self.path, lenient=self.lenient, lanes=lanes
            )
        if rows is not None:
            value = value[list(rows)]
        if self.encode_check is not None:
            self.encode_check(value)
        out.append(value)

    def decode_batch(self, leaves: Iterator[memoryview], lanes: int) -> Any:
        array = self._slab(next(leaves), lanes)
        return array if self.adopt is None else self.adopt(array)

    def encode_rows(self, rows: Sequence[Any], out: list[LeafBuffer]) -> None:
        slab = np.empty((len(rows), *self.shape), self.dtype)
        for lane, row in enumerate(rows):
            if type(row) is np.ndarray and row.dtype is self.dtype and row.shape == self.shape:
                slab[lane] = row
            else:
                slab[lane] = coerce_array(
                    row, self.shape, self.dtype, self.path, lenient=self.lenient, lane=lane
                )
        if self.encode_check is not None:
            self.encode_check(slab)
        out.append(slab)

    def decode_rows(self, leaves: Iterator[memoryview], lanes: int) -> list[Any]:
        slab = self._slab(next(leaves), lanes)
        rows: list[Any] = [slab[lane, ...] for lane in range(lanes)]
        return rows if self.adopt is None else [self.adopt(row) for row in rows]

    def _slab(self, leaf: memoryview, lanes: int) -> Array:
        if leaf.nbytes != self.nbytes * lanes:
            self._wrong_length(leaf, lanes)
        slab: Array = np.ndarray((lanes, *self.shape), self.dtype, leaf)
        if self.decode_check is not None:
            self.decode_check(slab)
        return slab

    def _wrong_length(self, leaf: memoryview, lanes: int) -> None:
        raise ValueError(
            f"{self.path}: length mismatch: got {leaf.nbytes} bytes, expected {lanes} lanes * "
            f"{self.nbytes} bytes of {self.space!r}"
        )


class _DiscreteNode(_ArrayNode):
    """Discrete: one integer, a Python int when single and an int array when batched."""

    def __init__(self, space: Space, path: str, check: Check | None, settings: _Settings) -> None:
        super().__init__(space, path, check, settings)
        self.pack = struct.Struct("<" + self.dtype.char.replace("l", "q").replace("L", "Q"))

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        if type(value) is int:
            try:
                leaf = np.frombuffer(self.pack.pack(value), self.dtype)
            except struct.error:
                raise ValueError(
                    f"{self.path}: expected an element of {self.space!r}, got {value}"
                ) from None
        else:
            leaf = coerce_array(value, (), self.dtype, self.path, lenient=self.lenient)
        if self.encode_check is not None:
            self.encode_check(leaf.reshape(()))
        out.append(leaf)

    def decode(self, leaves: Iterator[memoryview]) -> int:
        leaf = next(leaves)
        if leaf.nbytes != self.nbytes:
            self._wrong_length(leaf, 1)
        (value,) = self.pack.unpack(leaf)
        if self.decode_check is not None:
            self.decode_check(np.asarray(value, self.dtype))
        return value

    def decode_rows(self, leaves: Iterator[memoryview], lanes: int) -> list[Any]:
        return self._slab(next(leaves), lanes).tolist()


class _TextNode:
    """Text: the slab of wire.md section 5 (count, byte lengths, UTF-8 bodies)."""

    leaves = 1

    def __init__(self, space: Text, path: str, settings: _Settings) -> None:
        self.space = space
        self.path = path
        self.settings = settings

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        out.append(self._pack([self._text(value, "", self.settings.encode_checked)]))

    def decode(self, leaves: Iterator[memoryview]) -> str:
        return self._unpack(next(leaves), 1)[0]

    def encode_batch(
        self, value: Any, lanes: int, rows: Sequence[int] | None, out: list[LeafBuffer]
    ) -> None:
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise ValueError(
                f"{self.path}: expected a list of {lanes} strings, got {type(value).__name__}"
            )
        texts: Sequence[Any] = value
        if len(texts) != lanes:
            raise ValueError(f"{self.path}: expected {lanes} batched values, got {len(texts)}")
        self.encode_rows(texts if rows is None else [texts[i] for i in rows], out)

    def decode_batch(self, leaves: Iterator[memoryview], lanes: int) -> list[str]:
        return self._unpack(next(leaves), lanes)

    def encode_rows(self, rows: Sequence[Any], out: list[LeafBuffer]) -> None:
        checked = self.settings.encode_checked
        out.append(
            self._pack([self._text(v, f" of lane {i}", checked) for i, v in enumerate(rows)])
        )

    def decode_rows(self, leaves: Iterator[memoryview], lanes: int) -> list[Any]:
        return self._unpack(next(leaves), lanes)

    def _text(self, value: Any, where: str, checked: bool) -> str:
        if not isinstance(value, str):
            raise ValueError(
                f"{self.path}{where}: expected str ({self.space!r}), got {type(value).__name__}"
            )
        if checked and self.settings.policy is not Policy.OFF and not self.space.contains(value):
            detail = f"{self.path}{where}: {value!r} is outside {self.space!r}"
            if self.settings.policy is Policy.STRICT:
                raise ValueError(
                    f"{detail}; correct the space, or set RLMESH_VALIDATION_POLICY=warn"
                )
            self.settings.report("range", self.path, detail)
        return value

    @staticmethod
    def _pack(texts: Sequence[str]) -> memoryview:
        bodies = [text.encode() for text in texts]
        header = struct.pack(f"<{len(bodies) + 1}Q", len(bodies), *map(len, bodies))
        return memoryview(header + b"".join(bodies))

    def _unpack(self, leaf: memoryview, lanes: int) -> list[str]:
        at = 8 * (lanes + 1)
        if leaf.nbytes < at:
            raise ValueError(f"{self.path}: text slab header truncated: {leaf.nbytes} bytes")
        (count,) = _U64.unpack_from(leaf)
        if count != lanes:
            raise ValueError(f"{self.path}: text slab holds {count} texts, expected {lanes}")
        texts: list[str] = []
        for length in struct.unpack_from(f"<{lanes}Q", leaf, 8):
            if length > leaf.nbytes - at:
                raise ValueError(f"{self.path}: text slab body truncated")
            try:
                text = str(leaf[at : at + length], "utf-8")
            except UnicodeDecodeError as exc:
                raise ValueError(f"{self.path}: text is not UTF-8: {exc}") from None
            where = f" of lane {len(texts)}" if lanes > 1 else ""
            texts.append(self._text(text, where, self.settings.decode_checked))
            at += length
        if at != leaf.nbytes:
            raise ValueError(f"{self.path}: {leaf.nbytes - at} bytes after the last text")
        return texts


class _DictNode:
    def __init__(self, path: str, children: dict[str, _Node]) -> None:
        self.path = path
        self.children = children
        self.leaves = sum(child.leaves for child in children.values())

    def _mapping(self, value: Any, where: str = "") -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(
                f"{self.path}{where}: expected a mapping with keys {list(self.children)}, "
                f"got {type(value).__name__}"
            )
        missing = [key for key in self.children if key not in value]
        if missing:
            keys: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
            raise ValueError(
                f"{self.path}{where}: missing key {missing[0]!r}; expected "
                f"{list(self.children)}, got {keys}"
            )
        return value  # pyright: ignore[reportUnknownVariableType]

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        value = self._mapping(value)
        for key, child in self.children.items():
            child.encode(value[key], out)

    def decode(self, leaves: Iterator[memoryview]) -> dict[str, Any]:
        return {key: child.decode(leaves) for key, child in self.children.items()}

    def encode_batch(
        self, value: Any, lanes: int, rows: Sequence[int] | None, out: list[LeafBuffer]
    ) -> None:
        value = self._mapping(value)
        for key, child in self.children.items():
            child.encode_batch(value[key], lanes, rows, out)

    def decode_batch(self, leaves: Iterator[memoryview], lanes: int) -> dict[str, Any]:
        return {k: child.decode_batch(leaves, lanes) for k, child in self.children.items()}

    def encode_rows(self, rows: Sequence[Any], out: list[LeafBuffer]) -> None:
        maps = [self._mapping(row, f" of lane {lane}") for lane, row in enumerate(rows)]
        for key, child in self.children.items():
            child.encode_rows([row[key] for row in maps], out)

    def decode_rows(self, leaves: Iterator[memoryview], lanes: int) -> list[Any]:
        columns = {k: child.decode_rows(leaves, lanes) for k, child in self.children.items()}
        return [{key: column[lane] for key, column in columns.items()} for lane in range(lanes)]


class _TupleNode:
    def __init__(self, path: str, items: list[_Node]) -> None:
        self.path = path
        self.items = items
        self.leaves = sum(item.leaves for item in items)

    def _items(self, value: Any, where: str = "") -> Sequence[Any]:
        if isinstance(value, (str, bytes)) or not isinstance(value, (tuple, list)):
            raise ValueError(
                f"{self.path}{where}: expected a tuple of {len(self.items)} items, "
                f"got {type(value).__name__}"
            )
        items: Sequence[Any] = value  # pyright: ignore[reportUnknownVariableType]
        if len(items) != len(self.items):
            raise ValueError(
                f"{self.path}{where}: expected {len(self.items)} items, got {len(items)}"
            )
        return items

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        for item, part in zip(self.items, self._items(value), strict=True):
            item.encode(part, out)

    def decode(self, leaves: Iterator[memoryview]) -> tuple[Any, ...]:
        return tuple([item.decode(leaves) for item in self.items])

    def encode_batch(
        self, value: Any, lanes: int, rows: Sequence[int] | None, out: list[LeafBuffer]
    ) -> None:
        for item, part in zip(self.items, self._items(value), strict=True):
            item.encode_batch(part, lanes, rows, out)

    def decode_batch(self, leaves: Iterator[memoryview], lanes: int) -> tuple[Any, ...]:
        return tuple([item.decode_batch(leaves, lanes) for item in self.items])

    def encode_rows(self, rows: Sequence[Any], out: list[LeafBuffer]) -> None:
        split = [self._items(row, f" of lane {lane}") for lane, row in enumerate(rows)]
        for i, item in enumerate(self.items):
            item.encode_rows([row[i] for row in split], out)

    def decode_rows(self, leaves: Iterator[memoryview], lanes: int) -> list[Any]:
        columns = [item.decode_rows(leaves, lanes) for item in self.items]
        return [tuple(column[lane] for column in columns) for lane in range(lanes)]
