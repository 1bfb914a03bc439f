"""What a client asks to see of the observations, compiled for a server's codec."""

from __future__ import annotations

from rlmesh.spaces import Box, Space
from rlmesh.values import ObservationView, SpacePart, leaf_spaces
from rlmesh.values.views import Replaced

__all__ = ["compile_view"]


def compile_view(view: ObservationView, space: Space) -> tuple[SpacePart, dict[int, str]]:
    """Return the part of ``space`` to send, and why which images are sent as they are.

    Raises:
        ValueError: the view does not fit the space.
    """
    spaces = [leaf for _, leaf in leaf_spaces(space)]
    for leaf in view.leaves:
        if leaf >= len(spaces):
            raise ValueError(
                f"observation view: expected leaves below {len(spaces)}, got leaf {leaf}"
            )
    if len(set(view.leaves)) != len(view.leaves):
        raise ValueError(f"observation view: a leaf is named twice: {list(view.leaves)}")
    replaced: dict[int, Replaced] = {}
    refused: dict[int, str] = {}
    for image in view.images:
        leaf = image.leaf
        if leaf not in view.leaves or leaf in replaced or leaf in refused:
            raise ValueError(
                f"observation view: leaf {leaf} is processed, but it is not sent, or sent twice"
            )
        # Only now: a server whose clients process nothing needs no adapters.
        from rlmesh.adapters.pushdown import Unlike, frame_processor

        try:
            process = frame_processor(image, spaces[leaf])
        except ValueError as exc:
            raise ValueError(f"observation view: {exc}") from None
        except Unlike as why:
            refused[leaf] = str(why)
        else:
            replaced[leaf] = Replaced(Box(0, 255, image.shape, "uint8"), process)
    return SpacePart(frozenset(view.leaves), replaced), refused
