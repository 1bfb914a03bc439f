"""Presets give what the projects' own code computes from the same observation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Text
from PIL import Image

from arm_env import ArmEnv, arm_tags
from rlmesh import adapters as adapt
from rlmesh.adapters import presets

Array = np.ndarray[Any, Any]

LIBERO = [name for name in presets.PRESETS if name.endswith("_libero")]


def adapted(name: str, size: int = 256) -> tuple[adapt.Adapter, dict[str, Any]]:
    env = ArmEnv(size)
    observation, _ = env.reset(seed=0)
    spec = presets.PRESETS[name]()
    return adapt.resolve(arm_tags(), env.observation_space, env.action_space, spec), observation


def robosuite_axis_angle(quat: Array) -> Array:
    x, y, z, w = quat.tolist()
    return np.array([x, y, z]) * 2.0 * math.acos(w) / math.sqrt(1.0 - w * w)


def libero_state(observation: dict[str, Any]) -> Array:
    return np.concatenate(
        [
            observation["robot0_eef_pos"],
            robosuite_axis_angle(observation["robot0_eef_quat"]),
            observation["robot0_gripper_qpos"],
        ]
    )


@pytest.mark.parametrize("name", presets.PRESETS)
def test_is_data_that_prints_travels_and_names_its_source(name: str) -> None:
    preset = presets.PRESETS[name]
    spec = preset()
    assert spec == preset() and preset.__name__ == name
    assert adapt.ModelSpec.from_json(spec.to_json()) == spec
    assert "Source: " in (preset.__doc__ or "") and "/" in (preset.__doc__ or "")


@pytest.mark.parametrize("name", LIBERO)
def test_a_libero_preset_fits_liberos_observations_without_advisories(name: str) -> None:
    adapter, observation = adapted(name)
    assert adapter.advisories() == []
    adapter.transform_obs(observation)
    action = adapter.transform_action(np.zeros(7))
    assert action.shape == (7,)


def test_openpi_libero_is_its_clients_arithmetic() -> None:
    adapter, observation = adapted("openpi_libero")
    payload = adapter.transform_obs(observation)
    for key, source in (
        ("observation/image", "agentview_image"),
        ("observation/wrist_image", "robot0_eye_in_hand_image"),
    ):
        upright = Image.fromarray(np.ascontiguousarray(observation[source][::-1, ::-1]))
        expected = upright.resize((224, 224), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(payload[key], np.asarray(expected))
    np.testing.assert_allclose(
        payload["observation/state"], libero_state(observation), rtol=0, atol=1e-5
    )
    assert payload["prompt"] == observation["language"]
    action = np.linspace(-1, 1, 7).astype(np.float32)
    np.testing.assert_array_equal(adapter.transform_action(action), action)


@pytest.mark.parametrize("name", ["openvla_libero", "groot_libero"])
def test_an_open_gripper_is_minus_one_in_libero(name: str) -> None:
    adapter, _ = adapted(name)
    for given, sent in ((1.0, -1.0), (0.6, -1.0), (0.4, 1.0), (0.0, 1.0)):
        assert adapter.transform_action([0.0] * 6 + [given])[6] == sent


def test_openvla_libero_frames_are_jpeg_then_lanczos() -> None:
    adapter, observation = adapted("openvla_libero")
    frame = np.ascontiguousarray(observation["agentview_image"][::-1, ::-1])
    jpeg = adapt.images.jpeg_round_trip(frame, 95)
    expected = Image.fromarray(jpeg).resize((224, 224), Image.Resampling.LANCZOS)
    payload = adapter.transform_obs(observation)
    np.testing.assert_array_equal(payload["full_image"], np.asarray(expected))


def test_openvla_can_crop_itself() -> None:
    env = ArmEnv()
    observation, _ = env.reset(seed=0)
    spec = presets.openvla_libero(center_crop=True)
    adapter = adapt.resolve(arm_tags(), env.observation_space, env.action_space, spec)
    assert adapter.transform_obs(observation)["full_image"].shape == (224, 224, 3)
    assert "crop 90.0% area" in adapter.explain()


def test_smolvla_libero_has_lerobots_shapes() -> None:
    adapter, observation = adapted("smolvla_libero")
    payload = adapter.transform_obs(observation)
    upright = observation["agentview_image"][::-1, ::-1].transpose(2, 0, 1)[None]
    expected = upright.astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(payload["observation.images.image"], expected)
    assert payload["observation.state"].shape == (1, 8)
    np.testing.assert_allclose(
        payload["observation.state"][0], libero_state(observation), rtol=0, atol=1e-5
    )
    assert payload["task"] == [observation["language"]]


def test_groot_libero_has_one_leaf_per_number() -> None:
    adapter, observation = adapted("groot_libero")
    payload = adapter.transform_obs(observation)
    keys = ("x", "y", "z", "roll", "pitch", "yaw")
    state = [payload[f"state.{key}"] for key in keys]
    assert all(value.shape == (1, 1) for value in state)
    np.testing.assert_allclose(
        np.concatenate(state).ravel(), libero_state(observation)[:6], rtol=0, atol=1e-5
    )
    assert payload["state.gripper"].shape == (1, 2)
    assert payload["video.image"].shape == (1, 256, 256, 3)
    assert payload["annotation.human.action.task_description"] == [observation["language"]]


def test_groot_libero_refuses_frames_of_another_size() -> None:
    with pytest.raises(adapt.AdapterResolutionError, match="render"):
        adapted("groot_libero", size=128)


def widowx_tags() -> adapt.EnvTags:
    return adapt.EnvTags(
        {"image": adapt.ImageTag(adapt.IMAGE_PRIMARY), "task": adapt.TextTag(adapt.INSTRUCTION)},
        adapt.Action(
            adapt.Actuator(adapt.ACTION_DELTA_POS, 3),
            adapt.Actuator(adapt.ACTION_DELTA_ROT, 3, encoding="axis_angle"),
            adapt.Actuator(adapt.ACTION_GRIPPER, 1, range=(-1.0, 1.0)),
        ),
    )


@pytest.mark.parametrize("name", ["octo_bridge", "openvla_bridge"])
def test_bridge_presets_turn_roll_pitch_yaw_and_keep_the_grippers_direction(name: str) -> None:
    space = Dict({"image": Box(0, 255, (480, 640, 3), np.uint8), "task": Text(99)})
    adapter = adapt.resolve(
        widowx_tags(), space, Box(-np.inf, np.inf, (7,)), presets.PRESETS[name]()
    )
    sent = adapter.transform_action([0.1, 0.2, 0.3, 0.0, 0.0, 0.5, 0.8])
    np.testing.assert_allclose(sent, [0.1, 0.2, 0.3, 0.0, 0.0, 0.5, 1.0], atol=1e-6)
    assert adapter.transform_action([0.0] * 6 + [0.2])[6] == -1.0


def test_octo_sees_the_last_two_frames_at_256() -> None:
    space = Dict({"image": Box(0, 255, (480, 640, 3), np.uint8), "task": Text(99)})
    adapter = adapt.resolve(widowx_tags(), space, Box(-np.inf, np.inf, (7,)), presets.octo_bridge())
    frames = [np.full((480, 640, 3), level, np.uint8) for level in (10, 20, 30)]
    seen = [adapter.transform_obs({"image": f, "task": ""})["image_primary"] for f in frames]
    assert all(pair.shape == (2, 256, 256, 3) for pair in seen)
    assert [pair[:, 0, 0, 0].tolist() for pair in seen] == [[10, 10], [10, 20], [20, 30]]


def test_openpi_droid_pads_and_keeps_its_leaves_apart() -> None:
    tags = adapt.EnvTags(
        {
            "exterior": adapt.ImageTag(adapt.IMAGE_PRIMARY),
            "wrist": adapt.ImageTag(adapt.IMAGE_WRIST),
            "joints": adapt.StateTag(adapt.JOINT_POS),
            "gripper": adapt.StateTag(adapt.GRIPPER_POS),
            "task": adapt.TextTag(adapt.INSTRUCTION),
        },
        adapt.Action(
            adapt.Actuator(adapt.ACTION_JOINT_VEL, 7),
            adapt.Actuator(adapt.ACTION_GRIPPER, 1),
            clip=(-1.0, 1.0),
        ),
    )
    frame = np.full((180, 320, 3), 200, np.uint8)
    space = Dict(
        {
            "exterior": Box(0, 255, frame.shape, np.uint8),
            "wrist": Box(0, 255, frame.shape, np.uint8),
            "joints": Box(-np.inf, np.inf, (7,)),
            "gripper": Box(0.0, 1.0, (1,)),
            "task": Text(99),
        }
    )
    adapter = adapt.resolve(tags, space, Box(-1.0, 1.0, (8,)), presets.openpi_droid())
    joints, gripper = np.arange(7, dtype=np.float32), np.array([0.25], np.float32)
    payload = adapter.transform_obs(
        {"exterior": frame, "wrist": frame, "joints": joints, "gripper": gripper, "task": "go"}
    )
    rows = payload["observation/exterior_image_1_left"].max(axis=(1, 2)).nonzero()[0]
    assert (rows[0], rows[-1]) == (49, 174)  # 126 rows of 224, as openpi's resize_with_pad
    np.testing.assert_array_equal(payload["observation/joint_position"], joints)
    np.testing.assert_array_equal(payload["observation/gripper_position"], gripper)
    sent = adapter.transform_action([0.5] * 7 + [1.0])
    assert sent.tolist()[:7] == [0.5] * 7
