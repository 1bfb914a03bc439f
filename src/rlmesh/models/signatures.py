"""How the author's own functions want to be called, read once from their signatures.

The only place where rlmesh looks at a signature: corners may take the execution horizon and a
context, and an episode-end hook may take the episode's id.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "Call",
    "Corner",
    "Passing",
    "Signature",
    "bind",
    "passing_episode_id",
    "read_signature",
    "reset_edge",
]

Call = Callable[[Any, int, Any], Any]
"""``call(observation, horizon, context)``: every corner in one form, whatever its author wrote."""

Passing = Literal["positional", "keyword"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAMED = (*_POSITIONAL, inspect.Parameter.KEYWORD_ONLY)
_HORIZON, _CONTEXT = "execution_horizon", "context"


@dataclass(frozen=True)
class Signature:
    """How a corner takes what comes with the observation: ``"execution_horizon"``, ``"context"``.

    Attributes:
        positional: those passed in order behind the observation.
        keyword: those passed by keyword.
    """

    positional: tuple[str, ...] = ()
    keyword: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the corner takes the observation and nothing else."""
        return not self.positional and not self.keyword

    @property
    def horizon(self) -> Passing | None:
        """How it takes the execution horizon; None if it does not."""
        return self._passing(_HORIZON)

    @property
    def context(self) -> Passing | None:
        """How it takes the context; None if it does not."""
        return self._passing(_CONTEXT)

    def _passing(self, role: str) -> Passing | None:
        if role in self.positional:
            return "positional"
        return "keyword" if role in self.keyword else None


@dataclass(frozen=True)
class Corner:
    """A corner its author wrote: its name, the bound function and how that wants to be called."""

    name: str
    function: Callable[..., Any]
    signature: Signature


def read_signature(name: str, function: Callable[..., Any], *, chunked: bool) -> Signature:
    """Read how ``function``, already bound, takes the horizon (if ``chunked``) and the context.

    Raises:
        TypeError: it takes no observation, or requires a parameter that nobody fills.
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not say
        return Signature()
    first = parameters[0] if parameters else None
    if first is not None and first.kind is inspect.Parameter.VAR_POSITIONAL:
        # A wrapper that hands everything on (a decorator, torch.nn.Module.__call__): what is behind
        # it takes an observation; whether it takes more, nobody can tell.
        return Signature()
    if first is None or first.kind not in _POSITIONAL:
        raise TypeError(f"{name}() must take an observation as its first argument")
    return _place(name, parameters[1:], [_HORIZON, _CONTEXT] if chunked else [_CONTEXT])


def _place(name: str, extra: list[inspect.Parameter], wanted: list[str]) -> Signature:
    """Return which of the parameters behind the observation are ours to fill."""
    positional: list[str] = []
    keyword: list[str] = []
    unnamed = _HORIZON in wanted and all(parameter.name != _HORIZON for parameter in extra)
    in_order = True  # no parameter of the author's own lies before this one
    for index, parameter in enumerate(extra):
        role = parameter.name if parameter.name in wanted and parameter.kind in _NAMED else None
        if role is None and unnamed and index == 0 and parameter.kind in _POSITIONAL:
            role = _HORIZON  # by arity: the second parameter of a chunk corner, whatever its name
        if role is not None:
            by_order = in_order and parameter.kind in _POSITIONAL
            (positional if by_order else keyword).append(role)
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL and in_order:
            positional += [role for role in wanted if role not in (*positional, *keyword)]
        elif parameter.kind in _NAMED:
            if parameter.default is inspect.Parameter.empty:
                raise TypeError(
                    f"{name}() requires {parameter.name!r}, which nobody passes; a predict corner "
                    f"takes the observation, then {' and '.join(wanted)} if it wants. Give it a "
                    "default, or bind it with functools.partial"
                )
            in_order = in_order and parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return Signature(tuple(positional), tuple(keyword))


def bind(function: Callable[..., Any], signature: Signature) -> Call:
    """Return ``function`` in the one form; the usual forms without building argument lists."""
    positional, keyword = signature.positional, signature.keyword
    if not keyword:
        forms: dict[tuple[str, ...], Call] = {
            (): lambda observation, horizon, context: function(observation),
            (_HORIZON,): lambda observation, horizon, context: function(observation, horizon),
            (_CONTEXT,): lambda observation, horizon, context: function(observation, context),
            (_HORIZON, _CONTEXT): function,
        }
        form = forms.get(positional)
        if form is not None:
            return form

    def call(observation: Any, horizon: int, context: Any) -> Any:
        values = {_HORIZON: horizon, _CONTEXT: context}
        return function(
            observation,
            *(values[role] for role in positional),
            **{role: values[role] for role in keyword},
        )

    return call


def passing_episode_id(hook: Callable[..., Any]) -> Callable[[str], None]:
    """Return ``hook`` as a function of the episode id, which it gets if it takes an argument."""
    takes = _takes_argument(hook)

    def edge(episode_id: str) -> None:
        if takes:
            hook(episode_id)
        else:
            hook()

    return edge


def _takes_argument(hook: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(hook).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        p.kind in _POSITIONAL or p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters
    )


def reset_edge(reset: Callable[..., Any]) -> Callable[[str], None]:
    """Return a policy's ``reset`` as a function of the episode id.

    It gets the id only as a parameter of that name: the first argument of a policy's own ``reset``
    is as likely a seed.

    Raises:
        TypeError: it requires an argument that nobody passes.
    """
    parameters: Mapping[str, inspect.Parameter] = {}
    with contextlib.suppress(TypeError, ValueError):  # a builtin that does not say
        parameters = inspect.signature(reset).parameters
    takes_id = "episode_id" in parameters
    for parameter in parameters.values():
        required = parameter.kind in _NAMED and parameter.default is inspect.Parameter.empty
        if required and parameter.name != "episode_id":
            raise TypeError(
                f"reset() runs at the end of an episode and gets no arguments, but requires "
                f"{parameter.name!r}; give it a default, or pass on_episode_end="
            )

    def edge(episode_id: str) -> None:
        if takes_id:
            reset(episode_id=episode_id)
        else:
            reset()

    return edge
