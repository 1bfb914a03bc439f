"""Where the published rlmesh 0.1.0 is: a Python of its own, run as a black box."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["reference_python"]

ROOT = Path(__file__).resolve().parents[2]


def reference_python() -> str:
    """Return the interpreter that holds rlmesh 0.1.0; RuntimeError says what to do without one."""
    made = ROOT / ".venvs" / "reference" / "bin" / "python"
    place = os.environ.get("RLMESH_REFERENCE_PYTHON") or str(made)
    if os.access(place, os.X_OK):
        return place
    raise RuntimeError(
        f"no Python with rlmesh 0.1.0 at {place}: `make setup` makes one, or set "
        "RLMESH_REFERENCE_PYTHON to one"
    )
