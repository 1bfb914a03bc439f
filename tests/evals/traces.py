"""What an evaluation did, as something equal only to what is the same to the last bit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

import rlmesh

__all__ = ["Trace", "numbers", "traced"]


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key in sorted(value):
            digest.update(key.encode())
            _feed(digest, value[key])
    elif isinstance(value, (float, int)):
        digest.update(repr(value).encode())
    else:
        array = np.asarray(value)
        digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())


class Trace(rlmesh.RunHooks):
    """Hashes each episode's observations, actions, rewards and flags."""

    def __init__(self) -> None:
        self.digests: dict[int, Any] = {}

    def on_episode_start(self, *, episode: int, seed: int | None) -> None:
        self.digests[episode] = hashlib.sha256(repr(seed).encode())

    def on_step(self, event: rlmesh.StepEvent) -> None:
        digest = self.digests[event.episode]
        for part in (event.step, event.observation, event.action, event.reward):
            _feed(digest, part)
        digest.update(bytes([event.terminated, event.truncated]))


def numbers(result: rlmesh.RunResult) -> list[tuple[Any, ...]]:
    """Return what a run's episodes came to, without its timings."""
    return [
        (
            episode.index,
            episode.seed,
            episode.steps,
            episode.reward.hex(),
            episode.terminated,
            episode.truncated,
            episode.success,
            episode.success_once,
        )
        for episode in result.episodes
    ]


def traced(model: Any, env: Any, **arguments: Any) -> list[tuple[Any, ...]]:
    """Run, and return the numbers with each episode's digest."""
    trace = Trace()
    result = rlmesh.run(model, env, hooks=trace, **arguments)
    return [(*row, trace.digests[row[0]].hexdigest()) for row in numbers(result)]
