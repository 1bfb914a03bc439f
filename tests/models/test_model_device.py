"""model_reference.txt, "Device and framework handling", through rlmesh.torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from model_kinds import ACTION, NumpyModel, bits, make, resolve

import rlmesh
from rlmesh.jax import Model as JaxModel
from rlmesh.models import model_corners
from rlmesh.models.model import Model
from rlmesh.torch import Model as TorchModel
from rlmesh.values import NATIVE, NUMPY

# torch's "meta" device holds no data but a place: enough to see where a leaf was put.
OBSERVATION = {"s": np.arange(3, dtype=np.float32), "t": "go", "n": 2}


def where(seen: list[Any]) -> Any:
    def predict(self: Any, observation: Any) -> Any:
        seen.append({key: str(getattr(leaf, "device", leaf)) for key, leaf in observation.items()})
        return torch.ones(2)

    return predict


def test_row_obs_placement_moves_tensor_leaves_and_no_others() -> None:
    seen: list[Any] = []
    corners = resolve(TorchModel, predict=where(seen), device="meta")
    assert bits(corners.predict(OBSERVATION)) == bits(np.ones(2, np.float32))
    assert seen == [{"s": "meta", "t": "go", "n": "2"}]


def test_row_obs_placement_of_a_fused_observation() -> None:
    seen: list[Any] = []

    def predict_batch(self: Any, observations: Any) -> Any:
        seen.append((observations["s"].device.type, observations["s"].shape, observations["t"]))
        return torch.ones(len(observations["t"]), 2)

    corners = resolve(TorchModel, predict_batch=predict_batch, device="meta")
    corners.predict_rows([OBSERVATION] * 3)
    corners.predict(OBSERVATION)
    assert seen == [("meta", (3, 3), ["go"] * 3), ("meta", (1, 3), ["go"])]


def test_row_read_time_a_device_set_in_load_or_later_is_honoured() -> None:
    seen: list[Any] = []

    def load(self: Any) -> None:
        self.device = "meta"

    model = make(TorchModel, predict=where(seen), load=load)
    corners = model_corners(model)
    corners.predict(OBSERVATION)
    model.device = "cpu"
    corners.predict(OBSERVATION)
    assert [place["s"] for place in seen] == ["meta", "cpu"]


def test_row_default_none_leaves_observations_as_decoded() -> None:
    seen: list[Any] = []
    tensor = torch.zeros(3)

    def predict(self: Any, observation: Any) -> Any:
        seen.append(observation)
        return observation["s"]

    resolve(TorchModel, predict=predict).predict({"s": tensor})
    assert seen[0]["s"] is tensor


@pytest.mark.parametrize("base", [Model, NumpyModel])
def test_row_wrong_backend_a_device_raises(base: type[Model]) -> None:
    def load(self: Any) -> None:
        self.device = "cuda"

    members: dict[str, Any] = {"predict": lambda self, o: o}
    with pytest.raises(ValueError, match=r"device='cuda' requires a torch/jax model"):
        make(base, **members, device="cuda")
    with pytest.raises(ValueError, match=r"device='cuda' requires a torch/jax model"):
        make(base, **members, load=load)
    model = make(base, **members)
    model.device = "cuda"
    with pytest.raises(ValueError, match=r"device='cuda' requires a torch/jax model"):
        model_corners(model)


@pytest.mark.parametrize("base", [TorchModel, JaxModel])
@pytest.mark.parametrize("device", ["moon", "", object()])
def test_a_device_that_is_not_there_is_found_before_anything_is_connected(
    base: type[Model], device: Any
) -> None:
    model = make(base, predict=lambda self, o: ACTION, device=device)
    name = "torch" if base is TorchModel else "jax"
    with pytest.raises(ValueError, match=rf"device=.*: {name} cannot put observations there"):
        model_corners(model)
    with pytest.raises(ValueError, match="cannot put observations there"):
        rlmesh.run(model, "127.0.0.1:1", seeds=[0])


@pytest.mark.parametrize("framework", [NUMPY, NATIVE])
def test_frameworks_on_the_host_have_no_device(framework: Any) -> None:
    with pytest.raises(ValueError, match="no device"):
        framework.to_device(np.zeros(1), "cuda")


def test_fusion_and_splitting_work_on_any_framework_behind_the_seam() -> None:
    def predict_chunk_batch(self: Any, observations: Any) -> Any:
        assert isinstance(observations["s"], torch.Tensor)
        assert isinstance(observations["n"], torch.Tensor)
        return torch.stack([observations["s"] + k for k in range(4)], dim=1)

    corners = resolve(TorchModel, predict_chunk_batch=predict_chunk_batch)
    rows: list[Any] = [{"s": np.full(2, i, np.float32), "t": "go", "n": i} for i in range(3)]
    rows[1]["s"] = torch.from_numpy(rows[1]["s"])  # an env that is torch already
    expected = [[row["s"] + np.float32(k) for k in range(4)] for row in rows]
    expected[1] = [np.asarray(action) for action in expected[1]]
    assert bits(corners.predict_rows(rows, None, 4)) == bits(expected)
    assert [bits(corners.plan(row, None, 2)) for row in rows] == [bits(e[:2]) for e in expected]
    assert [bits(corners.predict(row)) for row in rows] == [bits(e[0]) for e in expected]


def test_an_action_leaves_the_model_as_numpy_without_its_graph() -> None:
    weight = torch.ones(2, requires_grad=True)
    action = resolve(TorchModel, predict=lambda self, o: {"a": o["s"] * weight}).predict(
        {"s": np.ones(2, np.float32)}
    )
    assert bits(action) == bits({"a": np.ones(2, np.float32)})


def test_a_module_is_a_predict_callable() -> None:
    layer = torch.nn.Linear(3, 2)
    action = model_corners(TorchModel(layer)).predict(OBSERVATION["s"])
    assert action.shape == (2,)


def test_read_only_arrays_are_copied_on_the_way_in() -> None:
    array = np.ones(3, np.float32)
    array.setflags(write=False)
    seen: list[Any] = []
    resolve(TorchModel, predict=lambda self, o: seen.append(o) or o.mul_(2)).predict(array)
    assert array.tolist() == [1, 1, 1]
    assert seen[0].tolist() == [2, 2, 2]
