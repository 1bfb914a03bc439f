"""18.9 and 18.10: what a person is told. Most texts are in the case table, beside what is done."""

from __future__ import annotations

from typing import Any

import pytest
from building import JOINTS, camera, joints, resolve, resolve_image, resolve_state, vector

import rlmesh.adapters as adapt
from rlmesh.spaces import Box, Dict
from rlmesh.spaces import Text as TextSpace

GRIPPER = adapt.ACTION_GRIPPER


def lines(adapter: adapt.Adapter) -> list[str]:
    return adapter.explain().splitlines()


def test_the_example_of_a_whole_adapter() -> None:
    adapter = resolve(
        {
            "rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY, upside_down=True),
            "pos": adapt.StateTag(adapt.EEF_POS),
            "q": adapt.StateTag(adapt.EEF_ROT, "quat_xyzw"),
            "grip": adapt.StateTag(adapt.GRIPPER_POS, range=(0, 0.08)),
            "goal": adapt.TextTag(adapt.INSTRUCTION),
        },
        Dict(
            {
                "rgb": camera(48, 64),
                "pos": vector(3),
                "q": vector(4),
                "grip": vector(1),
                "goal": TextSpace(9),
            }
        ),
        {
            "image": adapt.Image(
                adapt.IMAGE_PRIMARY,
                size=32,
                fit="stretch",
                normalize=True,
                dtype="float32",
                layout="chw",
            ),
            "state": adapt.Concat(
                adapt.EEF_POS,
                adapt.State(adapt.EEF_ROT, "rot6d"),
                adapt.State(adapt.GRIPPER_POS, range=(-1, 1)),
                adapt.Constant(dim=2, fill=0.5),
                pad_to=16,
            ),
            "task": adapt.Text(adapt.INSTRUCTION),
        },
        env=adapt.Action(
            adapt.Actuator(adapt.ACTION_DELTA_POS, 3),
            adapt.Actuator(GRIPPER, 1, range=(-1, 1), invert=True, binary=True),
            adapt.Actuator(None, 2, fill=0.5),
            adapt.Actuator("action/x", 2, optional=True, fill=0.1),
            clip=(-1, 1),
        ),
        model=adapt.Action(
            adapt.Actuator(adapt.ACTION_DELTA_POS, 3), adapt.Actuator(GRIPPER, 1, range=(0, 1))
        ),
    )
    assert lines(adapter) == [
        "observation:",
        '  "image" <- image "rgb" (flip 180, resize 32x32 (bilinear), normalize /255, float32, '
        "hwc->chw)",
        '  "state" <- concat(pos, q (quat_xyzw->rot6d), grip (range (0.0, 0.08)->(-1.0, 1.0)), '
        "const(2)=0.5), pad to 16",
        '  "task" <- text "goal"',
        "action:",
        '  "action/delta_eef_pos" <- model[0:3]',
        '  "action/gripper" <- model[3:4] (range (0.0, 1.0)->(-1.0, 1.0)) (invert) (sign)',
        "  (opaque 2d) <- fill 0.5",
        '  "action/x" <- fill 0.1 (2d; model did not output this optional role)',
        "  clip to (-1.0, 1.0)",
    ]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"jpeg_quality": 95}, "(jpeg q95, uint8)"),
        ({"crop": 0.667, "height": 4, "width": 6, "fit": "crop"}, "(zoom 0.667, resize 4x6 (bi"),
        (
            {"crop_area": 0.9, "crop_mode": "slice"},
            "(crop 0.949 (slice) (crop 90.0% area) -> 46x61, uint8)",
        ),
        ({"channel_order": "bgr"}, "(bgr, uint8)"),
        ({"render": (48, 64)}, "(render 48x64, uint8)"),
        ({"normalize": (-1, 1), "dtype": "float32"}, "(normalize [-1, 1], float32)"),
        ({"lead_dims": 2}, "(uint8, +2 lead dims)"),
        (
            {"stack": 4, "stride": 2, "stack_pad": "black"},
            "(uint8, stack 4 @[-6,-4,-2,0], pad black)",
        ),
        ({"stack": 3}, "(uint8, stack 3)"),
    ],
)
def test_pieces_of_an_image(fields: dict[str, Any], text: str) -> None:
    adapter = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, **fields), camera(48, 64))
    assert text in lines(adapter)[1]


def test_every_conversion_of_an_action_is_printed_in_its_order() -> None:
    env = adapt.Action(
        adapt.Actuator(
            GRIPPER,
            2,
            range=(0, 1),
            scale=[1, 2],
            offset=0.5,
            invert=True,
            threshold=0.25,
            binary=True,
            clip=True,
            frame="world",
            part="arm",
            labels=["l", "r"],
        )
    )
    model = adapt.Action(
        adapt.Actuator(
            GRIPPER,
            2,
            range=(-1, 1),
            scale=2.0,
            offset=[3, 4],
            invert=True,
            threshold=0.5,
            reference="current",
            part="arm",
            labels=["r", "l"],
        )
    )
    adapter = resolve_state(adapt.StateTag("x/a"), 1, adapt.State("x/a"), env=env, model=model)
    assert lines(adapter)[-1] == (
        '  "action/gripper" <- model[0:2] (range (-1.0, 1.0)->(0.0, 1.0))'
        " (model *2.0 +[r:3.0,l:4.0]) (model invert) (model -0.5) perm[1,0]"
        " (*[l:1.0,r:2.0]) (+0.5) (invert) (-0.25) (sign) clip[0.0,1.0]@world~current#arm"
    )
    # The same by hand, for a model that says r = 0.2, l = -0.8.
    right, left = (0.2 + 1) / 2, (-0.8 + 1) / 2
    right, left = -(right * 2 + 3) - 0.5, -(left * 2 + 4) - 0.5
    left, right = -(left * 1 + 0.5) - 0.25, -(right * 2 + 0.5) - 0.25
    signs = [1.0 if value >= 0 else 0.0 for value in (left, right)]
    assert adapter.transform_action([0.2, -0.8]).tolist() == signs


