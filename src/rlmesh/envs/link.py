"""A client's link to one env server: the requests, split in two halves.

``RemoteEnv.step`` is :meth:`~ScalarLink.send_step` and then :meth:`~ScalarLink.recv_step`. A loop
over many endpoints sends to all of them and receives from whichever descriptor is readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlmesh.envs.png import decode_png
from rlmesh.errors import ProtocolException
from rlmesh.transport.address import Address
from rlmesh.transport.dial import dial
from rlmesh.values import Codec, Framework, Policy, compile_codec
from rlmesh.wire import messages
from rlmesh.wire.contract import AutoresetMode, EnvContract, contract_from_message
from rlmesh.wire.handshake import check_answer, client_hello
from rlmesh.wire.ids import uuid7
from rlmesh.wire.meta import ARRAY_CAPABILITY, decode_map, encode_map
from rlmesh.wire.status import env_error_to_exception

__all__ = ["EnvLink", "LinkOptions", "ScalarLink", "VectorLink"]

_CLOSE_SECONDS = 5.0
"""How long a close waits for the server's answer before it just hangs up."""


class LinkOptions:
    """How to reach a server: framework of the values, timeouts, token, message limit."""

    __slots__ = ("connect_timeout", "framework", "limit", "request_timeout", "token")

    def __init__(
        self,
        framework: Framework,
        connect_timeout: float | None,
        request_timeout: float | None,
        token: str,
        limit: int,
    ) -> None:
        self.framework = framework
        self.connect_timeout = connect_timeout
        self.request_timeout = request_timeout
        self.token = token
        self.limit = limit


class EnvLink:
    """One connection: dialled and greeted at construction, driving from the first request on."""

    def __init__(self, address: Address, options: LinkOptions) -> None:
        self.address = str(address)
        self.env_id = uuid7()
        self._address = address
        self._options = options
        self._channel, answer = self._dial()
        try:
            response = messages.parse(messages.env.HandshakeResponse, answer)
            self.edition = check_answer("env", response, self.address)
            self.contract: EnvContract = _read_contract(response, self.address)
        except BaseException:
            self._channel.close()
            raise
        self.door = self._channel.door
        self._joined = False
        self._action, self._observation = self._codecs()

    def _dial(self) -> tuple[Any, bytes]:
        options = self._options
        hello = client_hello("env", capabilities=[ARRAY_CAPABILITY]).SerializeToString()
        return dial(
            self._address,
            "env",
            hello,
            token=options.token,
            timeout=options.connect_timeout,
            limit=options.limit,
            request_timeout=options.request_timeout,
        )

    def _codecs(self) -> tuple[Codec, Codec]:
        # Bounds are the server's to judge (RLMESH_VALIDATION_POLICY); what no policy lets through
        # is refused here, before it travels.
        action = compile_codec(self.contract.action_space, "action", policy=Policy.OFF)
        observation = compile_codec(
            self.contract.observation_space,
            "observation",
            framework=self._options.framework,
            policy=Policy.OFF,
        )
        return action, observation

    def fileno(self) -> int:
        """Readable when an answer has begun to arrive."""
        return self._channel.fileno()

    def send(self, header: bytes, leaves: Sequence[Any] = ()) -> None:
        """Send a serialised JoinRequest and its leaves."""
        if not self._joined:
            self._join()
        self._channel.send(header, leaves)

    def recv(self) -> tuple[Any, list[memoryview]]:
        """Return the JoinResponse to the last request, and its leaves; raise what it reports."""
        header, leaves = self._channel.recv()
        response = messages.parse(messages.env.JoinResponse, header)
        if response.HasField("error"):
            raise self._failed(response.error)
        return response, leaves

    def _failed(self, error: Any) -> Exception:
        exc = env_error_to_exception(error, self.address)
        if not error.is_recoverable:
            # The server ends the stream with such an answer; nothing more can come.
            self._channel.close()
        return exc

    def _join(self) -> None:
        """Ask for the env: the first message says which edition was chosen."""
        request = messages.env.JoinRequest()
        request.configure.selected_workflow_edition = self.edition
        self._channel.send(request.SerializeToString(), ())
        self.recv()
        self._joined = True

    def render(self, lane: int) -> np.ndarray[Any, Any] | None:
        """Return the lane's rendered frame, uint8 HWC, or None."""
        request = messages.env.JoinRequest()
        request.render.env_indices.append(lane)
        self.send(request.SerializeToString())
        response, _ = self.recv()
        if not response.render.HasField("frame") or not response.render.frame:
            return None
        return decode_png(response.render.frame)

    def shutdown(self, reason: str) -> bool:
        """Ask the endpoint to stop; True if it will."""
        channel, _ = self._dial()
        try:
            request = messages.env.ShutdownRequest()
            request.base.reason = reason
            answer = channel.shutdown(request.SerializeToString())
            return bool(messages.parse(messages.env.ShutdownResponse, answer).base.accepted)
        finally:
            channel.close()

    def close(self) -> None:
        """Say goodbye if a session is open, and hang up. Idempotent."""
        if self._joined:
            self._joined = False
            request = messages.env.JoinRequest()
            request.close.reason = "client close"
            try:
                bound = self._options.request_timeout or _CLOSE_SECONDS
                self._channel.set_timeout(min(bound, _CLOSE_SECONDS))
                self._channel.send(request.SerializeToString(), ())
                self._channel.recv()
            except (OSError, RuntimeError, ValueError):
                pass  # it is gone already, which is what close wants
        self._channel.close()

    def _reset_request(
        self, seeds: Sequence[int], options: Mapping[str, Any] | None, ids: Sequence[str]
    ) -> Any:
        request = messages.env.JoinRequest()
        reset = request.reset
        reset.SetInParent()
        reset.seeds.extend(seeds)
        reset.episode_ids.extend(ids)
        if options is not None:
            reset.options.CopyFrom(encode_map(options, what="reset option"))
        return request


