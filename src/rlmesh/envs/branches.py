"""Contract branches: parameters whose value decides what an env's leaves mean."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from rlmesh.envs.params import Misfit, Param, ParamError, ParamSpec, fit
from rlmesh.values.plain import plain

__all__ = ["BRANCH_KEY", "branch_of", "branches", "check_branches", "check_expected_branch"]

BRANCH_KEY = "rlmesh.adapters.v1.env_branch"
"""Env metadata key of the branch: the tag params' values. It is public as
``rlmesh.adapters.ENV_BRANCH_METADATA_KEY``."""

_EXPECTED = "RLMESH_EXPECTED_ENV_BRANCH"
_MOST = 8


def branches(factory: Any) -> list[dict[str, Any]]:
    """Return every branch of a factory (or its class), values by tag param; none without any."""
    params = _tag_params(factory)
    values = itertools.product(*(param.choices or () for param in params))
    names = [param.name for param in params]
    return [dict(zip(names, branch, strict=True)) for branch in values] if names else []


def branch_of(factory: Any, binding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the branch that ``make(**binding)`` belongs to; {} without tag params.

    Raises:
        ParamError: a value is none of its tag param's choices.
    """
    signature = inspect.signature(factory.make).parameters
    branch: dict[str, Any] = {}
    for param in _tag_params(factory):
        name = param.name
        value = binding[name] if name in binding else signature[name].default
        try:
            branch[name] = fit(param, value)
        except Misfit as exc:
            raise ParamError(
                f"{_name(factory)}.make() got {name}={value!r}, which is {exc}"
            ) from None
    return branch


def _tag_params(factory: Any) -> list[Param]:
    spec: ParamSpec | None = factory.params
    found = [None if spec is None else spec.get(name) for name in factory.tag_params]
    return [param for param in found if param is not None]


def _name(factory: Any) -> str:
    return factory.__name__ if isinstance(factory, type) else type(factory).__name__


# At class creation


def check_branches(cls: type[Any], *, tags_for_is_own: bool) -> None:
    """Raise TypeError unless the branches of a factory class can be told apart and agree."""
    names: Sequence[str] = cls.tag_params
    owner = cls.__name__
    if not names:
        if tags_for_is_own:
            raise TypeError(
                f"{owner} overrides tags_for(), which nothing calls without tag_params; name the "
                "params that decide the tags in tag_params, or set tags alone"
            )
        return
    if len(set(names)) < len(names):
        raise TypeError(f"{owner}.tag_params names a param twice: {list(names)}")
    for name in names:
        _check_tag_param(cls, name)
    count = math.prod(len(param.choices or ()) for param in _tag_params(cls))
    if count > _MOST:
        raise TypeError(
            f"{owner}.tag_params spans {count} contract branches, the limit is {_MOST}: only "
            "params that change what the leaves mean belong there"
        )
    _check_tags(cls)


def _check_tag_param(cls: type[Any], name: str) -> None:
    spec: ParamSpec | None = cls.params
    param = None if spec is None else spec.get(name)
    what = f"{cls.__name__}.tag_params names {name!r}"
    if param is None:
        raise TypeError(f"{what}, which params does not declare; add Param({name!r}, choices=...)")
    if param.choices is None:
        raise TypeError(
            f"{what}, whose Param has no choices; list them, so that branches are known"
        )
    parameter = inspect.signature(cls.make).parameters.get(name)
    default = inspect.Parameter.empty if parameter is None else parameter.default
    try:
        if default is not inspect.Parameter.empty:
            fit(param, default)
            return
    except Misfit:
        pass
    raise TypeError(
        f"{what}: expected make() to have a default for it among its choices "
        f"{list(param.choices)}, which is the branch of those who ask for none"
    )


def _check_tags(cls: type[Any]) -> None:
    from rlmesh.adapters.tags import EnvTags

    default = branch_of(cls, {})
    found: list[Any] = []
    for branch in branches(cls):
        tags = cls.tags_for(**branch)
        if tags is not None and not isinstance(tags, EnvTags):
            raise TypeError(
                f"{cls.__name__}.tags_for({_call(branch)}) returned {type(tags).__name__}, "
                "expected EnvTags or None"
            )
        found.append(tags)
    if any(tags is None for tags in found) and any(tags is not None for tags in found):
        raise TypeError(
            f"{cls.__name__}.tags_for() returns EnvTags for some branches and None for others; "
            "tag all of them or none"
        )
    if cls.tags_for(**default) != cls.tags:
        raise TypeError(
            f"{cls.__name__}.tags differs from tags_for({_call(default)}), the branch of those who "
            "ask for none; set tags to what that returns"
        )


def _call(branch: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in branch.items())


# When it is served


def check_expected_branch(metadata: Mapping[str, Any]) -> None:
    """Raise ValueError unless the env is of the branch that the deployment expects, if it does.

    It does by ``RLMESH_EXPECTED_ENV_BRANCH``, a JSON object of values by tag param.
    """
    text = os.environ.get(_EXPECTED, "")
    if not text.strip():
        return
    try:
        expected = json.loads(text)
    except ValueError as exc:
        raise ValueError(f"{_EXPECTED} is not JSON: {exc}") from None
    if not isinstance(expected, dict):
        raise ValueError(f"{_EXPECTED} must be a JSON object of values by param, got {text}")
    found = plain(metadata.get(BRANCH_KEY, {}))
    if found != expected:
        raise ValueError(
            f"expected an env of the contract branch {json.dumps(expected)} ({_EXPECTED}), got "
            f"{json.dumps(found)}; make it with those params, or unset {_EXPECTED}"
        )
