"""`Model` and `RemoteModel` with `run`, `session` and `serve`: what the public modules hand out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlmesh._typevars import ActT, ActT_co, ObsT, ObsT_contra
from rlmesh.evals.hooks import RunHooks
from rlmesh.evals.results import RunResult
from rlmesh.evals.run import run as _run
from rlmesh.evals.run import session as _session
from rlmesh.evals.session import Session
from rlmesh.models.model import Model as _Model
from rlmesh.models.remote import RemoteModel as _RemoteModel
from rlmesh.transport.options import ServeOptions

if TYPE_CHECKING:
    from rlmesh.types import EnvTarget

__all__ = ["Model", "RemoteModel"]


class Model(_Model[ObsT_contra, ActT_co]):
    __doc__ = _Model.__doc__

    def run(
        self,
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
        """Evaluate this model on ``env``; see :func:`rlmesh.run`."""
        return _run(
            self,
            env,
            seeds=seeds,
            max_episodes=max_episodes,
            episodes=episodes,
            max_episode_steps=max_episode_steps,
            max_episode_seconds=max_episode_seconds,
            execution_horizon=execution_horizon,
            prefetch_lead=prefetch_lead,
            instruction=instruction,
            hooks=hooks,
            close_env=close_env,
            trust_entrypoints=trust_entrypoints,
            progress=progress,
            journal=journal,
            retries=retries,
            max_batch=max_batch,
            batch_wait_ms=batch_wait_ms,
            pushdown=pushdown,
            trial_index_base=trial_index_base,
            workflow_edition=workflow_edition,
        )

    def session(
        self,
        env: EnvTarget[ObsT, ActT],
        *,
        instruction: str | None = None,
        close_env: bool = False,
        trust_entrypoints: bool | None = None,
        execution_horizon: int = 1,
        workflow_edition: str | None = None,
    ) -> Session[ObsT, ActT]:
        """Return a session of this model on ``env``; see :func:`rlmesh.session`."""
        return _session(
            self,
            env,
            instruction=instruction,
            close_env=close_env,
            trust_entrypoints=trust_entrypoints,
            execution_horizon=execution_horizon,
            workflow_edition=workflow_edition,
        )

    def serve(self, address: str | None = None, *, options: ServeOptions | None = None) -> None:
        """Serve this model until it is stopped, on the calling thread.

        See :class:`rlmesh.ModelServer`, which can be started and stopped from elsewhere.

        Args:
            address: where to listen. Default: a free port of ``127.0.0.1``.
            options: lifetime and access.

        Raises:
            ConnectionError: the address cannot be bound.
            KeyboardInterrupt: after SIGINT.
        """
        from rlmesh.models.server import ModelServer

        with ModelServer(self, address, options=options) as server:
            server.serve()


class RemoteModel(_RemoteModel):
    __doc__ = _RemoteModel.__doc__

    def session(
        self,
        env: EnvTarget[ObsT, ActT],
        *,
        instruction: str | None = None,
        close_env: bool = False,
        trust_entrypoints: bool | None = None,
        execution_horizon: int = 1,
        workflow_edition: str | None = None,
    ) -> Session[ObsT, ActT]:
        """Return a session of the served model on ``env``; see :func:`rlmesh.session`.

        Raises:
            ValueError: ``instruction`` or ``trust_entrypoints`` is given: adapters live on the
                server.
        """
        return _session(
            self,
            env,
            instruction=instruction,
            close_env=close_env,
            trust_entrypoints=trust_entrypoints,
            execution_horizon=execution_horizon,
            workflow_edition=workflow_edition,
        )
