"""The parts of an env's envelope: its spaces, its tags, its contract branches, its params.

An env has to be built to know its spaces. It is built once, or once a contract branch, and closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, cast

from rlmesh.describing.badges import badge, guarded
from rlmesh.describing.targets import Target, is_env_like, method_of
from rlmesh.envs import binding
from rlmesh.envs.branches import BRANCH_KEY, branch_of, branches
from rlmesh.envs.factory import bind_make, is_factory
from rlmesh.envs.hosts import is_vector_env, read_metadata, read_space
from rlmesh.envs.supply import EnvSupply
from rlmesh.spaces import Space
from rlmesh.wire.contract import EnvContract

__all__ = ["bare", "bind_env", "describe_env"]

_log = logging.getLogger("rlmesh")


def describe_env(target: Target, contract: EnvContract | None = None) -> dict[str, Any]:
    """Return the parts of the envelope that only an env has.

    Args:
        target: an env, an env class, a factory or its class, or a callable that returns an env.
        contract: of the env made of it that is being served: nothing is built then.
    """
    thing = target.thing
    built = BuiltEnvs(thing) if contract is None else ServedEnv(contract)
    try:
        spec = built.spec({})
        described: dict[str, Any] = {
            "env_spec": spec,
            "env_tags": built.tags or guarded(lambda: _declared_tags(thing)),
        }
        if _branches(thing):
            described["env_contracts"] = guarded(lambda: _contracts(thing, built))
    finally:
        built.close()
    described["params"] = guarded(lambda: _params(thing))
    return described


def bind_env(target: Target) -> Callable[[Mapping[str, Any]], Any]:
    """Return what checks the params of a variant of ``target``."""
    thing = target.thing

    def bind(params: Mapping[str, Any]) -> Any:
        if is_factory(thing):
            return bind_make(bare(thing), params)
        return binding.resolve(None, thing, params)

    return bind


class Envs(Protocol):
    """Where the spaces come from."""

    tags: Any
    """What the env with the defaults publishes of its leaves, or None."""

    def spec(self, branch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the spaces of the env of a branch ({}: by default), or why there are none."""
        ...

    def close(self) -> None: ...


class BuiltEnvs:
    """Envs that are built for the envelope, each once, one at a time, and closed when it was read.

    A factory lives as long as this does. An env that was handed over is read and left alone.
    """

    def __init__(self, thing: Any) -> None:
        self._thing = thing
        self.tags: Any = None
        self._supply: EnvSupply | None = None
        self._default = guarded(lambda: branch_of(thing, {})) if _branches(thing) else {}
        self._default_spec = guarded(lambda: self._read({}))

    def spec(self, branch: Mapping[str, Any]) -> dict[str, Any]:
        if not branch or branch == self._default:
            return self._default_spec
        return guarded(lambda: self._read(branch))

    def close(self) -> None:
        if self._supply is not None:
            _quietly(self._supply.close)

    def _read(self, branch: Mapping[str, Any]) -> dict[str, Any]:
        thing = self._thing
        if is_env_like(thing) and not isinstance(thing, type):
            return self._look(thing)
        env = self._make(branch)
        try:
            return self._look(env)
        finally:
            close = method_of(env, "close")
            if close is not None:
                _quietly(close)

    def _make(self, branch: Mapping[str, Any]) -> Any:
        if not is_factory(self._thing):
            return self._thing(**branch)
        if self._supply is None:
            self._supply = EnvSupply(self._thing)
        env = self._supply.make(**branch)
        self._supply.hand_over()
        return env

    def _look(self, env: Any) -> dict[str, Any]:
        spec = _spec(env)
        if self.tags is None:
            self.tags = guarded(lambda: _tags_in(read_metadata(env)))
        return spec


class ServedEnv:
    """The env that is being served, as its contract has it. No other is built beside it."""

    def __init__(self, contract: EnvContract) -> None:
        self._contract = contract
        self._branch: Any = (contract.metadata or {}).get(BRANCH_KEY)
        self.tags: Any = guarded(lambda: _tags_in(contract.metadata))

    def spec(self, branch: Mapping[str, Any]) -> dict[str, Any]:
        contract = self._contract
        if branch and branch != self._branch:
            return badge(RuntimeError("not built: another contract branch is being served"))
        spec = _spaces(contract.observation_space, contract.action_space)
        return {**spec, "num_envs": contract.num_envs} if contract.num_envs > 1 else spec

    def close(self) -> None: ...


def _spec(env: Any) -> dict[str, Any]:
    """Return the spaces of one lane, and how many lanes a vector env has."""
    if is_vector_env(env):
        spec = _spaces(
            read_space(env, "single_observation_space"), read_space(env, "single_action_space")
        )
        return {**spec, "num_envs": int(env.num_envs)}
    return _spaces(read_space(env, "observation_space"), read_space(env, "action_space"))


def _spaces(observation: Space, action: Space) -> dict[str, Any]:
    return {
        "observation_space": observation._to_dict(),  # pyright: ignore[reportPrivateUsage]
        "action_space": action._to_dict(),  # pyright: ignore[reportPrivateUsage]
    }


def _declared_tags(thing: Any) -> dict[str, Any] | None:
    """Return the tags of the class, or None."""
    tags = getattr(thing, "tags", None)
    if tags is None:
        return None
    from rlmesh.adapters.tags import EnvTags

    if not isinstance(tags, EnvTags):
        raise TypeError(f"tags must be EnvTags or None, got {type(tags).__name__}")
    return tags.to_dict()


def _tags_in(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if not metadata:
        return None
    from rlmesh.adapters.resolution import published_tags

    tags = published_tags(metadata)
    return None if tags is None else tags.to_dict()


def _branches(thing: Any) -> bool:
    """Whether it is a factory with contract branches, as far as it can be asked."""
    return not is_env_like(thing) and bool(guarded(lambda: getattr(thing, "tag_params", ())))


def _contracts(thing: Any, envs: Envs) -> dict[str, Any]:
    """Return every contract branch, the one of the defaults first."""
    default = branch_of(thing, {})
    rest = [branch for branch in branches(thing) if branch != default]
    return {
        "discriminants": list(thing.tag_params),
        "branches": [
            {
                "params": branch,
                "default": branch == default,
                "env_tags": guarded(partial(_branch_tags, thing, branch)),
                "env_spec": envs.spec(branch),
            }
            for branch in (default, *rest)
        ],
    }


def _branch_tags(thing: Any, branch: Mapping[str, Any]) -> dict[str, Any] | None:
    tags = thing.tags_for(**branch)
    return None if tags is None else tags.to_dict()


def _params(thing: Any) -> dict[str, Any]:
    """Return what may be passed to whatever makes the env."""
    if is_factory(thing):
        return binding.describe(getattr(thing, "params", None), bare(thing).make)
    if is_env_like(thing) and not isinstance(thing, type):
        return binding.describe(None, _nothing)
    return binding.describe(None, thing)


def bare(thing: Any) -> Any:
    """Return an instance of a class that none of the author's code has run for; others as they are.

    Enough to look at its methods, bound.
    """
    return object.__new__(cast("type[Any]", thing)) if isinstance(thing, type) else thing


def _nothing() -> None:
    """Take no parameters."""


def _quietly(close: Any) -> None:
    try:
        close()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        _log.warning("closing what was described failed: %s", badge(exc)["error"])
