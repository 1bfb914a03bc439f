"""`run`: a policy, an env and seeds in; a result out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlmesh._typevars import ActT, ObsT
from rlmesh.evals.engine import check_request, keep_partial
from rlmesh.evals.hooks import RunHooks
from rlmesh.evals.results import RunResult
from rlmesh.evals.session import Session

if TYPE_CHECKING:
    from rlmesh.types import EnvTarget, ModelTarget

__all__ = ["run", "session"]


def run(
    model: ModelTarget,
    env: EnvTarget,
    *,
    seeds: Iterable[int] | None = None,
    max_episodes: int | None = None,
    episodes: int | None = None,
    max_episode_steps: int | None = None,
    max_episode_seconds: float | None = None,
    execution_horizon: int = 1,
    prefetch_lead: int = 0,
    instruction: str | None = None,
    hooks: RunHooks | Iterable[RunHooks] | None = None,
    close_env: bool = False,
    trust_entrypoints: bool | None = None,
    progress: bool | None = None,
    journal: str | os.PathLike[str] | None = None,
    retries: int = 0,
    max_batch: int | None = None,
    batch_wait_ms: float | None = None,
    pushdown: bool = False,
    trial_index_base: int = 0,
    workflow_edition: str | None = None,
) -> RunResult:
    """Evaluate ``model`` on ``env``.

    One loop drives everything ``env`` may be; the same seed is the same episode in all of them.

    Args:
        model: a :class:`~rlmesh.Model`, anything one can be made of (a predict callable, a policy
            object or class), or :data:`RANDOM_SAMPLE`.
        env: a local env with the gymnasium surface, single or vector; a ``RemoteEnv`` or
            ``RemoteVectorEnv``; an address; an :class:`~rlmesh.EnvFactory`; or a list of these,
            driven together. What is passed stays open; an address is dialled for the run, and a
            factory makes an env with its defaults, closed with the factory when the run is over.
        seeds: one episode each, reset with that seed (int64).
        max_episodes: run exactly that many. Overrides the number of seeds: episodes past the last
            seed are unseeded. Without either, one episode is run.
        episodes: another name of ``max_episodes``.
        max_episode_steps: truncate an episode at that step. Never more than 100,000.
        max_episode_seconds: truncate an episode at the first step after that long.
        execution_horizon: how many actions of a chunk to execute before predicting again, 1..1024.
            A model without a chunk corner runs un-chunked, with a warning.
        prefetch_lead: predict a lane's next chunk while that many actions are still to be executed,
            from the observation of that moment. Default 0: predict when they have run out.
        instruction: fills the text leaves of the model's spec.
        hooks: a :class:`~rlmesh.RunHooks`, or several.
        close_env: close the env afterwards; a server stops if it allows that.
        trust_entrypoints: allow the model's spec to name code to import.
        progress: True: a bar on a terminal, lines elsewhere. None (default): a bar on a terminal.
            False: nothing.
        journal: a file that every finished episode is written to. The same call with the same file
            goes on where the last one stopped.
        retries: how often an episode is run again when its endpoint is lost. Default 0: raise.
        max_batch: most lanes in one prediction. Default: all.
        batch_wait_ms: longest wait for more lanes before a prediction. Default: found by the run.
        pushdown: let the servers of remote envs take the first image steps of the model's adapter,
            so that a camera crosses at the size the model reads. The same numbers; a warning where
            that cannot be promised and the camera crosses whole.
        trial_index_base: the trial of the first episode, 0 or more; each episode walks the next. An
            env that declares the reset option ``trial_index`` (``EnvFactory.reset_options``) is
            given it at every reset.
        workflow_edition: the edition to ask servers for. Default: what ``RLMESH_WORKFLOW_EDITION``,
            the model's class or the project's ``pyproject.toml`` declares, else the newest.

    Returns:
        The episodes in order of their seeds, with success rate and its interval.

    Raises:
        TypeError, ValueError: an argument is impossible; nothing was connected.
        Exception: what the policy, a hook or a local env raises, unchanged; what a remote env
            raises arrives as :class:`~rlmesh.EnvironmentException`. :func:`partial_result` gives
            the episodes that were finished.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> env = gym.make("CartPole-v1")
        >>> result = rlmesh.run(lambda obs: int(obs[2] > 0), env, seeds=range(3))
        >>> [episode.seed for episode in result.episodes]
        [0, 1, 2]
    """
    request = check_request(
        seeds=seeds,
        max_episodes=max_episodes,
        episodes=episodes,
        max_episode_steps=max_episode_steps,
        max_episode_seconds=max_episode_seconds,
        hooks=hooks,
        prefetch_lead=prefetch_lead,
        retries=retries,
        max_batch=max_batch,
        batch_wait_ms=batch_wait_ms,
        progress=progress,
        journal=journal,
        pushdown=pushdown,
        trial_index_base=trial_index_base,
    )
    driven = Session(
        model,
        env,
        instruction=instruction,
        close_env=close_env,
        trust_entrypoints=trust_entrypoints,
        execution_horizon=execution_horizon,
        workflow_edition=workflow_edition,
    )
    try:
        result = driven.execute(request, last=True)
    except BaseException as exc:
        driven.abort(exc)
        raise
    try:
        driven.close()
    except BaseException as exc:
        keep_partial(exc, result)
        raise
    return result


def session(
    model: ModelTarget,
    env: EnvTarget[ObsT, ActT],
    *,
    instruction: str | None = None,
    close_env: bool = False,
    trust_entrypoints: bool | None = None,
    execution_horizon: int = 1,
    workflow_edition: str | None = None,
) -> Session[ObsT, ActT]:
    """Return a :class:`Session`: ``model`` on ``env``, driven by hand.

    Nothing is connected before the first use. Arguments as for :func:`run`.
    """
    return Session(
        model,
        env,
        instruction=instruction,
        close_env=close_env,
        trust_entrypoints=trust_entrypoints,
        execution_horizon=execution_horizon,
        workflow_edition=workflow_edition,
    )
