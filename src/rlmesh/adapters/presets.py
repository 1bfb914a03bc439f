"""What published policies were trained to see, as specs to print, edit and evaluate with.

A preset is data: a function that returns a :class:`~rlmesh.adapters.specs.ModelSpec` and nothing
else. Each docstring names the public source it was read from and what stays the policy's own
business; where the source and the spec cannot agree to the last bit, it says so. Check a preset
against your checkpoint with :mod:`rlmesh.adapters.preview` before you trust a success rate.

The keys are those of the project's own inference call, so that ``predict`` can hand its input on.
Batching, tokenizing and normalizing by dataset statistics belong to the policy.

Two conventions decide most failed evaluations, and a spec cannot see either:

* **Which way is up.** All LIBERO policies here were trained on frames turned by 180 degrees against
  what robosuite renders. They expect the turned frame (``upside_down=False``), so the env's tag has
  to say that its raw frame is not: ``ImageTag(..., upside_down=True)``.
* **Which end of the gripper is open.** Given with each preset. LIBERO opens at -1, the Open
  X-Embodiment data sets at 1 in [0, 1], a DROID gripper at 0 in [0, 1].

    >>> print(openpi_libero().input["observation/image"].resample)
    bilinear_aa
"""

from __future__ import annotations

from collections.abc import Callable

from rlmesh.adapters.actions import Action, Actuator
from rlmesh.adapters.image_spec import Image
from rlmesh.adapters.specs import Concat, InputNode, ModelSpec, State, Text
from rlmesh.adapters.vocabulary import (
    ACTION_DELTA_POS,
    ACTION_DELTA_ROT,
    ACTION_GRIPPER,
    ACTION_JOINT_VEL,
    EEF_POS,
    EEF_ROT,
    GRIPPER_POS,
    IMAGE_PRIMARY,
    IMAGE_WRIST,
    INSTRUCTION,
    JOINT_POS,
    RotationEncoding,
)

__all__ = [
    "PRESETS",
    "groot_libero",
    "octo_bridge",
    "openpi_droid",
    "openpi_libero",
    "openvla_bridge",
    "openvla_libero",
    "smolvla_libero",
]


def openpi_libero() -> ModelSpec:
    """pi0, pi0-FAST and pi0.5 of openpi, fine-tuned on LIBERO.

    Both cameras, turned upright, to 224 with black bars by Pillow's bilinear filter. State of 8:
    position, axis-angle (see :mod:`~rlmesh.adapters.rotations`), the two finger joints. Action of
    7: delta position, delta axis-angle, gripper in [-1, 1] with -1 open, as LIBERO takes them.

    Source: Physical-Intelligence/openpi, ``examples/libero/main.py``,
    ``src/openpi/policies/libero_policy.py`` and
    ``packages/openpi-client/src/openpi_client/image_tools.py`` (resize_with_pad). It rounds the
    inner size down where this rounds to nearest: the same for 4:3, 16:9 and square frames.

    The policy's own: chunks (its example replans every 5 steps), a third, black camera, padding,
    normalization.
    """
    return ModelSpec(
        {
            "observation/image": _openpi_frame(IMAGE_PRIMARY),
            "observation/wrist_image": _openpi_frame(IMAGE_WRIST),
            "observation/state": _libero_state(),
            "prompt": Text(INSTRUCTION),
        },
        _libero_action(),
    )


def openpi_droid() -> ModelSpec:
    """pi0, pi0-FAST and pi0.5 of openpi on DROID (Franka), joint velocities.

    One exterior and the wrist camera to 224 with black bars by Pillow's bilinear filter; 7 joint
    positions and the gripper (0 open, 1 closed) as leaves of their own. Action of 8: joint
    velocities in [-1, 1], gripper position in [0, 1].

    Source: Physical-Intelligence/openpi, ``examples/droid/main.py`` and
    ``src/openpi/policies/droid_policy.py``. That example also clips the action to [-1, 1], which
    the env's tag can say (``Action(..., clip=(-1, 1))``), and takes the gripper as 1 above 0.5 and
    0 otherwise, which the env has to do. Its cameras give BGR with alpha: an env that passes them
    on has to drop the one and swap the other first.

    The policy's own: chunks (8 of 10 or 15 steps are executed), padding, normalization.
    """
    return ModelSpec(
        {
            "observation/exterior_image_1_left": _openpi_frame(IMAGE_PRIMARY),
            "observation/wrist_image_left": _openpi_frame(IMAGE_WRIST),
            "observation/joint_position": State(JOINT_POS, dim=7),
            "observation/gripper_position": State(GRIPPER_POS, dim=1, range=(0.0, 1.0)),
            "prompt": Text(INSTRUCTION),
        },
        Action(
            Actuator(ACTION_JOINT_VEL, 7, range=(-1.0, 1.0)),
            Actuator(ACTION_GRIPPER, 1, range=(0.0, 1.0)),
        ),
    )


