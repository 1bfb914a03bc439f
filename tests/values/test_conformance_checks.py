"""Which values break their space, what that does, and what is never looked at."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spaces.space_strategies import FLOATS, boxes
from support.trees import received

from rlmesh.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from rlmesh.values import Codec, Policy, compile_codec

SIZES = [3, 100]  # below and above where checking goes over to NumPy
POLICIES = list(Policy)


class Reports:
    """Collects what is let through."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str, str]] = []

    def __call__(self, kind: str, path: str, detail: Callable[[], str]) -> None:
        self.notes.append((kind, path, detail()))


def encoder(space: Space, policy: Policy, name: str = "observation") -> tuple[Codec, Reports]:
    reports = Reports()
    return compile_codec(space, name, policy=policy, report=reports), reports


def decoder(space: Space, policy: Policy, name: str = "action") -> tuple[Codec, Reports]:
    reports = Reports()
    return compile_codec(space, name, policy=policy, report=reports, decode_checked=True), reports


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bounds", [(-1, 1), (0, math.inf), (-math.inf, math.inf), "elementwise"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_action_is_finite_whatever_the_policy(
    policy: Policy, dtype: str, size: int, bounds: Any, bad: float
) -> None:
    """CNF-1, issue 2: NaN and infinities in an action are refused with key and index."""
    if bounds == "elementwise":
        high = np.full(size, np.inf)
        high[0] = 1
        bounds = (np.full(size, -np.inf), high)
    space = Dict({"arm": Box(*bounds, (size,), dtype)})
    value = np.zeros(size, dtype)
    value[2] = bad
    for codec, use in (
        (encoder(space, policy, "action")[0], lambda c: c.encode({"arm": value})),
        (decoder(space, policy)[0], lambda c: c.decode([memoryview(value.tobytes())])),
    ):
        with pytest.raises(ValueError) as caught:
            use(codec)
        message = str(caught.value)
        assert f"action['arm'][2]: expected finite {dtype}" in message
        assert f"got {bad}" in message


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("size", SIZES)
def test_a_batched_action_names_lane_and_index(policy: Policy, size: int) -> None:
    """Issue 2: refused with lane, key and index, in both forms of a batch."""
    space = Dict({"arm": Box(-1.0, 1.0, (size,))})
    codec, _ = encoder(space, policy, "action")
    rows = [{"arm": np.zeros(size, np.float32)} for _ in range(3)]
    rows[1]["arm"][2] = math.nan
    tree = {"arm": np.stack([row["arm"] for row in rows])}
    for batch in (rows, tree):
        with pytest.raises(ValueError, match=r"action\['arm'\]\[2\] of lane 1: expected finite"):
            codec.encode_batch(batch, 3)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", SIZES)
def test_an_observation_holds_no_nan_whatever_the_policy(
    policy: Policy, dtype: str, size: int
) -> None:
    """CNF-1: any NaN is refused; infinities are a matter of the bounds."""
    value = np.zeros(size, dtype)
    value[1] = math.nan
    for low, high in ((-1, 1), (-math.inf, math.inf)):
        codec, reports = encoder(Box(low, high, (size,), dtype), policy)
        with pytest.raises(ValueError, match=r"observation\[1\]: expected float.* without NaN"):
            codec.encode(value)
        assert not reports.notes
    value[1] = math.inf
    codec, reports = encoder(Box(-math.inf, math.inf, (size,), dtype), policy)
    codec.encode(value)
    assert not reports.notes


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("kind", ["uniform", "elementwise"])
def test_out_of_range_follows_the_policy(size: int, dtype: str, kind: str) -> None:
    """CNF-2: warn delivers and reports, strict refuses, off looks away."""
    high = np.full(size, 5)
    if kind == "elementwise":
        high[0] = 9
    space = Tuple([Box(np.full(size, 1), high, (size,), dtype)])
    value = np.full(size, 3, dtype)
    value[2] = 6
    words = "observation[0][2]: 6"
    codec, reports = encoder(space, Policy.WARN)
    (leaf,) = codec.encode((value,))
    assert leaf.tobytes() == value.tobytes()
    ((kind_, path, detail),) = reports.notes
    assert (kind_, path) == ("range", "observation[0]")
    assert words in detail and repr(space.spaces[0]) in detail
    codec, reports = encoder(space, Policy.STRICT)
    with pytest.raises(ValueError) as caught:
        codec.encode((value,))
    assert words in str(caught.value) and "RLMESH_VALIDATION_POLICY=warn" in str(caught.value)
    codec, reports = encoder(space, Policy.OFF)
    codec.encode((value,))
    assert not reports.notes


