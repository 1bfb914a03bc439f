"""Rotations against SciPy, against rlmesh 0.1.0, and against what the docstring promises."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from black_box import BlackBox
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation as Scipy

from rlmesh.adapters import rotations
from rlmesh.adapters.encodings import Rotation
from rlmesh.adapters.rotations import ROTATION_DIMS, convert_rotation

Array = np.ndarray[Any, Any]

SOURCES = [name for name in ROTATION_DIMS if name != "gravity_xyz"]
PAIRS = list(itertools.product(SOURCES, ROTATION_DIMS))
HALF = math.sqrt(0.5)
COMPONENT = st.floats(-1.0, 1.0, width=32)


@st.composite
def unit_quats(draw: st.DrawFn) -> Array:
    """Any rotation, with a taste for axes, quarter turns, the identity and half turns."""
    edges = st.sampled_from([0.0, 1.0, -1.0, 0.5, HALF, 1e-4, 1e-6, -1e-7])
    quat = np.array([draw(edges | COMPONENT) for _ in range(4)])
    norm = np.linalg.norm(quat)
    assume(norm > 1e-3)
    return quat / norm


def as_scipy(values: Array, encoding: str) -> Scipy:
    """SciPy's reading of an encoding, from its own definition."""
    values = np.asarray(values, np.float64)
    if encoding == "quat_xyzw":
        return Scipy.from_quat(values)
    if encoding == "quat_wxyz":
        return Scipy.from_quat(np.roll(values, -1, axis=-1))
    if encoding == "axis_angle":
        return Scipy.from_rotvec(values)
    if encoding == "euler_xyz":
        return Scipy.from_euler("xyz", values)
    order = "C" if encoding == "rot6d" else "F"
    first, second = values.reshape((2, 3), order=order)
    return Scipy.from_matrix(np.stack([first, second, np.cross(first, second)], axis=1))


def encode(turn: Scipy, encoding: str) -> Array:
    if encoding == "quat_xyzw":
        return turn.as_quat()
    if encoding == "quat_wxyz":
        return np.roll(turn.as_quat(), 1, axis=-1)
    if encoding == "axis_angle":
        return turn.as_rotvec()
    if encoding == "euler_xyz":
        return convert_rotation(turn.as_quat(), "quat_xyzw", "euler_xyz").astype(np.float64)
    columns = turn.as_matrix()[:, :2]
    return columns.reshape(6) if encoding == "rot6d_rowmajor" else columns.T.reshape(6)


def turned_by(a: Scipy, b: Scipy) -> float:
    """The angle between two rotations."""
    return float((a.inv() * b).magnitude())


@pytest.fixture(scope="module")
def black_box() -> Iterator[BlackBox]:
    box = BlackBox()
    yield box
    box.close()


