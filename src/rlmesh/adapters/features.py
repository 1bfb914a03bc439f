"""What an env offers: its tags joined with its spaces, leaf by leaf, checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlmesh.adapters.advisory import AdapterResolutionError
from rlmesh.adapters.tags import (
    EnvTags,
    Field,
    ImageTag,
    Split,
    StateTag,
    TextTag,
    UnknownLeaf,
)
from rlmesh.adapters.trees import Path, children, path_name
from rlmesh.adapters.vocabulary import ROTATION_DIMS, conventional_width
from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from rlmesh.spaces import Text as TextSpace

__all__ = [
    "EnvFeatures",
    "ImageFeature",
    "StateFeature",
    "TextFeature",
    "UnknownFeature",
    "join",
    "native_encoding",
    "uniform_bounds",
]

Bounds = tuple[float, float]


@dataclass(frozen=True)
class ImageFeature:
    """A camera of the env; ``shape`` is (height, width, channels) whatever the layout."""

    path: Path
    role: str
    part: str | None
    shape: tuple[int, int, int]
    layout: str
    upside_down: bool
    dtype: str
    bounds: Bounds | None

    @property
    def name(self) -> str:
        """Its place in the observation."""
        return path_name(self.path)


@dataclass(frozen=True)
class StateFeature:
    """A run of ``width`` numbers of the env, all of a leaf or a slice of it from ``start``."""

    path: Path
    role: str
    part: str | None
    provenance: str | None
    frame: str | None
    encodings: tuple[str, ...]
    bounds: Bounds | None
    labels: tuple[str, ...] | None
    width: int
    leaf_width: int
    start: int | None = None

    @property
    def leaf_name(self) -> str:
        """The place of the leaf in the observation."""
        return path_name(self.path)

    @property
    def name(self) -> str:
        """Its place in the observation, with the slice of a Split."""
        if self.start is None:
            return self.leaf_name
        return f"{self.leaf_name}[{self.start}:{self.start + self.width}]"


@dataclass(frozen=True)
class TextFeature:
    """A text of the env."""

    path: Path
    role: str
    part: str | None = None

    @property
    def name(self) -> str:
        """Its place in the observation."""
        return path_name(self.path)


@dataclass(frozen=True)
class UnknownFeature:
    """A leaf whose tag is of a kind this version does not know."""

    path: Path
    kind: str
    role: str | None


@dataclass(frozen=True)
class EnvFeatures:
    """Everything an env offers, by kind, in declaration order."""

    images: tuple[ImageFeature, ...] = ()
    states: tuple[StateFeature, ...] = ()
    texts: tuple[TextFeature, ...] = ()
    unknown: tuple[UnknownFeature, ...] = field(default=())


Feature = ImageFeature | StateFeature | TextFeature | UnknownFeature


def join(tags: EnvTags, space: Space) -> EnvFeatures:
    """What the tags declare of the observation space.

    Raises:
        AdapterResolutionError: a tag does not fit its space; the message names the leaf.
    """
    found = list(_walk(tags.observation, space, ()))
    return EnvFeatures(
        images=tuple(item for item in found if isinstance(item, ImageFeature)),
        states=tuple(item for item in found if isinstance(item, StateFeature)),
        texts=tuple(item for item in found if isinstance(item, TextFeature)),
        unknown=tuple(item for item in found if isinstance(item, UnknownFeature)),
    )


def native_encoding(names: tuple[str, ...]) -> str | None:
    """The first encoding of a list that this version knows."""
    return next((name for name in names if name in ROTATION_DIMS), None)


def uniform_bounds(space: Box, start: int, stop: int) -> Bounds | None:
    """The bounds elements start to stop share, None where they differ or are infinite."""
    low = np.asarray(space.low_array, dtype=np.float64).reshape(-1)[start:stop]
    high = np.asarray(space.high_array, dtype=np.float64).reshape(-1)[start:stop]
    if not low.size or not (np.isfinite(low).all() and np.isfinite(high).all()):
        return None
    if (low != low[0]).any() or (high != high[0]).any():
        return None
    return float(low[0]), float(high[0])


def declared_bounds(name: str, declared: Any, bounds: Bounds | None) -> Bounds | None:
    """A declared range where there is one, else the space's bounds; they must agree.

    Raises:
        AdapterResolutionError: they disagree.
    """
    if declared is None:
        return bounds
    low, high = float(declared[0]), float(declared[1])
    if bounds is not None and not np.allclose((low, high), bounds, rtol=1e-5, atol=1e-6):
        raise AdapterResolutionError(
            f'"{name}": tag range {(low, high)} disagrees with the space\'s finite bounds '
            f"{bounds}; correct the one that is wrong, or drop range="
        )
    return low, high


def space_name(space: Space) -> str:
    """A space as a message names it."""
    if isinstance(space, Box):
        return f"a {len(space.shape)}-D Box"
    return f"a {type(space).__name__} space"


def _walk(node: Any, space: Space, path: Path) -> Iterator[Feature]:
    nested = children(node)
    if nested is not None:
        for step, child, inner in _children(node, nested, space, path):
            yield from _walk(child, inner, (*path, step))
    elif isinstance(node, ImageTag):
        yield _image(node, space, path)
    elif isinstance(node, StateTag):
        yield _state(node, space, path)
    elif isinstance(node, Split):
        yield from _split(node, space, path)
    elif isinstance(node, TextTag):
        yield _text(node, space, path)
    elif isinstance(node, UnknownLeaf):
        yield UnknownFeature(path, node.kind, node.role)


def _children(
    node: Any, nested: list[tuple[str | int, Any]], space: Space, path: Path
) -> Iterator[tuple[str | int, Any, Space]]:
    """Each child of a dict or tuple node with its space."""
    name = path_name(path)
    if isinstance(node, dict):
        if not isinstance(space, Dict):
            raise _mismatch(name, "a Dict space", space)
        for key, child in nested:
            inner = space.get(str(key))
            if inner is None:
                raise AdapterResolutionError(
                    f'observation key "{path_name((*path, key))}" does not resolve to a leaf of '
                    f"the observation space; it has {sorted(space.keys())}"
                )
            yield key, child, inner
        return
    if not isinstance(space, Tuple):
        raise _mismatch(name, "a Tuple space", space)
    if len(space) != len(nested):
        raise AdapterResolutionError(
            f'observation tuple at "{name}" declares {len(nested)} item(s) but the space has '
            f"{len(space)}"
        )
    for (index, child), inner in zip(nested, space, strict=True):
        yield index, child, inner


def _mismatch(name: str, expected: str, space: Space) -> AdapterResolutionError:
    return AdapterResolutionError(
        f'observation "{name}" is tagged as {expected} but the space is {space_name(space)}; tag '
        "it as what it is, or correct the space"
    )


def _image(tag: ImageTag, space: Space, path: Path) -> ImageFeature:
    name = path_name(path)
    _check_role(name, tag.role)
    if not isinstance(space, Box) or len(space.shape) != 3:
        raise _mismatch(name, "an image (3-D Box)", space)
    a, b, c = space.shape
    height, width, channels = (b, c, a) if tag.layout == "chw" else (a, b, c)
    return ImageFeature(
        path=path,
        role=tag.role,
        part=tag.part,
        shape=(height, width, channels),
        layout=tag.layout,
        upside_down=tag.upside_down,
        dtype=space.dtype,
        bounds=uniform_bounds(space, 0, a * b * c),
    )


def _numeric_width(space: Space, name: str) -> int:
    if isinstance(space, Discrete):
        return 1
    if not isinstance(space, (Box, MultiBinary, MultiDiscrete)):
        raise _mismatch(name, "a numeric state", space)
    return int(np.prod(space.shape, dtype=np.int64))


def _state(tag: StateTag, space: Space, path: Path) -> StateFeature:
    name = path_name(path)
    width = _numeric_width(space, name)
    bounds = uniform_bounds(space, 0, width) if isinstance(space, Box) else None
    return _state_feature(tag, tag.role, path, width, width, None, bounds)


def _split(split: Split, space: Space, path: Path) -> Iterator[StateFeature]:
    name = path_name(path)
    width = _numeric_width(space, name)
    if split.dim != width:
        raise AdapterResolutionError(
            f'state layout for "{name}" sums to {split.dim} dims but the space width is {width}; '
            "add or drop fields (a Field without role skips dims)"
        )
    start = 0
    for item in split.fields:
        if item.role is not None:
            stop = start + item.dim
            bounds = uniform_bounds(space, start, stop) if isinstance(space, Box) else None
            yield _state_feature(item, item.role, path, item.dim, width, start, bounds)
        start += item.dim


def _state_feature(
    tag: StateTag | Field,
    role: str,
    path: Path,
    width: int,
    leaf_width: int,
    start: int | None,
    bounds: Bounds | None,
) -> StateFeature:
    name = path_name(path)
    _check_role(name, role)
    feature = StateFeature(
        path=path,
        role=role,
        part=tag.part,
        provenance=tag.provenance,
        frame=tag.frame,
        encodings=_as_tuple(tag.encoding),
        bounds=None,
        labels=None if tag.labels is None else tuple(tag.labels),
        width=width,
        leaf_width=leaf_width,
        start=start,
    )
    _check_width(feature)
    return replace(feature, bounds=declared_bounds(feature.name, tag.range, bounds))


def _check_width(feature: StateFeature) -> None:
    name, width = feature.name, feature.width
    native = native_encoding(feature.encodings)
    if native is not None and ROTATION_DIMS[native] != width:
        raise AdapterResolutionError(
            f'state "{name}" declares encoding {native} ({ROTATION_DIMS[native]} dims) but the '
            f"space width is {width}"
        )
    expected = conventional_width(feature.role)
    if expected is not None and expected != width:
        raise AdapterResolutionError(
            f'"{name}" declares role "{feature.role}", which is {expected}-D by convention, but '
            f"its width is {width}; tag it with another role (x/... is free)"
        )
    if feature.labels is not None and len(feature.labels) != width:
        raise AdapterResolutionError(
            f'state "{name}" names {len(feature.labels)} labels but the space width is {width}; '
            "give one label per element"
        )


def _text(tag: TextTag, space: Space, path: Path) -> TextFeature:
    name = path_name(path)
    _check_role(name, tag.role)
    if not isinstance(space, TextSpace):
        raise _mismatch(name, "a text", space)
    return TextFeature(path, tag.role)


def _check_role(name: str, role: str) -> None:
    if role.startswith("action/"):
        raise AdapterResolutionError(
            f'observation "{name}" declares role "{role}", an action kind; a command belongs to an '
            "Actuator, and a model reads its previous action with Previous(...)"
        )


def _as_tuple(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
