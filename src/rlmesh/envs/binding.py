"""Binding a configuration to the function that takes it, before anything heavy happens."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_origin

from rlmesh.envs.params import (
    Misfit,
    MissingParamError,
    Param,
    ParamError,
    ParamSpec,
    UnknownParamError,
    Vector,
    coerce,
    fit,
    nearest,
    type_name,
)
from rlmesh.values.plain import plain

__all__ = ["PARAM_METADATA_KEY", "describe", "resolve", "to_metadata"]

PARAM_METADATA_KEY = "rlmesh.params.v1.binding"
"""Env metadata key of what an env was made with; see :func:`to_metadata`."""

_NAMES = ("int", "float", "str", "bool")
_CHECKED: tuple[Any, ...] = (*_NAMES, int, float, str, bool)


class _Target:
    """The keywords that a function takes."""

    def __init__(self, function: Callable[..., Any], owner: str) -> None:
        parameters = _parameters(function)
        self.keywords = {p.name: p for p in parameters if p.kind in _BY_KEYWORD}
        self.takes_more = any(p.kind is p.VAR_KEYWORD for p in parameters)
        name = getattr(function, "__name__", type(function).__name__)
        self.name = f"{owner}.{name}()" if owner else f"{name}()"

    def receives(self, name: str) -> bool:
        return self.takes_more or name in self.keywords

    def has_default(self, name: str) -> bool:
        parameter = self.keywords.get(name)
        return parameter is not None and parameter.default is not parameter.empty


_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def resolve(
    spec: ParamSpec | None,
    target: Callable[..., Any],
    config: Mapping[str, Any],
    owner: str = "",
) -> dict[str, Any]:
    """Return the keyword arguments to call ``target`` with: ``config``, checked and converted.

    Nothing is called. A parameter that ``spec`` does not declare, but the signature has, is checked
    where it is annotated int, float, str or bool. Without a ``spec`` the signature is all there is.

    Args:
        spec: the declared parameters, or None.
        target: what will take them, bound: ``factory.make`` or ``model.load``.
        config: the parameters by name, as they were given.
        owner: whose ``target`` it is, for messages.

    Raises:
        UnknownParamError: a name that ``target`` does not take; the nearest one is suggested.
        MissingParamError: one without a default in the signature was not given.
        ParamError: a value of another type, or none of the choices; the nearest one is suggested.

    Example:
        >>> from rlmesh import Param, ParamSpec
        >>> from rlmesh.params import resolve
        >>> def make(suite="spatial", task=0): ...
        >>> spec = ParamSpec(Param("suite", choices=("spatial", "object")), Param("task", int))
        >>> resolve(spec, make, {"task": 3.0})
        {'task': 3}
        >>> resolve(spec, make, {"suite": "spacial"})
        Traceback (most recent call last):
        ...
        rlmesh.envs.params.ParamError: make() got suite='spacial', which is not in choices \
