"""performance_and_scaling.txt and model_reference.txt, where they speak of running: one test a row,
as its user would write it. Accounting, sessions and failures have files of their own."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from eval_envs import Walk, feedback, open_loop
from support import serving
from traces import numbers
from view_envs import Rig

import rlmesh
from rlmesh import adapters as adapt
from rlmesh.numpy import Model


def cartpoles(count: int) -> Any:
    return gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * count)


class Counting(Model):
    """CartPole's pole kept up a while; ``forwards`` has the rows of each forward pass."""

    def load(self) -> None:
        self.forwards: list[int] = []

    def _forward(self, obs: Any) -> Any:
        self.forwards.append(len(obs))
        return (obs[:, 2] > 0).astype(int)


class OneLane(Counting):
    def predict(self, observation: Any) -> Any:
        return self._forward(observation[None])[0]


class Batched(OneLane):
    def predict_batch(self, observations: Any) -> Any:
        return self._forward(observations)


def test_batch_the_forward_pass_one_call_for_the_whole_vector() -> None:
    """ "instead fuses the N per-lane observations into one batched observation"."""
    model = Batched()
    result = model.run(cartpoles(4), seeds=range(4))
    longest = max(episode.steps for episode in result.episodes)
    assert len(model.forwards) == longest
    assert model.forwards[0] == 4 and sum(model.forwards) == result.total_steps


def test_batch_the_forward_pass_falls_back_to_one_lane_at_a_time() -> None:
    """ "falls back to per-lane predict when it is absent", with the same numbers."""
    alone, batched = OneLane(), Batched()
    assert numbers(alone.run(cartpoles(4), seeds=range(6))) == numbers(
        batched.run(cartpoles(4), seeds=range(6))
    )
    assert set(alone.forwards) == {1}


def test_batch_the_forward_pass_spans_endpoints() -> None:
    """Issue 3: many endpoints, batched through the widest corner the model has."""
    model = Batched()
    with serving(gymnasium.make("CartPole-v1")) as a, serving(gymnasium.make("CartPole-v1")) as b:
        result = model.run([a.address, b.address], seeds=range(6), batch_wait_ms=60_000)
    assert max(model.forwards) == 2
    assert numbers(result) == numbers(OneLane().run(gymnasium.make("CartPole-v1"), seeds=range(6)))


def test_without_fusion_lanes_of_different_envs_are_predicted_apart() -> None:
    """MOD-13: rows of one env may still share a forward pass."""

    class Apart(Batched):
        allow_fusion = False

    model = Apart()
    envs = [gymnasium.make("CartPole-v1"), cartpoles(2)]
    result = model.run(envs, seeds=range(3))
    assert set(model.forwards) <= {1, 2} and result.num_episodes == 3
    assert numbers(result) == numbers(Batched().run(gymnasium.make("CartPole-v1"), seeds=range(3)))