def _read_contract(response: Any, address: str) -> EnvContract:
    try:
        return contract_from_message(response.env_contract)
    except ValueError as exc:
        raise ProtocolException(f"invalid spaces spec from remote env at {address}: {exc}") from exc


def _step_header(ids: Sequence[str]) -> bytes:
    request = messages.env.JoinRequest()
    request.step.action.SetInParent()
    request.step.episode_ids.extend(ids)
    return request.SerializeToString()


class ScalarLink(EnvLink):
    """The link to an endpoint that serves a single env."""

    def __init__(self, address: Address, options: LinkOptions) -> None:
        super().__init__(address, options)
        self._begin("")

    def _begin(self, episode_id: str) -> None:
        self._ids = [episode_id]
        self._header = _step_header(self._ids)
        self._ended = False

    def send_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Ask for a new episode, under an id of its own."""
        seeds = [] if seed is None else [as_seed(seed)]
        episode_id = uuid7()
        self.send(self._reset_request(seeds, options, [episode_id]).SerializeToString())
        self._begin(episode_id)

    def recv_reset(self) -> tuple[Any, dict[str, Any]]:
        """Return (observation, info) of the new episode."""
        response, leaves = self.recv()
        info = decode_map(response.reset.infos)
        info.setdefault("episode_ids", list(self._ids))
        return self._observation.decode(leaves), info

    def send_step(self, action: Any) -> None:
        """Send an action; ValueError refuses one that does not fit the action space."""
        if self._ended:
            raise RuntimeError(
                f"step() after the episode ended (env at {self.address}): call reset() first"
            )
        leaves = self._action.encode(action)
        if not self._joined:
            self._join()
        self._channel.send(self._header, leaves)

    def recv_step(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return (observation, reward, terminated, truncated, info)."""
        response, leaves = self.recv()
        step = response.step
        observation = self._observation.decode(leaves)
        rewards = step.rewards
        reward = rewards[0] if rewards else 0.0
        terminated = step.terminated_mask not in _NO
        truncated = step.truncated_mask not in _NO
        info = decode_map(step.infos)
        if "episode_ids" not in info:
            info["episode_ids"] = list(self._ids)
        if terminated or truncated:
            self._ended = True
        completed = step.completed_episodes
        if completed:
            info.setdefault("completed_episodes", len(completed))
        return observation, reward, terminated, truncated, info


_NO = (b"\0", b"")


