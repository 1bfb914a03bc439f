"""`run`: a policy, an env and seeds in; a result out."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rlmesh.envs.hosts import checked_env, split_reset, split_step
from rlmesh.envs.link import as_seed
from rlmesh.envs.remote import RemoteEnv, RemoteVectorEnv
from rlmesh.evals.results import EpisodeResult, RunResult, read_success
from rlmesh.numpy import RemoteEnv as NumpyRemoteEnv
from rlmesh.spaces import Space, from_gymnasium_space

__all__ = ["MAX_EPISODE_STEPS", "RANDOM_SAMPLE", "run"]

MAX_EPISODE_STEPS: Final = 100_000
"""No episode runs longer: an env that never ends is truncated, not run for ever."""

Predict = Callable[[Any], Any]


class _RandomSample:
    """Stands in for a policy: samples the env's action space."""

    def __repr__(self) -> str:
        return "RANDOM_SAMPLE"


RANDOM_SAMPLE: Final = _RandomSample()
"""Pass as the model for a baseline that ignores observations. Seeded episodes sample alike."""


def run(
    model: Predict | _RandomSample,
    env: Any,
    *,
    seeds: Iterable[int] | None = None,
    max_episodes: int | None = None,
) -> RunResult:
    """Evaluate ``model`` on ``env``.

    Args:
        model: ``predict(observation) -> action``, or :data:`RANDOM_SAMPLE`.
        env: a single env with the gymnasium surface, a ``RemoteEnv``, or the address of one. A
            handle or local env stays open; an address is dialled for the run.
        seeds: one episode each, reset with that seed (int64).
        max_episodes: run exactly that many. Overrides the number of seeds: episodes past the last
            seed are unseeded. Without either, one episode is run.

    Returns:
        The episodes, with success rate and its interval.

    Raises:
        TypeError, ValueError: an argument is impossible; nothing was connected.
        Exception: whatever the policy raises, unchanged; what a remote env raises arrives as
            :class:`~rlmesh.EnvironmentException`.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> env = gym.make("CartPole-v1")
        >>> result = rlmesh.run(lambda obs: int(obs[2] > 0), env, seeds=range(3))
        >>> [episode.seed for episode in result.episodes]
        [0, 1, 2]
    """
    plan = episode_seeds(seeds, max_episodes)
    if not isinstance(model, _RandomSample) and not callable(model):
        raise TypeError(
            f"model must be a predict callable or rlmesh.RANDOM_SAMPLE, got {type(model).__name__}"
        )
    if not plan:
        return RunResult(())
    with _opened(env) as target:
        predict = _Sampler(target) if isinstance(model, _RandomSample) else model
        return RunResult(
            tuple(_run_episode(predict, target, index, seed) for index, seed in enumerate(plan))
        )


def episode_seeds(seeds: Iterable[int] | None, max_episodes: int | None) -> list[int | None]:
    """Return the seed of every episode to run, by the three rules of :func:`run`."""
    given = None if seeds is None else [as_seed(seed) for seed in seeds]
    if given is not None and not given:
        raise ValueError("seeds is empty; give at least one seed, or leave it out")
    if max_episodes is None:
        return [None] if given is None else list(given)
    if isinstance(max_episodes, bool) or not isinstance(max_episodes, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"max_episodes must be an int, got {type(max_episodes).__name__}")
    if max_episodes < 0:
        raise ValueError(f"max_episodes must be 0 or more, got {max_episodes}")
    known = given or []
    return [known[i] if i < len(known) else None for i in range(max_episodes)]


@contextmanager
def _opened(env: Any) -> Generator[Any]:
    """Yield a single env for ``env``; what was dialled here is closed here."""
    if isinstance(env, str):
        with NumpyRemoteEnv(env) as remote:
            yield remote
        return
    if isinstance(env, RemoteVectorEnv) or hasattr(env, "num_envs"):
        raise TypeError(
            f"run() drives a single env, got the vector env {type(env).__name__}; pass one of its "
            "lanes, or serve single envs"
        )
    if not isinstance(env, RemoteEnv):
        try:
            checked_env(env)
        except TypeError as exc:
            raise TypeError(
                f"env must be a single env, a RemoteEnv or an address string: {exc}"
            ) from None
    yield env


class _Sampler:
    """RANDOM_SAMPLE bound to an env: a seed samples the same actions wherever the env is."""

    def __init__(self, env: Any) -> None:
        self._space: Space = from_gymnasium_space(env.action_space)

    def begin(self, seed: int | None) -> None:
        self._space.seed(seed)

    def __call__(self, observation: Any) -> Any:
        return self._space.sample()


def _run_episode(predict: Predict, env: Any, index: int, seed: int | None) -> EpisodeResult:
    clock = time.perf_counter
    started = clock()
    if isinstance(predict, _Sampler):
        predict.begin(seed)
    space = env.observation_space
    observation, _ = split_reset(env.reset() if seed is None else env.reset(seed=seed), space)
    reward = predict_s = step_s = 0.0
    steps = 0
    terminated = truncated = False
    info: Mapping[str, Any] = {}
    while not (terminated or truncated):
        before = clock()
        action = predict(observation)
        between = clock()
        observation, gained, ended, cut, info = split_step(env.step(action))
        after = clock()
        steps += 1
        reward += float(gained)
        terminated, truncated = bool(ended), bool(cut) or steps == MAX_EPISODE_STEPS
        predict_s += between - before
        step_s += after - between
    return EpisodeResult(
        index=index,
        seed=seed,
        steps=steps,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        success=read_success(info),
        duration_s=clock() - started,
        predict_ms=1000 * predict_s / steps,
        step_ms=1000 * step_s / steps,
    )
