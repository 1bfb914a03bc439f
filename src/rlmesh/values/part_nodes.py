"""The nodes of a codec that carries a part of its space: what is left out, and what is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlmesh.values.nodes import LeafBuffer, Node

__all__ = ["AbsentNode", "ReplacedNode"]


class AbsentNode:
    """What is left out: nothing is read, checked or sent, and None arrives."""

    leaves = 0

    def conform(self, value: Any) -> None:
        return None

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        return None

    def decode(self, leaves: Iterator[memoryview]) -> None:
        return None

    def encode_batch(
        self, value: Any, lanes: int, rows: Sequence[int] | None, out: list[LeafBuffer]
    ) -> None:
        return None

    def decode_batch(self, leaves: Iterator[memoryview], lanes: int) -> None:
        return None

    def encode_rows(self, rows: Sequence[Any], out: list[LeafBuffer]) -> None:
        return None

    def decode_rows(self, leaves: Iterator[memoryview], lanes: int) -> list[Any]:
        return [None] * lanes


class ReplacedNode:
    """A leaf that is checked as what it is, and sent as what ``apply`` makes of it."""

    leaves = 1

    def __init__(self, source: Node, target: Node, apply: Callable[[Any], Any]) -> None:
        self._source = source
        self._target = target
        self._apply = apply
        self.decode = target.decode
        self.decode_batch = target.decode_batch
        self.decode_rows = target.decode_rows

    def conform(self, value: Any) -> Any:
        return self._target.conform(self._apply(self._source.conform(value)))

    def encode(self, value: Any, out: list[LeafBuffer]) -> None:
        self._target.encode(self._apply(self._source.conform(value)), out)

    def encode_batch(
        self, value: Any, lanes: int, rows: Sequence[int] | None, out: list[LeafBuffer]
    ) -> None:
        slab: list[LeafBuffer] = []
        self._source.encode_batch(value, lanes, rows, slab)
        self._target.encode_rows([self._apply(frame) for frame in slab[0]], out)

    def encode_rows(self, rows: Sequence[Any], out: list[LeafBuffer]) -> None:
        conform, apply = self._source.conform, self._apply
        self._target.encode_rows([apply(conform(row)) for row in rows], out)
