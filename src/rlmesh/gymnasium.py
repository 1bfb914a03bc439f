"""rlmesh bound to Gymnasium: remote envs that are ``gymnasium.Env`` and ``VectorEnv``.

Wrappers, trainers and checkers written for Gymnasium take them as they are. Values are those of
``rlmesh.numpy``; spaces, infos and autoreset are Gymnasium's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast

import numpy as np

try:
    import gymnasium
    from gymnasium.vector import VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as exc:
    raise ImportError(
        "rlmesh.gymnasium requires gymnasium >= 0.29: pip install 'rlmesh[gymnasium]'"
    ) from exc

from rlmesh._typevars import ActT, ObsT, Subscriptable
from rlmesh.envs.handler import WARNING_KEY
from rlmesh.envs.link import ScalarLink
from rlmesh.envs.remote import CONNECT_TIMEOUT_SECONDS, REQUEST_TIMEOUT_SECONDS
from rlmesh.envs.vector_link import VectorLink
from rlmesh.numpy import RemoteEnv as _NumpyEnv
from rlmesh.numpy import RemoteVectorEnv as _NumpyVectorEnv
from rlmesh.spaces import Dict, MultiBinary, Space, Text, Tuple, to_gymnasium_space
from rlmesh.transport.framing import DEFAULT_MESSAGE_LIMIT

__all__ = ["RemoteEnv", "RemoteVectorEnv"]

if TYPE_CHECKING:
    _VectorEnv = VectorEnv[Any, Any, Any]
else:
    _VectorEnv = VectorEnv  # takes no parameters before 1.0


class _PlainLink(ScalarLink):
    annotates = False  # episode ids are random, and an info must repeat with its seed


class _PlainVectorLink(VectorLink):
    annotates = False


class _Client(_NumpyEnv):
    _link_class = _PlainLink


class _VectorClient(_NumpyVectorEnv):
    _link_class = _PlainVectorLink

    def send_step(self, actions: Any) -> None:
        self._link.send_step(actions)

    def recv_step(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self._link.recv_step()


class RemoteEnv(Subscriptable, gymnasium.Env[ObsT, ActT]):
    """A single env served elsewhere, as a ``gymnasium.Env``.

    Takes the arguments of :class:`rlmesh.numpy.RemoteEnv` and raises as it does. Two differences
    are Gymnasium's: ``info`` holds what the env put there and nothing else, and what the server
    reports of values outside their bounds arrives as a warning. ``spec`` is None: an env made from
    a spec would be a second client, and an env has one at a time; its id is in
    ``remote.env_contract``.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> from rlmesh.gymnasium import RemoteEnv
        >>> server = rlmesh.EnvServer(gym.make("CartPole-v1"))
        >>> server.start()
        >>> env = gym.wrappers.TimeLimit(RemoteEnv(server.address), max_episode_steps=2)
        >>> observation, info = env.reset(seed=0)
        >>> _ = env.step(0)
        >>> env.step(1)[2:4]
        (False, True)
        >>> env.close()
        >>> server.shutdown()
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        path: str | os.PathLike[str] | None = None,
        transport: str | None = None,
        connect_timeout_seconds: float | None = CONNECT_TIMEOUT_SECONDS,
        request_timeout_seconds: float | None = REQUEST_TIMEOUT_SECONDS,
        token: str | None = None,
        max_message_bytes: int = DEFAULT_MESSAGE_LIMIT,
        workflow_edition: str | None = None,
    ) -> None:
        self._remote = _Client(
            address,
            host=host,
            port=port,
            path=path,
            transport=transport,
            connect_timeout_seconds=connect_timeout_seconds,
            request_timeout_seconds=request_timeout_seconds,
            token=token,
            max_message_bytes=max_message_bytes,
            workflow_edition=workflow_edition,
        )
        self.observation_space = to_gymnasium_space(self._remote.observation_space_spec)
        self.action_space = to_gymnasium_space(self._remote.action_space_spec)
        self.metadata = {"render_modes": [], **self._remote.metadata}
        self.render_mode = self._remote.render_mode
        self._as_gymnasium = _converter(self._remote.observation_space_spec, batched=False)

    @property
    def remote(self) -> _NumpyEnv:
        """The client underneath: its address, contract, transport and ``shutdown``."""
        return self._remote

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode; see :meth:`rlmesh.numpy.RemoteEnv.reset`."""
        observation, info = self._remote.reset(seed=seed, options=options)
        super().reset(seed=seed)
        return self._as_gymnasium(observation), _warned(info)

    def step(self, action: ActT) -> tuple[ObsT, float, bool, bool, dict[str, Any]]:
        """Take one step; see :meth:`rlmesh.numpy.RemoteEnv.step`."""
        observation, reward, terminated, truncated, info = self._remote.step(action)
        return self._as_gymnasium(observation), reward, terminated, truncated, _warned(info)

    def render(self) -> Any:
        """Return the frame, uint8 (height, width, channels), or None.

        In the render modes ``*_list`` a list with the newest frame: the only one that travels.
        """
        frame = self._remote.render()
        if self.render_mode is not None and self.render_mode.endswith("_list"):
            return [] if frame is None else [frame]
        return frame

    def close(self) -> None:
        """Leave the server, which stays up for the next client. Idempotent."""
        self._remote.close()

    def __str__(self) -> str:
        return f"RemoteEnv(address={self._remote.address!r})"

    __repr__ = __str__


class RemoteVectorEnv(Subscriptable, _VectorEnv, Generic[ObsT, ActT]):
    """Several lanes served elsewhere, as a ``gymnasium.vector.VectorEnv``.

    Takes the arguments of :class:`rlmesh.numpy.RemoteVectorEnv` and raises as it does.
    ``metadata["autoreset_mode"]`` says what the served lanes do after their episodes end; infos
    have Gymnasium's form, arrays beside boolean masks.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> from rlmesh.gymnasium import RemoteVectorEnv
        >>> server = rlmesh.EnvServer([gym.make("CartPole-v1") for _ in range(3)])
        >>> server.start()
        >>> envs = RemoteVectorEnv(server.address)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations in envs.observation_space, envs.action_space
        (True, MultiDiscrete([2 2 2]))
        >>> envs.close()
        >>> server.shutdown()
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        path: str | os.PathLike[str] | None = None,
        transport: str | None = None,
        connect_timeout_seconds: float | None = CONNECT_TIMEOUT_SECONDS,
        request_timeout_seconds: float | None = REQUEST_TIMEOUT_SECONDS,
        token: str | None = None,
        max_message_bytes: int = DEFAULT_MESSAGE_LIMIT,
        workflow_edition: str | None = None,
    ) -> None:
        # Gymnasium's own constructor takes arguments before 1.0 and does not exist after it.
        self.closed = True
        self._remote = _VectorClient(
            address,
            host=host,
            port=port,
            path=path,
            transport=transport,
            connect_timeout_seconds=connect_timeout_seconds,
            request_timeout_seconds=request_timeout_seconds,
            token=token,
            max_message_bytes=max_message_bytes,
            workflow_edition=workflow_edition,
        )
        self.closed = False
        self.is_vector_env = True  # before 1.0
        self.viewer = None
        self.num_envs = self._remote.num_envs
        space = self._remote.observation_space_spec
        observation = to_gymnasium_space(space)
        action = to_gymnasium_space(self._remote.action_space_spec)
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space = batch_space(observation, self.num_envs)
        self.action_space = batch_space(action, self.num_envs)
        self.metadata = {"render_modes": [], **self._remote.metadata}
        self.render_mode = self._remote.render_mode
        self._as_gymnasium = _converter(space, batched=True)

    @property
    def remote(self) -> _NumpyVectorEnv:
        """The client underneath: its address, contract, transport and ``shutdown``."""
        return self._remote

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode in every lane, or in those of ``options["reset_mask"]``."""
        observations, infos = self._remote.reset(seed=seed, options=options)
        return self._as_gymnasium(observations), _gathered(_warned(infos), self.num_envs)

    def step(self, actions: ActT) -> tuple[ObsT, Any, Any, Any, dict[str, Any]]:
        """Step every lane; see :meth:`rlmesh.numpy.RemoteVectorEnv.step`."""
        self._remote.send_step(actions)
        return self.step_wait()

    def step_async(self, actions: ActT) -> None:
        """Send the actions; :meth:`step_wait` returns what comes of them."""
        self._remote.send_step(actions)

    def step_wait(self, **_: Any) -> tuple[ObsT, Any, Any, Any, dict[str, Any]]:
        """Return the outcome of :meth:`step_async`."""
        observations, rewards, terminated, truncated, infos = self._remote.recv_step()
        infos = _gathered(_warned(infos), self.num_envs)
        return self._as_gymnasium(observations), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """Return the frame of every lane, uint8 (height, width, channels), or None."""
        if self.render_mode is None:
            return None
        return tuple(self._remote.render(env_index=lane) for lane in range(self.num_envs))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return ``render()`` for ``"render"``; nothing else of the served envs can be called."""
        if name == "render":
            return self.render() or ()
        raise AttributeError(
            f"{name!r} of an env served at {self._remote.address} cannot be reached from here; "
            "only reset, step and render travel"
        )

    def close_extras(self, **_: Any) -> None:
        """Leave the server, which stays up for the next client."""
        self._remote.close()

    def __repr__(self) -> str:
        return f"RemoteVectorEnv(address={self._remote.address!r}, num_envs={self.num_envs})"


