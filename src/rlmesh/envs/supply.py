"""The life of a factory: prepared before its first env, closed after its last."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

__all__ = ["EnvSupply"]


class EnvSupply:
    """Makes the envs of one factory, for whoever serves or runs it.

    ``prepare`` is called once, before the first env, and ``close`` once, after the last, also where
    making failed half-way. Both may be missing: anything with ``make`` is a factory.

    Args:
        factory: a factory, or a factory's class, which is made here.
    """

    def __init__(self, factory: Any) -> None:
        self.factory = factory() if isinstance(factory, type) else factory
        self._envs: list[Any] = []
        self._begun = False

    def prepare(self) -> None:
        """Prepare the factory unless that was done."""
        if not self._begun:
            self._begun = True
            _call(self.factory, "prepare")

    def make(self, **params: Any) -> Any:
        """Return a new env, which :meth:`close` will close."""
        self.prepare()
        env = self.factory.make(**params)
        self._envs.append(env)
        return env

    def hand_over(self) -> None:
        """Leave the envs made so far to somebody else to close."""
        self._envs.clear()

    def close(self) -> None:
        """Close the envs, the last one first, and then the factory. Idempotent.

        Every one is closed; the first error is raised.
        """
        with contextlib.ExitStack() as stack:
            if self._begun:
                self._begun = False
                stack.callback(_call, self.factory, "close")
            while self._envs:
                stack.callback(_call, self._envs.pop(0), "close")


def _call(thing: Any, name: str) -> None:
    method: Callable[[], Any] | None = getattr(thing, name, None)
    if callable(method):
        method()
