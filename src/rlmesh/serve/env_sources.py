"""What envs are made from: a registered id, or something that returns one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rlmesh.serve.targets import is_env_like, load_target

__all__ = ["EnvSource", "env_source"]


class EnvSource(Protocol):
    """Makes envs."""

    tags: Any
    """What the envs' leaves mean, or None where they say so themselves."""

    def one(self) -> Any:
        """Return a new env."""
        ...

    def vector(self, lanes: int, mode: str) -> Any:
        """Return gymnasium's vector env of ``lanes`` new ones; ``mode`` is sync or async."""
        ...


def env_source(target: Any, binding: Mapping[str, Any]) -> EnvSource:
    """Return where the envs come from.

    Args:
        target: the id of a registered env; ``module:name`` of the following; a callable that
            returns an env; an object or class with ``make`` (and ``prepare`` and ``tags``, if it
            likes); an env.
        binding: its keyword arguments.

    Raises:
        ImportError: nothing of that name, or no gymnasium for a registered env.
        TypeError: it makes no env, or does not take ``binding``.
    """
    if isinstance(target, str):
        name = target
        found = _find(target)
        if found is None:
            return Registered(_gymnasium(f"--env {target}"), target, binding)
        target = found
    else:
        name = getattr(target, "__qualname__", type(target).__qualname__)
    if is_env_like(target) and not isinstance(target, type):
        if binding:
            raise TypeError(f"{name} is an env already and takes no {', '.join(sorted(binding))}")
        return Given(target)
    if callable(getattr(target, "make", None)) and not is_env_like(target):
        factory = target() if isinstance(target, type) else target
        prepare = getattr(factory, "prepare", None)
        if callable(prepare):
            prepare()
        return Factory(factory.make, binding, f"{name}.make", getattr(factory, "tags", None))
    if not callable(target):
        raise TypeError(
            f"{name} is {type(target).__name__}: expected a function or class that makes an env"
        )
    return Factory(target, binding, name, None)


def _find(target: str) -> Any:
    """Return what ``module:name`` names, or None for a registered id.

    Gymnasium, too, writes ``module:Name-v0``, where the module registers the env.
    """
    name = target.partition(":")[2]
    if not all(part.isidentifier() for part in name.split(".")):
        return None
    try:
        return load_target(target)
    except ImportError:
        if _is_registered(name):
            return None
        raise


def _is_registered(env_id: str) -> bool:
    try:
        import gymnasium
    except ImportError:
        return False
    return env_id in gymnasium.registry


def _gymnasium(what: str) -> Any:
    try:
        import gymnasium
    except ImportError as exc:
        raise ImportError(
            f"rlmesh.serve {what} requires gymnasium: pip install 'rlmesh[gymnasium]'"
        ) from exc
    return gymnasium


class Registered:
    """Envs that gymnasium knows by an id."""

    tags = None

    def __init__(self, gymnasium: Any, env_id: str, kwargs: Mapping[str, Any]) -> None:
        self._gymnasium = gymnasium
        self._id = env_id
        self._kwargs = kwargs

    def one(self) -> Any:
        return self._registered(lambda: self._gymnasium.make(self._id, **self._kwargs))

    def vector(self, lanes: int, mode: str) -> Any:
        gymnasium = self._gymnasium
        if not hasattr(gymnasium, "VectorizeMode"):  # before 1.0, make_vec made experimental envs
            return _vectorize(gymnasium, self.one, lanes, mode)
        return self._registered(
            lambda: gymnasium.make_vec(
                self._id, num_envs=lanes, vectorization_mode=mode, **self._kwargs
            )
        )

    def _registered(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except self._gymnasium.error.UnregisteredEnv as exc:
            raise ImportError(
                f"{exc} Is a package that registers it missing? Name it with --package"
            ) from exc


class Factory:
    """Envs that a callable returns."""

    def __init__(
        self, function: Callable[..., Any], kwargs: Mapping[str, Any], name: str, tags: Any
    ) -> None:
        _check_call(function, kwargs, name)
        self._function = function
        self._kwargs = kwargs
        self._name = name
        self.tags = tags

    def one(self) -> Any:
        env = self._function(**self._kwargs)
        if not is_env_like(env) or isinstance(env, type):
            raise TypeError(
                f"{self._name}() returned {type(env).__name__}: expected an env with reset() and "
                "step()"
            )
        return env

    def vector(self, lanes: int, mode: str) -> Any:
        return _vectorize(_gymnasium("--vectorization-mode"), self.one, lanes, mode)


class Given:
    """The one env that was there already."""

    tags = None

    def __init__(self, env: Any) -> None:
        self._env: Any = env

    def one(self) -> Any:
        if self._env is None:
            raise TypeError("one env cannot be several lanes; name the class that makes it")
        env, self._env = self._env, None
        return env

    def vector(self, lanes: int, mode: str) -> Any:
        raise TypeError("an env that is made already cannot be vectorized; name its class")


def _check_call(function: Callable[..., Any], kwargs: Mapping[str, Any], name: str) -> None:
    """Raise TypeError for keyword arguments that do not fit, before anything is made."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**kwargs)
    except TypeError as exc:
        raise TypeError(
            f"{name}{signature} cannot be called with {', '.join(kwargs) or 'no arguments'}: "
            f"{exc}; they are a JSON object in --kwargs-json or RLMESH_MAKE_KWARGS"
        ) from None


def _vectorize(gymnasium: Any, make: Callable[[], Any], lanes: int, mode: str) -> Any:
    vector = gymnasium.vector
    kinds = {"sync": vector.SyncVectorEnv, "async": vector.AsyncVectorEnv}
    return kinds[mode]([make] * lanes)
