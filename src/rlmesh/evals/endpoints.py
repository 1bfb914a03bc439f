"""Where lanes live: local envs and remote ones behind one split-phase face.

``send_*`` starts something and ``recv_*`` finishes it. A local env does its work when it is asked
for the answer, so it is always ready; a remote one is ready when its descriptor is readable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np

from rlmesh.envs.handler import Conformance
from rlmesh.envs.hosts import (
    ON_HOST,
    Bind,
    Host,
    as_it_is,
    as_reward,
    lane_info,
    reset_arguments,
    split_reset,
    split_step,
)
from rlmesh.envs.hosts import ScalarHost as _ScalarHost
from rlmesh.envs.link import EnvLink, ScalarLink
from rlmesh.envs.vector_host import VectorHost
from rlmesh.envs.vector_link import VectorLink
from rlmesh.errors import ProtocolException
from rlmesh.values import Codec, Policy, compile_codec
from rlmesh.values.tree import tree_map
from rlmesh.wire.contract import AutoresetMode, EnvContract

__all__ = [
    "Endpoint",
    "LocalScalar",
    "LocalVector",
    "RemoteScalar",
    "RemoteVector",
    "ResetReply",
    "StepReply",
]

ResetReply = tuple[Sequence[Any], Sequence[Mapping[str, Any]]]
"""Observations and infos of the lanes that were reset, in the order asked for."""

StepReply = tuple[Sequence[Any], Sequence[float], Sequence[bool], Sequence[bool], Mapping[str, Any]]
"""Observations, rewards, terminated and truncated, one per lane stepped, and the info of all."""


class Endpoint(Protocol):
    """Some lanes that one process steps together."""

    name: str
    """How errors call it: the address, or the env's type."""
    contract: EnvContract
    lanes: int
    resets_lanes: bool
    """Whether some lanes can be reset, with seeds of their own, while others go on."""
    steps_lanes: bool
    """Whether some lanes can be stepped while others stand still."""

    def send_reset(
        self,
        lanes: Sequence[int] | None,
        seeds: Sequence[int],
        options: Mapping[str, Any] | None,
    ) -> None:
        """Reset ``lanes`` (None: all); ``seeds`` is empty or has one for each."""
        ...

    def recv_reset(self) -> ResetReply: ...

    def send_step(self, actions: Sequence[Any], lanes: Sequence[int] | None) -> None:
        """Step ``lanes`` (None: all) with conforming actions, one each."""
        ...

    def recv_step(self) -> StepReply: ...

    def conform(self, action: Any, /) -> Any:
        """Return the action as the env will get it; ValueError says what does not fit."""
        ...

    def lane_info(self, info: Mapping[str, Any], lane: int, *, ended: bool) -> Mapping[str, Any]:
        """Return a lane's part of a step's info: of the ended episode, if it ended."""
        ...

    @property
    def keep(self) -> Callable[[Any], Any] | None:
        """Copies a value that the env may yet write into; None where it shares none."""
        ...

    @property
    def env_seconds(self) -> float | None:
        """How long the env took for the last step, where its server says so."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds an answer may take; None: as long as it takes."""
        ...

    def fileno(self) -> int | None:
        """A descriptor that is readable once the answer comes; None: always ready."""
        ...

    def reopen(self) -> None:
        """Connect anew after the connection was lost, and take the env; raise if that fails."""
        ...

    def hang_up(self) -> None:
        """Leave the server at once, without waiting for it."""
        ...


def _action_codec(contract: EnvContract) -> Codec:
    return compile_codec(contract.action_space, "action", policy=Policy.OFF)


def _copied(tree: Any) -> Any:
    """Return a value whose arrays are its own."""

    def own(leaf: Any) -> Any:
        return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    return tree_map(own, tree)


class _Local:
    """What the endpoints of this process share."""

    env_seconds = None
    timeout = None
    keep = None
    name = ""

    def fileno(self) -> int | None:
        return None

    def reopen(self) -> None:
        raise ConnectionError(f"{self.name} lives in this process and cannot be connected anew")

    def hang_up(self) -> None:
        return None


