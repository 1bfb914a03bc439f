"""``python -m rlmesh.describe`` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

__all__ = ["NOISE", "Done", "command"]

NOISE = (
    *("printed at import", "written at import", "printed by a child", "printed in prepare"),
    *("written in make", "printed in close", "printed at exit", "written at exit"),
)


class Done(NamedTuple):
    status: int
    out: bytes
    err: str

    @property
    def said(self) -> str:
        """The last line of standard error that is the command's own."""
        lines = [line for line in self.err.splitlines() if line not in NOISE]
        return lines[-1] if lines else ""


def command(*arguments: str, **environ: str) -> Done:
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "rlmesh.describe", *arguments],
        env={**os.environ, "PYTHONPATH": paths, **environ},
        capture_output=True,
        timeout=60,
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())
