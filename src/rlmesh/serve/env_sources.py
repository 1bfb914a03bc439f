"""What envs are made from: a factory, a registered id, or something that returns one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from rlmesh.envs.factory import EnvFactory, bind_make, factory_framework, is_factory
from rlmesh.envs.supply import EnvSupply
from rlmesh.errors import add_note
from rlmesh.serve.targets import is_env_like, kind_of_object, load_target
from rlmesh.values import Framework

__all__ = ["EnvSource", "env_source", "releasing"]


class EnvSource:
    """Makes envs with the same keyword arguments, and lets go of what that took.

    Attributes:
        thing: what makes them, for those who describe it.
        tags: what the envs' leaves mean, or None where they say so themselves.
        framework: what they take and give, or None where any will do.
        edition: the workflow edition it was authored against, or None.
    """

    tags: Any = None
    framework: Framework | None = None
    edition: str | None = None

    def __init__(self, thing: Any, factory: Any, kwargs: Mapping[str, Any], name: str) -> None:
        self.thing = thing
        self._supply = EnvSupply(factory)
        self._kwargs = kwargs
        self._name = name

    def one(self) -> Any:
        """Return a new env."""
        env = self._supply.make(**self._kwargs)
        if not is_env_like(env) or isinstance(env, type):
            raise TypeError(
                f"{self._name}() returned {type(env).__name__}: expected an env with reset() and "
                "step()"
            )
        return env

    def vector(self, lanes: int, mode: str) -> Any:
        """Return gymnasium's vector env of ``lanes`` new ones; ``mode`` is sync or async."""
        self._supply.prepare()
        return _vectorize(_gymnasium("--vectorization-mode"), self.one, lanes, mode)

    def hand_over(self) -> None:
        """Leave the envs made so far to the server, which closes them."""
        self._supply.hand_over()

    def close(self) -> None:
        """Close the envs that nobody took over, and what made them. Idempotent."""
        self._supply.close()


@contextmanager
def releasing(source: EnvSource) -> Generator[None, None, None]:
    """Close ``source`` after the block; after an error, what closing raises is noted on that."""
    try:
        yield
    except BaseException as exc:
        try:
            source.close()
        except Exception as second:
            add_note(exc, f"while closing what was made: {type(second).__name__}: {second}")
        raise
    source.close()


def env_source(target: Any, binding: Mapping[str, Any]) -> EnvSource:
    """Return where the envs come from; nothing is made yet.

    Args:
        target: an :class:`~rlmesh.EnvFactory` or its class; the id of a registered env;
            ``module:name`` of one of the others; a callable that returns an env; any object or
            class with ``make`` (and ``prepare``, ``close`` and ``tags``, if it likes); an env.
        binding: its keyword arguments.

    Raises:
        ImportError: nothing of that name, or no gymnasium for a registered env.
        TypeError: it makes no env, or does not take ``binding``.
        ParamError: ``binding`` does not fit the params that a factory declares.
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
    if kind_of_object(target) == "model":
        raise TypeError(f"{name} is a model: expected what makes an env; serve it with --model")
    if is_factory(target):
        return _Factory(target, binding, name)
    if not callable(target):
        raise TypeError(
            f"{name} is {type(target).__name__}: expected a function or class that makes an env"
        )
    _check_call(target, binding, name)
    return EnvSource(target, _Makes(target), binding, name)


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


class _Makes:
    """A function that returns an env, as a factory."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make


class _Factory(EnvSource):
    """Envs of a factory, made once its params are known to fit."""

    def __init__(self, target: Any, binding: Mapping[str, Any], name: str) -> None:
        factory: Any = target() if isinstance(target, type) else target
        kwargs = bind_make(factory, binding)
        _check_call(factory.make, kwargs, f"{name}.make")
        super().__init__(target, factory, kwargs, f"{name}.make")
        self.framework = factory_framework(factory)
        self.edition = getattr(factory, "workflow_edition", None)
        if not isinstance(factory, EnvFactory):  # whose envs say themselves what they mean
            self.tags = getattr(factory, "tags", None)


class Registered(EnvSource):
    """Envs that gymnasium knows by an id."""

    def __init__(self, gymnasium: Any, env_id: str, kwargs: Mapping[str, Any]) -> None:
        make = partial(gymnasium.make, env_id)
        super().__init__(make, _Makes(make), kwargs, env_id)
        self._gymnasium = gymnasium
        self._id = env_id

    def one(self) -> Any:
        return self._registered(super().one)

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


class Given(EnvSource):
    """The one env that was there already."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, _Makes(self._give), {}, type(env).__qualname__)
        self._env: Any = env

    def _give(self) -> Any:
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
    try:
        return kinds[mode]([make] * lanes)
    except AttributeError as exc:
        if isinstance(exc.obj, gymnasium.Env) or not is_env_like(exc.obj):
            raise  # the author's own
        raise TypeError(
            f"gymnasium cannot join these envs, as it joins only its own: {exc}; drop "
            "--vectorization-mode, and they are lanes of their own"
        ) from exc
