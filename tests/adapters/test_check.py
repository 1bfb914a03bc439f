"""check() finds what is planted, and nothing in an env that is in order."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict

from arm_env import ArmEnv, arm_tags, untagged
from rlmesh import adapters as adapt
from rlmesh.adapters import presets
from rlmesh.adapters.check import check

Array = np.ndarray[Any, Any]
SPEC = presets.smolvla_libero()
BLACK = np.zeros((32, 32, 3), np.uint8)


def codes(env: Any, spec: adapt.ModelSpec = SPEC, **arguments: Any) -> list[str]:
    return [item.code for item in check(env, spec, steps=12, **arguments)]


def test_an_env_in_order_has_no_findings() -> None:
    for policy in ("zero", "random"):
        assert check(ArmEnv(32), SPEC, policy=policy, episodes=2, steps=12) == []


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("agentview_image", BLACK, "camera-black"),
        ("agentview_image", BLACK + 2, "camera-black"),
        ("agentview_image", BLACK + 90, "camera-flat"),
        ("agentview_image", ArmEnv(32)._scene(0), "camera-frozen"),
        ("robot0_eef_pos", np.ones(3, np.float32), "state-constant"),
        ("robot0_eef_pos", lambda t: np.array([t, 2 * t, np.nan]), "state-not-finite"),
        ("robot0_gripper_qpos", lambda t: np.array([0.1 * t, 0.3 * t]), "state-out-of-range"),
        ("robot0_eef_quat", lambda t: np.array([0.1, 0.2, 0.3, 0.4 + 0.01 * t]), "not-unit"),
        ("robot0_eef_quat", lambda t: np.zeros(4), "rotation-not-unit"),
        ("language", "", "instruction-empty"),
        ("language", " \n", "instruction-empty"),
    ],
)
def test_finds_what_is_planted(key: str, value: Any, code: str) -> None:
    found = check(ArmEnv(32, **{key: value}), SPEC, steps=12)
    matching = [item for item in found if item.code.endswith(code)]
    assert len(matching) == 1, found
    assert f'"{key}"' in matching[0].message
    assert matching[0].severity == ("info" if code == "state-constant" else "caution")


def test_a_quaternion_that_changes_its_sign() -> None:
    quat = np.array([0.48, 0.6, 0.0, 0.64])

    def flipping(t: int) -> Array:
        return quat * (1 if t % 4 else -1)

    (found,) = [
        item
        for item in check(ArmEnv(32, robot0_eef_quat=flipping), SPEC, steps=12)
        if item.code == "rotation-sign-flips"
    ]
    assert "6 time(s)" in found.message  # before and after steps 4 and 8, after 0, before 12


def test_the_first_sign_of_an_episode_is_free() -> None:
    episode = [0]

    def by_episode(t: int) -> Array:
        episode[0] += t == 0
        angle = 0.5 + 0.01 * t
        sign = 1 if episode[0] % 2 else -1
        return sign * np.array([np.sin(angle), 0, 0, np.cos(angle)])

    env = ArmEnv(32, robot0_eef_quat=by_episode)
    assert "rotation-sign-flips" not in codes(env, episodes=4)


def test_several_faults_are_all_reported_in_order() -> None:
    env = ArmEnv(32, agentview_image=BLACK, robot0_eef_quat=np.ones(4), language="")
    assert codes(env) == [
        "camera-black", "state-constant", "rotation-not-unit", "instruction-empty",
    ]  # fmt: skip


class HandEnv(gymnasium.Env[Any, Any]):
    """A gripper in millimetres, and a 6-D rotation."""

    metadata: dict[str, Any] = {}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, tag: adapt.StateTag, rotation: Array, width: float = 0.5) -> None:
        self.observation_space = Dict(
            {"gripper": Box(-np.inf, np.inf, (1,)), "rot": Box(-np.inf, np.inf, (6,))}
        )
        self.action_space = Box(-width, width, (2,))
        self.rotation, self.at = rotation, 0
        action = adapt.Action(adapt.Actuator(adapt.ACTION_GRIPPER, 2))
        rot = adapt.StateTag(adapt.EEF_ROT, encoding="rot6d")
        adapt.tag(self, adapt.EnvTags({"gripper": tag, "rot": rot}, action))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._observation(), {}

    def step(self, action: Array) -> Any:
        assert self.action_space.contains(action)
        self.at += 1
        return self._observation(), 0.0, False, self.at % 5 == 0, {}

    def _observation(self) -> Any:
        return {"gripper": np.array([8.0 * self.at]), "rot": self.rotation}


HAND = adapt.ModelSpec(
    {"g": adapt.State(adapt.GRIPPER_POS), "r": adapt.State(adapt.EEF_ROT, encoding="rot6d")},
    adapt.Action(adapt.Actuator(adapt.ACTION_GRIPPER, 2)),
)
UPRIGHT = np.array([1.0, 0, 0, 0, 1, 0])


def test_a_gripper_outside_both_conventions() -> None:
    tag = adapt.StateTag(adapt.GRIPPER_POS)
    assert "gripper-outside-conventions" in codes(HandEnv(tag, UPRIGHT), HAND)
    ranged = adapt.StateTag(adapt.GRIPPER_POS, range=(0.0, 80.0))
    assert "gripper-outside-conventions" not in codes(HandEnv(ranged, UPRIGHT), HAND)
    assert "gripper-outside-conventions" not in codes(ArmEnv(32))


@pytest.mark.parametrize(
    ("rotation", "wrong"),
    [(UPRIGHT, False), (UPRIGHT * 1.01, True), (np.array([1.0, 0, 0, 0.1, 1, 0]), True)],
)
def test_a_6d_rotation_must_be_orthonormal(rotation: Array, wrong: bool) -> None:
    tag = adapt.StateTag(adapt.GRIPPER_POS, range=(0.0, 800.0))
    assert ("rotation-not-unit" in codes(HandEnv(tag, rotation), HAND)) == wrong


def test_an_action_that_leaves_the_space_is_reported_and_clamped() -> None:
    tag = adapt.StateTag(adapt.GRIPPER_POS, range=(0.0, 800.0))
    (found,) = [
        item for item in check(HandEnv(tag, UPRIGHT), HAND) if item.code == "action-outside-space"
    ]
    assert "[0] " in found.message and "[1] " in found.message
    assert "action-outside-space" not in codes(HandEnv(tag, UPRIGHT, width=1.0), HAND)
    assert "action-outside-space" not in codes(HandEnv(tag, UPRIGHT), HAND, policy="zero")


def test_a_policy_of_ones_own_sees_the_models_input() -> None:
    seen: list[Any] = []

    def policy(payload: Any) -> Array:
        seen.append(payload)
        return np.zeros(7, np.float32)

    check(ArmEnv(32), SPEC, policy=policy, steps=3, episodes=2)
    assert len(seen) == 6
    assert seen[0]["observation.images.image"].shape == (1, 3, 32, 32)


def test_the_same_seed_gives_the_same_actions() -> None:
    runs = []
    for seed in (1, 1, 2):
        env = ArmEnv(32)
        check(env, SPEC, seed=seed, steps=3)
        runs.append(np.stack(env.actions))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_cameras_that_the_model_does_not_read_are_left_alone() -> None:
    env = ArmEnv(32, robot0_eye_in_hand_image=BLACK)
    spec = adapt.ModelSpec({"image": adapt.Image(adapt.IMAGE_PRIMARY)}, SPEC.output)
    assert codes(env, spec) == []
    assert codes(env) == ["camera-black"]


def test_says_what_it_cannot_check() -> None:
    with pytest.raises(adapt.AdapterResolutionError, match="carries no adapter tags"):
        check(untagged(), SPEC)
    assert check(untagged(), SPEC, tags=arm_tags(), steps=3) == []
    with pytest.raises(ValueError, match="policy must be 'zero', 'random' or a callable"):
        check(ArmEnv(32), SPEC, policy="best")  # type: ignore[arg-type]
    vector = gymnasium.vector.SyncVectorEnv([lambda: ArmEnv(32)] * 2)
    with pytest.raises(TypeError, match="one env, got a vector env of 2 lanes"):
        check(vector, SPEC)
    vector.close()
