"""The authoring examples run as their READMEs say, and give their numbers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import SOURCE

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS = 240


def command(directory: str, *argv: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGV`` in the example's directory."""
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-W", "error", *argv],
        cwd=EXAMPLES / directory,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
    return done


@pytest.mark.timeout(SECONDS)
def test_torch_policy_is_trained_saved_loaded_and_evaluated_over_a_socket() -> None:
    text = command("torch_policy", "run.py").stdout
    rows = re.findall(r"^\s+(8|4|1)\s+(\d+)%", text, re.MULTILINE)
    assert [row[0] for row in rows] == ["8", "4", "1"]
    assert all(int(success) >= 90 for _, success in rows)


@pytest.mark.timeout(SECONDS)
def test_jax_policy_balances_gymnasiums_cart_pole() -> None:
    text = command("jax_policy", "run.py").stdout
    assert "balanced to the end: 20 of 20" in text


@pytest.mark.timeout(SECONDS)
def test_simulator_on_a_torch_device_plays_the_same_episodes_for_torch_and_numpy() -> None:
    text = command("torch_simulator", "run.py", "--device", "cpu").stdout
    assert "the same episodes, step for step" in text
    assert re.findall(r"^(Controller|OnHost) .*success_rate=1\.000", text, re.MULTILINE) == [
        "Controller",
        "OnHost",
    ]


@pytest.mark.timeout(SECONDS)
def test_factory_is_described_with_its_parameters_and_variants() -> None:
    done = command("metaworld_factory", "-m", "rlmesh", "describe", "tasks:MetaWorld")
    envelope = json.loads(done.stdout)
    declared = {p["name"]: p for p in envelope["params"]["param_spec"]["params"]}
    assert declared["task"]["choices"][0] == "reach-v3"
    variants = [variant["id"] for variant in envelope["variants"]["catalog"]]
    assert len(variants) == 10 and variants[0] == "reach-v3"
    assert envelope["env_spec"]["observation_space"]


@pytest.mark.timeout(SECONDS)
def test_factory_passes_the_check() -> None:
    done = command("metaworld_factory", "-m", "rlmesh", "check", "tasks:MetaWorld")
    assert "fail" not in done.stdout.lower().split()


@pytest.mark.timeout(SECONDS)
def test_factory_refuses_a_typo_before_it_builds_anything() -> None:
    binding = json.dumps({"task": "door-opne-v3"})
    argv = ["-m", "rlmesh", "serve", "tasks:MetaWorld", "--kwargs-json", binding]
    done = command("metaworld_factory", *argv, status=1)
    assert "door-open-v3" in done.stderr and "Traceback" not in done.stderr
