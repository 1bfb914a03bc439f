"""18.8: resolve and the adapter: one lane, many lanes, memory, what is looked at."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from building import JOINTS, camera, joints, resolve, resolve_image, resolve_state, vector
from hypothesis import given
from hypothesis import strategies as st

import rlmesh.adapters as adapt
from rlmesh.spaces import Box, Dict, Discrete
from rlmesh.spaces import Text as TextSpace
from rlmesh.wire.contract import EnvContract

STATE = adapt.StateTag(adapt.JOINT_POS)


def pixel(value: int) -> dict[str, Any]:
    return {"rgb": np.full((1, 1, 3), value, np.uint8)}


def first(payload: dict[str, Any]) -> list[int]:
    return payload["image"].reshape(len(payload["image"]), -1)[:, 0].tolist()


def test_ADX_1_spaces_of_gymnasium_and_of_rlmesh() -> None:
    tags = adapt.EnvTags({"s": STATE}, JOINTS)
    spec = adapt.ModelSpec(adapt.State(adapt.JOINT_POS, range=(0, 1)), JOINTS)
    theirs = gymnasium.spaces.Dict({"s": gymnasium.spaces.Box(-1, 1, (2,), np.float32)})
    ours = Dict({"s": Box(-1, 1, (2,), "float32")})
    action = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    texts = {
        adapt.resolve(tags, space, action_space, spec).explain()
        for space in (theirs, ours, ours.spec)
        for action_space in (action, vector(2))
    }
    assert len(texts) == 1 and "(range (-1.0, 1.0)->(0.0, 1.0))" in texts.pop()


@pytest.mark.parametrize(
    ("tags", "observation", "action", "spec"),
    [
        (3, Dict({"s": vector(2)}), vector(2), adapt.ModelSpec(adapt.Text("x/a"), JOINTS)),
        (adapt.EnvTags(STATE, JOINTS), vector(2), vector(2), "spec"),
        (adapt.EnvTags(STATE, JOINTS), 3, vector(2), adapt.ModelSpec(adapt.Text("x/a"), JOINTS)),
        (adapt.EnvTags(STATE, JOINTS), vector(2), None, adapt.ModelSpec((), JOINTS)),
    ],
)
def test_ADX_1_every_failure_is_an_AdapterResolutionError(
    tags: Any, observation: Any, action: Any, spec: Any
) -> None:
    assert issubclass(adapt.AdapterResolutionError, ValueError)
    with pytest.raises(adapt.AdapterResolutionError):
        adapt.resolve(tags, observation, action, spec)


def contract(metadata: Any, observation: Any = None) -> EnvContract:
    space = observation or Dict({"s": vector(2)})
    return EnvContract("e", space, vector(2), metadata=metadata)


SPEC = adapt.ModelSpec({"x": adapt.State(adapt.JOINT_POS)}, JOINTS)


def test_ADX_2_resolve_from_contract() -> None:
    tags = adapt.EnvTags({"s": STATE}, JOINTS)
    adapter = adapt.resolve_from_contract(contract(tags.to_metadata()), SPEC)
    assert adapter.transform_obs({"s": [1, 2]})["x"].tolist() == [1, 2]
    for metadata in (None, {}, {"other": 1}):
        with pytest.raises(adapt.AdapterResolutionError, match="carries no adapter tags"):
            adapt.resolve_from_contract(contract(metadata), SPEC)
    with pytest.raises(adapt.AdapterResolutionError, match="must hold a mapping"):
        adapt.resolve_from_contract(contract({adapt.ENV_METADATA_KEY: 3}), SPEC)
    with pytest.raises(adapt.AdapterResolutionError, match="not serializable JSON"):
        adapt.resolve_from_contract(contract({adapt.ENV_METADATA_KEY: {"a": object()}}), SPEC)
    with pytest.raises(adapt.AdapterResolutionError, match="missing field 'observation'"):
        adapt.resolve_from_contract(contract({adapt.ENV_METADATA_KEY: {}}), SPEC)


def test_ADX_2_a_leaf_of_a_later_version_matters_only_when_it_is_needed() -> None:
    data = adapt.EnvTags({"s": STATE}, JOINTS).to_dict()
    data["observation"]["points"] = {"type": "lidar", "role": "x/points", "beams": 64}
    metadata = {adapt.ENV_METADATA_KEY: data}
    space = Dict({"s": vector(2), "points": vector(64)})
    adapter = adapt.resolve_from_contract(contract(metadata, space), SPEC)
    assert adapter.transform_obs({"s": [1, 2], "points": None})["x"].tolist() == [1, 2]
    greedy = adapt.ModelSpec(adapt.State("x/points"), JOINTS)
    with pytest.raises(adapt.AdapterResolutionError, match='unrecognized kind "lidar"'):
        adapt.resolve_from_contract(contract(metadata, space), greedy)


class Untouchable(dict[str, Any]):
    """An observation that tells which keys were read."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


