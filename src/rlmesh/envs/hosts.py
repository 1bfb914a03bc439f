"""The envs a server can hold, behind one face: a single env, a list of lanes, a vector env."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

import numpy as np

from rlmesh.envs.infos import merge_infos
from rlmesh.spaces import Space, Tuple, from_gymnasium_space
from rlmesh.values import Codec, Policy, Report, SpacePart, compile_codec
from rlmesh.values.frameworks import Framework, framework_of, to_host
from rlmesh.values.tree import describe_tree, tree_to_host
from rlmesh.wire.contract import AutoresetMode, EnvContract
from rlmesh.wire.status import EnvErrorCode, EnvFault

__all__ = [
    "ON_HOST",
    "Bind",
    "Host",
    "HostStep",
    "LanesHost",
    "ScalarHost",
    "as_it_is",
    "brought",
    "checked_env",
    "is_vector_env",
    "peek",
    "split_reset",
    "split_step",
]

Leaves = list[Any]


HostStep = tuple[Leaves, Sequence[float], Sequence[bool], Sequence[bool], Mapping[str, Any]]
"""One step, ready for the wire: leaves, rewards, terminated, truncated (one per lane), info."""


class Host(Protocol):
    """An env as the server sees it. Every method runs on the env's thread."""

    contract: EnvContract
    lanes: int
    partial_reset: bool
    """Whether some lanes may be reset while others go on."""
    partial_step: bool
    """Whether some lanes may be stepped alone."""
    rolls: bool
    """Whether the step after a lane's last one is a reset (NEXT_STEP autoreset)."""

    def reset(
        self, lanes: Sequence[int] | None, seeds: Sequence[int], options: Mapping[str, Any] | None
    ) -> tuple[Leaves, Mapping[str, Any]]:
        """Reset ``lanes`` (None: all). ``seeds`` is empty, one base seed, or one per lane reset."""
        ...

    def step(self, lanes: Sequence[int] | None, leaves: Sequence[memoryview]) -> HostStep:
        """Step ``lanes`` (None: all); EnvFault INVALID_ACTION refuses the action."""
        ...

    def final_info(self, info: Mapping[str, Any], lane: int) -> Mapping[str, Any]:
        """Return the part of a step's info that belongs to the lane's ended episode."""
        ...

    def look(self, part: SpacePart | None) -> None:
        """Encode only this part of observations from here on; None: all of them."""
        ...

    def render(self, lane: int) -> Any:
        """Return the lane's frame as the env gives it, or None."""
        ...

    def close(self) -> None: ...


def checked_env(env: Any, what: str = "env") -> Any:
    """Return ``env`` if it has the surface of a gymnasium env; TypeError names what is missing."""
    for name in ("reset", "step", "close"):
        if not callable(getattr(env, name, None)):
            raise TypeError(
                f"{what} must have a '{name}' method, got {type(env).__name__}; "
                "pass an env instance with the gymnasium surface"
            )
    return env


