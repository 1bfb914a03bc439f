"""`RemoteEnv` and `RemoteVectorEnv`: drive a simulator that another process serves."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from rlmesh._typevars import ActT, ObsT, Subscriptable
from rlmesh.envs.link import EnvLink, LinkOptions, ScalarLink
from rlmesh.envs.vector_link import VectorLink
from rlmesh.spaces import Space
from rlmesh.transport.address import make_address
from rlmesh.transport.framing import DEFAULT_MESSAGE_LIMIT
from rlmesh.transport.options import check_seconds
from rlmesh.values import NATIVE, Framework
from rlmesh.wire.contract import EnvContract
from rlmesh.wire.editions import wanted_edition

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CONNECT_TIMEOUT_SECONDS", "REQUEST_TIMEOUT_SECONDS", "RemoteEnv", "RemoteVectorEnv"]

CONNECT_TIMEOUT_SECONDS = 10.0
REQUEST_TIMEOUT_SECONDS = 300.0

_ARGUMENTS = """
    Args:
        address: ``"host:port"``, ``"tcp://..."``, ``"http://..."`` or ``"unix:///path"``.
        host, port, path, transport: the same, in parts.
        connect_timeout_seconds: bound on dialling and the handshake. Default 10 s; None waits for
            ever.
        request_timeout_seconds: bound on every reset, step and render. Default 300 s; None waits
            for ever. A request that runs into it loses the session, since its answer may still
            come.
        token: the server's bearer token, if it asks for one.
        max_message_bytes: largest single message. Default 256 MiB.
        workflow_edition: the edition to ask for. Default: what ``RLMESH_WORKFLOW_EDITION`` or the
            project's ``pyproject.toml`` declares, else the newest.

    Raises:
        ImportError: the class's framework is not installed, or too old.
        ConnectionError: nobody listens there, the host is unreachable, or the server refused.
        TimeoutError: no answer in time.
        ProtocolException: the endpoint is of another protocol generation, or no rlmesh endpoint.
        ValueError: the endpoint serves another number of envs than this class drives; a bad
            address; or an edition that this build cannot run.
"""


class _RemoteBase(Subscriptable, Generic[ObsT, ActT]):
    _framework: ClassVar[Framework] = NATIVE
    _link_class: ClassVar[type[EnvLink]] = EnvLink

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
        self._framework.ensure_available()
        where = make_address(
            address, host=host, port=port, path=path, transport=transport, bind=False
        )
        check_seconds("connect_timeout_seconds", connect_timeout_seconds)
        check_seconds("request_timeout_seconds", request_timeout_seconds)
        options = LinkOptions(
            self._framework,
            connect_timeout_seconds,
            request_timeout_seconds,
            token or "",
            max_message_bytes,
            wanted_edition(keyword=workflow_edition),
        )
        self._link: Any = self._link_class(where, options)
        self._finalizer = weakref.finalize(self, _hang_up, self._link)
        try:
            self._check_arity(self._link.contract)
        except ValueError:
            self.close()
            raise
        contract: EnvContract = self._link.contract
        self._observation_space = contract.observation_space.bound_to(self._framework)
        self._action_space = contract.action_space.bound_to(self._framework)

    def _check_arity(self, contract: EnvContract) -> None:
        raise NotImplementedError

    @property
    def link(self) -> Any:
        """The connection underneath, for those who drive many of them."""
        return self._link

    @property
    def address(self) -> str:
        """The server's address with its scheme."""
        return self._link.address

    @property
    def transport(self) -> str:
        """The door in use: ``"native"``, or ``"grpc"`` with servers that know no other."""
        return self._link.door

    @property
    def env_id(self) -> str:
        """UUIDv7 of this connection."""
        return self._link.env_id

    @property
    def env_contract(self) -> EnvContract:
        """What the server says of its env."""
        return self._link.contract

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The env's metadata; empty when it has none."""
        return self._link.contract.metadata or {}

    @property
    def render_mode(self) -> str | None:
        """The env's render mode, e.g. ``"rgb_array"``, or None."""
        return self._link.contract.render_mode

    @property
    def observation_space(self) -> Space:
        """The space of one observation; samples in this class's framework."""
        return self._observation_space

    @property
    def action_space(self) -> Space:
        """The space of one action; samples in this class's framework."""
        return self._action_space

    @property
    def observation_space_spec(self) -> Space:
        """The space of one observation as plain data."""
        return self._link.contract.observation_space

    @property
    def action_space_spec(self) -> Space:
        """The space of one action as plain data."""
        return self._link.contract.action_space

    @property
    def selected_workflow_edition(self) -> str:
        """The workflow edition both ends agreed on."""
        return self._link.edition

    def shutdown(self, reason: str = "owner shutdown") -> bool:
        """Ask the endpoint to stop.

        Returns:
            Whether it will; False unless the server allows remote shutdown.
        """
        return self._link.shutdown(reason)

    def close(self) -> None:
        """Leave the server, which stays up for the next client. Idempotent."""
        self._finalizer.detach()
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(address={self.address!r})"


def _hang_up(link: EnvLink) -> None:
    # Whichever thread collects the garbage, it must not have to wait for an answer.
    link.hang_up()


