"""Frames are what the library gives, bit for bit, and next to what rlmesh 0.1.0 gives."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import pytest
from black_box import BlackBox
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from rlmesh.adapters import images, resampling

Array = np.ndarray[Any, Any]

OPENCV = {"bilinear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA}
PILLOW = {
    "bilinear_aa": Image.Resampling.BILINEAR,
    "bicubic_aa": Image.Resampling.BICUBIC,
    "lanczos3_aa": Image.Resampling.LANCZOS,
}
SIDES = st.integers(1, 40)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def black_box() -> Iterator[BlackBox]:
    box = BlackBox()
    yield box
    box.close()


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> Array:
    shape = (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def scene(height: int, width: int, channels: int = 3) -> Array:
    """Smooth, as camera frames are at their own resolution, with one hard edge."""
    y, x = np.mgrid[:height, :width] / max(height, width)
    planes = [127 + 70 * np.sin(9 * x + c) + 50 * np.cos(7 * y - c) for c in range(channels)]
    frame = np.stack(planes, axis=-1)
    frame[height // 3 : height // 2, width // 4 : width // 2] *= 0.3
    return frame.clip(0, 255).astype(np.uint8)


def by_library(frame: Array, height: int, width: int, resample: str) -> Array:
    if resample in OPENCV:
        out = cv2.resize(frame, (width, height), interpolation=OPENCV[resample])
    else:
        squeezed = frame[:, :, 0] if frame.shape[2] == 1 else frame
        out = np.asarray(Image.fromarray(squeezed).resize((width, height), PILLOW[resample]))
    return out.reshape(height, width, frame.shape[2])


def furthest(a: Array, b: Array) -> int:
    assert a.shape == b.shape
    return int(np.abs(a.astype(int) - b.astype(int)).max())


class TestResize:
    @pytest.mark.parametrize("resample", images.RESAMPLES)
    @settings(deadline=None, max_examples=60)
    @given(SIDES, SIDES, SIDES, SIDES, st.sampled_from([1, 3, 4]), SEEDS)
    def test_is_the_library_bit_for_bit(
        self, resample: str, h: int, w: int, height: int, width: int, channels: int, seed: int
    ) -> None:
        frame = noise(h, w, channels, seed)
        before = frame.copy()
        out = images.resize(frame, height, width, resample)
        np.testing.assert_array_equal(out, by_library(frame, height, width, resample))
        np.testing.assert_array_equal(frame, before)
        assert out.dtype == np.uint8 and out.flags.writeable

    @pytest.mark.parametrize("resample", images.RESAMPLES)
    def test_camera_sizes_are_the_library_bit_for_bit(self, resample: str) -> None:
        for frame in (noise(480, 640), scene(480, 640), noise(256, 256, 1), noise(480, 640, 4)):
            out = images.resize(frame, 224, 224, resample)
            np.testing.assert_array_equal(out, by_library(frame, 224, 224, resample))

    @pytest.mark.parametrize("resample", images.RESAMPLES)
    def test_is_within_one_level_of_the_published_filters_on_a_scene(
        self, black_box: BlackBox, resample: str
    ) -> None:
        for h, w, size in ((480, 640, 224), (256, 256, 224), (128, 128, 64), (90, 41, 17)):
            frame = scene(h, w)
            published = black_box.image(frame, size=size, fit="stretch", resample=resample)
            assert furthest(images.resize(frame, size, size, resample), published) <= 1

    # On noise Pillow clips overshoot between its two passes, which the published package does not.
    @pytest.mark.parametrize(
        ("resample", "levels"),
        [("bilinear", 1), ("bilinear_aa", 1), ("area", 1), ("bicubic_aa", 24), ("lanczos3_aa", 48)],
    )
    def test_difference_from_the_published_filters_on_noise(
        self, black_box: BlackBox, resample: str, levels: int
    ) -> None:
        worst = 0
        for seed in range(12):
            frame = noise(48 + seed, 64 - seed, 3, seed)
            size = {"height": 33 - seed, "width": 21 + seed}
            published = black_box.image(frame, fit="stretch", resample=resample, **size)
            worst = max(worst, furthest(images.resize(frame, **size, resample=resample), published))
        assert 1 <= worst <= levels

    @pytest.mark.parametrize("resample", images.RESAMPLES)
    @pytest.mark.parametrize("channels", [2, 5, 6])
    def test_any_number_of_channels(self, resample: str, channels: int) -> None:
        frame = np.repeat(scene(30, 40, 1), channels, axis=2)
        out = images.resize(frame, 11, 13, resample)
        assert out.shape == (11, 13, channels)
        if channels != 2:  # two are grey and alpha to Pillow
            plane = by_library(frame[:, :, :1], 11, 13, resample)
            np.testing.assert_array_equal(out, np.repeat(plane, channels, axis=2))

    def test_same_size_is_the_frame_itself(self) -> None:
        frame = noise(5, 7)
        assert images.resize(frame, 5, 7) is frame

    @pytest.mark.parametrize("resample", images.RESAMPLES)
    def test_takes_views_and_read_only_frames(self, resample: str) -> None:
        whole = noise(40, 50)
        whole.flags.writeable = False
        view = whole[3:33, 5:45]
        np.testing.assert_array_equal(
            images.resize(view, 20, 16, resample), by_library(view.copy(), 20, 16, resample)
        )

    def test_unknown_filter(self) -> None:
        with pytest.raises(ValueError, match="unknown resample 'nearest'; expected one of"):
            images.resize(noise(4, 4), 2, 2, "nearest")


class TestMissingLibrary:
    @pytest.fixture(autouse=True)
    def forget(self) -> Iterator[None]:
        caches = (resampling._load, resampling._resizer, resampling.optional_opencv)
        for cached in caches:
            cached.cache_clear()
        yield
        for cached in caches:
            cached.cache_clear()

    @pytest.mark.parametrize(
        ("purpose", "module", "library"),
        [(name, "cv2", "OpenCV") for name in OPENCV]
        + [(name, "PIL.Image", "Pillow") for name in (*PILLOW, "jpeg", "decode")],
    )
    def test_says_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch, purpose: str, module: str, library: str
    ) -> None:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=rf"{library} cannot be imported") as caught:
            images.require_library(purpose)
        assert "pip install 'rlmesh[adapters]'" in str(caught.value)

    @pytest.mark.parametrize("resample", images.RESAMPLES)
    def test_no_filter_stands_in_for_another(
        self, monkeypatch: pytest.MonkeyPatch, resample: str
    ) -> None:
        monkeypatch.setitem(sys.modules, "cv2" if resample in OPENCV else "PIL.Image", None)
        with pytest.raises(ImportError):
            images.resize(noise(8, 8), 4, 4, resample)
        with pytest.raises(ImportError):
            images.crop_zoom(noise(8, 8), 0.9, 4, 4, "stretch", resample)

    def test_pixels_move_alike_without_opencv(self, monkeypatch: pytest.MonkeyPatch) -> None:
        frame, planes = noise(11, 7), noise(3, 11, 7)

        def moved() -> list[Array]:
            turned = images.rotate_180(frame)
            return [turned, images.swap_bgr(frame), images.to_hwc(planes, "chw")]

        with_opencv = moved()
        resampling._load.cache_clear()
        resampling.optional_opencv.cache_clear()
        monkeypatch.setitem(sys.modules, "cv2", None)
        for a, b in zip(with_opencv, moved(), strict=True):
            np.testing.assert_array_equal(a, b)

    def test_importing_the_module_imports_no_library(self) -> None:
        program = (
            "import sys, rlmesh.adapters.images; print(*{'cv2', 'PIL', 'scipy'} & {*sys.modules})"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.strip() == ""


class TestCrop:
    @settings(deadline=None, max_examples=40)
    @given(st.integers(1, 60), st.integers(1, 60), st.floats(0.02, 1.0))
    def test_slice_is_centred_and_at_least_a_pixel(self, h: int, w: int, fraction: float) -> None:
        frame = np.arange(h * w, dtype=np.int64).reshape(h, w, 1)
        out = images.crop_slice(frame, fraction)
        rows, columns = images.crop_size(h, w, fraction)
        assert out.shape == (rows, columns, 1)
        assert divmod(int(out[0, 0, 0]), w) == ((h - rows) // 2, (w - columns) // 2)

    def test_slice_has_the_published_size(self, black_box: BlackBox) -> None:
        for h, w, crop in (
            (30, 31, 0.5),
            (7, 9, 0.5),
            (10, 15, 0.9),
            (48, 64, 0.949),
            (5, 5, 0.01),
        ):
            frame = noise(h, w)
            published = black_box.image(frame, crop=crop, crop_mode="slice")
            np.testing.assert_array_equal(images.crop_slice(frame, crop), published)

    @pytest.mark.parametrize("resample", list(PILLOW))
    def test_zoom_is_pillows_box(self, resample: str) -> None:
        frame = noise(48, 64)
        box = (64 * 0.05, 48 * 0.05, 64 * 0.95, 48 * 0.95)
        expected = Image.fromarray(frame).resize((20, 16), PILLOW[resample], box=box)
        out = images.crop_zoom(frame, 0.9, 16, 20, "stretch", resample)
        np.testing.assert_array_equal(out, np.asarray(expected))

    @pytest.mark.parametrize("resample", images.RESAMPLES)
    @pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
    def test_zoom_is_within_one_level_of_the_published(
        self, black_box: BlackBox, resample: str, fit: str
    ) -> None:
        for seed in range(6):
            frame = scene(40 + 7 * seed, 71 - 5 * seed)
            height, width, crop = 20 + seed, 24 - seed, round(0.61 + 0.07 * seed, 3)
            published = black_box.image(
                frame, height=height, width=width, fit=fit, resample=resample, crop=crop
            )
            out = images.crop_zoom(frame, crop, height, width, fit, resample)
            assert furthest(out, published) <= 1

    @pytest.mark.parametrize("resample", ["bilinear", "area"])
    def test_zoom_on_whole_pixels_is_opencv(self, resample: str) -> None:
        # An even scale: no footprint and no tap crosses the edge of the box.
        frame = noise(48, 64)
        out = images.crop_zoom(frame, 0.5, 12, 16, "stretch", resample)
        inner = np.ascontiguousarray(frame[12:36, 16:48])
        assert furthest(out, by_library(inner, 12, 16, resample)) <= 1

    def test_zoom_at_the_same_size_is_tensorflows_crop_and_resize(self) -> None:
        # OpenVLA's centre crop: boxes in units of (size - 1), corners aligned.
        frame, area = scene(24, 24), 0.9
        side = np.sqrt(area)
        at = (1 - side) / 2 * 23 + np.arange(24) * side
        low = np.floor(at).astype(int)
        part = (at - low)[:, None, None]
        high = np.minimum(low + 1, 23)
        rows = frame[low] * (1 - part) + frame[high] * part
        part = part.transpose(1, 0, 2)
        expected = rows[:, low] * (1 - part) + rows[:, high] * part
        out = images.crop_zoom(frame, float(side), 24, 24)
        assert np.abs(out - expected).max() <= 0.5 + 1e-9

    def test_area_fraction_counts_by_its_root(self) -> None:
        assert images.crop_fraction(None, 0.81) == pytest.approx(0.9)
        assert images.crop_fraction(0.7, None) == 0.7
        assert images.crop_fraction(None, None) is None

    def test_the_whole_frame_is_a_plain_resize(self) -> None:
        frame = noise(20, 30)
        np.testing.assert_array_equal(
            images.crop_zoom(frame, 1.0, 10, 15), images.resize(frame, 10, 15)
        )


class TestFit:
    @pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
    @settings(deadline=None, max_examples=40)
    @given(SIDES, SIDES, SIDES, SIDES)
    def test_has_the_target_size(self, fit: str, h: int, w: int, height: int, width: int) -> None:
        assert images.fit_resize(noise(h, w), height, width, fit).shape == (height, width, 3)

    @pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
    @pytest.mark.parametrize("resample", images.RESAMPLES)
    def test_is_within_one_level_of_the_published(
        self, black_box: BlackBox, fit: str, resample: str
    ) -> None:
        for h, w, height, width in ((48, 64, 32, 32), (64, 48, 21, 33), (31, 17, 9, 16)):
            frame = scene(h, w)
            size = {"height": height, "width": width, "fit": fit}
            published = black_box.image(frame, resample=resample, **size)
            assert furthest(images.fit_resize(frame, **size, resample=resample), published) <= 1

    def test_bars_lie_as_the_published_ones(self, black_box: BlackBox) -> None:
        for h, w, height, width in (
            (48, 64, 33, 33),
            (64, 48, 20, 31),
            (7, 60, 30, 40),
            (1, 50, 9, 9),
        ):
            frame = np.full((h, w, 1), 255, np.uint8)
            out = images.fit_resize(frame, height, width, "pad")
            published = black_box.image(
                frame, height=height, width=width, fit="pad", allow_upscale=True
            )
            np.testing.assert_array_equal(out, published)

    def test_pad_on_the_longer_side_is_openpis_resize_with_pad(self) -> None:
        frame = scene(120, 160)
        inner = Image.fromarray(frame).resize((56, 42), Image.Resampling.BILINEAR)
        canvas = Image.new("RGB", (56, 56), 0)
        canvas.paste(inner, (0, 7))
        np.testing.assert_array_equal(
            images.fit_resize(frame, 56, 56, "pad", "bilinear_aa"), np.asarray(canvas)
        )

    def test_unknown_fit(self) -> None:
        with pytest.raises(ValueError, match="unknown fit 'cover'"):
            images.fit_resize(noise(4, 6), 2, 2, "cover")


class TestJpeg:
    @pytest.mark.parametrize("quality", [1, 30, 75, 95, 100])
    def test_is_pillows_bit_for_bit(self, quality: int) -> None:
        for frame in (scene(48, 64), noise(17, 23)):
            buffer = io.BytesIO()
            Image.fromarray(frame).save(buffer, "JPEG", quality=quality)
            expected = np.asarray(Image.open(buffer))
            np.testing.assert_array_equal(images.jpeg_round_trip(frame, quality), expected)

    def test_is_near_the_published_round_trip(self, black_box: BlackBox) -> None:
        frame = scene(96, 128)
        published = black_box.image(frame, jpeg_quality=95)
        out = images.jpeg_round_trip(frame, 95)
        assert furthest(out, published) <= 6
        assert np.abs(out.astype(int) - published).mean() < 0.5


class TestDecode:
    @pytest.mark.parametrize(
        ("mode", "channels"), [("L", 1), ("LA", 2), ("RGB", 3), ("RGBA", 4), ("P", 3), ("1", 1)]
    )
    def test_png_has_its_own_channels(self, black_box: BlackBox, mode: str, channels: int) -> None:
        data = encoded(Image.fromarray(scene(20, 30)).convert(mode), "PNG")
        out = images.decode_image(data)
        assert out.shape == (20, 30, channels)
        np.testing.assert_array_equal(out, black_box.image(data, (20, 30, 3)))

    def test_transparent_palette_becomes_rgba(self) -> None:
        picture = Image.new("P", (3, 2))
        picture.putpalette([255, 0, 0, 0, 255, 0])
        buffer = io.BytesIO()
        picture.save(buffer, "PNG", transparency=0)
        np.testing.assert_array_equal(images.decode_image(buffer.getvalue())[0, 0], [255, 0, 0, 0])

    def test_sixteen_bits_become_eight(self, black_box: BlackBox) -> None:
        wide = np.arange(600, dtype=np.uint16).reshape(20, 30) * 109
        data = encoded(Image.fromarray(wide), "PNG")
        out = images.decode_image(data)
        np.testing.assert_array_equal(out, black_box.image(data, (20, 30, 1)))

    @pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
    def test_jpeg_is_pillows(self, mode: str) -> None:
        data = encoded(Image.fromarray(scene(20, 30)).convert(mode), "JPEG")
        picture = Image.open(io.BytesIO(data))
        expected = np.asarray(picture if mode == "L" else picture.convert("RGB"))
        out = images.decode_image(memoryview(data))
        np.testing.assert_array_equal(out, expected.reshape(20, 30, -1))
        assert out.flags.writeable

    def test_bad_bytes(self) -> None:
        png = encoded(Image.fromarray(scene(20, 30)), "PNG")
        bmp = encoded(Image.fromarray(scene(4, 4)), "BMP")
        for data in (b"", b"abc", png[:-40], png[:30], bmp):
            with pytest.raises(ValueError, match="could not decode image bytes: "):
                images.decode_image(data)


def encoded(picture: Image.Image, file_format: str) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, file_format)
    return buffer.getvalue()


class TestToUint8:
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize("bounds", [(0, 1), (-1, 1), (0, 255), (-3, 17)])
    def test_floats_are_the_published_levels(
        self, black_box: BlackBox, dtype: str, bounds: tuple[float, float]
    ) -> None:
        low, high = bounds
        levels = np.linspace(-0.1, 1.1, 511) * (high - low) + low
        halves = (np.arange(255) + 0.5) / 255 * (high - low) + low
        frame = np.concatenate([levels, halves, [np.nan, np.inf, -np.inf]]).astype(dtype)
        frame = frame[None, :, None]
        published = black_box.image(frame, low=low, high=high)
        np.testing.assert_array_equal(images.to_uint8(frame, low, high), published)

    @pytest.mark.parametrize("bounds", [(None, None), (-np.inf, np.inf), (0.5, 0.5), (0, np.inf)])
    def test_floats_without_a_range_are_zero_to_one(self, bounds: tuple[Any, Any]) -> None:
        frame = np.array([[-1.0, 0.0, 0.5, 1.0, 100.6]])[:, :, None]
        np.testing.assert_array_equal(
            images.to_uint8(frame, *bounds).ravel(), [0, 0, 128, 255, 255]
        )

    @pytest.mark.parametrize("dtype", ["int16", "uint16", "int64"])
    def test_integers_are_levels(self, black_box: BlackBox, dtype: str) -> None:
        frame = np.array([[0, 1, 127, 128, 255, 256, 32767]], dtype)[:, :, None]
        published = black_box.image(frame, low=0, high=32767)
        np.testing.assert_array_equal(images.to_uint8(frame, 0, 32767), published)

    def test_uint8_is_the_frame_itself_and_bools_are_zero_and_one(self) -> None:
        frame = noise(3, 4)
        assert images.to_uint8(frame, 0, 1) is frame
        np.testing.assert_array_equal(images.to_uint8(frame > 99), (frame > 99).astype(np.uint8))

    def test_large_views_are_mapped_whole(self) -> None:
        frame = np.linspace(0, 1, 300 * 400 * 3).reshape(300, 400, 3).transpose(1, 0, 2)
        expected = np.rint(frame * 255).astype(np.uint8)
        np.testing.assert_array_equal(images.to_uint8(frame, 0, 1), expected)


class TestLayout:
    def test_round_trip(self) -> None:
        for channels in (1, 3, 4):
            frame = noise(5, 7, channels)
            planes = images.from_hwc(frame, "chw")
            np.testing.assert_array_equal(planes, frame.transpose(2, 0, 1))
            back = images.to_hwc(planes, "chw")
            np.testing.assert_array_equal(back, frame)
            assert planes.flags.c_contiguous and back.flags.c_contiguous
            assert images.to_hwc(frame, "hwc") is frame and images.from_hwc(frame, "hwc") is frame

    def test_floats_move_too(self) -> None:
        frame = noise(5, 7).astype(np.float32)
        np.testing.assert_array_equal(images.to_hwc(images.from_hwc(frame, "chw"), "chw"), frame)
        np.testing.assert_array_equal(images.rotate_180(frame), frame[::-1, ::-1])
        np.testing.assert_array_equal(images.swap_bgr(frame), frame[:, :, ::-1])

    def test_upside_down_is_a_turn_not_a_mirror(self, black_box: BlackBox) -> None:
        for channels in (1, 3, 4):
            frame = noise(6, 5, channels)
            turned = images.rotate_180(frame)
            np.testing.assert_array_equal(turned, frame[::-1, ::-1])
            np.testing.assert_array_equal(turned, black_box.image(frame, upside_down=True))
            np.testing.assert_array_equal(images.rotate_180(turned), frame)

    def test_bgr(self, black_box: BlackBox) -> None:
        frame = noise(6, 5)
        np.testing.assert_array_equal(images.swap_bgr(frame), frame[:, :, ::-1])
        np.testing.assert_array_equal(
            images.swap_bgr(frame), black_box.image(frame, channel_order="bgr")
        )

    def test_lead_dims_are_a_view(self) -> None:
        frame = noise(6, 5)
        out = images.add_lead_dims(frame, 2)
        assert out.shape == (1, 1, 6, 5, 3) and np.shares_memory(out, frame)


class TestValues:
    @pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 1.0), (0.1, 0.7), (0.0, 255.0)])
    @pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
    def test_every_level_is_the_published_one(
        self, black_box: BlackBox, bounds: tuple[float, float], dtype: str
    ) -> None:
        frame = np.arange(256, dtype=np.uint8)[None, :, None]
        out = images.cast(images.normalize(frame, bounds), dtype)
        published = black_box.image(frame, normalize=bounds, dtype=dtype)
        assert out.dtype == published.dtype
        np.testing.assert_array_equal(out, published)

    def test_cast_keeps_every_value_or_refuses(self) -> None:
        frame = np.array([[0, 100, 200]], np.uint8)[:, :, None]
        assert images.cast(frame, "uint8") is frame
        for dtype in ("float32", "int16", "int64", "float16"):
            np.testing.assert_array_equal(images.cast(frame, dtype), frame)
        with pytest.raises(ValueError, match="value 200 is out of range for int8"):
            images.cast(frame, "int8")
        with pytest.raises(ValueError, match="cannot cast non-integral value"):
            images.cast(images.normalize(frame), "uint8")
        with pytest.raises(ValueError, match=r"value -1\.0 is out of range for uint8"):
            images.cast(np.array([[[-1.0]]], np.float32), "uint8")
        np.testing.assert_array_equal(
            images.cast(images.normalize(frame, (0, 255)), "uint8"), frame
        )
