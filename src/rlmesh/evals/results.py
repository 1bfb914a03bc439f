"""What an evaluation found: an `EpisodeResult` each, and the `RunResult` over all of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlmesh.evals.statistics import wilson_interval

__all__ = ["SUCCESS_KEYS", "EpisodeResult", "RunResult", "read_success"]

SUCCESS_KEYS = ("is_success", "success", "task_success")
"""Info keys in which simulators report the task's outcome; the first present counts."""


def read_success(info: Mapping[str, Any]) -> bool | None:
    """Return the task outcome that an episode's last info reports, or None if it reports none."""
    for key in SUCCESS_KEYS:
        value = info.get(key)
        if value is not None:
            return bool(np.asarray(value).reshape(-1)[0]) if np.size(value) == 1 else None
    return None


@dataclass(frozen=True)
class EpisodeResult:
    """One finished episode.

    Attributes:
        index: 0-based place in the run.
        seed: the seed its reset was given, or None.
        steps: env steps taken.
        reward: sum of the step rewards.
        terminated: whether the env reported a terminal state.
        truncated: whether the env, or the step cap, cut it short.
        success: the outcome the last step's info reports (``is_success``, ``success`` or
            ``task_success``), or None where the env reports none.
        duration_s: wall time from reset to the last step, in seconds.
        predict_ms: mean wall time of a prediction per step, in milliseconds; None without steps.
        step_ms: mean wall time of an env step round trip, in milliseconds; None without steps.
    """

    index: int
    seed: int | None
    steps: int
    reward: float
    terminated: bool
    truncated: bool
    success: bool | None
    duration_s: float = 0.0
    predict_ms: float | None = None
    step_ms: float | None = None


@dataclass(frozen=True, repr=False)
class RunResult:
    """The finished episodes of a run, in order of index.

    Attributes:
        episodes: one result an episode.
    """

    episodes: tuple[EpisodeResult, ...]
    _warned: list[bool] = field(default_factory=list[bool], init=False, compare=False)

    @property
    def num_episodes(self) -> int:
        """How many episodes were run."""
        return len(self.episodes)

    @property
    def total_steps(self) -> int:
        """Env steps over all episodes."""
        return sum(episode.steps for episode in self.episodes)

    @property
    def mean_reward(self) -> float:
        """Mean episode reward; 0.0 without episodes."""
        if not self.episodes:
            return 0.0
        return sum(episode.reward for episode in self.episodes) / len(self.episodes)

    @property
    def success_rate(self) -> float | None:
        """Share of successful episodes, in [0, 1]; None without episodes.

        An episode whose env reported no outcome counts by ``terminated``, with one warning: a
        time-limited task should report success through its info.
        """
        if any(e.success is None for e in self.episodes) and not self._warned:
            self._warned.append(True)
            warnings.warn(
                "success_rate: the env's info reports none of "
                f"{', '.join(SUCCESS_KEYS)}; counting episodes that terminated instead. Report the "
                "task's outcome in the info of the last step",
                stacklevel=2,
            )
        return self._rate()

    @property
    def success_interval(self) -> tuple[float, float] | None:
        """95 % Wilson score interval of :attr:`success_rate`; None without episodes."""
        if not self.episodes:
            return None
        return wilson_interval(self._successes(), len(self.episodes))

    def _successes(self) -> int:
        return sum(
            episode.terminated if episode.success is None else episode.success
            for episode in self.episodes
        )

    def _rate(self) -> float | None:
        return self._successes() / len(self.episodes) if self.episodes else None

    def __repr__(self) -> str:
        text = f"RunResult(episodes={self.num_episodes}"
        rate, interval = self._rate(), self.success_interval
        if rate is not None and interval is not None:
            text += f", success_rate={rate:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"
        return f"{text}, mean_reward={self.mean_reward:.3f}, total_steps={self.total_steps})"
