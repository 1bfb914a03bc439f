"""Image steps that run where the env lives, and the plan that is left for the model's side."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlmesh.adapters.frame_data import (
    digest_of,
    libraries_of,
    shape_after,
    steps_from_data,
    steps_to_data,
)
from rlmesh.adapters.image_steps import FrameStep, RenderCheck
from rlmesh.adapters.plan import CustomInput, ImageInput, Plan
from rlmesh.adapters.trees import Path
from rlmesh.spaces import Box, Space
from rlmesh.values import ProcessedImage, leaf_spaces

__all__ = ["Unlike", "frame_processor", "pushable", "pushed_down"]

Array = np.ndarray[Any, Any]
Shape = tuple[int, int, int]


class Unlike(Exception):
    """What processes frames here makes other pixels of them than what does so over there."""


def pushable(plan: Plan, space: Space) -> tuple[ProcessedImage, ...]:
    """The cameras that may be processed where the env lives, and by which steps.

    Those are uint8 cameras whose leading steps, the same in every input that reads them, leave less
    than the camera gives. With an input of the user's own making, which may read any leaf, none is.

    Args:
        plan: what the model does to observations.
        space: of one observation.
    """
    if any(isinstance(step, CustomInput) for step in plan.inputs):
        return ()
    found: list[ProcessedImage] = []
    for leaf, (path, leaf_space) in enumerate(leaf_spaces(space)):
        steps = _shared_steps(plan, path)
        shape = _camera_shape(leaf_space)
        if not steps or shape is None:
            continue
        image = _offer(leaf, steps, shape)
        if image is not None:
            found.append(image)
    return tuple(found)


def _shared_steps(plan: Plan, path: Path) -> tuple[Mapping[str, Any], ...]:
    """The leading steps, as data, that all inputs from a camera have in common."""
    each = [
        steps_to_data(_real(step))
        for step in plan.inputs
        if isinstance(step, ImageInput) and step.source == path
    ]
    shared = 0
    for column in zip(*each, strict=False):
        if any(step != column[0] for step in column):
            break
        shared += 1
    return each[0][:shared] if each else ()


def _real(step: ImageInput) -> list[FrameStep]:
    """The steps of an input but for what only checks."""
    return [item for item in step.steps if not isinstance(item, RenderCheck)]


def _camera_shape(space: Space) -> Shape | None:
    if not isinstance(space, Box) or space.dtype != "uint8" or len(space.shape) != 3:
        return None
    first, second, third = space.shape
    return first, second, third


def _offer(leaf: int, data: tuple[Mapping[str, Any], ...], shape: Shape) -> ProcessedImage | None:
    """The first of the steps, up to where the frame is smallest; None if it never gets smaller."""
    least, count = math.prod(shape), 0
    for number in range(1, len(data) + 1):
        try:
            steps = steps_from_data(data[:number], shape)
        except ValueError:
            break  # on the way the frame would be larger than the camera's
        size = math.prod(shape_after(steps, shape))
        if size < least:
            least, count = size, number
    if not count:
        return None
    steps = steps_from_data(data[:count], shape)
    return ProcessedImage(
        leaf=leaf,
        shape=shape_after(steps, shape),
        steps=data[:count],
        libraries=libraries_of(steps, shape),
        digest=digest_of(steps, shape),
    )


def frame_processor(image: ProcessedImage, space: Space) -> Callable[[Array], Array]:
    """A function that takes the steps of ``image`` on a frame of the camera, whose space is given.

    Raises:
        ValueError: the leaf is no uint8 camera, or these are no steps for it.
        Unlike: it would not get the pixels that the other side gets; says why.
    """
    shape = _camera_shape(space)
    if shape is None:
        raise ValueError(f"leaf {image.leaf}: expected a uint8 image of 3 axes, it is {space!r}")
    try:
        steps = steps_from_data(image.steps, shape)
    except ValueError as exc:
        raise ValueError(f"leaf {image.leaf}: {exc}") from None
    after = shape_after(steps, shape)
    if image.shape != after:
        raise ValueError(
            f"leaf {image.leaf}: the steps make a frame of shape {list(after)}, not "
            f"{list(image.shape)}"
        )
    _check_libraries(image, steps, shape)

    def process(frame: Array) -> Array:
        for step in steps:
            frame = step.apply(frame)
        return frame

    return process


def _check_libraries(image: ProcessedImage, steps: tuple[FrameStep, ...], shape: Shape) -> None:
    try:
        ours = libraries_of(steps, shape)
        for name, version in ours.items():
            theirs = image.libraries.get(name, "unknown")
            if theirs != version:
                raise Unlike(f"its {name} is {version}, the model's {theirs}")
        digest = digest_of(steps, shape)
    except ImportError as exc:
        raise Unlike(str(exc)) from None
    if digest != image.digest:
        made = " and ".join(f"{name} {version}" for name, version in ours.items()) or "the steps"
        raise Unlike(f"{made} makes other pixels of a test frame there than with the model")


def pushed_down(plan: Plan, space: Space, images: Sequence[ProcessedImage]) -> Plan:
    """The plan for observations in which these images come processed already.

    Raises:
        ValueError: an image is processed in another way than the plan does it.
    """
    by_path = {path: leaf for leaf, (path, _) in enumerate(leaf_spaces(space))}
    by_leaf = {image.leaf: image for image in images}
    inputs: list[Any] = []
    left = set(by_leaf)
    for step in plan.inputs:
        source = step.source if isinstance(step, ImageInput) else None
        leaf = None if source is None else by_path.get(source)
        if leaf in by_leaf and isinstance(step, ImageInput):
            left.discard(leaf)
            step = _rest(step, by_leaf[leaf])
        inputs.append(step)
    if left:
        raise ValueError(f"leaf {min(left)} is processed, but the plan reads no image there")
    return replace(plan, inputs=tuple(inputs))


def _rest(step: ImageInput, image: ProcessedImage) -> ImageInput:
    steps, done = _real(step), tuple(dict(item) for item in image.steps)
    if steps_to_data(steps)[: len(done)] != done:
        raise ValueError(
            f"leaf {image.leaf} is processed by {list(done)}, which is not what the plan begins "
            f"with: {list(steps_to_data(steps))}"
        )
    return replace(
        step, steps=tuple(steps[len(done) :]), layout="hwc", shape=image.shape, bounds=(0.0, 255.0)
    )
