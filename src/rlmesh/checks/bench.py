"""What is checked, and what several checks look at."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from rlmesh.checks.findings import Finding
from rlmesh.checks.playing import Actions, Play, Player, draw_actions, play
from rlmesh.envs.hosts import is_vector_env, peek
from rlmesh.envs.remote import RemoteEnv, RemoteVectorEnv
from rlmesh.serve.targets import is_address, is_env_like, load_target

if TYPE_CHECKING:
    from rlmesh.serve.env_sources import EnvSource
    from rlmesh.values import Framework

__all__ = ["Bench", "Recipe", "Subject", "subject_of"]


@dataclass(frozen=True)
class Recipe:
    """How another process makes the env: text only."""

    target: str
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    packages: tuple[str, ...] = ()

    def source(self) -> EnvSource:
        """Return what makes such envs in this process."""
        from rlmesh.serve.env_sources import env_source

        for package in self.packages:
            importlib.import_module(package)
        return env_source(self.target, self.kwargs)


@dataclass(frozen=True)
class Subject:
    """What is checked.

    Attributes:
        name: how reports call it.
        given: the env that is there already, or None.
        source: what makes envs, or None.
        recipe: the same for another process, or None where it could not find it.
        address: where it is served, or None.
        token: what its server asks for.
    """

    name: str
    given: Any = None
    source: EnvSource | None = None
    recipe: Recipe | None = None
    address: str | None = None
    token: str | None = None

    @property
    def remote(self) -> bool:
        """Whether only the outside of the env can be seen."""
        return self.address is not None or isinstance(self.given, (RemoteEnv, RemoteVectorEnv))


def subject_of(
    target: Any,
    kwargs: Mapping[str, Any],
    packages: Sequence[str] = (),
    token: str | None = None,
) -> Subject:
    """Return what ``target`` is; makes and dials nothing.

    Raises:
        TypeError: it is nothing that can be checked.
        ImportError: a module or name that is not there.
    """
    from rlmesh.serve.env_sources import Given, env_source

    if isinstance(target, str):
        if is_address(target):
            return Subject(target, address=target, token=token)
        recipe = Recipe(target, kwargs, tuple(packages))
        source = recipe.source()
        if isinstance(source, Given):  # the env itself goes by that name
            return Subject(target, given=source.one())
        return Subject(target, source=source, recipe=recipe)
    address = peek(target, "address")
    if isinstance(address, str) and not is_env_like(target):
        return Subject(address, address=address, token=token)
    if is_env_like(target) and not isinstance(target, type):
        known = getattr(peek(target, "spec"), "id", None)
        return Subject(str(known or type(target).__name__), given=target)
    name = str(getattr(target, "__qualname__", type(target).__qualname__))
    named = _named(target)
    recipe = None if named is None else Recipe(named, kwargs)
    return Subject(name, source=env_source(target, kwargs), recipe=recipe)


def _named(thing: Any) -> str | None:
    """Return ``module:name`` of a class or function that another process can import by it."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    try:
        return f"{module}:{name}" if load_target(f"{module}:{name}") is thing else None
    except (ImportError, ValueError):
        return None


def _remade(env: Any) -> Any:
    """Return another env like a registered one, wrappers and all; None where that fails."""
    gymnasium = sys.modules.get("gymnasium")
    spec = peek(env, "spec")
    if gymnasium is None or spec is None or is_vector_env(env):
        return None
    try:
        other: Any = gymnasium.make(spec, render_mode=peek(env, "render_mode"))
    except Exception:
        return None
    if _layers(other) == _layers(env):
        return other
    _close_quietly(other)
    return None


def _layers(env: Any) -> list[type[Any]]:
    found: list[type[Any]] = []
    while env is not None:
        found.append(cast("type[Any]", type(env)))
        env = inspect.getattr_static(env, "env", None)
    return found


