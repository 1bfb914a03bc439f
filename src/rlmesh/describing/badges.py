"""Error badges: what stands in an envelope where the author's code failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rlmesh.values.plain import text_of

__all__ = ["Badge", "badge", "guarded"]

_T = TypeVar("_T")


class Badge(dict[str, Any]):
    """``{"error": the message, "error_type": the name of the exception's class}``."""


def guarded(gather: Callable[[], _T]) -> _T | Badge:
    """Return what ``gather`` returns, or the badge of what it raises.

    Everything but Ctrl-C is a badge: authors' modules call ``sys.exit``, too.
    """
    try:
        return gather()
    except KeyboardInterrupt:
        raise
    except BaseException as exc:
        return badge(exc)


def badge(exc: BaseException) -> Badge:
    """Return the badge of an exception."""
    text = text_of(exc).strip()
    if isinstance(exc, SystemExit):
        text = f"the code ended the process with sys.exit({text})"
    return Badge(error=text or type(exc).__name__, error_type=type(exc).__name__)
