"""Parts of an observation: which of its leaves travel, and which images are processed before.

An :class:`ObservationView` is what one end asks of the other, as plain data. A :class:`SpacePart`
is what a codec is compiled for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlmesh.spaces import Box, Dict, Space, Tuple
from rlmesh.spaces.base import LeafSpace

__all__ = [
    "ObservationView",
    "ProcessedImage",
    "Replaced",
    "SpacePart",
    "leaf_spaces",
    "leaves_under",
    "part_of",
]

Array = np.ndarray[Any, Any]
Path = tuple["str | int", ...]
"""Keys and indices from the root of a space to a place in it."""


@dataclass(frozen=True)
class ProcessedImage:
    """A camera that is processed before it is sent.

    Attributes:
        leaf: which one, as a pre-order index.
        shape: (height, width, channels) of what is sent, uint8.
        steps: what is done, in order: ``{"step": name, argument: value, ...}``.
        libraries: the libraries that do it, by name, and their versions.
        digest: SHA-256 of what they make of a test frame. Another end may do the same work only if
            it gets the same bytes.
    """

    leaf: int
    shape: tuple[int, int, int]
    steps: tuple[Mapping[str, Any], ...]
    libraries: Mapping[str, str]
    digest: bytes


@dataclass(frozen=True)
class ObservationView:
    """What observations hold.

    Attributes:
        leaves: pre-order indices of the leaves that are sent.
        images: those of them that are processed first.
    """

    leaves: tuple[int, ...]
    images: tuple[ProcessedImage, ...] = ()

    def without(self, refused: Collection[int]) -> ObservationView:
        """Return the view with the images of these leaves as they are."""
        return replace(self, images=tuple(i for i in self.images if i.leaf not in refused))


@dataclass(frozen=True)
class Replaced:
    """What travels in place of a leaf: a value of ``space``, which ``apply`` makes of it.

    Without ``apply`` the values are of that space already.
    """

    space: LeafSpace
    apply: Callable[[Array], Array] | None = None


@dataclass(frozen=True)
class SpacePart:
    """Which leaves of a space a codec carries, by pre-order index, and what in place of some.

    Keys of a Dict without any of them fall away. The items of a Tuple have no names: one without
    any is None.
    """

    leaves: frozenset[int]
    replaced: Mapping[int, Replaced] = field(default_factory=dict[int, Replaced])

    def picks(self) -> Iterator[Replaced | bool]:
        """Yield for each leaf in turn what becomes of it: sent as it is, replaced, or left out."""
        for index in itertools.count():
            yield index in self.leaves and self.replaced.get(index, True)


def part_of(leaves: Collection[int], images: Sequence[ProcessedImage]) -> SpacePart:
    """Return the SpacePart in which these images come processed from elsewhere."""
    boxes = {image.leaf: Box(0, 255, image.shape, "uint8") for image in images}
    return SpacePart(frozenset(leaves), {leaf: Replaced(box) for leaf, box in boxes.items()})


def leaves_under(space: Space, paths: Sequence[Path]) -> list[int]:
    """Return the pre-order indices of the leaves at or below any of ``paths``."""
    return [
        index
        for index, (leaf, _) in enumerate(leaf_spaces(space))
        if any(leaf[: len(path)] == path for path in paths)
    ]


def leaf_spaces(space: Space, path: Path = ()) -> Iterator[tuple[Path, Space]]:
    """Yield the fundamental leaves of a space with their paths, in the wire's order."""
    if isinstance(space, Dict):
        for key, child in space.items():
            yield from leaf_spaces(child, (*path, key))
    elif isinstance(space, Tuple):
        for index, child in enumerate(space):
            yield from leaf_spaces(child, (*path, index))
    else:
        yield path, space
