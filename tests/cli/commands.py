"""The command as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import Child
from support.processes import SOURCE, TESTS

__all__ = ["Said", "command", "environ", "rlmesh", "started"]

_PATH = [str(SOURCE), str(TESTS), str(TESTS / "cli"), str(TESTS / "checks")]


@dataclass(frozen=True)
class Said:
    """What a command wrote and ended with."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its standard output, which is one document of strict JSON and nothing else."""

        def refuse(token: str) -> Any:
            raise AssertionError(f"{token} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "rlmesh", *arguments]


def environ(more: dict[str, str] | None = None) -> dict[str, str]:
    paths = [*_PATH, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **(more or {})}


def rlmesh(
    *arguments: str,
    more: dict[str, str] | None = None,
    cwd: str | Path | None = None,
    argv: list[str] | None = None,
) -> Said:
    """Run the command to its end."""
    done = subprocess.run(
        argv or command(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environ(more),
        cwd=cwd,
        timeout=60,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def started(*arguments: str) -> Child:
    """Start the command."""
    return Child(command(*arguments), environ={"PYTHONPATH": os.pathsep.join(_PATH)})
