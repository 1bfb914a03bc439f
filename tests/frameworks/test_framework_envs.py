"""Envs written in torch and in jax, served and in process: SRV-19 to SRV-21, SRV-24, VEC-14."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from framework_kinds import SpokenEnv, both, every, same_bits
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers.vector import NumpyToTorch
from support import FunctionEnv, serving
from support.driving import driving
from support.zoo import Countdown, countdowns

import rlmesh
from rlmesh import EnvironmentException, EnvServer
from rlmesh.jax import JAX
from rlmesh.numpy import Model, RemoteEnv, RemoteVectorEnv
from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from rlmesh.torch import TORCH
from rlmesh.values import NUMPY

EVERYTHING = Dict(
    {
        "move": Box(-1, 1, (2,), "float64"),
        "gain": Box(-1, 1, (), "float32"),
        "image": Box(0, 255, (2, 2), "uint8"),
        "choice": Discrete(5),
        "flags": MultiBinary(3),
        "gears": MultiDiscrete([3, 4], "int32"),
        "words": Tuple([Text(9), Box(-1, 1, (1,))]),
    }
)


def everything() -> Any:
    return {
        "move": np.array([0.25, -1.0]),
        "gain": np.array(0.5, np.float32),
        "image": np.array([[1, 2], [3, 255]], np.uint8),
        "choice": 3,
        "flags": np.array([1, 0, 1], np.uint8),
        "gears": np.array([2, 3], np.int32),
        "words": ("go", np.array([0.5], np.float32)),
    }


@both
def test_what_step_is_given(framework: Any) -> None:
    """SRV-24: array leaves are the framework's, choices ints, text str, containers as declared."""
    env = SpokenEnv(framework, action_space=EVERYTHING)
    with (
        serving(env, framework=framework.name) as server,
        RemoteEnv(server.address) as remote,
    ):
        remote.reset()
        remote.step(everything())
    (given,), sent = env.actions, everything()
    assert given.keys() == sent.keys()
    assert given["choice"] == 3 and type(given["choice"]) is int
    assert type(given["words"]) is tuple and given["words"][0] == "go"
    same_bits(given["words"][1], sent["words"][1], framework)
    for key in ("move", "gain", "image", "flags", "gears"):
        same_bits(given[key], sent[key], framework)


@both
def test_what_a_vector_env_is_given(framework: Any) -> None:
    """The same with a lane axis: choices are an array of ints, text leaves lists."""

    class Lanes:
        num_envs = 2
        single_observation_space, single_action_space = Box(-1, 1, (1,)), EVERYTHING
        metadata = {"autoreset_mode": "Disabled"}  # noqa: RUF012

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return framework.from_host(np.zeros((2, 1), np.float32)), {}

        def step(self, actions: Any) -> Any:
            self.actions = actions
            flags = framework.from_host(np.array([False, True]))
            rewards = framework.from_host(np.array([1.5, -2.0]))
            return self.reset()[0], rewards, flags, ~flags, {"rewards": rewards}

        def close(self) -> None:
            pass

    env = Lanes()
    with (
        serving(env, framework=framework) as server,
        RemoteVectorEnv(server.address) as remote,
    ):
        remote.reset()
        _, rewards, ended, cut, info = remote.step([everything(), everything()])
    assert (rewards.tolist(), ended.tolist(), cut.tolist()) == (
        [1.5, -2.0],
        [False, True],
        [True, False],
    )
    assert info["rewards"].tolist() == [1.5, -2.0]
    given, sent = env.actions, everything()
    assert given["words"][0] == ["go", "go"]
    same_bits(given["words"][1], np.stack([sent["words"][1]] * 2), framework)
    same_bits(given["choice"], np.array([3, 3]), framework)
    for key in ("move", "gain", "image", "flags", "gears"):
        same_bits(given[key], np.stack([sent[key]] * 2), framework)


