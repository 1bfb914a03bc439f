"""RemoteEnv, RemoteVectorEnv and RemoteModel of every framework, against real servers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from framework_kinds import ALL, DTYPES, SERVED, both, every, same_bits, values, wide
from support import FunctionEnv, serving

import rlmesh
from rlmesh import ModelServer
from rlmesh.jax import RemoteEnv as JaxRemoteEnv
from rlmesh.numpy import Model as NumpyModel
from rlmesh.spaces import Box, Dict, Discrete
from rlmesh.torch import RemoteEnv as TorchRemoteEnv
from rlmesh.torch import RemoteVectorEnv as TorchRemoteVectorEnv
from rlmesh.values import NATIVE
from rlmesh.values.tree import tree_map

SPACE = wide()


def client(framework: Any, kind: str = "RemoteEnv") -> Callable[..., Any]:
    return getattr(importlib.import_module(f"rlmesh.{framework.name}"), kind)


def value(seed: int) -> dict[str, Any]:
    """Return a value of the wide space, as NumPy has it."""
    leaves = {
        f"{dtype}{list(shape)}": values(dtype, shape, seed) for dtype in DTYPES for shape in SERVED
    }
    return {**leaves, "text": f"seed {seed}"}


def held(tree: Any, framework: Any) -> Any:
    """Return a NumPy tree as the framework's."""
    return tree_map(
        lambda leaf: framework.from_host(leaf.copy()) if isinstance(leaf, np.ndarray) else leaf,
        tree,
    )


def assert_held(got: Any, expected: Any, framework: Any) -> None:
    assert got.keys() == expected.keys()
    for key, array in expected.items():
        if isinstance(array, str):
            assert got[key] == array
        else:
            same_bits(got[key], array, framework)


class WideEnv(FunctionEnv):
    """Returns and takes values of every dtype and shape; its leaves are ``framework``'s."""

    def __init__(self, framework: Any) -> None:
        super().__init__(observation_space=SPACE, action_space=SPACE)
        self._framework = framework

    def observation(self) -> Any:
        return held(value(self._steps), self._framework)


@pytest.mark.parametrize("env", ALL)
@pytest.mark.parametrize("reader", ALL)
def test_values_are_the_same_bits_in_every_framework(env: str, reader: str) -> None:
    """BCK-7, VAL-9: env and client independent; every dtype, 0-d leaves too, both ways."""
    speaks, reads = ALL[env], ALL[reader]
    served = WideEnv(speaks)
    with serving(served, framework=env) as server, client(reads)(server.address) as remote:
        observation, _ = remote.reset()
        assert_held(observation, value(0), reads)
        for step in range(1, 4):
            sent = value(100 + step)
            observation, *_ = remote.step(held(sent, [reads, *ALL.values()][step - 1]))
            assert_held(observation, value(step), reads)
            assert_held(served.actions[-1], sent, speaks)


@pytest.mark.parametrize("door", ["native", "grpc"])
@both
def test_what_was_received_stays_as_it_was(framework: Any, door: str) -> None:
    """VAL-9: the memory of a message is its own: no later one writes to it."""
    space = Dict({"image": Box(0, 255, (64, 64, 3), "uint8"), "state": Box(-9e9, 9e9, (16,))})

    def step(action: Any) -> Any:
        number = len(env.actions)
        image = np.full((64, 64, 3), number, np.uint8)
        state = np.full(16, number, np.float32)
        return {"image": image, "state": state}, 0.0, False, False, {}

    env = FunctionEnv(observation_space=space, step=step, reset=lambda seed: (step(None)[0], {}))
    with serving(env) as server:
        address = server.address if door == "native" else server.address.replace("tcp", "http")
        with client(framework)(address) as remote:
            remote.reset()
            kept = [remote.step(np.zeros(2))[0] for _ in range(20)]
    for number, observation in enumerate(kept, 1):
        assert (framework.to_host(observation["image"]) == number).all()
        assert (framework.to_host(observation["state"]) == number).all()


def test_a_torch_observation_is_writable_and_its_owners_alone() -> None:
    """VAL-9."""
    with serving(FunctionEnv()) as server, TorchRemoteEnv(server.address) as remote:
        first, _ = remote.reset()
        second, *_ = remote.step(torch.zeros(2))
        first.fill_(7)
        assert second.tolist() == [1, 0, 0, 0]
        assert second.is_contiguous() and not second.requires_grad


def test_a_jax_observation_cannot_be_written_to() -> None:
    with serving(FunctionEnv()) as server, JaxRemoteEnv(server.address) as remote:
        observation, _ = remote.reset()
        with pytest.raises(TypeError, match="immutable"):
            observation[0] = 1


@every
@pytest.mark.parametrize(
    "action",
    [
        np.array([0.5, -1]),
        [0.5, -1],
        torch.tensor([0.5, -1.0], requires_grad=True),
        torch.tensor([[0.5, 9.0], [-1.0, 9.0]], dtype=torch.float16)[:, 0],
        jnp.array([0.5, -1.0]),
        rlmesh.Tensor(np.float32([0.5, -1]), [2], "float32"),
    ],
    ids=["numpy", "list", "torch-grad", "torch-half-strided", "jax", "native"],
)
def test_a_client_takes_actions_of_any_library(framework: Any, action: Any) -> None:
    env = FunctionEnv()
    with serving(env) as server, client(framework)(server.address) as remote:
        remote.reset()
        remote.step(action)
    assert env.actions[0].tolist() == [0.5, -1]


