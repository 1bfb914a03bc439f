"""18.1: the words. Their meaning in a plan is in the case table."""

from __future__ import annotations

import typing
import warnings

import pytest
from building import JOINTS, resolve_state, vector

import rlmesh.adapters as adapt
from rlmesh.adapters.vocabulary import conventional_width


def test_ADV_1_observation_roles() -> None:
    assert {
        "IMAGE_PRIMARY": adapt.IMAGE_PRIMARY,
        "IMAGE_SECONDARY": adapt.IMAGE_SECONDARY,
        "IMAGE_WRIST": adapt.IMAGE_WRIST,
        "INSTRUCTION": adapt.INSTRUCTION,
        "JOINT_POS": adapt.JOINT_POS,
        "JOINT_VEL": adapt.JOINT_VEL,
        "EEF_POS": adapt.EEF_POS,
        "EEF_ROT": adapt.EEF_ROT,
        "GRIPPER_POS": adapt.GRIPPER_POS,
        "EEF_WRENCH": adapt.EEF_WRENCH,
        "BASE_ANG_VEL": adapt.BASE_ANG_VEL,
        "BASE_ROT": adapt.BASE_ROT,
        "COMMAND_BASE_VEL": adapt.COMMAND_BASE_VEL,
    } == {
        "IMAGE_PRIMARY": "image/primary",
        "IMAGE_SECONDARY": "image/secondary",
        "IMAGE_WRIST": "image/wrist",
        "INSTRUCTION": "text/instruction",
        "JOINT_POS": "proprio/joint_pos",
        "JOINT_VEL": "proprio/joint_vel",
        "EEF_POS": "proprio/eef_pos",
        "EEF_ROT": "proprio/eef_rot",
        "GRIPPER_POS": "proprio/gripper",
        "EEF_WRENCH": "proprio/eef_wrench",
        "BASE_ANG_VEL": "proprio/base_ang_vel",
        "BASE_ROT": "proprio/base_rot",
        "COMMAND_BASE_VEL": "command/base_vel",
    }
    widths = {role: conventional_width(role) for role in (adapt.EEF_POS, adapt.EEF_WRENCH)}
    assert widths == {adapt.EEF_POS: 3, adapt.EEF_WRENCH: 6}


ACTION_ROLES = {
    "JOINT_POS": "action/joint_pos",
    "JOINT_VEL": "action/joint_vel",
    "DELTA_POS": "action/delta_eef_pos",
    "DELTA_ROT": "action/delta_eef_rot",
    "EEF_POS": "action/eef_pos",
    "EEF_ROT": "action/eef_rot",
    "GRIPPER": "action/gripper",
}


@pytest.mark.parametrize(("name", "role"), ACTION_ROLES.items())
def test_ADV_2_action_roles_and_their_second_arm(name: str, role: str) -> None:
    assert getattr(adapt, f"ACTION_{name}") == role
    second = getattr(adapt, f"ACTION_{name}_2")
    assert second == f"{role}_2"
    assert conventional_width(second) == conventional_width(role)


def test_ADV_3_an_unknown_kind_is_refused() -> None:
    for build in (
        lambda: resolve_state(adapt.StateTag("sense/foo"), 1, adapt.State("sense/foo")),
        lambda: adapt.EnvTags(adapt.TextTag("sense/foo"), JOINTS).to_dict(),
        lambda: adapt.ModelSpec(adapt.Text("sense/foo"), JOINTS).to_json(),
    ):
        with pytest.raises(ValueError, match="carries a kind this core does not define"):
            build()


def test_ADV_3_tag_warns_of_an_ad_hoc_role_and_not_of_a_private_one() -> None:
    class Env:
        observation_space = vector(1)
        action_space = vector(2)

    with pytest.warns(UserWarning, match='role "height" is not in the role registry'):
        adapt.tag(Env(), adapt.EnvTags(adapt.StateTag("height"), JOINTS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapt.tag(Env(), adapt.EnvTags(adapt.StateTag("x/height"), JOINTS))


def test_ADV_5_parts() -> None:
    assert adapt.PARTS == [
        adapt.LEFT_ARM,
        adapt.RIGHT_ARM,
        adapt.HEAD,
        adapt.TORSO,
        adapt.BASE,
        adapt.LEFT_LEG,
        adapt.RIGHT_LEG,
    ]
    tag = adapt.StateTag(adapt.JOINT_POS, part="tail")
    adapter = resolve_state(tag, 2, adapt.State(adapt.JOINT_POS, part="tail"))
    assert '"x" <- concat(s#tail)' in adapter.explain()


def test_ADV_6_rotation_dims() -> None:
    assert adapt.ROTATION_DIMS == {
        "quat_xyzw": 4,
        "quat_wxyz": 4,
        "axis_angle": 3,
        "rot6d": 6,
        "rot6d_rowmajor": 6,
        "euler_xyz": 3,
        "gravity_xyz": 3,
    }
    assert set(typing.get_args(adapt.RotationEncoding)) == set(adapt.ROTATION_DIMS)


def test_ADV_7_other_words() -> None:
    assert typing.get_args(adapt.ImageLayout) == ("hwc", "chw")
    assert typing.get_args(adapt.FitMode) == ("stretch", "crop", "pad")
    assert typing.get_args(adapt.Frame) == ("world", "robot_base", "tool")
    assert typing.get_args(adapt.Reference) == ("current", "target")
    assert typing.get_args(adapt.Provenance) == ("sensed", "estimated", "privileged")
    assert typing.get_args(adapt.StackPad) == ("first", "black")
    assert set(typing.get_args(adapt.Resample)) == {
        "bilinear",
        "bilinear_aa",
        "bicubic_aa",
        "lanczos3_aa",
        "area",
    }
    for alias in (
        "ConcatPart",
        "InputNode",
        "ModelLeaf",
        "ObsLeaf",
        "ObsNode",
        "ObsTransform",
        "RotationTransform",
        "StackSpec",
    ):
        assert alias in adapt.__all__


def test_ADV_8_metadata_keys() -> None:
    assert adapt.ENV_METADATA_KEY == "rlmesh.adapters.v1.env_tags"
    assert adapt.MODEL_METADATA_KEY == "rlmesh.adapters.v1.model_spec"
    assert adapt.ENV_BRANCH_METADATA_KEY == "rlmesh.adapters.v1.env_branch"