def _openpi_frame(role: str) -> Image:
    return Image(role, size=224, fit="pad", resample="bilinear_aa")


def openvla_libero(*, center_crop: bool = False) -> ModelSpec:
    """OpenVLA fine-tuned on a LIBERO suite.

    One camera, turned upright, JPEG of quality 95, to 224 by Lanczos-3; no state. Action of 7:
    delta position, delta axis-angle, gripper in [0, 1] with 1 open, which is mapped to [-1, 1],
    inverted and snapped: LIBERO opens at -1.

    Args:
        center_crop: cut out the middle 90 % of the area here. OpenVLA's own ``get_vla_action``
            does it (``center_crop=True``, a second, bilinear resampling); ask for it only if your
            policy does not. It is then one resampling instead of two.

    Source: openvla/openvla, ``experiments/robot/libero/run_libero_eval.py``,
    ``experiments/robot/libero/libero_utils.py`` (get_libero_image, resize_image),
    ``experiments/robot/robot_utils.py`` (the gripper), ``experiments/robot/openvla_utils.py`` (the
    crop). JPEG and Lanczos-3 are TensorFlow's there and Pillow's here: within a grey level or two.

    The policy's own: the prompt ("In: What action should the robot take to {instruction, lower
    case}?\\nOut:"), the processor, un-normalizing with ``unnorm_key``.
    """
    return _openvla("axis_angle", center_crop, invert=True)


def openvla_bridge(*, center_crop: bool = False) -> ModelSpec:
    """OpenVLA as released (openvla-7b), with the action statistics of BridgeData V2.

    As :func:`openvla_libero`, but the rotation delta is roll, pitch, yaw, and the gripper keeps its
    direction: [0, 1] with 1 open to [-1, 1] with 1 open, as SimplerEnv's WidowX takes it.

    Source: as there, and simpler-env/SimplerEnv, ``simpler_env/policies/openvla/openvla_model.py``
    (the action). SimplerEnv brings frames to 224 by OpenCV's area filter, without JPEG, which is
    not how the training data was made: to repeat its numbers, replace ``resample="area"`` and
    ``jpeg_quality=None``.
    """
    return _openvla("euler_xyz", center_crop, invert=False)


def _openvla(encoding: RotationEncoding, center_crop: bool, *, invert: bool) -> ModelSpec:
    image = Image(
        IMAGE_PRIMARY,
        size=224,
        fit="stretch",
        resample="lanczos3_aa",
        jpeg_quality=95,
        crop_area=0.9 if center_crop else None,
    )
    inputs: dict[str, InputNode] = {"full_image": image, "instruction": Text(INSTRUCTION)}
    return ModelSpec(inputs, _open_x_action(encoding, invert=invert))


def octo_bridge() -> ModelSpec:
    """Octo-Small and Octo-Base on a WidowX of BridgeData V2 (also SimplerEnv's).

    The third-person camera to 256 by Lanczos-3, the last two frames of it (the first one twice at
    the start). Action of 7: delta position, delta roll, pitch, yaw, gripper in [0, 1] with 1 open,
    snapped to -1 or 1.

    Source: octo-models/octo, ``octo/utils/gym_wrappers.py`` (ResizeImageWrapper, HistoryWrapper),
    ``octo/data/oxe/oxe_dataset_configs.py`` (EEF_POS), ``examples/01_inference_pretrained.ipynb``;
    simpler-env/SimplerEnv, ``simpler_env/policies/octo/octo_model.py``. Lanczos-3 is TensorFlow's
    there and Pillow's here: within a grey level.

    The policy's own: the batch axis; ``timestep_pad_mask``, [0, 1] at the first step of an episode
    and [1, 1] after it; the task from the instruction; un-normalizing with the data set's mean and
    standard deviation; ensembling of the 4-step chunk.
    """
    return ModelSpec(
        {
            "image_primary": Image(
                IMAGE_PRIMARY, size=256, fit="stretch", resample="lanczos3_aa", stack=2
            ),
            "language_instruction": Text(INSTRUCTION),
        },
        _open_x_action("euler_xyz", invert=False),
    )


