"""The words the two sides agree on: roles, parts, encodings, frames and the metadata keys.

A role says what a leaf means, ``"<kind>/<name>"``. Matching is by the exact string, so the
vocabulary is open: any role under a known kind works, and ``x/...`` marks one as knowingly private.
The roles named here are the registered ones: they have a kind and, some of them, a width by
convention.

Two arms: give each leaf a ``part`` (``LEFT_ARM``, ``RIGHT_ARM``). Older pages name a second arm by
a role of its own instead, such as ``ACTION_GRIPPER_2``; those constants are kept as registered
roles of the same meaning and width. A role with ``_2`` matches only the same role on the other
side.
"""

from __future__ import annotations

from typing import Literal

from rlmesh.adapters.resampling import RESAMPLES

__all__ = [
    "ACTION_DELTA_POS",
    "ACTION_DELTA_POS_2",
    "ACTION_DELTA_ROT",
    "ACTION_DELTA_ROT_2",
    "ACTION_EEF_POS",
    "ACTION_EEF_POS_2",
    "ACTION_EEF_ROT",
    "ACTION_EEF_ROT_2",
    "ACTION_GRIPPER",
    "ACTION_GRIPPER_2",
    "ACTION_JOINT_POS",
    "ACTION_JOINT_POS_2",
    "ACTION_JOINT_VEL",
    "ACTION_JOINT_VEL_2",
    "BASE",
    "BASE_ANG_VEL",
    "BASE_ROT",
    "CHANNEL_ORDERS",
    "COMMAND_BASE_VEL",
    "CROP_MODES",
    "EEF_POS",
    "EEF_POS_2",
    "EEF_ROT",
    "EEF_ROT_2",
    "EEF_WRENCH",
    "ENV_BRANCH_METADATA_KEY",
    "ENV_METADATA_KEY",
    "FIT_MODES",
    "GRIPPER_POS",
    "GRIPPER_POS_2",
    "HEAD",
    "IMAGE_DTYPES",
    "IMAGE_PRIMARY",
    "IMAGE_SECONDARY",
    "IMAGE_WRIST",
    "INSTRUCTION",
    "JOINT_POS",
    "JOINT_POS_2",
    "JOINT_VEL",
    "JOINT_VEL_2",
    "LAYOUTS",
    "LEFT_ARM",
    "LEFT_LEG",
    "MODEL_METADATA_KEY",
    "PARTS",
    "RESAMPLES",
    "RIGHT_ARM",
    "RIGHT_LEG",
    "ROLE_KINDS",
    "ROTATION_DIMS",
    "STACK_PADS",
    "TORSO",
    "FitMode",
    "Frame",
    "ImageLayout",
    "Provenance",
    "Reference",
    "Resample",
    "RotationEncoding",
    "StackPad",
    "StackSpec",
    "conventional_width",
    "is_registered",
    "role_fault",
]

# Observation roles. The width by convention is in _WIDTHS below.
IMAGE_PRIMARY = "image/primary"
IMAGE_SECONDARY = "image/secondary"
IMAGE_WRIST = "image/wrist"
INSTRUCTION = "text/instruction"
JOINT_POS = "proprio/joint_pos"
JOINT_VEL = "proprio/joint_vel"
EEF_POS = "proprio/eef_pos"
EEF_ROT = "proprio/eef_rot"
GRIPPER_POS = "proprio/gripper"
EEF_WRENCH = "proprio/eef_wrench"
BASE_ANG_VEL = "proprio/base_ang_vel"
BASE_ROT = "proprio/base_rot"
COMMAND_BASE_VEL = "command/base_vel"

# Action roles.
ACTION_JOINT_POS = "action/joint_pos"
ACTION_JOINT_VEL = "action/joint_vel"
ACTION_DELTA_POS = "action/delta_eef_pos"
ACTION_DELTA_ROT = "action/delta_eef_rot"
ACTION_EEF_POS = "action/eef_pos"
ACTION_EEF_ROT = "action/eef_rot"
ACTION_GRIPPER = "action/gripper"

# The second arm of older pages; new tags say part=LEFT_ARM / part=RIGHT_ARM.
JOINT_POS_2 = "proprio/joint_pos_2"
JOINT_VEL_2 = "proprio/joint_vel_2"
EEF_POS_2 = "proprio/eef_pos_2"
EEF_ROT_2 = "proprio/eef_rot_2"
GRIPPER_POS_2 = "proprio/gripper_2"
ACTION_JOINT_POS_2 = "action/joint_pos_2"
ACTION_JOINT_VEL_2 = "action/joint_vel_2"
ACTION_DELTA_POS_2 = "action/delta_eef_pos_2"
ACTION_DELTA_ROT_2 = "action/delta_eef_rot_2"
ACTION_EEF_POS_2 = "action/eef_pos_2"
ACTION_EEF_ROT_2 = "action/eef_rot_2"
ACTION_GRIPPER_2 = "action/gripper_2"

