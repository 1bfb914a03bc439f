"""What holds with every gymnasium there is: 0.29 and 1.0 know no reset of single lanes.

Part of the tests of the oldest supported stack.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
from eval_envs import Feedback, Walk, feedback, walks
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from support import serving
from traces import numbers, traced

import rlmesh

VERSION = tuple(int(part) for part in gymnasium.__version__.split(".")[:2])
SEEDS = [*range(9), 3]


def test_single_envs_give_the_same_numbers_everywhere() -> None:
    expected = traced(feedback, Walk(), seeds=SEEDS)
    assert traced(Feedback(), walks(3), seeds=SEEDS) == expected
    with serving(Walk()) as one, serving(walks(3)) as lanes:
        assert traced(feedback, one.address, seeds=SEEDS) == expected
        assert traced(Feedback(), [lanes.address, Walk()], seeds=SEEDS) == expected


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_seeds_on_a_vector_env_are_honoured_or_refused_by_name(kind: Any) -> None:
    env = kind([Walk, Walk, Walk])
    try:
        if VERSION >= (1, 1):
            expected = traced(feedback, Walk(), seeds=SEEDS)
            assert traced(feedback, env, seeds=SEEDS) == expected
        else:
            message = rf"{kind.__name__} cannot reset some of its 3 lanes.*seeds.*gymnasium >= 1\.1"
            with pytest.raises(ValueError, match=message):
                rlmesh.run(feedback, env, seeds=SEEDS)
    finally:
        env.close()


@pytest.mark.parametrize("served", [False, True])
def test_unseeded_episodes_of_a_vector_env_are_whole(served: bool) -> None:
    """Two steps each, whatever autoreset mode that gymnasium has; a roll is none of them."""
    env = SyncVectorEnv([Walk, Walk, Walk])
    steps: list[tuple[int, int]] = []

    class Steps(rlmesh.RunHooks):
        def on_step(self, event: rlmesh.StepEvent) -> None:
            assert event.observation["clock"].tolist() == [event.step]
            steps.append((event.episode, event.step))

    if served:
        with serving(env) as server:
            result = rlmesh.run(feedback, server.address, max_episodes=7, hooks=Steps())
    else:
        result = rlmesh.run(feedback, env, max_episodes=7, hooks=Steps())
    assert [(e.steps, e.terminated, e.seed) for e in result.episodes] == [(2, True, None)] * 7
    assert all(episode.success is not None for episode in result.episodes)
    assert sorted(steps) == [(episode, step) for episode in range(7) for step in range(2)]


def test_one_lane_takes_seeds_with_any_gymnasium() -> None:
    expected = numbers(rlmesh.run(feedback, Walk(), seeds=SEEDS))
    assert numbers(rlmesh.run(feedback, SyncVectorEnv([Walk]), seeds=SEEDS)) == expected
