"""An env under observation: what its reset and step returned, raised and took."""

from __future__ import annotations

import time
from typing import Any

from rlmesh.checks.crashes import CRASHES

__all__ = ["Watched", "watch"]


class Watched:
    """Stands in for an env wherever the server's own code drives one.

    Attributes:
        raw: what the last reset or step returned.
        seconds: how long it took.
        crash: what it raised, or None.
        resets, steps: the seconds of all of them.
    """

    def __init__(self, env: Any) -> None:
        self.inner = env
        self.raw: Any = None
        self.seconds = 0.0
        self.crash: BaseException | None = None
        self.resets: list[float] = []
        self.steps: list[float] = []

    def reset(self, **arguments: Any) -> Any:
        result = self._call(self.inner.reset, **arguments)
        self.resets.append(self.seconds)
        return result

    def step(self, action: Any) -> Any:
        result = self._call(self.inner.step, action)
        self.steps.append(self.seconds)
        return result

    def close(self) -> Any:
        return self.inner.close()

    def _call(self, function: Any, *args: Any, **arguments: Any) -> Any:
        self.raw, self.crash = None, None
        began = time.perf_counter()
        try:
            self.raw = function(*args, **arguments)
        except CRASHES as exc:
            self.crash = exc
            raise
        finally:
            self.seconds = time.perf_counter() - began
        return self.raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def watch(env: Any) -> Any:
    """Return ``env`` under observation; messages go on calling it by its own class."""
    return type(type(env).__name__, (Watched,), {})(env)
