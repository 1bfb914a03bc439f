"""Pixel values: encoded or foreign frames into uint8, and uint8 into what the policy reads."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np

from rlmesh.adapters.resampling import pillow

__all__ = ["cast", "decode_image", "normalize", "to_uint8"]

Array = np.ndarray[Any, Any]

_CHUNK = 1 << 16
"""Elements of a float image mapped at a time, so that the float64 copies stay in cache."""

_MODES = {"1": "L", "CMYK": "RGB"}


def decode_image(data: bytes | bytearray | memoryview) -> Array:
    """Return a PNG or JPEG file's pixels as uint8[H, W, C], C being the file's own channel count.

    Palettes become RGB (RGBA where they are transparent), CMYK becomes RGB, one bit becomes 0 or
    255, sixteen bits become eight. Orientation tags are not applied.

    Raises:
        ImportError: Pillow is not installed.
        ValueError: the bytes are neither, or are damaged.
    """
    image_module = pillow("image bytes are read by Pillow")
    try:
        with image_module.open(io.BytesIO(bytes(data)), formats=("PNG", "JPEG")) as image:
            image.load()
            return _pixels(image)
    except (OSError, SyntaxError, ValueError, image_module.DecompressionBombError) as exc:
        raise ValueError(f"could not decode image bytes: {_decoding_fault(exc)}") from exc


def _decoding_fault(exc: Exception) -> str:
    if type(exc).__name__ == "UnidentifiedImageError":
        return "neither a PNG nor a JPEG file"
    return str(exc)


def _pixels(image: Any) -> Array:
    mode: str = image.mode
    if mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif mode.startswith("I"):
        wide = np.asarray(image).astype(np.float64)
        return np.rint(wide * (255.0 / 65535.0)).clip(0, 255).astype(np.uint8)[:, :, None]
    elif mode in _MODES:
        image = image.convert(_MODES[mode])
    pixels = np.array(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def to_uint8(image: Array, low: float | None = None, high: float | None = None) -> Array:
    """Return an image of any numeric dtype as uint8.

    Floats are mapped from [low, high] to 0..255 in float64, rounded half to even and clamped; NaN
    becomes 0. Without finite bounds of which high is the greater one, [0, 1] is taken. Integers
    and bools are levels already and only clamped to 0..255.
    """
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind == "b":
        return image.astype(np.uint8)
    if image.dtype.kind in "iu":
        return np.clip(image, 0, 255).astype(np.uint8)
    low, high = _finite_range(low, high)
    out = np.empty(image.shape, np.uint8)
    source, target = image.reshape(-1), out.reshape(-1)
    for at in range(0, source.size, _CHUNK):
        part = source[at : at + _CHUNK].astype(np.float64)
        if low != 0.0:
            part -= low
        part /= high - low
        part *= 255.0
        np.fmax(part, 0.0, out=part)
        np.fmin(part, 255.0, out=part)
        np.rint(part, out=part)
        target[at : at + _CHUNK] = part
    return out


def _finite_range(low: float | None, high: float | None) -> tuple[float, float]:
    if low is None or high is None or not -math.inf < low < high < math.inf:
        return 0.0, 1.0
    return float(low), float(high)


def normalize(image: Array, bounds: tuple[float, float] = (0.0, 1.0)) -> Array:
    """Return ``lo + v / 255 * (hi - lo)`` of a uint8 image, computed in float32."""
    low, high = bounds
    out = np.true_divide(image, np.float32(255.0), dtype=np.float32)
    scale, shift = np.float32(high) - np.float32(low), np.float32(low)
    if scale != 1.0:
        out *= scale
    if shift != 0.0:
        out += shift
    return out


def cast(image: Array, dtype: Any) -> Array:
    """Return an image in another dtype, every value kept.

    Raises:
        ValueError: an integer dtype cannot hold a value (normalised to [0, 1] and cast to uint8,
            most cannot).
    """
    target = np.dtype(dtype)
    if target == image.dtype:
        return image
    if target.kind in "biu":
        _check_integers(image, target)
    return image.astype(target)


def _check_integers(image: Array, target: np.dtype[Any]) -> None:
    if image.dtype.kind == "f":
        fractional = image[image != np.rint(image)]
        if fractional.size:
            raise ValueError(
                f"cannot cast non-integral value {float(fractional[0])!r} to {target.name}; "
                'an Image that normalizes needs dtype="float32"'
            )
    low, high = (0, 1) if target.kind == "b" else (np.iinfo(target).min, np.iinfo(target).max)
    for value in (image.min(initial=0), image.max(initial=0)):
        if not low <= value <= high:
            raise ValueError(f"value {value.item()} is out of range for {target.name}")
