"""Value trees: the nested dicts, lists and tuples that observations and actions are.

A leaf is whatever is no container: an array of some library, a number, a str, anything else. The
functions here know containers and hand leaves to a :class:`~rlmesh.values.Framework`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, cast

import numpy as np

from rlmesh.spaces.dtypes import DTYPES
from rlmesh.values.frameworks import Framework, to_host
from rlmesh.values.tensor import Tensor

__all__ = [
    "Adopter",
    "describe_tree",
    "is_array",
    "tree_adopter",
    "tree_map",
    "tree_stack",
    "tree_to_host",
    "tree_unstack",
]

# Leaves that are no arrays, told apart by their class alone.
_PLAIN = frozenset(
    {str, bytes, int, float, bool, type(None), np.int64, np.int32, np.float64, np.float32, np.bool_}
)
_NUMBERS = (int, float, np.number, np.bool_)  # bool is an int


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return ``tree`` with every leaf replaced by ``function(leaf)``; containers are made anew."""
    return _map(function, tree, frozenset())


def tree_adopter(framework: Framework, *, owned: bool = False) -> Adopter:
    """Return a function that turns any library's array leaves into those of ``framework``.

    It takes a tree and, where the framework has devices, one to put every array leaf on. Numbers,
    text and unknown leaves stay as they are. Memory is shared where the array is contiguous and
    writable, and copied otherwise.

    Args:
        owned: nobody else writes to the arrays; otherwise those of an immutable framework are
            copies.
    """
    settled = _PLAIN | {framework.array_type}
    shares = owned or not framework.immutable

    def adopted(leaf: Any, device: Any) -> Any:
        if framework.is_array(leaf):
            return leaf if device is None else framework.to_device(leaf, device)
        if not is_array(leaf):
            return leaf
        array = to_host(leaf)
        if array.dtype.name not in DTYPES:
            return leaf
        flags = array.flags
        if not (shares and flags.writeable and flags.c_contiguous and array.dtype.isnative):
            array = _copied(array)
        return framework.from_host(array, device)

    def adopter(tree: Any, device: Any = None) -> Any:
        if device is None:
            return tree if type(tree) in settled else _map(adopt, tree, settled)
        return _map(lambda leaf: adopted(leaf, device), tree, _PLAIN)

    def adopt(leaf: Any) -> Any:
        return adopted(leaf, None)

    return adopter


Adopter = Callable[..., Any]
"""``adopter(tree, device=None) -> tree``."""

_LINE = 64
"""Bytes: libraries that compile for vector units take over memory aligned so, and copy other."""


