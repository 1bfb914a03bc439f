"""rlmesh bound to JAX: array leaves are immutable ``jax.Array``.

Values are kept exactly. Without ``jax_enable_x64``, JAX computes in 32 bits: 64-bit integers then
come as int32 or uint32, and are refused where one does not fit; 64-bit floats stay float64, and JAX
warns when it rounds them in a computation.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
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
    "JAX",
    "EnvFactory",
    "JaxValue",
    "Model",
    "RemoteEnv",
    "RemoteModel",
    "RemoteVectorEnv",
    "asarray",
    "ensure_available",
    "from_array",
    "space_from_spec",
]

JaxValue: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | object
    | list["JaxValue"]
    | tuple["JaxValue", ...]
    | dict[str, "JaxValue"]
    | None
)
"""A value tree whose array leaves are ``jax.Array``."""

_FLOOR = (0, 4, 24)


@cache
def _jax() -> Any:
    try:
        jax = importlib.import_module("jax")
    except ImportError as exc:
        raise ImportError(
            "rlmesh.jax requires jax. Install rlmesh[jax]: pip install 'rlmesh[jax]'"
        ) from exc
    found = tuple(int(part) for part in jax.__version__.split(".")[:3] if part.isdecimal())
    if found < _FLOOR:
        raise ImportError(
            f"rlmesh.jax requires jax>={'.'.join(map(str, _FLOOR))}, found {jax.__version__}: "
            "pip install --upgrade 'rlmesh[jax]'"
        )
    return jax


@cache
def _wide() -> Any:
    """Return what makes a context in which JAX has 64-bit values."""
    enable: Any = getattr(_jax(), "enable_x64", None)
    return importlib.import_module("jax.experimental").enable_x64 if enable is None else enable


@cache
def _concrete() -> type:
    # The class of arrays that hold values is private and has moved; `jax.Array` is its base.
    array: object = _jax().device_put(np.zeros(0, np.uint8))
    return type(array)


@cache
def _device(name: str) -> Any:
    """Return the device that is called ``platform`` or ``platform:index``."""
    platform, colon, index = name.partition(":")
    try:
        if not platform or (colon and not index.isdecimal()):
            raise ValueError(name)
        return _jax().local_devices(backend=platform)[int(index or 0)]
    except (RuntimeError, ValueError, IndexError):
        known = sorted({f"{device.platform}:{device.id}" for device in _jax().local_devices()})
        raise ValueError(
            f"device {name!r}: expected a JAX device such as {', '.join(known)}"
        ) from None


class _Jax:
    """See :class:`~rlmesh.values.Framework`. The library is loaded when it is first needed."""

    name = "jax"
    fuses = True
    has_device = True
    immutable = True

    @property
    def array_type(self) -> type:
        return _concrete()

    def ensure_available(self) -> None:
        _jax()

    def from_host(self, array: np.ndarray[Any, Any], /, device: Any = None) -> Any:
        jax = _jax()
        place = _device(device) if isinstance(device, str) else device
        # device_put takes the memory over where it is aligned for XLA, and copies it otherwise.
        if array.itemsize < 8 or jax.config.jax_enable_x64:
            return jax.device_put(array, place)
        if array.dtype.kind != "f":
            return jax.device_put(_narrowed(array), place)
        with self._exact(array):
            return jax.device_put(array, place)

    def _exact(self, leaf: Any) -> AbstractContextManager[Any]:
        """Return a context in which JAX does not round ``leaf``."""
        return _wide()(leaf.dtype.itemsize == 8 or _jax().config.jax_enable_x64)

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        return to_host(leaf)

    def to_host_many(self, leaves: Sequence[Any], /) -> list[np.ndarray[Any, Any]]:
        for leaf in leaves:
            if not leaf.is_deleted():
                leaf.copy_to_host_async()  # all are on their way before the first is awaited
        return [to_host(leaf) for leaf in leaves]

    def is_array(self, leaf: Any, /) -> bool:
        return isinstance(leaf, _jax().Array)

    def stack(self, leaves: Sequence[Any], /) -> Any:
        with self._exact(leaves[0]):
            return _jax().numpy.stack(leaves)

    def unstack(self, leaf: Any, /) -> list[Any]:
        with self._exact(leaf):
            return list(leaf)

    def to_device(self, leaf: Any, device: Any, /) -> Any:
        with self._exact(leaf):
            return _jax().device_put(leaf, _device(device) if isinstance(device, str) else device)


def _narrowed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return 64-bit integers in 32 bits; ValueError for one that does not fit."""
    narrow = array.astype(np.int32 if array.dtype.kind == "i" else np.uint32)
    if not np.array_equal(narrow, array):
        wrong = array[narrow != array].flat[0]
        raise ValueError(
            f"{wrong} of {array.dtype.name} does not fit {narrow.dtype.name}, and JAX has wider "
            "integers only with jax_enable_x64: set JAX_ENABLE_X64=1"
        )
    return narrow


JAX: Framework = _Jax()
"""Leaves are ``jax.Array``; nobody writes to the memory beneath them."""


class EnvFactory(_EnvFactory):
    __doc__ = _EnvFactory.__doc__
    _framework = JAX


class Model(_Model[ObsT_contra, ActT_co]):
    __doc__ = _Model.__doc__
    _framework = JAX


class RemoteEnv(_RemoteEnv[ObsT, ActT]):
    __doc__ = _RemoteEnv.__doc__
    _framework = JAX


class RemoteModel(_RemoteModel):
    __doc__ = _RemoteModel.__doc__
    _framework = JAX


class RemoteVectorEnv(_RemoteVectorEnv[ObsT, ActT]):
    __doc__ = _RemoteVectorEnv.__doc__
    _framework = JAX


def ensure_available() -> None:
    """Raise ImportError, with the line that mends it, if JAX is missing or older than 0.4.24."""
    JAX.ensure_available()


def space_from_spec(spec: Space) -> Space:
    """Return ``spec`` as a space whose samples hold JAX arrays; Discrete ones are int."""
    return _space_from_spec(spec, bridge=JAX)


def asarray(value: Any) -> Any:
    """Return a :class:`~rlmesh.Tensor`, an array or a number as a ``jax.Array``.

    A Tensor's memory is shared where it is aligned for XLA; what others may write to is copied.
    Python numbers become 0-d arrays of JAX's default dtypes.

    Raises:
        TypeError: ``value`` is no array or number.
        ValueError: an integer needs 64 bits, and ``jax_enable_x64`` is not set.
        OverflowError: likewise, for a Python int.
    """
    jax = _jax()
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, (bool, int, float)):
        return jax.numpy.asarray(value)
    array = to_host(value)
    if array.dtype.name not in DTYPES:
        raise TypeError(f"asarray expects a Tensor, an array or a number, got {value!r:.80}")
    if not isinstance(value, Tensor):
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    return JAX.from_host(array)


def from_array(array: Any) -> Any:
    """Return ``array`` as rlmesh carries it: a :class:`~rlmesh.Tensor`, or a number if 0-d.

    Waits until it is computed, and copies it to host memory.

    Raises:
        TypeError: ``array`` is no ``jax.Array``.
        ValueError: its dtype is none of the wire, such as bfloat16.
    """
    if not isinstance(array, _jax().Array):
        raise TypeError(f"from_array expects a jax.Array, got {type(array).__name__}")
    host = to_host(array)
    carried = Tensor(host, host.shape, host.dtype)
    return host.item() if host.ndim == 0 else carried
