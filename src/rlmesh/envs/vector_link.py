"""The link to an endpoint that serves several lanes: all at once, or some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlmesh.envs.infos import gather_published
from rlmesh.envs.link import EnvLink, LinkOptions, as_seed, step_header
from rlmesh.errors import ProtocolException
from rlmesh.transport.address import Address
from rlmesh.values.frameworks import to_host
from rlmesh.wire.contract import AutoresetMode
from rlmesh.wire.handshake import PARTIAL_RESET
from rlmesh.wire.ids import uuid7
from rlmesh.wire.meta import decode_map

__all__ = ["VectorLink"]

Array = np.ndarray[Any, Any]


class VectorLink(EnvLink):
    """The link to an endpoint that serves several lanes."""

    def __init__(self, address: Address, options: LinkOptions) -> None:
        super().__init__(address, options)
        self.lanes = self.contract.num_envs
        self._forget()

    def _forget(self) -> None:
        self._ids = [""] * self.lanes
        self._header = step_header(self._ids)
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
            if not self.resets_lanes:
                raise RuntimeError(
                    f"the env at {self.address} cannot reset some of its lanes; reset all of them, "
                    "or serve a list of single envs"
                )
            if self._last is None:
                raise RuntimeError("reset every lane once before resetting some of them")
        count = self.lanes if lanes is None else len(lanes)
        self.send_reset(self._seeds(seed, lanes, count), options, lanes)
        return self.recv_reset()

    def _marked(self, mask: Any) -> list[int]:
        marks = to_host(mask)
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
            if lanes is None and not self.steps_lanes:
                return [base]  # for the vector env to spread
            return [base + lane for lane in (range(self.lanes) if lanes is None else lanes)]
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
        self._resetting = lanes
        reset = range(self.lanes) if lanes is None else lanes
        fresh = [uuid7() for _ in reset]
        request = self.reset_request([as_seed(s) for s in seeds], options, fresh)
        if lanes is not None:
            request.reset.env_indices.extend(lanes)
        self.send(request.SerializeToString())
        for lane, episode_id in zip(reset, fresh, strict=True):
            self._ids[lane] = episode_id
            self._ended[lane] = False
        self._header = step_header(self._ids)

    def recv_reset(self) -> tuple[Any, dict[str, Any]]:
        """Return (batched observations of all lanes, info) of the reset that was asked for."""
        response, leaves = self.recv()
        info = self._read_info(response.reset.infos, self._resetting)
        if self.annotates:
            info.setdefault("episode_ids", list(self._ids))
        if self._resetting is not None:
            leaves = self._merge(leaves, self._resetting)
        self._remember(leaves)
        return self._observation.decode_batch(leaves, self.lanes), info

    def _remember(self, leaves: Sequence[memoryview]) -> None:
        """Copy the observations for a partial reset: the caller owns the arrays over ``leaves``."""
        if not self.resets_lanes:
            return
        last = self._last
        if last is None or [leaf.nbytes for leaf in last] != [leaf.nbytes for leaf in leaves]:
            self._last = [memoryview(bytearray(leaf)) for leaf in leaves]
        else:
            for kept, leaf in zip(last, leaves, strict=True):
                kept[:] = leaf

    def _merge(self, leaves: list[memoryview], lanes: Sequence[int]) -> list[memoryview]:
        """Return the last observations of all lanes, with those of ``lanes`` replaced."""
        assert self._last is not None
        rows = self._observation.decode_rows(self._last, self.lanes)
        fresh = self._observation.decode_rows(leaves, len(lanes))
        for lane, row in zip(lanes, fresh, strict=True):
            rows[lane] = row
        merged = self._observation.encode_rows(rows)
        return [memoryview(leaf).cast("B") for leaf in merged]

    def recv_reset_rows(self) -> tuple[list[Any], dict[str, Any]]:
        """Return (one observation per lane that was reset, info)."""
        response, leaves = self.recv()
        count = self.lanes if self._resetting is None else len(self._resetting)
        info = self._read_info(response.reset.infos, self._resetting)
        return self._observation.decode_rows(leaves, count), info

    def send_step(self, actions: Any) -> None:
        """Send one action per lane; ValueError refuses what does not fit."""
        if self._ended.any():
            self._turn_over(None)
        self.send(self._header, self._action.encode_batch(actions, self.lanes))

    def send_step_rows(self, actions: Sequence[Any], lanes: Sequence[int] | None) -> None:
        """Send one action for each of ``lanes`` (None: all)."""
        if self._ended.any():
            self._turn_over(lanes)
        header = self._header
        if lanes is not None:
            header = step_header([self._ids[lane] for lane in lanes], lanes)
        self.send(header, self._action.encode_rows(actions))

    def _turn_over(self, lanes: Sequence[int] | None) -> None:
        """Name the episodes that a step of ``lanes`` begins where the last one ended."""
        stepped = self._ended if lanes is None else self._ended[list(lanes)]
        if not stepped.any():
            return
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
        self._header = step_header(self._ids)

    def recv_step(self) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Return (observations, rewards, terminated, truncated, info), all with a lane axis."""
        step, leaves, rewards, terminated, truncated = self._recv_step(self.lanes)
        info = self._read_info(step.infos, None)
        if self.annotates:
            info.setdefault("episode_ids", list(self._ids))
            info.setdefault("completed_episodes", len(step.completed_episodes))
        np.logical_or(terminated, truncated, out=self._ended)
        self._remember(leaves)
        observations = self._observation.decode_batch(leaves, self.lanes)
        framework = self.options.framework
        if framework.fuses:  # a Tensor of rewards could not be added up
            own = framework.from_host
            return observations, own(rewards), own(terminated), own(truncated), info
        return observations, rewards, terminated, truncated, info

    def recv_step_rows(
        self, lanes: Sequence[int] | None
    ) -> tuple[list[Any], list[float], list[bool], list[bool], dict[str, Any]]:
        """Return the same for the ``lanes`` that were stepped, as lists with one entry each."""
        count = self.lanes if lanes is None else len(lanes)
        step, leaves, rewards, terminated, truncated = self._recv_step(count)
        self._ended[slice(None) if lanes is None else list(lanes)] = terminated | truncated
        rows = self._observation.decode_rows(leaves, count)
        info = self._read_info(step.infos, lanes)
        return rows, rewards.tolist(), terminated.tolist(), truncated.tolist(), info

    def _read_info(self, infos: Any, lanes: Sequence[int] | None) -> dict[str, Any]:
        """Return the info map of ``lanes`` (None: all), in gymnasium's vector form."""
        info = decode_map(infos)
        if self.steps_lanes and PARTIAL_RESET not in self.capabilities:
            return gather_published(info, range(self.lanes) if lanes is None else lanes, self.lanes)
        return info

    def _recv_step(self, count: int) -> tuple[Any, list[memoryview], Array, Array, Array]:
        response, leaves = self.recv()
        self.env_ns = response.endpoint_total_ns
        step = response.step
        rewards = np.array(step.rewards, np.float64) if step.rewards else np.zeros(count)
        terminated = _mask(step.terminated_mask, count)
        truncated = _mask(step.truncated_mask, count)
        if len(rewards) != count or len(terminated) != count or len(truncated) != count:
            raise ProtocolException(
                f"env server at {self.address}: expected {count} rewards and flags, got "
                f"{len(rewards)}, {len(terminated)} and {len(truncated)}"
            )
        return step, leaves, rewards, terminated, truncated


def _mask(data: bytes, lanes: int) -> Array:
    if not data:
        return np.zeros(lanes, np.bool_)
    return np.frombuffer(data, np.uint8) != 0
