# pyright: strict
"""How rlmesh is used, as a strict type checker must read it; every function here also runs.

Nothing here may be an error. ``assert_type`` pins what is inferred; at run time it returns its
argument.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import assert_type

import rlmesh
import rlmesh.gymnasium
import rlmesh.jax
import rlmesh.numpy
import rlmesh.torch
from rlmesh import types
from rlmesh.adapters import Action, Actuator, EnvTags, Image, ModelSpec

Floats = NDArray[np.float32]
Scene = dict[str, Floats]

# Models: what is wrapped says what the observation and the action are


def plain(observation: Floats) -> int:
    return int(observation[0] > 0)


def in_context(observation: Floats, context: rlmesh.PredictContext) -> int:
    return int(observation[0] > 0) + 0 * context["predict_index"]


def by_keyword(observation: Floats, *, context: rlmesh.PredictContext) -> int:
    return in_context(observation, context)


def if_asked(observation: Floats, context: rlmesh.PredictContext | None = None) -> int:
    return plain(observation)


def with_weights(weights: Floats, observation: Floats) -> int:
    return int(observation @ weights > 0)


def reads_scene(observation: Mapping[str, Floats]) -> Floats:
    return observation["state"]


class Policy:
    """Another project's policy, with a state and a checkpoint to choose."""

    def __init__(self, checkpoint: str = "base") -> None:
        self.checkpoint = checkpoint

    def predict(self, observation: Scene) -> Floats:
        return observation["state"]

    def reset(self) -> None: ...


class ChunkPolicy:
    def predict_chunk(self, observation: Scene, execution_horizon: int = 1) -> list[Floats]:
        return [observation["state"]] * execution_horizon


class BatchPolicy:
    def predict_batch(self, observations: Scene) -> Floats:
        return observations["state"]


class ChunkBatchPolicy:
    def predict_chunk_batch(self, observations: Scene, execution_horizon: int) -> Floats:
        return np.repeat(observations["state"][:, None], execution_horizon, axis=1)


class Called:
    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(self, observation: Floats) -> float:
        return float(observation[0]) * self.gain


class Counts:
    calls = 0

    def __call__(self, observation: Floats) -> int:
        self.calls += 1
        return self.calls % 2


class Network(torch.nn.Module):
    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return observation


def wrapping() -> None:
    assert_type(rlmesh.Model(plain), rlmesh.Model[Floats, int])
    assert_type(rlmesh.numpy.Model(plain), rlmesh.numpy.Model[Floats, int])
    assert_type(rlmesh.numpy.Model(in_context), rlmesh.numpy.Model[Floats, int])
    assert_type(rlmesh.numpy.Model(by_keyword), rlmesh.numpy.Model[Floats, int])
    assert_type(rlmesh.numpy.Model(if_asked), rlmesh.numpy.Model[Floats, int])
    assert_type(rlmesh.numpy.Model(reads_scene), rlmesh.numpy.Model[Mapping[str, Floats], Floats])
    weights = np.ones(4, np.float32)
    partial = functools.partial(with_weights, weights)
    assert_type(rlmesh.numpy.Model(partial), rlmesh.numpy.Model[Floats, int])
    assert_type(rlmesh.numpy.Model(Called()), rlmesh.numpy.Model[Floats, float])
    assert_type(rlmesh.numpy.Model(Called), rlmesh.numpy.Model[Floats, float])
    assert_type(rlmesh.numpy.Model(Policy()), rlmesh.numpy.Model[Scene, Floats])
    assert_type(rlmesh.numpy.Model(Policy), rlmesh.numpy.Model[Scene, Floats])
    assert_type(rlmesh.numpy.Model(ChunkPolicy()), rlmesh.numpy.Model[Scene, Any])
    assert_type(rlmesh.numpy.Model(ChunkPolicy), rlmesh.numpy.Model[Scene, Any])
    assert_type(rlmesh.numpy.Model(BatchPolicy()), rlmesh.numpy.Model[Any, Any])
    assert_type(rlmesh.numpy.Model(ChunkBatchPolicy), rlmesh.numpy.Model[Any, Any])
    assert_type(rlmesh.torch.Model(Network()), rlmesh.torch.Model[Any, Any])
    assert_type(
        rlmesh.torch.Model(Network().forward), rlmesh.torch.Model[torch.Tensor, torch.Tensor]
    )
    # Of a lambda only what it returns is known.
    assert_type(rlmesh.numpy.Model(lambda obs: int(obs[2] > 0)), rlmesh.numpy.Model[Any, int])
    assert_type(rlmesh.jax.Model(lambda obs, context: 1.0), rlmesh.jax.Model[Any, float])
    said: rlmesh.numpy.Model[Floats, int] = rlmesh.numpy.Model(lambda obs: int(obs[2] > 0))
    assert_type(said.predict(weights), int)


