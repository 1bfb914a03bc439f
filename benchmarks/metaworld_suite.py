"""Meta-World MT10 as one env whose seed chooses task and episode, evaluated over many endpoints.

`python metaworld_suite.py server` is a nursery of them, `client` measures. Both need the folder
`examples/metaworld_mt10` on the path.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rlmesh
from evaluate import expert
from harness import announce
from nursery import answer_orders, nursery
from task_env import TASKS, SeededTask


class Suite(gym.Env[np.ndarray, np.ndarray]):
    """Any episode of n tasks in one process: seed `s` is task `s % n`, variation `s // n`.

    Observations are the task's `float64[39]`, then the task as one-hot `float64[n]`, so that any
    endpoint can play any episode and one policy can tell them apart.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._tasks = [SeededTask(name) for name in names]
        self._tags = np.eye(len(names))
        self._current = 0
        size = self._tasks[0].observation_space.shape[0] + len(names)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space = self._tasks[0].action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        variation, self._current = divmod(seed or 0, len(self._tasks))
        observation, info = self._tasks[self._current].reset(seed=variation)
        return self._tagged(observation), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self._tasks[self._current].step(action)
        return self._tagged(observation), *rest

    def _tagged(self, observation: np.ndarray) -> np.ndarray:
        return np.concatenate((observation, self._tags[self._current]))


def serve(names: Sequence[str]) -> None:
    suite = Suite(names)  # made once; every server forked from here has it
    answer_orders(lambda: suite)


def drive(names: Sequence[str], endpoints: int, episodes: int, rounds: int) -> None:
    experts = [expert(name) for name in names]

    def policy(observation: np.ndarray) -> np.ndarray:
        state, task = observation[: -len(names)], observation[-len(names) :]
        return experts[int(task.argmax())](state)

    taken: dict[int, list[float]] = {1: [], endpoints: []}
    outcomes: set[tuple[tuple[int, float], ...]] = set()
    with nursery("metaworld_suite.py", "server", "--tasks", str(len(names))) as suites:
        addresses = suites.servers(endpoints)
        rlmesh.run(policy, addresses, seeds=range(endpoints))  # warms what a fork leaves to do
        for _ in range(rounds):
            for count in taken:
                begun = time.perf_counter()
                result = rlmesh.run(policy, addresses[:count], seeds=range(episodes))
                taken[count].append(time.perf_counter() - begun)
                outcomes.add(tuple((e.steps, e.reward) for e in result.episodes))
    announce(
        one_s=min(taken[1]),
        many_s=min(taken[endpoints]),
        steps=result.total_steps,
        success=result.success_rate,
        same=len(outcomes) == 1,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("end", choices=("server", "client"))
    parser.add_argument("--endpoints", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=len(TASKS), help="only the first ones")
    args = parser.parse_args()
    names = TASKS[: args.tasks]
    if args.end == "server":
        serve(names)
    else:
        drive(names, args.endpoints, args.episodes, args.rounds)


if __name__ == "__main__":
    main()
