"""``rlmesh version``: what is installed."""

from __future__ import annotations

import importlib
import json
import platform
import re
from dataclasses import asdict, is_dataclass
from importlib import metadata
from typing import Any

import click

__all__ = ["version"]

_CORE = ("numpy", "protobuf", "grpcio")
_ALIKE = {
    "opencv-python-headless": (
        "opencv-python",
        "opencv-contrib-python-headless",
        "opencv-contrib-python",
    )
}
"""Distributions that bring the same module."""


@click.command(short_help="Print the version, the build and what is installed beside it.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
def version(as_json: bool) -> int:
    """Print the version of rlmesh, how it was built, and the packages it works with.

    Nothing is imported to find out: versions are those of the installed distributions. Of each
    extra (pip install 'rlmesh[EXTRA]') it says which packages are there.
    """
    found = _found()
    click.echo(json.dumps(found, indent=2) if as_json else _text(found))
    return 0


def _found() -> dict[str, Any]:
    from rlmesh._version import __version__

    return {
        "rlmesh": __version__,
        "build": _build(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _installed(name) for name in _CORE},
        "extras": _extras(),
    }


def _build() -> dict[str, Any]:
    build: Any = importlib.import_module("rlmesh._build").build_info()
    return asdict(build) if is_dataclass(build) and not isinstance(build, type) else {}


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _extras() -> dict[str, dict[str, str | None]]:
    """Return the installed version of every package that an extra brings, or of one alike."""
    try:
        wanted = metadata.requires("rlmesh") or []
    except metadata.PackageNotFoundError:  # run from its source
        return {}
    extras: dict[str, dict[str, str | None]] = {}
    for line in wanted:
        found = re.match(r"([\w.-]+).*; *extra *== *['\"]([\w-]+)['\"]", line)
        if found and found[1] != "rlmesh" and found[2] != "all":
            alike = [found[1], *_ALIKE.get(found[1], ())]
            name = next((name for name in alike if _installed(name)), found[1])
            extras.setdefault(found[2], {})[name] = _installed(name)
    return dict(sorted(extras.items()))


def _text(found: dict[str, Any]) -> str:
    lines = [f"rlmesh {found['rlmesh']}"]
    for name, value in found["build"].items():
        if name != "version" and value is not None:
            shown = ", ".join(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            lines.append(f"  {name}: {shown}")
    lines.append(f"python {found['python']} on {found['platform']}")
    lines += [f"{name} {_or_missing(value)}" for name, value in found["packages"].items()]
    for extra, packages in found["extras"].items():
        shown = ", ".join(f"{name} {_or_missing(value)}" for name, value in packages.items())
        lines.append(f"[{extra}] {shown}")
    return "\n".join(lines)


def _or_missing(value: str | None) -> str:
    return value or "(not installed)"
