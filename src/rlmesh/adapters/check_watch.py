"""What :mod:`.check` watches of each leaf that a plan reads, and what it makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from rlmesh.adapters import images
from rlmesh.adapters.advisory import Advisory
from rlmesh.adapters.features import (
    EnvFeatures,
    ImageFeature,
    StateFeature,
    TextFeature,
    native_encoding,
)
from rlmesh.adapters.plan import ImageInput, Plan, SourcePiece, StateInput, TextInput
from rlmesh.adapters.preview_views import lookup
from rlmesh.spaces import Box, Dict, Space, Tuple

__all__ = ["Watch", "watches"]

Array = np.ndarray[Any, Any]

_BLACK = 2
"""Grey level up to which a pixel counts as black: JPEG noise of a black frame stays below it."""
_UNIT = 1e-3
_GRIPPER = ("proprio/gripper", "proprio/gripper_2")


class Watch(Protocol):
    """Follows one leaf over the steps of a check."""

    def begin(self) -> None:
        """An episode begins."""
        ...

    def look(self, observation: Any) -> None:
        """See one observation."""
        ...

    def findings(self) -> Iterator[Advisory]:
        """What was wrong with it."""
        ...


def watches(features: EnvFeatures, space: Space, plan: Plan) -> list[Watch]:
    """One watch per leaf (or slice of a leaf) that the plan reads."""
    read: set[Any] = set()
    for step in plan.inputs:
        if isinstance(step, (ImageInput, TextInput)):
            read.add((step.source, None))
        elif isinstance(step, StateInput):
            read |= {(p.source, p.start) for p in step.pieces if isinstance(p, SourcePiece)}
    watched: list[Watch] = [CameraWatch(f) for f in features.images if (f.path, None) in read]
    watched += [
        StateWatch(f, *_element_bounds(f, space))
        for f in features.states
        if (f.path, f.start) in read
    ]
    watched += [TextWatch(f) for f in features.texts if (f.path, None) in read]
    return watched


def _element_bounds(feature: StateFeature, space: Space) -> tuple[Array, Array]:
    """Lower and upper bound of each element: its space's, narrowed by its tag's range."""
    leaf = space
    for step in feature.path:
        assert isinstance(leaf, (Dict, Tuple))
        leaf = leaf[step]  # type: ignore[index]
    low, high = np.full(feature.width, -np.inf), np.full(feature.width, np.inf)
    if isinstance(leaf, Box):
        start = feature.start or 0
        window = slice(start, start + feature.width)
        low = np.asarray(leaf.low_array, np.float64).reshape(-1)[window]
        high = np.asarray(leaf.high_array, np.float64).reshape(-1)[window]
    if feature.bounds is not None:
        low, high = np.maximum(low, feature.bounds[0]), np.minimum(high, feature.bounds[1])
    return low, high


class CameraWatch:
    """Black, flat or frozen frames."""

    def __init__(self, feature: ImageFeature) -> None:
        self._feature = feature
        self._first: Array | None = None
        self._seen = 0
        self._highest = 0
        self._flat = True
        self._frozen = True

    def begin(self) -> None:
        """Nothing is carried over: a camera that is frozen is so across episodes."""

    def look(self, observation: Any) -> None:
        frame = self._frame(lookup(observation, self._feature.path))
        self._seen += 1
        self._highest = max(self._highest, int(frame.max(initial=0)))
        pixels = frame.reshape(-1, frame.shape[-1])
        self._flat = self._flat and not (pixels != pixels[0]).any()
        if self._first is None:
            self._first = frame.copy()
        elif self._frozen:
            self._frozen = np.array_equal(self._first, frame)

    def _frame(self, raw: Any) -> Array:
        if isinstance(raw, (bytes, bytearray)):
            return images.decode_image(raw)
        low, high = self._feature.bounds or (None, None)
        return images.to_hwc(images.to_uint8(np.asarray(raw), low, high), self._feature.layout)

    def findings(self) -> Iterator[Advisory]:
        who = f'camera "{self._feature.name}" ({self._feature.role})'
        if self._highest <= _BLACK:
            yield Advisory(
                "caution",
                f"{who} is black in all {self._seen} frames; is the renderer set up (MUJOCO_GL, a "
                "display, lights), and is this the right camera?",
                "camera-black",
            )
        elif self._flat:
            yield Advisory(
                "caution",
                f"{who} shows one colour only in all {self._seen} frames; is the camera inside an "
                "object, or a float frame in another range than its space says?",
                "camera-flat",
            )
        elif self._frozen and self._seen > 1:
            yield Advisory(
                "caution",
                f"{who} shows the same frame at all {self._seen} steps; is it rendered at every "
                "step?",
                "camera-frozen",
            )


class StateWatch:
    """Numbers that are not finite, leave their range, never change, are no rotation or gripper."""

    def __init__(self, feature: StateFeature, low: Array, high: Array) -> None:
        self._feature = feature
        self._bounds = low, high
        self._lowest = np.full(feature.width, np.inf)
        self._highest = np.full(feature.width, -np.inf)
        self._finite = np.ones(feature.width, bool)
        self._seen = 0
        self._encoding = native_encoding(feature.encodings)
        self._worst_norm = 1.0
        self._previous: Array | None = None
        self._flips = 0

    def begin(self) -> None:
        """An episode begins: its first quaternion may have either sign."""
        self._previous = None

    def look(self, observation: Any) -> None:
        raw = np.asarray(lookup(observation, self._feature.path), np.float64).reshape(-1)
        start = self._feature.start or 0
        values = raw[start : start + self._feature.width]
        self._seen += 1
        finite = np.isfinite(values)
        self._finite &= finite
        self._lowest = np.where(finite, np.minimum(self._lowest, values), self._lowest)
        self._highest = np.where(finite, np.maximum(self._highest, values), self._highest)
        if finite.all():
            self._look_at_rotation(values)

    def _look_at_rotation(self, values: Array) -> None:
        if self._encoding in ("quat_xyzw", "quat_wxyz"):
            norm = float(np.linalg.norm(values))
            if self._previous is not None and float(values @ self._previous) < 0.0:
                self._flips += 1
            self._previous = values.copy()
        elif self._encoding in ("rot6d", "rot6d_rowmajor"):
            order = "C" if self._encoding == "rot6d" else "F"
            columns = values.reshape((2, 3), order=order)
            gram = columns @ columns.T - np.eye(2)
            norm = 1.0 + float(gram.reshape(-1)[np.abs(gram).argmax()])
        else:
            return
        if abs(norm - 1.0) > abs(self._worst_norm - 1.0):
            self._worst_norm = norm

    def findings(self) -> Iterator[Advisory]:
        who = f'state "{self._feature.name}" ({self._feature.role})'
        yield from self._value_findings(who)
        yield from self._rotation_findings(who)
        declared = self._feature.bounds is not None or np.isfinite(self._bounds).all()
        if self._feature.role in _GRIPPER and not declared:
            low, high = float(self._lowest.min()), float(self._highest.max())
            if low < -1.0 - _UNIT or high > 1.0 + _UNIT:
                yield Advisory(
                    "caution",
                    f"{who} ranges from {low:.4g} to {high:.4g}, outside both gripper conventions "
                    "([0, 1] and [-1, 1]), and declares no range; declare range= on its tag, so "
                    "that it can be mapped to a model's",
                    "gripper-outside-conventions",
                )

    def _value_findings(self, who: str) -> Iterator[Advisory]:
        if not self._finite.all():
            yield Advisory(
                "caution",
                f"{who} has NaN or infinity in {self._names(~self._finite)}",
                "state-not-finite",
            )
        low, high = self._bounds
        slack = 1e-5 * np.maximum(1.0, np.where(np.isfinite(high - low), high - low, 1.0))
        outside = (self._lowest < low - slack) | (self._highest > high + slack)
        if outside.any():
            index = int(np.argmax(outside))
            yield Advisory(
                "caution",
                f"{who} leaves its declared range in {self._names(outside)}: element {index} was "
                f"{self._lowest[index]:.4g} to {self._highest[index]:.4g}, declared "
                f"{low[index]:.4g} to {high[index]:.4g}; a model's range is mapped from the "
                "declared one",
                "state-out-of-range",
            )
        still = (self._lowest == self._highest) & self._finite
        if still.any() and self._seen > 1:
            yield Advisory(
                "info",
                f"{who} has one value at all {self._seen} steps in {self._names(still)}",
                "state-constant",
            )

    def _rotation_findings(self, who: str) -> Iterator[Advisory]:
        if abs(self._worst_norm - 1.0) > _UNIT:
            yield Advisory(
                "caution",
                f"{who} is tagged {self._encoding} but is not unit: length {self._worst_norm:.4g} "
                "was seen; is it this encoding, and are all its numbers in this leaf?",
                "rotation-not-unit",
            )
        if self._flips:
            yield Advisory(
                "caution",
                f"{who} changed its sign {self._flips} time(s) from one step to the next, which is "
                "the same rotation but another axis_angle and another quaternion; a policy "
                "trained without such jumps wants rot6d, or an env that keeps the sign",
                "rotation-sign-flips",
            )

    def _names(self, mask: Array) -> str:
        if mask.all():
            return "all elements"
        labels = self._feature.labels
        names = [labels[i] if labels else str(i) for i in np.nonzero(mask)[0].tolist()]
        return f"element(s) {', '.join(names)}"


class TextWatch:
    """An instruction that says nothing."""

    def __init__(self, feature: TextFeature) -> None:
        self._feature = feature
        self._seen = 0
        self._empty = 0

    def begin(self) -> None:
        """Nothing is carried from one observation to the next."""

    def look(self, observation: Any) -> None:
        value = lookup(observation, self._feature.path)
        self._seen += 1
        self._empty += not (isinstance(value, str) and value.strip())

    def findings(self) -> Iterator[Advisory]:
        if self._empty:
            yield Advisory(
                "caution",
                f'text "{self._feature.name}" ({self._feature.role}) is empty in {self._empty} of '
                f"{self._seen} observations; a language-conditioned policy is then told nothing",
                "instruction-empty",
            )
