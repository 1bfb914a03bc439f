"""The adapter examples run as their READMEs say, on the real simulators, and give their numbers."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.processes import SOURCE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS = 240


def run(name: str, *arguments: str) -> str:
    """What the example prints."""
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name / "run.py", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def number(text: str, before: str) -> float:
    """The first number after a piece of the output."""
    found = re.search(re.escape(before) + r"\D*?(-?\d+\.?\d*)", text)
    assert found is not None, f"no number after {before!r} in:\n{text}"
    return float(found[1])


@pytest.mark.timeout(SECONDS)
def test_metaworld_expert_in_another_layout_is_as_good() -> None:
    """Issue 4: a flat `Split` over a socket; the same episodes, to the step."""
    text = run("adapters_metaworld")
    assert '"hand.position" <- concat(<root>[0:3])' in text
    assert '"action/gripper" <- model[0:1] (range (0.0, 1.0)->(-1.0, 1.0)) (model invert)' in text
    rows = re.findall(r"^(raw|adapted),.*?(\d+)%\s+(\d+)$", text, re.MULTILINE)
    (_, raw_success, raw_steps), (_, success, steps) = rows
    assert raw_success == success == "100"
    assert abs(int(raw_steps) - int(steps)) <= 5  # float32 on the way may cost a step
    assert "the same episodes succeeded" in text


@pytest.mark.timeout(SECONDS)
def test_pusht_policy_sees_the_block_where_it_is() -> None:
    text = run("adapters_pusht")
    assert '"image" <- image "pixels" (resize 48x48 (area), normalize /255' in text
    assert number(text, "block as seen, against the simulator's:") < 512 / 48  # within its pixel
    assert number(text, "mean reward, policy:") > 5 * number(text, "mean reward, random:")


@pytest.mark.timeout(SECONDS)
def test_two_cameras_the_tag_decides_and_the_page_shows_it(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = run("adapters_two_cameras", "--out", str(page))
    assert number(text, "success, wrist camera tagged upside down:") == 100
    assert number(text, "success, that left out of the tag:") == 0
    assert "hand_quat (quat_wxyz->rot6d)@world" in text

    found = re.findall(r"src='data:image/png;base64,([^']+)'", page.read_text())
    frames = [np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) for data in found]
    front, seen, wrist, upright = frames
    assert front.shape == wrist.shape == (240, 320, 3)
    assert seen.shape == upright.shape == (224, 224, 3)
    # The green cylinder: up on the right of the raw frame, down on the left of what the policy has.
    assert green(wrist)[0] < 0.3 < 0.7 < green(wrist)[1]
    assert green(upright)[0] > 0.7 > 0.3 > green(upright)[1]


def green(frame: np.ndarray) -> tuple[float, float]:
    """Row and column of the centre of what is green, as fractions of the frame."""
    red, level, blue = np.moveaxis(frame.astype(int), -1, 0)
    rows, columns = np.nonzero((level > red + 40) & (level > blue + 40))
    assert len(rows) > 20
    return rows.mean() / frame.shape[0], columns.mean() / frame.shape[1]


@pytest.mark.timeout(SECONDS)
def test_temporal_ensembling_smooths_and_still_succeeds() -> None:
    text = run("temporal_ensembling")
    rows = re.findall(r"^(first of each chunk|ensemble)\s+(\d+)%\s+(\d+)\s+([\d.]+)$", text, re.M)
    (_, _, first_steps, rough), (_, success, steps, smooth) = rows
    assert success == "100"
    assert float(smooth) < float(rough) / 2
    assert int(steps) < int(first_steps)