def _warned(info: dict[str, Any]) -> dict[str, Any]:
    """Return ``info`` without the server's notes on values, which become warnings."""
    if WARNING_KEY in info:
        for note in info.pop(WARNING_KEY):
            gymnasium.logger.warn(f"{note.get('kind')}: {note.get('detail')}")
    return info


def _converter(space: Space, *, batched: bool) -> Callable[[Any], Any]:
    """Return what gives leaves the form they have in Gymnasium.

    Its MultiBinary is int8, whatever byte the server declared; its batches of texts are tuples.
    """
    if isinstance(space, Text):
        return tuple if batched else _same
    if isinstance(space, MultiBinary):
        return _same if space.np_dtype == np.int8 else _as_int8
    if isinstance(space, (Dict, Tuple)):
        children = list(space.items() if isinstance(space, Dict) else enumerate(space.spaces))
        converters = {key: _converter(child, batched=batched) for key, child in children}
        if any(convert is not _same for convert in converters.values()):
            if isinstance(space, Dict):
                return lambda tree: {key: convert(tree[key]) for key, convert in converters.items()}
            return lambda tree: tuple([convert(tree[key]) for key, convert in converters.items()])
    return _same


def _as_int8(array: Any) -> Any:
    return array.view(np.int8)


def _same(tree: Any) -> Any:
    return tree


