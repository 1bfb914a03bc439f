"""Does the env give what its tags promise? A few steps with a policy that knows nothing.

Tags and a spec can agree with each other and still not with the simulator: a camera that renders
black, four numbers that are no quaternion, a gripper in millimetres. :func:`check` looks at the
values.

=================================  =========  ====================================================
code                               severity   what was seen
=================================  =========  ====================================================
``camera-black``                   caution    every pixel of every frame is (next to) 0
``camera-flat``                    caution    every frame has one colour only
``camera-frozen``                  caution    all frames are the same, though the env was stepped
``state-not-finite``               caution    NaN or infinity
``state-out-of-range``             caution    elements leave the range of their space or tag
``state-constant``                 info       elements have one value at every step
``rotation-not-unit``              caution    quaternions of a length other than 1, 6-D columns that
                                              are not orthonormal
``rotation-sign-flips``            caution    a quaternion changes sign from one step to the next
``gripper-outside-conventions``    caution    values outside [-1, 1] without a declared range
``instruction-empty``              caution    the instruction is empty or blank
``action-outside-space``           caution    a converted action leaves the env's action space
=================================  =========  ====================================================

    >>> import gymnasium
    >>> from rlmesh import adapters as adapt
    >>> from rlmesh.adapters.check import check
    >>> env = gymnasium.make("MountainCarContinuous-v0")
    >>> tags = adapt.EnvTags(
    ...     adapt.Split(adapt.Field("x/position", 1), adapt.Field("x/speed", 1)),
    ...     adapt.Action(adapt.Actuator("x/force", 1)),
    ... )
    >>> spec = adapt.ModelSpec(
    ...     {"state": adapt.Concat("x/position", "x/speed")},
    ...     adapt.Action(adapt.Actuator("x/force", 1)),
    ... )
    >>> check(env, spec, tags=tags)
    []
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from rlmesh.adapters.advisory import AdapterResolutionError, Advisory
from rlmesh.adapters.check_watch import Watch, watches
from rlmesh.adapters.encodings import CustomEncoding
from rlmesh.adapters.features import join
from rlmesh.adapters.resolution import published_tags, resolve
from rlmesh.adapters.resolve import as_space
from rlmesh.adapters.rotations import convert_rotation
from rlmesh.adapters.specs import ModelSpec
from rlmesh.adapters.tags import EnvTags
from rlmesh.spaces import Box

__all__ = ["check", "tags_of"]

Array = np.ndarray[Any, Any]
Policy = Literal["zero", "random"] | Callable[[Any], Any]


def check(
    env: Any,
    spec: ModelSpec,
    *,
    episodes: int = 1,
    steps: int = 50,
    policy: Policy = "random",
    seed: int = 0,
    tags: EnvTags | None = None,
) -> list[Advisory]:
    """Run an env for a few steps under an adapter and return what looks wrong.

    Args:
        env: one env (not a vector env) with Gymnasium's API, local or remote; it is not closed.
        spec: what the model takes and gives.
        episodes: how many, each ended by the env or after `steps` steps.
        steps: the most steps of an episode.
        policy: ``"random"`` draws the model's action (each number from its declared range, else
            from [-1, 1]; unit rotations), ``"zero"`` is all 0, a callable gets the model's input.
        seed: seeds episode i with seed + i, and the random policy.
        tags: what the env's leaves mean; default those in its metadata.

    Returns:
        Advisories in the order cameras, states, texts, action; empty when all looks right. What
        resolving itself has to say is `Adapter.advisories()`.

    Raises:
        AdapterResolutionError: the env carries no tags, or env and spec do not fit together.
        TypeError: a vector env.
    """
    _check_scalar(env)
    found = tags_of(env) if tags is None else tags
    adapter = resolve(found, env.observation_space, env.action_space, spec)
    space = as_space(env.observation_space, "observation")
    watched = watches(join(found, space), space, adapter.plan)
    sent = _Sent(as_space(env.action_space, "action"))
    predict = adapter.wrap_predict(_policy(policy, spec, np.random.default_rng(seed)))
    for episode in range(episodes):
        adapter.reset()
        for watch in watched:
            watch.begin()
        observation, _ = env.reset(seed=seed + episode)
        _look(watched, observation)
        for _ in range(steps):
            observation, _, terminated, truncated, _ = env.step(sent.checked(predict(observation)))
            _look(watched, observation)
            if terminated or truncated:
                break
    return [*(item for watch in watched for item in watch.findings()), *sent.findings()]


def _check_scalar(env: Any) -> None:
    lanes = getattr(env, "num_envs", None)
    if lanes is not None:
        raise TypeError(
            f"check() drives one env, got a vector env of {lanes} lanes; check one of them"
        )


def tags_of(env: Any) -> EnvTags:
    """Return the tags an env publishes.

    Raises:
        AdapterResolutionError: it publishes none.
    """
    tags = published_tags(getattr(env, "metadata", None))
    if tags is None:
        raise AdapterResolutionError(
            "the env carries no adapter tags; tag(env, EnvTags(...)) it, or pass tags="
        )
    return tags


def _look(watched: list[Watch], observation: Any) -> None:
    for watch in watched:
        watch.look(observation)


def _policy(policy: Policy, spec: ModelSpec, rng: np.random.Generator) -> Callable[[Any], Any]:
    if callable(policy):
        return policy
    if policy == "zero":
        return lambda payload: np.zeros(spec.output.dim, np.float32)
    if policy == "random":
        return lambda payload: np.concatenate(list(_draw(spec, rng)))
    raise ValueError(f"policy must be 'zero', 'random' or a callable, got {policy!r}")


def _draw(spec: ModelSpec, rng: np.random.Generator) -> Iterator[Array]:
    for item in spec.output.components:
        encoding = item.encoding
        if isinstance(encoding, CustomEncoding):
            encoding = encoding.base
        if encoding is not None:
            quat = rng.normal(size=4)
            yield convert_rotation(quat / np.linalg.norm(quat), "quat_xyzw", encoding)
        else:
            low, high = item.range or (-1.0, 1.0)
            yield rng.uniform(low, high, item.dim).astype(np.float32)


class _Sent:
    """The actions sent to the env, against its action space."""

    def __init__(self, space: Any) -> None:
        self._box = space if isinstance(space, Box) else None
        self._outside: dict[int, float] = {}

    def checked(self, action: Array) -> Array:
        """The action, clamped to the space so that the env survives it."""
        if self._box is None:
            return action
        low, high = self._box.low_array, self._box.high_array
        flat = action.reshape(-1).astype(np.float64)
        beyond = (flat < low.reshape(-1) - 1e-6) | (flat > high.reshape(-1) + 1e-6)
        for index in np.nonzero(beyond)[0].tolist():
            worst = self._outside.get(index, 0.0)
            self._outside[index] = max(worst, float(flat[index]), key=abs)
        return np.clip(action, low, high).astype(action.dtype)

    def findings(self) -> Iterator[Advisory]:
        if self._outside:
            seen = ", ".join(f"[{i}] {value:.4g}" for i, value in sorted(self._outside.items()))
            yield Advisory(
                "caution",
                f"the converted action leaves the env's action space at {seen}; declare the ranges "
                "of both sides, or clip on the env's Action (it was clamped for this check)",
                "action-outside-space",
            )
