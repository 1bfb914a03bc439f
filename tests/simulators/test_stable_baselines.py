"""Training through a socket: the trainer must not be able to tell."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from support import serving
from support.processes import python_child

from rlmesh.gymnasium import RemoteEnv

SERVE = """
import gymnasium, rlmesh
server = rlmesh.EnvServer(gymnasium.make("CartPole-v1"))
print(server.address, flush=True)
server.serve()
"""


def train(make: Any) -> tuple[list[np.ndarray], PPO]:
    """Return the weights of an agent trained for a few hundred steps."""
    envs = DummyVecEnv([lambda: Monitor(make())])
    model = PPO("MlpPolicy", envs, n_steps=128, n_epochs=2, seed=3, device="cpu")
    model.learn(384)
    return [p.detach().numpy().copy() for p in model.policy.parameters()], model


def test_an_agent_learns_the_same_over_a_socket() -> None:
    """Issue 2: PPO over a remote CartPole ends with the weights it has over a local one."""
    torch.set_num_threads(1)
    with python_child(SERVE) as server:
        address = server.line()
        remote: list[RemoteEnv] = []

        def connect() -> RemoteEnv:
            remote.append(RemoteEnv(address))
            return remote[0]

        got, model = train(connect)
        episodes = [e["l"] for e in model.ep_info_buffer or ()]
        action, _ = model.predict(remote[0].reset(seed=0)[0], deterministic=True)
        assert action in remote[0].action_space
        remote[0].close()
    expected, twin = train(lambda: gymnasium.make("CartPole-v1"))
    assert len(episodes) >= 5
    assert episodes == [e["l"] for e in twin.ep_info_buffer or ()]
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_stable_baselines_own_checker() -> None:
    """Issue 2: its env checker takes a remote env."""
    with serving(gymnasium.make("Pendulum-v1")) as server:
        remote = RemoteEnv(server.address)
        check_env(remote, warn=False)
        remote.close()
