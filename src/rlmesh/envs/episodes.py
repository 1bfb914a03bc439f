"""Episode accounting on the env side: what ``completed_episodes`` reports.

Published clients score a run from this list alone, so an episode is booked where it happens,
whoever drives and however it ends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CompletedEpisode", "EpisodeLedger"]


@dataclass(slots=True)
class CompletedEpisode:
    """An episode from its reset to its end; ``final_info`` is the info of its last step."""

    episode_id: str
    seed: int | None
    lane: int
    steps: int = 0
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    started_ns: int = field(default_factory=time.time_ns)
    ended_ns: int = 0
    final_info: Mapping[str, Any] = field(default_factory=dict[str, Any])


class EpisodeLedger:
    """The running episode of each lane, and those completed since they were last collected."""

    __slots__ = ("_running", "completed")

    def __init__(self, lanes: int) -> None:
        self._running: list[CompletedEpisode | None] = [None] * lanes
        self.completed: list[CompletedEpisode] = []

    def begin(self, lane: int, episode_id: str, seed: int | None) -> None:
        """Start an episode; one still running in the lane ends as truncated."""
        self.cut(lane)
        self._running[lane] = CompletedEpisode(episode_id, seed, lane)

    def running(self, lane: int) -> bool:
        """Whether the lane has an episode that has not ended."""
        return self._running[lane] is not None

    def step(self, lane: int, episode_id: str, reward: float) -> None:
        """Book one step of the lane's episode.

        A first step may name the episode (SAME_STEP lanes begin one before the client can), and a
        step before any reset starts one.
        """
        episode = self._running[lane]
        if episode is None:
            episode = CompletedEpisode(episode_id, None, lane)
            self._running[lane] = episode
        elif not episode.steps and episode_id:
            episode.episode_id = episode_id
        episode.steps += 1
        episode.reward += reward

    def end(
        self, lane: int, terminated: bool, truncated: bool, final_info: Mapping[str, Any]
    ) -> None:
        """Complete the lane's episode."""
        episode = self._running[lane]
        if episode is None:
            return
        episode.terminated = terminated
        episode.truncated = truncated
        episode.final_info = final_info
        episode.ended_ns = time.time_ns()
        self._running[lane] = None
        self.completed.append(episode)

    def cut(self, lane: int) -> None:
        """End a running episode as truncated: a reset or a lost client came in between."""
        self.end(lane, False, True, {})

    def collect(self) -> Sequence[CompletedEpisode]:
        """Return the episodes completed since the last call."""
        completed, self.completed = self.completed, []
        return completed
