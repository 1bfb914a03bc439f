"""rlmesh bound to PyTorch: array leaves are writable ``torch.Tensor`` of their own."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from rlmesh._typevars import ActT, ActT_co, ObsT, ObsT_contra
from rlmesh.envs.factory import EnvFactory as _EnvFactory
from rlmesh.envs.remote import RemoteEnv as _RemoteEnv
from rlmesh.envs.remote import RemoteVectorEnv as _RemoteVectorEnv
from rlmesh.evals.model import Model as _Model
from rlmesh.evals.model import RemoteModel as _RemoteModel
from rlmesh.spaces import Space
from rlmesh.spaces import space_from_spec as _space_from_spec
from rlmesh.spaces.dtypes import DTYPES
from rlmesh.values import Framework, Tensor
from rlmesh.values.frameworks import to_host

__all__ = [
    "TORCH",
    "EnvFactory",
    "Model",
    "RemoteEnv",
    "RemoteModel",
    "RemoteVectorEnv",
    "TorchValue",
    "as_tensor",
    "ensure_available",
    "from_tensor",
    "space_from_spec",
]

TorchValue: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | object
    | list["TorchValue"]
    | tuple["TorchValue", ...]
    | dict[str, "TorchValue"]
    | None
)
"""A value tree whose array leaves are ``torch.Tensor``."""


@cache
def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as exc:
        raise ImportError(
            "rlmesh.torch requires torch. Install rlmesh[torch]: pip install 'rlmesh[torch]'"
        ) from exc


class _Torch:
    """See :class:`~rlmesh.values.Framework`. The library is loaded when it is first needed."""

    name = "torch"
    fuses = True
    has_device = True
    immutable = False

    @property
    def array_type(self) -> type:
        return _torch().Tensor

    def ensure_available(self) -> None:
        _torch()

    def from_host(self, array: np.ndarray[Any, Any], /, device: Any = None) -> Any:
        try:
            tensor = _torch().from_numpy(array)
        except TypeError:
            raise ValueError(
                f"torch {_torch().__version__} takes no {array.dtype.name} from NumPy; uint16, "
                "uint32 and uint64 need torch 2.3 or newer"
            ) from None
        return tensor if device is None else tensor.to(device)

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        return to_host(leaf)

    def to_host_many(self, leaves: Sequence[Any], /) -> list[np.ndarray[Any, Any]]:
        strided = _torch().strided
        afar: dict[Any, list[int]] = {}
        for index, leaf in enumerate(leaves):
            plain = leaf.layout is strided and _dtype_name(leaf) in DTYPES
            if plain and leaf.device.type != "cpu":
                afar.setdefault(leaf.device, []).append(index)
        hosted: dict[int, np.ndarray[Any, Any]] = {}
        for indices in afar.values():
            if len(indices) > 1:
                # The widest first: each then begins where a number of its dtype may.
                indices.sort(key=lambda index: -leaves[index].element_size())
                hosted.update(
                    zip(indices, self._transfer([leaves[i] for i in indices]), strict=True)
                )
        return [
            to_host(leaf) if index not in hosted else hosted[index]
            for index, leaf in enumerate(leaves)
        ]

    def _transfer(self, leaves: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        """Return leaves of one device in host memory: joined there as bytes, brought over once."""
        torch = _torch()
        parts = [leaf.detach().resolve_neg().reshape(-1).view(torch.uint8) for leaf in leaves]
        joined = to_host(torch.cat(parts))
        arrays: list[np.ndarray[Any, Any]] = []
        start = 0
        for leaf, part in zip(leaves, parts, strict=True):
            dtype = DTYPES[_dtype_name(leaf)]
            arrays.append(np.ndarray(tuple(leaf.shape), dtype, joined, start))
            start += len(part)
        return arrays

    def is_array(self, leaf: Any, /) -> bool:
        return isinstance(leaf, self.array_type)

    def stack(self, leaves: Sequence[Any], /) -> Any:
        return leaves[0][None] if len(leaves) == 1 else _torch().stack(list(leaves))

    def unstack(self, leaf: Any, /) -> list[Any]:
        return list(leaf.unbind(0))

    def to_device(self, leaf: Any, device: Any, /) -> Any:
        return leaf.to(device)


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


TORCH: Framework = _Torch()
"""Leaves are writable ``torch.Tensor``, over the memory that a message was received into."""


class EnvFactory(_EnvFactory):
    __doc__ = _EnvFactory.__doc__
    _framework = TORCH


class Model(_Model[ObsT_contra, ActT_co]):
    __doc__ = _Model.__doc__
    _framework = TORCH


class RemoteEnv(_RemoteEnv[ObsT, ActT]):
    __doc__ = _RemoteEnv.__doc__
    _framework = TORCH


class RemoteModel(_RemoteModel):
    __doc__ = _RemoteModel.__doc__
    _framework = TORCH


class RemoteVectorEnv(_RemoteVectorEnv[ObsT, ActT]):
    __doc__ = _RemoteVectorEnv.__doc__
    _framework = TORCH


def ensure_available() -> None:
    """Raise ImportError, with the line that installs it, if PyTorch is missing."""
    TORCH.ensure_available()


def space_from_spec(spec: Space) -> Space:
    """Return ``spec`` as a space whose samples hold torch tensors; Discrete ones are int."""
    return _space_from_spec(spec, bridge=TORCH)


def as_tensor(value: Any, *, copy: bool = False) -> Any:
    """Return a :class:`~rlmesh.Tensor`, an array or a number as a ``torch.Tensor``.

    Args:
        value: what to read; Python numbers become 0-d tensors of torch's default dtypes.
        copy: False shares the memory where torch can (through DLPack; bool needs torch 2.2 for it)
            and must then be treated as read-only. True gives a writable tensor of its own.

    Raises:
        TypeError: ``value`` is no array or number.
        ValueError: torch has no such dtype; uint16, uint32 and uint64 need torch 2.3.
    """
    torch = _torch()
    if isinstance(value, torch.Tensor):
        return value.clone() if copy else value
    if isinstance(value, (bool, int, float)):
        return torch.tensor(value)
    array = to_host(value)
    if array.dtype.name not in DTYPES:
        raise TypeError(f"as_tensor expects a Tensor, an array or a number, got {value!r:.80}")
    if not copy:
        try:
            return torch.from_dlpack(Tensor.adopt(array))
        except (BufferError, RuntimeError):  # a dtype that this torch reads in no capsule
            pass
    return TORCH.from_host(np.array(array, array.dtype.newbyteorder("="), order="C"))


def from_tensor(tensor: Any) -> Any:
    """Return ``tensor`` as rlmesh carries it: a :class:`~rlmesh.Tensor`, or a number if 0-d.

    It is taken off its graph and its device, and copied.

    Raises:
        TypeError: ``tensor`` is no ``torch.Tensor``.
        ValueError: its dtype is none of the wire, such as bfloat16.
    """
    if not isinstance(tensor, _torch().Tensor):
        raise TypeError(f"from_tensor expects a torch.Tensor, got {type(tensor).__name__}")
    array = to_host(tensor)
    carried = Tensor(array, array.shape, array.dtype)
    return array.item() if array.ndim == 0 else carried