def wrapping_with_hooks() -> None:
    ended: list[str] = []
    spec = ModelSpec({"image": Image("image/primary")}, Action(Actuator("action/joint_pos", 7)))
    rlmesh.numpy.Model(reads_scene, spec=spec, trust_entrypoints=True)
    rlmesh.numpy.Model(plain, on_episode_end=ended.append, on_close=ended.clear)
    rlmesh.numpy.Model(plain, spec=rlmesh.NO_ADAPTER, on_episode_end=lambda: None)


def variance() -> None:
    """A policy that takes more, or gives less, stands in for another."""

    def takes(model: rlmesh.numpy.Model[Scene, Floats]) -> Floats:
        return model.predict({"state": np.zeros(2, np.float32)})

    assert_type(takes(rlmesh.numpy.Model(reads_scene)), Floats)
    broad = rlmesh.numpy.Model(reads_scene)
    takes(broad)
    takes(rlmesh.numpy.Model(lambda scene: scene["state"]))


# Models: subclasses, with type arguments or without


class Typed(rlmesh.numpy.Model[Floats, int]):
    def predict(self, observation: Floats) -> int:
        return int(observation[0] > 0)


class ObservationOnly(rlmesh.numpy.Model[Floats]):
    def predict(self, observation: Floats) -> str:
        return str(observation)


class Renamed(rlmesh.numpy.Model):
    """The parameters may have any names, and a `load` its own."""

    params = rlmesh.ParamSpec(rlmesh.Param("checkpoint", str), rlmesh.Param("gain", float))
    spec = rlmesh.NO_ADAPTER
    native_chunk = 8
    allow_fusion = False
    workflow_edition = None

    def load(self, checkpoint: str = "base", gain: float = 1.0) -> None:
        self.checkpoint, self.gain = checkpoint, gain

    def predict(self, obs: Floats, context: rlmesh.PredictContext) -> Floats:
        return obs * self.gain

    def predict_chunk(
        self, obs: Floats, execution_horizon: int, context: rlmesh.PredictContext
    ) -> list[Floats]:
        return [obs] * 8

    def predict_batch(self, obs: Floats, *, context: list[rlmesh.PredictContext]) -> Floats:
        return obs

    def predict_chunk_batch(self, obs: Floats, execution_horizon: int = 1) -> Floats:
        return np.repeat(obs[:, None], 8, axis=1)

    def on_episode_end(self, episode_id: str) -> None:
        self.reset()

    def reset(self) -> None: ...

    def close(self) -> None: ...


class Brief(rlmesh.torch.Model):
    def load(self) -> None:
        self.device = "cpu"

    def predict(self, observation: torch.Tensor) -> torch.Tensor:
        return observation

    def predict_chunk(self, observation: torch.Tensor) -> torch.Tensor:
        return observation[None]

    def on_episode_end(self) -> None:
        super().on_episode_end()


class Configured(rlmesh.Model[types.Value, int]):
    def load(self, **binding: Any) -> None:
        super().load(**binding)

    def predict(
        self, observation: types.Value, context: rlmesh.PredictContext | None = None
    ) -> int:
        return 0


class Constructed(rlmesh.numpy.Model[Floats, Floats]):
    def __init__(self, weights: Floats) -> None:
        self.weights = weights
        super().__init__(spec=rlmesh.NO_ADAPTER)

    def predict(self, observation: Floats) -> Floats:
        return observation * self.weights


def subclassing() -> None:
    four = np.ones(4, np.float32)
    assert_type(Typed(), Typed)
    assert_type(Typed().predict(four), int)
    assert_type(ObservationOnly().predict(four), str)
    assert_type(Renamed.from_config(checkpoint="best"), Renamed)
    assert_type(Renamed.from_config().gain, float)
    assert_type(Brief.from_config(), Brief)
    assert_type(Configured.from_config().predict(None), int)
    assert_type(Constructed(four).predict(four), Floats)
    assert_type(Renamed.describe(), dict[str, Any])


# Clients


def clients(address: str) -> None:
    with rlmesh.numpy.RemoteEnv(address) as untyped:
        assert_type(untyped, rlmesh.numpy.RemoteEnv)
        observation, info = untyped.reset(seed=0)
        assert_type(observation, Any)
        assert_type(info, dict[str, Any])
        untyped.step(1)
    with rlmesh.numpy.RemoteEnv[Floats, int](address) as env:
        assert_type(env, rlmesh.numpy.RemoteEnv[Floats, int])
        assert_type(env.reset(seed=0, options={"start": 1})[0], Floats)
        assert_type(env.step(1), tuple[Floats, float, bool, bool, dict[str, Any]])
    said: rlmesh.RemoteEnv[types.Value, int] = rlmesh.RemoteEnv(address)
    with said as raw:
        assert_type(raw.reset()[0], types.Value)
    with rlmesh.torch.RemoteEnv[torch.Tensor, torch.Tensor](address) as tensors:
        assert_type(tensors.reset()[0], torch.Tensor)
        assert_type(tensors.env_contract.num_envs, int)


