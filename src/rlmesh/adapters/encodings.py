"""Rotations a spec can hold: a packing of the user's own, and a literal rotation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from rlmesh.adapters.vocabulary import ROTATION_DIMS, RotationEncoding

__all__ = ["LOCAL", "CustomEncoding", "Rotation", "RotationTransform"]

RotationTransform = Callable[[np.ndarray[Any, Any]], Any]
"""One flat rotation vector in, one of the same width out."""

LOCAL = "<local>"
"""What stands in JSON for a callable that stayed in its process."""


@dataclass(frozen=True)
class CustomEncoding:
    """A packing of rotations of the same width as a known encoding.

    The adapter converts to (or from) ``base`` itself; the callables only repack.

    Args:
        base: the known encoding it is a packing of.
        from_base: base vector to packed vector, for observations.
        to_base: packed vector to base vector, for actions.
        name: what explain() calls it.

    A callable is called with a flat numpy array of the base's width, and must return as many
    numbers. A ``"module:callable"`` string only describes; it is never executed.

    Raises:
        ValueError: unknown base, no callable at all, or a callable and a string mixed.

    >>> flipped = CustomEncoding("quat_xyzw", from_base=lambda q: -q, to_base=lambda q: -q)
    >>> flipped.width
    4
    """

    base: RotationEncoding
    from_base: RotationTransform | str | None = None
    to_base: RotationTransform | str | None = None
    name: str = "custom"

    def __post_init__(self) -> None:
        if self.base not in ROTATION_DIMS:
            raise ValueError(
                f"CustomEncoding.base must be one of {sorted(ROTATION_DIMS)}, got {self.base!r}"
            )
        arms = [arm for arm in (self.from_base, self.to_base) if arm is not None]
        if not arms:
            raise ValueError(
                "CustomEncoding needs at least one of from_base (for observations) or to_base "
                "(for actions)"
            )
        if len({isinstance(arm, str) for arm in arms}) > 1:
            raise ValueError(
                "CustomEncoding: from_base and to_base must both be callables or both "
                "'module:callable' strings, got one of each"
            )

    @property
    def width(self) -> int:
        """How many numbers it has: as many as its base."""
        return ROTATION_DIMS[self.base]

    @property
    def is_entrypoint(self) -> bool:
        """Whether it only describes, by ``"module:callable"`` strings."""
        return isinstance(self.from_base, str) or isinstance(self.to_base, str)

    @property
    def stayed_home(self) -> bool:
        """Whether it was read from JSON, into which its callables did not travel."""
        return LOCAL in (self.from_base, self.to_base)


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """A literal rotation, for ``State(post_rotate=)``: R_out = R_in @ R.

    Args:
        encoding: the rotation encoding of ``value``; not ``gravity_xyz``.
        value: its numbers.

    >>> Rotation.from_matrix([[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    Rotation(encoding='rot6d', value=(0.0, 1.0, 0.0, -1.0, 0.0, 0.0))
    """

    encoding: RotationEncoding
    value: tuple[float, ...]

    def __post_init__(self) -> None:
        value: Any = self.value
        object.__setattr__(self, "value", tuple(np.asarray(value).reshape(-1).tolist()))

    @classmethod
    def from_matrix(cls, rows: Sequence[Sequence[float]] | np.ndarray[Any, Any]) -> Rotation:
        """The rotation of a 3x3 matrix given by its rows, kept as its first two columns (rot6d).

        Raises:
            ValueError: the matrix is not 3x3, or a reflection, whose first two columns would be
                another rotation's. Whether it is orthonormal is checked when the spec is resolved
                or serialised.
        """
        matrix: np.ndarray[Any, Any] = np.asarray(rows, dtype=np.float64)
        if matrix.shape != (3, 3):
            raise ValueError(
                f"Rotation.from_matrix expects a 3x3 matrix, got shape {list(matrix.shape)}"
            )
        if np.linalg.det(matrix) < 0:
            raise ValueError(
                "Rotation.from_matrix got a reflection (determinant below 0), not a rotation; "
                "a frame with a left-handed axis needs that axis negated first"
            )
        columns = cast("list[float]", matrix[:, :2].T.reshape(-1).tolist())
        return cls(encoding="rot6d", value=tuple(columns))

    def fault(self) -> str | None:
        """Why this is no rotation, None if it is one."""
        dims = ROTATION_DIMS.get(self.encoding)
        if dims is None:
            return f'unknown rotation encoding "{self.encoding}"; expected {sorted(ROTATION_DIMS)}'
        if self.encoding == "gravity_xyz":
            return 'encoding "gravity_xyz" is a direction, not a rotation'
        if len(self.value) != dims:
            return f'encoding "{self.encoding}" needs {dims} values, got {len(self.value)}'
        values = np.asarray(self.value, dtype=np.float64)
        if not np.isfinite(values).all():
            return f"values must be finite, got {list(self.value)}"
        norms = {"quat_xyzw": 1, "quat_wxyz": 1}
        if self.encoding in norms and np.linalg.norm(values) <= 1e-8:
            return f"{list(self.value)} is not a rotation (a quaternion of length 0)"
        if self.encoding in ("rot6d", "rot6d_rowmajor"):
            order = "C" if self.encoding == "rot6d" else "F"
            first, second = values.reshape((2, 3), order=order)
            gram = (first @ first - 1.0, second @ second - 1.0, first @ second)
            if max(abs(entry) for entry in gram) > 1e-4:
                return f"{list(self.value)} is not a rotation (its columns are not orthonormal)"
        return None
