"""``rlmesh.types``: structural, usable at run time, and light (section 28 of the feature table)."""

from __future__ import annotations

import typing
from typing import Any

import gymnasium as gym
import pytest
from support import FunctionEnv, python_child

import rlmesh
from rlmesh import spaces, types


class Factory(rlmesh.EnvFactory):
    def make(self) -> Any:
        return FunctionEnv()


def test_every_name_is_there() -> None:
    assert sorted(types.__all__) == types.__all__
    assert rlmesh.PredictContext is types.PredictContext


def test_spaces_are_space_like() -> None:
    for space in (spaces.Discrete(2), gym.spaces.Discrete(2), gym.spaces.Dict({})):
        assert isinstance(space, types.SpaceLike)
    assert not isinstance(object(), types.SpaceLike)


def test_envs_are_env_like() -> None:
    env = gym.make("CartPole-v1")
    assert isinstance(env, types.EnvLike)
    assert isinstance(env, types.SupportsResetStep)
    assert not isinstance(env, types.VectorEnvLike | types.SupportsMake | types.HasAddress)
    vector = gym.make_vec("CartPole-v1", num_envs=2)
    assert isinstance(vector, types.VectorEnvLike)
    vector.close()
    assert isinstance(FunctionEnv(), types.EnvLike)
    assert isinstance(Factory(), types.SupportsMake)
    assert not isinstance(Factory(), types.SupportsResetStep)


def test_a_server_has_an_address_and_a_client_a_contract() -> None:
    with rlmesh.EnvServer(FunctionEnv()) as server:
        server.start()
        assert isinstance(server, types.HasAddress)
        with rlmesh.RemoteEnv(server.address) as env:
            assert isinstance(env, types.HasEnvContract)
            assert isinstance(env, types.EnvLike)


@pytest.mark.parametrize("name", types.__all__)
def test_every_name_is_a_hint_that_can_be_evaluated(name: str) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": f"types.{name}"}
    hint = typing.get_type_hints(function, globals())["value"]
    assert hint is not None


def test_a_value_holds_values() -> None:
    def function(value: types.Value) -> None: ...

    hint = typing.get_type_hints(function)["value"]
    arguments = typing.get_args(hint)
    assert rlmesh.Tensor in arguments
    assert {str, int, float, bool, bytes, type(None)} <= set(arguments)
    (inner,) = (a for a in arguments if typing.get_origin(a) is list)
    assert rlmesh.Tensor in typing.get_args(typing.get_args(inner)[0])


def test_without_postponed_annotations_too() -> None:
    """In a module without the future import the hint is evaluated as it is written."""
    with python_child(
        "import typing\n"
        "from rlmesh import types\n"
        "def f(a: types.Value, b: types.EnvTarget, c: types.SpecArg | None = None): ...\n"
        "print(sorted(typing.get_type_hints(f)))\n"
    ) as child:
        assert child.line() == "['a', 'b', 'c']"


def test_importing_them_imports_no_framework_and_no_transport() -> None:
    with python_child(
        "import sys, rlmesh.types\n"
        "heavy = {'grpc', 'gymnasium', 'torch', 'jax', 'cv2', 'PIL', 'scipy', 'click', 'rich'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))\n"
    ) as child:
        assert child.line() == "[]"


def test_a_predict_context_is_a_dict() -> None:
    seen: list[types.PredictContext] = []

    def predict(observation: Any, context: types.PredictContext) -> Any:
        seen.append(context)
        return [0.0, 0.0]

    rlmesh.run(predict, FunctionEnv(), seeds=[3], max_episode_steps=1)
    assert seen[0]["episode_seed"] == 3
    assert isinstance(seen[0], dict)
