"""The part of an envelope that says which rlmesh wrote it, and on which machine."""

from __future__ import annotations

from typing import Any

from rlmesh._build import process_facts
from rlmesh.describing.badges import badge
from rlmesh.wire.editions import (
    EDITION,
    PROTOCOL_GENERATION,
    SUPPORTED_EDITIONS,
    declared_edition,
)

__all__ = ["runtime_facts"]


def runtime_facts(*, keyword: str | None, authored: Any) -> dict[str, Any]:
    """Return the facts of this process, and the workflow edition that the target is run under.

    Args:
        keyword: the edition it is served under, if it is.
        authored: what its class declares.
    """
    facts: dict[str, Any] = {
        "component": "rlmesh-python",
        **process_facts(),
        "protocol_generation": PROTOCOL_GENERATION,
        "supported_workflow_editions": list(SUPPORTED_EDITIONS),
        "preferred_workflow_edition": EDITION,
    }
    try:
        edition = declared_edition(keyword=keyword, attribute=authored)
    except (ValueError, TypeError) as exc:
        facts["workflow_edition_error"] = badge(exc)["error"]
    else:
        facts["preferred_workflow_edition"] = edition or EDITION
    return facts