class LocalScalar(_Local):
    """One env in this process: observations and actions as a wire would have carried them."""

    lanes = 1
    resets_lanes = True
    steps_lanes = False

    def __init__(self, env: Any, bind: Bind = as_it_is) -> None:
        self.env = bind(env)
        self.name = type(env).__name__
        self.keep = _copied
        self.contract = _ScalarHost(env, Conformance().report).contract
        self.conform: Callable[[Any], Any] = _action_codec(self.contract).conform
        self._observe: Callable[[Any], Any] = compile_codec(
            self.contract.observation_space,
            "observation",
            policy=Policy.OFF,
            lenient=True,
            encode_checked=False,
        ).conform
        self._seeds: Sequence[int] = ()
        self._options: Mapping[str, Any] | None = None
        self._action: Any = None

    def send_reset(
        self,
        lanes: Sequence[int] | None,
        seeds: Sequence[int],
        options: Mapping[str, Any] | None,
    ) -> None:
        self._seeds, self._options = seeds, options

    def recv_reset(self) -> ResetReply:
        seed = self._seeds[0] if self._seeds else None
        result = self.env.reset(**reset_arguments(seed, self._options))
        observation, info = split_reset(result, self.contract.observation_space)
        return (self._observe(observation),), (info,)

    def send_step(self, actions: Sequence[Any], lanes: Sequence[int] | None) -> None:
        self._action = actions[0]

    def recv_step(self) -> StepReply:
        observation, reward, terminated, truncated, info = self.step(self._action)
        return (observation,), (reward,), (terminated,), (truncated,), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        """Step with a conforming action, both phases at once."""
        result: Any = self.env.step(action)
        try:
            observation, reward, terminated, truncated, info = result
        except (TypeError, ValueError):
            result = observation, reward, terminated, truncated, info = split_step(result)
        if type(reward) is not float:
            if type(reward) not in ON_HOST:
                result = observation, reward, terminated, truncated, info = split_step(result)
            reward = as_reward(reward)
        if type(info) is not dict:
            *_, info = split_step(result)
        return self._observe(observation), reward, bool(terminated), bool(truncated), info  # pyright: ignore[reportUnknownVariableType]

    def lane_info(self, info: Mapping[str, Any], lane: int, *, ended: bool) -> Mapping[str, Any]:
        return info

    def render(self) -> Any:
        """Return a frame of the env as it gives it."""
        return self.env.render()


class LocalVector(_Local):
    """A vector env in this process, held as a server would hold it."""

    steps_lanes = False

    def __init__(self, env: Any, bind: Bind = as_it_is) -> None:
        self.env = env
        self.name = type(env).__name__
        self._host: Host = VectorHost(env, Conformance().report, bind)
        self.contract = self._host.contract
        self.lanes = self._host.lanes
        self.resets_lanes = self._host.partial_reset
        self._codec = _action_codec(self.contract)
        self.conform: Callable[[Any], Any] = self._codec.conform
        self._rows: Codec = compile_codec(
            self.contract.observation_space, "observation", policy=Policy.OFF
        )
        self._reset: tuple[Sequence[int] | None, Sequence[int], Mapping[str, Any] | None]
        self._actions: Sequence[Any] = ()

    def send_reset(
        self,
        lanes: Sequence[int] | None,
        seeds: Sequence[int],
        options: Mapping[str, Any] | None,
    ) -> None:
        self._reset = (lanes, seeds, options)

    def recv_reset(self) -> ResetReply:
        lanes, seeds, options = self._reset
        leaves, info = self._host.reset(lanes, seeds, options)
        wanted = range(self.lanes) if lanes is None else lanes
        return self._decode(leaves, len(wanted)), [
            lane_info(info, lane, self.lanes) for lane in wanted
        ]

    def send_step(self, actions: Sequence[Any], lanes: Sequence[int] | None) -> None:
        self._actions = actions

    def recv_step(self) -> StepReply:
        leaves = [memoryview(leaf).cast("B") for leaf in self._codec.encode_rows(self._actions)]
        out, rewards, terminated, truncated, info = self._host.step(None, leaves)
        return self._decode(out, self.lanes), rewards, terminated, truncated, info

    def _decode(self, leaves: Sequence[Any], rows: int) -> list[Any]:
        # A vector env may hand out the same buffer at every step; lanes keep theirs until they act.
        owned = [memoryview(bytearray(memoryview(leaf).cast("B"))) for leaf in leaves]
        return self._rows.decode_rows(owned, rows)

    def lane_info(self, info: Mapping[str, Any], lane: int, *, ended: bool) -> Mapping[str, Any]:
        return self._host.final_info(info, lane) if ended else lane_info(info, lane, self.lanes)