REWARDS = [
    lambda number: torch.tensor(number),
    lambda number: torch.tensor([number], dtype=torch.float16),
    lambda number: torch.tensor(number, requires_grad=True),
    lambda number: jnp.asarray(number),
    lambda number: jnp.asarray([number]),
    lambda number: number,
]
FLAGS = [
    lambda flag: torch.tensor(flag),
    lambda flag: torch.tensor([int(flag)], dtype=torch.uint8),
    lambda flag: jnp.asarray(flag),
    lambda flag: jnp.asarray([float(flag)]),
    lambda flag: flag,
]


@pytest.mark.parametrize("declared", [None, "torch", "jax"])
def test_rewards_and_flags_may_be_numbers_or_tensors_of_one(declared: Any) -> None:
    """SRV-19: whatever the env declares, in process and by socket."""
    cases = [(reward, flag) for reward in REWARDS for flag in FLAGS]

    def step(action: Any) -> Any:
        reward, flag = cases[env._steps - 1]
        last = env._steps == len(cases)
        return env.observation(), reward(1.5), flag(last), flag(False), {}

    env = FunctionEnv(step=step, observation_space=Box(-99, 99, (4,)))
    result = rlmesh.run(lambda o: o[:2] * 0, env, seeds=[0])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "a (torch|jax) env returned a numpy.ndarray")
        with serving(env, framework=declared) as server:
            served = rlmesh.run(lambda o: o[:2] * 0, server.address, seeds=[0])
    for episode in (*result.episodes, *served.episodes):
        assert (episode.steps, episode.reward) == (len(cases), 1.5 * len(cases))
        assert (episode.terminated, episode.truncated) == (True, False)


def test_a_legacy_four_tuple_of_tensors() -> None:
    """SRV-4."""
    env = FunctionEnv(
        step=lambda action: (torch.ones(4), torch.tensor(2.0), torch.tensor(True), {}),
        reset=lambda seed: torch.zeros(4),
    )
    with serving(env, framework="torch") as server, RemoteEnv(server.address) as remote:
        remote.reset()
        observation, reward, ended, cut, _ = remote.step([0, 0])
    assert (observation.tolist(), reward, ended, cut) == ([1] * 4, 2.0, True, False)


@both
def test_infos_hold_what_the_tensors_held(framework: Any) -> None:
    """SRV-19, MET-1: nested, in lists, 0-d; a tensor that cannot travel is left out by its key."""

    def step(action: Any) -> Any:
        leaf = framework.from_host(np.float32([1.5, 2.5]))
        bad = torch.ones(1, dtype=torch.bfloat16) if framework is TORCH else jnp.ones(1, "bfloat16")
        extra = {"bad": bad} if len(env.actions) > 1 else {}
        info = {"a": leaf, "deep": {"er": [leaf[0], {"x": leaf}]}, "n": leaf.sum(), **extra}
        return framework.from_host(np.zeros(4, np.float32)), leaf[0], leaf[0] > 9, False, info

    env = FunctionEnv(step=step, reset=lambda seed: (framework.from_host(np.zeros(4)), {}))
    with serving(env, framework=framework) as server, RemoteEnv(server.address) as remote:
        remote.reset()
        first, second = (remote.step([0, 0])[4] for _ in range(2))
    for info in (first, second):
        assert info["a"].tolist() == [1.5, 2.5] and info["n"] == 4.0
        assert info["deep"]["er"][0] == 1.5
        assert info["deep"]["er"][1]["x"].tolist() == [1.5, 2.5]
    assert "bad" not in second
    assert second["rlmesh.conformance.warning"][0]["path"] == "bad"


