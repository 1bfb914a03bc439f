"""Dicts and tuples of leaves, and the names of the places in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

__all__ = [
    "Path",
    "assemble",
    "children",
    "freeze_node",
    "hashable_node",
    "leaves",
    "path_name",
]

Path = tuple["str | int", ...]
"""Keys and indices from the root of a tree to a place in it."""

Node = Any


def path_name(path: Path) -> str:
    """The name of a place: keys joined by dots, ``[i]`` for tuple items, ``<root>`` for ``()``."""
    if not path:
        return "<root>"
    name = ""
    for step in path:
        if isinstance(step, int):
            name += f"[{step}]"
        else:
            name += f".{step}" if name else step
    return name


def children(node: Node) -> list[tuple[str | int, Node]] | None:
    """The named children of a dict or tuple node, None for a leaf."""
    if isinstance(node, Mapping):
        return list(cast("Mapping[str, Node]", node).items())
    if isinstance(node, tuple):
        return list(enumerate(cast("tuple[Node, ...]", node)))
    return None


def leaves(node: Node, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf of a tree with its path, in declaration order."""
    nested = children(node)
    if nested is None:
        yield path, node
        return
    for key, child in nested:
        yield from leaves(child, (*path, key))


def freeze_node(node: Node, leaf_types: tuple[type, ...], what: str) -> Node:
    """Copy a tree, dicts kept in their order, after checking that it holds only ``leaf_types``.

    Raises:
        TypeError: a node is neither a leaf, nor a dict with string keys, nor a tuple.
    """
    if isinstance(node, leaf_types):
        return node
    if isinstance(node, Mapping):
        mapping = cast("Mapping[Any, Node]", node)
        for key in mapping:
            if not isinstance(key, str):
                raise TypeError(f"{what}: expected string keys, got {key!r}")
        return {key: freeze_node(child, leaf_types, what) for key, child in mapping.items()}
    if isinstance(node, tuple):
        items = cast("tuple[Node, ...]", node)
        return tuple(freeze_node(child, leaf_types, what) for child in items)
    hint = "; write a tuple for a Tuple space" if isinstance(node, list) else ""
    kinds = ", ".join(
        kind.__name__ for kind in leaf_types if not kind.__name__.startswith("Unknown")
    )
    raise TypeError(
        f"{what} must be a leaf, a dict, or a tuple (leaves: {kinds}), got "
        f"{type(cast('object', node)).__name__} {node!r}{hint}"
    )


def hashable_node(node: Node) -> Any:
    """A tree as a hashable value that does not depend on the order of dict keys."""
    if isinstance(node, Mapping):
        mapping = cast("Mapping[str, Node]", node)
        return frozenset((key, hashable_node(child)) for key, child in mapping.items())
    if isinstance(node, tuple):
        return tuple(hashable_node(child) for child in cast("tuple[Node, ...]", node))
    return node


def assemble(node: Node, value: Callable[[Path], Any], path: Path = ()) -> Any:
    """The tree that ``node`` describes with ``value(path)`` for each leaf; tuples become lists."""
    nested = children(node)
    if nested is None:
        return value(path)
    if isinstance(node, Mapping):
        return {key: assemble(child, value, (*path, key)) for key, child in nested}
    return [assemble(child, value, (*path, key)) for key, child in nested]
