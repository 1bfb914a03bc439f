"""A client's link to one env server: the requests, split in two halves.

``RemoteEnv.step`` is :meth:`~ScalarLink.send_step` and then :meth:`~ScalarLink.recv_step`. A loop
over many endpoints sends to all of them and receives from whichever descriptor is readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from rlmesh.envs.png import decode_png
from rlmesh.errors import ProtocolException
from rlmesh.transport.address import Address
from rlmesh.transport.dial import dial
from rlmesh.values import Codec, Framework, ObservationView, Policy, compile_codec, part_of
from rlmesh.wire import messages
from rlmesh.wire.contract import EnvContract, contract_from_message
from rlmesh.wire.editions import EDITION
from rlmesh.wire.handshake import (
    OBSERVATION_VIEW,
    PARTIAL_RESET,
    SUBSET_STEP,
    check_answer,
    client_hello,
    enabled,
)
from rlmesh.wire.ids import uuid7
from rlmesh.wire.meta import ARRAY_CAPABILITY, decode_map, encode_map
from rlmesh.wire.status import env_error_to_exception
from rlmesh.wire.views import fill_view

__all__ = ["EnvLink", "LinkOptions", "ScalarLink", "as_seed", "step_header"]

_CLOSE_SECONDS = 5.0
"""How long a close waits for the server's answer before it just hangs up."""


class LinkOptions:
    """How to reach a server: framework of the values, timeouts, token, message limit; and the
    workflow edition to ask it for."""

    __slots__ = ("connect_timeout", "edition", "framework", "limit", "request_timeout", "token")

    def __init__(
        self,
        framework: Framework,
        connect_timeout: float | None,
        request_timeout: float | None,
        token: str,
        limit: int,
        edition: str = EDITION,
    ) -> None:
        self.framework = framework
        self.connect_timeout = connect_timeout
        self.request_timeout = request_timeout
        self.token = token
        self.limit = limit
        self.edition = edition


class EnvLink:
    """One connection: dialled and greeted at construction, driving from the first request on."""

    annotates: ClassVar[bool] = True
    """Whether infos gain ``episode_ids`` and ``completed_episodes``."""

    def __init__(self, address: Address, options: LinkOptions) -> None:
        self.address = str(address)
        self.env_id = uuid7()
        self._address = address
        self.options = options
        self._view: ObservationView | None = None
        self._open()
        self._action, self._observation = self._codecs()

    def _open(self) -> None:
        self._channel, answer = self._dial()
        try:
            response = self._parse(messages.env.HandshakeResponse, answer)
            self.edition = check_answer("env", response, self.address, wants=self.options.edition)
            self.capabilities = enabled(response.base.capabilities)
            self.contract: EnvContract = _read_contract(response, self.address)
        except BaseException:
            self._channel.close()
            raise
        self.door = self._channel.door
        self.steps_lanes = SUBSET_STEP in self.capabilities
        self.resets_lanes = self.steps_lanes or PARTIAL_RESET in self.capabilities
        self.env_ns = 0
        self._joined = self._configured = False

    def reopen(self) -> None:
        """Connect anew after the connection was lost, to the same env as before.

        Raises:
            OSError: the server does not answer, or not in time.
            ProtocolException: another env answers.
        """
        self._channel.close()
        before = self.contract
        self._open()
        if self.contract != before:
            self._channel.close()
            raise ProtocolException(
                f"another env answers at {self.address} than before: expected {before!r}, got "
                f"{self.contract!r}, or its spaces differ"
            )
        self._forget()

    def _forget(self) -> None:
        """Drop what was known of the episodes of the last connection."""

    def _dial(self) -> tuple[Any, bytes]:
        options = self.options
        hello = client_hello(
            "env", capabilities=[ARRAY_CAPABILITY], wants=options.edition
        ).SerializeToString()
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
            framework=self.options.framework,
            policy=Policy.OFF,
        )
        return action, observation

    def fileno(self) -> int:
        """Readable when an answer has begun to arrive."""
        return self._channel.fileno()

    def send(self, header: bytes, leaves: Sequence[Any] = ()) -> None:
        """Send a serialised JoinRequest and its leaves."""
        if not self._configured:
            self.join()
        self._channel.send(header, leaves)

    def recv(self) -> tuple[Any, list[memoryview]]:
        """Return the JoinResponse to the last request, and its leaves; raise what it reports."""
        header, leaves = self._channel.recv()
        response = self._parse(messages.env.JoinResponse, header)
        if response.HasField("error"):
            raise self._failed(response.error)
        return response, leaves

    def _parse(self, message_class: Any, data: bytes) -> Any:
        try:
            return messages.parse(message_class, data)
        except ProtocolException as exc:
            self._channel.close("its last answer was no message")
            raise ProtocolException(f"env server at {self.address}: {exc}") from None

    def _failed(self, error: Any) -> Exception:
        exc = env_error_to_exception(error, self.address)
        if not error.is_recoverable:
            # The server ends the stream with such an answer; nothing more can come.
            self._channel.close(f"the session ended with an error of the env ({exc})")
        return exc

    @property
    def shows_parts(self) -> bool:
        """Whether the server can be asked for a part of observations."""
        return OBSERVATION_VIEW in self.capabilities

    def look(self, view: ObservationView | None) -> None:
        """Ask for ``view`` of observations, from the next request on; None: for all of them."""
        if view != self._view:
            self._see(view)
            self._configured = False

    def _see(self, view: ObservationView | None) -> None:
        self._view = view
        part = None if view is None else part_of(view.leaves, view.images)
        self._observation = self._observation.of_part(part)

    def join(self) -> dict[int, str]:
        """Take the env, and say what is wanted of it, now rather than with the next request.

        Returns:
            Why which leaves come unprocessed, though the view has them processed.
        """
        if self._configured:
            return {}
        request = messages.env.JoinRequest()
        request.configure.selected_workflow_edition = self.edition
        view = self._view
        if view is not None:
            if not self.shows_parts:
                raise ProtocolException(
                    f"env server at {self.address} sends whole observations only; it did not before"
                )
            fill_view(request.configure.view, view)
        self._channel.send(request.SerializeToString(), ())
        response, _ = self.recv()
        self._joined = self._configured = True
        refused = {image.leaf: image.reason for image in response.configure.refused}
        if refused and view is not None:
            self._see(view.without(refused))
        return refused

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
            return bool(self._parse(messages.env.ShutdownResponse, answer).base.accepted)
        finally:
            channel.close()

    def hang_up(self) -> None:
        """Leave without a word, and without waiting for one. Idempotent."""
        self._channel.close()

    def close(self) -> None:
        """Say goodbye if a session is open, and hang up. Idempotent."""
        if self._joined:
            self._joined = False
            request = messages.env.JoinRequest()
            request.close.reason = "client close"
            try:
                bound = self.options.request_timeout or _CLOSE_SECONDS
                self._channel.set_timeout(min(bound, _CLOSE_SECONDS))
                self._channel.send(request.SerializeToString(), ())
                self._channel.recv()
            except (OSError, RuntimeError, ValueError):
                pass  # it is gone already, which is what close wants
            finally:
                self._channel.close()
        self._channel.close()

    def reset_request(
        self, seeds: Sequence[int], options: Mapping[str, Any] | None, ids: Sequence[str]
    ) -> Any:
        """Return the JoinRequest of a reset."""
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


