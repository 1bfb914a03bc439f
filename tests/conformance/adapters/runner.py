"""Runs the adapter cases of this folder against whatever ``rlmesh.adapters`` is installed.

A case is one JSON object::

    name, rows            what it shows, and the rows of the feature table it belongs to
    tags, spec            EnvTags and ModelSpec in their JSON forms
    observation_space,    {"box": {low, high, shape, dtype}}, {"discrete": n}, {"text": n},
    action_space          {"multi_binary": shape}, {"multi_discrete": nvec}, {"dict": {...}} or
                          {"tuple": [...]}
    error                 resolve must fail with this text somewhere in its message; or
    explain               what explain() prints, and
    advisories            the severities of advisories(), and
    steps                 in order: {"observation": x, "payload": y}, {"observe": x},
                          {"action": x, "env_action": y} or {"reset": true}; "error" in place of the
                          outcome is a text in the message of the ValueError or TypeError

Arrays are {"dtype", "shape", "data"}, the data flat; {"pattern": [h, w, c]} is the uint8 frame
``(31 y + 57 x + 83 c + y x) % 256``. ``tolerance`` is the largest difference of a number, default
2e-6.

``reference_differs`` names the parts (error, explain, advisories, steps) in which rlmesh 0.1.0
gives something else on purpose, with the reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import rlmesh.adapters as adapters
import rlmesh.spaces as spaces

__all__ = ["compare", "load_cases", "read_value", "run_case"]

PARTS = ("error", "explain", "advisories", "steps")
TOLERANCE = 2e-6


def load_cases(folder: Path | None = None) -> list[dict[str, Any]]:
    """Every case of every JSON file of a folder, default this one."""
    files = sorted((folder or Path(__file__).resolve().parent).glob("*.json"))
    return [case for file in files for case in json.loads(file.read_text())]


def read_space(form: dict[str, Any]) -> Any:
    """The space of its JSON form."""
    (kind, value), *rest = form.items()
    assert not rest, form
    if kind == "dict":
        return spaces.Dict({key: read_space(child) for key, child in value.items()})
    if kind == "tuple":
        return spaces.Tuple([read_space(child) for child in value])
    if kind == "box":
        low, high = (float(value[side]) for side in ("low", "high"))
        return spaces.Box(low, high, tuple(value["shape"]), value.get("dtype", "float32"))
    if kind == "text":
        return spaces.Text(value)
    makers = {
        "discrete": spaces.Discrete,
        "multi_binary": spaces.MultiBinary,
        "multi_discrete": spaces.MultiDiscrete,
    }
    return makers[kind](value)


def read_value(form: Any) -> Any:
    """A value of its JSON form."""
    if isinstance(form, dict):
        if "dtype" in form:
            return np.array(form["data"], form["dtype"]).reshape(form["shape"])
        if "pattern" in form:
            y, x, c = np.indices(form["pattern"])
            return ((31 * y + 57 * x + 83 * c + y * x) % 256).astype(np.uint8)
        if "bytes" in form:
            return bytes.fromhex(form["bytes"])
        return {key: read_value(value) for key, value in form.items()}
    if isinstance(form, list):
        return [read_value(value) for value in form]
    return form


def write_value(value: Any) -> Any:
    """The JSON form of a value."""
    if isinstance(value, dict):
        return {key: write_value(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [write_value(child) for child in value]
    if isinstance(value, np.ndarray):
        return {
            "dtype": value.dtype.name,
            "shape": list(value.shape),
            "data": value.reshape(-1).tolist(),
        }
    return value.item() if isinstance(value, np.generic) else value


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    """What the installed package does with a case: its error, or explain, advisories and steps."""
    try:
        adapter = adapters.resolve(
            adapters.EnvTags.from_dict(case["tags"]),
            read_space(case["observation_space"]),
            read_space(case["action_space"]),
            adapters.ModelSpec.from_dict(case["spec"]),
        )
    except ValueError as exc:
        return {"error": str(exc)}
    return {
        "explain": adapter.explain(),
        "advisories": sorted(advisory.severity for advisory in adapter.advisories()),
        "steps": [_run_step(adapter, step) for step in case.get("steps", [])],
    }


def _run_step(adapter: Any, step: dict[str, Any]) -> dict[str, Any]:
    try:
        if "observation" in step:
            return {"payload": write_value(adapter.transform_obs(read_value(step["observation"])))}
        if "observe" in step:
            adapter.observe(read_value(step["observe"]))
            return {}
        if "action" in step:
            action = adapter.transform_action(read_value(step["action"]))
            return {"env_action": write_value(action)}
        adapter.reset()
        return {}
    except (ValueError, TypeError) as exc:
        return {"error": str(exc)}


def compare(
    case: dict[str, Any], result: dict[str, Any], *, skip: tuple[str, ...] = (), levels: int = 0
) -> None:
    """Assert that a result is what the case says.

    Args:
        skip: parts that may differ.
        levels: by how many grey levels a uint8 array may differ.
    """
    if "error" in skip:
        return
    if "error" in case:
        assert case["error"] in result.get("error", "it resolved"), result
        return
    assert "error" not in result, result["error"]
    for part in ("explain", "advisories"):
        if part in case and part not in skip:
            assert result[part] == case[part], f"{part} of {case['name']}"
    if "steps" in skip:
        return
    tolerance = case.get("tolerance", TOLERANCE)
    for index, (step, outcome) in enumerate(
        zip(case.get("steps", []), result["steps"], strict=True)
    ):
        where = f"step {index} of {case['name']}"
        if "error" in step:
            assert step["error"] in outcome.get("error", "it passed"), (where, outcome)
            continue
        assert "error" not in outcome, (where, outcome["error"])
        for key in ("payload", "env_action"):
            if key in step:
                _compare_values(step[key], outcome[key], tolerance, levels, where)


def _compare_values(want: Any, got: Any, tolerance: float, levels: int, where: str) -> None:
    if isinstance(want, dict) and "dtype" not in want:
        assert isinstance(got, dict) and sorted(got) == sorted(want), (where, got)
        for key, child in want.items():
            _compare_values(child, got[key], tolerance, levels, f"{where}.{key}")
    elif isinstance(want, dict):
        assert isinstance(got, dict) and got.get("dtype") == want["dtype"], (where, got)
        assert got["shape"] == want["shape"], (where, got["shape"])
        absolute = levels if want["dtype"] == "uint8" else tolerance
        relative = 0.0 if want["dtype"] == "uint8" else tolerance
        expected, actual = (np.array(form["data"], np.float64) for form in (want, got))
        np.testing.assert_allclose(actual, expected, rtol=relative, atol=absolute, err_msg=where)
    elif isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want), (where, got)
        for index, child in enumerate(want):
            _compare_values(child, got[index], tolerance, levels, f"{where}[{index}]")
    elif isinstance(want, float):
        assert isinstance(got, float), (where, got)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=where)
    else:
        assert got == want and type(got) is type(want), (where, got)
