"""Whether an env keeps its own contract, so that an evaluation on it can be trusted.

``rlmesh check`` is :func:`check_env` for the shell.
"""

from __future__ import annotations

from rlmesh.checks.checking import check_env
from rlmesh.checks.findings import CheckReport, Finding, Level

__all__ = ["CheckReport", "Finding", "Level", "check_env"]
