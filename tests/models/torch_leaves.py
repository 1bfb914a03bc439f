"""A Framework over torch tensors, for the seam's tests; rlmesh.torch brings its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlmesh.models.model import Model
from rlmesh.values.frameworks import to_host


class TorchLeaves:
    name = "torch"
    array_type = torch.Tensor
    fuses = True
    has_device = True

    def from_host(self, array: np.ndarray[Any, Any], /) -> Any:
        return torch.from_numpy(array)

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        return to_host(leaf)

    def is_array(self, leaf: Any, /) -> bool:
        return isinstance(leaf, torch.Tensor)

    def stack(self, leaves: Sequence[Any], /) -> Any:
        return torch.stack(list(leaves))

    def unstack(self, leaf: Any, /) -> list[Any]:
        return list(leaf.unbind(0))

    def to_device(self, leaf: Any, device: Any, /) -> Any:
        return leaf.to(device)


class TorchModel(Model):
    _framework = TorchLeaves()