@pytest.mark.parametrize("horizon", [1, 2, 8])
def test_fewer_model_calls_per_episode(horizon: int) -> None:
    """ "cuts the number of model forwards per episode by the horizon"."""
    calls: list[int] = []

    class Chunks(Model):
        def predict_chunk(self, observation: Any, execution_horizon: int = 1) -> Any:
            calls.append(execution_horizon)
            chunk = np.stack([open_loop(observation, k) for k in range(8)])
            return chunk[:execution_horizon]

    result = Chunks().run(Walk(), seeds=range(8), execution_horizon=horizon)
    assert len(calls) == sum(-(-episode.steps // horizon) for episode in result.episodes)
    assert set(calls) == {horizon}, "filled with how many actions will be executed"


def test_a_horizon_of_one_is_a_passthrough_that_never_queues() -> None:
    """ "Replay semantics": predict is asked at every step, chunk corner or not."""
    calls: list[str] = []

    class Both(Model):
        def predict(self, observation: Any) -> Any:
            calls.append("predict")
            return open_loop(observation)

        def predict_chunk(self, observation: Any) -> Any:
            calls.append("predict_chunk")
            return np.stack([open_loop(observation, k) for k in range(4)])

    result = Both().run(Walk(), seeds=range(3))
    assert calls == ["predict"] * result.total_steps
    calls.clear()
    Both().run(Walk(), seeds=range(3), execution_horizon=2)
    assert set(calls) == {"predict_chunk"}


def test_the_horizon_caps_a_longer_chunk() -> None:
    """ "a receding-horizon model may emit a longer chunk than it re-plans"."""
    clocks: list[int] = []

    class Long(Model):
        def predict_chunk(self, observation: Any) -> Any:
            clocks.append(int(observation["clock"][0]))
            return np.stack([open_loop(observation, k) for k in range(16)])

    Long().run(Walk((7,)), seeds=[1], execution_horizon=3)
    assert clocks == [0, 3, 6]


def test_vector_endpoints_with_a_batched_corner_are_the_fast_combination() -> None:
    """ "N lanes step together and one model forward covers them"."""
    model = Batched()
    with serving(cartpoles(4)) as server:
        result = model.run(server.address, seeds=range(4))
    assert len(model.forwards) == max(episode.steps for episode in result.episodes)


def test_a_stateful_policy_is_reset_at_each_boundary_local_and_served() -> None:
    """ "Model quirks": implement reset(); "Common pitfalls": never cleared, it leaks."""

    class Stateful(Model):
        steps = 0

        def predict(self, observation: Any) -> Any:
            assert observation["clock"][0] == self.steps
            self.steps += 1
            return feedback(observation)

        def reset(self) -> None:
            self.steps = 0

    Stateful().run(Walk(), seeds=range(5))
    with serving(Walk()) as server:
        Stateful().run(server.address, seeds=range(5))


def test_lifecycle_load_once_reset_at_boundaries_close_at_the_end() -> None:
    """ "Construction and lifecycle", its table."""
    told: list[str] = []

    class Policy(Model):
        def load(self, **binding: Any) -> None:
            told.append("load")

        def predict(self, observation: Any) -> Any:
            return feedback(observation)

        def reset(self) -> None:
            told.append("reset")

        def close(self) -> None:
            told.append("close")

    model = Policy()
    model.run(Walk(), seeds=range(3))
    assert told == ["load", "reset", "reset", "reset", "close"]
    model.run(Walk(), seeds=[0])
    assert told[5:] == ["reset", "close"], "a run borrows the model; it can run again"


def test_constructor_callbacks_override_reset_and_close() -> None:
    told: list[str] = []
    model = Model(
        feedback,
        on_episode_end=lambda episode_id: told.append("end"),
        on_close=lambda: told.append("closed"),
    )
    model.run(Walk(), seeds=range(2))
    assert told == ["end", "end", "closed"]


def test_a_baseline_that_ignores_observations() -> None:
    """ "pass rlmesh.RANDOM_SAMPLE as the model"."""
    baseline = rlmesh.run(rlmesh.RANDOM_SAMPLE, gymnasium.make("CartPole-v1"), max_episodes=10)
    assert baseline.num_episodes == 10 and baseline.total_steps >= 80


def test_row_random_sample_resolves_no_adapter_even_on_a_tagged_env() -> None:
    result = rlmesh.run(rlmesh.RANDOM_SAMPLE, Rig(), seeds=range(3))
    assert result.num_episodes == 3 and result.advisories == ()


def test_row_spec_no_adapter_skips_resolution_and_predict_gets_the_raw_observation() -> None:
    keys: list[Any] = []

    def policy(observation: Any) -> Any:
        keys.append(sorted(observation))
        return np.zeros(2, np.float32)

    Model(policy, spec=rlmesh.NO_ADAPTER).run(Rig(), seeds=[1])
    assert keys == [["arm", "depth", "front", "side", "task", "wrist"]]
    with pytest.raises(adapt.AdapterResolutionError, match="spec=None"):
        Model(policy).run(Rig(), seeds=[1])


@pytest.mark.parametrize("where", ["model", "call"])
def test_row_trust_entrypoints_lets_a_spec_name_code(where: str) -> None:
    class Policy(Model):
        spec = adapt.ModelSpec(
            {"all": adapt.Custom(entrypoint="builtins:len")},
            adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2)),
        )

        def predict(self, observation: Any) -> Any:
            assert observation == {"all": 6}
            return np.zeros(2, np.float32)

    with pytest.raises(adapt.AdapterResolutionError, match="trust_entrypoints=True"):
        Policy().run(Rig(), seeds=[1])
    if where == "model":
        Policy(trust_entrypoints=True).run(Rig(), seeds=[1])
    else:
        Policy().run(Rig(), seeds=[1], trust_entrypoints=True)


def test_quirk_policy_expects_different_keys_behind_an_adapter() -> None:
    """The SmolVLA pattern: the adapter delivers the spec's keys, ``_obs`` the policy's."""
    tasks: list[Any] = []

    class Policy(Model):
        spec = adapt.ModelSpec(
            {
                "observation.images.image": adapt.Image(adapt.IMAGE_PRIMARY, size=8, fit="pad"),
                "observation.state": adapt.State(adapt.JOINT_POS, dim=2),
                "instruction": adapt.Text(adapt.INSTRUCTION),
            },
            adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 2)),
        )

        def _obs(self, observations: Any) -> Any:
            return {
                "image": observations["observation.images.image"],
                "state": observations["observation.state"],
                "task": observations["instruction"],  # a list of N strings in a batch corner
            }

        def predict_batch(self, observations: Any) -> Any:
            policy = self._obs(observations)
            assert policy["image"].shape[1:] == (8, 8, 3)
            tasks.append(policy["task"])
            return policy["state"] / 2

    local = Policy().run([Rig(), Rig()], seeds=[0, 1])
    assert tasks[0] == ["reach for 0", "reach for 1"]
    with serving([Rig(), Rig()]) as server:
        assert numbers(Policy().run(server.address, seeds=[0, 1])) == numbers(local)


def test_to_recover_a_long_run_start_where_it_was_left() -> None:
    """ "Disconnect and reconnect", by hand: the finished episodes are on the exception."""
    expected = numbers(rlmesh.run(feedback, Walk(), seeds=range(6)))

    class Broken(Walk):
        def step(self, action: Any) -> Any:
            if self.resets[-1] == 3:
                raise OSError("the simulator is gone")
            return super().step(action)

    with serving(Broken()) as server, pytest.raises(rlmesh.EnvironmentException) as caught:
        rlmesh.run(feedback, server.address, seeds=range(6))
    done = rlmesh.partial_result(caught.value)
    assert done is not None
    rest = rlmesh.run(feedback, Walk(), seeds=range(done.num_episodes, 6))
    both = [row[1:] for row in numbers(done) + numbers(rest)]
    assert both == [row[1:] for row in expected]


def test_streaming_by_hand_logs_an_episode_before_the_next() -> None:
    """ "Session lifecycle": the page's own loop."""
    log = []
    with Model(feedback).session(Walk()) as sess:
        for seed in range(5):
            obs, _ = sess.reset(seed=seed)
            total, steps = 0.0, 0
            while not sess.done:
                obs, reward, terminated, _, _ = sess.step(sess.predict(obs))
                total += reward
                steps += 1
            log.append((seed, steps, total, terminated))
    result = rlmesh.run(feedback, Walk(), seeds=range(5))
    assert log == [(e.seed, e.steps, e.reward, e.terminated) for e in result.episodes]
