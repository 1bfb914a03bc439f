"""Image steps taken elsewhere: two halves make the same pixels as the whole; hostile steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from building import camera, resolve, vector
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rlmesh.adapters as adapt
from rlmesh.adapters import Adapter, AdapterResolutionError
from rlmesh.adapters.frame_data import steps_from_data, steps_to_data
from rlmesh.adapters.pushdown import Unlike, frame_processor, pushable, pushed_down
from rlmesh.spaces import Box, Dict, Space
from rlmesh.values import ProcessedImage, leaf_spaces
from rlmesh.wire import messages
from rlmesh.wire.views import fill_images, read_images

WIDE = camera(12, 16)


def over_the_wire(images: tuple[ProcessedImage, ...]) -> tuple[ProcessedImage, ...]:
    message = messages.model.AdapterPlan()
    fill_images(message.images, images)
    return read_images(messages.model.AdapterPlan.FromString(message.SerializeToString()).images)


def in_two_halves(adapter: Adapter, space: Space, raw: Any) -> Any:
    """Return what the model is given when its first image steps are taken elsewhere."""
    images = over_the_wire(pushable(adapter.plan, space))
    leaves = list(leaf_spaces(space))
    sent = dict(raw)
    for image in images:
        (key,), leaf = leaves[image.leaf]
        sent[key] = frame_processor(image, leaf)(raw[key])
        assert sent[key].shape == image.shape
        assert sent[key].dtype == np.uint8
        assert math.prod(image.shape) < math.prod(leaf.shape)
    return Adapter(pushed_down(adapter.plan, space, images)).transform_obs(sent)


def sizes(most: int) -> st.SearchStrategy[int]:
    return st.integers(1, most)


@st.composite
def image_leaves(draw: st.DrawFn) -> adapt.Image:
    crop = draw(st.sampled_from([{}, {"crop": 0.5}, {"crop": 0.9}, {"crop_area": 0.7}]))
    normalize = draw(st.sampled_from([False, True, (-1.0, 1.0)]))
    stack = draw(st.integers(1, 3))
    return adapt.Image(
        adapt.IMAGE_PRIMARY,
        draw(st.none() | sizes(20)),
        draw(st.none() | sizes(20)),
        draw(st.sampled_from(["hwc", "chw"])),
        dtype="float32" if normalize else draw(st.sampled_from(["uint8", "float32"])),
        normalize=normalize,
        lead_dims=draw(st.integers(0, 2)),
        upside_down=draw(st.booleans()),
        resample=draw(st.sampled_from(["bilinear", "area", "bilinear_aa", "lanczos3_aa"])),
        allow_upscale=draw(st.booleans()),
        fit=draw(st.sampled_from(["stretch", "crop", "pad"])),
        stack=stack,
        crop_mode=draw(st.sampled_from(["zoom", "slice"])),
        jpeg_quality=draw(st.none() | st.integers(1, 100)),
        channel_order=draw(st.sampled_from(["rgb", "bgr"])),
        **crop,
    )


@settings(max_examples=300, deadline=None)
@given(
    st.lists(image_leaves(), min_size=1, max_size=2),
    sizes(24),
    sizes(24),
    st.sampled_from(["hwc", "chw"]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_two_halves_make_a_whole(
    leaves: list[adapt.Image], height: int, width: int, layout: Any, turned: bool, seed: int
) -> None:
    shape = (height, width, 3) if layout == "hwc" else (3, height, width)
    space = Dict({"rgb": Box(0, 255, shape, "uint8"), "s": vector(2)})
    tag = adapt.ImageTag(adapt.IMAGE_PRIMARY, layout, turned)
    inputs = {f"x{i}": leaf for i, leaf in enumerate(leaves)}
    try:
        adapter = resolve({"rgb": tag, "s": adapt.StateTag(adapt.JOINT_POS)}, space, inputs)
    except AdapterResolutionError:
        assume(False)
        raise
    rng = np.random.default_rng(seed)
    for _ in range(2):
        raw = {"rgb": rng.integers(0, 256, shape, np.uint8), "s": np.zeros(2, np.float32)}
        kept = {key: np.array(value) for key, value in raw.items()}
        whole = Adapter(adapter.plan).transform_obs(raw)
        halves = in_two_halves(adapter, space, raw)
        assert whole.keys() == halves.keys()
        for key, value in whole.items():
            assert value.dtype == halves[key].dtype
            np.testing.assert_array_equal(value, halves[key])
        assert all(np.array_equal(raw[key], kept[key]) for key in raw)


def names(adapter: Adapter, space: Space) -> dict[int, list[str]]:
    return {i.leaf: [s["step"] for s in i.steps] for i in pushable(adapter.plan, space)}


def test_what_is_pushed_down_is_what_makes_a_camera_smaller() -> None:
    tag = adapt.ImageTag(adapt.IMAGE_PRIMARY, "chw", True)
    space = Dict({"rgb": Box(0, 255, (3, 12, 16), "uint8"), "z": vector(1)})

    def steps(**fields: Any) -> list[str]:
        adapter = resolve({"rgb": tag}, space, {"x": adapt.Image(adapt.IMAGE_PRIMARY, **fields)})
        return names(adapter, space).get(0, [])

    small = {"height": 6, "width": 8}
    assert steps(**small) == ["to_hwc", "flip_180", "resize"]
    # What comes after the smallest frame is the model's own to do.
    assert steps(**small, channel_order="bgr", normalize=True, dtype="float32") == [
        "to_hwc",
        "flip_180",
        "resize",
    ]
    assert steps(**small, jpeg_quality=90, upside_down=True) == ["to_hwc", "jpeg", "resize"]
    assert steps(crop=0.5, crop_mode="slice", height=12, width=16, allow_upscale=True) == [
        "to_hwc",
        "flip_180",
        "crop",
    ]
    assert steps(crop=0.5, height=6, width=8) == ["to_hwc", "flip_180", "zoom"]
    assert steps() == []
    assert steps(height=24, width=32, allow_upscale=True) == []
    assert steps(render=(12, 16), **small) == ["to_hwc", "flip_180", "resize"]


def test_nothing_is_pushed_down_that_somebody_wants_as_it_is() -> None:
    space = Dict({"a": WIDE, "b": WIDE, "f": Box(0, 1, (12, 16, 3))})
    tags = {
        "a": adapt.ImageTag(adapt.IMAGE_PRIMARY),
        "b": adapt.ImageTag(adapt.IMAGE_WRIST),
        "f": adapt.ImageTag("x/floats"),
    }

    def found(**inputs: Any) -> dict[int, list[str]]:
        return names(resolve(tags, space, inputs), space)

    def image(role: str, **fields: Any) -> adapt.Image:
        return adapt.Image(role, **fields)

    small = image(adapt.IMAGE_PRIMARY, height=6, width=8)
    assert found(x=small) == {0: ["resize"]}
    assert found(x=small, y=image(adapt.IMAGE_WRIST, size=4, fit="stretch")) == {
        0: ["resize"],
        1: ["resize"],
    }
    assert found(x=small, y=image(adapt.IMAGE_PRIMARY)) == {}
    assert found(x=small, y=image(adapt.IMAGE_PRIMARY, height=3, width=4)) == {}
    assert found(x=small, y=replace(small, stack=2, layout="chw")) == {0: ["resize"]}
    assert found(x=small, y=adapt.Custom(lambda raw: raw["b"])) == {}
    assert found(x=image("x/floats", height=6, width=8)) == {}


def test_a_plan_takes_over_only_where_it_would_have_gone_on() -> None:
    space = Dict({"rgb": WIDE, "s": vector(2)})
    tags = {"rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY), "s": adapt.StateTag(adapt.JOINT_POS)}
    image = adapt.Image(adapt.IMAGE_PRIMARY, height=6, width=8)
    plan = resolve(tags, space, {"x": image}).plan
    other = resolve(tags, space, {"x": replace(image, upside_down=True)}).plan
    (offer,) = pushable(plan, space)
    with pytest.raises(ValueError, match=r"leaf 0 is processed by .*resize.*flip_180"):
        pushed_down(other, space, [offer])
    with pytest.raises(ValueError, match="leaf 1 is processed, but the plan reads no image there"):
        pushed_down(plan, space, [replace(offer, leaf=1)])
    with pytest.raises(ValueError, match=r"expected shape \[6, 8, 3\]"):
        Adapter(pushed_down(plan, space, [offer])).transform_obs(
            {"rgb": np.zeros((12, 16, 3), np.uint8), "s": np.zeros(2)}
        )


RESIZE = {"step": "resize", "height": 6, "width": 8, "resample": "bilinear", "fit": "stretch"}
ZOOM = {**RESIZE, "step": "zoom", "fraction": 0.5}
HOSTILE: list[Any] = [
    [],
    [{"step": "flip_180"}] * 17,
    [{"step": "eval", "code": "1"}],
    [{"step": "__class__"}],
    [{"step": 3}],
    [{"step": ["resize"]}],
    [{"step": np.arange(3)}],
    [{}],
    [{"step": "resize"}],
    [{**RESIZE, "extra": 1}],
    [{**RESIZE, "height": 0}],
    [{**RESIZE, "height": -6}],
    [{**RESIZE, "height": 6.0}],
    [{**RESIZE, "height": True}],
    [{**RESIZE, "height": "6"}],
    [{**RESIZE, "height": None}],
    [{**RESIZE, "height": 10**30}],
    [{**RESIZE, "height": 60000, "width": 60000}],
    [{**RESIZE, "height": 13, "width": 16}],
    [{**RESIZE, "height": 1, "width": 190, "fit": "crop"}],  # 143x190 on the way
    [{**RESIZE, "height": 1, "width": 65536, "fit": "crop"}],
    [{**RESIZE, "resample": "nearest"}],
    [{**RESIZE, "resample": ["bilinear"]}],
    [{**RESIZE, "fit": "squeeze"}],
    [{**RESIZE, "fit": {}}],
    [{**ZOOM, "fraction": 0.0}],
    [{**ZOOM, "fraction": 5e-324}],
    [{**ZOOM, "fraction": 1.5}],
    [{**ZOOM, "fraction": math.nan}],
    [{**ZOOM, "fraction": "0.5"}],
    [{**ZOOM, "fraction": 0.001, "width": 160, "height": 1, "fit": "crop"}],
    [{"step": "crop", "fraction": True}],
    [{"step": "jpeg", "quality": 0}],
    [{"step": "jpeg", "quality": 101}],
    [{"step": "flip_180"}, {"step": "to_hwc"}],
]


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_data_that_is_no_step_is_refused(data: list[Any]) -> None:
    with pytest.raises(ValueError, match="step"):
        steps_from_data(data, (12, 16, 3))
    image = ProcessedImage(0, (6, 8, 3), tuple(data), {}, b"")
    with pytest.raises(ValueError, match="leaf 0"):
        frame_processor(image, WIDE)


@pytest.mark.parametrize("step", [{"step": "jpeg", "quality": 5}, {"step": "bgr"}])
def test_colour_needs_colours(step: Any) -> None:
    with pytest.raises(ValueError, match="3 channels, got 1"):
        steps_from_data([step], (12, 16, 1))


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "step": st.sampled_from(["resize", "zoom", "crop", "jpeg", "bgr", "to_hwc"]) | JUNK,
        "height": st.integers(-2, 70000) | JUNK,
        "width": st.integers(-2, 70000) | JUNK,
        "fraction": st.floats(-0.1, 1.1) | JUNK,
        "quality": st.integers(-1, 101) | JUNK,
        "resample": st.sampled_from(["bilinear", "area", "bilinear_aa"]) | JUNK,
        "fit": st.sampled_from(["stretch", "crop", "pad"]) | JUNK,
    },
)


@settings(max_examples=500, deadline=None)
@given(st.lists(ARGUMENTS, max_size=4))
def test_whatever_is_sent_is_a_step_or_refused(data: list[Any]) -> None:
    """And a step never makes a frame that is larger than the camera's."""
    try:
        steps = steps_from_data(data, (12, 16, 3))
    except ValueError:
        return
    frame = np.random.default_rng(0).integers(0, 256, (12, 16, 3), np.uint8)
    for step in steps:
        frame = step.apply(frame)
        assert frame.nbytes <= 12 * 16 * 3
        assert frame.dtype == np.uint8
    assert list(steps_to_data(steps)) == data


