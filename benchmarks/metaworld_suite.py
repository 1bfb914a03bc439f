"""Meta-World MT10 as one env whose seed chooses task and episode, evaluated over many endpoints.

`python metaworld_suite.py server` is a nursery of them, `client` measures. Both need the folder
`examples/metaworld_mt10` on the path.
"""

from __future__ import annotations

import argparse
import time
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
    """Any episode of MT10 in one process: seed `s` is task `s % 10`, variation `s // 10`.

    Observations are the task's `float64[39]`, then the task as one-hot `float64[10]`, so that any
    endpoint can play any episode and one policy can tell them apart.
    """

    def __init__(self) -> None:
        self._tasks = [SeededTask(name) for name in TASKS]
        self._current = 0
        shape = (*self._tasks[0].observation_space.shape, len(TASKS))
        self.observation_space = spaces.Box(-np.inf, np.inf, (sum(shape),), np.float64)
        self.action_space = self._tasks[0].action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        variation, self._current = divmod(seed or 0, len(TASKS))
        observation, info = self._tasks[self._current].reset(seed=variation)
        return self._tagged(observation), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, *rest = self._tasks[self._current].step(action)
        return self._tagged(observation), *rest

    def _tagged(self, observation: np.ndarray) -> np.ndarray:
        return np.concatenate((observation, np.eye(len(TASKS))[self._current]))


def serve() -> None:
    suite = Suite()  # made once; every server forked from here has it
    answer_orders(lambda: suite)


def drive(endpoints: int, episodes: int, rounds: int) -> None:
    experts = [expert(name) for name in TASKS]

    def policy(observation: np.ndarray) -> np.ndarray:
        state, task = observation[: -len(TASKS)], observation[-len(TASKS) :]
        return experts[int(task.argmax())](state)

    taken: dict[int, list[float]] = {1: [], endpoints: []}
    outcomes: set[tuple[tuple[int, float], ...]] = set()
    with nursery("metaworld_suite.py", "server") as suites:
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
    args = parser.parse_args()
    if args.end == "server":
        serve()
    else:
        drive(args.endpoints, args.episodes, args.rounds)


if __name__ == "__main__":
    main()
