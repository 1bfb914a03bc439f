"""The ``rlmesh`` command, which is also ``python -m rlmesh``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    Args:
        argv: the arguments; default those of the process.
    """
    try:
        importlib.import_module("click")
    except ImportError:
        print("rlmesh: error: the command needs click: pip install 'rlmesh[cli]'", file=sys.stderr)
        return 1
    # An installed script has its own folder there; MODULE:NAME means the one it is run in.
    if not getattr(sys.flags, "safe_path", False) and os.getcwd() not in (*sys.path, ""):
        sys.path.insert(0, os.getcwd())
    from rlmesh.cli.app import run_app

    return run_app(argv)
