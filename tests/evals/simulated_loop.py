"""The closed loop of an evaluation in simulated time: lanes leave with a batch, come back after
their env's time, and wait for the model. Nothing sleeps, so the same case gives the same number."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass

from rlmesh.models.batching import BatchClock

__all__ = ["Case", "served"]

LEAST_SHARE = 0.05
"""No env takes less of its mean."""


@dataclass(frozen=True)
class Case:
    """Times in seconds; ``jitter`` is the standard deviation of an env's time over its mean."""

    lanes: int
    fixed: float
    slope: float
    env: float
    jitter: float

    def cost(self, rows: int) -> float:
        """What a batch costs."""
        return self.fixed + self.slope * rows


def served(case: Case, clock: BatchClock, *, cycles: int = 100, random_seed: int = 0) -> float:
    """Return the rows per second that a loop serves whose batches start when ``clock`` says."""
    rng = random.Random(random_seed)

    def env_time() -> float:
        return max(LEAST_SHARE * case.env, rng.gauss(case.env, case.jitter * case.env))

    end = cycles * (case.env + case.cost(case.lanes))
    flying: list[tuple[float, float]] = []  # when a lane comes back, and how long its env took
    note: Callable[[float], None] = clock.returned
    for _ in range(case.lanes):
        took = env_time()
        heapq.heappush(flying, (took, took))
    now, rows = 0.0, 0
    ready: list[float] = []
    while now < end:
        while flying and flying[0][0] <= now:
            back, took = heapq.heappop(flying)
            ready.append(back)
            note(took)
        if not ready:
            now = flying[0][0]
            continue
        start = clock.start_at(len(ready), bool(flying), ready[0])
        if start > now:
            now = min(start, flying[0][0])
            continue
        batch = min(len(ready), clock.max_batch)
        del ready[:batch]
        now += case.cost(batch)
        rows += batch
        clock.predicted(batch, case.cost(batch), now)
        for _ in range(batch):
            took = env_time()
            heapq.heappush(flying, (now + took, took))
    return rows / now