def smolvla_libero() -> ModelSpec:
    """SmolVLA (and other LeRobot policies of these keys) fine-tuned on LIBERO.

    Both cameras, turned upright, at the size they were recorded at (256), as float32 [1, 3, H, W]
    in [0, 1]; state and action as :func:`openpi_libero`, the state as [1, 8].

    Source: huggingface/lerobot, ``src/lerobot/envs/libero.py`` (camera names),
    ``src/lerobot/envs/utils.py`` (preprocess_observation),
    ``src/lerobot/processor/env_processor.py`` (LiberoProcessorStep: the turn, the state).

    The policy's own: bringing frames to 512 with bars on the left and the top and to [-1, 1]
    (``src/lerobot/policies/smolvla/modeling_smolvla.py``, prepare_images), padding the state to 32,
    normalization, the newline after the task.
    """
    return ModelSpec(
        {
            "observation.images.image": _lerobot_frame(IMAGE_PRIMARY),
            "observation.images.image2": _lerobot_frame(IMAGE_WRIST),
            "observation.state": _libero_state(reshape=(1, 8)),
            "task": Text(INSTRUCTION, container="list"),
        },
        _libero_action(),
    )


def _lerobot_frame(role: str) -> Image:
    return Image(role, layout="chw", dtype="float32", normalize=True, lead_dims=1)


def groot_libero() -> ModelSpec:
    """GR00T N1.5 fine-tuned on LIBERO.

    Both cameras, turned upright, uint8 at 256x256 with a time axis; the state as one leaf per
    number, the "roll, pitch, yaw" of its keys being the axis-angle. Action of 7: delta position,
    delta axis-angle, gripper in [0, 1] with 1 open, which is mapped, inverted and snapped: LIBERO
    opens at -1.

    Source: NVIDIA/Isaac-GR00T, ``examples/Libero/eval/run_libero_eval.py``,
    ``examples/Libero/eval/utils.py``, ``examples/Libero/custom_data_config.py``.

    The policy's own: the centre crop of 95 % and the resize to 224 (gr00t/data/transform/video.py;
    its check wants the data set's 256x256, which ``render`` asserts here), min-max normalization,
    joining the action's parts into one vector of 7.
    """
    inputs: dict[str, InputNode] = {
        "video.image": Image(IMAGE_PRIMARY, lead_dims=1, render=256),
        "video.wrist_image": Image(IMAGE_WRIST, lead_dims=1, render=256),
        "state.gripper": State(GRIPPER_POS, dim=2, reshape=(1, 2)),
        "annotation.human.action.task_description": Text(INSTRUCTION, container="list"),
    }
    for index, axis in enumerate("xyz"):
        inputs[f"state.{axis}"] = State(EEF_POS, index=index, reshape=(1, 1))
    for index, angle in enumerate(("roll", "pitch", "yaw")):
        inputs[f"state.{angle}"] = State(
            EEF_ROT, encoding="axis_angle", index=index, reshape=(1, 1)
        )
    return ModelSpec(inputs, _open_x_action("axis_angle", invert=True))


def _libero_state(reshape: tuple[int, ...] | None = None) -> Concat:
    return Concat(
        EEF_POS,
        State(EEF_ROT, encoding="axis_angle"),
        State(GRIPPER_POS, dim=2),
        reshape=reshape,
    )


def _libero_action() -> Action:
    return Action(
        Actuator(ACTION_DELTA_POS, 3),
        Actuator(ACTION_DELTA_ROT, 3, encoding="axis_angle"),
        Actuator(ACTION_GRIPPER, 1, range=(-1.0, 1.0)),
    )


def _open_x_action(encoding: RotationEncoding, *, invert: bool) -> Action:
    return Action(
        Actuator(ACTION_DELTA_POS, 3),
        Actuator(ACTION_DELTA_ROT, 3, encoding=encoding),
        Actuator(ACTION_GRIPPER, 1, range=(0.0, 1.0), invert=invert, binary=True),
    )


PRESETS: dict[str, Callable[[], ModelSpec]] = {
    "groot_libero": groot_libero,
    "octo_bridge": octo_bridge,
    "openpi_droid": openpi_droid,
    "openpi_libero": openpi_libero,
    "openvla_bridge": openvla_bridge,
    "openvla_libero": openvla_libero,
    "smolvla_libero": smolvla_libero,
}
"""All of them by name."""
