"""The simulators, built in whichever process serves them."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any

import gymnasium

__all__ = ["OwnThread", "cheetah", "cheetahs", "pusht", "reach"]


class OwnThread(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Fails if it is ever called from another thread than the first time."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.thread: int | None = None
        self.calls: list[str] = []

    def _check(self, call: str) -> None:
        if self.thread is None:
            self.thread = threading.get_ident()
        assert threading.get_ident() == self.thread, f"{call} came on another thread"
        self.calls.append(call)

    def reset(self, **arguments: Any) -> Any:
        self._check("reset")
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self._check("step")
        return super().step(action)

    def render(self) -> Any:
        self._check("render")
        return super().render()

    def close(self) -> None:
        self._check("close")
        super().close()


def _make(id_: str, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what simulators warn of when they are imported
        if id_.startswith("Meta-World"):
            import metaworld  # noqa: F401
        if id_.startswith("gym_pusht"):
            import gym_pusht  # noqa: F401
        return gymnasium.make(id_, disable_env_checker=True, **keywords)


def cheetah(steps: int = 1000) -> Any:
    """MuJoCo's HalfCheetah, rendering 64x48, bound to one thread."""
    env = _make(
        "HalfCheetah-v5",
        render_mode="rgb_array",
        width=64,
        height=48,
        max_episode_steps=steps,
    )
    return OwnThread(env)


def cheetahs(kind: str, lanes: int = 2) -> Any:
    """The same as lanes, or in gymnasium's vector env ``kind``."""
    if kind == "lanes":
        return [cheetah() for _ in range(lanes)]
    return getattr(gymnasium.vector, kind)([cheetah] * lanes)


def reach() -> Any:
    """Meta-World's reach task, whose observations lie outside the space it declares."""
    return _make("Meta-World/MT1", env_name="reach-v3", seed=1)


def pusht() -> Any:
    """PushT with 96x96 pixels and the agent's position."""
    return _make("gym_pusht/PushT-v0", obs_type="pixels_agent_pos", render_mode="rgb_array")


def served(name: str, policy: str | None = None, **keywords: Any) -> Any:
    """Build one of the above in a server process, under a validation policy."""
    if policy is not None:
        os.environ["RLMESH_VALIDATION_POLICY"] = policy
    return globals()[name](**keywords)
