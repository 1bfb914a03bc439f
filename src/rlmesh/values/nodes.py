"""The nodes a codec is made of: one for each fundamental leaf, one for each container.

Every node knows the three forms of a value that :mod:`rlmesh.values.codec` names, and hot paths are
kept apart from the slow ones that bring foreign values into shape.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from rlmesh.spaces import Dict, Discrete, Space, Text, Tuple
from rlmesh.spaces.base import LeafSpace
from rlmesh.values.coerce import coerce_array
from rlmesh.values.conformance import Check, Policy, Report, compile_bool_check, compile_check
from rlmesh.values.frameworks import Framework
from rlmesh.values.part_nodes import AbsentNode, ReplacedNode
from rlmesh.values.views import Replaced, SpacePart

__all__ = ["LeafBuffer", "Node", "Settings", "compile_node"]

Array = np.ndarray[Any, Any]
LeafBuffer = Any
"""A C-contiguous buffer with ``nbytes``: an ndarray or a memoryview."""

_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class Settings:
    """What :func:`~rlmesh.values.codec.compile_codec` was asked for; no framework means NumPy."""

    framework: Framework | None
    policy: Policy
    report: Report
    finite: bool
    lenient: bool
    encode_checked: bool
    decode_checked: bool


class Node(Protocol):
    """A leaf or a container of a compiled space."""

    leaves: int

    def conform(self, value: Any) -> Any: ...
    def encode(self, value: Any, out: list[LeafBuffer]) -> None: ...
    def decode(self, leaves: Iterator[memoryview]) -> Any: ...
    def encode_batch(
        self, value: Any, lanes: int, rows: Sequence[int] | None, out: list[LeafBuffer]
    ) -> None: ...
    def decode_batch(self, leaves: Iterator[memoryview], lanes: int) -> Any: ...
    def encode_rows(self, rows: Sequence[Any], out: list[LeafBuffer]) -> None: ...
    def decode_rows(self, leaves: Iterator[memoryview], lanes: int) -> list[Any]: ...


def compile_node(
    space: Space, path: str, settings: Settings, part: SpacePart | None = None
) -> Node:
    """Return the node for ``space``, or for a part of it; ``path`` is its key path in messages."""
    node = _compile(space, path, settings, None if part is None else part.picks())
    if node is not None:
        return node
    return _DictNode(path, {}) if isinstance(space, Dict) else AbsentNode()


def _compile(
    space: Space, path: str, settings: Settings, picks: Iterator[Replaced | bool] | None
) -> Node | None:
    """Return the node for ``space``; None if ``picks`` leaves all of it out."""
    if isinstance(space, Dict):
        found = {k: _compile(s, f"{path}[{k!r}]", settings, picks) for k, s in space.items()}
        children = {key: node for key, node in found.items() if node is not None}
        return _DictNode(path, children) if children or picks is None else None
    if isinstance(space, Tuple):
        each = [_compile(s, f"{path}[{i}]", settings, picks) for i, s in enumerate(space.spaces)]
        if picks is not None and not any(each):
            return None
        return _TupleNode(path, [node or AbsentNode() for node in each])
    pick = True if picks is None else next(picks)
    if pick is False:
        return None
    if pick is True:
        return _compile_leaf(space, path, settings)
    target = _compile_leaf(pick.space, path, settings)
    if pick.apply is None:
        return target
    return ReplacedNode(_compile_leaf(space, path, settings), target, pick.apply)


def _compile_leaf(space: Space, path: str, settings: Settings) -> Node:
    if isinstance(space, Text):
        return _TextNode(space, path, settings)
    if not isinstance(space, LeafSpace):
        raise TypeError(f"{path}: expected a space of rlmesh.spaces, got {type(space).__name__}")
    check = compile_check(
        space, path, policy=settings.policy, report=settings.report, finite=settings.finite
    )
    node = _DiscreteNode if isinstance(space, Discrete) else _ArrayNode
    return node(space, path, check, settings)


def _adopter(framework: Framework, path: str) -> Callable[[Array], Any]:
    from_host = framework.from_host

    def adopt(array: Array) -> Any:
        try:
            return from_host(array)
        except ValueError as exc:  # a dtype or a value that the framework does not have
            raise ValueError(f"{path}: {exc}") from None

    return adopt


class _ArrayNode:
    """Box, MultiBinary and MultiDiscrete."""

    leaves = 1

    def __init__(
        self, space: LeafSpace, path: str, check: Check | None, settings: Settings
    ) -> None:
        self.space = space
        self.path = path
        self.shape = tuple(space.shape)
        self.dtype = space.np_dtype
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        self.encode_check = check if settings.encode_checked else None
        if self.dtype == np.bool_:
            check = compile_bool_check(path)
        self.decode_check = check if settings.decode_checked else None
        self.lenient = settings.lenient
        self.adopt = _adopter(settings.framework, path) if settings.framework else None

    def conform(self, value: Any) -> Any:
        if (
            type(value) is not np.ndarray
            or value.dtype is not self.dtype
            or value.shape != self.shape
            or not value.flags.c_contiguous
        ):
            value = coerce_array(value, self.shape, self.dtype, self.path, lenient=self.lenient)
        if self.encode_check is not None:
            self.encode_check(value)
        return value

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        out.append(self.conform(value))

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
            value = self._coerce_batch(value, lanes)
        if rows is not None:
            value = value[list(rows)]
        if self.encode_check is not None:
            self.encode_check(value)
        out.append(value)

    def decode_batch(self, leaves: Iterator[memoryview], lanes: int) -> Any:
        array = self._slab(next(leaves), lanes)
        return array if self.adopt is None else self.adopt(array)

    def _coerce_batch(self, value: Any, lanes: int) -> Array:
        """Return a slab of anything but one: an array of another dtype, a sequence of rows."""
        shape = (lanes, *self.shape)
        rows: Sequence[Any] | None = None
        if isinstance(value, (list, tuple)):
            rows = cast("Sequence[Any]", value)
            if len(rows) != lanes:
                raise ValueError(
                    f"{self.path}: expected {lanes} batched values, got {len(rows)}; give one per "
                    "lane"
                )
            if self.shape and hasattr(rows[0], "shape"):
                return self._stack(rows)
        try:
            return coerce_array(
                value, shape, self.dtype, self.path, lenient=self.lenient, lanes=lanes
            )
        except ValueError:
            if rows is None:
                raise
            return self._stack(rows)  # NumPy cannot read the rows at once: say which one it is

    def _stack(self, rows: Sequence[Any]) -> Array:
        slab = np.empty((len(rows), *self.shape), self.dtype)
        for lane, row in enumerate(rows):
            if type(row) is np.ndarray and row.dtype is self.dtype and row.shape == self.shape:
                slab[lane] = row
            else:
                slab[lane] = coerce_array(
                    row, self.shape, self.dtype, self.path, lenient=self.lenient, lane=lane
                )
        return slab

    def encode_rows(self, rows: Sequence[Any], out: list[LeafBuffer]) -> None:
        slab = self._stack(rows)
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

    def __init__(
        self, space: LeafSpace, path: str, check: Check | None, settings: Settings
    ) -> None:
        super().__init__(space, path, check, settings)
        self.pack = struct.Struct("<" + self.dtype.char.replace("l", "q").replace("L", "Q"))
        domain = cast("Discrete", space)
        self.low, self.high = domain.start, domain.start + domain.n - 1

    def conform(self, value: Any) -> int:
        if type(value) is not int:
            value = coerce_array(value, (), self.dtype, self.path, lenient=self.lenient).item()
        if not self.low <= value <= self.high:
            raise ValueError(
                f"{self.path}: expected an element of {self.space!r} ({self.low}..{self.high}), "
                f"got {value}"
            )
        return value

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        out.append(memoryview(self.pack.pack(self.conform(value))))

    def decode(self, leaves: Iterator[memoryview]) -> int:
        leaf = next(leaves)
        if leaf.nbytes != self.nbytes:
            self._wrong_length(leaf, 1)
        (value,) = self.pack.unpack(leaf)
        return value if self.decode_check is None else self.conform(value)

    def decode_rows(self, leaves: Iterator[memoryview], lanes: int) -> list[Any]:
        return self._slab(next(leaves), lanes).tolist()


class _TextNode:
    """Text: the slab of wire.md section 5 (count, byte lengths, UTF-8 bodies)."""

    leaves = 1

    def __init__(self, space: Text, path: str, settings: Settings) -> None:
        self.space = space
        self.path = path
        self.settings = settings

    def conform(self, value: Any) -> str:
        return self._text(value, "", self.settings.encode_checked)

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        out.append(self._pack([self.conform(value)]))

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
        texts = cast("Sequence[Any]", value)
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
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as exc:
                raise ValueError(
                    f"{self.path}{where}: expected text that is valid UTF-8, got {value!r}: {exc}"
                ) from None
        if checked and self.settings.policy is not Policy.OFF and not self.space.contains(value):
            detail = f"{self.path}{where}: {value!r} is outside {self.space!r}"
            if self.settings.policy is Policy.STRICT:
                raise ValueError(
                    f"{detail}; correct the space, or set RLMESH_VALIDATION_POLICY=warn"
                )
            self.settings.report("range", self.path, lambda: detail)
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
    def __init__(self, path: str, children: dict[str, Node]) -> None:
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

    def conform(self, value: Any) -> dict[str, Any]:
        value = self._mapping(value)
        return {key: child.conform(value[key]) for key, child in self.children.items()}

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
    def __init__(self, path: str, items: list[Node]) -> None:
        self.path = path
        self.items = items
        self.leaves = sum(item.leaves for item in items)

    def _items(self, value: Any, where: str = "") -> Sequence[Any]:
        if isinstance(value, (str, bytes)) or not isinstance(value, (tuple, list)):
            raise ValueError(
                f"{self.path}{where}: expected a tuple of {len(self.items)} items, "
                f"got {type(value).__name__}"
            )
        items = cast("Sequence[Any]", value)
        if len(items) != len(self.items):
            raise ValueError(
                f"{self.path}{where}: expected {len(self.items)} items, got {len(items)}"
            )
        return items

    def conform(self, value: Any) -> tuple[Any, ...]:
        parts = self._items(value)
        return tuple([item.conform(part) for item, part in zip(self.items, parts, strict=True)])

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