class VectorLink(EnvLink):
    """The link to an endpoint that serves several lanes."""

    def __init__(self, address: Address, options: LinkOptions) -> None:
        super().__init__(address, options)
        self.lanes = self.contract.num_envs
        self._ids = [""] * self.lanes
        self._header = _step_header(self._ids)
        self._ended = np.zeros(self.lanes, np.bool_)
        self._last: list[memoryview] | None = None
        self._resetting: Sequence[int] | None = None

    def reset(self, seed: Any, options: Mapping[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Reset as gymnasium's vector envs do, ``options["reset_mask"]`` included."""
        lanes: list[int] | None = None
        if options is not None and "reset_mask" in options:
            options = dict(options)
            lanes = self._marked(options.pop("reset_mask"))
            options = options or None
        count = self.lanes if lanes is None else len(lanes)
        self.send_reset(self._seeds(seed, lanes, count), options, lanes)
        return self.recv_reset()

    def _marked(self, mask: Any) -> list[int]:
        marks = np.asarray(mask)
        if marks.dtype != np.bool_ or marks.shape != (self.lanes,):
            raise ValueError(
                f"reset_mask: expected bool[{self.lanes}], one flag per lane, got "
                f"{marks.dtype.name}{list(marks.shape)}"
            )
        if not marks.any():
            raise ValueError("reset_mask marks no lane; mark at least one")
        return np.flatnonzero(marks).tolist()

    def _seeds(self, seed: Any, lanes: Sequence[int] | None, count: int) -> list[int]:
        """Return the seeds to send: none, or one per lane that is reset."""
        if seed is None:
            return []
        if isinstance(seed, np.ndarray):
            seed = seed.tolist()
        if not isinstance(seed, Sequence):
            base = as_seed(seed)
            if lanes is None:
                return [base]
            return [base + lane for lane in lanes]
        seeds: list[Any] = list(cast("Sequence[Any]", seed))
        if len(seeds) == self.lanes and lanes is not None:
            seeds = [seeds[lane] for lane in lanes]
        if len(seeds) != count:
            raise ValueError(
                f"seed: expected an int or a sequence of {count} ints (one per lane), got "
                f"{len(seeds)}"
            )
        if all(value is None for value in seeds):
            return []
        return [as_seed(value) for value in seeds]

    def send_reset(
        self,
        seeds: Sequence[int],
        options: Mapping[str, Any] | None,
        lanes: Sequence[int] | None = None,
    ) -> None:
        """Ask for new episodes in ``lanes`` (None: all); ``seeds`` is empty, one, or one each."""
        if lanes is not None and self._last is None:
            raise RuntimeError("reset every lane once before resetting some of them")
        self._resetting = lanes
        reset = range(self.lanes) if lanes is None else lanes
        fresh = [uuid7() for _ in reset]
        request = self._reset_request([as_seed(s) for s in seeds], options, fresh)
        if lanes is not None:
            request.reset.env_indices.extend(lanes)
        self.send(request.SerializeToString())
        for lane, episode_id in zip(reset, fresh, strict=True):
            self._ids[lane] = episode_id
            self._ended[lane] = False
        self._header = _step_header(self._ids)

    def recv_reset(self) -> tuple[Any, dict[str, Any]]:
        """Return (batched observations of all lanes, info) of the reset that was asked for."""
        response, leaves = self.recv()
        info = decode_map(response.reset.infos)
        info.setdefault("episode_ids", list(self._ids))
        if self._resetting is not None:
            leaves = self._merge(leaves, self._resetting)
        self._last = leaves
        return self._observation.decode_batch(leaves, self.lanes), info

    def _merge(self, leaves: list[memoryview], lanes: Sequence[int]) -> list[memoryview]:
        """Return the last observations of all lanes, with those of ``lanes`` replaced."""
        assert self._last is not None
        rows = self._observation.decode_rows(self._last, self.lanes)
        fresh = self._observation.decode_rows(leaves, len(lanes))
        for lane, row in zip(lanes, fresh, strict=True):
            rows[lane] = row
        merged = self._observation.encode_rows(rows)
        return [memoryview(leaf).cast("B") for leaf in merged]

    def send_step(self, actions: Any) -> None:
        """Send one action per lane; ValueError refuses what does not fit."""
        if self._ended.any():
            self._turn_over()
        leaves = self._action.encode_batch(actions, self.lanes)
        self.send(self._header, leaves)

    def _turn_over(self) -> None:
        """Name the episodes that this step begins in lanes whose last one ended."""
        ended = np.flatnonzero(self._ended).tolist()
        if self.contract.autoreset_mode is AutoresetMode.DISABLED:
            raise RuntimeError(
                f"step() of lanes {ended} after their episodes ended (env at {self.address}, "
                "autoreset disabled): reset them first, with "
                'reset(options={"reset_mask": mask}) or all together'
            )
        for lane in ended:
            self._ids[lane] = uuid7()
        self._ended[:] = False
        self._header = _step_header(self._ids)

    def recv_step(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return (observations, rewards, terminated, truncated, info), all with a lane axis."""
        response, leaves = self.recv()
        step = response.step
        lanes = self.lanes
        rewards = np.array(step.rewards, np.float64) if step.rewards else np.zeros(lanes)
        terminated = _mask(step.terminated_mask, lanes)
        truncated = _mask(step.truncated_mask, lanes)
        if len(rewards) != lanes or len(terminated) != lanes or len(truncated) != lanes:
            raise ProtocolException(
                f"env server at {self.address}: expected {lanes} rewards and flags, got "
                f"{len(rewards)}, {len(terminated)} and {len(truncated)}"
            )
        info = decode_map(step.infos)
        info.setdefault("episode_ids", list(self._ids))
        info.setdefault("completed_episodes", len(step.completed_episodes))
        np.logical_or(terminated, truncated, out=self._ended)
        self._last = leaves
        return self._observation.decode_batch(leaves, lanes), rewards, terminated, truncated, info


def _mask(data: bytes, lanes: int) -> np.ndarray[Any, Any]:
    if not data:
        return np.zeros(lanes, np.bool_)
    return np.frombuffer(data, np.uint8) != 0


def as_seed(seed: Any) -> int:
    """Return ``seed`` as an int64, or say what is wrong with it."""
    if isinstance(seed, np.integer):
        seed = cast("Any", seed).item()
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be an int, got {type(seed).__name__}")
    value = seed
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"seed must fit int64, got {value}")
    return value
