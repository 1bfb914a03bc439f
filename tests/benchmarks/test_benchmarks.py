"""Every part of `make bench` runs, with settings too small to measure anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "--rounds=1",
    "--seconds=0.01",
    "--payload=floats",
    "--transport=unix",
    "--most-cells=1",
    "--cell-seconds=0.8",
    "--most-clients=1",
    "--clients-seconds=0.3",
    "--link-steps=2",
    "--metaworld-episodes=2",
    "--metaworld-tasks=1",
]
SAID = {
    "step": "| 4 floats | 16 B | unix |",
    "connect": "`RemoteEnv(address)` over unix",
    "import": "`import rlmesh`",
    "remote": "a bare `RemoteEnv.step` loop",
    "local": "the same loop by hand",
    "many": "| 20 + 0.2 ms a row | 1 ms |",
    "metaworld": "the same steps and rewards: yes",
    "predict": "`Session.predict` of a `RemoteModel`",
    "clients": "| 1 | 40 |",
    "link": "### A slow link",
}


@pytest.fixture(scope="module")
def printed() -> str:
    command = [sys.executable, "-W", "error", str(ROOT / "benchmarks" / "run.py"), *TINY]
    command += [f"--part={part}" for part in SAID]
    reference = os.environ.get("RLMESH_REFERENCE_PYTHON")
    if reference:
        command.append(f"--reference-python={reference}")
    results = ROOT / "benchmarks" / "RESULTS.md"
    kept = results.read_bytes()
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert results.read_bytes() == kept, "a partial run is printed, not kept"
    return done.stdout


@pytest.mark.parametrize("part", SAID)
def test_part_of_the_benchmarks_runs(printed: str, part: str) -> None:
    assert SAID[part] in printed
