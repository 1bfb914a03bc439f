"""One observation through an adapter: ours or the published 0.1.0, or the bare library calls.

Run by whichever interpreter holds the package; the adapter API is the same in both.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Text

from harness import answer_rounds

CAMERAS = ("primary", "secondary", "wrist")
HEIGHT, WIDTH, SIZE = 480, 640, 224
CASES = {
    "bilinear": ("bilinear", 1),
    "bilinear_aa": ("bilinear_aa", 1),
    "state": ("", 1),
    "lanes": ("bilinear", 8),
}
"""The filter of three cameras, none without, and the number of lanes."""


def observation(rng: np.random.Generator, cameras: bool) -> dict[str, Any]:
    frames = (
        {c: rng.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8) for c in CAMERAS}
        if cameras
        else {}
    )
    quat = rng.normal(size=4)
    return {
        **frames,
        "pos": rng.normal(size=3).astype(np.float32),
        "quat": (quat / np.linalg.norm(quat)).astype(np.float32),
        "gripper": rng.uniform(0.0, 0.08, 1).astype(np.float32),
        "task": "put the cup on the plate",
    }


def adapter_of(resample: str) -> Any:
    """Cameras to 224, position + rotation + gripper as one vector, the instruction."""
    import rlmesh.adapters as adapt

    roles = {camera: f"image/{camera}" for camera in CAMERAS if resample}
    action = adapt.Action(adapt.Actuator("action/gripper", 1))
    tags = adapt.EnvTags(
        {
            **{camera: adapt.ImageTag(role) for camera, role in roles.items()},
            "pos": adapt.StateTag("proprio/eef_pos"),
            "quat": adapt.StateTag("proprio/eef_rot", encoding="quat_xyzw"),
            "gripper": adapt.StateTag("proprio/gripper", range=(0.0, 0.08)),
            "task": adapt.TextTag("text/instruction"),
        },
        action,
    )
    space = Dict(
        {
            **{camera: Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8) for camera in roles},
            "pos": Box(-np.inf, np.inf, (3,)),
            "quat": Box(-1.0, 1.0, (4,)),
            "gripper": Box(0.0, 0.08, (1,)),
            "task": Text(200),
        }
    )
    spec = adapt.ModelSpec(
        {
            **{
                camera: adapt.Image(role, size=SIZE, fit="stretch", resample=resample)
                for camera, role in roles.items()
            },
            "state": adapt.Concat(
                "proprio/eef_pos",
                adapt.State("proprio/eef_rot", encoding="axis_angle"),
                adapt.State("proprio/gripper", range=(-1.0, 1.0)),
            ),
            "task": adapt.Text("text/instruction"),
        },
        action,
    )
    return adapt.resolve(tags, space, Box(-1.0, 1.0, (1,)), spec)


def adapted(resample: str, lanes: list[dict[str, Any]]) -> Callable[[], object]:
    adapter = adapter_of(resample)
    if len(lanes) == 1:
        (only,) = lanes
        return lambda: adapter.transform_obs(only)
    if hasattr(adapter, "transform_obs_batch"):
        return lambda: adapter.transform_obs_batch(lanes)
    return lambda: [adapter.transform_obs(lane) for lane in lanes]


def bare(resample: str, lanes: list[dict[str, Any]]) -> Callable[[], object]:
    if resample == "bilinear":
        import cv2

        size, flag = (SIZE, SIZE), cv2.INTER_LINEAR

        def resized(frame: Any) -> Any:
            return cv2.resize(frame, size, interpolation=flag)
    else:
        from PIL import Image

        by = Image.Resampling.BILINEAR

        def resized(frame: Any) -> Any:
            return np.array(Image.fromarray(frame).resize((SIZE, SIZE), by))

    if len(lanes) == 1:
        frames = [lanes[0][camera] for camera in CAMERAS]
        return lambda: [resized(frame) for frame in frames]
    return lambda: [np.stack([resized(lane[camera]) for lane in lanes]) for camera in CAMERAS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("rlmesh", "bare"))
    parser.add_argument("case", choices=CASES)
    args = parser.parse_args()
    resample, count = CASES[args.case]
    rng = np.random.default_rng(0)
    lanes = [observation(rng, bool(resample)) for _ in range(count)]
    # The message that brings an observation comes and goes, and malloc then keeps memory for arrays
    # up to its size; without this, every result would be mapped and faulted in afresh.
    message = np.ones((count, len(CAMERAS), HEIGHT, WIDTH, 3), np.uint8)
    del message
    work = adapted if args.kind == "rlmesh" else bare
    answer_rounds(work(resample, lanes))


if __name__ == "__main__":
    main()
