"""One policy written in NumPy, torch and jax plays the same episodes, step by step, bit by bit."""

from __future__ import annotations

import hashlib
import importlib
from typing import Any

import numpy as np
import pytest
from framework_kinds import ALL, both, every
from support import serving
from support.zoo import Countdown

import rlmesh
from rlmesh import ModelServer, RunHooks, StepEvent
from rlmesh.values import NUMPY

SEEDS = range(5)


class Hashes(RunHooks):
    """The hash of every episode: of what was observed, done and said at each step."""

    def __init__(self) -> None:
        self.running: dict[int, Any] = {}

    def on_step(self, event: StepEvent) -> None:
        running = self.running.setdefault(event.seed, hashlib.sha256())
        observation = np.asarray(event.observation)
        assert observation.dtype == np.float32
        running.update(observation.tobytes())
        running.update(repr((int(event.action), event.reward, event.terminated)).encode())

    def digests(self) -> dict[int, str]:
        return {seed: running.hexdigest() for seed, running in sorted(self.running.items())}


def choice(observation: Any) -> Any:
    """Return (drawn + 2 taken + action) mod 5: whole numbers, which every library gets right."""
    return (observation[..., 0] + 2 * observation[..., 1] + observation[..., 2]) % 5


CORNERS = ["predict", "predict_chunk", "predict_batch", "predict_chunk_batch"]


def policy(framework: Any, name: str) -> Any:
    """Return a model of ``framework`` with that corner; a chunk counts up from its first action."""
    base = importlib.import_module(f"rlmesh.{framework.name}").Model

    def whole(numbers: Any) -> Any:
        return numbers.int() if framework.name == "torch" else numbers.astype("int32")

    def answer(self: Any, observations: Any) -> Any:
        assert framework.is_array(observations)
        actions = whole(choice(observations))
        if "chunk" not in name:
            return actions
        return framework.stack([actions, (actions + 1) % 5]).T  # [N, 2], or [2] for one

    if name == "predict_chunk":
        inner = answer

        def answer(self: Any, observations: Any) -> Any:
            return inner(self, observations[None])[0]

    return type("Policy", (base,), {name: answer})()


def played(model: Any, env: Any, horizon: int) -> dict[int, str]:
    hashes = Hashes()
    result = rlmesh.run(model, env, seeds=SEEDS, hooks=hashes, execution_horizon=horizon)
    assert result.num_episodes == len(SEEDS)
    return hashes.digests()


@pytest.mark.parametrize("name", CORNERS)
@every
def test_the_same_episodes_in_every_framework_and_place(framework: Any, name: str) -> None:
    """BCK-7: locally, by socket, in lanes, served; each corner, chunks replayed or not."""
    for horizon in (1, 2) if "chunk" in name else (1,):
        expected = played(policy(NUMPY, name), Countdown(4), horizon)
        assert len(set(expected.values())) > 1
        model = policy(framework, name)
        assert played(model, Countdown(4), horizon) == expected
        with serving([Countdown(4) for _ in range(3)]) as lanes, serving(Countdown(4)) as single:
            assert played(model, lanes.address, horizon) == expected
            for reader in ALL:
                with importlib.import_module(f"rlmesh.{reader}").RemoteEnv(single.address) as env:
                    assert played(model, env, horizon) == expected
            with ModelServer(model) as server:
                server.start()
                for speaker in ALL:
                    remote = importlib.import_module(f"rlmesh.{speaker}").RemoteModel
                    assert played(remote(server.address), lanes.address, horizon) == expected


@both
def test_the_same_episodes_of_an_env_in_every_framework(framework: Any) -> None:
    """The env in NumPy, and the same env with every number a tensor."""

    class Spoken:
        """A Countdown that speaks the framework."""

        def __init__(self) -> None:
            self.inner = Countdown(4)
            self.observation_space = self.inner.observation_space
            self.action_space = self.inner.action_space
            self.metadata: dict[str, Any] = {}

        def reset(self, **arguments: Any) -> Any:
            observation, _ = self.inner.reset(**arguments)
            return framework.from_host(observation), {}

        def step(self, action: Any) -> Any:
            observation, *rest, _ = self.inner.step(action)
            reward, ended, cut = (framework.from_host(np.asarray(item)) for item in rest)
            return framework.from_host(observation), reward, ended, cut, {}

        def close(self) -> None:
            pass

    expected = played(policy(NUMPY, "predict"), Countdown(4), 1)
    assert played(policy(NUMPY, "predict"), Spoken(), 1) == expected
    with serving([Spoken() for _ in range(2)], framework=framework) as server:
        for model in (policy(NUMPY, "predict"), policy(framework, "predict_batch")):
            assert played(model, server.address, 1) == expected
