"""What every space is and can do."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar, cast

import numpy as np

from rlmesh.spaces.arrays import Array, as_int, frozen, host_array
from rlmesh.spaces.dtypes import AnyDType

__all__ = ["Framework", "LeafSpace", "Space", "SpaceSpec", "quoted", "space_from_spec"]

# What every framework leaves as it is; the tuple is Any so that a value stays an object.
_HOST_TYPES: Any = (np.ndarray, np.generic, list, tuple, int, float, str)

_Self = TypeVar("_Self", bound="Space")


class Framework(Protocol):
    """Where sampled arrays go: numpy, torch, jax, ... (``rlmesh.values`` has the real ones)."""

    def from_host(self, array: Any, /) -> Any:
        """The framework's own array holding the values of a numpy array."""
        ...


class Space(ABC):
    """A set of values of one structure; the base of :class:`Box`, :class:`Dict` and the others.

    A space is frozen data: its attributes cannot be assigned, two spaces are equal when they
    describe the same values in the same layout, and it is unhashable. The one thing that changes
    is the private random state behind :meth:`seed` and :meth:`sample`.
    """

    kind: ClassVar[str] = ""
    """One of box, discrete, multi_binary, multi_discrete, text, dict, tuple."""

    _shape: tuple[int, ...]
    _rng: np.random.Generator | None
    _framework: Framework | None

    def _freeze(self, **fields: object) -> None:
        """Set the attributes of a space under construction."""
        # Past __setattr__, which refuses.
        vars(self).update({"_rng": None, "_framework": None, **vars(self), **fields})

    @property
    def shape(self) -> list[int]:
        """Shape of one value; empty for Discrete, Text, Dict, Tuple and a 0-d Box."""
        return list(self._shape)

    @property
    def dtype(self) -> str:
        """Name of the element type, such as ``"float32"``; empty for Dict and Tuple."""
        return ""

    @property
    def spec(self) -> Space:
        """The space itself: a space is its own specification."""
        return self

    def to_space(self) -> Space:
        """The space itself: a specification is a space."""
        return self

    def seed(self, seed: int | None = None) -> int:
        """Restart the random stream of :meth:`sample` and return the seed used.

        Args:
            seed: Any int >= 0. The same seed gives the same samples. None draws a fresh seed.
        """
        used = (
            int.from_bytes(os.urandom(8), "little") >> 1 if seed is None else as_int(seed, "seed")
        )
        if used < 0:
            raise ValueError(f"seed: expected an int >= 0, got {used}; pass abs(seed)")
        vars(self)["_rng"] = np.random.default_rng(used)
        return used

    def sample(self) -> Any:
        """A random value of the space, for which :meth:`contains` holds."""
        if self._rng is None:
            self.seed()
        assert self._rng is not None
        return self._draw(self._rng)

    @abstractmethod
    def contains(self, value: object) -> bool:
        """Whether ``value`` belongs to the space; False, never an exception, for a wrong type."""

    def __contains__(self, value: object) -> bool:
        return self.contains(value)

    def bound_to(self: _Self, framework: Framework | None) -> _Self:
        """A copy whose samples hold the arrays of ``framework`` (None: numpy arrays)."""
        bound = copy.copy(self)
        vars(bound)["_framework"] = framework
        return bound

    def to_gymnasium_space(self) -> Any:
        """The equal Gymnasium space (see :func:`rlmesh.spaces.to_gymnasium_space`)."""
        from rlmesh.spaces.gym_bridge import to_gymnasium_space

        return to_gymnasium_space(self)

    def to_gym_space(self) -> Any:
        """Second name of :meth:`to_gymnasium_space`."""
        return self.to_gymnasium_space()

    @abstractmethod
    def _draw(self, rng: np.random.Generator) -> Any:
        """A random value drawn from ``rng``."""

    @abstractmethod
    def _same(self, other: Any) -> bool:
        """Whether ``other``, a space of this class, describes the same values."""

    @abstractmethod
    def _details(self) -> dict[str, Any]:
        """What the describe form says beyond kind, shape and dtype."""

    def _to_dict(self) -> dict[str, Any]:
        """The describe form: kind, shape, dtype, details, as JSON can hold them."""
        return {
            "kind": self.kind,
            "shape": self.shape,
            "dtype": self.dtype or "float32",
            "details": self._details(),
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Space):
            return NotImplemented
        return self.kind == other.kind and self._shape == other._shape and self._same(other)

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __copy__(self: _Self) -> _Self:
        clone = object.__new__(type(self))
        vars(clone).update(vars(self), _rng=copy.deepcopy(self._rng))
        return clone

    # Everything but the random state is immutable, so a deep copy shares it.
    def __deepcopy__(self: _Self, memo: dict[int, Any]) -> _Self:
        return copy.copy(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A pickled array comes back writable.
        for value in state.values():
            if isinstance(value, np.ndarray):
                frozen(cast(Array, value))
        vars(self).update(state)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"cannot set {name!r}: a {type(self).__name__} is immutable; build a new one instead"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete {name!r}: a {type(self).__name__} is immutable")

    # Hidden from type checkers, which would otherwise believe that every attribute exists.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}; for the Gymnasium API convert "
                "it with rlmesh.spaces.to_gymnasium_space(...)"
            )


SpaceSpec = Space
"""Second name of :class:`Space`: a space is its own specification."""


class LeafSpace(Space):
    """A space whose values are one array, integer or text."""

    _dtype: AnyDType

    @property
    def dtype(self) -> str:
        """Name of the element type, such as ``"float32"``."""
        return self._dtype.name

    @property
    def np_dtype(self) -> AnyDType:
        """The element type as a native-endian numpy dtype."""
        return self._dtype

    def _emit(self, array: Array) -> Any:
        """A sampled array as the bound framework's array."""
        return array if self._framework is None else self._framework.from_host(array)

    def _receive(self, value: object) -> object:
        """``value`` on the host, when only the bound framework can bring it there."""
        to_host = getattr(self._framework, "to_host", None)
        if to_host is None or isinstance(value, _HOST_TYPES):
            return value
        try:
            return to_host(value)
        except Exception:
            return host_array(value)


def quoted(text: str) -> str:
    """``text`` in double quotes, as reprs show keys and charsets."""
    import json  # Only reprs need it, and it would be a tenth of the import time.

    return json.dumps(text, ensure_ascii=False)


def space_from_spec(spec: Space, *, bridge: Framework | None = None) -> Space:
    """The space of ``spec``, its samples and membership test bound to the framework ``bridge``.

    Args:
        spec: A space (a Gymnasium space is converted).
        bridge: A framework with ``from_host``; None samples numpy arrays.
    """
    from rlmesh.spaces.gym_bridge import from_gymnasium_space

    return from_gymnasium_space(spec).bound_to(bridge)
