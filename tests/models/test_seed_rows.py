"""model_reference.txt "Model quirks", "Match your model's shape", "Common pitfalls", and the model
sections of performance_and_scaling.txt: one test a row, as its user would write it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from model_kinds import ACTION, CHUNK, NumpyModel, bits, make, resolve
from support.zoo import Countdown

import rlmesh
from rlmesh.jax import Model as JaxModel
from rlmesh.models import ChunkQueue, EpisodeContexts, model_corners
from rlmesh.models.model import Model
from rlmesh.torch import Model as TorchModel

OBSERVATION = {"observation.state": np.arange(4, dtype=np.float32), "instruction": "pick"}


# "Match your model's shape"


def test_shape_a_one_file_baseline() -> None:
    assert model_corners(NumpyModel(lambda obs: obs * 2)).predict(np.ones(1)).tolist() == [2]


def test_shape_a_per_step_policy_with_weights() -> None:
    class Policy(NumpyModel):
        def load(self) -> None:
            self.weights = np.eye(4)[:2]

        def predict(self, observation: Any) -> Any:
            return self.weights @ observation["observation.state"]

    assert model_corners(Policy()).predict(OBSERVATION).tolist() == [0, 1]


def test_shape_a_batched_vla_with_an_action_head() -> None:
    class Policy(TorchModel):
        def predict_chunk_batch(self, observations: Any) -> Any:
            state = observations["observation.state"]
            assert observations["instruction"] == ["pick"] * len(state)
            return state[:, None, :2].repeat(1, 5, 1)

    corners = model_corners(Policy())
    plans = corners.predict_rows([OBSERVATION] * 2, None, 5)
    assert [len(plan) for plan in plans] == [5, 5]
    assert corners.predict(OBSERVATION).tolist() == [0, 1]


def test_shape_an_act_diffusion_or_flow_chunker() -> None:
    corners = resolve(predict_chunk=lambda self, o: CHUNK)
    assert bits(corners.plan(OBSERVATION, None, 4)) == bits(list(CHUNK[:4]))


def test_shape_a_checkpoint_whose_keys_differ_uses_an_obs_helper() -> None:
    class Policy(NumpyModel):
        def _obs(self, observations: Any) -> Any:
            return {"state": observations["observation.state"], "task": observations["instruction"]}

        def predict_batch(self, observations: Any) -> Any:
            batch = self._obs(observations)
            return np.array([len(task) for task in batch["task"]]) + batch["state"].sum(1)

    corners = model_corners(Policy())
    assert [plan[0] for plan in corners.predict_rows([OBSERVATION] * 2)] == [10, 10]


class Counting(NumpyModel):
    """Stateful across steps; the state is seeded by the first predict."""

    steps = 0

    def predict(self, observation: Any) -> Any:
        self.steps += 1
        return self.steps

    def reset(self) -> None:
        self.steps = 0


def test_shape_stateful_across_steps() -> None:
    corners = model_corners(Counting())
    first = [corners.predict(OBSERVATION) for _ in range(3)]
    corners.end_episode("e")
    assert (first, corners.predict(OBSERVATION)) == ([1, 2, 3], 1)


def test_shape_gpu_resident() -> None:
    class Policy(TorchModel):
        def load(self) -> None:
            self.device = "meta"  # a place without data, as "cuda" would be one with

        def predict(self, observation: Any) -> Any:
            assert observation["observation.state"].device.type == "meta"
            return torch.ones(2)

    assert model_corners(Policy()).predict(OBSERVATION).tolist() == [1, 1]


# "The four corners and the lifecycle are identical across native, numpy, torch, and jax"


@pytest.mark.parametrize("base", [Model, NumpyModel, TorchModel, JaxModel])
def test_row_the_lifecycle_is_the_same_in_every_framework(base: type[Model]) -> None:
    told: list[str] = []

    class Policy(base):  # type: ignore[misc, valid-type]
        def load(self) -> None:
            told.append("load")

        def predict(self, observation: Any) -> Any:
            told.append("predict")
            return 1

        def reset(self) -> None:
            told.append("reset")

        def close(self) -> None:
            told.append("close")

    rlmesh.run(Policy(), Countdown(2), seeds=[0, 1])
    assert told == ["load", *["predict", "predict", "reset"] * 2, "close"]


# "Model quirks"


@pytest.mark.parametrize(("base", "device"), [(TorchModel, "meta"), (JaxModel, "cpu:0")])
def test_quirk_compute_device_is_set_in_load(base: type[Model], device: str) -> None:
    seen: list[str] = []

    class Policy(base):  # type: ignore[misc, valid-type]
        def load(self) -> None:
            self.device = device

        def predict(self, observation: Any) -> Any:
            seen.append(str(observation["observation.state"].device))
            return np.ones(2)

    assert model_corners(Policy()).predict(OBSERVATION).tolist() == [1, 1]
    assert seen == ["meta" if base is TorchModel else str(jax.devices()[0])]


def test_quirk_stateful_policy_reset_fires_at_each_episode_boundary() -> None:
    corners = model_corners(Counting())
    for episode in "ab":
        assert [corners.predict(OBSERVATION) for _ in range(2)] == [1, 2]
        corners.end_episode(episode)


def test_quirk_policy_expects_different_keys() -> None:
    """The page's ``_obs``: in a batch corner the task is a list of N strings."""
    tasks: list[Any] = []

    class Policy(TorchModel):
        def _obs(self, observations: Any) -> Any:
            return {
                "image": observations["observation.images.image"],
                "wrist": observations["observation.images.wrist"],
                "state": observations["observation.state"],
                "task": observations["instruction"],
            }

        def predict_chunk_batch(self, observations: Any) -> Any:
            policy = self._obs(observations)
            tasks.append(policy["task"])
            bright = policy["image"].float().amax((1, 2, 3)) + policy["wrist"].amax((1, 2, 3))
            return (policy["state"][:, :2] + bright[:, None])[:, None].repeat(1, 4, 1)

    frame = np.ones((3, 2, 2), np.uint8)
    cameras = {"observation.images.image": frame, "observation.images.wrist": frame}
    corners = model_corners(Policy())
    plans = corners.predict_rows([{**cameras, **OBSERVATION}] * 2, None, 4)
    assert [[action.tolist() for action in plan] for plan in plans] == [[[2.0, 3.0]] * 4] * 2
    assert corners.predict({**cameras, **OBSERVATION}).tolist() == [2, 3]
    assert tasks == [["pick", "pick"], ["pick"]]