def test_leaves_are_sorted_by_name() -> None:
    adapter = resolve(
        {"z": adapt.StateTag("x/z"), "a": adapt.StateTag("x/a")},
        Dict({"z": vector(1), "a": vector(1)}),
        {"z": adapt.State("x/z"), "b": {"y": adapt.State("x/a")}, "a": (adapt.State("x/a"),)},
    )
    names = [line.split('"')[1] for line in lines(adapter)[1:4]]
    assert names == ["a[0]", "b.y", "z"]


@pytest.mark.parametrize(
    ("adapter", "found"),
    [
        (
            lambda: resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, size=4, fit="pad")),
            [("info", "pad-adds-borders")],
        ),
        (
            lambda: resolve_image(
                adapt.Image(adapt.IMAGE_WRIST, height=1, width=1, channels=3, optional=True, fill=7)
            ),
            [("caution", "blank-camera")],
        ),
        (
            lambda: resolve_image(
                adapt.Image(adapt.IMAGE_PRIMARY), Box("-inf", "inf", (2, 2, 3), "float32")
            ),
            [("caution", "unknown-pixel-range")],
        ),
        (
            lambda: resolve_image(
                adapt.Image(adapt.IMAGE_PRIMARY), Box(0, 1000, (2, 2, 1), "int32")
            ),
            [("caution", "unknown-pixel-range")],
        ),
        (
            lambda: resolve_state(
                adapt.StateTag("x/a", part="head"), 2, adapt.State("x/a", frame="tool")
            ),
            [("info", "lone-part"), ("caution", "unverified-frame")],
        ),
        (
            lambda: resolve_state(
                adapt.StateTag("x/a"),
                2,
                adapt.Concat("x/a", adapt.State("x/b", dim=1, optional=True)),
            ),
            [("caution", "filled-state")],
        ),
        (
            lambda: resolve_state(
                adapt.StateTag("x/a"),
                2,
                adapt.State("x/a", provenance=["sensed", "estimated"]),
                model=joints(reference="current"),
            ),
            [("caution", "unverified-provenance"), ("caution", "unverified-reference")],
        ),
        (
            lambda: resolve_state(
                adapt.StateTag("x/a"),
                2,
                adapt.State("x/a"),
                env=adapt.Action(*JOINTS.components, adapt.Actuator("x/b", 1, optional=True)),
            ),
            [("caution", "filled-action")],
        ),
        (
            lambda: resolve_state(
                adapt.StateTag(adapt.EEF_ROT, "quat_xyzw", (-1, 1)),
                4,
                adapt.State(adapt.EEF_ROT, "rot6d", range=(0, 1)),
            ),
            [("caution", "range-after-rotation")],
        ),
        (
            lambda: resolve_state(adapt.StateTag("height"), 1, adapt.State("height")),
            [("info", "unregistered-role")],
        ),
    ],
)
def test_ADW_1_ADW_2_advisories(adapter: Any, found: list[tuple[str, str]]) -> None:
    assert [(item.severity, item.code) for item in adapter().advisories()] == found


def test_ADW_4_what_the_other_side_lacks_is_listed_as_dropped() -> None:
    adapter = resolve(
        {"a": adapt.StateTag("x/a"), "b": adapt.StateTag("height")},
        Dict({"a": vector(1), "b": vector(1)}),
        adapt.Concat("x/a", adapt.State("speed", dim=1, optional=True)),
        model=adapt.Action(*JOINTS.components, adapt.Actuator("wave", 1)),
    )
    text = adapter.explain()
    dropped = text[text.index("dropped:") :].splitlines()
    assert [line.split('"')[1] for line in dropped[1:]] == ["speed", "wave", "height"]
    assert "model declares ad-hoc role" in dropped[1] and "env declares" in dropped[3]
    private = resolve(
        {"a": adapt.StateTag("x/a"), "b": adapt.StateTag("x/b")},
        Dict({"a": vector(1), "b": vector(1)}),
        adapt.Concat("x/a", adapt.State("x/c", dim=1, optional=True)),
    )
    assert "dropped:" not in private.explain()


def test_ADW_5_advisories_are_data() -> None:
    advisory = adapt.Advisory("caution", "look here", "a-code")
    assert str(advisory) == "look here" and advisory == adapt.Advisory(
        "caution", "look here", "a-code"
    )
    assert len({advisory, advisory}) == 1
