"""A chunking policy in PyTorch: one forward pass gives the next eight actions of every lane."""

from __future__ import annotations

import torch

import rlmesh
from rlmesh import adapters as adapt
from rlmesh.torch import Model

CHUNK = 8
WIDTH = 10
"""Of the state that `Cloned.spec` asks for: hand 3, gripper 1, object 3, goal 3."""


class Cloned(Model):
    """What `train.py` cloned from Meta-World's expert, read from its checkpoint."""

    spec = adapt.ModelSpec(
        adapt.Concat(
            adapt.State(adapt.EEF_POS),
            adapt.State(adapt.GRIPPER_POS),
            adapt.State("x/object_pos"),
            adapt.State("x/goal_pos"),
        ),
        adapt.Action(
            adapt.Actuator(adapt.ACTION_DELTA_POS, 3, range=(-1.0, 1.0)),
            adapt.Actuator(adapt.ACTION_GRIPPER, 1, range=(-1.0, 1.0)),
        ),
    )
    params = rlmesh.ParamSpec(
        rlmesh.Param("checkpoint", str, description="the file that train.py wrote"),
        rlmesh.Param("device", str, description="where to predict: cpu, cuda, cuda:1, ..."),
    )
    native_chunk = CHUNK

    def load(self, checkpoint: str = "cloned.pt", device: str = "cpu") -> None:
        saved = torch.load(checkpoint, map_location=device, weights_only=True)
        self.net = network().to(device)
        self.net.load_state_dict(saved["net"])
        self.mean, self.scale = saved["mean"], saved["scale"]
        self.device = device  # observations are put there before every predict

    @torch.inference_mode()
    def predict_chunk_batch(self, states: torch.Tensor) -> torch.Tensor:  # float32 [N, 10]
        chunks = self.net((states - self.mean) / self.scale)
        return chunks.view(len(states), CHUNK, 4).clamp(-1.0, 1.0)  # [N, 8, 4]


def network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 4 * CHUNK),
    )
