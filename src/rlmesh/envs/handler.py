"""From a JoinRequest to a JoinResponse: what one driving client asks of the env."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from rlmesh.envs.episodes import CompletedEpisode, EpisodeLedger
from rlmesh.envs.hosts import Host
from rlmesh.envs.png import encode_png
from rlmesh.envs.views import compile_view
from rlmesh.errors import ProtocolException
from rlmesh.wire import messages
from rlmesh.wire.editions import SUPPORTED_EDITIONS
from rlmesh.wire.handshake import enabled
from rlmesh.wire.meta import ARRAY_CAPABILITY, decode_map, fill_map
from rlmesh.wire.status import (
    EnvErrorCode,
    EnvFault,
    describe_exception,
    exception_to_env_error,
)
from rlmesh.wire.views import read_view

__all__ = ["WARNING_KEY", "Conformance", "EnvHandler"]

WARNING_KEY = "rlmesh.conformance.warning"
"""Info key of what was let through or left out: a list of {kind, path, detail}."""

_log = logging.getLogger("rlmesh")


class Conformance:
    """Collects warnings for the info map: each (kind, path) once per session, and to the log."""

    def __init__(self) -> None:
        self.pending: list[dict[str, str]] = []
        self._seen: set[tuple[str, str]] = set()

    def report(self, kind: str, path: str, detail: Callable[[], str]) -> None:
        """Note a warning unless the session has had it."""
        if (kind, path) in self._seen:
            return
        self._seen.add((kind, path))
        text = detail()
        self.pending.append({"kind": kind, "path": path, "detail": text})
        _log.warning("%s: %s", kind, text)

    def dropped(self, path: str, detail: str) -> None:
        """Note an info value that cannot travel."""
        self.report("info_dropped", path, lambda: f"info value {path} was dropped: {detail}")

    def reset(self) -> None:
        """Start a session."""
        self.pending.clear()
        self._seen.clear()


class _Request:
    """A parsed JoinRequest, with what every step looks at taken out of the message once."""

    __slots__ = ("body", "episode_ids", "id", "kind", "lanes")

    def __init__(self, message: Any) -> None:
        self.kind: str = message.WhichOneof("kind") or ""
        self.body: Any = getattr(message, self.kind) if self.kind else None
        self.id: str = message.request_id
        step = self.kind == "step"
        self.episode_ids: list[str] = list(self.body.episode_ids) if step else []
        self.lanes: list[int] = list(self.body.env_indices) if step else []


class EnvHandler:
    """Drives a host for one session after another. Every method runs on the env's thread."""

    def __init__(self, host: Host, conformance: Conformance) -> None:
        self._host = host
        self._conformance = conformance
        self._ledger = EpisodeLedger(host.lanes)
        self._ended = [False] * host.lanes
        self._arrays = False
        self._last_header = b""
        self._last_request: _Request | None = None
        # Most steps say nothing but numbers: they share one message that only they write to.
        self._plain = messages.env.JoinResponse()
        self._plain.step.observation.SetInParent()
        self._plain.step.infos.SetInParent()

    def begin_session(self, hello: bytes) -> None:
        """Start with a new client: what the last one left running ends as truncated.

        Args:
            hello: the client's serialised HandshakeRequest, for what it can take.
        """
        for lane in range(self._host.lanes):
            self._ledger.cut(lane)
        self._ledger.collect()
        self._conformance.reset()
        self._host.look(None)
        try:
            base = messages.parse(messages.env.HandshakeRequest, hello).base
        except ProtocolException:  # metadata of a gRPC call may hold anything
            base = messages.env.HandshakeRequest().base
        self._arrays = ARRAY_CAPABILITY in enabled(base.capabilities)

    def handle(
        self, header: bytes, leaves: Sequence[memoryview]
    ) -> tuple[bytes, Sequence[Any], bool]:
        """Answer one request.

        Returns:
            The response without its leaves, the leaves, and whether the stream ends with it.
        """
        if header == self._last_header and self._last_request is not None:
            request = self._last_request
        else:
            try:
                request = _Request(messages.parse(messages.env.JoinRequest, header))
            except ProtocolException as exc:
                fault = EnvFault(EnvErrorCode.INVALID_ACTION, str(exc), recoverable=False)
                return self._error(fault, "join", ""), (), True
            self._last_header, self._last_request = header, request
        try:
            if request.kind == "step":
                began = time.perf_counter_ns()
                response, out = self._step(request, leaves)
                response.endpoint_total_ns = time.perf_counter_ns() - began
                return response.SerializeToString(), out, False
            return self._handle_rare(request)
        except EnvFault as fault:
            return self._error(fault, request.kind, request.id), (), not fault.recoverable
        except Exception as exc:
            _log.warning("%s raised %s", request.kind, describe_exception(exc))
            # A failed reset or step leaves the env in no known state; a failed render is harmless.
            return self._error(exc, request.kind, request.id), (), request.kind != "render"

    def _handle_rare(self, request: _Request) -> tuple[bytes, Sequence[Any], bool]:
        """Answer anything but a step."""
        response = messages.env.JoinResponse(request_id=request.id)
        out: Sequence[Any] = ()
        if request.kind == "reset":
            out = self._reset(request.body, response.reset)
        elif request.kind == "render":
            self._render(request.body, response.render)
        elif request.kind == "configure":
            self._configure(request.body, response.configure)
        elif request.kind == "close":
            self._finish(response.close)
        else:
            raise EnvFault(EnvErrorCode.UNSUPPORTED, "the request asks for nothing known here")
        return response.SerializeToString(), out, request.kind == "close"

    def too_large(self, exc: ValueError) -> bytes:
        """Return the response in place of one that is over the message limit."""
        fault = EnvFault(EnvErrorCode.INTERNAL, str(exc), recoverable=False)
        request_id = self._last_request.id if self._last_request is not None else ""
        return self._error(fault, "", request_id)

    def _error(self, exc: Exception, during: str, request_id: str) -> bytes:
        response = messages.env.JoinResponse(request_id=request_id)
        response.error.CopyFrom(exception_to_env_error(exc, during=during))
        if during == "render":
            response.error.is_recoverable = True
        return response.SerializeToString()

    def _configure(self, request: Any, response: Any) -> None:
        edition = request.selected_workflow_edition
        if edition and edition not in SUPPORTED_EDITIONS:
            raise EnvFault(
                EnvErrorCode.INVALID_ACTION,
                f"unknown workflow edition {edition!r}; this server runs "
                f"{list(SUPPORTED_EDITIONS)}",
                recoverable=False,
            )
        response.SetInParent()
        part = None
        if request.HasField("view"):
            try:
                part, refused = compile_view(
                    read_view(request.view), self._host.contract.observation_space
                )
            except (ProtocolException, ValueError) as exc:
                raise EnvFault(EnvErrorCode.INVALID_ACTION, str(exc)) from None
            for leaf, reason in refused.items():
                response.refused.add(leaf=leaf, reason=reason)
        self._host.look(part)

    def _reset(self, request: Any, response: Any) -> Sequence[Any]:
        host, ledger = self._host, self._ledger
        lanes = self._lanes(request.env_indices, host.partial_reset, "reset")
        seeds = list(request.seeds)
        ids = list(request.episode_ids)
        options = decode_map(request.options) if request.HasField("options") else None
        reset = range(host.lanes) if lanes is None else lanes
        if ids and len(ids) != len(reset):
            raise EnvFault(
                EnvErrorCode.INVALID_ACTION,
                f"expected no episode ids or {len(reset)}, got {len(ids)}",
            )
        leaves, info = host.reset(lanes, seeds, options)
        for row, lane in enumerate(reset):
            seed = seeds[row] if row < len(seeds) else None
            if seeds and len(seeds) == 1 and row:
                seed = seeds[0] + row
            ledger.begin(lane, ids[row] if ids else "", seed)
            self._ended[lane] = False
        response.observation.SetInParent()
        self._fill_info(response.infos, info)
        return leaves

    def _step(self, request: _Request, leaves: Sequence[memoryview]) -> tuple[Any, Sequence[Any]]:
        host, ledger = self._host, self._ledger
        lanes = None
        if request.lanes:
            lanes = self._lanes(request.lanes, host.partial_step, "step")
        out, rewards, terminated, truncated, info = host.step(lanes, leaves)
        self._book(request.episode_ids, lanes, rewards, terminated, truncated, info)
        if info or ledger.completed or self._conformance.pending or request.id or lanes:
            response = messages.env.JoinResponse(request_id=request.id)
            step = response.step
            step.observation.SetInParent()
            self._fill_info(step.infos, info)
            for episode in ledger.collect():
                self._write_episode(step.completed_episodes.add(), episode)
            if lanes is not None:
                step.env_indices.extend(lanes)
        else:
            response = self._plain
            step = response.step
        step.rewards[:] = rewards
        step.terminated_mask = bytes(terminated)
        step.truncated_mask = bytes(truncated)
        return response, out

    def _book(
        self,
        ids: Sequence[str],
        lanes: Sequence[int] | None,
        rewards: Sequence[float],
        terminated: Sequence[bool],
        truncated: Sequence[bool],
        info: Mapping[str, Any],
    ) -> None:
        """Book the step in every lane's episode, and turn over those that ended."""
        ledger, host, ended = self._ledger, self._host, self._ended
        for row, lane in enumerate(range(host.lanes) if lanes is None else lanes):
            episode_id = ids[row] if row < len(ids) else ""
            if ended[lane] and host.rolls:
                # NEXT_STEP: this step was the lane's reset; it belongs to no episode.
                if rewards[row] or terminated[row] or truncated[row]:
                    raise _no_roll(lane, rewards[row], terminated[row], truncated[row])
                ledger.begin(lane, episode_id, None)
                ended[lane] = False
                continue
            ledger.step(lane, episode_id, rewards[row])
            if terminated[row] or truncated[row]:
                ledger.end(lane, terminated[row], truncated[row], host.final_info(info, lane))
                ended[lane] = True

    def _render(self, request: Any, response: Any) -> None:
        indices = list(request.env_indices) or [0]
        lane = indices[0]
        if len(indices) > 1 or lane >= self._host.lanes:
            raise EnvFault(
                EnvErrorCode.INVALID_ACTION,
                f"expected one env index below {self._host.lanes} to render, got {indices}",
            )
        frame = self._host.render(lane)
        if isinstance(frame, list):  # render_mode "rgb_array_list": the newest frame
            frame = _newest(cast("list[Any]", frame))
        response.SetInParent()
        if frame is not None:
            response.frame = encode_png(frame)
            response.format = 1

    def _finish(self, response: Any) -> None:
        for lane in range(self._host.lanes):
            self._ledger.cut(lane)
        response.SetInParent()
        for episode in self._ledger.collect():
            self._write_episode(response.final_episodes.add(), episode)

    def _lanes(self, indices: Any, allowed: bool, what: str) -> list[int] | None:
        lanes = list(indices)
        if not lanes:
            return None
        if self._host.lanes == 1 and lanes == [0]:
            return None
        if not allowed:
            raise EnvFault(
                EnvErrorCode.UNSUPPORTED,
                f"this endpoint cannot {what} some of its lanes; {what} all of them at once",
            )
        if len(set(lanes)) != len(lanes) or max(lanes) >= self._host.lanes:
            raise EnvFault(
                EnvErrorCode.INVALID_ACTION,
                f"env_indices must be unique and below {self._host.lanes}, got {lanes}",
            )
        return lanes

    def _fill_info(self, infos: Any, info: Mapping[str, Any]) -> None:
        infos.SetInParent()
        if info:
            fill_map(infos, info, arrays=self._arrays, on_drop=self._conformance.dropped)
        if self._conformance.pending:
            fill_map(infos, {WARNING_KEY: self._conformance.pending})
            self._conformance.pending = []

    def _write_episode(self, message: Any, episode: CompletedEpisode) -> None:
        message.episode_id = episode.episode_id
        if episode.seed is not None:
            message.seed = episode.seed
        message.env_index = episode.lane
        message.step_count = episode.steps
        message.cumulative_reward = episode.reward
        message.terminated = episode.terminated
        message.truncated = episode.truncated
        message.start_timestamp_ns = episode.started_ns
        message.end_timestamp_ns = episode.ended_ns
        message.final_info.SetInParent()
        fill_map(message.final_info, episode.final_info, on_drop=self._conformance.dropped)


def _no_roll(lane: int, reward: float, terminated: bool, truncated: bool) -> EnvFault:
    return EnvFault(
        EnvErrorCode.INTERNAL,
        f"NEXT_STEP lane {lane}: expected its reset at the step after its last one (reward 0, not "
        f"done), got reward {reward}, terminated {terminated}, truncated {truncated}; the vector "
        "env does not do what its metadata['autoreset_mode'] says",
        recoverable=False,
    )


def _newest(frames: list[Any]) -> Any:
    return frames[-1] if frames else None
