"""The episodes of a run: each begins once its reset has come back, and ends once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rlmesh.evals.hooks import HookList, StepEvent
from rlmesh.evals.lanes import Lane, Limits
from rlmesh.evals.policy import Policy
from rlmesh.evals.results import EpisodeResult
from rlmesh.evals.schedule import Assignment
from rlmesh.wire.ids import uuid7

__all__ = ["Episodes"]


class Episodes:
    """Tells record, model and hooks of every episode, and knows which are in flight.

    Args:
        policy: the model, which hears of every end.
        hooks: who watches.
        limits: the caps on an episode.
        on_result: called with every finished episode, before the hooks.
        read: ``read(endpoint, observation, item)`` reads by role, for step events.
    """

    def __init__(
        self,
        policy: Policy,
        hooks: HookList,
        limits: Limits,
        *,
        on_result: Callable[[EpisodeResult], None],
        read: Callable[[Any, Any, object], object],
    ) -> None:
        self.shows_steps = bool(hooks.steps)
        self._policy = policy
        self._hooks = hooks
        self._limits = limits
        self._on_result = on_result
        self._read = read
        self._run_id = uuid7()
        self._flying: dict[Lane, None] = {}

    def begin(
        self,
        assignment: Assignment,
        observation: Any,
        started: float,
        endpoint: object,
        copy: int = 0,
    ) -> Lane:
        """Return the lane of an episode whose reset has come back.

        Args:
            assignment: the episode.
            observation: what the reset returned.
            started: when the episode was taken from the schedule.
            endpoint: where it runs.
            copy: which replica of the model predicts for it.
        """
        episode_id = f"{self._run_id}.{assignment.index}.{assignment.attempt}"
        lane = Lane(assignment, self._limits, observation, started, episode_id, endpoint)
        lane.copy = copy
        self._flying[lane] = None
        self._hooks.on_episode_start(episode=assignment.index, seed=assignment.seed)
        return lane

    def show_step(
        self,
        lane: Lane,
        observation: Any,
        action: Any,
        reward: float,
        terminated: bool,
        info: Mapping[str, Any],
        step_s: float,
    ) -> None:
        """Tell the hooks of a step that the lane has just booked."""
        read, endpoint = self._read, lane.group
        assignment = lane.assignment
        self._hooks.on_step(
            StepEvent(
                episode=assignment.index,
                seed=assignment.seed,
                step=lane.steps - 1,
                observation=observation,
                action=action,
                reward=reward,
                terminated=terminated,
                truncated=lane.truncated,
                info=info,
                predict_ms=1000 * lane.charged_s,
                step_ms=1000 * step_s,
                read=lambda item: read(endpoint, observation, item),
            )
        )

    def finish(self, lane: Lane) -> None:
        """End an episode: on record first, then told to the model and the hooks."""
        self._land(lane)
        result = lane.result()
        try:
            self._on_result(result)
        finally:
            self._policy.end(lane)
        self._hooks.on_episode_end(result)

    def drop(self, lanes: Iterable[Lane]) -> None:
        """End episodes that come to nothing; the model hears of each, whatever it raises."""
        with contextlib.ExitStack() as stack:
            for lane in reversed(list(lanes)):
                stack.callback(self._drop, lane)

    def drop_all(self) -> None:
        """The same for every episode in flight: the run failed."""
        self.drop(self._flying)

    def _drop(self, lane: Lane) -> None:
        self._land(lane)
        self._policy.end(lane)

    def _land(self, lane: Lane) -> None:
        del self._flying[lane]
        lane.over = True
        lane.queue.clear()