def test_an_info_that_contains_itself_loses_only_that() -> None:
    def step(action: Any) -> Any:
        info: dict[str, Any] = {"loss": torch.tensor(0.5)}
        info["again"] = info
        return torch.zeros(4), torch.tensor(1.0), torch.tensor(False), False, info

    env = FunctionEnv(step=step, reset=lambda seed: (torch.zeros(4), {}))
    with serving(env, framework="torch") as server, RemoteEnv(server.address) as remote:
        remote.reset()
        _, reward, *_, info = remote.step([0, 0])
    assert reward == 1.0 and info["loss"] == 0.5 and "again" not in info


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (
            (torch.zeros(4), torch.zeros(2), False, False, {}),
            "one number as reward, got .*num_envs",
        ),
        ((torch.zeros(4), torch.zeros(1).bfloat16(), False, False, {}), "reward: .*bfloat16"),
        ((torch.zeros(4).bfloat16(), 0.0, False, False, {}), "observation: .*bfloat16.*float32"),
        ((jnp.zeros(4, jnp.bfloat16), 0.0, False, False, {}), "observation: .*bfloat16.*float32"),
        ((torch.zeros(4) * 1j, 0.0, False, False, {}), "observation: .*complex64"),
    ],
    ids=["rewards", "bfloat16 reward", "bfloat16", "jax bfloat16", "complex"],
)
@pytest.mark.filterwarnings("ignore:a torch env returned:UserWarning")
def test_what_cannot_travel_is_refused_by_name(returned: Any, words: str) -> None:
    """VAL-10."""
    for declared in (None, "torch"):
        env = FunctionEnv(step=lambda action: returned, reset=lambda seed: (torch.zeros(4), {}))
        with serving(env, framework=declared) as server, RemoteEnv(server.address) as remote:
            remote.reset()
            with pytest.raises(EnvironmentException, match=words):
                remote.step([0, 0])


# Foreign leaves


@both
def test_another_librarys_leaf_is_read_and_warned_of_once(framework: Any) -> None:
    """SRV-21: once for each type of leaf, at a reset as at a step."""
    other = {TORCH: jnp.ones, JAX: torch.ones}[framework]
    space = Dict({"mine": Box(-9, 9, (2,)), "n": Discrete(4), "theirs": Tuple([Box(-9, 9, (2,))])})

    def observation(theirs: Any) -> Any:
        return {"mine": framework.from_host(np.ones(2, np.float32)), "n": 2, "theirs": (theirs,)}

    def step(action: Any) -> Any:
        theirs = np.ones(2, np.float32) if len(env.actions) < 3 else other(2)
        return observation(theirs), 0.0, False, False, {}

    env = FunctionEnv(
        observation_space=space,
        step=step,
        reset=lambda seed: (observation(framework.from_host(np.ones(2, np.float32))), {}),
    )
    with serving(env, framework=framework) as server, RemoteEnv(server.address) as remote:
        remote.reset()
        with pytest.warns(UserWarning) as noted:
            said = [remote.step([0, 0])[0] for _ in range(5)]
    assert all(observation["theirs"][0].tolist() == [1, 1] for observation in said)
    texts = [str(warning.message) for warning in noted]
    assert len(texts) == 2
    assert texts[0].startswith(
        f"a {framework.name} env returned a numpy.ndarray in its observation"
    )
    assert type(other(1)).__name__ in texts[1]


# Arguments


@every
def test_a_framework_may_be_an_object(framework: Any) -> None:
    """SRV-19 "or bridge": one of rlmesh's, or one's own with the same members."""

    class Own(type(framework)):  # type: ignore[misc]
        name = "own"
        taken = 0

        def from_host(self, array: Any, /, device: Any = None) -> Any:
            Own.taken += 1
            return super().from_host(array, device)

    for given in (framework, Own()):
        env = SpokenEnv(framework)
        with serving(env, framework=given) as server, RemoteEnv(server.address) as remote:
            remote.reset()
            assert remote.step([0.5, 1])[0].tolist() == [1, 0, 0, 0]
        same_bits(env.actions[0], np.float32([0.5, 1]), framework)
    assert Own.taken == (framework is not NUMPY)  # whose arrays need no conversion


