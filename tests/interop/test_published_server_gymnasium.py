"""Our gymnasium clients drive the published EnvServer: a gymnasium env, wherever it is served."""

from __future__ import annotations

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from interop_envs import ENVS
from interop_expect import info_form, record, same_value, samples
from reference_process import Reference

from rlmesh.gymnasium import RemoteEnv, RemoteVectorEnv


@pytest.mark.parametrize("name", ["tracker", "cartpole", "zoo", "annotated"])
def test_a_single_env_is_the_env_itself(reference: Reference, name: str) -> None:
    local = ENVS[name]()
    script, answers = record(local, [0, 7], samples(local.action_space, 100))
    with reference.serving(name) as served:
        remote = RemoteEnv(served.address)
        for i, ((verb, argument), meant) in enumerate(zip(script, answers, strict=True)):
            shown = remote.step(argument) if verb == "step" else remote.reset(**argument)
            same_value(local.observation_space, shown[0], meant[0], f"answer {i}")
            assert shown[1:-1] == meant[1:-1], f"answer {i}"
            assert shown[-1] == info_form(meant[-1]), f"answer {i}"
            assert shown[0] in remote.observation_space
        remote.close()


def test_it_passes_the_checker_of_gymnasium(reference: Reference) -> None:
    with reference.serving("tracker_rgb") as served:
        remote = RemoteEnv(served.address)
        check_env(remote, skip_render_check=True)
        remote.close()


def test_it_works_under_wrappers(reference: Reference) -> None:
    with reference.serving("tracker") as served:
        env = gym.wrappers.RecordEpisodeStatistics(RemoteEnv(served.address))
        env.reset(seed=3)
        done, steps, reward = False, 0, 0.0
        while not done:
            _, gained, terminated, truncated, info = env.step(samples(env.action_space, 1)[0])
            done, steps, reward = terminated or truncated, steps + 1, reward + float(gained)
        assert (info["episode"]["l"], info["episode"]["r"]) == (steps, pytest.approx(reward))
        env.close()


@pytest.mark.parametrize("name", ["next_step", "zoo_vector"])
def test_a_vector_env_is_the_vector_env_itself(reference: Reference, name: str) -> None:
    local = ENVS[name]()
    with reference.serving(name) as served:
        remote = RemoteVectorEnv(served.address)
        assert remote.metadata["autoreset_mode"] is local.metadata["autoreset_mode"]
        pairs = [(remote.reset(seed=5), local.reset(seed=5))]
        for actions in samples(local.action_space, 20):
            pairs.append((remote.step(actions), local.step(actions)))
        remote.close()
    for i, (shown, meant) in enumerate(pairs):
        assert data_equivalence(shown, meant, exact=True), f"answer {i}"
        assert shown[0] in local.observation_space, f"answer {i}"