_LinkT = TypeVar("_LinkT", bound=EnvLink)


class _Remote(Generic[_LinkT]):
    """What the endpoints of other processes share."""

    keep = None

    def __init__(self, link: _LinkT) -> None:
        self.link = link
        self.name = link.address
        self.contract = link.contract
        self.conform: Callable[[Any], Any] = _action_codec(self.contract).conform
        self.dialling = threading.Lock()

    @property
    def env_seconds(self) -> float | None:
        return self.link.env_ns / 1e9 or None

    @property
    def timeout(self) -> float | None:
        return self.link.options.request_timeout

    def fileno(self) -> int | None:
        return self.link.fileno()

    def reopen(self) -> None:
        self.link.reopen()
        for leaf, reason in self.link.join().items():
            raise ProtocolException(
                f"env server at {self.name} does not process leaf {leaf} any more: {reason}"
            )

    def hang_up(self) -> None:
        self.link.hang_up()


class RemoteScalar(_Remote[ScalarLink]):
    """A single env served elsewhere."""

    lanes = 1
    resets_lanes = True
    steps_lanes = False

    def send_reset(
        self,
        lanes: Sequence[int] | None,
        seeds: Sequence[int],
        options: Mapping[str, Any] | None,
    ) -> None:
        self.link.send_reset(seeds[0] if seeds else None, options)

    def recv_reset(self) -> ResetReply:
        observation, info = self.link.recv_reset()
        return (observation,), (info,)

    def send_step(self, actions: Sequence[Any], lanes: Sequence[int] | None) -> None:
        self.link.send_step(actions[0])

    def recv_step(self) -> StepReply:
        observation, reward, terminated, truncated, info = self.link.recv_step()
        return (observation,), (reward,), (terminated,), (truncated,), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        """Step with a conforming action, both phases at once."""
        self.link.send_step(action)
        return self.link.recv_step()

    def lane_info(self, info: Mapping[str, Any], lane: int, *, ended: bool) -> Mapping[str, Any]:
        return info

    def render(self) -> Any:
        """Return a frame of the env, uint8 (height, width, channels)."""
        return self.link.render(0)


class RemoteVector(_Remote[VectorLink]):
    """Several lanes served elsewhere: a vector env, or a list of envs."""

    def __init__(self, link: VectorLink) -> None:
        super().__init__(link)
        self.lanes = link.lanes
        self.resets_lanes = link.resets_lanes
        self.steps_lanes = link.steps_lanes
        self._lanes: Sequence[int] | None = None

    def send_reset(
        self,
        lanes: Sequence[int] | None,
        seeds: Sequence[int],
        options: Mapping[str, Any] | None,
    ) -> None:
        self._lanes = lanes
        self.link.send_reset(seeds, options, lanes)

    def recv_reset(self) -> ResetReply:
        rows, info = self.link.recv_reset_rows()
        wanted = range(self.lanes) if self._lanes is None else self._lanes
        return rows, [lane_info(info, lane, self.lanes) for lane in wanted]

    def send_step(self, actions: Sequence[Any], lanes: Sequence[int] | None) -> None:
        self._lanes = lanes
        self.link.send_step_rows(actions, lanes)

    def recv_step(self) -> StepReply:
        return self.link.recv_step_rows(self._lanes)

    def lane_info(self, info: Mapping[str, Any], lane: int, *, ended: bool) -> Mapping[str, Any]:
        if ended and self.contract.autoreset_mode is AutoresetMode.SAME_STEP:
            final: Any = info.get("final_info", {})
            if isinstance(final, Mapping):
                return lane_info(cast("Mapping[str, Any]", final), lane, self.lanes)
            return final[lane] or {}  # gymnasium 0.29: one dict a lane, or None
        return lane_info(info, lane, self.lanes)
