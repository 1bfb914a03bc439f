"""What commands say: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, TextIO

import click

__all__ = ["check_writable", "complain", "leave_to_result", "only_results"]
__all__ += ["strict_json", "write_whole"]


def complain(message: str) -> None:
    """Say on standard error what is wrong, in the name of the running command."""
    context = click.get_current_context(silent=True)
    name = "rlmesh" if context is None else context.command_path
    print(f"{name}: {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def only_results() -> Generator[TextIO, None, None]:
    """Return standard output, and keep everybody else off it.

    What envs and policies print there meanwhile, in Python or in C, goes to standard error, and so
    does what they print when the process ends: the descriptor is not given back.
    """
    out = sys.stdout
    if out is not sys.__stdout__:  # replaced by whoever called this
        with contextlib.redirect_stdout(sys.stderr):
            yield out
        return
    with os.fdopen(os.dup(1), "w", encoding=out.encoding, errors=out.errors) as kept:
        leave_to_result()
        yield kept


def leave_to_result() -> None:
    """Send what is printed from here on, to the end of the process, to standard error."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        os.dup2(2, 1)


def strict_json(data: Mapping[str, Any]) -> str:
    """Return JSON that any parser reads: what is no finite number is null."""
    from rlmesh.values.plain import plain

    return json.dumps(plain(data), indent=2, allow_nan=False)


def check_writable(path: Path) -> None:
    """Raise click.BadParameter unless a file can be written at ``path``; before hours of work."""
    folder = path.parent
    if path.is_dir():
        raise click.BadParameter(f"{path} is a folder; give a file", param_hint="--out")
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder {folder}; make it", param_hint="--out")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise click.BadParameter(f"{path} cannot be written", param_hint="--out")


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` and a newline to ``path``: all of it, or the file stays what it was."""
    data = text.encode() + b"\n"
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        target.write_bytes(data)  # a pipe or a device, which nothing can take the place of
        return
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