def test_bounds_themselves_are_inside() -> None:
    """CNF-2: intervals are closed, and float32 bounds are compared as float32."""
    space = Box(-0.1, 0.1, (4,), "float32")
    codec, reports = encoder(space, Policy.STRICT)
    edge = np.float32(0.1)
    codec.encode(np.array([edge, -edge, 0, edge], np.float32))
    with pytest.raises(ValueError, match=r"observation\[3\]"):
        codec.encode(np.array([edge, -edge, 0, np.nextafter(edge, np.float32(1))], np.float32))
    assert not reports.notes


@settings(max_examples=200, deadline=None)
@given(boxes(), st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_checks_agree_with_the_space(space: Box, seed: int, lanes: int) -> None:
    """CNF-2: strict refuses exactly the numbers that are no members of the space."""
    rng = np.random.default_rng(seed)
    shape = (lanes, *space.shape)
    if space.np_dtype.kind == "f":
        value = rng.normal(scale=10.0 ** rng.integers(-2, 4), size=shape).astype(space.np_dtype)
    else:
        value = rng.integers(0, 256, size=(*shape, space.np_dtype.itemsize), dtype=np.uint8)
        value = value.view(space.np_dtype).reshape(shape)
        if space.np_dtype == np.bool_:
            value = rng.integers(0, 2, shape).astype(np.bool_)
    # A bool box is never out of range.
    member = space.np_dtype == np.bool_ or all(space.contains(row) for row in value)
    codec, _ = encoder(space, Policy.STRICT)
    if member:
        codec.encode_batch(value, lanes)
    else:
        with pytest.raises(ValueError, match="is outside"):
            codec.encode_batch(value, lanes)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("space", "value", "words"),
    [
        (Discrete(3), 3, "action: expected an element of Discrete(3) (0..2), got 3"),
        (Discrete(3), -1, "got -1"),
        (Discrete(3, start=-2), -3, "(-2..0), got -3"),
        (Discrete(3, dtype="uint8"), 9, "got 9"),
        (
            MultiDiscrete([3, 4]),
            np.array([2, 4]),
            "MultiDiscrete([3, 4]) (0 <= value < nvec), got 4",
        ),
        (MultiDiscrete([[3], [4]]), np.array([[-1], [0]]), "action[0, 0]: "),
        (MultiDiscrete([5] * 40), np.full(40, 5), "action[0]: "),
        (MultiBinary(3), np.array([0, 2, 1], np.uint8), "action[1]: "),
        (MultiBinary(30, "int8"), np.full(30, -1, np.int8), "got -1"),
    ],
)
def test_domains_are_kept_whatever_the_policy(
    policy: Policy, space: Space, value: Any, words: str
) -> None:
    """CNF-1: an element outside its domain is structural: refused on both sides."""
    codec, _ = encoder(space, policy, "action")
    with pytest.raises(ValueError) as caught:
        codec.encode(value)
    assert words in str(caught.value)
    unchecked = compile_codec(space, "action", encode_checked=False)
    receiver, _ = decoder(space, policy)
    with pytest.raises(ValueError) as caught:
        receiver.decode(received(unchecked.encode(value)))
    assert words in str(caught.value)
    with pytest.raises(ValueError, match="of lane 1"):
        good = space.sample()
        receiver.decode_batch(received(unchecked.encode_rows([good, value])), 2)