['spatial', 'object']; did you mean 'spatial'?
    """
    if spec is not None and not isinstance(spec, ParamSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{owner or 'spec'}: params must be a ParamSpec or None, got {spec!r}")
    takes = _Target(target, owner)
    _refuse_unknown(spec, takes, config)
    bound: dict[str, Any] = {}
    for name, value in config.items():
        param = None if spec is None else spec.get(name)
        if param is not None and not takes.receives(name):
            raise ParamError(
                f"{takes.name} cannot receive {name!r}: it is declared as a Param, but the "
                f"signature takes {_listed(takes.keywords)}; rename one of them, or add **kwargs"
            )
        try:
            if param is not None:
                bound[name] = fit(param, value)
            else:
                bound[name] = _fit_annotated(takes.keywords.get(name), value)
        except Misfit as exc:
            raise ParamError(f"{takes.name} got {name}={value!r}, which is {exc}") from None
    _refuse_missing(spec, takes, bound)
    return bound


def _refuse_unknown(spec: ParamSpec | None, takes: _Target, config: Mapping[str, Any]) -> None:
    declared = [] if spec is None else [param.name for param in spec.params]
    unknown = sorted(name for name in config if name not in {*declared, *takes.keywords})
    forwards = spec is None or spec.extra == "passthrough"
    if not unknown or (forwards and takes.takes_more):
        return
    known = [*declared, *(name for name in takes.keywords if name not in declared)]
    named = ", ".join(_with_nearest(name, known) for name in unknown)
    why = ""
    if takes.takes_more:
        why = "; declare it in the ParamSpec, or set extra='passthrough'"
    elif spec is not None and forwards:
        why = "; extra='passthrough' needs a **kwargs to pass it to"
    raise UnknownParamError(
        unknown, f"{takes.name} takes no {named}; it takes {_listed(known)}{why}"
    )


def _refuse_missing(spec: ParamSpec | None, takes: _Target, bound: Mapping[str, Any]) -> None:
    declared = [] if spec is None else [param.name for param in spec.params]
    names = [*declared, *(name for name in takes.keywords if name not in declared)]
    for name in names:
        if name in bound or takes.has_default(name):
            continue
        if not takes.receives(name):
            warnings.warn(
                f"Param {name!r} is declared, but {takes.name} has no such parameter, so no value "
                "can reach it",
                stacklevel=4,
            )
            continue
        raise MissingParamError(name, f"{takes.name} requires {name!r}, which is not given")


def _fit_annotated(parameter: inspect.Parameter | None, value: Any) -> Any:
    kind = None if parameter is None else _annotation(parameter)
    return coerce(kind, value) if kind in _CHECKED else value


def _with_nearest(name: str, known: Sequence[str]) -> str:
    close = nearest(name, known)
    return f"{name!r} (did you mean {close!r}?)" if close else repr(name)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


# As plain data


def describe(spec: ParamSpec | None, target: Callable[..., Any]) -> dict[str, Any]:
    """Return what may be passed to ``target``, as JSON data.

    Args:
        spec: the declared parameters, or None.
        target: what will take them, bound.

    Returns:
        ``param_spec``: ``extra`` and ``params``, each with ``name``, ``type``, ``required`` and,
        where it has them, ``default``, ``choices``, ``description``, ``group``, ``dim`` and
        ``unit``; None without a spec. ``signature_tier``: ``name``, ``type``, ``required`` and
        ``default`` of what only the signature has. What JSON cannot hold is its repr; a number that
        is not finite is None.

    Example:
        >>> from rlmesh.params import describe
        >>> def make(task: int = 0): ...
        >>> describe(None, make)["signature_tier"]
        [{'name': 'task', 'type': 'int', 'required': False, 'default': 0}]
    """
    declared = () if spec is None else tuple(param.name for param in spec.params)
    keywords = {p.name: p for p in _parameters(target) if p.kind in _BY_KEYWORD}
    return {
        "param_spec": None if spec is None else _describe_spec(spec, keywords),
        "signature_tier": [
            {
                "name": name,
                "type": _annotation_name(parameter),
                "required": parameter.default is parameter.empty,
                "default": None
                if parameter.default is parameter.empty
                else plain(parameter.default),
            }
            for name, parameter in keywords.items()
            if name not in declared
        ],
    }


def _describe_spec(spec: ParamSpec, keywords: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    params = [_describe_param(param, keywords.get(param.name)) for param in spec.params]
    return {"extra": spec.extra, "params": params}


def _describe_param(param: Param, parameter: inspect.Parameter | None) -> dict[str, Any]:
    required = parameter is None or parameter.default is parameter.empty
    facts: dict[str, Any] = {
        "name": param.name,
        "type": type_name(param.type),
        "required": required,
    }
    if parameter is not None and not required:
        facts["default"] = plain(parameter.default)
    if param.choices is not None:
        facts["choices"] = [plain(choice) for choice in param.choices]
    if param.description:
        facts["description"] = param.description
    if param.group is not None:
        facts["group"] = param.group
    if isinstance(param.type, Vector):
        facts["dim"] = param.type.dim
        if param.type.unit:
            facts["unit"] = True
    return facts


def _annotation(parameter: inspect.Parameter) -> Any:
    """Return the annotation; one that was quoted although all of its module's are, without."""
    kind: Any = parameter.annotation
    return kind.strip("'\"") if isinstance(kind, str) else kind


def _annotation_name(parameter: inspect.Parameter) -> str:
    kind = _annotation(parameter)
    if kind is parameter.empty:
        name = type(parameter.default).__name__
        return name if name in _NAMES else "str"
    # Before Python 3.11 list[int] passes for a class, whose name drops what it holds.
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)


def to_metadata(
    spec: ParamSpec | None, target: Callable[..., Any], binding: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what an env was made with, as the metadata it publishes.

    Args:
        spec: the declared parameters; without them nothing is published.
        target: what took them, bound.
        binding: the keyword arguments, as :func:`resolve` returned them.

    Returns:
        Under :data:`PARAM_METADATA_KEY`: ``binding``, ``param_spec`` as in :func:`describe`, and
        ``validated``, which says of each name whether it is declared or in the signature. Empty
        without a spec.
    """
    if spec is None:
        return {}
    described = describe(spec, target)
    known = {param.name for param in spec.params}
    known.update(entry["name"] for entry in described["signature_tier"])
    return {
        PARAM_METADATA_KEY: {
            "binding": {name: plain(value) for name, value in binding.items()},
            "param_spec": described["param_spec"],
            "validated": {name: name in known for name in binding},
        }
    }
