"""What an adapter remembers of an episode: the frames of its stacks and the last action."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlmesh.adapters.image_steps import Window

__all__ = ["EpisodeHistory", "stacked"]

Array = np.ndarray[Any, Any]


@dataclass
class EpisodeHistory:
    """The memory of one episode.

    Attributes:
        frames: the processed frames of each stacked input, by its index in the plan, newest last.
        steps: observations seen so far.
        action: the model's raw action of step ``action_step``.
    """

    frames: dict[int, deque[Array]] = field(default_factory=dict[int, "deque[Array]"])
    steps: int = 0
    action: Array | None = None
    action_step: int = -1

    def see(self, index: int, window: Window, frame: Array) -> None:
        """Remember one processed frame."""
        kept = self.frames.get(index)
        if kept is None:
            kept = self.frames[index] = deque(maxlen=window.span)
        kept.append(frame)

    def act(self, action: Array) -> None:
        """Remember the model's action for the observation seen last."""
        self.action = action
        self.action_step = self.steps - 1

    def previous(self) -> Array | None:
        """The action of the step before the observation seen last, None at the first one.

        Raises:
            ValueError: no action was recorded for that step.
        """
        step = self.steps - 1
        if step <= 0:
            return None
        if self.action_step != step - 1 or self.action is None:
            raise ValueError(
                f"the observation at step {step} reads the previous action but no action was "
                f"recorded for step {step - 1}; every executed action must pass through "
                "transform_action once, also one replayed from a chunk"
            )
        return self.action


def stacked(window: Window, frames: deque[Array]) -> Array:
    """The frames of a window on a new first axis, padded before the first of the episode."""
    out = np.empty((len(window.offsets), *frames[-1].shape), frames[-1].dtype)
    newest = len(frames) - 1
    for row, offset in enumerate(window.offsets):
        at = newest + offset
        if at >= 0:
            out[row] = frames[at]
        elif window.black:
            out[row] = window.pad
        else:
            out[row] = frames[0]
    return out
