"""An env that speaks torch is checked in torch, where what makes it says so."""

from __future__ import annotations

from typing import Any

import torch
from check_envs import Good

import rlmesh
from rlmesh.checks import check_env
from rlmesh.spaces import Box


class TorchWalk(Good):
    """Takes tensors and nothing else; gives tensors."""

    action_space = Box(-1.0, 1.0, (2,))

    def observation(self) -> Any:
        return torch.as_tensor(super().observation())

    def reward(self) -> Any:
        return torch.tensor(self.place)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action.sum().item() > 0)
        assert isinstance(action, torch.Tensor)
        return observation, reward, torch.tensor(terminated), torch.tensor(truncated), info


class TorchWalks(rlmesh.torch.EnvFactory):
    def make(self) -> Any:
        return TorchWalk()


def test_a_torch_factory() -> None:
    report = check_env(TorchWalks(), steps=30)
    assert {f.check for f in report.of("ok")} >= {"steps", "seeds", "instances", "wire", "rewards"}
    assert not report.of("fail") and not report.of("warn"), str(report)


def test_numpy_actions_for_a_torch_env_are_seen() -> None:
    report = check_env(TorchWalk(), steps=30)
    (failed,) = report.of("fail")
    assert failed.check == "steps" and "step 1 raised AssertionError" in failed.message
