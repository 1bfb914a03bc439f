"""`EnvServer`: serve a simulator to another process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from rlmesh.envs.branches import check_expected_branch
from rlmesh.envs.core import EnvCore
from rlmesh.envs.factory import made_framework
from rlmesh.envs.framework_env import env_binder
from rlmesh.envs.hosts import (
    Bind,
    Host,
    LanesHost,
    ScalarHost,
    checked_env,
    is_vector_env,
    peek,
)
from rlmesh.envs.vector_host import SqueezedVectorEnv, VectorHost
from rlmesh.transport.address import make_address
from rlmesh.transport.options import ServeOptions, checked_options
from rlmesh.transport.serving import Server
from rlmesh.values import Framework, Report
from rlmesh.wire.contract import EnvContract

if TYPE_CHECKING:
    from rlmesh.adapters.tags import EnvTags

__all__ = ["EnvServer"]

ENV_TAGS_KEY = "rlmesh.adapters.v1.env_tags"


class EnvServer(Server):
    """Serves an env at one address, to one driving client at a time.

    The address is bound at construction; requests are answered by :meth:`serve` or :meth:`start`.
    Every env method (reset, step, render, close) runs on one thread: the one that calls
    :meth:`serve`, or the server's own after :meth:`start`.

    Args:
        env: an env with the gymnasium surface; a vector env (``num_envs``, ``single_*_space``); or
            a list of single envs, served as lanes that may be reset and stepped alone.
        address: ``"host:port"``, ``"port"``, ``"tcp://..."``, ``"http://..."`` or
            ``"unix:///path"``. Default: ``tcp://127.0.0.1:0``, a free port.
        host, port, path, transport: the same, in parts.
        options: lifetime and access; see :class:`ServeOptions`.
        tags: what the env's leaves mean (``rlmesh.adapters.EnvTags``), published to models; those
            in ``env.metadata`` are published as well. Checked against the spaces.
        close_env_on_shutdown: close the env when the server stops. Default True.
        framework: what ``env.step`` is given array leaves of actions as: ``"torch"``, ``"jax"``,
            ``"numpy"``, or an object with the members of ``rlmesh.values.Framework``. Default: what
            the env's factory is bound to (``rlmesh.torch.EnvFactory``), else NumPy. Observations
            and rewards of any framework are read anyway; frames of ``env.render()`` stay as they
            are.
        device: where those leaves are put, such as ``"cuda:0"``; for torch and jax.

    Raises:
        ConnectionError: the address cannot be bound.
        AdapterResolutionError: tags that do not fit the spaces.
        TypeError, ValueError: the env lacks a method or has a space that cannot travel; there is no
            such framework, or no such device of it; ``RLMESH_EXPECTED_ENV_BRANCH`` names another
            contract branch than the env's.
        ImportError: the framework's library is not installed.
        NotImplementedError: gymnasium's vector env of several lanes with torch or jax.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> with rlmesh.EnvServer(gym.make("CartPole-v1")) as server:
        ...     server.start()
        ...     server.env_contract
        EnvContract(id="CartPole-v1", num_envs=1)
    """

    def __init__(
        self,
        env: Any,
        address: str | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        path: str | os.PathLike[str] | None = None,
        transport: str | None = None,
        options: ServeOptions | None = None,
        tags: EnvTags | None = None,
        close_env_on_shutdown: bool = True,
        framework: str | Framework | None = None,
        device: Any = None,
    ) -> None:
        where = make_address(
            address, host=host, port=port, path=path, transport=transport, bind=True
        )
        if framework is None:
            framework = made_framework(_first(env))
        bind = env_binder(framework, device, owned=True)
        core = EnvCore(
            lambda report: _tagged(_make_host(env, report, bind), tags),
            where,
            checked_options(options),
            close_env=close_env_on_shutdown,
        )
        super().__init__(core)

    @property
    def env_contract(self) -> EnvContract:
        """What clients are told about the env."""
        return self._core.host.contract

    @property
    def spec(self) -> EnvContract:
        """The same as :attr:`env_contract`."""
        return self._core.host.contract


def _first(env: Any) -> Any:
    """Return the env, or the first of several."""
    if isinstance(env, (list, tuple)):
        return next(iter(cast("Sequence[Any]", env)), None)
    return env


def _make_host(env: Any, report: Report, bind: Bind) -> Host:
    if isinstance(env, (list, tuple)):
        envs = cast("Sequence[Any]", env)
        if len(envs) == 1 and not is_vector_env(envs[0]):
            return ScalarHost(envs[0], report, bind)  # the wire knows no vector of one
        return LanesHost(envs, report, bind)
    if isinstance(env, type):
        raise TypeError(
            f"env must be an instance, got the class {env.__name__}; construct it first"
        )
    if not callable(getattr(env, "step", None)):
        remedy = "; pass what its make() returns" if callable(peek(env, "make")) else ""
        raise TypeError(f"env must have a 'step' method, got {type(env).__name__}{remedy}")
    if not is_vector_env(env):
        return ScalarHost(env, report, bind)
    if int(peek(env, "num_envs") or 0) == 1:
        return ScalarHost(SqueezedVectorEnv(checked_env(env), bind), report)
    return VectorHost(env, report, bind)


def _tagged(host: Host, tags: EnvTags | None) -> Host:
    """Publish ``tags`` in the contract, and check those that it has then."""
    contract = host.contract
    metadata = dict(contract.metadata or {})
    if tags is not None:
        if not callable(getattr(tags, "to_metadata", None)):
            raise TypeError(f"tags must be rlmesh.adapters.EnvTags, got {type(tags).__name__}")
        metadata.update(tags.to_metadata())
        host.contract = replace(contract, metadata=metadata)
    if ENV_TAGS_KEY in metadata:
        from rlmesh.adapters.resolution import published_tags
        from rlmesh.adapters.tagging import check_env_tags

        published = published_tags(metadata)
        if published is not None:
            check_env_tags(published, contract.observation_space, contract.action_space)
    check_expected_branch(metadata)
    return host
