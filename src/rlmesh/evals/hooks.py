"""Watching a run: `RunHooks`, and the `StepEvent` that every step hands it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rlmesh.evals.results import EpisodeResult, RunResult
from rlmesh.wire.contract import EnvContract

if TYPE_CHECKING:
    from rlmesh.adapters.readers import FrameSources

__all__ = ["HookList", "RunContext", "RunHooks", "StepEvent", "as_hooks"]


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One env step of a run, passed to :meth:`RunHooks.on_step`.

    ``step_ms`` is the wall time of this step's env round trip, and ``predict_ms`` that of the model
    predictions that produced an action since the previous step: zero for a step served from chunk
    replay, and with ``prefetch_lead`` the next chunk's prediction on the step it landed on. Lanes
    that step or predict together share both numbers. The per-episode means are
    ``EpisodeResult.predict_ms`` and ``step_ms``. A NEXT_STEP autoreset roll is no step of any
    episode and never surfaces here.

    Attributes:
        episode: 0-based episode index.
        seed: the episode's reset seed, or None.
        step: 0-based step within the episode.
        observation: the raw observation the action was predicted from (before the step).
        action: the env-ready action.
        reward: the step's reward.
        terminated: whether the env reported a terminal state.
        truncated: whether the step truncated the episode, by the env or by a cap.
        info: the step's info.
        predict_ms: see above; milliseconds.
        step_ms: see above; milliseconds.
        read: ``read(item)`` reads the observation by role; resolved once per item, if called.
    """

    episode: int
    seed: int | None
    step: int
    observation: Any
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]
    predict_ms: float
    step_ms: float
    read: Callable[[object], object]


class RunContext(Protocol):
    """What hooks may ask of the run they watch."""

    @property
    def contract(self) -> EnvContract:
        """What the env says of itself."""
        ...

    @property
    def num_envs(self) -> int:
        """How many lanes the run has."""
        ...

    def read(self, obs: Any, item: Any) -> Any:
        """Read an observation by role; see :meth:`Session.reader`."""
        ...

    def frame_sources(self) -> FrameSources:
        """Where pictures of the env can come from."""
        ...


class RunHooks:
    """Subclass and override what you need; every method does nothing by itself.

    Per episode the calls come in order; episodes of different lanes interleave. ``on_run_end`` is
    called exactly once, also after an error or Ctrl-C, with the finished episodes. An exception in
    a hook ends the run with its own type; after an error of the run, that error wins.
    """

    def on_run_start(self, context: RunContext) -> None:
        """Before the first episode."""

    def on_episode_start(self, *, episode: int, seed: int | None) -> None:
        """After an episode's reset, before its first step."""

    def on_step(self, event: StepEvent) -> None:
        """After every env step. Where it is overridden, observations travel whole."""

    def on_episode_end(self, result: EpisodeResult) -> None:
        """After an episode's last step; also when its journal line is on disk."""

    def on_run_end(self, result: RunResult) -> None:
        """After the last episode, or when the run fails."""


class HookList(RunHooks):
    """Several hooks as one, called in order."""

    def __init__(self, hooks: Sequence[RunHooks]) -> None:
        self.hooks = tuple(hooks)
        self.steps = tuple(
            hook.on_step
            for hook in self.hooks
            if getattr(hook.on_step, "__func__", None) is not RunHooks.on_step
        )

    def on_run_start(self, context: RunContext) -> None:
        for hook in self.hooks:
            hook.on_run_start(context)

    def on_episode_start(self, *, episode: int, seed: int | None) -> None:
        for hook in self.hooks:
            hook.on_episode_start(episode=episode, seed=seed)

    def on_step(self, event: StepEvent) -> None:
        for step in self.steps:
            step(event)

    def on_episode_end(self, result: EpisodeResult) -> None:
        for hook in self.hooks:
            hook.on_episode_end(result)

    def on_run_end(self, result: RunResult) -> None:
        first: BaseException | None = None
        for hook in self.hooks:
            try:
                hook.on_run_end(result)
            except BaseException as exc:  # every hook hears of the end; the first failure is raised
                first = first or exc
        if first is not None:
            raise first


def as_hooks(hooks: RunHooks | Iterable[RunHooks] | None) -> HookList:
    """Return ``hooks`` (None, one, or several) as one.

    Raises:
        TypeError: something is no RunHooks.
    """
    if hooks is None:
        return HookList(())
    several: list[Any] = [hooks]
    if isinstance(hooks, Iterable) and not isinstance(hooks, (str, bytes)):
        several = list(hooks)
    for hook in several:
        if not isinstance(hook, RunHooks):
            raise TypeError(
                f"hooks must be RunHooks or a list of them, got {type(hook).__name__}; subclass "
                "rlmesh.RunHooks and pass an instance"
            )
    return HookList(several)