def test_quirk_normalization_stats_are_loaded_with_the_weights() -> None:
    class Policy(NumpyModel):
        def load(self, mean: float = 1.0) -> None:
            self.mean = mean

        def predict(self, observation: Any) -> Any:
            return observation["observation.state"] - self.mean

    assert model_corners(Policy()).predict(OBSERVATION).tolist() == [-1, 0, 1, 2]
    model = Policy.from_config(mean=2.0)
    assert model_corners(model).predict(OBSERVATION).tolist() == [-2, -1, 0, 1]


def test_quirk_native_chunk_longer_than_the_horizon() -> None:
    whole = resolve(predict_chunk=lambda self, o: CHUNK)
    cut = resolve(predict_chunk=lambda self, o, execution_horizon=1: CHUNK[:execution_horizon])
    plans = [corners.plan(OBSERVATION, None, 3) for corners in (whole, cut)]
    assert bits(plans[0]) == bits(plans[1]) == bits(list(CHUNK[:3]))


def test_quirk_instruction_text_is_a_str_and_a_list_in_batch_corners() -> None:
    seen: list[Any] = []
    note = {"predict": lambda self, o: seen.append(o["instruction"]) or ACTION}
    resolve(**note).predict(OBSERVATION)
    batch = {"predict_batch": lambda self, o: seen.append(o["instruction"]) or [ACTION] * 2}
    resolve(**batch).predict_rows([OBSERVATION] * 2)
    assert seen == ["pick", ["pick", "pick"]]


# "Common pitfalls"


def test_pitfall_type_error_on_construction_for_a_chunk_model() -> None:
    with pytest.raises(TypeError, match=r"could not derive predict\(\)"):
        make(Model, predict_chunk=lambda self, o: [1])
    assert make(Model, predict_chunk=lambda self, o: [1], predict=lambda self, o: 1)
    assert make(NumpyModel, predict_chunk=lambda self, o: [1])


def test_pitfall_execution_horizon_seems_ignored() -> None:
    with pytest.warns(UserWarning, match=r"defines no predict_chunk\(\)"):
        assert resolve(predict=lambda self, o: ACTION).check_horizon(3) == 1


def test_pitfall_batch_corner_gets_a_list_on_the_native_model() -> None:
    kinds: list[type] = []
    members = {"predict_batch": lambda self, o: kinds.append(type(o)) or [ACTION] * 2}
    for base in (Model, NumpyModel):
        resolve(base, **members).predict_rows([ACTION] * 2)
    assert kinds == [list, np.ndarray]