@pytest.mark.parametrize(
    "space", [Box(0, 1, (12, 16, 3)), vector(3), Box(0, 255, (12, 16), "uint8"), Dict({})]
)
def test_only_a_camera_is_processed(space: Space) -> None:
    image = ProcessedImage(4, (6, 8, 3), (RESIZE,), {}, b"")
    with pytest.raises(ValueError, match="leaf 4: expected a uint8 image of 3 axes"):
        frame_processor(image, space)


def test_the_shape_is_what_the_steps_make() -> None:
    with pytest.raises(ValueError, match=r"make a frame of shape \[6, 8, 3\], not \[5, 8, 3\]"):
        frame_processor(ProcessedImage(0, (5, 8, 3), (RESIZE,), {}, b""), WIDE)


def test_other_libraries_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    space = Dict({"rgb": WIDE})
    tags = {"rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY)}
    adapter = resolve(tags, space, {"x": adapt.Image(adapt.IMAGE_PRIMARY, height=6, width=8)})
    (image,) = pushable(adapter.plan, space)
    assert list(image.libraries) == ["OpenCV"]
    with pytest.raises(Unlike, match=r"its OpenCV is .*, the model's 3\.2"):
        frame_processor(replace(image, libraries={"OpenCV": "3.2"}), WIDE)
    with pytest.raises(Unlike, match="the model's unknown"):
        frame_processor(replace(image, libraries={}), WIDE)
    with pytest.raises(Unlike, match="other pixels of a test frame"):
        frame_processor(replace(image, digest=b"?" * 32), WIDE)
    assert frame_processor(image, WIDE)(np.zeros((12, 16, 3), np.uint8)).shape == (6, 8, 3)


def test_moving_pixels_needs_no_library() -> None:
    space = Dict({"rgb": WIDE})
    tags = {"rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY, upside_down=True)}
    leaf = adapt.Image(adapt.IMAGE_PRIMARY, crop=0.5, crop_mode="slice")
    (image,) = pushable(resolve(tags, space, {"x": leaf}).plan, space)
    assert [step["step"] for step in image.steps] == ["flip_180", "crop"]
    assert image.libraries == {}