def peek(env: Any, name: str, default: Any = None) -> Any:
    """Return an attribute that ``env`` may lack.

    Gymnasium 0.29 warns when a wrapper is asked for what only the env inside may have.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(env, name, default)


def is_vector_env(env: Any) -> bool:
    """Whether ``env`` has the surface of a vector env."""
    return peek(env, "num_envs") is not None or (
        peek(env, "single_observation_space") is not None
        and peek(env, "single_action_space") is not None
    )


def read_space(env: Any, name: str) -> Space:
    """Return a space of ``env`` as an rlmesh space; the error names the attribute."""
    space = peek(env, name)
    if space is None:
        raise TypeError(
            f"env must have {name} (an rlmesh, gymnasium or gym space); {type(env).__name__} has "
            "none"
        )
    try:
        return from_gymnasium_space(space)
    except (TypeError, ValueError) as exc:
        raise type(exc)(f"{name} of {type(env).__name__}: {exc}") from None


def read_metadata(env: Any) -> dict[str, Any]:
    """Return the env's metadata as a dict with string keys."""
    metadata: Any = getattr(env, "metadata", None)
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise TypeError(
            f"metadata of {type(env).__name__}: expected a mapping, got {type(metadata).__name__}"
        )
    return {str(key): value for key, value in metadata.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def read_id(env: Any) -> str:
    """Return ``env.spec.id``, or the placeholder the protocol uses."""
    identity = getattr(getattr(env, "spec", None), "id", None)
    return identity if isinstance(identity, str) and identity else "UnknownEnv-v1"


def read_render_mode(env: Any) -> str | None:
    """Return the env's render mode, if it is text."""
    mode = getattr(env, "render_mode", None)
    return mode if isinstance(mode, str) else None


def split_reset(result: Any, space: Space) -> tuple[Any, Mapping[str, Any]]:
    """Return (observation, info) of what a reset returned; info is {} where it gave none.

    A bare observation of a two-item Tuple space may look like (observation, info); it is taken as
    that only if its first item is itself a pair.
    """
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):  # pyright: ignore[reportUnknownArgumentType]
        pair = cast("tuple[Any, Any]", result)
        ambiguous = isinstance(space, Tuple) and len(space.spaces) == 2
        if not ambiguous or (isinstance(pair[0], (tuple, list)) and len(pair[0]) == 2):  # pyright: ignore[reportUnknownArgumentType]
            return pair
    return cast("Any", result), {}


def split_step(result: Any) -> tuple[Any, Any, Any, Any, Mapping[str, Any]]:
    """Return the five parts of a step; a legacy 4-tuple's done is terminated.

    Tensors among what it says beside the observation come to host memory, all of them at once.
    """
    several = isinstance(result, (tuple, list))
    parts = cast("Sequence[Any]", result) if several else ()
    truncated: Any = False
    if len(parts) == 5:
        observation, reward, terminated, truncated, info = parts
    elif len(parts) == 4:
        observation, reward, terminated, info = parts
    else:
        of = f" of {len(parts)}" if several else ""
        raise TypeError(
            "env.step must return a 4- or 5-tuple (observation, reward, terminated, truncated, "
            f"info), got a {type(result).__name__}{of}"
        )
    info = _mapping(info)
    framework = None if type(reward) in ON_HOST else framework_of(reward)
    if framework is not None:
        said = (reward, terminated, truncated, info)
        reward, terminated, truncated, info = brought(said, framework)
    return observation, reward, terminated, truncated, info


ON_HOST: Final = frozenset({float, int, bool, np.ndarray, np.float64, np.float32})
"""Types of rewards that need no looking at."""


def brought(tree: Any, framework: Framework) -> Any:
    """Return ``tree`` with the framework's arrays in host memory, in one transfer for all of them.

    Where one of them cannot come there, ``tree`` itself: what reads it says which one it is.
    """
    try:
        return tree_to_host(tree, framework)
    except (ValueError, RecursionError):
        return tree


def _mapping(info: Any) -> Mapping[str, Any]:
    if isinstance(info, Mapping):
        return cast("Mapping[str, Any]", info)
    if info is None:
        return {}
    raise TypeError(f"env.step must return a mapping as info, got {type(info).__name__}")


def as_reward(reward: Any) -> float:
    """Return a number, or an array or tensor of one, as a float."""
    if isinstance(reward, (float, int, np.floating, np.integer)):
        return float(cast("Any", reward))
    try:
        array = to_host(reward)
    except ValueError as exc:
        raise ValueError(f"reward: expected a number, got {describe_tree(reward)}: {exc}") from None
    if array.dtype.kind not in "biuf" or array.size != 1:
        raise TypeError(
            f"env.step must return one number as reward, got {type(reward).__name__} {reward!r:.80}"
            "; an env of several lanes says so with num_envs and single_observation_space"
        )
    return float(array.item())


