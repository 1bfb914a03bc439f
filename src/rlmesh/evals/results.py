"""What an evaluation found: an `EpisodeResult` each, and the `RunResult` over all of them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rlmesh.evals.statistics import wilson_interval
from rlmesh.evals.telemetry import TelemetryRow, format_telemetry

if TYPE_CHECKING:
    from rlmesh.adapters.advisory import Advisory

__all__ = ["SUCCESS_KEYS", "EpisodeFailure", "EpisodeResult", "RunResult", "read_success"]

SUCCESS_KEYS = ("is_success", "success", "task_success")
"""Info keys in which simulators report the task's outcome; the first present counts."""


def read_success(info: Mapping[str, Any]) -> bool | None:
    """Return the task outcome that an episode's last info reports, or None if it reports none."""
    for key in SUCCESS_KEYS:
        value = info.get(key)
        if value is not None:
            only = np.asarray(value).reshape(-1)
            known = only.size == 1 and only[0] == only[0]  # NaN is no outcome
            return bool(only[0]) if known else None
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
        trial: ``trial_index_base`` plus ``index``; the ``trial_index`` its reset was given, where
            the env takes one.
        success_once: whether any step's info reported success; None where none reported.
        attempts: how many tries the episode took; more than 1 only with ``retries``.
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
    trial: int = 0
    success_once: bool | None = None
    attempts: int = 1


@dataclass(frozen=True)
class EpisodeFailure:
    """An attempt at an episode that was lost with its endpoint, and run again.

    Attributes:
        index: the episode's place in the run.
        seed: its seed, or None.
        attempt: which attempt was lost, from 1.
        endpoint: the address it was lost at.
        error: type and message of what went wrong.
    """

    index: int
    seed: int | None
    attempt: int
    endpoint: str
    error: str


@dataclass(frozen=True, repr=False)
class RunResult:
    """The finished episodes of a run, in order of index.

    Attributes:
        episodes: one result an episode.
        errors: attempts that were lost and run again, in the order they were lost.
        telemetry: what the run's clock measured; see :meth:`format_telemetry`.
        advisories: what resolving the model's adapters found (``rlmesh.adapters.Advisory``), each
            once; those of a served model stay on its server.
    """

    episodes: tuple[EpisodeResult, ...]
    errors: tuple[EpisodeFailure, ...] = ()
    telemetry: tuple[TelemetryRow, ...] = ()
    advisories: tuple[Advisory, ...] = ()
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

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data: the totals, one dict an episode, and the errors."""
        interval = self.success_interval
        return {
            "num_episodes": self.num_episodes,
            "total_steps": self.total_steps,
            "mean_reward": self.mean_reward,
            "success_rate": self._rate(),
            "success_interval": None if interval is None else list(interval),
            "episodes": [asdict(episode) for episode in self.episodes],
            "errors": [asdict(error) for error in self.errors],
            "advisories": [asdict(advisory) for advisory in self.advisories],
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Return :meth:`to_dict` as JSON; floats are written exactly."""
        return json.dumps(self.to_dict(), indent=indent)

    def format_table(self) -> str:
        """Return one line an episode and the totals, for people."""
        rows = [("episode", "seed", "steps", "reward", "end", "success", "predict ms", "step ms")]
        for e in self.episodes:
            end = "terminated" if e.terminated else "truncated" if e.truncated else "-"
            rows.append(
                (
                    str(e.index),
                    "-" if e.seed is None else str(e.seed),
                    str(e.steps),
                    f"{e.reward:.3f}",
                    end,
                    "-" if e.success is None else "yes" if e.success else "no",
                    "-" if e.predict_ms is None else f"{e.predict_ms:.3f}",
                    "-" if e.step_ms is None else f"{e.step_ms:.3f}",
                )
            )
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = [
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join([*lines, repr(self)])

    def format_telemetry(self) -> str:
        """Return the telemetry as an aligned table."""
        return format_telemetry(self.telemetry)

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
            if any(episode.success is None for episode in self.episodes):
                text += " (terminated)"  # what success falls back to
        return f"{text}, mean_reward={self.mean_reward:.3f}, total_steps={self.total_steps})"
