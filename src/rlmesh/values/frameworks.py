"""Array frameworks, each behind one small object.

The codec, the clients, the models and the env servers know no framework: they hold a
:class:`Framework` and hand it NumPy arrays. Adding a framework is one class with these members, and
its row in ``_KNOWN``.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from rlmesh.values.tensor import Tensor

__all__ = [
    "NATIVE",
    "NUMPY",
    "Framework",
    "check_place",
    "framework_name",
    "framework_named",
    "framework_of",
    "to_host",
]


class Framework(Protocol):
    """What rlmesh needs to know of an array library."""

    @property
    def name(self) -> str:
        """The framework's name, as it is written on a command line."""
        ...

    @property
    def array_type(self) -> type:
        """The exact class of an array leaf: a value of this class needs no conversion."""
        ...

    @property
    def fuses(self) -> bool:
        """Whether leaves have axes to stack along and to index; False for opaque values."""
        ...

    @property
    def has_device(self) -> bool:
        """Whether leaves live on a device that :meth:`to_device` can change."""
        ...

    @property
    def immutable(self) -> bool:
        """Whether leaves promise never to change: memory that others may write to is copied."""
        ...

    def ensure_available(self) -> None:
        """Raise ImportError, with what mends it, unless the library is there and new enough."""
        ...

    def from_host(self, array: np.ndarray[Any, Any], /, device: Any = None) -> Any:
        """Adopt a C-contiguous, writable NumPy array that nobody else holds.

        Args:
            array: of a dtype of the wire; its values, dtype and shape are kept exactly.
            device: where to put it; None: where the framework has it by itself.
        """
        ...

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        """Return ``leaf`` as a NumPy array in host memory; copied only where it must be."""
        ...

    def to_host_many(self, leaves: Sequence[Any], /) -> list[np.ndarray[Any, Any]]:
        """Return several leaves as :meth:`to_host` does, in one transfer where they lie afar."""
        ...

    def is_array(self, leaf: Any, /) -> bool:
        """Return whether ``leaf`` is an array leaf of this framework."""
        ...

    def stack(self, leaves: Sequence[Any], /) -> Any:
        """Return array leaves of one shape and dtype as one leaf with a new leading axis.

        A lone leaf may be returned as a view.
        """
        ...

    def unstack(self, leaf: Any, /) -> list[Any]:
        """Return the rows of an array leaf along its leading axis, as views where there are any."""
        ...

    def to_device(self, leaf: Any, device: Any, /) -> Any:
        """Return an array leaf on ``device``; ValueError where there are no devices."""
        ...


class _OnHost:
    """The members that NumPy arrays and Tensors share."""

    name = ""
    has_device = False
    immutable = False

    def ensure_available(self) -> None:
        return None

    def to_host(self, leaf: Any, /) -> np.ndarray[Any, Any]:
        return to_host(leaf)

    def to_host_many(self, leaves: Sequence[Any], /) -> list[np.ndarray[Any, Any]]:
        return [to_host(leaf) for leaf in leaves]

    def to_device(self, leaf: Any, device: Any, /) -> Any:
        raise ValueError(f"{self.name} values have no device, so they cannot move to {device!r}")


class _Numpy(_OnHost):
    name = "numpy"
    array_type = np.ndarray
    fuses = True

    def from_host(self, array: np.ndarray[Any, Any], /, device: Any = None) -> Any:
        return array if device is None else self.to_device(array, device)

    def is_array(self, leaf: Any, /) -> bool:
        return isinstance(leaf, np.ndarray) and not isinstance(leaf, Tensor)

    def stack(self, leaves: Sequence[Any], /) -> np.ndarray[Any, Any]:
        # np.stack does the same at three to five times the cost for small leaves.
        return leaves[0][None] if len(leaves) == 1 else np.array(leaves)

    def unstack(self, leaf: Any, /) -> list[Any]:
        return list(leaf)


class _Native(_OnHost):
    name = "native"
    array_type = Tensor
    fuses = False

    def from_host(self, array: np.ndarray[Any, Any], /, device: Any = None) -> Any:
        return Tensor.adopt(array) if device is None else self.to_device(array, device)

    def is_array(self, leaf: Any, /) -> bool:
        return isinstance(leaf, Tensor)

    def stack(self, leaves: Sequence[Any], /) -> Tensor:
        return Tensor.adopt(np.array([leaf.array for leaf in leaves]))

    def unstack(self, leaf: Any, /) -> list[Any]:
        rows: np.ndarray[Any, Any] = leaf.array
        return [Tensor.adopt(rows[i, ...]) for i in range(rows.shape[0])]


