"""What the map encoder and the sanitizer share: paths, refusals, arrays of other frameworks."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

__all__ = ["Path", "Refused", "foreign_array", "path_text", "type_name"]

Path = tuple[Any, ...]
"""Keys and list indices from the root of a map to a value."""


class Refused(Exception):
    """A value that cannot travel. Carries its path, the detail and the public exception's type."""

    def __init__(
        self, path: Path, detail: str, kind: type[Exception] = TypeError, whole: bool = False
    ) -> None:
        super().__init__(detail)
        self.path = path
        self.detail = detail
        self.kind = kind
        self.whole = whole


def path_text(path: Path) -> str:
    """Return ``a.b[3]`` for ``("a", "b", 3)``; only the first levels of a very deep one."""
    text = ""
    for part in path[:8]:
        if isinstance(part, str):
            text = f"{text}.{part}" if text else part
        else:
            text += f"[{part!r}]"
    return text + "..." if len(path) > 8 else text


def foreign_array(value: Any, path: Path) -> np.ndarray[Any, Any] | None:
    """Return a tensor of another framework as a numpy array; None when ``value`` is not one."""
    cls = cast("Any", type(value))
    try:
        if hasattr(cls, "detach") and hasattr(cls, "cpu"):
            array = np.asarray(value.detach().cpu().numpy())
        elif hasattr(cls, "__array__"):
            array = np.asarray(value)
        else:
            return None
    except Exception as error:
        detail = f"expected a tensor that converts to numpy, got {type_name(value)}: {error}"
        raise Refused(path, detail) from None
    return None if array.dtype.kind == "O" else array


def type_name(value: object) -> str:
    cls = type(value)
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )
