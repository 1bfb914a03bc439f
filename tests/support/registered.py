"""Registers gymnasium envs when imported: what ``--package support.registered`` is for."""

from __future__ import annotations

from typing import Any

import gymnasium

from support.envs import Gate
from support.zoo import Countdown

__all__ = ["Gated"]


class Gated(Countdown):
    """Action 4 waits at the gate in ``folder``, whose file ``closed`` appears with the close."""

    def __init__(self, folder: str, length: int = 100, render_mode: str | None = None) -> None:
        super().__init__(length, render_mode=render_mode)
        self.gate = Gate(folder)

    def step(self, action: Any) -> Any:
        if action == 4:
            self.gate.pass_through()
        return super().step(action)

    def close(self) -> None:
        (self.gate.folder / "closed").touch()


gymnasium.register("rlmesh-test/Gated-v0", entry_point="support.registered:Gated")
gymnasium.register("rlmesh-test/Countdown-v0", entry_point="support.zoo:Countdown")
