"""18.4 and 18.5: specs as a person writes them, and what only functions can show."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np
import pytest
from building import JOINTS, camera, joints, resolve, resolve_image, resolve_state, vector

import rlmesh.adapters as adapt
from rlmesh.spaces import Dict

QUAT = adapt.StateTag(adapt.EEF_ROT, "quat_xyzw")


def up(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values + 1


def down(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values - 1


def test_ADM_1_specs_are_frozen_and_hashable() -> None:
    spec = adapt.ModelSpec(
        {"a": adapt.Image("x/a", size=4, stack=2, stride=3), "b": (adapt.Concat("x/b"),)}, JOINTS
    )
    same = adapt.ModelSpec(
        {"b": (adapt.Concat("x/b"),), "a": adapt.Image("x/a", 4, 4, stack=2, offsets=(-3, 0))},
        JOINTS,
    )
    assert spec == same and hash(spec) == hash(same)
    with pytest.raises(TypeError, match="must be a leaf, a dict, or a tuple"):
        adapt.ModelSpec([adapt.Text("x/a")], JOINTS)  # type: ignore[arg-type]


def test_ADM_1_a_custom_input_does_not_travel() -> None:
    with pytest.raises(ValueError, match="cannot be serialized"):
        adapt.ModelSpec(adapt.Custom(len), JOINTS).to_dict()
    with pytest.raises(ValueError, match="cannot be published"):
        adapt.ModelSpec(adapt.Custom(entrypoint="builtins:len"), JOINTS).to_metadata()


def test_ADM_2_size_and_replace() -> None:
    image = adapt.Image("x/a", size=8, stack=3, stride=2)
    assert (image.height, image.width, image.offsets) == (8, 8, (-4, -2, 0))
    assert dataclasses.replace(image, height=4).height == 4
    with pytest.raises(ValueError, match="pass size=, or height=/width=, not both"):
        adapt.Image("x/a", size=8, height=8)
    with pytest.raises(ValueError, match="pass stride=, or offsets=, not both"):
        adapt.Image("x/a", stack=2, offsets=(-1, 0), stride=1)
    assert adapt.Image("x/a", stride=3).offsets is None
    assert adapt.Image("x/a", render=48).render == (48, 48)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"crop": 0.5, "crop_area": 0.5}, "not both"),
        ({"crop": 0}, r"crop must be a fraction in \(0, 1\]"),
        ({"crop_area": 1.1}, r"crop_area must be a fraction in \(0, 1\]"),
        ({"jpeg_quality": 0}, "between 1 and 100"),
        ({"render": 4097}, "between 1 and 4096"),
        ({"render": 0}, "between 1 and 4096"),
        ({"fill": 3}, "fill only applies"),
        ({"stride": 0, "stack": 2}, "stride must be >= 1"),
        ({"normalize": (1, 0)}, "min <= max"),
        ({"normalize": (0, float("inf"))}, "finite"),
        ({"normalize": "yes"}, "bool or a"),
    ],
)
def test_ADM_2_image_refusals(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adapt.Image("x/a", **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dim": 1, "index": 1}, "set dim or index, not both"),
        ({"encoding": ["a", 1]}, "accept-set"),
        ({"fill": 1}, "fill applies only"),
        ({"labels": ["a"], "index": 0}, "labels or index"),
        ({"labels": ["a"], "dim": 2}, "dim 2 disagrees with the 1 labels"),
        ({"post_rotate": adapt.Rotation(encoding="rot6d", value=(1, 0, 0, 0, 1, 0))}, "encoding"),
        ({"source": "memory"}, "source must be"),
        ({"source": "action", "scale": 2}, "carries only part, labels, dim and fill; drop scale"),
        ({"source": "action", "index": 0}, "drop index"),
    ],
)
def test_ADM_3_state_refusals(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        adapt.State("x/a", **fields)


def test_ADM_3_container_fields_stay_positional() -> None:
    state = adapt.State("x/a", None, None, None, False, None, 4, "float64", (2, 2), "array")
    assert (state.pad_to, state.dtype, state.reshape, state.container) == (
        4,
        "float64",
        (2, 2),
        "array",
    )


def test_ADM_8_concat_refusals() -> None:
    with pytest.raises(ValueError, match="container fields alone; set dtype on the Concat"):
        adapt.Concat(adapt.State("x/a", dtype="float64"))
    with pytest.raises(ValueError, match="only Constant"):
        adapt.Concat(adapt.Constant())
    with pytest.raises(ValueError, match="at least one part"):
        adapt.Concat()
    with pytest.raises(TypeError, match="Concat parts must be"):
        adapt.Concat(adapt.Concat("x/a"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dim must be >= 1"):
        adapt.Constant(dim=0)


def test_ADM_11_rotation_literals() -> None:
    with pytest.raises(ValueError, match="3x3"):
        adapt.Rotation.from_matrix(np.eye(2))
    with pytest.raises(ValueError, match="reflection"):
        adapt.Rotation.from_matrix(np.diag([1.0, 1.0, -1.0]))
    with pytest.raises(ValueError, match="dim=2"):
        adapt.State(adapt.EEF_POS, 2)  # type: ignore[arg-type]
    for rotation in (
        adapt.Rotation.from_matrix(2 * np.eye(3)),
        adapt.Rotation(encoding="rot6d_rowmajor", value=(1, 1, 0, 0, 0, 0)),
        adapt.Rotation(encoding="quat_xyzw", value=(0, 0, 0, 0)),
    ):
        spec = adapt.ModelSpec(adapt.State(adapt.EEF_ROT, "rot6d", post_rotate=rotation), JOINTS)
        with pytest.raises(ValueError, match="is not a rotation"):
            spec.to_json()
        with pytest.raises(adapt.AdapterResolutionError, match="is not a rotation"):
            resolve_state(QUAT, 4, spec.input)
    nearly = np.eye(3) + 2e-5
    assert adapt.ModelSpec(
        adapt.State(adapt.EEF_ROT, "rot6d", post_rotate=adapt.Rotation.from_matrix(nearly)), JOINTS
    ).to_json()


def test_ADM_13_custom_sees_the_whole_raw_observation() -> None:
    seen: list[Any] = []
    adapter = resolve(
        {"s": adapt.StateTag("x/s")},
        Dict({"s": vector(2)}),
        {
            "mine": adapt.Custom(lambda o: seen.append(o) or {"any": o["s"]}),
            "s": adapt.State("x/s"),
        },
    )
    raw = {"s": np.zeros(2, np.float32), "unlisted": object()}
    payload = adapter.transform_obs(raw)
    assert seen[0] is raw and payload["mine"] == {"any": raw["s"]}
    assert '"mine" <- custom transform' in adapter.explain()
    flat = resolve(adapt.StateTag("x/s"), vector(2), adapt.Custom(dict))
    assert list(flat.transform_obs([1, 2])) == ["<obs>"]


def test_ADM_13_entrypoints_run_only_when_trusted() -> None:
    def build(entrypoint: str, **options: Any) -> adapt.Adapter:
        custom = adapt.Custom(entrypoint=entrypoint)
        return resolve(adapt.StateTag("x/s"), vector(2), custom, **options)

    sys.modules.pop("this", None)
    with pytest.raises(adapt.AdapterResolutionError, match="trust_entrypoints=True"):
        build("this:s")
    assert "this" not in sys.modules, "an untrusted module was imported"
    assert build("builtins:len", trust_entrypoints=True).transform_obs([1, 2]) == 1
    for entrypoint in ("builtins:nothing", "no_such_module:f", "math:pi"):
        with pytest.raises(adapt.AdapterResolutionError, match=entrypoint.split(":")[0]):
            build(entrypoint, trust_entrypoints=True)
    for custom in ({}, {"transform": len, "entrypoint": "builtins:len"}):
        with pytest.raises(ValueError, match="exactly one"):
            adapt.Custom(**custom)


def test_ADM_14_custom_encoding_of_an_observation() -> None:
    encoding = adapt.CustomEncoding("rot6d", up, down, "mine")
    assert encoding.width == 6 and not encoding.is_entrypoint
    adapter = resolve(
        {
            "s": adapt.Split(
                adapt.Field(adapt.EEF_POS, 3), adapt.Field(adapt.EEF_ROT, 4, "quat_xyzw")
            )
        },
        Dict({"s": vector(7)}),
        {"x": adapt.Concat(adapt.EEF_POS, adapt.State(adapt.EEF_ROT, encoding), pad_to=10)},
    )
    payload = adapter.transform_obs({"s": [7, 8, 9, 0, 0, 0, 1]})
    assert payload["x"].tolist() == [7, 8, 9, 2, 1, 1, 1, 2, 1, 0]
    assert adapter.explain().endswith("host-side encodings:\n  obs    'x'[3:9]: rot6d -> mine")


def test_ADM_14_custom_encoding_of_an_action() -> None:
    model = joints(6, encoding=adapt.CustomEncoding("rot6d", up, down, "mine"))
    adapter = resolve_state(
        QUAT, 4, adapt.State(adapt.EEF_ROT, "rot6d"), env=joints(6, encoding="rot6d"), model=model
    )
    assert adapter.transform_action([1, 2, 3, 4, 5, 6]).tolist() == [0, 1, 2, 3, 4, 5]
    assert adapter.explain().endswith("host-side encodings:\n  action [0:6]: mine -> rot6d")
    with pytest.raises(TypeError, match="flat array action"):
        adapter.transform_action({"a": 1})


def test_ADM_14_refusals_at_construction() -> None:
    with pytest.raises(ValueError, match="at least one of from_base"):
        adapt.CustomEncoding("rot6d")
    with pytest.raises(ValueError, match="both be callables or both"):
        adapt.CustomEncoding("rot6d", up, "a:b")
    with pytest.raises(ValueError, match="base must be one of"):
        adapt.CustomEncoding("matrix", up)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dim must be 6, got 5"):
        joints(5, encoding=adapt.CustomEncoding("rot6d", up))


@pytest.mark.parametrize(
    ("encoding", "fields", "message"),
    [
        (adapt.CustomEncoding("rot6d", None, up), {}, "needs from_base"),
        (adapt.CustomEncoding("rot6d", "a:b"), {}, "execution is not supported yet"),
        (adapt.CustomEncoding("rot6d", "<local>"), {}, "did not travel"),
        (adapt.CustomEncoding("rot6d", up), {"optional": True}, "cannot be optional"),
        (adapt.CustomEncoding("rot6d", up), {"index": 1}, "drop index"),
        (adapt.CustomEncoding("rot6d", up), {"dim": 3}, "dim=6"),
        (adapt.CustomEncoding("rot6d", up), {"reshape": (2, 3)}, "drop reshape"),
        (adapt.CustomEncoding("rot6d", up), {"container": "list"}, "container='array'"),
        (adapt.CustomEncoding("rot6d", up, up), {}, "arms are not inverses"),
    ],
)
def test_ADM_15_limits(encoding: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(adapt.AdapterResolutionError, match=message):
        resolve_state(QUAT, 4, adapt.State(adapt.EEF_ROT, encoding, **fields))


def test_ADM_15_limits_of_actions() -> None:
    for encoding, fields, message in (
        (adapt.CustomEncoding("rot6d", up), {}, "needs to_base"),
        (adapt.CustomEncoding("rot6d", up, down), {"binary": True}, "cannot be binary"),
        (adapt.CustomEncoding("rot6d", "a:b", "c:d"), {}, "not supported yet"),
    ):
        with pytest.raises(adapt.AdapterResolutionError, match=message):
            resolve_state(
                QUAT,
                4,
                adapt.State(adapt.EEF_ROT, "rot6d"),
                env=joints(6, encoding="rot6d"),
                model=joints(6, encoding=encoding, **fields),
            )


def test_ADM_15_the_width_is_kept_at_run_time() -> None:
    short = adapt.CustomEncoding("rot6d", lambda v: v[:5], lambda v: v[:3])
    adapter = resolve_state(QUAT, 4, adapt.State(adapt.EEF_ROT, short), check_inverse=False)
    with pytest.raises(ValueError, match="must return a flat width-6 vector"):
        adapter.transform_obs({"s": [0, 0, 0, 1]})


def test_ADM_16_the_inverse_check_can_be_skipped() -> None:
    leaf = adapt.State(adapt.EEF_ROT, adapt.CustomEncoding("rot6d", up, up))
    adapter = resolve_state(QUAT, 4, leaf, check_inverse=False)
    assert adapter.transform_obs({"s": [0, 0, 0, 1]})["x"].tolist() == [2, 1, 1, 1, 2, 1]


def test_ADI_1_the_frame_returned_is_an_array_of_its_own() -> None:
    frame = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
    frame.flags.writeable = False
    before = frame.copy()
    for fields in (
        {},
        {"layout": "chw"},
        {"upside_down": True},
        {"crop": 0.5, "crop_mode": "slice"},
    ):
        image = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, **fields)).transform_obs(
            {"rgb": frame}
        )["image"]
        assert image.flags.c_contiguous and image.flags.writeable
        assert not np.shares_memory(image, frame)
        image[...] = 0
        assert (frame == before).all()


def test_ADI_2_encoded_frames() -> None:
    import io

    from PIL import Image as Pillow

    frame = np.arange(6 * 8 * 3, dtype=np.uint8).reshape(6, 8, 3)
    buffer = io.BytesIO()
    Pillow.fromarray(frame).save(buffer, "PNG")
    adapter = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, upside_down=True))
    image = adapter.transform_obs({"rgb": buffer.getvalue()})["image"]
    assert (image == frame[::-1, ::-1]).all()
    chw = resolve_image(
        adapt.Image(adapt.IMAGE_PRIMARY),
        camera(3, 6, 8),
        adapt.ImageTag(adapt.IMAGE_PRIMARY, "chw"),
    )
    assert (chw.transform_obs({"rgb": buffer.getvalue()})["image"] == frame).all()
    grey = io.BytesIO()
    Pillow.fromarray(frame[:, :, 0]).save(grey, "PNG")
    plain = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY))
    assert plain.transform_obs({"rgb": grey.getvalue()})["image"].shape == (6, 8, 1)
    strict = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, channels=3))
    with pytest.raises(ValueError, match=r"expected shape \[6, 8, 3\]"):
        strict.transform_obs({"rgb": grey.getvalue()})


def test_ADI_2_pixels_that_are_no_numbers() -> None:
    from rlmesh.spaces import Box

    adapter = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY), Box(0, 1, (1, 1, 3), "float32"))
    with pytest.raises(ValueError, match="finite pixels"):
        adapter.transform_obs({"rgb": np.full((1, 1, 3), np.nan, np.float32)})
    for value in ("text", None):
        with pytest.raises(ValueError, match="'rgb'"):
            adapter.transform_obs({"rgb": value})


def test_ADI_12_jpeg() -> None:
    import io

    from PIL import Image as Pillow

    frame = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    adapter = resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, jpeg_quality=80), camera(16, 16))
    buffer = io.BytesIO()
    Pillow.fromarray(frame).save(buffer, "JPEG", quality=80)
    expected = np.asarray(Pillow.open(io.BytesIO(buffer.getvalue())))
    assert (adapter.transform_obs({"rgb": frame})["image"] == expected).all()


@pytest.mark.parametrize(("resample", "module"), [("bilinear", "cv2"), ("bicubic_aa", "PIL.Image")])
def test_a_missing_library_fails_at_resolve(
    resample: Any, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlmesh.adapters import resampling

    def absent(name: str) -> Any:
        if name == module:
            raise ImportError(f"No module named {name!r}", name=name)
        return __import__("importlib").import_module(name)

    monkeypatch.setattr(resampling, "_load", absent)
    image = adapt.Image(adapt.IMAGE_PRIMARY, height=3, width=4, resample=resample)
    with pytest.raises(ImportError, match="pip install"):
        resolve_image(image)
    resolve_image(adapt.Image(adapt.IMAGE_PRIMARY, resample=resample))


def test_numpy_values_in_specs_become_plain() -> None:
    spec = adapt.ModelSpec(
        {
            "i": adapt.Image("x/i", np.int64(4), np.int32(5), normalize=np.array([-1, 1])),
            "s": adapt.Concat(
                adapt.State(
                    "x/s",
                    dim=np.int64(2),
                    range=np.array([0.0, 1.0]),
                    scale=np.float32(0.5),
                    offset=np.ones(2),
                ),
                adapt.Constant(dim=np.int64(2), fill=np.float32(1)),
                clip=[np.float64(0), np.float64(1)],
                reshape=[2, -1],
            ),
        },
        adapt.Action(
            adapt.Actuator("x/a", np.prod((2, 2)), range=(np.float32(0), np.float32(1))),
            clip=None,
        ),
    )
    same = adapt.ModelSpec(
        {
            "i": adapt.Image("x/i", 4, 5, normalize=(-1, 1)),
            "s": adapt.Concat(
                adapt.State("x/s", dim=2, range=(0, 1), scale=0.5, offset=(1, 1)),
                adapt.Constant(dim=2, fill=1),
                clip=(0, 1),
                reshape=(2, -1),
            ),
        },
        adapt.Action(adapt.Actuator("x/a", 4, range=(0, 1))),
    )
    assert spec == same and hash(spec) == hash(same) and spec.to_json() == same.to_json()
    tags = adapt.EnvTags(
        adapt.Split(adapt.Field("x/s", np.int64(2), range=np.array([0, 1]))),
        adapt.Action(adapt.Actuator("x/a", 1), clip=np.array([0, 1])),
    )
    assert adapt.EnvTags.from_json(tags.to_json()) == tags and hash(tags)