class Bench:
    """A subject under check: its players, its actions, its first plays. A context manager.

    Args:
        subject: what is checked.
        steps: how many steps a play has.
        seed: the seed of the first play; the second has the next one.
    """

    def __init__(self, subject: Subject, steps: int, seed: int) -> None:
        self.subject = subject
        self.steps = steps
        self.seed = seed
        self.wire_steps: list[tuple[float, float]] = []
        """Of the play over a socket: (seconds seen by the client, seconds in the env) a step."""
        self.others_differ = False
        """Whether a new env, left alone, plays otherwise than the first."""
        self._spare: Any = None
        self._made = contextlib.ExitStack()
        if subject.source is not None:
            self._made.callback(_close_quietly, subject.source)

    @cached_property
    def player(self) -> Player:
        """The player of the first env; whatever making it raises passes."""
        subject = self.subject
        if subject.address is not None:
            return Player(self._dial(subject.address), remote=True)
        if subject.given is not None:
            return Player(subject.given, remote=subject.remote)
        return self._made.enter_context(self.another())

    def _dial(self, address: str) -> Any:
        from rlmesh import numpy as bound

        try:
            client: Any = bound.RemoteEnv(address, token=self.subject.token)
        except ValueError:  # several lanes; anything else is raised by the next line, too
            client = bound.RemoteVectorEnv(address, token=self.subject.token)
        self._made.callback(client.close)
        return client

    @cached_property
    def can_make(self) -> bool:
        """Whether there can be another env than the first."""
        if self.subject.source is None and self.subject.given is not None:
            self._spare = _remade(self.subject.given)
            self._made.callback(self._close_spare)
        return self.subject.source is not None or self._spare is not None

    def _close_spare(self) -> None:
        if self._spare is not None:
            _close_quietly(self._spare)

    @contextlib.contextmanager
    def new_env(self) -> Generator[Any, None, None]:
        """Give the block a new env, and close it after: simulators are not kept around."""
        if self.subject.source is not None:
            env = self.subject.source.one()
            self.subject.source.hand_over()
        else:
            env, self._spare = self._spare or _remade(self.subject.given), None
        try:
            yield env
        finally:
            _close_quietly(env)

    @contextlib.contextmanager
    def another(self) -> Generator[Player, None, None]:
        """Give the block the player of a new env."""
        with self.new_env() as env:
            yield Player(env, framework=self.framework)

    @property
    def framework(self) -> Framework | None:
        """What the envs speak, where that was said by what makes them."""
        return None if self.subject.source is None else self.subject.source.framework

    @cached_property
    def actions(self) -> Actions:
        """The actions of every play."""
        player = self.player
        space = player.contract.action_space
        return draw_actions(space, player.lanes, player.vector, self.steps, self.seed)

    @cached_property
    def first(self) -> Play:
        """The first env's play of the seed."""
        return play(self.player, self.seed, self.actions)

    @cached_property
    def second(self) -> Play:
        """The first env's play of the next seed; after the first one."""
        assert self.first.stopped is None
        return play(self.player, self.next_seed, self.actions)

    @property
    def next_seed(self) -> int:
        """The next seed that no lane of the first one has."""
        return self.seed + self.player.lanes

    def nothing_ended(self, check: str) -> list[Finding]:
        """Return that no episode was seen to end; nothing if one was."""
        if any(moment.ended for moment in self.first.moments):
            return []
        stopped = self.first.stopped
        if stopped is not None:
            return [Finding(check, "skipped", f"the first play ended early: {stopped.check}")]
        return [
            Finding(
                check,
                "skipped",
                f"no episode ended in {self.steps} steps",
                "give more steps than an episode has",
            )
        ]

    def noted(self, check: str) -> list[Finding]:
        """Return what the plays of the first env noted for a check."""
        stopped = self.first.stopped
        found = [stopped] if stopped is not None and stopped.check == check else []
        return [*found, *self.player.notes.of(check)]

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *exc: object) -> None:
        self._made.close()


def _close_quietly(env: Any) -> None:
    with contextlib.suppress(Exception):
        env.close()