def _copied(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values in memory of their own, in C order and aligned to a cache line."""
    memory = np.empty(array.nbytes + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    own = memory[start : start + array.nbytes].view(array.dtype.newbyteorder("="))
    own = own.reshape(array.shape)
    own[...] = array
    return own


def tree_to_host(tree: Any, framework: Framework | None = None) -> Any:
    """Return ``tree`` with every array leaf as a NumPy array; everything else as it is.

    Args:
        framework: whose leaves come over in one transfer, where they lie on a device.

    Raises:
        ValueError: a leaf has no NumPy form, e.g. a bfloat16 tensor.
    """
    if type(tree) in _HOST:
        return tree
    if framework is None or not framework.has_device:
        return _map(_leaf_to_host, tree, _HOST)
    found: list[Any] = []

    def find(leaf: Any) -> None:
        if framework.is_array(leaf):
            found.append(leaf)

    _map(find, tree, _HOST)
    if not found:
        return _map(_leaf_to_host, tree, _HOST)
    hosted = iter(framework.to_host_many(found))
    return _map(
        lambda leaf: next(hosted) if framework.is_array(leaf) else _leaf_to_host(leaf), tree, _HOST
    )


_HOST = _PLAIN | {np.ndarray}


def _leaf_to_host(leaf: Any) -> Any:
    return to_host(leaf) if is_array(leaf) else leaf


def is_array(leaf: Any) -> bool:
    """Return whether ``leaf`` is an array of some library; a NumPy scalar is a number."""
    if isinstance(leaf, np.ndarray):
        return True
    if isinstance(leaf, (np.generic, type)):
        return False
    return hasattr(leaf, "__dlpack__") or (hasattr(leaf, "__array__") and hasattr(leaf, "shape"))


def _map(function: Callable[[Any], Any], tree: Any, settled: frozenset[type]) -> Any:
    kind = cast("type[Any]", type(tree))
    if kind in settled:
        return tree
    if kind is dict or isinstance(tree, Mapping):
        items = cast("Mapping[Any, Any]", tree).items()
        return {key: _map(function, item, settled) for key, item in items}
    if isinstance(tree, list):
        return [_map(function, item, settled) for item in cast("list[Any]", tree)]
    if isinstance(tree, tuple):
        parts = cast("tuple[Any, ...]", tree)
        return _tuple_like(kind, [_map(function, item, settled) for item in parts])
    return function(tree)


def _tuple_like(kind: type, items: list[Any]) -> Any:
    make = getattr(kind, "_make", None)  # a namedtuple keeps its names
    return tuple(items) if make is None else make(items)


# Stacking


def tree_stack(
    trees: Sequence[Any],
    framework: Framework,
    *,
    device: Any = None,
    lanes: Sequence[object] | None = None,
    name: str = "observation",
) -> Any:
    """Fuse one tree per lane into one tree whose leaves have a leading axis of ``len(trees)``.

    Arrays and numbers are stacked to arrays of ``framework``, which take one copy of the data and,
    to a ``device``, one transfer a leaf; text leaves become lists of str. Containers are kept.

    Args:
        trees: one value per lane, all of one structure; at least one.
        framework: what the stacked leaves are.
        device: where they are put; None: where the framework has them by itself.
        lanes: what to call each tree in an error, by its ``str``; default "lane 0", "lane 1", ...
        name: what to call the root in an error.

    Raises:
        ValueError: the trees do not align: a leaf's shapes, dtypes or kinds differ, keys or lengths
            differ, or a leaf is None. Names the leaf, what differs and the lanes.
    """
    try:
        return _stack(trees, _Stacker(framework, device))
    except _MisfitError as misfit:
        misfit.explain(name, lanes)


class _Stacker:
    """Makes stacked leaves of one framework, on one device."""

    __slots__ = ("_device", "_framework", "is_array")

    def __init__(self, framework: Framework, device: Any) -> None:
        self._framework = framework
        self._device = device
        self.is_array: Callable[[Any], bool] = framework.is_array

    def from_host(self, array: np.ndarray[Any, Any]) -> Any:
        return self._framework.from_host(array, self._device)

    def stack(self, leaves: Sequence[Any]) -> Any:
        stacked = self._framework.stack(leaves)
        if self._device is None:
            return stacked
        return self._framework.to_device(stacked, self._device)


class _MisfitError(Exception):
    """Lanes that do not align: where, and what each of two lanes holds there."""

    def __init__(self, lane: int, found: str, expected: str | None = None) -> None:
        super().__init__()
        self.path: list[Any] = []
        self.lane = lane
        self.found = found
        self.expected = expected

    def explain(self, name: str, lanes: Sequence[object] | None) -> NoReturn:
        where = name + "".join(f"[{key!r}]" for key in reversed(self.path))
        lane = f"lane {self.lane}" if lanes is None else lanes[self.lane]
        first = "lane 0" if lanes is None else lanes[0]
        if self.expected is None:
            raise ValueError(f"cannot fuse {self.found}: {where} of {lane}") from None
        raise ValueError(
            f"cannot fuse {where}: {first} has {self.expected}, {lane} has {self.found}; lanes of "
            "one batch must share an observation space (or set allow_fusion = False)"
        ) from None


def _stack(trees: Sequence[Any], into: _Stacker) -> Any:
    first = trees[0]
    if type(first) is np.ndarray or into.is_array(first):
        return _stack_arrays(trees, into, first)
    if isinstance(first, (str, bytes)):
        _same_kind(trees, (str, bytes))
        return list(trees)
    if isinstance(first, Mapping):
        return _stack_mappings(trees, into, cast("Mapping[Any, Any]", first))
    if isinstance(first, (list, tuple)):
        return _stack_sequences(trees, into, cast("Sequence[Any]", first))
    if isinstance(first, _NUMBERS):
        _same_kind(trees, _NUMBERS)
        return into.from_host(np.array(trees))
    if is_array(first):
        return _stack_hosted(trees, into)
    if first is None:
        raise _MisfitError(0, "a None observation leaf")
    raise _MisfitError(
        0, f"a {type(first).__name__} leaf, which is no array, number, text or container"
    )


def _stack_arrays(leaves: Sequence[Any], into: _Stacker, first: Any) -> Any:
    kind = cast("type[Any]", type(first))
    shape, dtype = first.shape, first.dtype
    for lane, leaf in enumerate(leaves):
        if type(leaf) is not kind:
            return _stack_hosted(leaves, into)
        if leaf.shape != shape or (leaf.dtype is not dtype and leaf.dtype != dtype):
            _unlike(lane, leaf, first)
    if into.is_array(first):
        return into.stack(leaves)
    return into.from_host(np.array(leaves))


def _stack_hosted(leaves: Sequence[Any], into: _Stacker) -> Any:
    """Stack arrays of several libraries: lanes may come from handles of different frameworks."""
    for lane, leaf in enumerate(leaves):
        if not is_array(leaf):
            _unlike(lane, leaf, leaves[0])
    return _stack_arrays(arrays := [to_host(leaf) for leaf in leaves], into, arrays[0])


def _stack_mappings(
    trees: Sequence[Any], into: _Stacker, first: Mapping[Any, Any]
) -> dict[Any, Any]:
    keys = first.keys()
    for lane, tree in enumerate(trees):
        mapping = type(tree) is dict or isinstance(tree, Mapping)  # the second is ten times slower
        if not mapping or tree.keys() != keys:
            _unlike(lane, tree, first)
    out: dict[Any, Any] = {}
    for key in first:
        try:
            out[key] = _stack([tree[key] for tree in trees], into)
        except _MisfitError as misfit:
            misfit.path.append(key)
            raise
    return out


def _stack_sequences(trees: Sequence[Any], into: _Stacker, first: Sequence[Any]) -> Any:
    for lane, tree in enumerate(trees):
        if type(tree) is not type(first) or len(tree) != len(first):
            _unlike(lane, tree, first)
    items: list[Any] = []
    for index in range(len(first)):
        try:
            items.append(_stack([tree[index] for tree in trees], into))
        except _MisfitError as misfit:
            misfit.path.append(index)
            raise
    return items if type(first) is list else _tuple_like(type(first), items)


def _same_kind(leaves: Sequence[Any], kinds: type | tuple[type, ...]) -> None:
    for lane, leaf in enumerate(leaves):
        if not isinstance(leaf, kinds):
            _unlike(lane, leaf, leaves[0])


def _unlike(lane: int, leaf: Any, first: Any) -> NoReturn:
    if leaf is None:
        raise _MisfitError(lane, "a None observation leaf")
    raise _MisfitError(lane, describe_tree(leaf), describe_tree(first))


# Unstacking


def tree_unstack(tree: Any, count: int, framework: Framework, *, name: str = "action") -> list[Any]:
    """Split the leading axis of every leaf: the inverse of :func:`tree_stack`.

    Any further axis, such as that of a chunk, stays. A list is taken as one value per lane, which
    is what text leaves are and what a model may return in place of arrays.

    Args:
        tree: leaves with a leading axis of ``count``.
        count: how many lanes there are.
        framework: whose array leaves are split as views; those of other libraries come as NumPy.
        name: what to call the root in an error.

    Raises:
        ValueError: a leaf's leading axis is not ``count``; names the leaf and what it is.
    """
    if framework.is_array(tree):
        if not len(tree.shape) or tree.shape[0] != count:
            _uneven(tree, count, name)
        return framework.unstack(tree)
    if isinstance(tree, Mapping):
        items = cast("Mapping[Any, Any]", tree).items()
        columns = [
            tree_unstack(item, count, framework, name=f"{name}[{key!r}]") for key, item in items
        ]
        keys = [key for key, _ in items]
        return [dict(zip(keys, row, strict=True)) for row in _rows(columns, count)]
    if isinstance(tree, list):
        rows = cast("list[Any]", tree)
        if len(rows) != count:
            _uneven(rows, count, name)
        return list(rows)
    if isinstance(tree, tuple):
        parts = cast("tuple[Any, ...]", tree)
        columns = [
            tree_unstack(item, count, framework, name=f"{name}[{index}]")
            for index, item in enumerate(parts)
        ]
        return [_tuple_like(type(parts), list(row)) for row in _rows(columns, count)]
    if is_array(tree):
        host = to_host(tree)
        if not host.ndim or host.shape[0] != count:
            _uneven(tree, count, name)
        return list(host)
    _uneven(tree, count, name)


def _rows(columns: list[list[Any]], count: int) -> list[tuple[Any, ...]]:
    return list(zip(*columns, strict=True)) if columns else [()] * count


def _uneven(tree: Any, count: int, name: str) -> NoReturn:
    raise ValueError(
        f"{name}: expected a leading batch axis of {count} (a row per lane) or a list of {count}, "
        f"got {describe_tree(tree)}"
    )


# Showing


def describe_tree(tree: Any) -> str:
    """Return a value's keys, dtypes and shapes: ``{image: uint8[64, 64, 3], task: str}``."""
    if isinstance(tree, Tensor):
        tree = tree.array
    if isinstance(tree, Mapping):
        items = cast("Mapping[Any, Any]", tree).items()
        return "{" + ", ".join(f"{key}: {describe_tree(item)}" for key, item in items) + "}"
    if isinstance(tree, (list, tuple)):
        texts = [describe_tree(item) for item in cast("Sequence[Any]", tree)]
        if len(texts) > 4 and len(set(texts)) == 1:
            texts = [f"{texts[0]} x {len(texts)}"]
        return ("[{}]" if isinstance(tree, list) else "({})").format(", ".join(texts))
    if tree is None:
        return "None"
    shape, dtype = getattr(tree, "shape", None), getattr(tree, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        dims = list(cast("tuple[int, ...]", shape))
        return str(dtype).rpartition(".")[2] + (str(dims) if dims or is_array(tree) else "")
    return type(tree).__name__
