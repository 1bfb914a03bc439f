"""The published loop, `Model.run` and `Model.session`, evaluates a policy on our EnvServer.

It counts episodes, steps, reward and success from ``completed_episodes`` alone (wire.md 8.2).
"""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import pytest
from interop_envs import ENVS, POLICIES, chatter, steer
from interop_expect import evaluated, rolled
from interop_player import episode_rows
from reference_process import Reference

import rlmesh

Serve = Callable[..., str]

CORNERS = pytest.mark.parametrize("corner", ["predict", "predict_batch"])


@CORNERS
@pytest.mark.parametrize("loop", ["run", "session"])
def test_seeded_episodes_of_a_single_env(
    reference: Reference, serve: Serve, loop: str, corner: str
) -> None:
    seeds = [0, 1, 2, 3, 2**40]
    done = reference.evaluate(serve("tracker"), "steer", corner=corner, loop=loop, seeds=seeds)
    meant = evaluated(ENVS["tracker"](), steer, seeds)
    assert {episode["success"] for episode in meant} == {True, False}
    assert done == {"episodes": meant}


@pytest.mark.parametrize(("name", "policy"), [("cartpole", "balance"), ("zoo", "chatter")])
def test_episodes_of_other_envs(reference: Reference, serve: Serve, name: str, policy: str) -> None:
    done = reference.evaluate(serve(name), policy, seeds=[1, 2])
    assert done == {"episodes": evaluated(ENVS[name](), POLICIES[policy], [1, 2])}


def test_both_loops_find_the_same(reference: Reference, serve: Serve) -> None:
    seeds = [8, 9, 10]
    address = serve("tracker")
    theirs = reference.evaluate(address, "steer", seeds=seeds)["episodes"]
    ours = rlmesh.run(steer, address, seeds=seeds)
    assert episode_rows(ours) == theirs


def test_a_step_cap_cuts_episodes(reference: Reference, serve: Serve) -> None:
    done = reference.evaluate(serve("tracker"), "steer", seeds=[3, 4, 5], max_episode_steps=3)
    meant = evaluated(gym.wrappers.TimeLimit(ENVS["tracker"](), 3), steer, [3, 4, 5])
    assert {"episodes": meant} == done


def test_trial_indices_reach_an_env_that_asks(reference: Reference, serve: Serve) -> None:
    done = reference.evaluate(serve("trials"), "steer", seeds=[1, 1], trial_index_base=4)
    for row, trial in zip(done["episodes"], (4, 5), strict=True):
        (meant,) = evaluated(ENVS["trials"](), steer, [1], options={"trial_index": trial})
        assert row == {**meant, "index": trial - 4}


@CORNERS
def test_unseeded_episodes_of_a_vector_env(reference: Reference, serve: Serve, corner: str) -> None:
    done = reference.evaluate(serve("next_step"), "steer", corner=corner, episodes=11)
    meant = rolled(ENVS["next_step"](), steer, 11)
    assert {episode["success"] for episode in meant} == {True, False}
    assert done == {"episodes": meant}


@CORNERS
def test_three_seeds_on_two_lanes(reference: Reference, serve: Serve, corner: str) -> None:
    done = reference.evaluate(serve("lanes"), "steer", corner=corner, seeds=[3, 4, 5])
    assert done == {"episodes": evaluated(ENVS["tracker"](), steer, [3, 4, 5])}


def test_lanes_with_every_kind_of_space(reference: Reference, serve: Serve) -> None:
    done = reference.evaluate(serve("zoo_lanes"), "chatter", seeds=[3, 4, 5])
    assert done == {"episodes": evaluated(ENVS["zoo"](), chatter, [3, 4, 5])}


def test_many_more_episodes_than_lanes(reference: Reference, serve: Serve) -> None:
    seeds = list(range(100, 125))
    done = reference.evaluate(serve("lanes"), "steer", seeds=seeds)
    assert done == {"episodes": evaluated(ENVS["tracker"](), steer, seeds)}


def test_unseeded_lanes(reference: Reference, serve: Serve) -> None:
    done = reference.evaluate(serve("lanes"), "steer", episodes=2)
    meant = [evaluated(env, steer, [None])[0] for env in ENVS["lanes"]()]
    assert sorted(row["reward"] for row in done["episodes"]) == sorted(
        row["reward"] for row in meant
    )


@pytest.mark.parametrize("name", ["same_step", "disabled"])
def test_autoreset_modes_it_cannot_run_are_named_before_the_first_episode(
    reference: Reference, serve: Serve, name: str
) -> None:
    done = reference.evaluate(serve(name), "steer", episodes=4)
    assert done["raised"][0] == "RuntimeError"
    assert name.upper() in done["text"]


def test_an_env_exception_ends_the_run_and_not_the_server(
    reference: Reference, serve: Serve
) -> None:
    address = serve("faulty")
    done = reference.evaluate(address, "provoke", seeds=[1])
    assert done["raised"][0] == "EnvironmentException"
    assert "step failed: KeyError: 'boom'" in done["text"]
    again = reference.evaluate(address, "idle", seeds=[1], max_episode_steps=2)
    assert [(e["steps"], e["reward"]) for e in again["episodes"]] == [(2, 2.0)]