class TestAgainstScipy:
    @pytest.mark.parametrize(("source", "target"), [p for p in PAIRS if p[1] != "gravity_xyz"])
    @settings(deadline=None, max_examples=60)
    @given(unit_quats())
    def test_is_the_same_rotation(self, source: str, target: str, quat: Array) -> None:
        values = encode(Scipy.from_quat(quat), source)
        out = convert_rotation(values, source, target)
        assert out.dtype == np.float32 and out.shape == (ROTATION_DIMS[target],)
        # Within 1e-4 rad of gimbal lock euler_xyz gives up that much of yaw.
        slack = 2e-4 if "euler_xyz" in (source, target) else 2e-6
        assert turned_by(as_scipy(values, source), as_scipy(out, target)) < slack

    @pytest.mark.parametrize(("source", "target"), [p for p in PAIRS if p[1] != "gravity_xyz"])
    @settings(deadline=None, max_examples=40)
    @given(unit_quats())
    def test_round_trip(self, source: str, target: str, quat: Array) -> None:
        values = encode(Scipy.from_quat(quat), source)
        back = convert_rotation(convert_rotation(values, source, target), target, source)
        slack = 2e-4 if "euler_xyz" in (source, target) else 4e-6
        assert turned_by(as_scipy(values, source), as_scipy(back, source)) < slack

    @settings(deadline=None)
    @given(unit_quats())
    def test_numbers_are_scipys_away_from_the_choices(self, quat: Array) -> None:
        turn = Scipy.from_quat(quat)
        angle = turn.magnitude()
        assume(1e-3 < angle < math.pi - 1e-3)
        rot6d = encode(turn, "rot6d")
        near = {"rtol": 0, "atol": 2e-6}
        np.testing.assert_allclose(
            convert_rotation(rot6d, "rot6d", "axis_angle"), turn.as_rotvec(), **near
        )
        matrix = turn.as_matrix()
        if matrix.trace() > 1e-6:
            expected = turn.as_quat(canonical=True)
            np.testing.assert_allclose(
                convert_rotation(rot6d, "rot6d", "quat_xyzw"), expected, **near
            )
        if math.hypot(matrix[0, 0], matrix[1, 0]) > 1e-2:
            euler = convert_rotation(quat, "quat_xyzw", "euler_xyz")
            apart = euler - turn.as_euler("xyz")
            wrapped = np.arctan2(np.sin(apart), np.cos(apart))
            np.testing.assert_allclose(wrapped, 0, rtol=0, atol=2e-5)

    @settings(deadline=None)
    @given(unit_quats())
    def test_gravity_is_down_seen_from_the_body(self, quat: Array) -> None:
        out = convert_rotation(quat, "quat_xyzw", "gravity_xyz")
        expected = Scipy.from_quat(quat).inv().apply([0, 0, -1])
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-6)

    @pytest.mark.parametrize("encoding", SOURCES)
    @pytest.mark.parametrize("target", ["quat_xyzw", "rot6d", "axis_angle"])
    @settings(deadline=None, max_examples=30)
    @given(unit_quats(), unit_quats())
    def test_post_rotate_turns_the_bodys_own_axes(
        self, encoding: str, target: str, quat: Array, fixed: Array
    ) -> None:
        value = encode(Scipy.from_quat(fixed), encoding)
        out = convert_rotation(
            quat,
            "quat_xyzw",
            target,
            post_rotate=Rotation(encoding=encoding, value=tuple(value.tolist())),
        )
        expected = Scipy.from_quat(quat) * as_scipy(value, encoding)
        assert turned_by(expected, as_scipy(out, target)) < 4e-6


