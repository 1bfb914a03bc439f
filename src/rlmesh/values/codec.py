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

from collections.abc import Callable, Sequence
from typing import Any, cast

from rlmesh.spaces import Dict, Space, Tuple
from rlmesh.values.conformance import Policy, Report
from rlmesh.values.frameworks import NUMPY, Framework
from rlmesh.values.nodes import LeafBuffer, Settings, compile_node
from rlmesh.values.views import SpacePart

__all__ = ["Codec", "LeafBuffer", "compile_codec"]


class Codec:
    """Encoder and decoder of one space; build it with :func:`compile_codec`."""

    __slots__ = (
        "_name",
        "_part",
        "_root",
        "_rows_type",
        "_settings",
        "conform",
        "leaves",
        "space",
    )

    def __init__(
        self, space: Space, name: str, settings: Settings, part: SpacePart | None = None
    ) -> None:
        root = compile_node(space, name, settings, part)
        self.space = space
        self._settings = settings
        self._part = part
        self.leaves = root.leaves
        # A batched Tuple is a tuple, so only a list can be one Tuple a lane.
        self._rows_type: Any = ()
        if isinstance(space, (Dict, Tuple)):
            self._rows_type = (list, tuple) if isinstance(space, Dict) else list
        self._root = root
        self.conform: Callable[[Any], Any] = root.conform
        """Return a single value as it would arrive: dtypes coerced, checked, not copied if it fits.

        What stays in this process goes through here, so that it is what would have crossed a wire.
        """
        self._name = name

    def of_part(self, part: SpacePart | None) -> Codec:
        """Return the codec that carries only ``part`` of the space's values; None: all of them.

        It is given whole values still, and looks at nothing else in them.
        """
        if part == self._part:
            return self
        return Codec(self.space, self._name, self._settings, part)

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
        """Return the slabs of a batched tree, or of a sequence with one value per lane.

        For a Tuple space only a list is one value per lane: a tuple is the batched tree.

        Args:
            lanes: how many lanes ``value`` holds.
            rows: encode only these lanes, in this order.
        """
        out: list[LeafBuffer] = []
        if isinstance(value, self._rows_type):
            items = cast("Sequence[Any]", value)
            if len(items) != lanes:
                raise ValueError(f"{self._name}: expected {lanes} batched values, got {len(items)}")
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
        name: ``"action"`` or ``"observation"``: the root of every key path in an error. Actions
            must be finite; observations may hold infinities.
        framework: what array leaves are decoded to.
        policy: what a value outside a Box's bounds does, where values are checked.
        report: receives range faults under ``Policy.WARN``.
        lenient: accept floats for an integer leaf where every element is integral.
        encode_checked: check the values of array leaves when encoding.
        decode_checked: the same when decoding, for values a foreign peer sent.
    """
    settings = Settings(
        framework=None if framework is NUMPY else framework,
        policy=policy,
        report=report or _ignore,
        finite=name == "action",
        lenient=lenient,
        encode_checked=encode_checked,
        decode_checked=decode_checked,
    )
    return Codec(space, name, settings)


def _ignore(kind: str, path: str, detail: Callable[[], str]) -> None:
    return None