@every
def test_a_bfloat16_action_is_refused_before_it_is_sent(framework: Any) -> None:
    """VAL-10."""
    env = FunctionEnv()
    with serving(env) as server, client(framework)(server.address) as remote:
        remote.reset()
        for action in (torch.zeros(2, dtype=torch.bfloat16), jnp.zeros(2, jnp.bfloat16)):
            with pytest.raises(ValueError, match=r"action: .*bfloat16.*cast to float32 first"):
                remote.step(action)
    assert env.actions == []


@every
def test_lanes_come_as_one_array_with_rewards_and_flags_beside(framework: Any) -> None:
    """VEC-6: rewards float64, flags bool, in the client's framework."""

    def lane(number: int) -> FunctionEnv:
        def step(action: Any) -> Any:
            return np.full(4, number, np.float32), number / 3, number == 2, number == 1, {}

        return FunctionEnv(step=step)

    envs = [lane(number) for number in range(3)]
    with serving(envs) as server, client(framework, "RemoteVectorEnv")(server.address) as remote:
        observations, _ = remote.reset()
        same_bits(observations, np.zeros((3, 4), np.float32), framework)
        actions = np.float32([[0, 1], [0.5, 0], [1, 1]])
        observations, *rest, _ = remote.step(framework.from_host(actions.copy()))
        expected = np.repeat(np.float32([[0], [1], [2]]), 4, axis=1)
        same_bits(observations, expected, framework)
        for leaf, array in zip(
            rest,
            [np.arange(3) / 3, np.array([False, False, True]), np.array([False, True, False])],
            strict=True,
        ):
            same_bits(leaf, array, framework)
        mask = framework.from_host(np.array([False, True, True]))
        remote.reset(options={"reset_mask": mask})
        remote.step(list(framework.unstack(framework.from_host(actions.copy()))))
    assert [env.actions[1].tolist() for env in envs] == actions.tolist()


def test_the_framework_free_clients_hand_out_tensors_that_both_adopt() -> None:
    """VAL-7: DLPack from one end to the other."""
    with serving(FunctionEnv()) as server, rlmesh.RemoteEnv(server.address) as remote:
        observation, _ = remote.reset()
        assert NATIVE.is_array(observation)
        assert rlmesh.torch.as_tensor(observation).tolist() == [0, 0, 0, 0]
        assert jnp.from_dlpack(observation).tolist() == [0, 0, 0, 0]
        remote.step(jnp.ones(2))


def test_an_integer_that_jax_would_wrap_is_refused_with_its_key() -> None:
    def reset(seed: Any) -> Any:
        return {"count": np.array([2**40, 1])}, {}

    env = FunctionEnv(observation_space=Dict({"count": Box("-inf", "inf", (2,), "int64")}))
    env._functions["reset"] = reset
    with serving(env) as server:
        with JaxRemoteEnv(server.address) as remote:
            words = r"observation\['count'\]: 1099511627776 of int64 does not fit int32"
            with pytest.raises(ValueError, match=words):
                remote.reset()
        with TorchRemoteEnv(server.address) as remote:
            assert remote.reset()[0]["count"].tolist() == [2**40, 1]


@every
def test_a_served_model_takes_observations_of_any_framework(framework: Any) -> None:
    """CLI-13: the model server reads what the env's client hands out."""
    seen: list[Any] = []

    def predict(observation: Any) -> Any:
        seen.append(observation)
        return observation[:2] * 0 + 0.5

    env = FunctionEnv()
    with serving(env) as server, ModelServer(NumpyModel(predict)) as models:
        models.start()
        remote = client(framework)(server.address)
        model = client(framework, "RemoteModel")(models.address)
        with remote, model.session(remote) as session:
            observation, _ = session.reset()
            assert framework.is_array(observation)
            session.step(session.predict(observation))
            session.predict(framework.from_host(np.float32([1, 2, 3, 4])))
        assert [type(observation) for observation in seen] == [np.ndarray] * 2
        assert seen[1].tolist() == [1, 2, 3, 4]
    assert env.actions[0].tolist() == [0.5, 0.5]


def test_a_discrete_choice_may_be_a_tensor() -> None:
    """SRV-24: an int to the env, whatever the client gave."""
    env = FunctionEnv(action_space=Discrete(5))
    with serving(env) as server, TorchRemoteEnv(server.address) as remote:
        remote.reset()
        for action in (torch.tensor(3), np.int64(3), jnp.int32(3), 3):
            remote.step(action)
    assert env.actions == [3] * 4 and {type(action) for action in env.actions} == {int}
    with (
        serving([FunctionEnv(action_space=Discrete(5)) for _ in range(2)]) as server,
        TorchRemoteVectorEnv(server.address) as remote,
    ):
        remote.reset()
        remote.step(torch.tensor([1, 2]))
