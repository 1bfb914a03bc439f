"""Rotations from one encoding to another.

===================  ====  ==============================================================
encoding             dims  what it is
===================  ====  ==============================================================
``quat_xyzw``        4     unit quaternion, scalar last: SciPy, PyBullet, robosuite/LIBERO, ROS
``quat_wxyz``        4     unit quaternion, scalar first: MuJoCo, SAPIEN/ManiSkill, Isaac Sim
``axis_angle``       3     unit axis times angle in radians
``rot6d``            6     first column of the matrix, then the second (Zhou et al. 2019,
                           arXiv:1812.07035)
``rot6d_rowmajor``   6     the same two columns as a 3x2 block, flattened by rows
``euler_xyz``        3     roll, pitch, yaw in radians about fixed axes: R = Rz Ry Rx, SciPy's "xyz"
``gravity_xyz``      3     the unit gravity vector seen from the body, R^T (0, 0, -1); a target only
===================  ====  ==============================================================

Where the encodings leave room, this is the choice; the first point is where it differs from SciPy:

* A quaternion becomes an axis-angle of angle ``2 atan2(|xyz|, w)``, in [0, 2 pi]: q and -q, which
  are one rotation, give two vectors. So does robosuite's ``quat2axisangle``, and with it every
  state of LIBERO and of the policies trained on them: openpi (``examples/libero/main.py``), OpenVLA
  (``experiments/robot/libero/libero_utils.py``), LeRobot (``processor/env_processor.py``), GR00T
  (``examples/Libero/eval/utils.py``). For a policy trained on SciPy's ``as_rotvec``, angle at most
  pi, let the env publish ``rot6d`` or quaternions with w >= 0; from every encoding but a quaternion
  the angle is in [0, pi] here too. Where a simulator's quaternions change sign from one frame to
  the next, no axis-angle is continuous: read ``rot6d``.
* Quaternions are normalized when converted; one of norm 1e-8 or less is no rotation and counts as
  the identity. Quaternions that come out have the sign of Shepperd's method: w >= 0 where the trace
  is positive, else the largest of x, y, z is positive.
* At gimbal lock (pitch within 1e-4 rad of +-pi/2) yaw is 0.
* 6-D encodings need not be orthonormal going in (a network's output is not): Gram-Schmidt. Neither
  of them is PyTorch3D's ``matrix_to_rotation_6d``, which lists the first two rows.
* The same encoding on both sides copies the numbers, unnormalized.
* NaN and infinity come out as NaN.

One implementation per conversion, in float64: with Python floats for one rotation (1.5 to 3 us,
where SciPy takes 8 to 30), with numpy columns for many. SciPy is what the tests hold it against.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlmesh.adapters.vocabulary import ROTATION_DIMS

if TYPE_CHECKING:
    from rlmesh.adapters.encodings import Rotation

__all__ = ["ROTATION_DIMS", "convert_rotation", "rotation_converter"]

Array = np.ndarray[Any, Any]
Number = Any
"""A float, or an array of them: a component of one rotation or of many."""
Vector = tuple[Number, ...]
Matrix = tuple[Number, ...]
"""Nine components, row by row."""

_TINY = 1e-8
_LOCKED = 1e-4
"""Cosine of the pitch from which on down euler_xyz counts as gimbal lock."""


class _Kit(NamedTuple):
    """What the formulas need beyond operators, for floats or for arrays."""

    sqrt: Callable[[Number], Number]
    sin: Callable[[Number], Number]
    cos: Callable[[Number], Number]
    atan2: Callable[[Number, Number], Number]
    larger: Callable[[Number, Number], Number]
    where: Callable[[Any, Number, Number], Number]


def _choose(condition: bool, then: float, otherwise: float) -> float:
    return then if condition else otherwise


_FLOATS = _Kit(math.sqrt, math.sin, math.cos, math.atan2, max, _choose)
_COLUMNS = _Kit(np.sqrt, np.sin, np.cos, np.arctan2, np.maximum, np.where)


def convert_rotation(
    values: Any, source: str, target: str, *, post_rotate: Rotation | None = None
) -> Array:
    """Return rotations in another encoding.

    Args:
        values: array of shape [..., n], n as `ROTATION_DIMS` says of `source`.
        source: the encoding of `values`; not ``gravity_xyz`` unless it is the target too.
        target: the encoding wanted.
        post_rotate: a fixed rotation R of the body's own axes: R_out = R_in @ R.

    Returns:
        A new float32 array of shape [..., m].

    Raises:
        ValueError: unknown encoding, a conversion out of ``gravity_xyz``, or a last axis of another
            length.

    Example:
        >>> convert_rotation([0.0, 0.0, 0.6, 0.8], "quat_xyzw", "axis_angle")
        array([0.       , 0.       , 1.2870022], dtype=float32)
    """
    return rotation_converter(source, target, post_rotate)(np.asarray(values))


@lru_cache(maxsize=256)
def rotation_converter(
    source: str, target: str, post_rotate: Rotation | None = None
) -> Callable[[Array], Array]:
    """Return :func:`convert_rotation` with all but the array looked up already."""
    for encoding in (source, target):
        if encoding not in ROTATION_DIMS:
            raise ValueError(
                f"unknown rotation encoding {encoding!r}; expected one of {sorted(ROTATION_DIMS)}"
            )
    convert = _formula(source, target, post_rotate)
    wanted = ROTATION_DIMS[source]
    out_dims = ROTATION_DIMS[target]

    def convert_array(values: Array) -> Array:
        if not values.ndim or values.shape[-1] != wanted:
            raise ValueError(
                f"expected {wanted}-element {source} rotation, got shape {list(values.shape)}"
            )
        if convert is None:
            return values.astype(np.float32)
        if values.ndim == 1:
            floats: list[float] = values.tolist()
            if not math.isfinite(sum(floats)):
                return np.full(out_dims, np.nan, np.float32)
            return np.array(convert(_FLOATS, floats), np.float32)
        columns = np.moveaxis(values.astype(np.float64), -1, 0)
        with np.errstate(invalid="ignore"):
            out = np.stack(np.broadcast_arrays(*convert(_COLUMNS, columns)), axis=-1)
        out[~np.isfinite(values).all(axis=-1)] = np.nan
        return out.astype(np.float32)

    return convert_array


def _formula(
    source: str, target: str, post_rotate: Rotation | None
) -> Callable[[_Kit, Any], Vector] | None:
    """The conversion of one rotation's (or many rotations') components; None is a plain copy."""
    if source == target and post_rotate is None:
        return None
    if source not in _TO_MATRIX:
        raise ValueError(f'encoding "{source}" is a direction, no rotation: it cannot be converted')
    if target == "axis_angle" and post_rotate is None and source in ("quat_xyzw", "quat_wxyz"):
        return _turn_of_quat_wxyz if source == "quat_wxyz" else _turn_of_quat
    to_matrix, from_matrix = _TO_MATRIX[source], _FROM_MATRIX[target]
    if post_rotate is None:
        return lambda kit, values: from_matrix(kit, to_matrix(kit, values))
    fixed = _TO_MATRIX[post_rotate.encoding](_FLOATS, tuple(map(float, post_rotate.value)))
    return lambda kit, values: from_matrix(kit, _product(to_matrix(kit, values), fixed))


def _product(a: Matrix, b: Matrix) -> Matrix:
    return tuple(
        a[row] * b[column] + a[row + 1] * b[column + 3] + a[row + 2] * b[column + 6]
        for row in (0, 3, 6)
        for column in (0, 1, 2)
    )


def _unit_quat(kit: _Kit, values: Vector) -> Vector:
    x, y, z, w = values
    norm = kit.sqrt(x * x + y * y + z * z + w * w)
    nothing = norm <= _TINY
    divisor = kit.where(nothing, 1.0, norm)
    return (
        kit.where(nothing, 0.0, x / divisor),
        kit.where(nothing, 0.0, y / divisor),
        kit.where(nothing, 0.0, z / divisor),
        kit.where(nothing, 1.0, w / divisor),
    )


def _matrix_of_unit_quat(values: Vector) -> Matrix:
    x, y, z, w = values
    return (
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - z * w),
        2.0 * (x * z + y * w),
        2.0 * (x * y + z * w),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - x * w),
        2.0 * (x * z - y * w),
        2.0 * (y * z + x * w),
        1.0 - 2.0 * (x * x + y * y),
    )


def _matrix_of_quat(kit: _Kit, values: Vector) -> Matrix:
    return _matrix_of_unit_quat(_unit_quat(kit, values))


def _matrix_of_quat_wxyz(kit: _Kit, values: Vector) -> Matrix:
    w, x, y, z = values
    return _matrix_of_quat(kit, (x, y, z, w))


def _matrix_of_turn(kit: _Kit, values: Vector) -> Matrix:
    x, y, z = values
    angle = kit.sqrt(x * x + y * y + z * z)
    none = angle <= _TINY
    half = angle * 0.5
    factor = kit.where(none, 0.5, kit.sin(half) / kit.where(none, 1.0, angle))
    return _matrix_of_unit_quat((x * factor, y * factor, z * factor, kit.cos(half)))


def _matrix_of_euler(kit: _Kit, values: Vector) -> Matrix:
    roll, pitch, yaw = values
    sr, cr = kit.sin(roll), kit.cos(roll)
    sp, cp = kit.sin(pitch), kit.cos(pitch)
    sy, cy = kit.sin(yaw), kit.cos(yaw)
    return (
        cy * cp,
        cy * sp * sr - sy * cr,
        cy * sp * cr + sy * sr,
        sy * cp,
        sy * sp * sr + cy * cr,
        sy * sp * cr - cy * sr,
        -sp,
        cp * sr,
        cp * cr,
    )


def _matrix_of_columns(kit: _Kit, values: Vector) -> Matrix:
    ax, ay, az, bx, by, bz = values
    norm = kit.sqrt(ax * ax + ay * ay + az * az) + _TINY
    ax, ay, az = ax / norm, ay / norm, az / norm
    along = ax * bx + ay * by + az * bz
    bx, by, bz = bx - along * ax, by - along * ay, bz - along * az
    norm = kit.sqrt(bx * bx + by * by + bz * bz) + _TINY
    bx, by, bz = bx / norm, by / norm, bz / norm
    return (
        *(ax, bx, ay * bz - az * by),
        *(ay, by, az * bx - ax * bz),
        *(az, bz, ax * by - ay * bx),
    )


def _matrix_of_block(kit: _Kit, values: Vector) -> Matrix:
    ax, bx, ay, by, az, bz = values
    return _matrix_of_columns(kit, (ax, ay, az, bx, by, bz))


def _quat_of_matrix(kit: _Kit, m: Matrix) -> Vector:
    """S. W. Shepperd, "Quaternion from rotation matrix", J. Guidance and Control 1 (1978)."""
    m00, m01, m02, m10, m11, m12, m20, m21, m22 = m
    trace = m00 + m11 + m22
    by_w, by_x, by_y = trace > 0.0, (m00 > m11) & (m00 > m22), m11 > m22

    def pick(w: Number, x: Number, y: Number, z: Number) -> Number:
        return kit.where(by_w, w, kit.where(by_x, x, kit.where(by_y, y, z)))

    square = 1.0 + pick(trace, m00 - m11 - m22, m11 - m00 - m22, m22 - m00 - m11)
    largest = 0.5 * kit.sqrt(kit.larger(square, _TINY))
    scale = 0.25 / largest
    wx, wy, wz = (m21 - m12) * scale, (m02 - m20) * scale, (m10 - m01) * scale
    xy, xz, yz = (m01 + m10) * scale, (m02 + m20) * scale, (m12 + m21) * scale
    return (
        pick(wx, largest, xy, xz),
        pick(wy, xy, largest, yz),
        pick(wz, xz, yz, largest),
        pick(largest, wx, wy, wz),
    )


def _quat_wxyz_of_matrix(kit: _Kit, m: Matrix) -> Vector:
    x, y, z, w = _quat_of_matrix(kit, m)
    return w, x, y, z


def _turn_of_quat(kit: _Kit, values: Vector) -> Vector:
    x, y, z, w = _unit_quat(kit, values)
    sine = kit.sqrt(x * x + y * y + z * z)
    none = sine <= _TINY
    factor = kit.where(none, 0.0, 2.0 * kit.atan2(sine, w) / kit.where(none, 1.0, sine))
    return x * factor, y * factor, z * factor


def _turn_of_quat_wxyz(kit: _Kit, values: Vector) -> Vector:
    w, x, y, z = values
    return _turn_of_quat(kit, (x, y, z, w))


def _turn_of_matrix(kit: _Kit, m: Matrix) -> Vector:
    x, y, z, w = _quat_of_matrix(kit, m)
    sign = kit.where(w < 0.0, -1.0, 1.0)
    return _turn_of_quat(kit, (x * sign, y * sign, z * sign, w * sign))


def _columns_of_matrix(kit: _Kit, m: Matrix) -> Vector:
    return m[0], m[3], m[6], m[1], m[4], m[7]


def _block_of_matrix(kit: _Kit, m: Matrix) -> Vector:
    return m[0], m[1], m[3], m[4], m[6], m[7]


def _euler_of_matrix(kit: _Kit, m: Matrix) -> Vector:
    level = kit.sqrt(m[0] * m[0] + m[3] * m[3])
    locked = level < _LOCKED
    return (
        kit.where(locked, kit.atan2(-m[5], m[4]), kit.atan2(m[7], m[8])),
        kit.atan2(-m[6], level),
        kit.where(locked, 0.0, kit.atan2(m[3], m[0])),
    )


def _gravity_of_matrix(kit: _Kit, m: Matrix) -> Vector:
    return -m[6], -m[7], -m[8]


_TO_MATRIX: dict[str, Callable[[_Kit, Vector], Matrix]] = {
    "quat_xyzw": _matrix_of_quat,
    "quat_wxyz": _matrix_of_quat_wxyz,
    "axis_angle": _matrix_of_turn,
    "rot6d": _matrix_of_columns,
    "rot6d_rowmajor": _matrix_of_block,
    "euler_xyz": _matrix_of_euler,
}
_FROM_MATRIX: dict[str, Callable[[_Kit, Matrix], Vector]] = {
    "quat_xyzw": _quat_of_matrix,
    "quat_wxyz": _quat_wxyz_of_matrix,
    "axis_angle": _turn_of_matrix,
    "rot6d": _columns_of_matrix,
    "rot6d_rowmajor": _block_of_matrix,
    "euler_xyz": _euler_of_matrix,
    "gravity_xyz": _gravity_of_matrix,
}
