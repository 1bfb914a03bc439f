"""Runs in the published package's Python: describe what it is told to, print JSON.

``python reference_describe.py '["Bare", "make_env/env"]'``
"""

from __future__ import annotations

import json
import sys
from typing import Any

import rlmesh


def described(name: str) -> Any:
    name, _, kind = name.partition("/")
    try:
        return rlmesh.describe(f"describe_targets:{name}", kind=kind or None)
    except Exception as exc:
        return {"raised": f"{type(exc).__name__}: {exc}"}


names = json.loads(sys.argv[1])
json.dump({name: described(name) for name in names}, sys.stdout)
