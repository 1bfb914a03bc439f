"""Which episode a free lane runs next."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from rlmesh.envs.link import as_seed
from rlmesh.evals.results import EpisodeFailure

__all__ = ["Assignment", "Schedule", "episode_seeds"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """One attempt at one episode.

    Attributes:
        index: 0-based place of the episode in the run.
        seed: the seed for its reset, or None.
        attempt: 1 for the first try.
        trial: which of the env's initial conditions it begins with, where the env has such.
    """

    index: int
    seed: int | None
    attempt: int = 1
    trial: int = 0


class Schedule:
    """Hands each episode to the next free lane; the budget bounds episode *starts*.

    Results are ordered by index whatever order lanes finish in, so short episodes are never counted
    in place of long ones.

    Args:
        seeds: the seed of every episode.
        done: indices that a journal already holds.
        lost: attempts that it holds.
        first_trial: the trial of episode 0; each episode walks the next.
    """

    def __init__(
        self,
        seeds: Sequence[int | None],
        done: Collection[int] = (),
        lost: Iterable[EpisodeFailure] = (),
        first_trial: int = 0,
    ) -> None:
        attempts = Counter(failure.index for failure in lost)
        self._queue = deque(
            Assignment(index, seed, 1 + attempts[index], first_trial + index)
            for index, seed in enumerate(seeds)
            if index not in done
        )

    def take(self) -> Assignment | None:
        """Return the next episode to run; None when every one has been handed out."""
        return self._queue.popleft() if self._queue else None

    def give_back(self, assignment: Assignment) -> None:
        """Queue an episode whose attempt was lost, ahead of those not yet begun."""
        self._queue.appendleft(replace(assignment, attempt=assignment.attempt + 1))

    def __len__(self) -> int:
        return len(self._queue)


def episode_seeds(seeds: Iterable[int] | None, max_episodes: int | None) -> list[int | None]:
    """Return the seed of every episode to run.

    ``max_episodes`` alone decides how many; episodes past the last seed are unseeded. Only seeds:
    one episode a seed. Neither: one episode.

    Raises:
        TypeError, ValueError: a seed is no int64, the seeds are empty, or the budget is negative.
    """
    given = None
    if seeds is not None:
        if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"seeds must be ints, e.g. range(50), got {type(seeds).__name__}")
        given = [as_seed(seed) for seed in seeds]
        if not given:
            raise ValueError("seeds is empty; give at least one seed, or leave it out")
    if max_episodes is None:
        return [None] if given is None else list(given)
    if isinstance(max_episodes, bool) or not isinstance(max_episodes, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"max_episodes must be an int, got {type(max_episodes).__name__}")
    if max_episodes < 0:
        raise ValueError(f"max_episodes must be 0 or more, got {max_episodes}")
    known = given or []
    return [known[i] if i < len(known) else None for i in range(max_episodes)]
