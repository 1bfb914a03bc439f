"""The table of adapter cases, against this package and, case by case, against rlmesh 0.1.0."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "adapters")]

from black_box import reference_python  # noqa: E402
from runner import PARTS, compare, load_cases, run_case  # noqa: E402

CASES = load_cases()
BY_NAME = {case["name"]: case for case in CASES}


def test_the_table_is_well_formed() -> None:
    assert len(BY_NAME) == len(CASES), "two cases of one name"
    for case in CASES:
        assert case["rows"], case["name"]
        assert set(case.get("reference_differs", {})) <= set(PARTS), case["name"]
        assert ("error" in case) != ("explain" in case), case["name"]


@pytest.mark.parametrize("name", BY_NAME)
def test_case(name: str) -> None:
    compare(BY_NAME[name], run_case(BY_NAME[name]))


@pytest.fixture(scope="module")
def reference_results() -> dict[str, Any]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RLMESH_"))}
    done = subprocess.run(
        [reference_python(), str(HERE / "reference_worker.py")],
        input=json.dumps(CASES),
        capture_output=True,
        text=True,
        timeout=100,
        env=kept,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(BY_NAME, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", BY_NAME)
def test_case_as_rlmesh_0_1_0_does_it(name: str, reference_results: dict[str, Any]) -> None:
    """Values, explain text and advisories agree, but for the differences a case names."""
    case = BY_NAME[name]
    skip = tuple(case.get("reference_differs", {}))
    compare(case, reference_results[name], skip=skip, levels=1)