class TestQuaternions:
    @settings(deadline=None)
    @given(unit_quats())
    def test_antipodes_are_one_rotation_but_two_axis_angles(self, quat: Array) -> None:
        for target in ("rot6d", "rot6d_rowmajor", "euler_xyz", "gravity_xyz", "quat_wxyz"):
            np.testing.assert_array_equal(
                convert_rotation(quat, "quat_xyzw", target),
                convert_rotation(-quat, "quat_xyzw", target),
            )
        one = convert_rotation(quat, "quat_xyzw", "axis_angle")
        other = convert_rotation(-quat, "quat_xyzw", "axis_angle")
        angles = np.linalg.norm(one), np.linalg.norm(other)
        if np.linalg.norm(quat[:3]) > 1e-6:
            assert sum(angles) == pytest.approx(2 * math.pi, abs=1e-5)

    @settings(deadline=None)
    @given(unit_quats())
    def test_axis_angle_is_robosuites_for_either_sign_of_w(self, quat: Array) -> None:
        x, y, z, w = quat
        assume(abs(w) < 0.999)  # robosuite's acos loses digits towards 1
        factor = 2.0 * math.acos(w) / math.sqrt(1.0 - w * w)
        out = convert_rotation(quat, "quat_xyzw", "axis_angle")
        np.testing.assert_allclose(out, np.array([x, y, z]) * factor, rtol=0, atol=1e-5)

    def test_negative_w_gives_an_angle_above_pi(self) -> None:
        out = convert_rotation([0, 0, HALF, -HALF], "quat_xyzw", "axis_angle")
        np.testing.assert_allclose(out, [0, 0, 1.5 * math.pi], rtol=1e-6)
        via_matrix = convert_rotation([0, 1, 0, -1, 0, 0], "rot6d", "axis_angle")
        np.testing.assert_allclose(via_matrix, [0, 0, math.pi / 2], rtol=1e-6)

    @pytest.mark.parametrize("target", ["axis_angle", "rot6d", "quat_wxyz", "euler_xyz"])
    @settings(deadline=None)
    @given(unit_quats(), st.floats(1e-6, 1e6))
    def test_length_does_not_matter(self, target: str, quat: Array, length: float) -> None:
        out = convert_rotation(quat * length, "quat_xyzw", target)
        near = convert_rotation(quat, "quat_xyzw", target)
        if target == "axis_angle":
            assume(np.linalg.norm(quat[:3]) > 1e-7)
        if target == "euler_xyz":
            assume(np.abs(np.abs(near[1]) - math.pi / 2) > 1e-3)
            near = near + np.rint((out - near) / (2 * math.pi)) * 2 * math.pi
        if target == "quat_wxyz":
            out = out * np.sign(out @ near)
        np.testing.assert_allclose(out, near, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("size", [0.0, 1e-9, 5e-9])
    def test_zero_is_the_identity(self, size: float) -> None:
        for quat in ([size, 0, 0, 0], [0, 0, 0, -size], [0, size / 2, 0, size / 2]):
            assert not convert_rotation(quat, "quat_xyzw", "axis_angle").any()
            np.testing.assert_array_equal(
                convert_rotation(quat, "quat_xyzw", "rot6d"), [1, 0, 0, 0, 1, 0]
            )

    def test_same_encoding_copies(self) -> None:
        quat = np.array([0.0, 0.0, 3.0, -4.0], np.float32)
        out = convert_rotation(quat, "quat_xyzw", "quat_xyzw")
        np.testing.assert_array_equal(out, quat)
        assert not np.shares_memory(out, quat)
        gravity = [0.1, 0.2, -0.9]
        np.testing.assert_allclose(convert_rotation(gravity, "gravity_xyz", "gravity_xyz"), gravity)

    def test_order_is_only_moved(self) -> None:
        out = convert_rotation([0.5, 0.1, 0.7, 0.5], "quat_wxyz", "quat_xyzw")
        np.testing.assert_allclose(out, np.array([0.1, 0.7, 0.5, 0.5]) / 1.0, atol=1e-7)


class TestEdges:
    @settings(deadline=None)
    @given(unit_quats(), st.sampled_from([0.0, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3]))
    def test_small_angles_survive(self, axis: Array, angle: float) -> None:
        assume(np.linalg.norm(axis[:3]) > 1e-3)
        vector = axis[:3] / np.linalg.norm(axis[:3]) * angle
        for between in ("rot6d", "quat_xyzw"):
            back = convert_rotation(
                convert_rotation(vector, "axis_angle", between), between, "axis_angle"
            )
            np.testing.assert_allclose(back, vector, rtol=0, atol=1e-7)

    @settings(deadline=None)
    @given(unit_quats(), st.sampled_from([0.0, 1e-9, 1e-7, 1e-5, 1e-3, -1e-7, -1e-5]))
    def test_half_turns_keep_their_axis_up_to_sign(self, axis: Array, off: float) -> None:
        assume(np.linalg.norm(axis[:3]) > 1e-3)
        unit = axis[:3] / np.linalg.norm(axis[:3])
        out = convert_rotation(unit * (math.pi + off), "axis_angle", "rot6d")
        out = convert_rotation(out, "rot6d", "axis_angle").astype(np.float64)
        angle = np.linalg.norm(out)
        assert angle <= math.pi + 1e-6
        assert angle == pytest.approx(math.pi - abs(off), abs=2e-6)
        assert abs(out @ unit) / angle == pytest.approx(1.0, abs=1e-5)

    @settings(deadline=None)
    @given(
        st.floats(-3.1, 3.1), st.floats(-3.1, 3.1), st.sampled_from([1.0, -1.0]),
        st.sampled_from([0.0, 1e-8, 1e-6, 9e-5]),
    )  # fmt: skip
    def test_gimbal_lock_gives_all_the_turning_to_roll(
        self, roll: float, yaw: float, sign: float, off: float
    ) -> None:
        turn = Scipy.from_euler("xyz", [roll, sign * (math.pi / 2 - off), yaw])
        for source in ("quat_xyzw", "rot6d"):
            values = encode(turn, source)
            out = convert_rotation(values, source, "euler_xyz")
            assert out[2] == 0.0
            assert turned_by(turn, as_scipy(out, "euler_xyz")) < 2e-4

    def test_euler_is_extrinsic(self) -> None:
        roll, pitch, yaw = 0.3, -0.4, 0.5
        x = Scipy.from_euler("x", roll)
        y = Scipy.from_euler("y", pitch)
        z = Scipy.from_euler("z", yaw)
        out = convert_rotation([roll, pitch, yaw], "euler_xyz", "quat_xyzw")
        assert turned_by(z * y * x, Scipy.from_quat(out)) < 1e-6

    def test_rot6d_lists_columns_and_rowmajor_their_rows(self) -> None:
        turn = Scipy.from_euler("xyz", [0.3, -0.4, 0.5])
        matrix = turn.as_matrix()
        quat = turn.as_quat()
        columns = convert_rotation(quat, "quat_xyzw", "rot6d")
        np.testing.assert_allclose(columns, [*matrix[:, 0], *matrix[:, 1]], atol=1e-6)
        block = convert_rotation(quat, "quat_xyzw", "rot6d_rowmajor")
        np.testing.assert_allclose(block, matrix[:, :2].reshape(-1), atol=1e-6)

    @settings(deadline=None)
    @given(unit_quats(), st.floats(0.1, 10), st.floats(0.1, 10), st.floats(-3, 3))
    def test_rot6d_going_in_need_not_be_orthonormal(
        self, quat: Array, first: float, second: float, lean: float
    ) -> None:
        turn = Scipy.from_quat(quat)
        a, b = turn.as_matrix()[:, :2].T
        skewed = np.concatenate([a * first, b * second + a * lean])
        out = convert_rotation(skewed, "rot6d", "quat_xyzw")
        assert turned_by(turn, Scipy.from_quat(out)) < 2e-5

    @pytest.mark.parametrize("source", SOURCES)
    @pytest.mark.parametrize("target", ROTATION_DIMS)
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_what_is_not_finite_comes_out_as_nan(
        self, source: str, target: str, bad: float
    ) -> None:
        if source == target:
            return
        values = np.full((2, ROTATION_DIMS[source]), 0.5)
        values[1, -1] = bad
        out = convert_rotation(values, source, target)
        assert np.isfinite(out[0]).all() and np.isnan(out[1]).all()
        assert np.isnan(convert_rotation(values[1], source, target)).all()


class TestShapes:
    @pytest.mark.parametrize(("source", "target"), PAIRS)
    @settings(deadline=None, max_examples=20)
    @given(st.lists(unit_quats(), min_size=1, max_size=6))
    @example([np.array([0.0, 0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0, 0.0])])
    def test_many_at_once_are_each_by_itself(
        self, source: str, target: str, quats: list[Array]
    ) -> None:
        values = np.stack([encode(Scipy.from_quat(quat), source) for quat in quats])
        together = convert_rotation(values[None, :, None], source, target)
        assert together.shape == (1, len(quats), 1, ROTATION_DIMS[target])
        alone = np.stack([convert_rotation(row, source, target) for row in values])
        np.testing.assert_allclose(together[0, :, 0], alone, rtol=0, atol=1e-7)

    def test_no_rotations(self) -> None:
        assert convert_rotation(np.zeros((0, 4)), "quat_xyzw", "rot6d").shape == (0, 6)

    @pytest.mark.parametrize("values", [[0.0] * 3, [[0.0] * 5], 1.0, []])
    def test_wrong_length(self, values: Any) -> None:
        with pytest.raises(ValueError, match="expected 4-element quat_xyzw rotation, got shape"):
            convert_rotation(values, "quat_xyzw", "rot6d")

    def test_unknown_encodings_and_directions(self) -> None:
        with pytest.raises(ValueError, match="unknown rotation encoding 'quat'; expected one of"):
            convert_rotation([0, 0, 0, 1], "quat", "rot6d")
        with pytest.raises(ValueError, match="unknown rotation encoding 'euler'"):
            convert_rotation([0, 0, 0, 1], "quat_xyzw", "euler")
        with pytest.raises(ValueError, match='encoding "gravity_xyz" is a direction'):
            convert_rotation([0, 0, -1], "gravity_xyz", "rot6d")

    def test_integers_and_float32_go_in(self) -> None:
        for dtype in (np.int64, np.float32, np.float16):
            values = np.array([0, 0, 1, 0], dtype)
            np.testing.assert_allclose(
                convert_rotation(values, "quat_xyzw", "axis_angle"), [0, 0, math.pi], rtol=1e-6
            )


class TestAgainstThePublished:
    """Bit for bit would be luck; within float32's last digits, except where a sign is a tie."""

    @pytest.mark.parametrize(("source", "target"), PAIRS)
    def test_numbers(self, black_box: BlackBox, source: str, target: str) -> None:
        rng = np.random.default_rng(7)
        quats = rng.normal(size=(300, 4))
        turns = Scipy.from_quat(quats)
        if source == "axis_angle":
            values = rng.uniform(-5, 5, (300, 3))
        elif source == "euler_xyz":
            values = rng.uniform(-4, 4, (300, 3))
        elif source.startswith("quat"):
            values = quats
        else:
            values = np.stack([encode(turn, source) for turn in turns])
        values = values.astype(np.float32)
        published = black_box.rotation(values, source, target)
        ours = convert_rotation(values, source, target)
        # Roll and yaw share what they turn close to gimbal lock, and with it the last digits.
        atol = 1e-5 if target == "euler_xyz" else 2e-6
        np.testing.assert_allclose(ours, published, rtol=0, atol=atol)

    @pytest.mark.parametrize("source", ["quat_xyzw", "quat_wxyz"])
    @pytest.mark.parametrize("target", ROTATION_DIMS)
    def test_quarter_turns_half_turns_lock_and_zero(
        self, black_box: BlackBox, source: str, target: str
    ) -> None:
        corners = np.array(list(itertools.product([0, 1, -1], repeat=4)), np.float32)
        rng = np.random.default_rng(3)
        near = [corners + rng.normal(size=corners.shape) * e for e in (0, 1e-3, 1e-5, 1e-7)]
        values = np.concatenate(near).astype(np.float32)
        published = black_box.rotation(values, source, target)
        ours = convert_rotation(values, source, target)
        if target == "euler_xyz":  # -pi and pi are one angle
            ours = ours + np.rint((published - ours) / (2 * math.pi)) * 2 * math.pi
        np.testing.assert_allclose(ours, published, rtol=0, atol=2e-6)

    def test_gimbal_lock_begins_at_the_same_pitch(self, black_box: BlackBox) -> None:
        off = np.array([0.0, 1e-6, 5e-5, 9.9e-5, 1.01e-4, 2e-4, 1e-3])
        angles = np.stack([np.full(7, 0.3), math.pi / 2 - off, np.full(7, 0.5)], axis=1)
        values = np.stack([encode(turn, "rot6d") for turn in Scipy.from_euler("xyz", angles)])
        published = black_box.rotation(values, "rot6d", "euler_xyz")
        ours = convert_rotation(values, "rot6d", "euler_xyz")
        np.testing.assert_allclose(ours, published, rtol=0, atol=1e-5)
        np.testing.assert_array_equal(ours[:, 2] == 0, [True] * 4 + [False] * 3)

    @pytest.mark.parametrize("target", ["quat_xyzw", "axis_angle", "rot6d", "gravity_xyz"])
    def test_post_rotate(self, black_box: BlackBox, target: str) -> None:
        rng = np.random.default_rng(5)
        values = rng.normal(size=(50, 4)).astype(np.float32)
        for encoding in SOURCES:
            fixed = encode(Scipy.from_quat(rng.normal(size=4)), encoding)
            fixed = tuple(np.asarray(fixed, np.float32).tolist())
            published = black_box.rotation(
                values, "quat_xyzw", target, post_rotate=(encoding, fixed)
            )
            ours = convert_rotation(
                values, "quat_xyzw", target, post_rotate=Rotation(encoding=encoding, value=fixed)
            )
            np.testing.assert_allclose(ours, published, rtol=0, atol=4e-6)

    @pytest.mark.parametrize("source", ["rot6d", "axis_angle", "quat_wxyz", "euler_xyz"])
    def test_in_actions(self, black_box: BlackBox, source: str) -> None:
        turns = Scipy.from_quat(np.random.default_rng(9).normal(size=(40, 4)))
        values = np.stack([encode(turn, source) for turn in turns]).astype(np.float32)
        for target in SOURCES:
            published = black_box.ask(kind="action", values=values, source=source, target=target)
            ours = convert_rotation(values, source, target)
            np.testing.assert_allclose(ours, published, rtol=0, atol=2e-6)


def test_the_converter_is_looked_up_once() -> None:
    assert rotations.rotation_converter("quat_xyzw", "rot6d") is rotations.rotation_converter(
        "quat_xyzw", "rot6d"
    )
