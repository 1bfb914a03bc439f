"""Whether an array fits its space, decided once per space rather than once per element.

:func:`compile_check` looks at a leaf space and returns the cheapest function that can still find a
fault, or None where the dtype already rules every fault out (a uint8 image in [0, 255] costs
nothing). Only when that function finds something is the element looked for.

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

from rlmesh.spaces import Box, Discrete, MultiDiscrete, Space
from rlmesh.spaces.base import LeafSpace

__all__ = ["Check", "Policy", "Report", "compile_bool_check", "compile_check"]

Array = np.ndarray[Any, Any]
Check = Callable[[Array], None]
Report = Callable[[str, str, Callable[[], str]], None]
"""Called with (kind, path, detail) for a range fault that is let through.

``detail()`` words it, which takes longer than finding it: a simulator that leaves its bounds does
so at every step, and only the first is worth telling."""

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
    space: LeafSpace, path: str, *, policy: Policy, report: Report, finite: bool
) -> Check | None:
    """Return a function that raises ValueError or reports, or None if nothing can be wrong.

    Args:
        space: a leaf space with an array value.
        path: how messages name the leaf, e.g. ``action['arm']``.
        policy: what a range fault does.
        report: receives range faults under ``Policy.WARN``.
        finite: refuse infinities as well as NaN (actions).
    """
    if space.np_dtype == np.bool_:
        return None
    if isinstance(space, Box):
        return _box_check(space, path, policy, report, finite)
    low, high = _domain(space)
    inside = _compile_inside(low, high, int(np.prod(space.shape, dtype=np.int64)))

    def check(array: Array) -> None:
        if not inside(array):
            where, got = _first_bad(array, (array < low) | (array > high), space)
            want = f"{low}..{high}" if np.ndim(high) == 0 else "0 <= value < nvec"
            raise ValueError(f"{path}{where}: expected an element of {space!r} ({want}), got {got}")

    return check


def compile_bool_check(path: str) -> Check:
    """Return a check of the bytes of a bool array that came off a wire: 0 or 1, nothing else."""

    def check(array: Array) -> None:
        highest = array.view(np.uint8).max()
        if highest > 1:
            raise ValueError(f"{path}: expected the bytes 0 and 1 of a bool, got {highest}")

    return check


def _domain(space: Space) -> tuple[Any, Any]:
    if isinstance(space, Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, MultiDiscrete):
        return 0, np.asarray(space.nvec).reshape(space.shape) - 1
    return 0, 1


def _box_check(space: Box, path: str, policy: Policy, report: Report, finite: bool) -> Check | None:
    floating = space.np_dtype.kind == "f"
    bounded = policy is not Policy.OFF and not space.bounds_implied
    if not floating and not bounded:
        return None
    size = int(np.prod(space.shape, dtype=np.int64))
    inside = _compile_inside(space.low, space.high, size) if bounded else None
    open_ended = not (np.all(np.isfinite(space.low)) and np.all(np.isfinite(space.high)))
    # A NaN lies in no interval and an infinity in no finite one: one pass finds both faults.
    sound = _compile_finite() if floating and (inside is None or (finite and open_ended)) else None

    def check(array: Array) -> None:
        if (inside is None or inside(array)) and (sound is None or sound(array)):
            return
        if floating:
            bad = ~np.isfinite(array) if finite else np.isnan(array)
            if bad.any():
                where, got = _first_bad(array, bad, space)
                want = f"finite {space.dtype}" if finite else f"{space.dtype} without NaN"
                raise ValueError(f"{path}{where}: expected {want} ({space!r}), got {got}")
        if inside is None or inside(array):
            return

        def detail() -> str:
            outside = ~((array >= space.low) & (array <= space.high))
            where, got = _first_bad(array, outside, space)
            return f"{path}{where}: {got} is outside {space!r}"

        if policy is Policy.STRICT:
            raise ValueError(f"{detail()}; correct the space, or set RLMESH_VALIDATION_POLICY=warn")
        report("range", path, detail)

    return check


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


def _compile_finite() -> Callable[[Array], bool]:
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