def step_header(ids: Sequence[str], lanes: Sequence[int] = ()) -> bytes:
    """Return a serialised step request without its action, for all lanes or some."""
    request = messages.env.JoinRequest()
    request.step.action.SetInParent()
    request.step.episode_ids.extend(ids)
    request.step.env_indices.extend(lanes)
    return request.SerializeToString()


class ScalarLink(EnvLink):
    """The link to an endpoint that serves a single env."""

    def __init__(self, address: Address, options: LinkOptions) -> None:
        super().__init__(address, options)
        self._forget()

    def _forget(self) -> None:
        self._begin("")

    def _begin(self, episode_id: str) -> None:
        self._ids = [episode_id]
        self._header = step_header(self._ids)
        self._ended = False

    def send_reset(self, seed: int | None, options: Mapping[str, Any] | None) -> None:
        """Ask for a new episode, under an id of its own."""
        seeds = [] if seed is None else [as_seed(seed)]
        episode_id = uuid7()
        self.send(self.reset_request(seeds, options, [episode_id]).SerializeToString())
        self._begin(episode_id)

    def recv_reset(self) -> tuple[Any, dict[str, Any]]:
        """Return (observation, info) of the new episode."""
        response, leaves = self.recv()
        info = decode_map(response.reset.infos)
        if self.annotates:
            info.setdefault("episode_ids", list(self._ids))
        return self._observation.decode(leaves), info

    def send_step(self, action: Any) -> None:
        """Send an action; ValueError refuses one that does not fit the action space."""
        if self._ended:
            raise RuntimeError(
                f"step() after the episode ended (env at {self.address}): call reset() first"
            )
        leaves = self._action.encode(action)
        if not self._configured:
            self.join()
        self._channel.send(self._header, leaves)

    def recv_step(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return (observation, reward, terminated, truncated, info)."""
        response, leaves = self.recv()
        self.env_ns = response.endpoint_total_ns
        step = response.step
        observation = self._observation.decode(leaves)
        rewards = step.rewards
        reward = rewards[0] if rewards else 0.0
        terminated = step.terminated_mask not in _NO
        truncated = step.truncated_mask not in _NO
        info = decode_map(step.infos)
        if terminated or truncated:
            self._ended = True
        if self.annotates:
            if "episode_ids" not in info:
                info["episode_ids"] = list(self._ids)
            completed = step.completed_episodes
            if completed:
                info.setdefault("completed_episodes", len(completed))
        return observation, reward, terminated, truncated, info


_NO = (b"\0", b"")


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
