# pyright: strict
"""How rlmesh is not used: every marked line must be the error it names, and no other line any.

Never imported. A marker lists all the rules that its line breaks.
"""
# ruff: noqa: B018

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import rlmesh
import rlmesh.gymnasium
from rlmesh import types

Floats = NDArray[np.float32]


def plain(observation: Floats) -> int:
    return int(observation[0] > 0)


class OwnEnv:
    observation_space = rlmesh.spaces.Box(-1.0, 1.0, (2,), "float32")
    action_space = rlmesh.spaces.Discrete(2)

    def reset(self) -> tuple[Floats, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, True, False, {}

    def close(self) -> None: ...


# Models


def takes_nothing() -> int:
    return 0


def takes_more(observation: Floats, weights: Floats) -> int:
    return 0


def wants_other_context(observation: Floats, *, context: int) -> int:
    return 0


class NoPolicy:
    def act(self, observation: Floats) -> int:
        return 0


def models(four: Floats) -> None:
    rlmesh.Model(3)  # error: reportArgumentType, reportCallIssue
    rlmesh.numpy.Model("policy.pt")  # error: reportArgumentType, reportCallIssue
    rlmesh.numpy.Model(takes_nothing)  # error: reportArgumentType, reportCallIssue
    rlmesh.numpy.Model(takes_more)  # error: reportArgumentType, reportCallIssue
    rlmesh.numpy.Model(wants_other_context)  # error: reportArgumentType, reportCallIssue
    rlmesh.numpy.Model(NoPolicy())  # error: reportArgumentType, reportCallIssue
    rlmesh.numpy.Model(plain, specs=None)  # error: reportCallIssue
    rlmesh.numpy.Model(plain, spec="image")  # error: reportArgumentType, reportCallIssue
    rlmesh.numpy.Model(plain, on_close=3)  # error: reportArgumentType, reportCallIssue
    rlmesh.numpy.Model(plain).predict("observation")  # error: reportArgumentType
    rlmesh.ModelServer(3)  # error: reportArgumentType
    action: str = rlmesh.numpy.Model(plain).predict(four)  # error: reportAssignmentType
    print(action)


class ReturnsText(rlmesh.numpy.Model[Floats, int]):
    def predict(self, observation: Floats) -> str:  # error: reportIncompatibleMethodOverride
        return ""


class IsReset(rlmesh.numpy.Model):
    def reset(self, seed: int) -> None: ...  # error: reportIncompatibleMethodOverride


class Told(rlmesh.numpy.Model):
    native_chunk = "8"  # error: reportAssignmentType


def variance(model: rlmesh.numpy.Model[Floats, int]) -> None:
    narrower: rlmesh.numpy.Model[object, int] = model  # error: reportAssignmentType
    fewer: rlmesh.numpy.Model[Floats, bool] = model  # error: reportAssignmentType
    print(narrower, fewer)


# Clients


def clients(address: str) -> None:
    rlmesh.RemoteEnv(3)  # error: reportArgumentType
    rlmesh.RemoteEnv(address, timeout=3.0)  # error: reportCallIssue
    with rlmesh.numpy.RemoteEnv[Floats, int](address) as env:
        env.step("left")  # error: reportArgumentType
        env.reset(seed="0")  # error: reportArgumentType
        env.reset(0)  # error: reportCallIssue
        text: str = env.reset()[0]  # error: reportAssignmentType
        env.actions  # error: reportAttributeAccessIssue, reportUnknownMemberType
        four, _, terminated, _ = env.step(1)  # error: reportAssignmentType
        print(text, four, terminated)
    with rlmesh.RemoteVectorEnv[Floats, list[int]](address) as envs:
        envs.step(1)  # error: reportArgumentType
    there = rlmesh.gymnasium.RemoteEnv[Floats, int](address)
    theirs: gym.Env[Floats, str] = there  # error: reportAssignmentType
    theirs.close()


# Sessions


def sessions(env: gym.Env[Floats, int]) -> None:
    rlmesh.session(plain, 3)  # error: reportArgumentType
    rlmesh.session(3, env)  # error: reportArgumentType
    rlmesh.session(plain, env, seeds=[0])  # error: reportCallIssue
    with rlmesh.numpy.Model(plain).session(env) as session:
        observation, _ = session.reset()
        session.reset(0)  # error: reportCallIssue
        session.predict("observation")  # error: reportArgumentType
        session.step(observation)  # error: reportArgumentType
        session.step([1])  # error: reportArgumentType
    made = rlmesh.session(plain, env)
    other: rlmesh.Session[str, int] = made  # error: reportAssignmentType
    other.close()


# Runs


class Watches:
    def on_step(self, event: rlmesh.StepEvent) -> None: ...


class Watcher(rlmesh.RunHooks):
    def on_step(self, event: int) -> None: ...  # error: reportIncompatibleMethodOverride


def runs(address: str, env: OwnEnv) -> None:
    rlmesh.run(3, env)  # error: reportArgumentType
    rlmesh.run(None, env)  # error: reportArgumentType
    rlmesh.run(address, env)  # error: reportArgumentType
    rlmesh.run(takes_nothing, env)  # error: reportArgumentType
    rlmesh.run(takes_more, env)  # error: reportArgumentType
    rlmesh.run(NoPolicy(), env)  # error: reportArgumentType
    rlmesh.run([plain, plain], env)  # error: reportArgumentType
    rlmesh.run(plain)  # error: reportCallIssue
    rlmesh.run(plain, 3)  # error: reportArgumentType
    rlmesh.run(plain, None)  # error: reportArgumentType
    rlmesh.run(plain, [env, 3])  # error: reportArgumentType
    rlmesh.run(plain, object())  # error: reportArgumentType
    rlmesh.run(plain, env, seeds="abc")  # error: reportArgumentType
    rlmesh.run(plain, env, seeds=3)  # error: reportArgumentType
    rlmesh.run(plain, env, seeds=[0.5])  # error: reportArgumentType
    rlmesh.run(plain, env, episodes="10")  # error: reportArgumentType
    rlmesh.run(plain, env, hooks=object())  # error: reportArgumentType
    rlmesh.run(plain, env, hooks=Watches())  # error: reportArgumentType
    rlmesh.run(plain, env, hooks=Watcher)  # error: reportArgumentType
    rlmesh.run(plain, env, max_steps=3)  # error: reportCallIssue
    rlmesh.numpy.Model(plain).run(3)  # error: reportArgumentType
    result = rlmesh.run(plain, env)
    rate: float = result.success_rate  # error: reportAssignmentType
    print(rate)
    result.succes_rate  # error: reportAttributeAccessIssue, reportUnknownMemberType
    result.episodes[0].reward = 1.0  # error: reportAttributeAccessIssue


def protocols(space: rlmesh.spaces.Space) -> None:
    def takes(env: types.EnvLike, space: types.SpaceLike, value: types.Value) -> None: ...

    takes(3, space, 1)  # error: reportArgumentType
    takes(OwnEnv(), OwnEnv(), 1)  # error: reportArgumentType
    takes(OwnEnv(), space, object())  # error: reportArgumentType


# Names


def names() -> None:
    rlmesh.Modell  # error: reportAttributeAccessIssue, reportUnknownMemberType
    rlmesh.adapters.preset  # error: reportAttributeAccessIssue, reportUnknownMemberType
    rlmesh.torch.Modell  # error: reportAttributeAccessIssue, reportUnknownMemberType
