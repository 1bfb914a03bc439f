"""A camera input of a spec, joined with a camera of the env."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rlmesh.adapters import images
from rlmesh.adapters.advisory import AdapterResolutionError
from rlmesh.adapters.features import EnvFeatures, ImageFeature
from rlmesh.adapters.image_spec import Image
from rlmesh.adapters.image_steps import (
    CastTo,
    CropSlice,
    Flip180,
    FrameStep,
    FromHwc,
    Jpeg,
    LeadDims,
    NormalizeTo,
    RenderCheck,
    Resize,
    SwapBgr,
    ToHwc,
    Window,
    Zoom,
)
from rlmesh.adapters.matching import (
    Findings,
    match_part,
    offer,
    refuse_unknown,
    with_part,
)
from rlmesh.adapters.plan import BlankFrame, ImageInput
from rlmesh.adapters.trees import Path, path_name
from rlmesh.adapters.vocabulary import (
    CHANNEL_ORDERS,
    CROP_MODES,
    FIT_MODES,
    IMAGE_DTYPES,
    RESAMPLES,
    is_registered,
)

__all__ = ["resolve_image"]

MAX_SPAN = 128
"""Frames a window may reach over."""


@dataclass(frozen=True)
class _Shape:
    """Height, width and channels on the way through the steps."""

    height: int
    width: int
    channels: int

    @property
    def size(self) -> str:
        return f"{self.height}x{self.width}"


def resolve_image(
    image: Image, placement: Path, env: EnvFeatures, findings: Findings
) -> ImageInput:
    """The steps from the env's camera to this input.

    Raises:
        AdapterResolutionError: no camera fits, or the steps would have to guess.
        ImportError: a library that a step needs is not installed.
    """
    name = path_name(placement)
    _check_words(image, name)
    feature = _camera(image, name, env, findings)
    if feature is None:
        findings.add(
            "caution",
            "blank-camera",
            f'image "{name}": the env has no camera of role {with_part(image.role, image.part)}; '
            f"the model sees a constant frame of grey level {image.fill or 0}",
        )
        return _blank(image, placement, name)
    shape = _Shape(*feature.shape)
    _check_channels(image, shape, name)
    _warn_of_range(feature, name, findings)
    steps: list[FrameStep] = []
    if image.render is not None:
        steps.append(_render(image, feature, name))
    if feature.layout == "chw":
        steps.append(ToHwc())
    if feature.upside_down != image.upside_down:
        steps.append(Flip180())
    if image.jpeg_quality is not None:
        images.require_library("jpeg")
        steps.append(Jpeg(image.jpeg_quality))
    shape = _sizing(image, shape, name, steps, findings)
    return _finish(image, placement, feature, shape, steps)


def _check_words(image: Image, name: str) -> None:
    for what, value, allowed in (
        ("resample", image.resample, RESAMPLES),
        ("channel_order", image.channel_order, CHANNEL_ORDERS),
        ("crop_mode", image.crop_mode, CROP_MODES),
    ):
        if value not in allowed:
            raise _fault(
                name, f'unsupported {what} "{value}"; expected one of {", ".join(allowed)}'
            )
    if image.dtype not in IMAGE_DTYPES:
        raise _fault(
            name,
            f'unknown dtype "{image.dtype}"; expected one of {", ".join(sorted(IMAGE_DTYPES))}',
        )
    if image.normalize is not False and np.dtype(image.dtype).kind != "f":
        raise _fault(
            name,
            f'normalize gives fractions, which dtype "{image.dtype}" cannot hold; set '
            'dtype="float32"',
        )
    for what, side in (("height", image.height), ("width", image.width)):
        if side == 0:
            raise _fault(name, f"target {what} must be at least 1, got 0")
    _check_window(image, name)


def _check_window(image: Image, name: str) -> None:
    if image.stack == 1 and image.stack_pad != "first":
        raise _fault(
            name, "stack_pad only applies to a stacked image; set stack > 1 or drop stack_pad"
        )
    offsets = image.offsets
    if offsets is None:
        return
    if len(offsets) != image.stack:
        raise _fault(
            name,
            f"stack={image.stack} disagrees with {len(offsets)} offset(s) {list(offsets)}; declare "
            "as many as are stacked",
        )
    rising = all(a < b for a, b in pairwise(offsets))
    if offsets[-1] != 0 or not rising:
        raise _fault(
            name,
            "offsets must be non-positive and strictly increasing, ending at 0 (the current "
            f"frame), got {list(offsets)}",
        )
    if 1 - offsets[0] > MAX_SPAN:
        raise _fault(
            name,
            f"stack={image.stack} over offsets {list(offsets)} spans {1 - offsets[0]} consecutive "
            f"frames, more than the {MAX_SPAN} a window may hold",
        )


def _camera(image: Image, name: str, env: EnvFeatures, findings: Findings) -> ImageFeature | None:
    found = match_part(env.images, "image", image.role, image.part, name, findings)
    if found:
        return found[0]
    refuse_unknown(env, image.role, name)
    if image.optional:
        findings.unmatched("model", "this env", image.role)
        return None
    if len(env.images) == 1 and image.part is None and is_registered(image.role):
        only = env.images[0]
        findings.note(
            "caution",
            "camera-rebind",
            f'model input "{name}": no env camera has role "{image.role}"; bound to the env\'s '
            f'only camera ("{only.role}") instead; declare the same role on both sides',
        )
        return only
    raise AdapterResolutionError(
        f'model input "{name}" wants an image with role {with_part(image.role, image.part)} but '
        f"the env offers {offer(env.images)}; tag a camera so, or set optional=True with height, "
        "width and channels"
    )


def _check_channels(image: Image, shape: _Shape, name: str) -> None:
    channels = shape.channels
    if image.channels is not None and image.channels != channels:
        raise _fault(
            name,
            f"expects {image.channels} channel(s) but the env image has {channels}; the adapter "
            "does not convert between channel counts (e.g. RGB and grey)",
        )
    for what, used in (
        ("jpeg_quality", image.jpeg_quality is not None),
        ('channel_order "bgr"', image.channel_order == "bgr"),
    ):
        if used and channels != 3:
            raise _fault(name, f"{what} needs a 3-channel image, got {channels} channel(s)")


def _warn_of_range(feature: ImageFeature, name: str, findings: Findings) -> None:
    kind = np.dtype(feature.dtype).kind
    if kind == "f" and feature.bounds is None:
        findings.add(
            "caution",
            "unknown-pixel-range",
            f'image "{name}": the env\'s "{feature.name}" is {feature.dtype} without bounds and is '
            "read as 0..1, values above it becoming white; give its Box the true low and high",
        )
    elif kind in "iu" and feature.bounds is not None and feature.bounds[1] > 255:
        findings.add(
            "caution",
            "unknown-pixel-range",
            f'image "{name}": the env\'s "{feature.name}" is {feature.dtype} in '
            f"{feature.bounds}; levels are taken as 0..255 and what is above becomes white",
        )


def _render(image: Image, feature: ImageFeature, name: str) -> RenderCheck:
    assert isinstance(image.render, tuple)
    height, width = image.render
    if (height, width) != feature.shape[:2]:
        raise _fault(
            name,
            f'declares render {height}x{width} but the bound camera "{feature.role}" renders '
            f"{feature.shape[0]}x{feature.shape[1]}; build the env with that camera size",
        )
    return RenderCheck(height, width)


def _sizing(
    image: Image, shape: _Shape, name: str, steps: list[FrameStep], findings: Findings
) -> _Shape:
    """Append crop and resize; the shape they leave."""
    target = _Shape(image.height or shape.height, image.width or shape.width, shape.channels)
    sized = image.height is not None or image.width is not None
    fraction = images.crop_fraction(image.crop, image.crop_area)
    cropped = shape
    if fraction is not None:
        cropped = _Shape(*images.crop_size(shape.height, shape.width, fraction), shape.channels)
    fit = _choose_fit(image, cropped, target, name, findings) if sized else "stretch"
    if fraction is not None and image.crop_mode == "zoom":
        steps.append(
            Zoom(
                fraction,
                target.height,
                target.width,
                image.resample,
                fit,
                sized,
                image.crop_area,
            )
        )
        images.require_library(image.resample)
        return target
    if fraction is not None:
        steps.append(CropSlice(fraction, cropped.height, cropped.width, image.crop_area))
    if not sized:
        return cropped
    steps.append(Resize(target.height, target.width, image.resample, fit))
    if target != cropped:
        images.require_library(image.resample)
    return target


def _choose_fit(image: Image, source: _Shape, target: _Shape, name: str, findings: Findings) -> str:
    """How the source becomes the target, without an upscale nobody allowed."""
    taller, wider = target.height > source.height, target.width > source.width
    if source.height * target.width == source.width * target.height:
        if (taller or wider) and not image.allow_upscale:
            raise _fault(
                name,
                f"target {target.size} would upscale the env's {source.size} image; set "
                "allow_upscale=True or a smaller target",
            )
        return "stretch"
    if image.fit is None:
        raise _fault(
            name,
            f"target {target.size} changes the env's {source.size} aspect ratio; set fit to "
            "'stretch', 'crop', or 'pad'",
        )
    fits = (image.fit,) if isinstance(image.fit, str) else tuple(image.fit)
    known = [fit for fit in fits if fit in FIT_MODES]
    if not known:
        raise _fault(
            name,
            f"target {target.size} changes the env's {source.size} aspect ratio and the declared "
            f"fit {list(fits)} names no mode this build recognizes; expected 'stretch', 'crop', or "
            "'pad'",
        )
    for fit in known:
        upscales = (taller and wider) if fit == "pad" else (taller or wider)
        if image.allow_upscale or not upscales:
            _note_fit(fit, name, findings)
            return fit
    raise _fault(
        name,
        f"every declared fit would upscale the env's {source.size} image to {target.size}; set "
        "allow_upscale=True or declare a fit that downscales (e.g. 'pad')",
    )


def _note_fit(fit: str, name: str, findings: Findings) -> None:
    if fit == "crop":
        findings.add("info", "crop-drops-edges", f'image "{name}": aspect crop drops edge pixels')
    elif fit == "pad":
        findings.add(
            "info", "pad-adds-borders", f'image "{name}": aspect pad adds letterbox borders'
        )


def _tail(image: Image) -> list[FrameStep]:
    """The steps after sizing."""
    steps: list[FrameStep] = []
    if image.channel_order == "bgr":
        steps.append(SwapBgr())
    if image.normalize is True:
        steps.append(NormalizeTo(0.0, 1.0))
    elif image.normalize is not False:
        steps.append(NormalizeTo(*image.normalize))
    steps.append(CastTo(image.dtype))
    if image.layout == "chw":
        steps.append(FromHwc())
    if image.lead_dims:
        steps.append(LeadDims(image.lead_dims))
    return steps


def _window(image: Image) -> Window | None:
    if image.stack == 1:
        return None
    offsets = image.offsets or tuple(range(1 - image.stack, 1))
    low = image.normalize[0] if isinstance(image.normalize, tuple) else 0.0
    explicit = image.offsets is not None
    return Window(offsets, explicit, image.stack_pad == "black", low)


def _finish(
    image: Image,
    placement: Path,
    feature: ImageFeature,
    shape: _Shape,
    steps: list[FrameStep],
) -> ImageInput:
    return ImageInput(
        placement=placement,
        source=feature.path,
        layout=feature.layout,
        shape=feature.shape,
        bounds=feature.bounds,
        tag=f"#{feature.part}" if feature.part else "",
        steps=(*steps, *_tail(image)),
        window=_window(image),
        out_shape=_out_shape(image, shape),
        out_dtype=image.dtype,
        channels_checked=_needs_channels(image),
    )


def _needs_channels(image: Image) -> bool:
    return (
        image.channels is not None
        or image.jpeg_quality is not None
        or (image.channel_order == "bgr")
    )


def _out_shape(image: Image, shape: _Shape) -> tuple[int, ...]:
    hwc = (shape.height, shape.width, shape.channels)
    laid = hwc if image.layout == "hwc" else (hwc[2], hwc[0], hwc[1])
    return (1,) * image.lead_dims + laid


def _blank(image: Image, placement: Path, name: str) -> ImageInput:
    if image.height is None or image.width is None or image.channels is None:
        raise _fault(
            name,
            "an optional image the env does not provide needs height, width, and channels to size "
            "the constant frame",
        )
    shape = _Shape(image.height, image.width, image.channels)
    return ImageInput(
        placement=placement,
        source=None,
        layout="hwc",
        shape=(image.height, image.width, image.channels),
        bounds=None,
        tag=f"#{image.part}" if image.part else "",
        steps=tuple(_tail(image)),
        window=_window(image),
        out_shape=_out_shape(image, shape),
        out_dtype=image.dtype,
        blank=BlankFrame(image.height, image.width, image.channels, image.fill or 0),
    )


def _fault(name: str, message: Any) -> AdapterResolutionError:
    return AdapterResolutionError(f'model input "{name}": {message}')
