"""What the settings of a served thing may be; each check says what was expected and what to do."""

from __future__ import annotations

__all__ = ["check_device", "check_edition", "check_framework", "check_mode"]

_LATER = ("torch", "jax")


def check_framework(framework: str | None) -> str | None:
    """Return the framework's name as it is spelt; ValueError for one that cannot be served."""
    if framework is None:
        return None
    name = framework.strip().lower()
    if name in _LATER:
        raise ValueError(
            f"framework {framework!r}: {name} values cannot be served yet; drop it, and values are "
            "NumPy arrays"
        )
    if name != "numpy":
        raise ValueError(f"unknown framework {framework!r}: expected numpy")
    return name


def check_device(device: str | None, framework: str | None) -> None:
    """Raise ValueError for a device of a framework that has none."""
    if device is not None:
        raise ValueError(
            f"device {device!r} is for torch/jax envs, but this one's actions are "
            f"{framework or 'numpy'} arrays, which have no device; drop it"
        )


def check_mode(mode: str | None) -> str | None:
    """Return gymnasium's vectorization mode; ValueError for an unknown one."""
    if mode not in (None, "sync", "async"):
        raise ValueError(f"vectorization mode: expected sync or async, got {mode!r}")
    return mode


def check_edition(edition: str | None) -> str | None:
    """Return the workflow edition; ValueError for one that this build cannot run."""
    from rlmesh.wire.handshake import SUPPORTED_EDITIONS

    if edition and edition not in SUPPORTED_EDITIONS:
        raise ValueError(
            f"unknown workflow edition {edition!r}; this build runs {', '.join(SUPPORTED_EDITIONS)}"
        )
    return edition or None
