"""Every row of the feature table's section 18 has a test or a case that names it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
COUNTS = {
    "ADV": 8,
    "ADE": 10,
    "ADA": 10,
    "ADM": 16,
    "ADI": 18,
    "ADR": 7,
    "ADP": 5,
    "ADX": 11,
    "ADW": 5,
}


@pytest.mark.parametrize("group", COUNTS)
def test_every_row_is_named(group: str) -> None:
    named = {
        row
        for file in (HERE.parent / "conformance" / "adapters").glob("*.json")
        for case in json.loads(file.read_text())
        for row in case["rows"]
    }
    for file in HERE.glob("test_*.py"):
        tests = re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
        found = re.findall(r"(AD[A-Z])_(\d+)", " ".join(tests))
        named |= {f"{prefix}-{number}" for prefix, number in found}
    missing = {f"{group}-{number}" for number in range(1, COUNTS[group] + 1)} - named
    assert not missing