def test_ADX_3_only_the_keys_the_plan_reads_are_touched() -> None:
    adapter = resolve(
        {"s": STATE, "t": adapt.TextTag(adapt.INSTRUCTION), "u": adapt.StateTag("x/unused")},
        Dict({"s": vector(2), "t": TextSpace(9), "u": vector(1), "v": Discrete(2)}),
        {"x": adapt.State(adapt.JOINT_POS), "task": adapt.Text(adapt.INSTRUCTION)},
    )
    raw = Untouchable({"s": [1, 2], "t": "go", "u": object(), "v": object()})
    payload = adapter.transform_obs(raw)
    assert raw.read == {"s", "t"} and adapter.read_keys() == ("s", "t")
    assert payload["task"] == "go" and payload["x"].dtype == np.float32


def test_ADX_3_the_observation_is_not_altered_and_not_shared() -> None:
    adapter = resolve_state(STATE, 2, adapt.State(adapt.JOINT_POS, scale=2.0, clip=(0, 1)))
    raw = np.array([1, 2], np.float32)
    payload = adapter.transform_obs({"s": raw})
    payload["x"][:] = 9
    assert raw.tolist() == [1, 2]
    plain = resolve_state(STATE, 2, adapt.State(adapt.JOINT_POS))
    plain.transform_obs({"s": raw})["x"][:] = 9
    assert raw.tolist() == [1, 2]


def test_ADX_3_leaves_of_any_framework() -> None:
    import torch

    from rlmesh import Tensor

    adapter = resolve(
        {"s": STATE, "rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY)},
        Dict({"s": vector(2), "rgb": camera(1, 1)}),
        {"x": adapt.State(adapt.JOINT_POS), "image": adapt.Image(adapt.IMAGE_PRIMARY)},
    )
    state, frame = np.array([1, 2], np.float32), np.array([[[1, 2, 3]]], np.uint8)
    for convert in (torch.from_numpy, Tensor.adopt, np.ndarray.tolist):
        payload = adapter.transform_obs({"s": convert(state), "rgb": convert(frame)})
        assert payload["x"].tolist() == [1, 2] and payload["image"].ravel().tolist() == [1, 2, 3]
        assert type(payload["x"]) is np.ndarray and type(payload["image"]) is np.ndarray


def test_ADX_3_the_payload_has_the_shape_of_the_spec() -> None:
    adapter = resolve(
        STATE,
        vector(2),
        ({"q": adapt.State(adapt.JOINT_POS)}, adapt.Text("x/t", fill="z"), {}, ()),
    )
    payload = adapter.transform_obs([1, 2])
    assert isinstance(payload, list) and payload[1:] == ["z", {}, []]
    bare = resolve(STATE, vector(2), adapt.State(adapt.JOINT_POS))
    assert bare.transform_obs(np.array([1, 2])).tolist() == [1, 2]


def test_ADA_4_the_env_gets_its_own_shape_and_dtype() -> None:
    def adapter(space: Box) -> adapt.Adapter:
        return resolve_state(STATE, 2, adapt.State(adapt.JOINT_POS), action_space=space)

    wide = adapter(Box(-9, 9, (1, 2), "float64")).env_action([1, 2])
    assert wide.dtype == np.float64 and wide.tolist() == [[1.0, 2.0]]
    whole = adapter(Box(0, 9, (2,), "uint8"))
    assert whole.env_action([1, 2]).dtype == np.uint8
    assert whole.transform_action([1.5, 2]).dtype == np.float32
    with pytest.raises(ValueError, match=r"action: cannot cast non-integral value 1\.5 to uint8"):
        whole.env_action([1.5, 2])
    for action in ([300, 2], [-1, 2]):
        with pytest.raises(ValueError, match="out of range for uint8"):
            whole.env_action(action)


@pytest.mark.parametrize("threshold", [None, 0.0])
def test_ADA_4_nan_is_not_snapped(threshold: float | None) -> None:
    adapter = resolve_state(
        STATE,
        2,
        adapt.State(adapt.JOINT_POS),
        env=joints(1, binary=True, threshold=threshold),
        model=joints(1),
    )
    assert np.isnan(adapter.transform_action([np.nan])).all()
    assert adapter.transform_action([0.0]).tolist() == [0.0 if threshold is None else 1.0]


def test_ADX_5_wrap_predict() -> None:
    adapter = resolve_state(STATE, 2, adapt.State(adapt.JOINT_POS), env=joints(scale=10.0))
    step = adapter.wrap_predict(lambda payload: payload["x"] + 1)
    assert step({"s": [1, 2]}).tolist() == [20, 30]


def test_ADX_7_ADX_8_explain_and_advisories() -> None:
    adapter = resolve_image(adapt.Image(adapt.IMAGE_WRIST, size=4, fit="crop"))
    assert isinstance(adapter, adapt.AdapterBase)
    advisories = adapter.advisories()
    assert [(item.severity, item.code) for item in advisories] == [
        ("caution", "camera-rebind"),
        ("info", "crop-drops-edges"),
    ]
    assert [str(item) for item in advisories] == [item.message for item in advisories]
    assert f"dropped:\n  {advisories[0]}" in adapter.explain()


def test_ADX_9_history() -> None:
    adapter = resolve(
        {"rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY), "s": STATE},
        Dict({"rgb": camera(48, 64), "s": vector(2)}),
        (
            {"a": adapt.Image(adapt.IMAGE_PRIMARY, stack=3, stride=4)},
            adapt.Image(
                adapt.IMAGE_PRIMARY, size=8, fit="pad", stack=2, dtype="float32", layout="chw"
            ),
            adapt.Concat(adapt.JOINT_POS, adapt.Previous(adapt.ACTION_JOINT_POS)),
            adapt.Image(adapt.IMAGE_PRIMARY),
        ),
    )
    assert adapter.history_windows() == (("[0].a", 9, 48 * 64 * 3), ("[1]", 2, 8 * 8 * 3 * 4))
    assert adapter.history_keys() == ("[0].a", "[1]", "[2]")
    plain = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY))
    assert plain.history_windows() == () and plain.history_keys() == ()


