"""The simulator of the image: what `python -m rlmesh.serve simulator:make_env` calls."""

from __future__ import annotations

from typing import Any

import gymnasium


def make_env(max_episode_steps: int = 500) -> Any:
    """Return the env; RLMESH_MAKE_KWARGS has its keyword arguments."""
    return gymnasium.make("CartPole-v1", max_episode_steps=max_episode_steps)
