"""The preview shows the frames, numbers and words that the policy gets, in one page."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict
from PIL import Image
from scipy import ndimage

from arm_env import ArmEnv, arm_tags
from rlmesh import adapters as adapt
from rlmesh.adapters import presets
from rlmesh.adapters.preview import main, preview
from rlmesh.adapters.preview_views import action_views, camera_views, vector_views

Array = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
SOURCE = Path(adapt.__file__).resolve().parents[2]
RED, BROWN = (220, 40, 40), (90, 60, 30)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
CHROMIUM_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip


def arm(spec: adapt.ModelSpec, size: int = 64) -> tuple[adapt.Adapter, dict[str, Any]]:
    env = ArmEnv(size)
    observation, _ = env.reset(seed=0)
    return adapt.resolve(arm_tags(), env.observation_space, env.action_space, spec), observation


def pictures(page: str) -> list[Array]:
    found = re.findall(r"src='data:image/png;base64,([^']+)'", page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for data in found]


class Strict(HTMLParser):
    """Fails on tags that do not nest; collects tags and attributes."""

    VOID = ("meta", "img", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", [n for n in presets.PRESETS if n.endswith("_libero")])
def test_is_one_well_formed_page_that_asks_for_nothing(name: str) -> None:
    adapter, observation = arm(presets.PRESETS[name](), 256)
    page = preview(adapter, observation)
    parser = Strict()
    parser.feed(page)
    assert parser.open == []
    assert not any(tag in ("script", "link", "iframe") for tag, _ in parser.seen)
    sources = [a[k] or "" for _, a in parser.seen for k in ("src", "href") if k in a]
    assert sources and all(source.startswith("data:image/png;base64,") for source in sources)
    assert html.escape(adapter.explain()) in page
    assert "put the bowl on the plate &amp; &lt;wait&gt;" in page


def test_frames_are_the_envs_and_the_policys() -> None:
    adapter, observation = arm(presets.openpi_libero(), 256)
    payload = adapter.transform_obs(observation)
    before, after, wrist_before, wrist_after = pictures(preview(adapter, observation))
    np.testing.assert_array_equal(before, observation["agentview_image"])
    np.testing.assert_array_equal(after, payload["observation/image"])
    np.testing.assert_array_equal(wrist_before, observation["robot0_eye_in_hand_image"])
    np.testing.assert_array_equal(wrist_after, payload["observation/wrist_image"])


def test_normalized_planes_and_bgr_are_shown_as_a_person_would_see_them() -> None:
    spec = adapt.ModelSpec(
        {
            "image": adapt.Image(
                adapt.IMAGE_PRIMARY, layout="chw", dtype="float32", normalize=(-1.0, 1.0),
                lead_dims=2, channel_order="bgr",
            )
        },
        presets.openpi_libero().output,
    )  # fmt: skip
    adapter, observation = arm(spec)
    (view,) = camera_views(adapter.plan, observation, adapter.transform_obs(observation))
    np.testing.assert_array_equal(view.after[0], observation["agentview_image"][::-1, ::-1])
    assert view.facts == "float32[1, 1, 3, 64, 64], -1 to 0.7255, BGR shown as RGB"


def test_stacks_show_the_window_of_a_first_step_and_leave_the_memory_alone() -> None:
    adapter, observation = arm(presets.octo_bridge(), 256)
    later, *_ = ArmEnv(256).step(np.zeros(7, np.float32))
    adapter.transform_obs(later)
    before, older, newer = pictures(preview(adapter, observation))
    np.testing.assert_array_equal(older, newer)
    np.testing.assert_array_equal(before[::-1, ::-1], newer)
    window = adapter.transform_obs(observation)["image_primary"]
    np.testing.assert_array_equal(window[0], later["agentview_image"][::-1, ::-1])


def test_a_camera_the_env_lacks_is_called_made_up() -> None:
    spec = adapt.ModelSpec(
        {
            "image": adapt.Image(adapt.IMAGE_PRIMARY),
            "second": adapt.Image(adapt.IMAGE_SECONDARY, size=8, channels=3, optional=True),
        },
        presets.openpi_libero().output,
    )
    adapter, observation = arm(spec)
    page = preview(adapter, observation)
    assert "made up: the env has no such camera" in page
    assert len(pictures(page)) == 3
    assert "class='note caution'" in page


def test_encoded_and_grey_frames_are_shown() -> None:
    tags = adapt.EnvTags(
        {"rgb": adapt.ImageTag(adapt.IMAGE_PRIMARY), "depth": adapt.ImageTag("image/depth")},
        adapt.Action(adapt.Actuator("x/a", 1)),
    )
    space = Dict({"rgb": Box(0, 255, (4, 5, 3), np.uint8), "depth": Box(0.0, 2.0, (4, 5, 1))})
    spec = adapt.ModelSpec(
        {"rgb": adapt.Image(adapt.IMAGE_PRIMARY), "depth": adapt.Image("image/depth")},
        adapt.Action(adapt.Actuator("x/a", 1)),
    )
    adapter = adapt.resolve(tags, space, Box(-1.0, 1.0, (1,)), spec)
    buffer = io.BytesIO()
    frame = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    Image.fromarray(frame).save(buffer, "PNG")
    observation = {"rgb": buffer.getvalue(), "depth": np.ones((4, 5, 1), np.float32)}
    shown = pictures(preview(adapter, observation))
    np.testing.assert_array_equal(shown[0], frame)
    assert shown[2].shape == (4, 5) and (shown[2] == 128).all()


def test_state_elements_have_names_before_and_after() -> None:
    adapter, observation = arm(presets.openpi_libero(), 256)
    payload = adapter.transform_obs(observation)
    (view,) = vector_views(adapter.plan, observation, payload)
    assert [item.name for item in view.before] == [
        "robot0_eef_pos[0] x", "robot0_eef_pos[1] y", "robot0_eef_pos[2] z",
        "robot0_eef_quat[0] x", "robot0_eef_quat[1] y", "robot0_eef_quat[2] z",
        "robot0_eef_quat[3] w", "robot0_gripper_qpos[0]", "robot0_gripper_qpos[1]",
    ]  # fmt: skip
    assert [item.name for item in view.after] == [
        "eef_pos.x", "eef_pos.y", "eef_pos.z", "eef_rot.ax", "eef_rot.ay", "eef_rot.az",
        "gripper[0]", "gripper[1]",
    ]  # fmt: skip
    np.testing.assert_array_equal([item.value for item in view.after], payload["observation/state"])
    assert view.before[6].value == pytest.approx(float(observation["robot0_eef_quat"][3]))


def test_labels_slices_padding_constants_and_previous_actions_have_names() -> None:
    tags = adapt.EnvTags(
        adapt.Split(
            adapt.Field(dim=1),
            adapt.Field(adapt.JOINT_POS, 3, labels=("hip", "knee", "foot")),
            adapt.Field(adapt.EEF_POS, 3),
        ),
        adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 1)),
    )
    spec = adapt.ModelSpec(
        {
            "state": adapt.Concat(
                adapt.State(adapt.JOINT_POS, labels=("knee", "hip", "foot")),
                adapt.State(adapt.EEF_POS, index=2),
                adapt.State(adapt.GRIPPER_POS, dim=2, optional=True),
                adapt.Constant(dim=1, fill=0.5),
                adapt.Previous(adapt.ACTION_JOINT_POS),
                pad_to=10,
            )
        },
        adapt.Action(adapt.Actuator(adapt.ACTION_JOINT_POS, 1)),
    )
    adapter = adapt.resolve(tags, Box(-9.0, 9.0, (7,)), Box(-1.0, 1.0, (1,)), spec)
    observation = np.arange(7, dtype=np.float32)
    (view,) = vector_views(adapter.plan, observation, adapter.transform_obs(observation))
    after = {item.name: item.value for item in view.after}
    assert after == {
        "joint_pos.knee": 2, "joint_pos.hip": 1, "joint_pos.foot": 3, "eef_pos.z": 6,
        "gripper[0]": 0, "gripper[1]": 0, "const": 0.5, "previous joint_pos": 0,
        "pad[0]": 0, "pad[1]": 0,
    }  # fmt: skip
    before = [item.name for item in view.before]
    assert before[:3] == ["<root>[1] hip", "<root>[2] knee", "<root>[3] foot"]
    assert before[3:] == ["<root>[4] x", "<root>[5] y", "<root>[6] z"]


def test_unit_actions_show_where_each_number_goes() -> None:
    adapter, _ = arm(presets.openvla_libero(), 256)
    views = list(action_views(adapter.plan.action, adapter.transform_action))
    assert [view.name for view in views] == [
        "delta_eef_pos.x", "delta_eef_pos.y", "delta_eef_pos.z", "delta_eef_rot[0]",
        "delta_eef_rot[1]", "delta_eef_rot[2]", "gripper",
    ]  # fmt: skip
    gripper = views[-1]
    assert [gripper.rest[6].value, gripper.plus[6].value, gripper.minus[6].value] == [1, -1, 1]
    assert "invert)" in gripper.path
    for index, view in enumerate(views[:6]):
        changed = [a.value != b.value for a, b in zip(view.plus, view.rest, strict=True)]
        assert changed == [place == index for place in range(7)]


def test_rotations_rest_at_the_identity_and_dropped_outputs_say_so() -> None:
    spec = adapt.ModelSpec(
        {"image": adapt.Image(adapt.IMAGE_PRIMARY)},
        adapt.Action(
            adapt.Actuator(adapt.ACTION_DELTA_POS, 3),
            adapt.Actuator(adapt.ACTION_DELTA_ROT, 6, encoding="rot6d"),
            adapt.Actuator(adapt.ACTION_GRIPPER, 1),
            adapt.Actuator("x/extra", 1),
        ),
    )
    adapter, _ = arm(spec)
    views = list(action_views(adapter.plan.action, adapter.transform_action))
    assert [item.value for item in views[0].rest] == [0.0] * 7
    assert [item.name for item in views[0].rest][3:6] == [
        "delta_eef_rot.ax", "delta_eef_rot.ay", "delta_eef_rot.az",
    ]  # fmt: skip
    assert views[3].name == "delta_eef_rot.r11"
    assert views[-1].name == "output[10]" and views[-1].path.startswith("dropped")
    assert views[-1].plus == views[-1].rest


def test_findings_of_a_check_are_shown_beside_the_adapters_own() -> None:
    adapter, observation = arm(presets.openpi_libero(), 256)
    finding = adapt.Advisory("caution", 'camera "<b>" is black', "camera-black")
    page = preview(adapter, observation, findings=[finding])
    assert "<code>camera-black</code>" in page and "camera &quot;&lt;b&gt;&quot; is black" in page


class PolicyOfOnesOwn:
    """A model class names its spec; it must not be built for a preview."""

    spec = presets.openpi_libero()

    def __init__(self) -> None:
        raise AssertionError("built")


TAGS = arm_tags()


def not_a_spec() -> int:
    return 3


class TestCommandLine:
    @pytest.mark.parametrize(
        "model",
        ["rlmesh.adapters.presets:openpi_libero", "test_preview:PolicyOfOnesOwn",
         "test_preview:PolicyOfOnesOwn.spec"],
    )  # fmt: skip
    def test_writes_the_page(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
    ) -> None:
        out = tmp_path / "page.html"
        arguments = ["--env", "arm_env:ArmEnv", "--model", model, "--out", str(out)]
        assert main([*arguments, "--steps", "2", "--check"]) == 0
        assert capsys.readouterr().out.strip() == str(out)
        page = out.read_text("utf-8")
        assert f"What {model} sees of arm_env:ArmEnv" in page and len(pictures(page)) == 4

    def test_runs_as_a_module(self, tmp_path: Path) -> None:
        out = tmp_path / "page.html"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "rlmesh.adapters.preview", "--env",
             "arm_env:ArmEnv", "--model", "rlmesh.adapters.presets:groot_libero", "--out", out],
            env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}"},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert out.stat().st_size > 1000

    @pytest.mark.parametrize("tags", ["arm_env:arm_tags", "test_preview:TAGS"])
    def test_tags_can_be_named_for_an_env_that_publishes_none(
        self, tmp_path: Path, tags: str
    ) -> None:
        out = tmp_path / "page.html"
        model = "rlmesh.adapters.presets:smolvla_libero"
        arguments = ["--env", "arm_env:untagged", "--model", model, "--out", str(out)]
        assert main([*arguments, "--tags", tags]) == 0
        assert len(pictures(out.read_text("utf-8"))) == 4

    @pytest.mark.parametrize(
        ("env", "model", "message"),
        [
            ("arm_env:untagged", "rlmesh.adapters.presets:openpi_libero", "no adapter tags"),
            ("arm_env:Nothing", "rlmesh.adapters.presets:openpi_libero", "has no 'Nothing'"),
            ("no_such_module:X", "rlmesh.adapters.presets:openpi_libero", "no_such_module"),
            ("arm_env:ArmEnv", "test_preview:not_a_spec", "is no ModelSpec and has none"),
            ("arm_env:ArmEnv", "presets", "expected module:name, got 'presets'"),
            ("NoSuch-v0", "rlmesh.adapters.presets:openpi_libero", "NoSuch"),
        ],
    )
    def test_errors_are_one_line_and_status_1(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        env: str,
        model: str,
        message: str,
    ) -> None:
        out = tmp_path / "page.html"
        assert main(["--env", env, "--model", model, "--out", str(out)]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
        assert not out.exists()

    def test_a_wrong_command_line_is_status_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["--env", "x"])
        assert caught.value.code == 2
        assert "--model" in capsys.readouterr().err


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: chromium)")
def test_a_browser_shows_the_camera_upside_down_before_and_upright_after(tmp_path: Path) -> None:
    adapter, observation = arm(presets.openpi_libero(), 256)
    page, shot = tmp_path / "page.html", tmp_path / "page.png"
    page.write_text(preview(adapter, observation), encoding="utf-8")
    assert CHROMIUM is not None
    command = [
        CHROMIUM, *CHROMIUM_FLAGS, f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1200,2400", f"--screenshot={shot}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    seen = np.asarray(Image.open(shot).convert("RGB")).astype(int)
    # The first camera's pair: red blocks and brown tables, the left ones as the env sends them.
    reds = blobs(seen, RED)
    browns = blobs(seen, BROWN)
    assert len(reds) == len(browns) == 4
    (env_red, policy_red), (env_table, policy_table) = (
        sorted(found[:2], key=lambda blob: blob[1]) for found in (reds, browns)
    )
    assert env_table[0] < env_red[0], "the raw frame has its table on top"
    assert policy_red[0] < policy_table[0], "the policy's has it at the bottom"
    assert env_red[1] < policy_red[1] and env_table[1] < policy_table[1], "side by side"


def blobs(picture: Array, colour: tuple[int, int, int]) -> list[tuple[float, float]]:
    """(row, column) of the middle of each large patch of a colour, of the upper camera's first."""
    mask = (np.abs(picture - np.array(colour)) <= 12).all(axis=-1)
    labels, count = ndimage.label(mask)
    sizes = ndimage.sum_labels(mask, labels, range(1, count + 1))
    large = (np.flatnonzero(sizes > 800) + 1).tolist()
    return sorted(ndimage.center_of_mass(mask, labels, large))


def test_specs_can_be_edited() -> None:
    spec = presets.openpi_libero()
    image = dataclasses.replace(spec.input["observation/image"], resample="area")
    edited = dataclasses.replace(spec, input={**spec.input, "observation/image": image})
    assert "(area)" in arm(edited, 256)[0].explain()
