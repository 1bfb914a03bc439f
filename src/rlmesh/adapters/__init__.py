"""What a simulator emits, as a policy was trained to see it.

Tags say what an env's leaves mean, a :class:`ModelSpec` says what a model takes and gives;
:func:`resolve` matches them by role and builds the conversions. ``import rlmesh.adapters as
adapt``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rlmesh.adapters.actions import Action, Actuator
from rlmesh.adapters.adapter import Adapter
from rlmesh.adapters.advisory import AdapterResolutionError, Advisory
from rlmesh.adapters.base import AdapterBase
from rlmesh.adapters.check import check
from rlmesh.adapters.encodings import CustomEncoding, Rotation, RotationTransform
from rlmesh.adapters.image_spec import Image
from rlmesh.adapters.resolution import resolve, resolve_from_contract
from rlmesh.adapters.specs import (
    Concat,
    ConcatPart,
    Constant,
    Custom,
    InputNode,
    ModelLeaf,
    ModelSpec,
    ObsTransform,
    Previous,
    State,
    Text,
)
from rlmesh.adapters.tagging import tag
from rlmesh.adapters.tags import (
    EnvTags,
    Field,
    ImageTag,
    ObservationRoles,
    ObsLeaf,
    ObsNode,
    Split,
    StateTag,
    TextTag,
)
from rlmesh.adapters.vocabulary import (
    ACTION_DELTA_POS,
    ACTION_DELTA_POS_2,
    ACTION_DELTA_ROT,
    ACTION_DELTA_ROT_2,
    ACTION_EEF_POS,
    ACTION_EEF_POS_2,
    ACTION_EEF_ROT,
    ACTION_EEF_ROT_2,
    ACTION_GRIPPER,
    ACTION_GRIPPER_2,
    ACTION_JOINT_POS,
    ACTION_JOINT_POS_2,
    ACTION_JOINT_VEL,
    ACTION_JOINT_VEL_2,
    BASE,
    BASE_ANG_VEL,
    BASE_ROT,
    COMMAND_BASE_VEL,
    EEF_POS,
    EEF_POS_2,
    EEF_ROT,
    EEF_ROT_2,
    EEF_WRENCH,
    ENV_BRANCH_METADATA_KEY,
    ENV_METADATA_KEY,
    GRIPPER_POS,
    GRIPPER_POS_2,
    HEAD,
    IMAGE_PRIMARY,
    IMAGE_SECONDARY,
    IMAGE_WRIST,
    INSTRUCTION,
    JOINT_POS,
    JOINT_POS_2,
    JOINT_VEL,
    JOINT_VEL_2,
    LEFT_ARM,
    LEFT_LEG,
    MODEL_METADATA_KEY,
    PARTS,
    RIGHT_ARM,
    RIGHT_LEG,
    ROTATION_DIMS,
    TORSO,
    FitMode,
    Frame,
    ImageLayout,
    Provenance,
    Reference,
    Resample,
    RotationEncoding,
    StackPad,
    StackSpec,
)

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
    "COMMAND_BASE_VEL",
    "EEF_POS",
    "EEF_POS_2",
    "EEF_ROT",
    "EEF_ROT_2",
    "EEF_WRENCH",
    "ENV_BRANCH_METADATA_KEY",
    "ENV_METADATA_KEY",
    "GRIPPER_POS",
    "GRIPPER_POS_2",
    "HEAD",
    "IMAGE_PRIMARY",
    "IMAGE_SECONDARY",
    "IMAGE_WRIST",
    "INSTRUCTION",
    "JOINT_POS",
    "JOINT_POS_2",
    "JOINT_VEL",
    "JOINT_VEL_2",
    "LEFT_ARM",
    "LEFT_LEG",
    "MODEL_METADATA_KEY",
    "PARTS",
    "RIGHT_ARM",
    "RIGHT_LEG",
    "ROTATION_DIMS",
    "TORSO",
    "Action",
    "Actuator",
    "Adapter",
    "AdapterBase",
    "AdapterResolutionError",
    "Advisory",
    "Concat",
    "ConcatPart",
    "Constant",
    "Custom",
    "CustomEncoding",
    "EnvTags",
    "Field",
    "FitMode",
    "Frame",
    "Image",
    "ImageLayout",
    "ImageTag",
    "InputNode",
    "ModelLeaf",
    "ModelSpec",
    "ObsLeaf",
    "ObsNode",
    "ObsTransform",
    "ObservationRoles",
    "Previous",
    "Provenance",
    "Reference",
    "Resample",
    "Rotation",
    "RotationEncoding",
    "RotationTransform",
    "Split",
    "StackPad",
    "StackSpec",
    "State",
    "StateTag",
    "Text",
    "TextTag",
    "check",
    "resolve",
    "resolve_from_contract",
    "tag",
]

_LAZY = frozenset({"presets", "preview"})


def _load(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"rlmesh.adapters.{name}")
    raise AttributeError(f"module 'rlmesh.adapters' has no attribute {name!r}")


if TYPE_CHECKING:
    from rlmesh.adapters import presets as presets
    from rlmesh.adapters import preview as preview
else:
    # Paid for by those who use them, and `python -m rlmesh.adapters.preview` must not meet itself.
    __getattr__ = _load
