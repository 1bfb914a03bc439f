"""Duck-typed envs without gymnasium: one whose methods a test writes, one that waits at a gate."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlmesh.spaces import Box, Discrete, Space

__all__ = ["BlockingEnv", "FunctionEnv", "Gate"]

POINT = Box(-np.inf, np.inf, (4,), "float32")
STEER = Box(-1.0, 1.0, (2,), "float32")


class FunctionEnv:
    """An env with functions for methods; ``calls`` has (method, thread) of each call.

    By default every observation is ``[steps, 0, 0, 0]``, every reward 1 and no episode ends.
    """

    metadata: ClassVar[dict[str, Any]] = {}
    render_mode = "rgb_array"

    def __init__(
        self,
        *,
        reset: Callable[..., Any] | None = None,
        step: Callable[[Any], Any] | None = None,
        render: Callable[[], Any] | None = None,
        close: Callable[[], Any] | None = None,
        observation_space: Space = POINT,
        action_space: Space = STEER,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space
        self.calls: list[tuple[str, int]] = []
        self.actions: list[Any] = []
        self.closed = threading.Event()
        self._functions = {"reset": reset, "step": step, "render": render, "close": close}
        self._steps = 0

    def _note(self, name: str) -> Callable[..., Any] | None:
        self.calls.append((name, threading.get_ident()))
        return self._functions[name]

    def observation(self) -> Any:
        return np.array([self._steps, 0, 0, 0], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        function = self._note("reset")
        self._steps = 0
        return function(seed=seed) if function else (self.observation(), {})

    def step(self, action: Any) -> Any:
        function = self._note("step")
        self._steps += 1
        self.actions.append(action)
        return function(action) if function else (self.observation(), 1.0, False, False, {})

    def render(self) -> Any:
        function = self._note("render")
        return function() if function else np.zeros((4, 6, 3), np.uint8)

    def close(self) -> Any:
        function = self._note("close")
        self.closed.set()
        return function() if function else None


class Gate:
    """Holds an env in its step until a test lets it go; works across processes, by files."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def pass_through(self) -> None:
        """Called by the env: say that it is here, and wait to be let go."""
        (self.folder / "entered").touch()
        deadline = time.monotonic() + 60.0
        while not (self.folder / "open").exists():
            if time.monotonic() > deadline:
                raise RuntimeError("the gate was never opened")
            time.sleep(0.002)
        for name in ("open", "entered"):
            (self.folder / name).unlink()

    @property
    def entered(self) -> bool:
        """Whether an env waits at the gate."""
        return (self.folder / "entered").exists()

    def open(self) -> None:
        """Let it go."""
        (self.folder / "open").touch()


class BlockingEnv:
    """Action 0 steps, 1 waits at the gate, 2 raises KeyError, 3 ends the episode.

    Args:
        gate: folder of the :class:`Gate`; its file ``closed`` appears when the env is closed.
        shape: of the observation, a float32 array full of the number of steps taken.
    """

    metadata: ClassVar[dict[str, Any]] = {}
    render_mode = None
    action_space = Discrete(4)

    def __init__(self, gate: str, shape: tuple[int, ...] = (4,)) -> None:
        self.gate = Gate(gate)
        self.observation_space = Box(-np.inf, np.inf, tuple(shape), "float32")
        self._steps = 0

    def _observation(self) -> Any:
        return np.full(self.observation_space.shape, self._steps, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._steps = 0
        return self._observation(), {}

    def step(self, action: int) -> Any:
        self._steps += 1
        if action == 1:
            self.gate.pass_through()
        elif action == 2:
            raise KeyError("boom")
        return self._observation(), 1.0, action == 3, False, {}

    def close(self) -> None:
        (self.gate.folder / "closed").touch()
