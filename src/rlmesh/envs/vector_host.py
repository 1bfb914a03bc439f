"""Vector envs: gymnasium's SyncVectorEnv and AsyncVectorEnv, and anything with their surface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from rlmesh.envs.hosts import (
    Bind,
    HostStep,
    Leaves,
    as_it_is,
    build_codecs,
    checked_env,
    expand_seeds,
    invalid_action,
    lane_info,
    peek,
    read_id,
    read_metadata,
    read_render_mode,
    read_space,
    reset_arguments,
    split_reset,
    split_step,
)
from rlmesh.spaces import Dict, Space, Tuple
from rlmesh.values import Report, SpacePart
from rlmesh.values.frameworks import to_host
from rlmesh.wire.contract import AutoresetMode, EnvContract
from rlmesh.wire.status import EnvErrorCode, EnvFault

__all__ = ["SqueezedVectorEnv", "VectorHost", "read_autoreset_mode"]


def read_autoreset_mode(env: Any) -> AutoresetMode:
    """Return what the vector env does after a lane's last step.

    gymnasium >= 1.1 declares it in ``metadata["autoreset_mode"]``; 1.0 always rolls on the next
    step and 0.29 within the same one. An env that declares nothing else resets nothing.
    """
    declared: Any = read_metadata(env).get("autoreset_mode")
    if declared is not None:
        value = str(getattr(declared, "value", declared))
        for mode in AutoresetMode:
            if value.lower() in (mode.value.lower(), mode.name.lower()):
                return mode
        raise ValueError(
            f"metadata['autoreset_mode'] of {type(env).__name__}: expected one of "
            f"{[mode.value for mode in AutoresetMode]}, got {value!r}"
        )
    version = _gymnasium_version(env)
    if version is None or version >= (1, 1):
        return AutoresetMode.DISABLED
    return AutoresetMode.NEXT_STEP if version >= (1, 0) else AutoresetMode.SAME_STEP


def _gymnasium_classes(env: Any) -> set[str]:
    """Return the names of gymnasium's own vector env classes under ``env`` and its wrappers."""
    base = cast("type[Any]", type(peek(env, "unwrapped", env)))
    return {cls.__name__ for cls in base.__mro__ if cls.__module__.startswith("gymnasium.vector")}


def _gymnasium_version(env: Any) -> tuple[int, int] | None:
    """Return gymnasium's (major, minor) if ``env`` is derived from its vector envs."""
    if not _gymnasium_classes(env):
        return None
    import gymnasium

    major, minor = gymnasium.__version__.split(".")[:2]
    return int(major), int(minor)


def _takes_reset_mask(env: Any, mode: AutoresetMode) -> bool:
    """Whether ``options={"reset_mask": ...}`` resets some lanes and leaves the others alone.

    gymnasium's own vector envs do so from 1.1 on. Somebody else's that leaves lanes alone after
    their end must, for it cannot be driven any other way; of others nothing is known.
    """
    if {"SyncVectorEnv", "AsyncVectorEnv"} & _gymnasium_classes(env):
        if mode is AutoresetMode.NEXT_STEP and _forgets_masked_resets(env):
            return False
        version = _gymnasium_version(env)
        return version is not None and version >= (1, 1)
    return mode is AutoresetMode.DISABLED


_WHOLE_OBSERVATIONS = ("final_obs", "_final_obs", "final_observation", "_final_observation")
"""Info entries of SAME_STEP envs that would carry every leaf past a client that asked for some."""


class VectorHost:
    """A vector env: all lanes step together."""

    partial_step = False

    def __init__(self, env: Any, report: Report, bind: Bind = as_it_is) -> None:
        self.env = bind(checked_env(env, "vector env"))
        self.lanes = _read_lanes(env)
        mode = read_autoreset_mode(env)
        self.rolls = mode is AutoresetMode.NEXT_STEP
        self.partial_reset = _takes_reset_mask(env, mode)
        self._mode = mode
        self._kind = type(env).__name__
        metadata = read_metadata(env)
        metadata["autoreset_mode"] = mode.value
        self.contract = EnvContract(
            id=read_id(env),
            observation_space=read_space(env, "single_observation_space"),
            action_space=read_space(env, "single_action_space"),
            num_envs=self.lanes,
            render_mode=read_render_mode(env),
            autoreset_mode=mode,
            metadata=metadata,
        )
        self._action, self._observation = build_codecs(self.contract, report)
        self._takes_tuple = _batched_as_tuple(env)
        self._frames: dict[int, Any] = {}
        self._in_part = False

    def reset(
        self, lanes: Sequence[int] | None, seeds: Sequence[int], options: Mapping[str, Any] | None
    ) -> tuple[Leaves, Mapping[str, Any]]:
        seed: Any = None
        if lanes is None:
            if len(seeds) > 1:
                seed = list(expand_seeds(seeds, self.lanes))
            elif seeds:
                seed = seeds[0]
        else:
            if not self.partial_reset:
                raise EnvFault(
                    EnvErrorCode.UNSUPPORTED,
                    f"{self._kind} cannot reset some of its lanes; reset all of them, "
                    "serve a list of single envs, or use gymnasium >= 1.1",
                )
            mask = np.zeros(self.lanes, np.bool_)
            mask[list(lanes)] = True
            options = {**(options or {}), "reset_mask": mask}
            if seeds:
                seed = [None] * self.lanes
                for lane, value in zip(lanes, expand_seeds(seeds, len(lanes)), strict=True):
                    seed[lane] = value
        self._frames.clear()
        result = self.env.reset(**reset_arguments(seed, options))
        observation, info = split_reset(result, self.contract.observation_space)
        leaves = self._observation.encode_batch(observation, self.lanes, lanes)
        return leaves, info

    def step(self, lanes: Sequence[int] | None, leaves: Sequence[memoryview]) -> HostStep:
        try:
            actions = self._action.decode_batch(leaves, self.lanes)
        except ValueError as exc:
            raise invalid_action(exc) from None
        if self._takes_tuple:
            actions = tuple(actions)
        self._frames.clear()
        observation, rewards, terminated, truncated, info = split_step(self.env.step(actions))
        if self._in_part and self._mode is AutoresetMode.SAME_STEP:
            info = {key: value for key, value in info.items() if key not in _WHOLE_OBSERVATIONS}
        return (
            self._observation.encode_batch(observation, self.lanes),
            np.asarray(to_host(rewards), np.float64).reshape(self.lanes).tolist(),
            _flags(terminated, self.lanes),
            _flags(truncated, self.lanes),
            info,
        )

    def final_info(self, info: Mapping[str, Any], lane: int) -> Mapping[str, Any]:
        if self._mode is AutoresetMode.SAME_STEP and "final_info" in info:
            final: Any = info["final_info"]
            if isinstance(final, Mapping):
                return lane_info(cast("Mapping[str, Any]", final), lane, self.lanes)
            entry: Any = final[lane]  # gymnasium 0.29: an array of dicts
            return cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else {}
        return lane_info(info, lane, self.lanes)

    def look(self, part: SpacePart | None) -> None:
        self._observation = self._observation.of_part(part)
        self._in_part = part is not None

    def render(self, lane: int) -> Any:
        if self.contract.render_mode is None:
            return None
        if lane not in self._frames:
            # One call renders every lane: the others' frames are kept until they are asked for.
            frames: Any = self.env.render()
            if frames is None:
                return None
            self._frames = dict(enumerate(cast("Sequence[Any]", frames)))
        return self._frames.pop(lane, None)

    def close(self) -> None:
        self.env.close()