def vector_clients(address: str) -> None:
    with rlmesh.numpy.RemoteVectorEnv[Floats, list[int]](address) as envs:
        assert_type(envs, rlmesh.numpy.RemoteVectorEnv[Floats, list[int]])
        assert_type(envs.reset(seed=0)[0], Floats)
        assert_type(envs.step([0] * envs.num_envs)[0], Floats)


def gymnasium_clients(address: str) -> None:
    env = rlmesh.gymnasium.RemoteEnv[Floats, int](address)
    assert_type(env.reset(seed=0)[0], Floats)
    theirs: gym.Env[Floats, int] = env
    assert_type(gym.wrappers.TimeLimit(theirs, max_episode_steps=2).spec is None, bool)
    theirs.close()


def gymnasium_vector_clients(address: str) -> None:
    envs = rlmesh.gymnasium.RemoteVectorEnv[Floats, NDArray[np.int64]](address)
    assert_type(envs.reset(seed=0)[0], Floats)
    theirs: gym.vector.VectorEnv[Floats, NDArray[np.int64], Any] = envs
    theirs.close()


def remote_models(address: str, env: gym.Env[Floats, int]) -> None:
    model = rlmesh.RemoteModel(address)
    with model.session(env) as session:
        assert_type(session, rlmesh.Session[Floats, int])
        assert_type(session.predict(session.reset(seed=0)[0]), int)
    rlmesh.run(model, env, seeds=[0])
    rlmesh.run([model, model], env, seeds=[0])


# Sessions: what the env says is what is stepped


class OwnEnv:
    """No subclass of anything."""

    metadata: Mapping[str, Any] = {}
    observation_space = rlmesh.spaces.Box(-1.0, 1.0, (2,), "float32")
    action_space = rlmesh.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, True, False, {"success": True}

    def close(self) -> None: ...


class OwnEnvs(rlmesh.EnvFactory):
    params = rlmesh.ParamSpec(rlmesh.Param("task", int))

    def make(self, task: int = 0) -> OwnEnv:
        return OwnEnv()


class LegacyEnv:
    """A reset without an info, four values of a step, nothing annotated but what must be."""

    observation_space = rlmesh.spaces.Box(-1.0, 1.0, (2,), "float32")
    action_space = rlmesh.spaces.Discrete(2)

    def reset(self) -> Floats:
        return np.zeros(2, np.float32)

    def step(self, action: int) -> tuple[Floats, float, bool, dict[str, Any]]:
        return self.reset(), 1.0, True, {}

    def close(self) -> None: ...


def sessions(address: str, env: gym.Env[Floats, int]) -> None:
    model = rlmesh.numpy.Model(plain)
    with rlmesh.session(model, env) as session:
        assert_type(session, rlmesh.Session[Floats, int])
        observation, info = session.reset(seed=0, trial_index=None)
        assert_type(observation, Floats)
        assert_type(info, Mapping[str, Any])
        action = session.predict(observation)
        assert_type(action, int)
        assert_type(session.step(action), tuple[Floats, float, bool, bool, Mapping[str, Any]])
        assert_type(session.done, bool)
        assert_type(session.run(seeds=[1], max_episode_steps=1), rlmesh.RunResult)
    assert_type(model.session(OwnEnv()), rlmesh.Session[Floats, int])
    assert_type(rlmesh.Session(plain, OwnEnv()), rlmesh.Session[Floats, int])
    assert_type(rlmesh.session(plain, gym.make("CartPole-v1")), rlmesh.Session[Any, Any])
    assert_type(rlmesh.session(plain, LegacyEnv()), rlmesh.Session[Any, Any])
    assert_type(rlmesh.session(plain, OwnEnvs()), rlmesh.Session[Any, Any])
    assert_type(rlmesh.session(plain, address), rlmesh.Session[Any, Any])
    assert_type(rlmesh.session(plain, [address, address]), rlmesh.Session[Any, Any])
    assert_type(rlmesh.session(plain, [OwnEnv()]), rlmesh.Session[Floats, int])
    with rlmesh.numpy.RemoteEnv[Floats, np.int64](address) as remote:
        assert_type(rlmesh.session(plain, remote), rlmesh.Session[Floats, np.int64])


# Runs


