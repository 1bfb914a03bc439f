"""Running an image input: a raw observation in, one processed frame out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rlmesh.adapters import images
from rlmesh.adapters.image_steps import RenderCheck, ToHwc
from rlmesh.adapters.plan import ImageInput
from rlmesh.adapters.reading import leaf_reader, numeric_array
from rlmesh.adapters.trees import path_name

__all__ = ["frame_reader"]

Array = np.ndarray[Any, Any]


def frame_reader(step: ImageInput) -> Callable[[Any], Array]:
    """A function from a raw observation to this input's processed frame, an array of its own."""
    if step.source is None:
        frame = _blank(step)
        return lambda raw: frame.copy()
    get = leaf_reader(step.source)
    steps = [item for item in step.steps if not isinstance(item, RenderCheck)]
    from_hwc = [item.apply for item in steps if not isinstance(item, ToHwc)]
    from_env = [item.apply for item in steps]
    raw_shape = _raw_shape(step)
    name = path_name(step.source)
    low, high = step.bounds or (None, None)

    def read(raw: Any) -> Array:
        value = get(raw)
        if isinstance(value, (bytes, bytearray, memoryview)):
            frame = source = _decoded(value, step, name)
            for apply in from_hwc:
                frame = apply(frame)
        else:
            source = value if type(value) is np.ndarray else _array(value, name)
            if source.shape != raw_shape:
                raise _shape_fault(source, raw_shape, name)
            frame = source if source.dtype == np.uint8 else _levels(source, low, high, name)
            for apply in from_env:
                frame = apply(frame)
        return _own(frame, source)

    return read


def _raw_shape(step: ImageInput) -> tuple[int, int, int]:
    height, width, channels = step.shape
    return (channels, height, width) if step.layout == "chw" else (height, width, channels)


def _decoded(value: Any, step: ImageInput, name: str) -> Array:
    try:
        frame = images.decode_image(value)
    except ValueError as exc:
        raise ValueError(f"image '{name}': {exc}") from exc
    height, width, channels = step.shape
    fits = frame.shape[:2] == (height, width)
    if not fits or (step.channels_checked and frame.shape[2] != channels):
        raise _shape_fault(frame, step.shape, name)
    return frame


def _array(value: Any, name: str) -> Array:
    try:
        return numeric_array(value, name)
    except ValueError as exc:
        raise ValueError(
            f"{exc}; an image is an array, or the bytes of a PNG or JPEG file"
        ) from None


def _levels(frame: Array, low: float | None, high: float | None, name: str) -> Array:
    if frame.dtype.kind not in "biuf":
        raise ValueError(f"image '{name}': expected numbers, got dtype {frame.dtype}")
    if frame.dtype.kind == "f" and not np.isfinite(frame).all():
        raise ValueError(
            f"image '{name}': expected finite pixels, got NaN or infinity; a camera that renders "
            "nothing yet must return a frame of zeros"
        )
    return images.to_uint8(frame, low, high)


def _shape_fault(frame: Array, expected: tuple[int, ...], name: str) -> ValueError:
    return ValueError(
        f"image '{name}': expected shape {list(expected)} as its space says, got "
        f"{list(frame.shape)}; correct the env's space or its frames"
    )


def _own(frame: Array, source: Array) -> Array:
    """The frame as a contiguous, writable array that shares no memory with the observation."""
    if np.may_share_memory(frame, source) or not frame.flags.writeable:
        return np.array(frame, order="C")
    return frame if frame.flags.c_contiguous else np.ascontiguousarray(frame)


def _blank(step: ImageInput) -> Array:
    blank = step.blank
    assert blank is not None
    frame: Array = np.full((blank.height, blank.width, blank.channels), blank.fill, np.uint8)
    for item in step.steps:
        frame = item.apply(frame)
    return np.ascontiguousarray(frame)