def reset_arguments(seed: Any, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the keywords to call reset with: only those given, so that old envs keep working."""
    arguments: dict[str, Any] = {}
    if seed is not None:
        arguments["seed"] = seed
    if options is not None:
        arguments["options"] = dict(options)
    return arguments


def build_codecs(contract: EnvContract, report: Report) -> tuple[Codec, Codec]:
    """Return the action decoder and the observation encoder of a server."""
    policy = Policy.from_environment()
    action = compile_codec(
        contract.action_space,
        "action",
        policy=policy,
        report=report,
        encode_checked=False,
        decode_checked=True,
    )
    observation = compile_codec(
        contract.observation_space, "observation", policy=policy, report=report, lenient=True
    )
    return action, observation


def invalid_action(exc: ValueError) -> EnvFault:
    """Return the refusal of an action that does not fit; the env was not touched."""
    return EnvFault(EnvErrorCode.INVALID_ACTION, str(exc))


_FLAGS = ((False,), (True,))


Bind = Callable[[Any], Any]
"""Gives an env the face of a NumPy one."""


def as_it_is(env: Any) -> Any:
    """Return ``env``: it speaks NumPy already."""
    return env


class ScalarHost:
    """One env."""

    lanes = 1
    partial_reset = False
    partial_step = False
    rolls = False

    def __init__(self, env: Any, report: Report, bind: Bind = as_it_is) -> None:
        self.env = bind(checked_env(env))
        self.contract = EnvContract(
            id=read_id(env),
            observation_space=read_space(env, "observation_space"),
            action_space=read_space(env, "action_space"),
            render_mode=read_render_mode(env),
            autoreset_mode=AutoresetMode.DISABLED,
            metadata=read_metadata(env),
        )
        self._action, self._observation = build_codecs(self.contract, report)

    def reset(
        self, lanes: Sequence[int] | None, seeds: Sequence[int], options: Mapping[str, Any] | None
    ) -> tuple[Leaves, Mapping[str, Any]]:
        result = self.env.reset(**reset_arguments(seeds[0] if seeds else None, options))
        observation, info = split_reset(result, self.contract.observation_space)
        return self._observation.encode(observation), info

    def step(self, lanes: Sequence[int] | None, leaves: Sequence[memoryview]) -> HostStep:
        try:
            action = self._action.decode(leaves)
        except ValueError as exc:
            raise invalid_action(exc) from None
        result = self.env.step(action)
        observation, reward, terminated, truncated, info = split_step(result)
        return (
            self._observation.encode(observation),
            (as_reward(reward),),
            _FLAGS[bool(terminated)],
            _FLAGS[bool(truncated)],
            info,
        )

    def final_info(self, info: Mapping[str, Any], lane: int) -> Mapping[str, Any]:
        return info

    def look(self, part: SpacePart | None) -> None:
        self._observation = self._observation.of_part(part)

    def render(self, lane: int) -> Any:
        return self.env.render() if callable(getattr(self.env, "render", None)) else None

    def close(self) -> None:
        self.env.close()


class LanesHost:
    """A list of single envs, each a lane of its own: reset and stepped alone or together."""

    partial_reset = True
    partial_step = True
    rolls = False

    def __init__(self, envs: Sequence[Any], report: Report, bind: Bind = as_it_is) -> None:
        if not envs:
            raise ValueError("expected at least one env to serve as a lane, got an empty list")
        for lane, env in enumerate(envs):
            checked_env(env, f"env {lane}")
            if is_vector_env(env):
                raise TypeError(
                    f"env {lane} is a vector env ({type(env).__name__}); lanes are single envs. "
                    "Serve the vector env itself, not a list of them"
                )
        self.envs = [bind(env) for env in envs]
        self.lanes = len(self.envs)
        first = envs[0]
        self.contract = EnvContract(
            id=read_id(first),
            observation_space=read_space(first, "observation_space"),
            action_space=read_space(first, "action_space"),
            num_envs=self.lanes,
            render_mode=read_render_mode(first),
            autoreset_mode=AutoresetMode.DISABLED,
            metadata=read_metadata(first),
        )
        for lane, env in enumerate(envs[1:], 1):
            for name in ("observation_space", "action_space"):
                space, expected = read_space(env, name), getattr(self.contract, name)
                if space != expected:
                    raise ValueError(
                        f"env {lane}: {name} is {space!r}, expected {expected!r} as in env 0; "
                        "lanes share their spaces"
                    )
        self._action, self._observation = build_codecs(self.contract, report)

    def reset(
        self, lanes: Sequence[int] | None, seeds: Sequence[int], options: Mapping[str, Any] | None
    ) -> tuple[Leaves, Mapping[str, Any]]:
        indices = range(self.lanes) if lanes is None else lanes
        expanded = expand_seeds(seeds, len(indices))
        observations: list[Any] = []
        infos: list[Mapping[str, Any]] = []
        for lane, seed in zip(indices, expanded, strict=True):
            result = self.envs[lane].reset(**reset_arguments(seed, options))
            observation, info = split_reset(result, self.contract.observation_space)
            observations.append(observation)
            infos.append(info)
        return self._observation.encode_rows(observations), merge_infos(indices, infos, self.lanes)

    def step(self, lanes: Sequence[int] | None, leaves: Sequence[memoryview]) -> HostStep:
        indices = range(self.lanes) if lanes is None else lanes
        try:
            actions = self._action.decode_rows(leaves, len(indices))
        except ValueError as exc:
            raise invalid_action(exc) from None
        observations: list[Any] = []
        rewards: list[float] = []
        terminated: list[bool] = []
        truncated: list[bool] = []
        infos: list[Mapping[str, Any]] = []
        for lane, action in zip(indices, actions, strict=True):
            observation, reward, ended, cut, info = split_step(self.envs[lane].step(action))
            observations.append(observation)
            rewards.append(as_reward(reward))
            terminated.append(bool(ended))
            truncated.append(bool(cut))
            infos.append(info)
        return (
            self._observation.encode_rows(observations),
            rewards,
            terminated,
            truncated,
            merge_infos(indices, infos, self.lanes),
        )

    def final_info(self, info: Mapping[str, Any], lane: int) -> Mapping[str, Any]:
        return lane_info(info, lane, self.lanes)

    def look(self, part: SpacePart | None) -> None:
        self._observation = self._observation.of_part(part)

    def render(self, lane: int) -> Any:
        env = self.envs[lane]
        return env.render() if callable(getattr(env, "render", None)) else None

    def close(self) -> None:
        failures: list[BaseException] = []
        for env in self.envs:
            try:
                env.close()
            except Exception as exc:
                failures.append(exc)
        if failures:
            raise failures[0]


def expand_seeds(seeds: Sequence[int], lanes: int) -> Sequence[int | None]:
    """Return one seed per lane; a single seed is a base, as gymnasium's vector envs take it."""
    if not seeds:
        return [None] * lanes
    if len(seeds) == 1:
        return [seeds[0] + lane for lane in range(lanes)]
    if len(seeds) != lanes:
        raise EnvFault(
            EnvErrorCode.INVALID_ACTION,
            f"expected no seed, one base seed or {lanes} seeds (one per lane reset), got "
            f"{len(seeds)}",
        )
    return seeds


def lane_info(info: Mapping[str, Any], lane: int, lanes: int) -> dict[str, Any]:
    """Return a lane's own entries of a vector info map.

    Gymnasium marks with ``_key`` whose entry ``key`` is. Without a mask, what has one item a lane
    is taken apart, and anything else is said of every lane.
    """
    own: dict[str, Any] = {}
    for key, value in info.items():
        if key[:1] == "_" and key[1:] in info:
            continue
        mask = _mask(info.get(f"_{key}"), lanes)
        if mask is not None and not mask[lane]:
            continue
        if isinstance(value, Mapping):
            own[key] = lane_info(cast("Mapping[str, Any]", value), lane, lanes)
        elif mask is not None or _has_lanes(value, lanes):
            own[key] = value[lane]
        else:
            own[key] = value
    return own


def _mask(value: Any, lanes: int) -> Any:
    if value is None or isinstance(value, Mapping):
        return None
    mask: np.ndarray[Any, Any] = np.asarray(value)
    return mask if mask.shape == (lanes,) else None


def _has_lanes(value: Any, lanes: int) -> bool:
    if isinstance(value, (list, tuple)):
        return len(cast("Sequence[Any]", value)) == lanes
    shape = getattr(value, "shape", ())
    return bool(shape) and shape[0] == lanes
