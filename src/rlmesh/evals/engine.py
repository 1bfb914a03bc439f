"""From arguments to a result: everything around the loop that `run` and `Session.run` share."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlmesh.errors import add_note
from rlmesh.evals.endpoints import Endpoint
from rlmesh.evals.episodes import Episodes
from rlmesh.evals.hooks import HookList, RunContext, RunHooks, as_hooks
from rlmesh.evals.journal import Journal
from rlmesh.evals.lanes import Limits
from rlmesh.evals.loop import Loop
from rlmesh.evals.policy import Policy
from rlmesh.evals.progress import make_progress
from rlmesh.evals.results import EpisodeFailure, EpisodeResult, RunResult
from rlmesh.evals.schedule import Assignment, Schedule, episode_seeds
from rlmesh.evals.targets import check_vector_limits
from rlmesh.evals.telemetry import Telemetry
from rlmesh.evals.viewing import Viewing
from rlmesh.models.batching import BatchClock

if TYPE_CHECKING:
    from rlmesh.adapters.advisory import Advisory

__all__ = ["Request", "check_request", "check_trial", "execute", "keep_partial", "partial_result"]

_PARTIAL = "__rlmesh_partial_result__"


@dataclass(frozen=True)
class Request:
    """The checked arguments of a run."""

    seeds: tuple[int | None, ...]
    hooks: HookList
    limits: Limits
    prefetch_lead: int
    retries: int
    max_batch: int | None
    batch_wait_s: float | None
    progress: bool | None
    journal: str | None
    pushdown: bool
    trial_index_base: int


def check_request(
    *,
    seeds: Iterable[int] | None,
    max_episodes: int | None,
    episodes: int | None,
    max_episode_steps: int | None,
    max_episode_seconds: float | None,
    hooks: RunHooks | Iterable[RunHooks] | None,
    prefetch_lead: int = 0,
    retries: int = 0,
    max_batch: int | None = None,
    batch_wait_ms: float | None = None,
    progress: bool | None = None,
    journal: str | os.PathLike[str] | None = None,
    pushdown: bool = False,
    trial_index_base: int = 0,
) -> Request:
    """Return the arguments as a Request; an impossible one is refused before anything connects.

    Raises:
        TypeError, ValueError: naming the argument, what it may be and what it was.
    """
    if episodes is not None:
        if max_episodes is not None and episodes != max_episodes:
            raise ValueError(
                f"episodes={episodes} is another name of max_episodes={max_episodes}; give one"
            )
        max_episodes = episodes
    if max_episode_steps is not None:
        _whole("max_episode_steps", max_episode_steps, 1)
    _seconds("max_episode_seconds", max_episode_seconds, above_zero=True)
    _seconds("batch_wait_ms", batch_wait_ms, above_zero=False)
    _whole("prefetch_lead", prefetch_lead, 0)
    _whole("retries", retries, 0)
    _whole("trial_index_base", trial_index_base, 0)
    if max_batch is not None:
        _whole("max_batch", max_batch, 1)
    if progress is not None and not isinstance(progress, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"progress must be True, False or None, got {progress!r}")
    if journal is not None and not isinstance(journal, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"journal must be a path, got {journal!r}")
    if not isinstance(pushdown, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"pushdown must be True or False, got {pushdown!r}")
    return Request(
        seeds=tuple(episode_seeds(seeds, max_episodes)),
        hooks=as_hooks(hooks),
        limits=Limits(max_episode_steps, max_episode_seconds),
        prefetch_lead=prefetch_lead,
        retries=retries,
        max_batch=max_batch,
        batch_wait_s=None if batch_wait_ms is None else batch_wait_ms / 1000,
        progress=progress,
        journal=None if journal is None else os.fspath(journal),
        pushdown=pushdown,
        trial_index_base=trial_index_base,
    )


def check_trial(trial_index: Any) -> None:
    """Raise TypeError or ValueError unless this can be a trial's index."""
    _whole("trial_index", trial_index, 0)


def _whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")


def _seconds(name: str, value: Any, *, above_zero: bool) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value) or value < 0 or (above_zero and value == 0):
        least = "above 0" if above_zero else "0 or more"
        raise ValueError(f"{name} must be finite and {least}, got {value}")