# Parts: which limb a leaf belongs to. Any other string works the same.
LEFT_ARM = "left_arm"
RIGHT_ARM = "right_arm"
HEAD = "head"
TORSO = "torso"
BASE = "base"
LEFT_LEG = "left_leg"
RIGHT_LEG = "right_leg"
PARTS = [LEFT_ARM, RIGHT_ARM, HEAD, TORSO, BASE, LEFT_LEG, RIGHT_LEG]

ENV_METADATA_KEY = "rlmesh.adapters.v1.env_tags"
"""Where an env's metadata carries its tags."""
MODEL_METADATA_KEY = "rlmesh.adapters.v1.model_spec"
"""Where a model's metadata carries its spec."""
ENV_BRANCH_METADATA_KEY = "rlmesh.adapters.v1.env_branch"
"""Where an env's metadata names the branch of a variant it was built as."""

ROTATION_DIMS: dict[str, int] = {
    "axis_angle": 3,
    "euler_xyz": 3,
    "gravity_xyz": 3,
    "quat_wxyz": 4,
    "quat_xyzw": 4,
    "rot6d": 6,
    "rot6d_rowmajor": 6,
}
"""How many numbers each rotation encoding has.

``gravity_xyz`` is the direction of gravity seen from the body: a rotation converts into it, nothing
converts out of it, and no actuator takes it.
"""

LAYOUTS = ("hwc", "chw")
FIT_MODES = ("stretch", "crop", "pad")
CROP_MODES = ("zoom", "slice")
CHANNEL_ORDERS = ("rgb", "bgr")
STACK_PADS = ("first", "black")
IMAGE_DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""Element types a model input may have."""

ImageLayout = Literal["hwc", "chw"]
RotationEncoding = Literal[
    "quat_xyzw", "quat_wxyz", "axis_angle", "rot6d", "rot6d_rowmajor", "euler_xyz", "gravity_xyz"
]
FitMode = Literal["stretch", "crop", "pad"]
Resample = Literal["bilinear", "bilinear_aa", "bicubic_aa", "lanczos3_aa", "area"]
Frame = Literal["world", "robot_base", "tool"]
Reference = Literal["current", "target"]
Provenance = Literal["sensed", "estimated", "privileged"]
StackPad = Literal["first", "black"]
StackSpec = tuple[int, ...]
"""Offsets of the stacked frames, oldest first and ending at 0, the current frame."""

ROLE_KINDS = ("image/", "proprio/", "text/", "action/", "command/")
"""What a role may begin with, beside the private ``x/``."""

_WIDTHS: dict[str, int | None] = {
    IMAGE_PRIMARY: None,
    IMAGE_SECONDARY: None,
    IMAGE_WRIST: None,
    INSTRUCTION: None,
    JOINT_POS: None,
    JOINT_POS_2: None,
    JOINT_VEL: None,
    JOINT_VEL_2: None,
    EEF_POS: 3,
    EEF_POS_2: 3,
    EEF_ROT: None,
    EEF_ROT_2: None,
    GRIPPER_POS: None,
    GRIPPER_POS_2: None,
    EEF_WRENCH: 6,
    BASE_ANG_VEL: 3,
    BASE_ROT: None,
    COMMAND_BASE_VEL: 3,
    ACTION_JOINT_POS: None,
    ACTION_JOINT_POS_2: None,
    ACTION_JOINT_VEL: None,
    ACTION_JOINT_VEL_2: None,
    ACTION_DELTA_POS: 3,
    ACTION_DELTA_POS_2: 3,
    ACTION_DELTA_ROT: None,
    ACTION_DELTA_ROT_2: None,
    ACTION_EEF_POS: 3,
    ACTION_EEF_POS_2: 3,
    ACTION_EEF_ROT: None,
    ACTION_EEF_ROT_2: None,
    ACTION_GRIPPER: None,
    ACTION_GRIPPER_2: None,
}


def conventional_width(role: str) -> int | None:
    """The width a registered role has by convention, None where it is free."""
    return _WIDTHS.get(role)


def is_registered(role: str) -> bool:
    """Whether a role is one of the constants above, or private (``x/...``) on purpose."""
    return role in _WIDTHS or role.startswith("x/")


def role_fault(role: str) -> str | None:
    """What is wrong with a role's kind, None where it is one of the known ones or has none."""
    if "/" not in role or role.startswith(("x/", *ROLE_KINDS)):
        return None
    return (
        f'role "{role}" carries a kind this core does not define; expected one of '
        f"{', '.join(ROLE_KINDS)}, or x/ before the whole role to keep it private"
    )