NUMPY: Framework = _Numpy()
"""Leaves are writable ``numpy.ndarray``."""

NATIVE: Framework = _Native()
"""Leaves are read-only :class:`~rlmesh.Tensor`: the classes of the top-level package."""


_KNOWN = {
    "numpy": (__name__, ("numpy",)),
    "torch": ("rlmesh.torch", ("torch",)),
    "jax": ("rlmesh.jax", ("jax", "jaxlib")),
}
"""Name to the module that holds the framework, in capitals, and the packages of its arrays."""

_MEMBERS = [name for name in vars(Framework) if not name.startswith("_")]


def framework_named(value: Any) -> Framework | None:
    """Return the framework that ``value`` names, in any case, or is; None for None.

    Raises:
        ValueError: there is none of that name.
        TypeError: ``value`` is neither text nor an object with the members of a Framework.
        ImportError: the framework's library is not installed.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        missing = [name for name in _MEMBERS if not hasattr(cast("Any", type(value)), name)]
        if missing:
            raise TypeError(
                f"framework: expected {_names()} or an object with the members of "
                f"rlmesh.values.Framework, got {type(value).__name__}, which lacks "
                f"{', '.join(missing)}"
            )
        framework: Framework = value
    else:
        framework = _load(framework_name(value))
    framework.ensure_available()
    return framework


def framework_name(text: str) -> str:
    """Return the name of a framework as it is spelt; ValueError for an unknown one."""
    name = text.strip().lower()
    if name not in _KNOWN:
        raise ValueError(f"unknown framework {text!r}: expected {_names()}")
    return name


def framework_of(leaf: Any) -> Framework | None:
    """Return the known framework whose array ``leaf`` is, or None."""
    name = _name_of(cast("type[Any]", type(leaf)))
    if name is None:
        return None
    framework = _load(name)
    return framework if framework.is_array(leaf) else None


@lru_cache(maxsize=256)
def _name_of(kind: type[Any]) -> str | None:
    """Return the framework of a class of arrays, by the package of the class or of a base."""
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return next((name for name, (_, own) in _KNOWN.items() if packages.intersection(own)), None)


def _load(name: str) -> Framework:
    return getattr(importlib.import_module(_KNOWN[name][0]), name.upper())


def _names() -> str:
    return ", ".join(map(repr, _KNOWN))


_BFLOAT16 = "bfloat16 is not supported on the wire; cast to float32 first"


def check_place(framework: Framework, device: Any, what: str) -> None:
    """Raise ValueError unless ``framework`` can put arrays, ``what`` they are, on ``device``."""
    try:
        framework.from_host(np.zeros(1, np.float32), device)
    except Exception as exc:  # whatever the library says of it
        raise ValueError(
            f"device={device!r}: {framework.name} cannot put {what} there: {exc}"
        ) from None


def to_host(leaf: Any) -> np.ndarray[Any, Any]:
    """Return any array-like (NumPy, Tensor, torch, jax, DLPack, list, number) as a NumPy array.

    Raises:
        ValueError: the value has no NumPy form, e.g. a ragged list or a bfloat16 tensor.
    """
    if isinstance(leaf, np.ndarray):
        return np.asarray(cast("Any", leaf))
    try:
        if hasattr(leaf, "detach"):  # torch: off the graph and the device first
            if str(getattr(leaf, "dtype", "")).endswith("bfloat16"):
                raise ValueError(_BFLOAT16)
            return leaf.numpy(force=True)
        if hasattr(leaf, "__dlpack__") and not hasattr(leaf, "__array__"):
            return np.from_dlpack(leaf)
        array: np.ndarray[Any, Any] = np.asarray(leaf)
    except (TypeError, RuntimeError, BufferError) as exc:
        raise ValueError(f"cannot read {type(leaf).__name__} as an array: {exc}") from None
    if array.dtype.name == "bfloat16":  # NumPy has it from jax's ml_dtypes
        raise ValueError(_BFLOAT16)
    return array
