"""What is done to a camera frame between the simulator and the policy, step by step.

Pure functions on HWC arrays. In the order a plan applies them: :func:`decode_image` or
:func:`to_uint8`, :func:`to_hwc`, :func:`rotate_180`, :func:`jpeg_round_trip`,
:func:`crop_slice` / :func:`crop_zoom` / :func:`fit_resize`, :func:`swap_bgr`, :func:`normalize` and
:func:`cast`, :func:`from_hwc`, :func:`add_lead_dims`.

Every one of them up to `swap_bgr` takes and gives uint8. None writes to its argument; where nothing
is to be done the argument itself comes back.

Where OpenCV is installed it also moves pixels (180 degrees, BGR, planes), which gives the same
bytes and takes a tenth of numpy's time.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

from rlmesh.adapters.pixels import cast, decode_image, normalize, to_uint8
from rlmesh.adapters.resampling import (
    RESAMPLES,
    optional_opencv,
    pillow,
    require_library,
    resize,
    resize_box,
)

__all__ = [
    "RESAMPLES",
    "add_lead_dims",
    "cast",
    "crop_fraction",
    "crop_size",
    "crop_slice",
    "crop_zoom",
    "decode_image",
    "fit_resize",
    "fit_size",
    "from_hwc",
    "jpeg_round_trip",
    "normalize",
    "require_library",
    "resize",
    "resize_box",
    "rotate_180",
    "swap_bgr",
    "to_hwc",
    "to_uint8",
]

Array = np.ndarray[Any, Any]


def to_hwc(image: Array, layout: str) -> Array:
    """Return a frame of layout ``"hwc"`` or ``"chw"`` as a contiguous HWC array."""
    if layout == "hwc":
        return image
    cv2 = optional_opencv()
    if cv2 is not None and image.dtype == np.uint8 and image.shape[0] > 1:
        return cv2.merge(list(image))
    out = np.empty((*image.shape[1:], image.shape[0]), image.dtype)
    for channel, plane in enumerate(image):
        out[:, :, channel] = plane
    return out


def from_hwc(image: Array, layout: str) -> Array:
    """Return an HWC image in layout ``"hwc"`` or ``"chw"``, contiguous."""
    if layout == "hwc":
        return image
    out = np.empty((image.shape[2], *image.shape[:2]), image.dtype)
    for channel in range(image.shape[2]):
        out[channel] = image[:, :, channel]
    return out


def rotate_180(image: Array) -> Array:
    """Return an HWC image upside down: rows and columns reversed, which is no mirror image."""
    cv2 = optional_opencv()
    if cv2 is not None and image.dtype == np.uint8:
        return cv2.flip(image, -1).reshape(image.shape)
    out = np.empty_like(image, order="C")
    for channel in range(image.shape[2]):
        out[:, :, channel] = image[::-1, ::-1, channel]
    return out


def swap_bgr(image: Array) -> Array:
    """Return an HWC image of 3 channels with the first and the last exchanged."""
    cv2 = optional_opencv()
    if cv2 is not None and image.dtype == np.uint8:
        return cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    out = np.empty_like(image, order="C")
    for channel in range(3):
        out[:, :, channel] = image[:, :, 2 - channel]
    return out


def add_lead_dims(image: Array, count: int) -> Array:
    """Return a view of an array with `count` leading axes of length 1."""
    return image.reshape((1,) * count + image.shape)


def jpeg_round_trip(image: Array, quality: int) -> Array:
    """Return an HWC RGB image as Pillow's baseline JPEG (4:2:0) of that quality leaves it.

    Raises:
        ImportError: Pillow is not installed.
    """
    image_module = pillow("a JPEG round trip is Pillow's")
    buffer = io.BytesIO()
    image_module.fromarray(image).save(buffer, "JPEG", quality=quality)
    with image_module.open(buffer, formats=("JPEG",)) as decoded:
        return np.array(decoded)


def crop_fraction(crop: float | None, crop_area: float | None) -> float | None:
    """Return the fraction of each side that is kept; an area fraction counts by its root."""
    return crop if crop_area is None else math.sqrt(crop_area)


def crop_size(height: int, width: int, fraction: float) -> tuple[int, int]:
    """Return height and width in whole pixels of a centre crop of that side fraction."""
    return max(1, _round(height * fraction)), max(1, _round(width * fraction))


def crop_slice(image: Array, fraction: float) -> Array:
    """Return a view of the centre box of :func:`crop_size`, its offset rounded down."""
    height, width = crop_size(image.shape[0], image.shape[1], fraction)
    return _centre(image, height, width)


def crop_zoom(
    image: Array,
    fraction: float,
    height: int,
    width: int,
    fit: str = "stretch",
    resample: str = "bilinear",
) -> Array:
    """Return the centre box of that side fraction, not rounded to pixels, resampled to a size.

    A spec without a size zooms to the size the frame has. See :func:`fit_resize` for `fit`, and
    :func:`~rlmesh.adapters.resampling.resize_box` for what is computed.
    """
    rows, columns = image.shape[:2]
    if fraction >= 1.0:
        return fit_resize(image, height, width, fit, resample)
    whole_rows, whole_columns = crop_size(rows, columns, fraction)
    if whole_rows * width == whole_columns * height:
        fit = "stretch"  # the aspect is kept as far as whole pixels can say
    top, left = (rows - rows * fraction) / 2.0, (columns - columns * fraction) / 2.0
    box = (top, left, rows - top, columns - left)
    inner_height, inner_width = fit_size(rows * fraction, columns * fraction, height, width, fit)
    scaled = resize_box(image, box, inner_height, inner_width, resample)
    return _place(scaled, height, width)


def fit_size(
    height: float, width: float, target_height: int, target_width: int, fit: str
) -> tuple[int, int]:
    """Return the size to which an image is scaled, before edges are cut off or bars are added.

    ``stretch`` is the target itself; ``crop`` covers it and ``pad`` is contained in it, aspect kept
    and rounded to whole pixels.

    Raises:
        ValueError: unknown fit.
    """
    if fit == "stretch":
        return target_height, target_width
    ratios = target_height / height, target_width / width
    if fit == "crop":
        scale = max(ratios)
        return (
            max(target_height, _round(height * scale)),
            max(target_width, _round(width * scale)),
        )
    if fit == "pad":
        scale = min(ratios)
        return (
            min(target_height, max(1, _round(height * scale))),
            min(target_width, max(1, _round(width * scale))),
        )
    raise ValueError(f"unknown fit {fit!r}; expected 'stretch', 'crop' or 'pad'")


def fit_resize(
    image: Array, height: int, width: int, fit: str = "stretch", resample: str = "bilinear"
) -> Array:
    """Return an HWC image at a size, its aspect handled by `fit`.

    ``stretch`` scales each axis by itself, ``crop`` scales to cover and cuts the centre out,
    ``pad`` scales to fit inside and adds black bars; offsets are rounded down.
    """
    if fit == "stretch":
        return resize(image, height, width, resample)
    inner_height, inner_width = fit_size(image.shape[0], image.shape[1], height, width, fit)
    return _place(resize(image, inner_height, inner_width, resample), height, width)


def _place(image: Array, height: int, width: int) -> Array:
    """Cut the centre out of an image that is too large, or centre a smaller one on black."""
    rows, columns = image.shape[:2]
    if rows == height and columns == width:
        return image
    if rows >= height and columns >= width:
        return _centre(image, height, width)
    out = np.zeros((height, width, image.shape[2]), image.dtype)
    _centre(out, rows, columns)[...] = image
    return out


def _centre(image: Array, height: int, width: int) -> Array:
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width]


def _round(value: float) -> int:
    return math.floor(value + 0.5)
