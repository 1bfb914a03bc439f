"""A lane: one episode in flight."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rlmesh.evals.results import EpisodeResult, read_success
from rlmesh.evals.schedule import Assignment
from rlmesh.models.chunks import ChunkQueue

__all__ = ["MAX_EPISODE_STEPS", "Lane", "Limits"]

MAX_EPISODE_STEPS = 100_000
"""No episode runs longer: an env that never ends is truncated, not run for ever."""


class Limits:
    """The caps on an episode; reaching one truncates it at that step."""

    __slots__ = ("asked", "seconds", "steps")

    def __init__(self, steps: int | None = None, seconds: float | None = None) -> None:
        self.asked = steps is not None or seconds is not None
        self.steps = min(steps or MAX_EPISODE_STEPS, MAX_EPISODE_STEPS)
        self.seconds = seconds


class Lane:
    """One episode in flight: its assignment, chunk queue, totals and clock."""

    __slots__ = (
        "assignment",
        "charged_s",
        "copy",
        "deadline",
        "episode_id",
        "group",
        "info",
        "observation",
        "over",
        "predict_s",
        "queue",
        "reward",
        "rows",
        "spent_s",
        "started",
        "step_s",
        "steps",
        "steps_cap",
        "success_once",
        "terminated",
        "truncated",
    )

    def __init__(
        self,
        assignment: Assignment,
        limits: Limits,
        observation: Any,
        started: float,
        episode_id: str,
        group: object = None,
    ) -> None:
        self.group = group
        self.copy = 0  # which replica of the model predicts for it
        self.assignment = assignment
        self.episode_id = episode_id
        self.observation = observation
        self.queue = ChunkQueue()
        self.steps = 0
        self.steps_cap = limits.steps
        self.reward = 0.0
        self.terminated = self.truncated = False
        self.success_once: bool | None = None
        self.info: Mapping[str, Any] = {}
        self.over = False
        self.rows = 1  # of the prediction its actions come from
        self.predict_s = 0.0
        self.step_s = 0.0
        self.spent_s = 0.0  # predictions since the last step
        self.charged_s = 0.0  # those the last step was charged with
        self.started = started
        self.deadline = None if limits.seconds is None else started + limits.seconds

    def advance(
        self, observation: Any, reward: float, terminated: bool, truncated: bool, step_s: float
    ) -> bool:
        """Book one step; True when the episode is over, by the env or by a cap."""
        self.observation = observation
        self.reward += reward
        self.step_s += step_s
        self.charged_s = spent_s = self.spent_s
        self.predict_s += spent_s
        self.spent_s = 0.0
        self.steps = steps = self.steps + 1
        if terminated or truncated:
            self.terminated, self.truncated = terminated, truncated
            return True
        if steps >= self.steps_cap or (
            self.deadline is not None and time.perf_counter() >= self.deadline
        ):
            self.truncated = True
            return True
        return False

    def note(self, info: Mapping[str, Any]) -> None:
        """Keep the step's info, and whether the task was solved at any step."""
        self.info = info
        if info:
            success = read_success(info)
            if success is not None:
                self.success_once = bool(self.success_once) or success

    def result(self) -> EpisodeResult:
        """Return what the episode came to."""
        steps = self.steps
        return EpisodeResult(
            index=self.assignment.index,
            seed=self.assignment.seed,
            steps=steps,
            reward=self.reward,
            terminated=self.terminated,
            truncated=self.truncated,
            success=read_success(self.info),
            success_once=self.success_once,
            duration_s=time.perf_counter() - self.started,
            predict_ms=1000 * self.predict_s / steps if steps else None,
            step_ms=1000 * self.step_s / steps if steps else None,
            trial=self.assignment.trial,
            attempts=self.assignment.attempt,
        )

    def __str__(self) -> str:
        seed = self.assignment.seed
        named = "" if seed is None else f" (seed {seed})"
        return f"episode {self.assignment.index}{named}, step {self.steps}"
