"""rlmesh bound to NumPy: array leaves are writable ``numpy.ndarray``."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

import numpy as np

from rlmesh._typevars import ActT, ActT_co, ObsT, ObsT_contra
from rlmesh.envs.factory import EnvFactory as _EnvFactory
from rlmesh.envs.remote import RemoteEnv as _RemoteEnv
from rlmesh.envs.remote import RemoteVectorEnv as _RemoteVectorEnv
from rlmesh.evals.model import Model as _Model
from rlmesh.evals.model import RemoteModel as _RemoteModel
from rlmesh.spaces import Space
from rlmesh.values import NUMPY
from rlmesh.values.frameworks import to_host

__all__ = [
    "EnvFactory",
    "Model",
    "NumpyValue",
    "RemoteEnv",
    "RemoteModel",
    "RemoteVectorEnv",
    "asarray",
    "ensure_available",
    "from_array",
    "space_from_spec",
]


NumpyValue: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | np.ndarray[Any, Any]
    | list["NumpyValue"]
    | tuple["NumpyValue", ...]
    | dict[str, "NumpyValue"]
    | None
)
"""A value tree whose array leaves are ``numpy.ndarray``."""


class EnvFactory(_EnvFactory):
    __doc__ = _EnvFactory.__doc__
    _framework = NUMPY


class Model(_Model[ObsT_contra, ActT_co]):
    __doc__ = _Model.__doc__
    _framework = NUMPY


class RemoteEnv(_RemoteEnv[ObsT, ActT]):
    __doc__ = _RemoteEnv.__doc__
    _framework = NUMPY


class RemoteModel(_RemoteModel):
    __doc__ = _RemoteModel.__doc__
    _framework = NUMPY


class RemoteVectorEnv(_RemoteVectorEnv[ObsT, ActT]):
    __doc__ = _RemoteVectorEnv.__doc__
    _framework = NUMPY


def ensure_available() -> None:
    """Raise ImportError if NumPy is missing; it never is, as rlmesh depends on it."""


def space_from_spec(spec: Space) -> Space:
    """Return ``spec`` as a space whose samples are NumPy arrays."""
    return spec.bound_to(NUMPY)


def asarray(value: Any) -> np.ndarray[Any, Any]:
    """Return a Tensor, array or number as a writable array of its own; numbers become 0-d."""
    return np.array(to_host(value))


def from_array(array: Any) -> Any:
    """Return ``array`` as rlmesh carries it: a :class:`~rlmesh.Tensor`, or a number if 0-d.

    Raises:
        TypeError: ``array`` is no NumPy array or scalar.
    """
    from rlmesh.values.tensor import Tensor

    if isinstance(array, np.generic):
        return cast("Any", array).item()
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_array expects a numpy.ndarray, got {type(array).__name__}")
    data = cast("np.ndarray[Any, Any]", array)
    return data.item() if data.ndim == 0 else Tensor(data, data.shape, data.dtype)
