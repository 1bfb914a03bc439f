"""Section 17: observations read by role."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from building import JOINTS, camera, vector

import rlmesh.adapters as adapt
from rlmesh.adapters.readers import frame_sources, observation_roles, reader
from rlmesh.spaces import Dict
from rlmesh.spaces import Text as TextSpace
from rlmesh.values import NATIVE

TAGS = adapt.EnvTags(
    {
        "rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY, "chw", upside_down=True),
        "s": adapt.Split(
            adapt.Field(adapt.EEF_POS, 3),
            adapt.Field(adapt.EEF_ROT, 4, "quat_xyzw"),
            adapt.Field(adapt.GRIPPER_POS, 1, part="left_arm"),
        ),
        "q": adapt.StateTag(adapt.JOINT_POS),
        "t": adapt.TextTag(adapt.INSTRUCTION),
        "a": adapt.StateTag("x/two", part="left_arm"),
        "b": adapt.StateTag("x/two", part="right_arm"),
    },
    JOINTS,
)
SPACE = Dict(
    {
        "rgb": camera(3, 2, 4),
        "s": vector(8),
        "q": vector(2),
        "t": TextSpace(9),
        "a": vector(1),
        "b": vector(1),
    }
)


def observation() -> dict[str, Any]:
    return {
        "rgb": np.arange(24, dtype=np.uint8).reshape(3, 2, 4),
        "s": np.array([1, 2, 3, 0, 0, 0, 1, 0.5], np.float32),
        "q": np.array([7, 8], np.float32),
        "t": "go",
        "a": [1],
        "b": [2],
    }


def test_RD_1_roles_come_in_the_envs_own_form() -> None:
    read = reader(
        TAGS, SPACE, adapt.EEF_POS, adapt.IMAGE_PRIMARY, adapt.INSTRUCTION, adapt.GRIPPER_POS
    )
    assert read.roles == (adapt.EEF_POS, adapt.IMAGE_PRIMARY, adapt.INSTRUCTION, adapt.GRIPPER_POS)
    raw = observation()
    values = read(raw)
    assert list(values) == list(read.roles)
    assert values[adapt.EEF_POS].tolist() == [1, 2, 3]
    assert values[adapt.GRIPPER_POS].tolist() == [0.5]
    assert (values[adapt.IMAGE_PRIMARY] == raw["rgb"]).all()
    assert values[adapt.INSTRUCTION] == "go"


def test_RD_1_leaves_convert() -> None:
    read = reader(
        TAGS,
        SPACE,
        adapt.Image(adapt.IMAGE_PRIMARY),
        adapt.State(adapt.EEF_ROT, "rot6d"),
        adapt.Text(adapt.INSTRUCTION, "list"),
        adapt.State("x/two", part="right_arm"),
    )
    raw = observation()
    values = read(raw)
    assert (values[adapt.IMAGE_PRIMARY] == raw["rgb"].transpose(1, 2, 0)[::-1, ::-1]).all()
    assert values[adapt.EEF_ROT].tolist() == [1, 0, 0, 0, 1, 0]
    assert values[adapt.INSTRUCTION] == ["go"] and values["x/two"].tolist() == [2]


@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        ((), TypeError, "at least one"),
        ((3,), TypeError, "role strings"),
        ((adapt.Concat(adapt.EEF_POS),), TypeError, "Concat"),
        ((adapt.EEF_POS, adapt.State(adapt.EEF_POS)), ValueError, "asked for twice"),
        (("x/none",), ValueError, 'unknown role "x/none"'),
        ((adapt.Text("text/none"),), ValueError, "unknown role"),
        ((adapt.State("x/none"),), ValueError, "needs state role"),
        (("x/two",), ValueError, "declare part="),
        ((adapt.Image(adapt.IMAGE_PRIMARY, stack=2),), ValueError, "one observation at a time"),
        ((adapt.Previous(adapt.ACTION_JOINT_POS),), ValueError, "observations only"),
    ],
)
def test_RD_1_refusals(items: Any, error: type[Exception], message: str) -> None:
    wanted = adapt.AdapterResolutionError if error is ValueError else error
    with pytest.raises(wanted, match=message):
        reader(TAGS, SPACE, *items)


def test_RD_1_an_untagged_env() -> None:
    with pytest.raises(adapt.AdapterResolutionError, match="no adapter tags"):
        reader(None, SPACE, adapt.EEF_POS)


def test_RD_3_observation_roles() -> None:
    assert observation_roles(TAGS).images == (adapt.IMAGE_PRIMARY,)
    assert observation_roles(None) == adapt.ObservationRoles()


def test_RD_4_frame_sources() -> None:
    sources = frame_sources(TAGS, "rgb_array", lambda: "picture")
    assert sources.labels == (adapt.IMAGE_PRIMARY, "render")
    assert sources.render is not None and sources.render() == "picture"
    assert frame_sources(TAGS, "human", lambda: None).render_label is None
    odd = adapt.EnvTags(adapt.ImageTag("render"), JOINTS)
    assert frame_sources(odd, "rgb_array", lambda: None).labels == ("render", "render()")


def test_RD_5_values_are_the_frameworks_and_never_the_observations() -> None:
    from rlmesh import Tensor

    raw, before = observation(), observation()
    items = (adapt.JOINT_POS, adapt.EEF_POS, adapt.State(adapt.EEF_ROT, "rot6d"))
    for value in reader(TAGS, SPACE, *items)(raw).values():
        value[:] = 9
    assert all(np.array_equal(raw[key], before[key]) for key in raw)
    for value in reader(TAGS, SPACE, *items, framework=NATIVE)(raw).values():
        assert isinstance(value, Tensor)
