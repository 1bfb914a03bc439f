"""What a plan does to numbers: frozen steps that apply and describe themselves.

They work on the last axis of float arrays, so that one step serves one lane and N.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rlmesh.adapters.encodings import Rotation
from rlmesh.adapters.rotations import rotation_converter

__all__ = [
    "Affine",
    "Clip",
    "Head",
    "MapRange",
    "Negate",
    "Permute",
    "Rotate",
    "Scale",
    "Shift",
    "Sign",
    "Take",
    "Threshold",
    "VectorStep",
    "floats_text",
]

Array = np.ndarray[Any, Any]


class VectorStep(Protocol):
    """One step on the last axis."""

    def describe(self) -> str:
        """The step as explain() prints it, with its leading blank."""
        ...

    def apply(self, values: Array) -> Array:
        """The values after the step; ``values`` itself is left alone."""
        ...


@dataclass(frozen=True)
class Rotate:
    """A rotation in another encoding, then turned about its own axes."""

    source: str
    target: str
    post_rotate: Rotation | None = None

    def describe(self) -> str:
        convert = f" ({self.source}->{self.target})" if self.source != self.target else ""
        return convert + (" (post_rotate)" if self.post_rotate is not None else "")

    def apply(self, values: Array) -> Array:
        return rotation_converter(self.source, self.target, self.post_rotate)(values)


@dataclass(frozen=True)
class Permute:
    """Elements in another order."""

    order: tuple[int, ...]

    def describe(self) -> str:
        return f" perm[{','.join(map(str, self.order))}]"

    def apply(self, values: Array) -> Array:
        return values[..., self.order]


@dataclass(frozen=True)
class Take:
    """One element."""

    index: int

    def describe(self) -> str:
        return f"[{self.index}]"

    def apply(self, values: Array) -> Array:
        return values[..., self.index : self.index + 1]


@dataclass(frozen=True)
class Head:
    """The first elements."""

    dim: int

    def describe(self) -> str:
        return f"[:{self.dim}]"

    def apply(self, values: Array) -> Array:
        return values[..., : self.dim]


@dataclass(frozen=True)
class MapRange:
    """One range mapped to another by a straight line, without clamping."""

    source: tuple[float, float]
    target: tuple[float, float]

    def describe(self) -> str:
        return f" (range {self.source}->{self.target})"

    def apply(self, values: Array) -> Array:
        low, high = self.source
        low2, high2 = self.target
        kind = values.dtype.type
        return (values - kind(low)) / kind(high - low) * kind(high2 - low2) + kind(low2)


@dataclass(frozen=True)
class Affine:
    """values * scale + offset; ``who`` tells a model's from an env's in an action."""

    scale: float | tuple[float, ...] | None
    offset: float | tuple[float, ...] | None
    labels: tuple[str, ...] | None = field(default=None)
    who: str = ""

    def describe(self) -> str:
        scale = "" if self.scale is None else f"*{floats_text(self.scale, self.labels)}"
        offset = "" if self.offset is None else f"+{floats_text(self.offset, self.labels)}"
        if not self.who:
            offset = offset.replace("+-", "-")
        return f" ({' '.join(filter(None, (self.who, scale, offset)))})"

    def apply(self, values: Array) -> Array:
        if self.scale is not None:
            values = values * np.asarray(self.scale, dtype=values.dtype)
        if self.offset is not None:
            values = values + np.asarray(self.offset, dtype=values.dtype)
        return values


@dataclass(frozen=True)
class Scale:
    """values * factor, the env's own in an action."""

    factor: float | tuple[float, ...]
    labels: tuple[str, ...] | None = field(default=None)

    def describe(self) -> str:
        if isinstance(self.factor, tuple):
            return f" (*{floats_text(self.factor, self.labels)})"
        return f" (*{float(self.factor):g})"

    def apply(self, values: Array) -> Array:
        return values * np.asarray(self.factor, dtype=values.dtype)


@dataclass(frozen=True)
class Shift:
    """values + offset, the env's own in an action."""

    offset: float | tuple[float, ...]
    labels: tuple[str, ...] | None = field(default=None)

    def describe(self) -> str:
        return f" (+{floats_text(self.offset, self.labels)})"

    def apply(self, values: Array) -> Array:
        return values + np.asarray(self.offset, dtype=values.dtype)


@dataclass(frozen=True)
class Negate:
    """The other sign."""

    who: str = ""

    def describe(self) -> str:
        return f" ({self.who}{' ' if self.who else ''}invert)"

    def apply(self, values: Array) -> Array:
        return -values


@dataclass(frozen=True)
class Threshold:
    """What counts as 0 in the binary snap that follows."""

    value: float
    who: str = ""

    def describe(self) -> str:
        return f" ({self.who}{' ' if self.who else ''}-{self.value:g})"

    def apply(self, values: Array) -> Array:
        return values - values.dtype.type(self.value)


@dataclass(frozen=True)
class Sign:
    """+1 above 0, -1 below. Exactly 0 is +1 after a threshold, else 0; NaN stays NaN."""

    zero_is_up: bool

    def describe(self) -> str:
        return " (sign)"

    def apply(self, values: Array) -> Array:
        signs = np.sign(values)
        if self.zero_is_up:
            signs[signs == 0] = 1
        return signs


@dataclass(frozen=True)
class Clip:
    """Clamped to a range."""

    low: float
    high: float

    def describe(self) -> str:
        return f" clip[{self.low},{self.high}]"

    def apply(self, values: Array) -> Array:
        return values.clip(self.low, self.high)


def floats_text(value: float | tuple[float, ...], labels: tuple[str, ...] | None = None) -> str:
    """A number, or a list of them with their labels, as explain() prints it."""
    if not isinstance(value, tuple):
        return str(float(value))
    names = [f"{label}:" for label in labels] if labels else [""] * len(value)
    pairs = zip(names, value, strict=True)
    return f"[{','.join(f'{name}{float(item)}' for name, item in pairs)}]"
