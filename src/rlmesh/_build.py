"""What this build of rlmesh is, and the process it runs in."""

from __future__ import annotations

import functools
import json
import platform
import re
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from rlmesh._version import __version__
from rlmesh.wire.editions import EDITION, PROTOCOL_GENERATION, SUPPORTED_EDITIONS

__all__ = ["BuildInfo", "build_info", "process_facts"]

_FRAMEWORKS = ("numpy", "torch", "jax", "jaxlib", "gymnasium")


@dataclass(frozen=True, kw_only=True)
class BuildInfo:
    """What a build of rlmesh is and can run. Read-only; :func:`build_info` returns it.

    Attributes:
        version: of the package.
        protocol_generation: the wire protocol it speaks; both ends of a connection must be equal.
        workflow_edition: the edition it was built for, as it is spelt on the wire.
        workflow_edition_base: the month of that edition.
        supported_workflow_editions: the editions it can run, newest first.
        build_cohort: ``"stable"`` for a release; of others the version, or ``"dev.<commit>"``.
        build_source: ``"release"``, ``"git"`` (installed from a commit) or ``"package"`` (any other
            source).
        git: the commit it was installed from, or None.
    """

    version: str
    protocol_generation: str
    workflow_edition: str
    workflow_edition_base: str
    supported_workflow_editions: list[str]
    build_cohort: str
    build_source: str
    git: str | None


def build_info() -> BuildInfo:
    """Return what this build of rlmesh is and can run.

    Example:
        >>> import rlmesh
        >>> rlmesh.build_info().supported_workflow_editions
        ['2026.06']
    """
    commit = _installed_commit()
    released = re.fullmatch(r"[0-9.]+", __version__) is not None
    return BuildInfo(
        version=__version__,
        protocol_generation=PROTOCOL_GENERATION,
        workflow_edition=EDITION,
        workflow_edition_base=EDITION.partition("-")[0],
        supported_workflow_editions=list(SUPPORTED_EDITIONS),
        build_cohort="stable" if released else f"dev.{commit[:7]}" if commit else __version__,
        build_source="git" if commit else "release" if released else "package",
        git=commit,
    )


@functools.lru_cache(maxsize=1)
def _installed_commit() -> str | None:
    """Return the commit that the installer noted (PEP 610), for an install from a repository."""
    try:
        note = metadata.distribution("rlmesh").read_text("direct_url.json")
        commit: Any = json.loads(note or "{}")["vcs_info"]["commit_id"]
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError, OSError):
        return None
    return commit if isinstance(commit, str) and commit else None


@functools.lru_cache(maxsize=1)
def process_facts() -> dict[str, Any]:
    """Return what never changes in this process, by the names of ``PeerInfo``; treat as frozen.

    Imports no framework to learn its version.
    """
    versions = {name: _version_of(name) for name in _FRAMEWORKS}
    return {
        "package_version": __version__,
        "language": "python",
        "language_version": platform.python_version(),
        "os": platform.system().lower(),
        "os_version": platform.release(),
        "arch": platform.machine(),
        "framework_versions": {name: version for name, version in versions.items() if version},
    }


def _version_of(name: str) -> str | None:
    """Return the version of a distribution, or of a loaded module that belongs to none."""
    # The distribution first: what a process has loaded must not change what it says of itself.
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        loaded = getattr(sys.modules.get(name), "__version__", None)
        return loaded if isinstance(loaded, str) else None