def test_text_follows_the_policy() -> None:
    """CNF-2: charset and length are range checks."""
    space = Dict({"task": Text(4, charset="ab")})
    for bad in ("abc", "aaaaa", ""):
        codec, reports = encoder(space, Policy.WARN)
        codec.encode({"task": bad})
        ((kind, path, detail),) = reports.notes
        assert (kind, path) == ("range", "observation['task']") and repr(bad) in detail
        codec, _ = encoder(space, Policy.STRICT)
        with pytest.raises(
            ValueError, match=r"observation\['task'\] of lane 1: .* is outside Text"
        ):
            codec.encode_rows([{"task": "ab"}, {"task": bad}])
        codec, reports = encoder(space, Policy.OFF)
        codec.encode({"task": bad})
        assert not reports.notes
        receiver, _ = decoder(space, Policy.STRICT)
        loose = compile_codec(space, "action", policy=Policy.OFF)
        with pytest.raises(ValueError, match=r"action\['task'\]: "):
            receiver.decode(received(loose.encode({"task": bad})))


@pytest.mark.parametrize("space", [Box(0, 1, (3,), "bool"), MultiBinary(3, "bool")])
def test_bools_off_the_wire_are_zero_or_one(space: Space) -> None:
    """wire.md section 5: one byte per element, 0 or 1; NumPy trusts the bytes of a bool."""
    codec, _ = decoder(space, Policy.WARN)
    assert codec.decode([memoryview(b"\0\1\0")]).tolist() == [False, True, False]
    with pytest.raises(ValueError, match="action: expected the bytes 0 and 1 of a bool, got 2"):
        codec.decode([memoryview(b"\0\1\2")])


@pytest.mark.parametrize("policy", [Policy.WARN, Policy.STRICT])
@pytest.mark.parametrize(
    "space",
    [
        Box(0, 255, (2, 2, 3), "uint8"),
        Box(-128, 127, (2,), "int8"),
        Box("-inf", "inf", (2,), "int64"),
        Box("-inf", "inf", (2,), "uint16"),
        Box(0, 1, (2,), "bool"),
        MultiBinary(4, "bool"),
    ],
)
def test_what_the_dtype_implies_is_not_checked(space: Space, policy: Policy) -> None:
    """Issue 2, design section 3: an image cannot be out of bounds, so nothing looks at it."""
    from rlmesh.values.conformance import compile_check

    check = compile_check(space, "observation", policy=policy, report=Reports(), finite=True)  # type: ignore[arg-type]
    assert check is None


def test_what_the_server_let_through_is_not_judged_again() -> None:
    """CNF-2: bounds are the serving side's business; a decoder checks nothing unless asked."""
    reports = Reports()
    codec = compile_codec(
        Box(0, 1, (2,)), "observation", policy=Policy.STRICT, report=reports, encode_checked=False
    )
    assert codec.decode(received(codec.encode([5, -5]))).tolist() == [5, -5]
    assert codec.decode_batch(received(codec.encode_rows([[5, 0]])), 1).tolist() == [[5, 0]]
    assert not reports.notes


def test_the_report_is_worded_only_for_who_listens() -> None:
    """A simulator that leaves its bounds at every step pays for the words once."""
    worded: list[str] = []
    heard: list[str] = []

    def report(kind: str, path: str, detail: Callable[[], str]) -> None:
        heard.append(path)
        if not worded:
            worded.append(detail())

    codec = compile_codec(Box(0, 1, (2,)), "observation", report=report)
    for _ in range(3):
        codec.encode([2, 2])
    assert len(heard) == 3 and len(worded) == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, Policy.WARN),
        ("", Policy.WARN),
        ("warn", Policy.WARN),
        ("STRICT", Policy.STRICT),
        (" off ", Policy.OFF),
        ("nonsense", Policy.WARN),
    ],
)
def test_the_policy_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: Policy
) -> None:
    """CNF-2: ``strict`` and ``off``; anything else is ``warn``."""
    monkeypatch.delenv("RLMESH_VALIDATION_POLICY", raising=False)
    if value is not None:
        monkeypatch.setenv("RLMESH_VALIDATION_POLICY", value)
    assert Policy.from_environment() is expected
