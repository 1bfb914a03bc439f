"""What a plan does to one camera frame: frozen steps that apply and describe themselves.

A step takes and gives an HWC array (uint8 until it is normalised); see :mod:`.images` for the
pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rlmesh.adapters import images

__all__ = [
    "CastTo",
    "CropSlice",
    "Flip180",
    "FrameStep",
    "FromHwc",
    "Jpeg",
    "LeadDims",
    "NormalizeTo",
    "RenderCheck",
    "Resize",
    "SwapBgr",
    "ToHwc",
    "Window",
    "Zoom",
]

Array = np.ndarray[Any, Any]


class FrameStep(Protocol):
    """One step of an image input."""

    def describe(self) -> str:
        """The step as explain() prints it."""
        ...

    def apply(self, frame: Array) -> Array:
        """The frame after the step."""
        ...


@dataclass(frozen=True)
class RenderCheck:
    """The policy asserts the size the env renders at; checked at resolve."""

    height: int
    width: int

    def describe(self) -> str:
        return f"render {self.height}x{self.width}"

    def apply(self, frame: Array) -> Array:
        return frame


@dataclass(frozen=True)
class ToHwc:
    """Channels last, as all further steps want them."""

    def describe(self) -> str:
        return "chw->hwc"

    def apply(self, frame: Array) -> Array:
        return images.to_hwc(frame, "chw")


@dataclass(frozen=True)
class Flip180:
    """Turned by 180 degrees: rows and columns, no mirror image."""

    def describe(self) -> str:
        return "flip 180"

    def apply(self, frame: Array) -> Array:
        return images.rotate_180(frame)


@dataclass(frozen=True)
class Jpeg:
    """What a JPEG of that quality leaves."""

    quality: int

    def describe(self) -> str:
        return f"jpeg q{self.quality}"

    def apply(self, frame: Array) -> Array:
        return images.jpeg_round_trip(frame, self.quality)


@dataclass(frozen=True)
class CropSlice:
    """The centre box in whole pixels."""

    fraction: float
    height: int
    width: int
    area: float | None = None

    def describe(self) -> str:
        area = _area(self.area)
        return f"crop {self.fraction:.3f} (slice){area} -> {self.height}x{self.width}"

    def apply(self, frame: Array) -> Array:
        return images.crop_slice(frame, self.fraction)


@dataclass(frozen=True)
class Resize:
    """Resampled to a size, the aspect handled by ``fit``."""

    height: int
    width: int
    resample: str
    fit: str

    def describe(self) -> str:
        return f"resize {self.height}x{self.width} ({self.resample})"

    def apply(self, frame: Array) -> Array:
        if frame.shape[:2] == (self.height, self.width):
            return frame
        return images.fit_resize(frame, self.height, self.width, self.fit, self.resample)


@dataclass(frozen=True)
class Zoom:
    """The exact centre box resampled to a size: the target, or the size the frame had."""

    fraction: float
    height: int
    width: int
    resample: str
    fit: str
    sized: bool
    area: float | None = None

    def describe(self) -> str:
        zoom = f"zoom {self.fraction:.3f}{_area(self.area)}"
        return (
            f"{zoom}, resize {self.height}x{self.width} ({self.resample})" if self.sized else zoom
        )

    def apply(self, frame: Array) -> Array:
        return images.crop_zoom(
            frame, self.fraction, self.height, self.width, self.fit, self.resample
        )


@dataclass(frozen=True)
class SwapBgr:
    """Red and blue exchanged."""

    def describe(self) -> str:
        return "bgr"

    def apply(self, frame: Array) -> Array:
        return images.swap_bgr(frame)


@dataclass(frozen=True)
class NormalizeTo:
    """Grey levels to a range of float32."""

    low: float
    high: float

    def describe(self) -> str:
        if (self.low, self.high) == (0.0, 1.0):
            return "normalize /255"
        return f"normalize [{self.low:g}, {self.high:g}]"

    def apply(self, frame: Array) -> Array:
        return images.normalize(frame, (self.low, self.high))


@dataclass(frozen=True)
class CastTo:
    """The element type the policy reads."""

    dtype: str

    def describe(self) -> str:
        return self.dtype

    def apply(self, frame: Array) -> Array:
        return images.cast(frame, self.dtype)


@dataclass(frozen=True)
class FromHwc:
    """Channels first."""

    def describe(self) -> str:
        return "hwc->chw"

    def apply(self, frame: Array) -> Array:
        return images.from_hwc(frame, "chw")


@dataclass(frozen=True)
class LeadDims:
    """Axes of length 1 in front."""

    count: int

    def describe(self) -> str:
        return f"+{self.count} lead dims"

    def apply(self, frame: Array) -> Array:
        return images.add_lead_dims(frame, self.count)


@dataclass(frozen=True)
class Window:
    """The last frames of an episode on a new first axis, oldest first.

    Attributes:
        offsets: which frames, as steps back from the current one.
        explicit: the spec named the offsets (or a stride).
        black: before the first frame stands ``pad`` instead of a repetition of it.
        pad: what a black pixel has become after normalising.
    """

    offsets: tuple[int, ...]
    explicit: bool
    black: bool
    pad: float

    @property
    def span(self) -> int:
        """How many consecutive frames it reaches over."""
        return 1 - self.offsets[0]

    def describe(self) -> str:
        at = f" @[{','.join(map(str, self.offsets))}]" if self.explicit else ""
        return f"stack {len(self.offsets)}{at}{', pad black' if self.black else ''}"


def _area(area: float | None) -> str:
    return "" if area is None else f" (crop {100 * area:.1f}% area)"
