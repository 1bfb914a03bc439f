"""Info maps of several lanes, as gymnasium has them: ``_key`` says whose entry ``key`` holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

__all__ = ["gather_published", "merge_infos"]

_RESERVED = "rlmesh."  # keys that speak of the session, not of a lane


def merge_infos(
    lanes: Sequence[int], infos: Sequence[Mapping[str, Any]], count: int
) -> dict[str, Any]:
    """Return the infos of ``lanes``, out of ``count``, as one map."""
    merged: dict[str, Any] = {}
    for lane, info in zip(lanes, infos, strict=True):
        for key, value in info.items():
            name = str(key)
            if name not in merged:
                merged[name] = [None] * count
                merged[f"_{name}"] = [False] * count
            merged[name][lane] = value
            merged[f"_{name}"][lane] = True
    return merged


def gather_published(info: dict[str, Any], lanes: Sequence[int], count: int) -> dict[str, Any]:
    """Return what a 0.1.0 server of single envs sent as the info of ``lanes``, in the vector form.

    It sends the one info of one lane as it is, and those of several as a list, ``final_info``,
    whether or not an episode ended.
    """
    several: Any = info.get("final_info")
    rows: list[Any]
    if len(lanes) == 1:
        rows, taken = [info], {key for key in info if not key.startswith(_RESERVED)}
    elif isinstance(several, list) and len(cast("list[Any]", several)) == len(lanes):
        rows, taken = cast("list[Any]", several), {"final_info", "_final_info"}
    else:
        return info
    rest = {key: value for key, value in info.items() if key not in taken}
    return {**merge_infos(lanes, [_own(row) for row in rows], count), **rest}


def _own(row: Any) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        return {}
    items = cast("Mapping[str, Any]", row).items()
    return {key: value for key, value in items if not key.startswith(_RESERVED)}
