"""Image resampling by the library the policy was trained with, and no other.

========================  =============================================
``bilinear``              OpenCV ``cv2.INTER_LINEAR``
``area``                  OpenCV ``cv2.INTER_AREA``
``bilinear_aa``           Pillow ``Image.Resampling.BILINEAR``
``bicubic_aa``            Pillow ``Image.Resampling.BICUBIC``
``lanczos3_aa``           Pillow ``Image.Resampling.LANCZOS``
========================  =============================================

The libraries are imported when a filter is first used, or by :func:`require_library`; a missing one
is an `ImportError` with the line that installs it.

Alpha is Pillow's business where Pillow resizes: two channels are its mode LA and four its RGBA,
which it weights by alpha. More channels than four are resized one by one.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

__all__ = ["RESAMPLES", "library_of", "require_library", "resize", "resize_box"]

Array = np.ndarray[Any, Any]
Box = tuple[float, float, float, float]
"""Top, left, bottom, right in pixels; fractions allowed."""

_BLOCK = 32
"""Rows of a result computed at a time, so that their float64 copies stay in cache."""

RESAMPLES = ("bilinear", "bilinear_aa", "bicubic_aa", "lanczos3_aa", "area")

_OPENCV = {"bilinear": "INTER_LINEAR", "area": "INTER_AREA"}
_PILLOW = {"bilinear_aa": "BILINEAR", "bicubic_aa": "BICUBIC", "lanczos3_aa": "LANCZOS"}
_PILLOW_USES = {
    "jpeg": "a JPEG round trip is Pillow's",
    "decode": "image bytes are read by Pillow",
}


def require_library(purpose: str) -> None:
    """Import the library behind a filter of `RESAMPLES`, ``"jpeg"`` or ``"decode"``.

    Raises:
        ImportError: it is not installed; the message has the ``pip install`` line.
        ValueError: no such purpose.
    """
    if purpose in _OPENCV:
        opencv(f'resample "{purpose}" is OpenCV\'s {_OPENCV[purpose]}')
    elif purpose in _PILLOW:
        pillow(f'resample "{purpose}" is Pillow\'s {_PILLOW[purpose]}')
    elif purpose in _PILLOW_USES:
        pillow(_PILLOW_USES[purpose])
    else:
        raise ValueError(
            f"unknown resample {purpose!r}; expected one of {', '.join(map(repr, RESAMPLES))}"
        )


def library_of(purpose: str) -> tuple[str, str]:
    """Return name and version of the library behind a purpose of :func:`require_library`.

    Raises:
        ImportError, ValueError: likewise.
    """
    require_library(purpose)
    name, module = ("OpenCV", "cv2") if purpose in _OPENCV else ("Pillow", "PIL")
    return name, str(_load(module).__version__)


@cache
def _load(module: str) -> Any:
    return importlib.import_module(module)


def opencv(reason: str) -> Any:
    """Return the module ``cv2``; `reason` opens the text of the `ImportError`."""
    return _require("cv2", reason, "OpenCV")


def pillow(reason: str) -> Any:
    """Return the module ``PIL.Image``; `reason` opens the text of the `ImportError`."""
    return _require("PIL.Image", reason, "Pillow")


def _require(module: str, reason: str, library: str) -> Any:
    try:
        return _load(module)
    except ImportError as exc:
        raise ImportError(
            f"{reason}, and {library} cannot be imported ({exc}); it is never replaced by another "
            "filter. Install it: pip install 'rlmesh[adapters]'",
            name=exc.name,
        ) from exc


@cache
def optional_opencv() -> Any:
    """Return ``cv2`` or None: for moves of pixels, where the result does not depend on it."""
    try:
        return _load("cv2")
    except ImportError:
        return None


def resize(image: Array, height: int, width: int, resample: str = "bilinear") -> Array:
    """Return an image as the filter's library resizes it, bit for bit.

    Args:
        image: uint8[H, W, C].
        height: rows of the result.
        width: columns of the result.
        resample: one of `RESAMPLES`.

    Returns:
        uint8[height, width, C], writable; `image` itself when it has that size already.

    Raises:
        ImportError: the filter's library is not installed.
        ValueError: unknown filter.
    """
    if image.shape[0] == height and image.shape[1] == width:
        return image
    return _resizer(resample)(image, height, width)


@cache
def _resizer(resample: str) -> Callable[[Array, int, int], Array]:
    require_library(resample)
    if resample in _OPENCV:
        cv2 = _load("cv2")
        return _opencv_resizer(cv2.resize, getattr(cv2, _OPENCV[resample]))
    return _pillow_resizer(_pillow_filter(resample))


def _opencv_resizer(call: Callable[..., Any], flag: int) -> Callable[[Array, int, int], Array]:
    def resize_by_opencv(image: Array, height: int, width: int) -> Array:
        channels = image.shape[2]
        if channels <= 4:
            out = call(image, (width, height), None, 0.0, 0.0, flag)
            return out if channels > 1 else out[:, :, None]  # it drops an axis of one channel
        planes = [call(plane, (width, height), None, 0.0, 0.0, flag) for plane in _planes(image)]
        return np.stack(planes, axis=2)

    return resize_by_opencv


def _planes(image: Array) -> list[Array]:
    return [np.ascontiguousarray(image[:, :, channel]) for channel in range(image.shape[2])]


def _pillow_filter(resample: str) -> Any:
    image = _load("PIL.Image")
    return getattr(getattr(image, "Resampling", image), _PILLOW[resample])  # Pillow < 9.1


def _pillow_resizer(filter_: Any) -> Callable[..., Array]:
    from_array = _load("PIL.Image").fromarray

    def resize_by_pillow(
        image: Array, height: int, width: int, box: tuple[float, ...] | None = None
    ) -> Array:
        channels = image.shape[2]
        if 2 <= channels <= 4:
            return np.array(from_array(image).resize((width, height), filter_, box))
        planes = [
            np.array(from_array(plane).resize((width, height), filter_, box))
            for plane in _planes(image)
        ]
        return planes[0][:, :, None] if channels == 1 else np.stack(planes, axis=2)

    return resize_by_pillow


def resize_box(image: Array, box: Box, height: int, width: int, resample: str) -> Array:
    """Return the part of an image inside a fractional box, resampled straight to a size.

    Pillow's filters are ``Image.resize(box=)``. OpenCV resizes whole arrays only, so its two are
    computed here by their definition, in float64 with one rounding (half to even) at the end:
    ``bilinear`` with half-pixel centres, ``area`` by the overlap with each source pixel.

    Args:
        image: uint8[H, W, C].
        box: top, left, bottom, right in pixels.
        height: rows of the result.
        width: columns of the result.
        resample: one of `RESAMPLES`.
    """
    top, left, bottom, right = box
    if resample in _PILLOW:
        return _resizer(resample)(image, height, width, (left, top, right, bottom))  # type: ignore[call-arg]
    require_library(resample)
    taps = _bilinear_taps if resample == "bilinear" else _area_taps
    rows, row_weights = taps(top, bottom, height, image.shape[0])
    columns, column_weights = taps(left, right, width, image.shape[1])
    column_weights = np.repeat(column_weights, image.shape[2], axis=1)
    row_weights = row_weights[:, :, None]
    out = np.empty((height, width, image.shape[2]), np.uint8)
    lines = out.reshape(height, -1)
    for at in range(0, height, _BLOCK):
        block = slice(at, at + _BLOCK)
        sources = [image.take(index, axis=0) for index in rows[:, block]]
        weights = row_weights[:, block]
        total = np.zeros(lines[block].shape)
        for index, column_weight in zip(columns, column_weights, strict=True):
            # Pixels are picked as bytes; only those of the result are ever floats.
            column = [source.take(index, axis=1).reshape(len(source), -1) for source in sources]
            total += _weighted_sum(column, weights) * column_weight
        lines[block] = np.rint(total, out=total)
    return out


def _weighted_sum(parts: list[Array], weights: Array) -> Array:
    total = parts[0] * weights[0]
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total += part * weight
    return total


@lru_cache(maxsize=256)
def _bilinear_taps(start: float, stop: float, count: int, size: int) -> tuple[Array, Array]:
    position = start + (np.arange(count) + 0.5) * ((stop - start) / count) - 0.5
    first = np.floor(position)
    fraction = position - first
    first = first.astype(np.intp)
    indices = np.clip(np.stack([first, first + 1]), 0, size - 1)
    return indices, np.stack([1.0 - fraction, fraction])


@lru_cache(maxsize=256)
def _area_taps(start: float, stop: float, count: int, size: int) -> tuple[Array, Array]:
    edges = start + np.arange(count + 1) * ((stop - start) / count)
    low, high = edges[:-1], edges[1:]
    first = np.floor(low).astype(np.intp)
    taps = int((np.ceil(high).astype(np.intp) - first).max())
    pixels = first + np.arange(taps)[:, None]
    overlap = np.minimum(high, pixels + 1) - np.maximum(low, pixels)
    weights = np.maximum(overlap, 0.0)
    return np.clip(pixels, 0, size - 1), weights / weights.sum(axis=0)
