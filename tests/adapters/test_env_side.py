"""18.2 and 18.3: tags, actuators and tag() as a person writes them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from building import JOINTS, camera, joints, vector

import rlmesh.adapters as adapt
from rlmesh.spaces import Dict


def tags_of(node: Any, action: adapt.Action = JOINTS) -> adapt.EnvTags:
    return adapt.EnvTags(node, action)


def test_ADE_1_tags_are_frozen_hashable_and_do_not_mind_the_order_of_keys() -> None:
    first = tags_of({"a": adapt.TextTag("x/a"), "b": (adapt.TextTag("x/b"),)})
    second = tags_of({"b": (adapt.TextTag("x/b"),), "a": adapt.TextTag("x/a")})
    assert first == second and hash(first) == hash(second)
    assert first != tags_of({"a": adapt.TextTag("x/a")})
    assert pickle.loads(pickle.dumps(first)) == first == copy.deepcopy(first)
    with pytest.raises(AttributeError):
        first.action = JOINTS  # type: ignore[misc]


def test_ADE_1_a_later_change_of_the_dict_given_changes_nothing() -> None:
    node: dict[str, Any] = {"a": adapt.TextTag("x/a")}
    tags = tags_of(node)
    node["b"] = adapt.TextTag("x/b")
    assert tags == tags_of({"a": adapt.TextTag("x/a")})


@pytest.mark.parametrize(
    "node", [[adapt.TextTag("x/a")], {"a": [adapt.TextTag("x/a")]}, {"a": 3}, 3]
)
def test_ADE_1_other_nodes_are_refused(node: Any) -> None:
    with pytest.raises(TypeError, match="must be a leaf, a dict, or a tuple"):
        tags_of(node)


@pytest.mark.parametrize(
    ("kind", "leaf"),
    [
        ("image", adapt.ImageTag("x/a")),
        ("state", adapt.StateTag("x/a")),
        ("text", adapt.TextTag("x/a")),
    ],
)
def test_ADE_1_a_role_twice(kind: str, leaf: Any) -> None:
    with pytest.raises(ValueError, match=f"env tags declare {kind} role 'x/a' more than once"):
        tags_of({"one": leaf, "two": leaf})
    with pytest.raises(ValueError, match="state role 'x/a' more than once"):
        tags_of({"one": adapt.StateTag("x/a"), "two": adapt.Split(adapt.Field("x/a", 1))})


def test_ADE_1_part_and_provenance_tell_leaves_apart() -> None:
    tags = tags_of(
        {
            "one": adapt.StateTag("x/a"),
            "two": adapt.StateTag("x/a", part="head"),
            "three": adapt.StateTag("x/a", provenance="sensed"),
        }
    )
    assert tags.observation_roles.states == ("x/a", "x/a", "x/a")


def test_ADE_2_roles_in_declaration_order() -> None:
    tags = tags_of(
        {
            "z": adapt.ImageTag("image/z"),
            "a": adapt.Split(adapt.Field("x/2", 1), adapt.Field(None, 3), adapt.Field("x/1", 1)),
            "t": (adapt.TextTag("text/t"), adapt.ImageTag("image/a")),
        }
    )
    assert tags.observation_roles == adapt.ObservationRoles(
        images=("image/z", "image/a"), states=("x/2", "x/1"), texts=("text/t",)
    )


def test_ADE_3_canonical_json_sorts_its_keys() -> None:
    text = tags_of(adapt.StateTag("x/a", range=(0, 1))).to_json()
    assert text.startswith('{"action": {"clip": null, "components": [{"binary": false, "dim": 2')
    assert '"range": [0.0, 1.0]' in text


def test_ADE_4_image_tag_defaults() -> None:
    tag = adapt.ImageTag("image/primary")
    assert (tag.layout, tag.upside_down, tag.part) == ("hwc", False, None)
    assert adapt.ImageTag("image/primary", "chw", True, part="head").upside_down


def test_ADE_5_encodings_and_labels() -> None:
    assert adapt.StateTag("x/a", ["quat_xyzw"]) == adapt.StateTag("x/a", "quat_xyzw")
    assert adapt.StateTag("x/a", ["a", "b"]).encoding == ("a", "b")
    with pytest.raises(ValueError, match="labels must not repeat"):
        adapt.StateTag("x/a", labels=["p", "p"])
    with pytest.raises(ValueError, match="accept-set"):
        adapt.StateTag("x/a", ["quat_xyzw", 3])  # type: ignore[list-item]


def test_ADE_7_split_and_field() -> None:
    with pytest.raises(ValueError, match="dim must be >= 1, got -1"):
        adapt.Field("x/a", -1)
    with pytest.raises(ValueError, match="at least one Field"):
        adapt.Split()
    with pytest.raises(ValueError, match="role more than once"):
        adapt.Split(adapt.Field("x/a", 1), adapt.Field("x/a", 2))
    with pytest.raises(ValueError, match="carries only dim"):
        adapt.Field(None, 2, range=(0, 1))
    with pytest.raises(ValueError, match="dim 2 disagrees with the 1 labels"):
        adapt.Field("x/a", 2, labels=["p"])
    assert adapt.Split(adapt.Field("x/a", 3), adapt.Field(None, 4)).dim == 7


class Env(gymnasium.Env[Any, Any]):
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Dict(
        {"s": gymnasium.spaces.Box(-1, 1, (2,), np.float32), "n": gymnasium.spaces.Discrete(3)}
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)


def test_ADE_9_tag_copies_the_metadata_and_returns_the_env() -> None:
    env = Env()
    tags = tags_of({"s": adapt.StateTag(adapt.JOINT_POS)})
    assert adapt.tag(env, tags) is env
    assert env.metadata == {"render_modes": ["rgb_array"], **tags.to_metadata()}
    assert Env.metadata == {"render_modes": ["rgb_array"]}
    assert adapt.EnvTags.from_metadata(env.metadata) == tags


def test_ADE_9_tag_a_wrapped_env() -> None:
    env = gymnasium.wrappers.TimeLimit(Env(), 10)
    tags = tags_of({"s": adapt.StateTag(adapt.JOINT_POS)})
    assert adapt.tag(env, tags) is env
    assert adapt.EnvTags.from_metadata(env.metadata) == tags
    assert Env.metadata == {"render_modes": ["rgb_array"]}


def test_ADE_9_tag_validates() -> None:
    wrong = tags_of({"s": adapt.StateTag(adapt.JOINT_POS)}, joints(3))
    env = Env()
    with pytest.raises(adapt.AdapterResolutionError, match="sum to 3 but the action space width"):
        adapt.tag(env, wrong)
    assert adapt.ENV_METADATA_KEY not in env.metadata
    assert adapt.tag(env, wrong, validate=False) is env
    with pytest.raises(adapt.AdapterResolutionError, match="no observation_space/action_space"):
        adapt.tag(object(), wrong)
    with pytest.raises(TypeError, match="EnvTags"):
        adapt.tag(env, {"s": 1})  # type: ignore[arg-type]


def test_ADE_9_a_vector_env_is_tagged_by_the_spaces_of_one_lane() -> None:
    env = gymnasium.vector.SyncVectorEnv([Env, Env])
    tags = tags_of({"s": adapt.StateTag(adapt.JOINT_POS, labels=["p", "q"])})
    assert adapt.tag(env, tags) is env
    assert adapt.EnvTags.from_metadata(env.metadata) == tags


@pytest.mark.parametrize(
    ("layout", "shape", "other"), [("chw", (48, 64, 3), "hwc"), ("hwc", (3, 48, 64), "chw")]
)
def test_ADE_4_ADW_3_tag_warns_of_a_layout_that_looks_wrong(
    layout: Any, shape: tuple[int, int, int], other: str
) -> None:
    class Camera:
        observation_space = Dict({"rgb": camera(*shape)})
        action_space = vector(2)

    tags = tags_of({"rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY, layout)})
    with pytest.warns(UserWarning, match=f"under layout={layout}; this looks like {other}") as seen:
        adapt.tag(Camera(), tags)
    assert len(seen) == 1 and seen[0].filename == __file__


def test_ADA_1_action() -> None:
    action = adapt.Action(adapt.Actuator("x/a", 2), adapt.Actuator(None, 3), clip=(-1, 1))
    assert action.dim == 5 and len(action.components) == 2 and action.clip == (-1, 1)
    assert hash(action) == hash(copy.deepcopy(action))
    with pytest.raises(ValueError, match="at least one"):
        adapt.Action()
    with pytest.raises(TypeError, match="takes actuators"):
        adapt.Action("x/a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"role": "a", "dim": 0}, "dim must be >= 1, got 0"),
        ({"dim": 2, "binary": True}, r"a role-less \(opaque\) Actuator carries only dim and fill"),
        ({"dim": 2, "optional": True}, "drop optional"),
        ({"role": "a", "dim": 1, "fill": 1.0}, "fill applies only"),
        ({"role": "a", "dim": 1, "fill": [1, 2], "optional": True}, "fill must be a single number"),
        ({"role": "a", "dim": 2, "labels": ["p"]}, "dim 2 disagrees with the 1 labels"),
        ({"role": "a", "dim": 2, "labels": ["p", "p"]}, "must not repeat"),
        ({"role": "a", "dim": 2, "clip": True}, "clip=True clamps to range"),
    ],
)
def test_ADA_2_actuator_refusals(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adapt.Actuator(**fields)


def test_ADA_2_actuator_positions_and_canonical_values() -> None:
    actuator = adapt.Actuator("a", 2, None, (0, 1), True, [1, 2], True, 0.5, True, offset=[3, 4])
    assert actuator.scale == (1.0, 2.0) and actuator.offset == (3.0, 4.0)
    assert (actuator.binary, actuator.invert, actuator.threshold, actuator.clip) == (
        True,
        True,
        0.5,
        True,
    )


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ({"a": 1}, TypeError),
        (None, TypeError),
        ([1, None], TypeError),
        ("ab", ValueError),
        ([1, "a"], ValueError),
        (1.0, ValueError),
        ([[1, 2], [3]], ValueError),
        (np.array([1 + 2j, 2]), ValueError),
    ],
)
def test_ADA_10_what_is_no_action(action: Any, error: type[Exception]) -> None:
    from building import resolve_state

    adapter = resolve_state(adapt.StateTag("x/a"), 1, adapt.State("x/a"))
    with pytest.raises(error):
        adapter.transform_action(action)


def test_ADA_10_forms_of_an_action() -> None:
    import torch
    from building import resolve_state

    from rlmesh import Tensor

    adapter = resolve_state(adapt.StateTag("x/a"), 1, adapt.State("x/a"))
    native = np.array([1, 2], np.float32)
    for action in (
        [1, 2],
        (1, 2),
        np.array([1, 2]),
        np.array([[1.0], [2.0]]),
        torch.tensor([1.0, 2.0], requires_grad=True),
        [torch.tensor(1.0), np.float64(2)],
        Tensor(native.tobytes(), (2,), "float32"),
    ):
        out = adapter.transform_action(action)
        assert out.dtype == np.float32 and out.tolist() == [1.0, 2.0], action


def test_ADA_10_the_action_given_is_left_alone() -> None:
    from building import resolve_state

    adapter = resolve_state(
        adapt.StateTag("x/a"), 1, adapt.State("x/a"), env=joints(invert=True), model=joints()
    )
    action = np.array([1, 2], np.float32)
    out = adapter.transform_action(action)
    out[:] = 9
    assert action.tolist() == [1, 2]