class RemoteEnv(_RemoteBase[ObsT, ActT]):
    __doc__ = f"""A single env served elsewhere, with gymnasium's reset and step.

    Connects at construction; takes the env (which has one driving client at a time) with the first
    reset, step or render. Values are read-only :class:`~rlmesh.Tensor` leaves here and NumPy arrays
    in ``rlmesh.numpy.RemoteEnv``; ``RemoteEnv[Observation, Action](address)`` tells a type checker
    what they are. Not thread safe.
{_ARGUMENTS}
    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> from rlmesh.numpy import RemoteEnv
        >>> server = rlmesh.EnvServer(gym.make("CartPole-v1"))
        >>> server.start()
        >>> with RemoteEnv(server.address) as env:
        ...     observation, info = env.reset(seed=0)
        ...     observation, reward, terminated, truncated, info = env.step(1)
        >>> observation.shape, reward
        ((4,), 1.0)
        >>> server.shutdown()
    """

    _link_class = ScalarLink

    def _check_arity(self, contract: EnvContract) -> None:
        if contract.num_envs != 1:
            raise ValueError(
                f"Endpoint {self.address} serves {contract.num_envs} environments. "
                "Use RemoteVectorEnv instead."
            )

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: passed to the env's reset; int64.
            options: JSON-like mapping, passed to the env's reset.

        Returns:
            (observation, info); ``info["episode_ids"]`` is a list with the episode's id.

        Raises:
            EnvironmentException: the env raised; the remote traceback is in its notes.
            ConnectionError: the server is gone, or another client drives the env.
            TimeoutError: no answer within ``request_timeout_seconds``.
        """
        self._link.send_reset(seed, options)
        return self._link.recv_reset()

    def step(self, action: ActT) -> tuple[ObsT, float, bool, bool, dict[str, Any]]:
        """Take one step.

        Args:
            action: an element of :attr:`action_space`. Arrays and numbers of another dtype are
                converted where no value is lost.

        Returns:
            (observation, reward, terminated, truncated, info); ``info`` gains ``episode_ids``, and
            ``completed_episodes`` (int) when the episode ended.

        Raises:
            ValueError: the action does not fit, or holds NaN or infinities; nothing was sent.
            RuntimeError: the episode has ended: reset first.
            EnvironmentException, ConnectionError, TimeoutError: as for :meth:`reset`.
        """
        link = self._link
        link.send_step(action)
        return link.recv_step()

    def render(self, *, env_index: int = 0) -> Any:
        """Return the rendered frame, uint8 (height, width, channels), or None."""
        return self._link.render(env_index)


class RemoteVectorEnv(_RemoteBase[ObsT, ActT]):
    __doc__ = f"""Several lanes served elsewhere: a vector env, or a list of envs.

    Observations come batched: every leaf with a leading lane axis, text leaves as lists of strings.
    ``RemoteVectorEnv[Observations, Actions](address)`` tells a type checker what they are.
{_ARGUMENTS}
    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> from rlmesh.numpy import RemoteVectorEnv
        >>> server = rlmesh.EnvServer([gym.make("CartPole-v1") for _ in range(3)])
        >>> server.start()
        >>> with RemoteVectorEnv(server.address) as envs:
        ...     observations, info = envs.reset(seed=0)
        ...     observations, rewards, terminated, truncated, info = envs.step([0, 1, 0])
        >>> observations.shape, rewards.tolist()
        ((3, 4), [1.0, 1.0, 1.0])
        >>> server.shutdown()
    """

    _link_class = VectorLink

    def _check_arity(self, contract: EnvContract) -> None:
        if contract.num_envs == 1:
            raise ValueError(
                f"Endpoint {self.address} serves a single environment. Use RemoteEnv instead."
            )

    @property
    def num_envs(self) -> int:
        """How many lanes the endpoint serves."""
        return self._link.lanes

    @property
    def single_observation_space(self) -> Space:
        """The space of one lane's observation."""
        return self._observation_space

    @property
    def single_action_space(self) -> Space:
        """The space of one lane's action."""
        return self._action_space

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The env's metadata; ``autoreset_mode`` as gymnasium's enum where gymnasium has it."""
        metadata = dict(super().metadata)
        metadata["autoreset_mode"] = _gymnasium_mode(self._link.contract.autoreset_mode.value)
        return metadata

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[ObsT, dict[str, Any]]:
        """Start an episode in every lane, or in those of ``options["reset_mask"]``.

        Args:
            seed: an int (lane i gets ``seed + i``), one int per lane, or None.
            options: JSON-like mapping for the envs. ``reset_mask``, a bool array of shape (lanes,),
                is taken out: only the lanes marked are reset, as in gymnasium's vector envs.

        Returns:
            (observations, info). Lanes that were not reset keep their last observation.
        """
        return self._link.reset(seed, options)

    def step(self, actions: ActT) -> tuple[ObsT, Any, Any, Any, dict[str, Any]]:
        """Step every lane.

        Args:
            actions: a tree of batched leaves (leading axis: lanes), or a list of one action a lane.

        Returns:
            (observations, rewards float64[lanes], terminated bool[lanes], truncated bool[lanes],
            info); ``info`` gains ``episode_ids`` and ``completed_episodes`` (int).

        Raises:
            ValueError: an action does not fit, with its lane, key and index; nothing was sent.
            RuntimeError: a lane's episode has ended and its env does not reset by itself.
            EnvironmentException, ConnectionError, TimeoutError: as for :class:`RemoteEnv`.
        """
        link = self._link
        link.send_step(actions)
        return link.recv_step()

    def render(self, *, env_index: int = 0) -> Any:
        """Return the rendered frame of one lane, uint8 (height, width, channels), or None."""
        return self._link.render(env_index)


def _gymnasium_mode(value: str) -> Any:
    try:
        from gymnasium.vector import AutoresetMode
    except ImportError:
        return value
    return AutoresetMode(value)