def _forgets_masked_resets(env: Any) -> bool:
    """Whether the env would roll a lane once more, unseeded, after it was reset by mask.

    gymnasium's AsyncVectorEnv does with ``shared_memory=False`` (seen in 1.4): the seeded episode
    would be thrown away at its first step, in silence.
    """
    base = getattr(env, "unwrapped", env)
    return type(base).__name__ == "AsyncVectorEnv" and not getattr(base, "shared_memory", True)


def _read_lanes(env: Any) -> int:
    lanes = peek(env, "num_envs")
    if lanes is None or int(lanes) < 1:
        raise ValueError(
            f"num_envs of {type(env).__name__}: expected the number of lanes (>= 1), got {lanes}"
        )
    return int(lanes)


def _flags(values: Any, lanes: int) -> list[bool]:
    return np.broadcast_to(np.asarray(to_host(values), np.bool_), (lanes,)).tolist()


def _batched_as_tuple(env: Any) -> bool:
    """Whether gymnasium batches this action space as a tuple of single actions (Text, custom)."""
    batched = peek(env, "action_space")
    single = peek(env, "single_action_space")
    return type(batched).__name__ == "Tuple" and type(single).__name__ != "Tuple"


class SqueezedVectorEnv:
    """A vector env of one lane, with the surface of a single env.

    The wire knows no vector of one, so the lane axis is dropped from observations and infos and
    added to actions. Under SAME_STEP the last observation and info are those of the ended episode,
    not of the one that the env began by itself.
    """

    def __init__(self, env: Any, bind: Bind = as_it_is) -> None:
        self.env = bind(env)
        self.observation_space = read_space(env, "single_observation_space")
        self.action_space = read_space(env, "single_action_space")
        self.render_mode = getattr(env, "render_mode", None)
        self.spec = getattr(env, "spec", None)
        self.metadata = {k: v for k, v in read_metadata(env).items() if k != "autoreset_mode"}

    def reset(self, **arguments: Any) -> tuple[Any, Mapping[str, Any]]:
        observation, info = split_reset(self.env.reset(**arguments), self.observation_space)
        return _first(observation, self.observation_space), lane_info(info, 0, 1)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        batched = _batch_of_one(action, self.action_space)
        observation, rewards, terminated, truncated, info = split_step(self.env.step(batched))
        done = bool(terminated[0]) or bool(truncated[0])
        final = info.get("final_obs", info.get("final_observation")) if done else None
        own = lane_info(info, 0, 1)
        if final is not None:
            observation = _first(final, self.observation_space)
            last: Any = info.get("final_info")
            if isinstance(last, Mapping):
                own = lane_info(cast("Mapping[str, Any]", last), 0, 1)
            elif last is not None:
                own = dict(last[0] or {})
        else:
            observation = _first(observation, self.observation_space)
        return observation, float(rewards[0]), bool(terminated[0]), bool(truncated[0]), own

    def render(self) -> Any:
        if self.render_mode is None:
            return None
        frames = self.env.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        self.env.close()


def _first(tree: Any, space: Space) -> Any:
    """Return lane 0 of a batched value; an object array or list holds whole values."""
    if isinstance(space, Dict) and isinstance(tree, Mapping):
        return {key: _first(tree[key], child) for key, child in space.items()}  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(space, Tuple) and isinstance(tree, tuple):
        items = cast("tuple[Any, ...]", tree)
        return tuple(_first(item, s) for item, s in zip(items, space.spaces, strict=True))
    return tree[0]


def _batch_of_one(tree: Any, space: Space) -> Any:
    if isinstance(space, Dict):
        return {key: _batch_of_one(tree[key], child) for key, child in space.items()}
    if isinstance(space, Tuple):
        return tuple(_batch_of_one(t, s) for t, s in zip(tree, space.spaces, strict=True))
    return (tree,) if isinstance(tree, str) else np.asarray(tree)[None]