_WHOLE = {"final_info", "final_obs", "final_observation"}
"""Info keys whose entries Gymnasium keeps whole, one object a lane."""


def _gathered(infos: Mapping[str, Any], lanes: int) -> dict[str, Any]:
    """Return the infos with lists that belong to a mask as arrays, and the masks as bool arrays."""
    gathered: dict[str, Any] = {}
    for key, value in infos.items():
        if isinstance(value, Mapping):
            gathered[key] = _gathered(cast("Mapping[str, Any]", value), lanes)
        elif key[:1] == "_" and key[1:] in infos:
            gathered[key] = np.asarray(value, np.bool_)
        elif isinstance(value, list) and f"_{key}" in infos:
            rows = cast("list[Any]", value)
            gathered[key] = _column(rows, infos[f"_{key}"], key in _WHOLE)
        else:
            gathered[key] = value
    return gathered


def _column(values: list[Any], mask: Sequence[Any], whole: bool) -> np.ndarray[Any, Any]:
    """Return one info value a lane as an array of their common kind; of objects without one."""
    marked = [value for value, own in zip(values, mask, strict=True) if own]
    column: np.ndarray[Any, Any] = np.full(len(values), None)
    form = None if whole else _common_form(marked)
    if form is not None:
        dtype, shape = form
        column = np.zeros((len(values), *shape), dtype)
    for lane, own in enumerate(mask):
        if own:
            column[lane] = values[lane]
    return column


def _common_form(values: list[Any]) -> tuple[Any, tuple[int, ...]] | None:
    """Return dtype and shape of the array that holds each value without changing it."""
    kinds: set[Any] = {type(value) for value in values}
    if kinds == {np.ndarray}:
        forms = {(value.dtype, value.shape) for value in values}
        return forms.pop() if len(forms) == 1 else None
    for dtype, kind in ((np.bool_, {bool}), (np.int64, {int}), (np.float64, {float})):
        if kinds == kind:
            return dtype, ()
    return None
