"""Envs that speak torch, jax or another framework, with the face of an env that speaks NumPy."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rlmesh.envs.hosts import (
    Bind,
    as_it_is,
    brought,
    is_vector_env,
    peek,
    read_space,
    split_reset,
    split_step,
)
from rlmesh.values import NUMPY, Framework
from rlmesh.values.frameworks import check_place, framework_named
from rlmesh.values.tree import is_array, tree_adopter

__all__ = ["FrameworkEnv", "env_binder"]


def env_binder(
    framework: str | Framework | None, device: Any = None, *, owned: bool = False
) -> Bind:
    """Return what gives an env of ``framework`` the face of a NumPy one.

    Args:
        framework: what the env's actions are given as: ``"torch"``, ``"jax"``, ``"numpy"``, an
            object with the members of :class:`~rlmesh.values.Framework`, or None for NumPy.
        device: where its actions are put; None leaves them where the framework has them.
        owned: nobody else writes to the actions it will be given.

    Raises:
        ValueError: there is no such framework; or ``device`` is given for one that has none, or is
            none of its devices.
        ImportError: the framework's library is not installed.
    """
    spoken = framework_named(framework)
    if device is not None:
        if spoken is None or not spoken.has_device:
            raise ValueError(
                f"device={device!r} requires a framework with a device (framework='torch' or "
                f"'jax'), and the env's actions are {NUMPY.name if spoken is None else spoken.name}"
                " arrays; drop it, or say which framework the env speaks"
            )
        check_place(spoken, device, "actions")
    if spoken is None or spoken is NUMPY:
        return as_it_is
    return lambda env: FrameworkEnv(env, spoken, device, owned=owned)


class FrameworkEnv:
    """An env whose actions, observations and rewards are a framework's arrays.

    Array leaves of the actions it is given become the framework's, on ``device``. Rewards, flags
    and what infos hold come back as NumPy arrays, in one transfer a step where they lie on a
    device; observations stay for the encoder, which reads what is asked for. Everything else is the
    env's own.

    Raises:
        NotImplementedError: the env is one of gymnasium's that fan out over NumPy buffers.
    """

    def __init__(
        self, env: Any, framework: Framework, device: Any = None, *, owned: bool = False
    ) -> None:
        lanes = is_vector_env(env)
        _check_fan_out(env, framework)
        self.env = env
        self._space = read_space(env, "single_observation_space" if lanes else "observation_space")
        self._framework = framework
        self._device = device
        self._adopt = tree_adopter(framework, owned=owned)
        self._known: set[type] = {framework.array_type}

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # not made yet: copy and pickle ask
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, **arguments: Any) -> tuple[Any, Mapping[str, Any]]:
        """Reset the env; options, ``reset_mask`` among them, are passed as they are."""
        observation, info = split_reset(self.env.reset(**arguments), self._space)
        self._look(observation)
        return observation, brought(info, self._framework)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
        """Step the env with an action of NumPy arrays."""
        result = self.env.step(self._adopt(action, self._device))
        observation, *outcome = split_step(result)
        self._look(observation)
        return (observation, *brought(tuple(outcome), self._framework))

    def _look(self, tree: Any) -> None:
        """Warn of array leaves that are not the framework's, once for each of their types."""
        kind = cast("type[Any]", type(tree))
        if kind in self._known:
            return
        if isinstance(tree, Mapping):
            for item in cast("Mapping[Any, Any]", tree).values():
                self._look(item)
        elif isinstance(tree, (list, tuple)):
            for item in cast("Sequence[Any]", tree):
                self._look(item)
        else:
            self._known.add(kind)
            if is_array(tree) and not self._framework.is_array(tree):
                name = self._framework.name
                warnings.warn(
                    f"a {name} env returned a {kind.__module__}.{kind.__qualname__} in its "
                    f"observation: it is read, but {name} arrays are expected of an env served "
                    f"with framework={name!r}",
                    UserWarning,
                    stacklevel=3,
                )


def _check_fan_out(env: Any, framework: Framework) -> None:
    """Refuse gymnasium's own vector envs of several lanes, which hand NumPy buffers around."""
    kinds = cast("type[Any]", type(env)).__mro__
    fans_out = any(
        kind.__name__ in ("SyncVectorEnv", "AsyncVectorEnv")
        and kind.__module__.startswith("gymnasium.vector")
        for kind in kinds
    )
    if fans_out and int(peek(env, "num_envs") or 0) > 1:
        raise NotImplementedError(
            f"{type(env).__name__} joins its lanes with NumPy, so it cannot serve {framework.name} "
            "envs; serve a list of single envs, or an env that is batched natively"
        )
