"""What a policy expects of a camera."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Literal, cast

from rlmesh.adapters.fields import accept_set, is_number, pair, take_plain
from rlmesh.adapters.vocabulary import FitMode, ImageLayout, Resample, StackPad, StackSpec

__all__ = ["Image"]

CropMode = Literal["zoom", "slice"]
ChannelOrder = Literal["rgb", "bgr"]


@dataclass(frozen=True)
class Image:
    """A camera frame, brought to what the policy was trained on.

    In this order: decode; to HWC; turn by 180 degrees where the two sides differ; JPEG round trip;
    crop; resize; BGR; normalise and cast; to ``layout``; leading axes; stack.

    Args:
        role: such as ``IMAGE_PRIMARY``; a registered role the env lacks binds to its only camera,
            with a caution.
        height, width: target size; one of the two leaves the other as the env has it.
        layout: ``"hwc"`` or ``"chw"``.
        channels: the number the policy needs; a check, nothing is converted.
        dtype: element type of the result.
        normalize: True is v / 255; (lo, hi) is lo + v / 255 * (hi - lo) in float32. Needs a float
            dtype.
        lead_dims: axes of length 1 put in front.
        upside_down: the policy was trained on frames rotated by 180 degrees.
        resample: the filter of the training pipeline: ``"bilinear"`` and ``"area"`` are OpenCV's,
            ``"bilinear_aa"``, ``"bicubic_aa"`` and ``"lanczos3_aa"`` are Pillow's.
        allow_upscale: allow a target larger than the frame.
        fit: what to do where the aspect changes: ``"stretch"``, ``"crop"`` (cover, cut the edges)
            or ``"pad"`` (contain, black bars); of several, the first that needs no forbidden
        upscale. optional: a missing camera becomes a constant frame; needs height, width and
        channels. fill: its grey level, 0..255, default 0.
        stack: the last n processed frames on a new first axis, oldest first, 1..64.
        size: height and width at once.
        crop: fraction of each side that is kept, about the centre.
        crop_area: the same as a fraction of the area.
        crop_mode: ``"zoom"`` resamples the exact box to the target, ``"slice"`` cuts whole pixels.
        jpeg_quality: 1..100: what Pillow's JPEG of that quality leaves of the frame.
        channel_order: ``"rgb"`` or ``"bgr"``.
        render: side or (height, width) the env must render at; only checked.
        offsets: which frames are stacked, as steps back: (-6, -4, -2, 0).
        stack_pad: before the first frame: repeat it (``"first"``) or ``"black"``.
        part: the limb that carries the camera.
        stride: the same as offsets ``stride`` apart.

    Raises:
        ValueError: a value out of bounds or two that exclude each other; the message names them.

    >>> Image("image/primary", size=224, fit="crop", normalize=True, dtype="float32").height
    224
    """

    role: str
    height: int | None = None
    width: int | None = None
    layout: ImageLayout = "hwc"
    channels: int | None = None
    dtype: str = "uint8"
    normalize: bool | tuple[float, float] = False
    lead_dims: int = 0
    upside_down: bool = False
    resample: Resample = "bilinear"
    allow_upscale: bool = False
    fit: FitMode | Sequence[FitMode] | None = None
    optional: bool = False
    fill: int | None = None
    stack: int = 1
    size: InitVar[int | None] = None
    crop: float | None = field(default=None, kw_only=True)
    crop_area: float | None = field(default=None, kw_only=True)
    crop_mode: CropMode = field(default="zoom", kw_only=True)
    jpeg_quality: int | None = field(default=None, kw_only=True)
    channel_order: ChannelOrder = field(default="rgb", kw_only=True)
    render: int | tuple[int, int] | None = field(default=None, kw_only=True)
    offsets: StackSpec | None = field(default=None, kw_only=True)
    stack_pad: StackPad = field(default="first", kw_only=True)
    part: str | None = field(default=None, kw_only=True)
    stride: InitVar[int | None] = field(default=None, kw_only=True)

    def __post_init__(self, size: int | None, stride: int | None) -> None:
        who = f"Image {self.role!r}"
        if size is not None:
            if self.height is not None or self.width is not None:
                raise ValueError(f"{who}: pass size=, or height=/width=, not both")
            self._set(height=size, width=size)
        take_plain(self)
        self._set(
            normalize=_normalize_range(self.normalize),
            fit=accept_set(self.fit, who, "fit"),
            render=_render_size(self.render, who),
            offsets=_offsets(self.stack, self.offsets, stride, who),
        )
        self._check_crop(who)
        if self.jpeg_quality is not None and not 1 <= self.jpeg_quality <= 100:
            raise ValueError(
                f"{who}: jpeg_quality must be between 1 and 100, got {self.jpeg_quality!r}"
            )
        if self.fill is not None and not self.optional:
            raise ValueError(
                f"{who}: fill only applies to an optional camera; set optional=True or drop fill"
            )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_crop(self, who: str) -> None:
        if self.crop is not None and self.crop_area is not None:
            raise ValueError(
                f"{who}: pass crop (a fraction of the side) or crop_area (a fraction of the area), "
                "not both"
            )
        for name in ("crop", "crop_area"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 0.0 < value <= 1.0):
                raise ValueError(f"{who}: {name} must be a fraction in (0, 1], got {value!r}")


def _normalize_range(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, (tuple, list)):
        raise ValueError(f"Image.normalize must be a bool or a (low, high) range, got {value!r}")
    low, high = pair(value, "Image.normalize range")
    return (float(low), float(high))


def _render_size(value: Any, who: str) -> Any:
    if value is None:
        return None
    size = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value, value)
    if len(size) != 2:
        raise ValueError(f"{who}: render must be a side or (height, width), got {value!r}")
    for name, side in zip(("height", "width"), size, strict=True):
        if not isinstance(cast("object", side), int) or not 1 <= side <= 4096:
            raise ValueError(f"{who}: render {name} must be between 1 and 4096, got {side!r}")
    return size


def _offsets(stack: int, offsets: Any, stride: int | None, who: str) -> StackSpec | None:
    if stride is None:
        return None if offsets is None else tuple(offsets)
    # dataclasses.replace() hands on the offsets an earlier stride gave, but no stride.
    if offsets is not None:
        raise ValueError(f"{who}: pass stride=, or offsets=, not both")
    stride = int(stride)
    if stride < 1:
        raise ValueError(f"{who}: stride must be >= 1, got {stride}")
    if stack == 1:
        return None
    return tuple(-stride * back for back in reversed(range(stack)))
