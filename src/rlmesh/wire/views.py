"""Observation views and processed images on the wire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlmesh.errors import ProtocolException
from rlmesh.values import ObservationView, ProcessedImage
from rlmesh.wire.meta import decode_map, fill_map

__all__ = ["fill_images", "fill_view", "read_images", "read_view"]


def fill_view(message: Any, view: ObservationView) -> None:
    """Write ``view`` into an (empty) ``ObservationView`` message."""
    message.SetInParent()
    message.leaves.extend(view.leaves)
    fill_images(message.images, view.images)


def read_view(message: Any) -> ObservationView:
    """Return the view that an ``ObservationView`` message holds; it is not judged.

    Raises:
        ProtocolException: it holds none.
    """
    return ObservationView(tuple(message.leaves), read_images(message.images))


def fill_images(field: Any, images: Iterable[ProcessedImage]) -> None:
    """Add ``images`` to a repeated field of ``ProcessedImage`` messages."""
    for image in images:
        message = field.add(leaf=image.leaf, shape=image.shape, digest=image.digest)
        message.libraries.update(image.libraries)
        for step in image.steps:
            fill_map(message.steps.add(), step, what="image step")


def read_images(field: Any) -> tuple[ProcessedImage, ...]:
    """Return what :func:`fill_images` wrote; it is not judged.

    Raises:
        ProtocolException: something is no image.
    """
    return tuple(_read_image(message) for message in field)


def _read_image(message: Any) -> ProcessedImage:
    shape = tuple(message.shape)
    if len(shape) != 3:
        raise ProtocolException(
            f"processed image of leaf {message.leaf}: expected height, width and channels as its "
            f"shape, got {list(shape)}"
        )
    height, width, channels = shape
    return ProcessedImage(
        leaf=message.leaf,
        shape=(height, width, channels),
        steps=tuple(decode_map(step) for step in message.steps),
        libraries=dict(message.libraries),
        digest=message.digest,
    )
