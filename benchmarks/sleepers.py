"""Sleeping simulators, each a server process of its own; run as a script, it is their nursery."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from statistics import NormalDist
from typing import Any

import numpy as np

from nursery import answer_orders
from rlmesh import spaces

STRATA = 16
LEAST_SHARE = 0.05


def durations(seed: int, mean_s: float, jitter: float) -> Iterator[float]:
    """The times of the steps of the episode with that seed, in seconds.

    Normal with a standard deviation of `jitter` times the mean, and never below 5 % of the mean.
    Every 16 in a row come from the 16 equal parts of the distribution, in random order, so that the
    few steps of a short measurement have the mean they should.
    """
    rng = random.Random(seed)
    quantile = NormalDist(mean_s, jitter * mean_s).inv_cdf
    parts = list(range(STRATA))
    while True:
        rng.shuffle(parts)
        for part in parts:
            share = (part + rng.uniform(0.001, 0.999)) / STRATA
            yield max(LEAST_SHARE * mean_s, quantile(share))


def slept(seed: int, mean_s: float, jitter: float, steps: int) -> float:
    """How long the first steps of that episode sleep in all."""
    return sum(itertools.islice(durations(seed, mean_s, jitter), steps))


class SleepingEnv:
    """Its step sleeps; an episode never ends."""

    metadata: dict[str, Any] = {}  # noqa: RUF012
    observation_space = spaces.Box(-1.0, 1.0, (4,))
    action_space = spaces.Box(-1.0, 1.0, (7,))

    def __init__(self, mean_s: float, jitter: float) -> None:
        self._mean_s, self._jitter = mean_s, jitter
        self._times = durations(0, mean_s, jitter)
        self._observation = np.zeros(4, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._times = durations(seed or 0, self._mean_s, self._jitter)
        return self._observation, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(next(self._times))
        return self._observation, 1.0, False, False, {}

    def close(self) -> None:
        pass


if __name__ == "__main__":
    answer_orders(SleepingEnv)
