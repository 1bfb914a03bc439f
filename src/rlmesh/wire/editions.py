"""Workflow editions: which one a participant was authored against, and where that is declared.

An edition names a set of rules for the whole of an evaluation. A participant that declares one
keeps it when rlmesh is upgraded; one that declares none floats: it takes the newest there is.
"""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlmesh.errors import WorkflowEditionWarning

__all__ = [
    "EDITION",
    "PROTOCOL_GENERATION",
    "SUPPORTED_EDITIONS",
    "VARIABLE",
    "check_edition",
    "current_workflow_edition",
    "declared_edition",
    "wanted_edition",
    "warn_floating",
]

PROTOCOL_GENERATION = "rlmesh-wire-v1"
EDITION = "2026.06"

SUPPORTED_EDITIONS: tuple[str, ...] = (EDITION,)
"""What this build can run, newest first."""

VARIABLE = "RLMESH_WORKFLOW_EDITION"

_SECTION = re.compile(r"\s*\[([^\]]*)\]\s*(#.*)?$")
_ENTRY = re.compile(r"\s*(?:workflow_edition|\"workflow_edition\")\s*=\s*(.*?)\s*$")
_QUOTED = re.compile(r"([\"'])(.*?)\1\s*(#.*)?$")

_warned = False


def current_workflow_edition() -> str:
    """Return the newest edition that this build runs: what to declare as ``workflow_edition``.

    Example:
        >>> current_workflow_edition()
        '2026.06'
    """
    return EDITION


def check_edition(edition: Any, where: str = "workflow_edition") -> str:
    """Return a declared edition; ``""`` declares that none is wanted.

    Args:
        edition: what was declared.
        where: where, for the message.

    Raises:
        ValueError: this build cannot run it.
        TypeError: it is no str.
    """
    if not isinstance(edition, str):
        raise TypeError(
            f'{where}: expected a str such as "{EDITION}", got {type(edition).__name__} {edition!r}'
        )
    edition = edition.strip()
    if edition and edition not in SUPPORTED_EDITIONS:
        raise ValueError(
            f"{where}: unknown workflow edition {edition!r}; this build runs "
            f"{', '.join(SUPPORTED_EDITIONS)}. Declare one of these, or install the rlmesh that "
            "knows it"
        )
    return edition


def declared_edition(
    *, keyword: str | None = None, option: str | None = None, attribute: str | None = None
) -> str | None:
    """Return the edition that the first of these declares: the argument of a call, the environment
    variable ``RLMESH_WORKFLOW_EDITION``, an option of the server, a class attribute,
    ``workflow_edition`` under ``[tool.rlmesh]`` in the nearest ``pyproject.toml``.

    Args:
        keyword: ``workflow_edition=`` of the call.
        option: ``ServeOptions.workflow_edition``, or ``--workflow-edition``.
        attribute: ``workflow_edition`` of the authored class.

    Returns:
        None if none of them does; ``""`` if the first that says anything says that it floats.

    Raises:
        ValueError, TypeError: the first that says anything names no edition of this build.
    """
    for where, edition in _declarations(keyword, option, attribute):
        if edition is not None:
            return check_edition(edition, where)
    return None


def wanted_edition(
    *, keyword: str | None = None, option: str | None = None, attribute: str | None = None
) -> str:
    """Return the edition to ask for in a handshake: the declared one, else the newest.

    Arguments and errors are those of :func:`declared_edition`.
    """
    return declared_edition(keyword=keyword, option=option, attribute=attribute) or EDITION


def warn_floating(what: str, edition: str | None) -> None:
    """Warn (:class:`~rlmesh.WorkflowEditionWarning`, once per process) if nothing declares one.

    Only once there are editions to float between: with a single one there is nothing to pin, and
    the warning would be noise on every first example.

    Args:
        what: who floats, for the message.
        edition: what :func:`declared_edition` found.
    """
    global _warned
    if edition is not None or _warned or len(SUPPORTED_EDITIONS) == 1:
        return
    _warned = True
    warnings.warn(
        f"{what} declares no workflow edition and floats to {EDITION}, which moves when rlmesh is "
        f'upgraded; pin it with workflow_edition = "{EDITION}" on the class or under '
        f"[tool.rlmesh] in pyproject.toml, or let it float with {VARIABLE}=''",
        WorkflowEditionWarning,
        stacklevel=3,
    )


def _declarations(
    keyword: str | None, option: str | None, attribute: str | None
) -> Iterable[tuple[str, str | None]]:
    yield "workflow_edition", keyword
    yield VARIABLE, os.environ.get(VARIABLE)
    yield "workflow_edition of the server's options", option
    yield "workflow_edition of the class", attribute
    try:
        folder = os.getcwd()
    except OSError:  # it was deleted
        return
    yield _project_edition(folder)


@functools.lru_cache(maxsize=64)
def _project_edition(folder: str) -> tuple[str, str | None]:
    """Return the nearest ``pyproject.toml`` from ``folder`` upwards and the edition it declares.

    Its lines are scanned: Python has no TOML reader before 3.11, and one entry needs none.
    """
    for place in (Path(folder), *Path(folder).parents):
        file = place / "pyproject.toml"
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        return f"{file}, [tool.rlmesh]", _scan(text)
    return "pyproject.toml", None


def _scan(text: str) -> str | None:
    inside = False
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            inside = "".join(section[1].split()) == "tool.rlmesh"
        elif inside and (entry := _ENTRY.match(line)):
            quoted = _QUOTED.match(entry[1])
            # Unquoted it is a number in TOML: handed on as it stands, it is refused by name.
            return quoted[2] if quoted else entry[1] + " (write it in quotes)"
    return None
