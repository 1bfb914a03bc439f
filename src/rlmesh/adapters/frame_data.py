"""Steps on a camera frame as plain data, so that another process can be asked to take them.

A step is ``{"step": name, argument: value, ...}``. Whoever sent one is not trusted: reading checks
its name, each argument, and that no frame on the way is larger than the camera's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from rlmesh.adapters import images
from rlmesh.adapters.fields import is_number
from rlmesh.adapters.image_steps import (
    CropSlice,
    Flip180,
    FrameStep,
    Jpeg,
    Resize,
    SwapBgr,
    ToHwc,
    Zoom,
)
from rlmesh.adapters.resampling import library_of
from rlmesh.adapters.vocabulary import FIT_MODES, RESAMPLES

__all__ = ["digest_of", "libraries_of", "shape_after", "steps_from_data", "steps_to_data"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, int, int]

_MOST_STEPS = 16

_ARGUMENTS: Mapping[type[Any], tuple[str, tuple[str, ...]]] = {
    ToHwc: ("to_hwc", ()),
    Flip180: ("flip_180", ()),
    Jpeg: ("jpeg", ("quality",)),
    CropSlice: ("crop", ("fraction",)),
    Zoom: ("zoom", ("fraction", "height", "width", "resample", "fit")),
    Resize: ("resize", ("height", "width", "resample", "fit")),
    SwapBgr: ("bgr", ()),
}
_KINDS = {name: kind for kind, (name, _) in _ARGUMENTS.items()}


def steps_to_data(steps: Iterable[FrameStep]) -> tuple[Mapping[str, Any], ...]:
    """The leading steps that map uint8 to uint8, as data; from the first that does not on, none."""
    data: list[Mapping[str, Any]] = []
    for step in steps:
        known = _ARGUMENTS.get(type(step))
        if known is None:
            break
        name, arguments = known
        data.append({"step": name, **{key: getattr(step, key) for key in arguments}})
    return tuple(data)


def steps_from_data(data: Sequence[Mapping[str, Any]], shape: Shape) -> tuple[FrameStep, ...]:
    """The steps that ``data`` stands for, to be taken on a uint8 frame of ``shape``.

    Raises:
        ValueError: some step is none, or would make a frame larger than the camera's.
    """
    if not 1 <= len(data) <= _MOST_STEPS:
        raise ValueError(f"expected 1 to {_MOST_STEPS} steps, got {len(data)}")
    most = math.prod(shape)
    steps: list[FrameStep] = []
    for number, item in enumerate(data):
        try:
            step = _step(item, shape)
            if isinstance(step, ToHwc) and number:
                raise ValueError("a frame can only be brought to HWC at first")
            shape, peak = _sizes(step, shape)
            if peak > most:
                raise ValueError(
                    f"it would make a frame of {peak} bytes, more than the camera's {most}"
                )
        except ValueError as exc:
            raise ValueError(f"step {number} {_shown(item)}: {exc}") from None
        steps.append(step)
    return tuple(steps)


def shape_after(steps: Iterable[FrameStep], shape: Shape) -> Shape:
    """The shape of a frame after ``steps``."""
    for step in steps:
        shape, _ = _sizes(step, shape)
    return shape


def libraries_of(steps: Iterable[FrameStep], shape: Shape) -> dict[str, str]:
    """The libraries whose version decides what the steps make of a frame, with their versions.

    Raises:
        ImportError: one is not installed.
    """
    purposes: list[str] = []
    for step in steps:
        after, _ = _sizes(step, shape)
        if isinstance(step, Jpeg):
            purposes.append("jpeg")
        elif isinstance(step, (Resize, Zoom)) and (after != shape or isinstance(step, Zoom)):
            purposes.append(step.resample)
        shape = after
    return dict(library_of(purpose) for purpose in purposes)


@lru_cache(maxsize=64)
def digest_of(steps: tuple[FrameStep, ...], shape: Shape) -> bytes:
    """SHA-256 of what the steps make of a frame of noise: equal only where the pixels are.

    Raises:
        ImportError: a library is not installed.
    """
    frame = _noise(math.prod(shape)).reshape(shape)
    for step in steps:
        frame = step.apply(frame)
    return hashlib.sha256(np.ascontiguousarray(frame)).digest()


def _noise(count: int) -> Array:
    """Return the same bytes everywhere: a multiplicative hash of the position."""
    words = np.arange(count, dtype=np.uint32)
    for factor in (2654435761, 2246822519, 3266489917):
        words *= np.uint32(factor)
        words ^= words >> np.uint32(15)
    return (words >> np.uint32(24)).astype(np.uint8)


def _step(item: Mapping[str, Any], shape: Shape) -> FrameStep:
    name = item.get("step")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"unknown step {name!r:.60}; expected one of {', '.join(_KINDS)}")
    _, keys = _ARGUMENTS[kind]
    if set(item) != {"step", *keys}:
        raise ValueError(f"expected the arguments {list(keys)}, got {sorted(set(item) - {'step'})}")
    given = {key: _CHECKS[key](key, item[key]) for key in keys}
    if kind in (Jpeg, SwapBgr) and shape[2] != 3:
        raise ValueError(f"it needs 3 channels, got {shape[2]}")
    if kind is CropSlice:
        height, width = images.crop_size(shape[0], shape[1], given["fraction"])
        return CropSlice(given["fraction"], height, width)
    if kind is Zoom:
        return Zoom(**given, sized=True)
    return kind(**given)


def _sizes(step: FrameStep, shape: Shape) -> tuple[Shape, int]:
    """Return the shape that a step leaves, and the bytes of the largest frame it makes."""
    height, width, channels = shape
    if isinstance(step, ToHwc):
        after = (width, channels, height)
    elif isinstance(step, CropSlice):
        after = (*images.crop_size(height, width, step.fraction), channels)
    elif isinstance(step, (Resize, Zoom)):
        after = (step.height, step.width, channels)
        kept = step.fraction if isinstance(step, Zoom) else 1.0
        scaled = images.fit_size(height * kept, width * kept, step.height, step.width, step.fit)
        return after, max(math.prod(after), math.prod(scaled) * channels)
    else:
        after = shape
    return after, math.prod(after)


def _whole(least: int, most: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"{name} must be an int from {least} to {most}, got {value!r:.60}")
        return value

    return check


def _word(allowed: Sequence[str]) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r:.60}")
        return value

    return check


def _fraction(name: str, value: Any) -> float:
    if not is_number(value) or not 0.001 <= value <= 1.0:
        raise ValueError(f"{name} must be a number from 0.001 to 1, got {value!r:.60}")
    return float(value)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "quality": _whole(1, 100),
    "height": _whole(1, 1 << 16),
    "width": _whole(1, 1 << 16),
    "fraction": _fraction,
    "resample": _word(tuple(RESAMPLES)),
    "fit": _word(tuple(FIT_MODES)),
}


def _shown(item: Mapping[str, Any]) -> str:
    return f"({item.get('step')!r:.40})"