class _Record:
    """What a run has to show so far: in memory, in the journal, and on the progress display."""

    def __init__(
        self, request: Request, config: Mapping[str, Any], advisories: Sequence[Advisory]
    ) -> None:
        self._advisories = tuple(advisories)
        self.journal: Journal | None = None
        self.finished: dict[int, EpisodeResult] = {}
        self.failures: list[EpisodeFailure] = []
        if request.journal is not None:
            self.journal = Journal(request.journal, _config(request, config))
            self.finished.update(self.journal.episodes)
            self.failures += self.journal.failures
        done = list(self.finished.values())
        self._progress = make_progress(request.progress, len(request.seeds), done)

    def add(self, result: EpisodeResult) -> None:
        if self.journal is not None:
            self.journal.add(result)
        self.finished[result.index] = result
        self._progress.add(result)

    def add_failure(self, failure: EpisodeFailure) -> None:
        if self.journal is not None:
            self.journal.add_failure(failure)
        self.failures.append(failure)

    def result(self, telemetry: Telemetry) -> RunResult:
        ordered = tuple(self.finished[index] for index in sorted(self.finished))
        return RunResult(ordered, tuple(self.failures), telemetry.summary(), self._advisories)

    def close(self) -> None:
        """Put everything on disk and the display away. Idempotent."""
        try:
            if self.journal is not None:
                self.journal.close()
        finally:
            self._progress.close()


def execute(
    request: Request,
    endpoints: Sequence[Endpoint],
    policy: Policy,
    context: RunContext,
    *,
    config: Mapping[str, Any],
    read: Callable[[Any, Any, object], object],
    options: Callable[[Endpoint, Assignment], Mapping[str, Any] | None],
    kept: Collection[Endpoint] = (),
) -> RunResult:
    """Run the episodes of ``request``.

    Args:
        config: what else a journal must agree on.
        read: reads an observation of an endpoint by role.
        options: reset options of an episode, at its endpoint.
        kept: the endpoints that are used again even if the run fails.

    Raises:
        Exception: what went wrong; :func:`partial_result` gives the finished episodes.
    """
    check_vector_limits(endpoints, seeded=any(seed is not None for seed in request.seeds))
    record = _Record(request, config, policy.advisories)
    lanes = sum(endpoint.lanes for endpoint in endpoints)
    episodes = Episodes(policy, request.hooks, request.limits, on_result=record.add, read=read)
    loop = Loop(
        endpoints,
        policy,
        Schedule(request.seeds, record.finished, record.failures, request.trial_index_base),
        episodes,
        clock=BatchClock(lanes, request.max_batch, request.batch_wait_s),
        prefetch_lead=request.prefetch_lead,
        retries=request.retries,
        on_failure=record.add_failure,
        options=options,
    )
    viewing = Viewing(endpoints, policy, request.hooks, pushdown=request.pushdown)
    try:
        request.hooks.on_run_start(context)
        viewing.open()
        loop.run()
    except BaseException as exc:
        partial = keep_partial(exc, record.result(loop.telemetry))
        _clean_up(
            exc,
            episodes.drop_all,
            record.close,
            lambda: request.hooks.on_run_end(partial),
            # An interrupted run waits for nobody.
            *([lambda: loop.settle(kept)] if isinstance(exc, Exception) else []),
        )
        if isinstance(exc, KeyboardInterrupt):
            print(f"rlmesh: interrupted; so far {partial!r}", file=sys.stderr)
        raise
    finally:
        viewing.close(kept)
    record.close()
    return _announced(record.result(loop.telemetry), request.hooks)


def _announced(result: RunResult, hooks: HookList) -> RunResult:
    """Return the result of a run that went well, once its hooks have heard of it."""
    try:
        hooks.on_run_end(result)
    except BaseException as exc:
        keep_partial(exc, result)
        raise
    return result


def keep_partial(exc: BaseException, partial: RunResult) -> RunResult:
    """Let :func:`partial_result` of ``exc`` give ``partial``; returns it."""
    vars(exc)[_PARTIAL] = partial
    return partial


def _clean_up(exc: BaseException, *steps: Callable[[], None]) -> None:
    """Take every step; what one raises is noted on ``exc``, which is what the caller hears of."""
    for step in steps:
        try:
            step()
        except Exception as second:
            add_note(exc, f"while cleaning up: {type(second).__name__}: {second}")


def partial_result(exc: BaseException) -> RunResult | None:
    """Return the episodes that were finished when ``exc`` ended a run; None if it ended none.

    Example:
        >>> import gymnasium as gym
        >>> import rlmesh
        >>> def policy(observation):
        ...     raise RuntimeError("no weights")
        >>> try:
        ...     rlmesh.run(policy, gym.make("CartPole-v1"), seeds=[0])
        ... except RuntimeError as exc:
        ...     rlmesh.partial_result(exc).num_episodes
        0
    """
    return getattr(exc, _PARTIAL, None)


def _config(request: Request, config: Mapping[str, Any]) -> dict[str, Any]:
    limits = request.limits
    return {
        "seeds": list(request.seeds),
        "max_episode_steps": limits.steps,
        "max_episode_seconds": limits.seconds,
        "prefetch_lead": request.prefetch_lead,
        "trial_index_base": request.trial_index_base,
        **config,
    }
