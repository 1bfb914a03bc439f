"""An adapter that no spec can describe, because it remembers what the policy said before."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlmesh.adapters import AdapterBase

__all__ = ["TemporalEnsembling"]


class TemporalEnsembling(AdapterBase[np.ndarray]):
    """Average all that overlapping chunks say about the present step.

    The policy predicts a chunk at every step. Of each chunk that reaches this step one row is about
    it; their mean is executed, the oldest weighted most: exp(-decay * i), i = 0 for the oldest.
    Source: T. Zhao et al., "Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware"
    (ACT), arXiv:2304.13705, algorithm 2.

    A mean of numbers is right for positions, joint angles and small displacements. It is not right
    for rotations that may differ much, nor for a gripper that is open or closed.

    Args:
        inner: converts observations, and the averaged action, as `rlmesh.adapters.resolve` made it.
        decay: of the weights; 0 weights all chunks alike.

    One episode at a time: use it on a single env.
    """

    def __init__(self, inner: AdapterBase[np.ndarray], decay: float = 0.01) -> None:
        self.inner = inner
        self.decay = decay
        self.chunks: list[np.ndarray] = []  # what is left of each, oldest first

    def transform_obs(self, raw_obs: Any) -> Any:
        return self.inner.transform_obs(raw_obs)

    def transform_action(self, raw_action: Any) -> np.ndarray:
        """The env's action for a chunk [H, A] that begins at this step."""
        self.chunks.append(np.asarray(raw_action, np.float64))
        present = np.stack([chunk[0] for chunk in self.chunks])
        weights = np.exp(-self.decay * np.arange(len(present)))
        self._advance()
        return self.inner.transform_action(weights @ present / weights.sum())

    def observe(self, raw_obs: Any) -> None:
        """A step was taken without a prediction: what was said about it is past."""
        self._advance()
        self.inner.observe(raw_obs)

    def reset(self) -> None:
        self.chunks.clear()
        self.inner.reset()

    def explain(self) -> str:
        return f"temporal ensembling, weights exp(-{self.decay} i), around\n{self.inner.explain()}"

    def _advance(self) -> None:
        self.chunks = [chunk[1:] for chunk in self.chunks if len(chunk) > 1]