def test_a_device_needs_a_framework_that_has_one() -> None:
    """SRV-20."""
    for framework in (None, "numpy", NUMPY):
        with pytest.raises(ValueError, match=r"device='cuda:0' requires a framework with a device"):
            EnvServer(FunctionEnv(), framework=framework, device="cuda:0")
    for framework in ("torch", "jax"):
        with pytest.raises(ValueError, match=f"device='moon': {framework} cannot put actions"):
            EnvServer(FunctionEnv(), framework=framework, device="moon")
    with pytest.raises(ValueError, match="unknown framework 'tf'"):
        EnvServer(FunctionEnv(), framework="tf")
    with pytest.raises(TypeError, match="an object with the members of"):
        EnvServer(FunctionEnv(), framework=object())


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
@both
def test_gymnasiums_fan_out_is_refused(kind: Any, framework: Any) -> None:
    """VEC-14, CMD-5: it joins lanes with NumPy; a list of the same envs is served."""
    envs = kind(countdowns(2, 3))
    try:
        with pytest.raises(NotImplementedError, match="serve a list of single envs"):
            EnvServer(envs, framework=framework)
    finally:
        envs.close()
    EnvServer([Countdown(2), Countdown(3)], framework=framework).shutdown()


def test_a_wrapper_that_speaks_torch_is_served_as_such() -> None:
    """gymnasium's own NumpyToTorch, around its vector env: tensors in, tensors out."""
    envs = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    told = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    with (
        serving(NumpyToTorch(envs), framework="torch") as server,
        RemoteVectorEnv(server.address) as remote,
    ):
        observations, _ = remote.reset(seed=3)
        np.testing.assert_array_equal(observations, told.reset(seed=3)[0])
        for actions in np.random.default_rng(0).integers(0, 2, (30, 2)):
            got, expected = remote.step(actions), told.step(actions)
            for mine, theirs in zip(got[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(mine, theirs)
    told.close()


def test_frames_are_not_converted() -> None:
    """SRV-19: render() gives what gymnasium's do, a NumPy frame."""
    with driving(FunctionEnv()) as remote:
        assert remote.render().shape == (4, 6, 3)


# Factories and envs in process


@both
def test_a_bound_factory_needs_no_flag(framework: Any) -> None:
    """FAC-3: served and in process, its envs take the framework's arrays."""
    module = importlib.import_module(f"rlmesh.{framework.name}")
    given: list[Any] = []

    class Envs(module.EnvFactory):  # type: ignore[misc]
        def make(self) -> Any:
            ones = framework.from_host(np.ones(4, np.float32))
            return SpokenEnv(
                framework,
                step=lambda action: (given.append(action) or ones, 1.0, True, False, {}),
            )

    assert rlmesh.run(Model(lambda o: o[:2]), Envs(), seeds=[0]).total_steps == 1
    with serving(Envs().make()) as server:
        assert rlmesh.run(Model(lambda o: o[:2]), server.address, seeds=[0]).total_steps == 1
    with serving([Envs().make() for _ in range(2)]) as server:
        assert rlmesh.run(Model(lambda o: o[:2]), server.address, seeds=[0, 1]).total_steps == 2
    assert len(given) >= 4 and all(framework.is_array(action) for action in given)


def test_a_jax_env_in_process_keeps_its_actions() -> None:
    """A policy that reuses its array changes no action that a jax env was given before."""
    import rlmesh.jax

    kept: list[Any] = []

    class Envs(rlmesh.jax.EnvFactory):
        def make(self) -> Any:
            return FunctionEnv(
                action_space=Box(-1e6, 1e6, (4096,)),
                step=lambda action: (
                    kept.append(action) or np.zeros(4, np.float32),
                    *(1.0, len(kept) == 10, False, {}),
                ),
            )

    memory = np.zeros(4096 * 4 + 64, np.uint8)
    start = -memory.ctypes.data % 64  # aligned, so that jax could take it over
    buffer = memory[start : start + 4096 * 4].view(np.float32)

    def predict(observation: Any) -> Any:
        buffer[:] = len(kept)
        return buffer

    with pytest.warns(UserWarning, match="a jax env returned a numpy.ndarray"):
        rlmesh.run(Model(predict), Envs(), seeds=[0])
    assert [float(action[0]) for action in kept] == list(range(10))
