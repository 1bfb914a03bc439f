"""What the settings of a served thing may be; each check says what was expected and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlmesh.values import Framework

__all__ = ["check_device", "check_fan_out", "check_framework", "check_mode"]


def check_framework(framework: str) -> str:
    """Return the framework's name as it is spelt, its library unread; ValueError for none such."""
    from rlmesh.values.frameworks import framework_name

    return framework_name(framework)


def check_device(device: Any, framework: Framework | None) -> None:
    """Raise ValueError for a device of an env whose framework has none."""
    if device is not None and not (framework is not None and framework.has_device):
        name = "numpy" if framework is None else framework.name
        raise ValueError(
            f"device {device!r} is for torch/jax envs, but this one's actions are {name} arrays, "
            "which have no device; drop it, or say which framework the env speaks"
        )


def check_fan_out(mode: str | None, lanes: int, framework: Framework | None) -> None:
    """Raise NotImplementedError for lanes that gymnasium would join with NumPy, and must not."""
    if mode is not None and lanes > 1 and framework is not None and framework.has_device:
        raise NotImplementedError(
            f"vectorization mode {mode!r} joins lanes with NumPy, so it cannot serve {lanes} "
            f"{framework.name} envs; drop it, and they are lanes of their own"
        )


def check_mode(mode: str | None) -> str | None:
    """Return gymnasium's vectorization mode; ValueError for an unknown one."""
    if mode not in (None, "sync", "async"):
        raise ValueError(f"vectorization mode: expected sync or async, got {mode!r}")
    return mode
