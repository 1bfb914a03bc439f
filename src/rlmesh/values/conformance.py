"""Whether an array fits its space, decided once per space rather than once per element.

:func:`compile_check` looks at a leaf space and returns the cheapest function that can still find a
fault, or None where the dtype already rules every fault out (a uint8 image in [0, 255] costs
nothing). Only when that function finds something does :func:`explain` look for the element.

Faults are *structural* (NaN, an infinite action, a Discrete value outside its domain: always
refused) or of *range* (Box bounds: refused, reported or ignored, as the policy says).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from rlmesh.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

__all__ = ["Check", "Policy", "Report", "compile_check"]

Array = np.ndarray[Any, Any]
Check = Callable[[Array], None]
Report = Callable[[str, str, str], None]
"""Called with (kind, path, detail) for a range fault that is let through."""

_FEW = 16  # below this, Python numbers are checked faster than a NumPy reduction starts


class Policy(Enum):
    """What to do with a value outside a Box's bounds or a Text's charset or length."""

    WARN = "warn"
    STRICT = "strict"
    OFF = "off"

    @classmethod
    def from_environment(cls) -> Policy:
        """Read ``RLMESH_VALIDATION_POLICY``; anything but ``strict`` and ``off`` is ``warn``."""
        value = os.environ.get("RLMESH_VALIDATION_POLICY", "").strip().lower()
        return {"strict": cls.STRICT, "off": cls.OFF}.get(value, cls.WARN)


def compile_check(
    space: Space, path: str, *, policy: Policy, report: Report, finite: bool
) -> Check | None:
    """Return a function that raises ValueError or reports, or None if nothing can be wrong.

    Args:
        space: a leaf space with an array value.
        path: how messages name the leaf, e.g. ``action['arm']``.
        policy: what a range fault does.
        report: receives range faults under ``Policy.WARN``.
        finite: refuse infinities as well as NaN (actions).
    """
    if isinstance(space, Box):
        return _box_check(space, path, policy, report, finite)
    low, high = _domain(space)
    dtype = space.np_dtype
    if dtype == np.bool_ or (isinstance(space, MultiBinary) and dtype == np.bool_):
        return None
    inside = _compile_inside(low, high, int(np.prod(space.shape, dtype=np.int64)))

    def check(array: Array) -> None:
        if not inside(array):
            where, got = _first_bad(array, (array < low) | (array > high), space)
            want = f"{low}..{high}" if np.ndim(high) == 0 else "0 <= value < nvec"
            raise ValueError(f"{path}{where}: expected an element of {space!r} ({want}), got {got}")

    return check


def _domain(space: Space) -> tuple[Any, Any]:
    if isinstance(space, Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, MultiDiscrete):
        return 0, np.asarray(space.nvec).reshape(space.shape) - 1
    return 0, 1


def _box_check(space: Box, path: str, policy: Policy, report: Report, finite: bool) -> Check | None:
    floating = space.np_dtype.kind == "f"
    bounded = policy is not Policy.OFF and not _dtype_implies(space)
    if not floating and not bounded:
        return None
    size = int(np.prod(space.shape, dtype=np.int64))
    inside = _compile_inside(space.low, space.high, size) if bounded else None
    sound = _compile_finite(size) if floating and (finite or policy is not Policy.OFF) else None
    if inside is None and sound is None:
        return None

    def check(array: Array) -> None:
        # Bounds first: a NaN is inside no interval, so one pass finds both faults.
        if inside is not None:
            if inside(array) and not (finite and sound is not None and not sound(array)):
                return
        elif sound is not None and sound(array):
            return
        if floating:
            bad = ~np.isfinite(array) if finite else np.isnan(array)
            if bad.any():
                where, got = _first_bad(array, bad, space)
                want = f"finite {space.dtype}" if finite else f"{space.dtype} without NaN"
                raise ValueError(f"{path}{where}: expected {want} ({space!r}), got {got}")
        if inside is None:
            return
        outside = ~((array >= space.low) & (array <= space.high))
        if not outside.any():
            return
        where, got = _first_bad(array, outside, space)
        detail = f"{path}{where}: {got} is outside {space!r}"
        if policy is Policy.STRICT:
            raise ValueError(f"{detail}; correct the space, or set RLMESH_VALIDATION_POLICY=warn")
        report("range", path, detail)

    return check


def _dtype_implies(space: Box) -> bool:
    """Whether no value of the dtype (NaN aside) can be out of bounds."""
    if space.np_dtype == np.bool_:
        return True
    if space.np_dtype.kind == "f":
        return bool(np.all(np.isneginf(space.low)) and np.all(np.isposinf(space.high)))
    info = np.iinfo(space.np_dtype)
    return bool(np.all(np.equal(space.low, info.min)) and np.all(np.equal(space.high, info.max)))


def _compile_inside(low: Any, high: Any, size: int) -> Callable[[Array], bool]:
    """Return a test whether every element lies in [low, high]; NaN lies nowhere."""
    lowest, highest = np.min(low), np.max(high)
    uniform = bool(np.all(np.equal(low, lowest)) and np.all(np.equal(high, highest)))
    if uniform:
        lo, hi = lowest.item(), highest.item()

        def inside(array: Array) -> bool:
            if array.size <= _FEW:
                return all([lo <= v <= hi for v in array.ravel().tolist()])
            return bool(lo <= array.min() and array.max() <= hi)

        return inside
    lows = np.broadcast_to(low, np.broadcast_shapes(np.shape(low), np.shape(high)))
    highs = np.broadcast_to(high, lows.shape)
    pairs = list(zip(lows.ravel().tolist(), highs.ravel().tolist(), strict=True))

    def inside_elementwise(array: Array) -> bool:
        if array.size == size <= _FEW:
            values = array.ravel().tolist()
            return all([lo <= v <= hi for v, (lo, hi) in zip(values, pairs, strict=True)])
        return bool(((array >= lows) & (array <= highs)).all())

    return inside_elementwise


def _compile_finite(size: int) -> Callable[[Array], bool]:
    """Return a test that is True only if no element is NaN or infinite.

    A sum is finite only if every term is; it may overflow, so a False is looked at again.
    """
    total = np.add.reduce

    def finite(array: Array) -> bool:
        if array.size <= _FEW:
            return math.isfinite(sum(array.ravel().tolist()))
        with np.errstate(over="ignore", invalid="ignore"):
            return math.isfinite(total(array, axis=None))

    return finite


def _first_bad(array: Array, bad: Any, space: Space) -> tuple[str, Any]:
    """Return where the first bad element is, as text, and what it is."""
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    got = array[index].item()
    lanes = array.ndim - len(space.shape)
    lane = f" of lane {index[0]}" if lanes else ""
    inner = index[lanes:]
    return f"{list(inner) if inner else ''}{lane}", got