class Watcher(rlmesh.RunHooks):
    def on_run_start(self, context: rlmesh.RunContext) -> None:
        assert_type(context.num_envs, int)

    def on_episode_start(self, *, episode: int, seed: int | None) -> None: ...

    def on_step(self, event: rlmesh.StepEvent) -> None:
        assert_type(event.observation, Any)
        assert_type(event.action, Any)
        assert_type(event.reward, float)
        assert_type(event.info, Mapping[str, Any])

    def on_episode_end(self, result: rlmesh.EpisodeResult) -> None:
        assert_type(result.success, bool | None)

    def on_run_end(self, result: rlmesh.RunResult) -> None:
        assert_type(result.episodes, tuple[rlmesh.EpisodeResult, ...])


def serving() -> None:
    with rlmesh.ModelServer(plain) as first, rlmesh.ModelServer(Typed) as second:
        assert_type(first.address, str)
        assert_type(second, rlmesh.ModelServer)
    with rlmesh.EnvServer(OwnEnv()) as server:
        assert_type(server.env_contract, rlmesh.specs.EnvContract)


def policies() -> Iterator[types.ModelTarget]:
    """What is evaluated: each is a policy as it is."""
    yield plain
    yield in_context
    yield by_keyword
    yield Counts()
    yield Counts
    yield lambda obs: int(obs[0] > 0)
    yield Typed()
    yield Typed
    yield rlmesh.numpy.Model(plain)
    yield rlmesh.RANDOM_SAMPLE
    yield functools.partial(with_weights, np.ones(2, np.float32))


def envs(address: str) -> Iterator[types.EnvTarget]:
    """What is evaluated on."""
    yield OwnEnv()
    yield LegacyEnv()
    yield OwnEnvs()
    yield OwnEnvs
    yield address
    yield [OwnEnv(), OwnEnv()]
    yield [address, OwnEnv()]


def running(address: str) -> None:
    for policy in policies():
        assert_type(rlmesh.run(policy, OwnEnv(), seeds=range(2)), rlmesh.RunResult)
    for env in envs(address):
        rlmesh.run(rlmesh.RANDOM_SAMPLE, env, episodes=2, max_episode_steps=1)
    result = rlmesh.run(plain, OwnEnv(), seeds=(0, 1), hooks=[Watcher(), Watcher()])
    assert_type(result.success_rate, float | None)
    assert_type(result.success_interval, tuple[float, float] | None)
    assert_type(result.episodes[0].seed, int | None)
    assert_type(
        rlmesh.numpy.Model(plain).run(OwnEnv(), episodes=2, hooks=Watcher()), rlmesh.RunResult
    )
    rlmesh.run(lambda obs: int(obs[0] > 0), gym.make("CartPole-v1"), seeds=np.arange(2))
    rlmesh.run(plain, gym.make_vec("CartPole-v1", num_envs=2), episodes=2)


def handed_on() -> None:
    """Somebody's own function around a run."""

    def score(model: types.ModelTarget, env: types.EnvTarget, **options: Any) -> float | None:
        return rlmesh.run(model, env, **options).success_rate

    def by_hand(env: types.EnvLike[Floats, int], policy: Callable[[Floats], int]) -> float:
        with rlmesh.session(policy, env) as session:
            observation, _ = session.reset()
            return session.step(session.predict(observation))[1]

    assert_type(score(plain, OwnEnv(), seeds=[0]), float | None)
    assert_type(by_hand(OwnEnv(), plain), float)


def protocols() -> None:
    """gymnasium's and ours are what `rlmesh.types` says."""

    def takes(env: types.EnvLike, space: types.SpaceLike, value: types.Value) -> None: ...

    def takes_many(envs: types.VectorEnvLike) -> None: ...

    takes(gym.make("CartPole-v1"), rlmesh.spaces.Discrete(2), {"a": [1, (None, "b")]})
    takes(OwnEnv(), gym.spaces.Discrete(2), 1.5)
    takes_many(gym.make_vec("CartPole-v1", num_envs=2))


# Names that are loaded when they are first used


def names() -> None:
    import rlmesh as only

    assert_type(only.numpy.Model(plain), rlmesh.numpy.Model[Floats, int])
    assert_type(only.torch.as_tensor(1.0), Any)
    assert_type(only.describe(Typed), dict[str, Any])
    assert_type(only.describe_json(Typed), str)
    assert_type(only.adapters.presets.openpi_libero(), ModelSpec)
    assert_type(only.adapters.EnvTags.from_metadata({}), EnvTags | None)
    assert_type(only.params.ParamError("no"), rlmesh.params.ParamError)
    assert_type(only.spaces.Discrete(2).n, int)
    assert_type(only.specs.AutoresetMode("Disabled"), rlmesh.specs.AutoresetMode)
    assert_type(only.build_info().workflow_edition, str)
    assert_type(only.predict_seed(0, 0), int)
    assert_type(only.ServeOptions().token, str | None)
    check: Callable[..., rlmesh.checks.CheckReport] = only.checks.check_env
    bridge: Callable[..., rlmesh.bridges.BridgedModel] = only.bridges.openpi
    assert callable(check) and callable(bridge)
