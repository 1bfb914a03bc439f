"""Binding a configuration to the parameters of `load`, before anything heavy happens."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["MissingParamError", "ParamError", "UnknownParamError", "bind_load"]


class ParamError(ValueError):
    """A parameter has no possible value, or is not one of the target's."""


class UnknownParamError(ParamError):
    """Parameters the target does not take; ``names`` lists them, sorted."""

    def __init__(self, message: str, names: list[str]) -> None:
        super().__init__(message)
        self.names = names


class MissingParamError(ParamError):
    """A required parameter was not given; ``name`` is the first such."""

    def __init__(self, message: str, name: str) -> None:
        super().__init__(message)
        self.name = name


def bind_load(load: Callable[..., Any], config: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """Return the keyword arguments for ``load`` (already bound), or say what does not fit.

    Raises:
        UnknownParamError: a name that ``load`` does not take; the nearest one is suggested.
        MissingParamError: ``load`` requires a parameter that ``config`` lacks.
    """
    parameters = inspect.signature(load).parameters.values()
    by_name = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    unknown = sorted(set(config) - set(by_name))
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        named = ", ".join(_with_nearest(name, list(by_name)) for name in unknown)
        raise UnknownParamError(
            f"{owner}.load() takes no {named}; it takes {', '.join(by_name) or 'nothing'}", unknown
        )
    for name, parameter in by_name.items():
        if parameter.default is parameter.empty and name not in config:
            raise MissingParamError(f"{owner}.load() requires {name!r}, which is not given", name)
    return dict(config)


def _with_nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"{name!r} (did you mean {close[0]!r}?)" if close else repr(name)