def test_ADX_10_an_adapter_of_ones_own() -> None:
    class Doubling(adapt.AdapterBase[float]):
        def transform_obs(self, raw_obs: Any) -> Any:
            return raw_obs * 2

        def transform_action(self, raw_action: Any) -> float:
            return raw_action + 1

    mine = Doubling()
    assert mine.wrap_predict(lambda value: value)(3) == 7
    assert mine.reset() is None and mine.observe(3) is None
    assert "Doubling" in mine.explain()
    with pytest.raises(TypeError, match="abstract"):
        adapt.AdapterBase()  # type: ignore[abstract]


def test_ADX_11_adapters_need_numpy_and_load_nothing_else() -> None:
    code = """
import sys, rlmesh.adapters as adapt
heavy = {"cv2", "PIL", "scipy", "gymnasium", "torch", "jax", "grpc", "google.protobuf"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Memory


def test_stacks_are_kept_by_episode() -> None:
    adapter = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, stack=3), camera(1, 1))
    assert first(adapter.transform_obs(pixel(1), episode="a")) == [1, 1, 1]
    assert first(adapter.transform_obs(pixel(9), episode="b")) == [9, 9, 9]
    assert first(adapter.transform_obs(pixel(2), episode="a")) == [1, 1, 2]
    adapter.observe(pixel(3), episode="a")
    assert first(adapter.transform_obs(pixel(4), episode="a")) == [2, 3, 4]
    adapter.reset("a")
    assert first(adapter.transform_obs(pixel(5), episode="a")) == [5, 5, 5]
    assert first(adapter.transform_obs(pixel(8), episode="b")) == [9, 9, 8]
    adapter.reset()
    assert first(adapter.transform_obs(pixel(7), episode="b")) == [7, 7, 7]


@given(
    offsets=st.sets(st.integers(-8, -1), max_size=4).map(lambda back: (*sorted(back), 0)),
    black=st.booleans(),
    frames=st.lists(st.tuples(st.integers(1, 255), st.booleans()), min_size=1, max_size=20),
)
def test_ADI_17_a_window_is_what_a_list_of_all_frames_says(
    offsets: tuple[int, ...], black: bool, frames: list[tuple[int, bool]]
) -> None:
    if len(offsets) == 1:
        black = False
    adapter = resolve_image(
        adapt.Image(
            adapt.IMAGE_PRIMARY,
            stack=len(offsets),
            offsets=offsets,
            stack_pad="black" if black else "first",
        ),
        camera(1, 1),
    )
    seen: list[int] = []
    for value, predicts in frames:
        seen.append(value)
        if not predicts:
            adapter.observe(pixel(value))
            continue
        padding = 0 if black else seen[0]
        now = len(seen) - 1
        expected = [seen[now + back] if now + back >= 0 else padding for back in offsets]
        image = adapter.transform_obs(pixel(value))["image"]
        got = image.reshape(len(offsets), -1)[:, 0] if len(offsets) > 1 else image.ravel()[:1]
        assert got.tolist() == expected


def test_a_returned_stack_is_not_the_memory() -> None:
    adapter = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, stack=2), camera(1, 1))
    adapter.transform_obs(pixel(1))["image"][:] = 9
    assert first(adapter.transform_obs(pixel(2))) == [1, 2]


def test_ADM_10_the_previous_action_is_the_models_own() -> None:
    model = adapt.Action(
        adapt.Actuator(adapt.ACTION_GRIPPER, 1, scale=10.0),
        adapt.Actuator(adapt.ACTION_JOINT_POS, 2, scale=10.0),
    )
    leaf = adapt.Previous(adapt.ACTION_JOINT_POS, fill=0.5)
    adapter = resolve_state(STATE, 2, leaf, model=model)
    raw = {"s": [0, 0]}
    assert adapter.transform_obs(raw)["x"].tolist() == [0.5, 0.5]
    assert adapter.transform_action([9, 1, 2]).tolist() == [10, 20]
    assert adapter.transform_obs(raw)["x"].tolist() == [1, 2]


def test_ADM_10_a_custom_encoding_is_remembered_packed() -> None:
    packed = adapt.CustomEncoding("rot6d", lambda v: v - 1, lambda v: v + 1)
    adapter = resolve_state(
        STATE,
        2,
        adapt.Previous(adapt.ACTION_JOINT_POS),
        env=joints(6, encoding="rot6d"),
        model=joints(6, encoding=packed),
    )
    adapter.transform_obs({"s": [0, 0]})
    adapter.transform_action([1, 2, 3, 4, 5, 6])
    assert adapter.transform_obs({"s": [0, 0]})["x"].tolist() == [1, 2, 3, 4, 5, 6]


def test_ADM_10_replayed_chunk_actions_count_and_a_missed_step_does_not_pass() -> None:
    adapter = resolve_state(STATE, 2, adapt.Previous(adapt.ACTION_JOINT_POS))
    raw = {"s": [0, 0]}
    adapter.transform_obs(raw)
    for action in ([1, 2], [3, 4]):
        adapter.transform_action(action)
        adapter.observe(raw)
    adapter.transform_action([5, 6])
    assert adapter.transform_obs(raw)["x"].tolist() == [5, 6]
    adapter.transform_action([7, 8])
    adapter.observe(raw)
    with pytest.raises(ValueError, match="no action was recorded for step 4"):
        adapter.transform_obs(raw)
    adapter.reset()
    assert adapter.transform_obs(raw)["x"].tolist() == [0, 0]


# Many lanes


def everything() -> adapt.Adapter:
    return resolve(
        {
            "rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY, upside_down=True),
            "s": adapt.Split(
                adapt.Field(adapt.JOINT_POS, 2, range=(0, 1)),
                adapt.Field(adapt.EEF_ROT, 4, "quat_wxyz"),
            ),
            "t": adapt.TextTag(adapt.INSTRUCTION),
        },
        Dict({"rgb": camera(6, 8), "s": vector(6), "t": TextSpace(20)}),
        {
            "now": adapt.Image(adapt.IMAGE_PRIMARY, height=3, width=4, layout="chw"),
            "past": adapt.Image(adapt.IMAGE_PRIMARY, stack=2, normalize=True, dtype="float32"),
            "state": adapt.Concat(
                adapt.State(adapt.JOINT_POS, range=(-1, 1)),
                adapt.State(adapt.EEF_ROT, "rot6d"),
                adapt.Previous(adapt.ACTION_JOINT_POS),
                adapt.Constant(dim=2, fill=3),
                pad_to=16,
            ),
            "axis": adapt.State(adapt.EEF_ROT, "axis_angle", container="list"),
            "task": adapt.Text(adapt.INSTRUCTION),
            "tasks": adapt.Text(adapt.INSTRUCTION, "list"),
            "mine": adapt.Custom(lambda raw: np.asarray(raw["s"])[:1]),
        },
        env=adapt.Action(
            adapt.Actuator(adapt.ACTION_JOINT_POS, 2, invert=True),
            adapt.Actuator(adapt.ACTION_EEF_ROT, 4, "quat_xyzw"),
            adapt.Actuator(None, 1, fill=0.5),
            clip=(-5, 5),
        ),
        model=adapt.Action(
            adapt.Actuator(adapt.ACTION_EEF_ROT, 3, "axis_angle"),
            adapt.Actuator(adapt.ACTION_JOINT_POS, 2),
        ),
    )


def observations(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    return [
        {
            "rgb": rng.integers(0, 256, (6, 8, 3), np.uint8),
            "s": rng.normal(size=6).astype(np.float32),
            "t": f"task {lane}",
        }
        for lane in range(count)
    ]


@given(lanes=st.integers(1, 5), steps=st.integers(1, 3), seed=st.integers(0, 99))
def test_n_lanes_are_n_times_one_lane(lanes: int, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    together, alone = everything(), everything()
    keys = [f"episode {lane}" for lane in range(lanes)]
    for _ in range(steps):
        raws = observations(rng, lanes)
        batch = together.transform_obs_batch(raws, episodes=keys)
        singles = [
            alone.transform_obs(raw, episode=key) for raw, key in zip(raws, keys, strict=True)
        ]
        for key, values in batch.items():
            assert len(values) == lanes
            for value, single in zip(values, singles, strict=True):
                if key in ("task", "tasks"):
                    assert value == single[key]
                else:
                    np.testing.assert_allclose(value, single[key], atol=1e-6)
        assert batch["past"].shape == (lanes, 2, 6, 8, 3) and batch["past"].dtype == np.float32
        assert batch["task"] == [f"task {lane}" for lane in range(lanes)]
        actions = rng.normal(size=(lanes, 5)).astype(np.float32)
        env_actions = together.transform_action_batch(actions, episodes=keys)
        for lane, key in enumerate(keys):
            single = alone.transform_action(actions[lane], episode=key)
            np.testing.assert_allclose(env_actions[lane], single, atol=1e-6)


def test_batch_keys() -> None:
    adapter = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, stack=2), camera(1, 1))
    batch = adapter.transform_obs_batch([pixel(1), pixel(2)])["image"]
    assert batch.shape == (2, 2, 1, 1, 3) and batch[:, :, 0, 0, 0].tolist() == [[1, 1], [2, 2]]
    with pytest.raises(ValueError, match="one episode key per lane"):
        adapter.transform_obs_batch([pixel(1), pixel(2)], episodes=["a"])
    with pytest.raises(ValueError, match="distinct episode keys"):
        adapter.transform_obs_batch([pixel(1), pixel(2)], episodes=["a", "a"])


def test_INS_1_an_instruction_stands_in_every_text_input() -> None:
    adapter = resolve(
        {"t": adapt.TextTag(adapt.INSTRUCTION), "s": STATE},
        Dict({"t": TextSpace(9), "s": vector(2)}),
        {
            "a": adapt.Text(adapt.INSTRUCTION),
            "b": (adapt.Text("x/none", "list", fill=""), adapt.State(adapt.JOINT_POS)),
        },
    )
    raw = {"t": "from env", "s": [0, 0]}
    payload = adapter.transform_obs(raw, instruction="told")
    assert payload["a"] == "told" and payload["b"][0] == ["told"] and raw["t"] == "from env"
    both = adapter.transform_obs_batch([raw, raw], instruction=["one", "two"])
    assert both["a"] == ["one", "two"] and both["b"][0] == [["one"], ["two"]]
    with pytest.raises(ValueError, match="expected 2 instructions"):
        adapter.transform_obs_batch([raw, raw], instruction=["one"])


def test_the_signature_of_a_payload() -> None:
    from rlmesh.adapters.adapter import payload_signature

    payload = {"s": np.zeros(2, np.float32), "b": [np.zeros((1, 2), np.uint8), "go"]}
    assert payload_signature(payload) == "{s: float32[2], b: [uint8[1, 2], str]}"


def test_resolving_does_not_need_the_spaces_of_keys_nobody_tags() -> None:
    space = SimpleNamespace()
    with pytest.raises(adapt.AdapterResolutionError, match="observation space cannot be read"):
        resolve({"s": STATE}, space, adapt.State(adapt.JOINT_POS))