def test_pitfall_value_error_on_device() -> None:
    with pytest.raises(ValueError, match="requires a torch/jax model"):
        make(NumpyModel, predict=lambda self, o: ACTION, device="cuda")
    assert make(TorchModel, predict=lambda self, o: ACTION, device="cpu")


@pytest.mark.parametrize(("base", "zeros"), [(TorchModel, torch.zeros), (JaxModel, jnp.zeros)])
def test_pitfall_obs_not_on_the_gpu(base: type[Model], zeros: Any) -> None:
    """``self.device`` alone is followed; where the weights went is not."""
    seen: list[Any] = []

    class Policy(base):  # type: ignore[misc, valid-type]
        def load(self) -> None:
            self.place = "meta" if base is TorchModel else "cpu:0"

        def predict(self, observation: Any) -> Any:
            seen.append(observation["observation.state"])
            return zeros(2)

    model = Policy()
    corners = model_corners(model)
    corners.predict(OBSERVATION)
    model.device = model.place
    corners.predict(OBSERVATION)
    before, after = (str(leaf.device) for leaf in seen)
    if base is TorchModel:
        assert (before, after) == ("cpu", "meta")
    else:  # one device: free to follow the weights before, committed to it after
        assert [leaf.committed for leaf in seen] == [False, True]


def test_pitfall_stateful_policy_leaks_across_episodes_without_reset() -> None:
    kind = type("Leaky", (Counting,), {"reset": Model.reset})
    corners = model_corners(kind())
    corners.predict(OBSERVATION)
    corners.end_episode("e")
    assert corners.predict(OBSERVATION) == 2
    # Per-episode state in the context needs no reset at all.
    contexts = EpisodeContexts()

    def predict(self: Any, observation: Any, context: Any) -> Any:
        context["state"]["n"] = context["state"].get("n", 0) + 1
        return context["state"]["n"]

    keyed = resolve(predict=predict)
    assert [keyed.predict(OBSERVATION, contexts.next(e, 0)) for e in "aab"] == [1, 2, 1]


# performance_and_scaling.txt


def test_perf_batch_the_forward_pass() -> None:
    """The page's Policy: predict is the forward of a batch of one, predict_batch of all lanes."""
    forwards: list[int] = []

    class Policy(TorchModel):
        def predict(self, obs: Any) -> Any:
            return self._forward(obs[None])[0]

        def predict_batch(self, obs: Any) -> Any:
            return self._forward(obs)

        def _forward(self, obs: Any) -> Any:
            forwards.append(len(obs))
            return obs * 2

    corners = model_corners(Policy())
    rows = [np.full(2, i, np.float32) for i in range(4)]
    batched = corners.predict_rows(rows)
    assert bits(batched) == bits([[corners.predict(row)] for row in rows])
    assert forwards == [4, 1, 1, 1, 1]


def test_perf_predict_chunk_batch_is_split_per_lane_and_each_chunk_replayed() -> None:
    corners = resolve(predict_chunk_batch=lambda self, o: np.stack([o + k for k in range(3)], 1))
    queues = [ChunkQueue(), ChunkQueue()]
    rows = [np.array([0.0]), np.array([10.0])]
    plans = corners.predict_rows(rows, None, 3)
    started = [queue.start(plan) for queue, plan in zip(queues, plans, strict=True)]
    assert bits(started) == bits(rows)
    assert [queues[1].take()[0], queues[1].take()[0], len(queues[0])] == [11, 12, 2]


@pytest.mark.parametrize("horizon", [1, 4, 8])
def test_perf_the_horizon_divides_the_model_calls(horizon: int) -> None:
    calls: list[int] = []
    corners = resolve(predict_chunk=lambda self, o: calls.append(1) or np.zeros((8, 2)))
    queue = ChunkQueue()
    for _ in range(16):
        if queue:
            queue.take()
        else:
            queue.start(corners.plan(ACTION, None, horizon))
    assert len(calls) == 16 // horizon


def test_perf_device_is_the_one_source_of_truth() -> None:
    """The page's Policy: a class attribute that load reads."""

    class Policy(TorchModel):
        device = "cpu"

        def load(self) -> None:
            self.weights = torch.ones(2).to(self.device)

        def predict(self, obs: Any) -> Any:
            return obs * self.weights

    assert model_corners(Policy()).predict(np.ones(2, np.float32)).tolist() == [1, 1]
