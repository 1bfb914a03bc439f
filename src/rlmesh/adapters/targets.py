"""Envs and specs named on a command line."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from rlmesh.adapters.specs import ModelSpec
from rlmesh.adapters.tags import EnvTags

__all__ = ["make_env", "spec_of", "tags_named"]


def make_env(target: str) -> Any:
    """Return the env named by ``module:name`` (a class or function without arguments, or an env),
    or by a registered Gymnasium id.

    Raises:
        ValueError: there is no such name.
    """
    if not _is_path(target):
        gymnasium: Any = importlib.import_module("gymnasium")
        return gymnasium.make(target)
    found = _load(target)
    return found if hasattr(found, "step") and not isinstance(found, type) else found()


def spec_of(target: str) -> ModelSpec:
    """Return the spec named by ``module:name``: a ModelSpec, a model or model class with a `spec`,
    or a function without arguments that returns either. A class is not instantiated.

    Raises:
        ValueError: there is no such name, or no spec.
    """
    found = _load(target)
    for candidate in (found, getattr(found, "spec", None)):
        if isinstance(candidate, ModelSpec):
            return candidate
    if callable(found) and not isinstance(found, type):
        made = found()
        for candidate in (made, getattr(made, "spec", None)):
            if isinstance(candidate, ModelSpec):
                return candidate
    raise ValueError(
        f"{target} is no ModelSpec and has none: expected a ModelSpec, a model with spec=, or a "
        f"function that returns one, got {type(found).__name__}"
    )


def tags_named(target: str) -> EnvTags:
    """Return the tags named by ``module:name``: EnvTags, or a function that returns them.

    Raises:
        ValueError: there is no such name, or it is something else.
    """
    found = _load(target)
    tags = found if isinstance(found, EnvTags) or not callable(found) else found()
    if not isinstance(tags, EnvTags):
        raise ValueError(f"{target}: expected EnvTags, got {type(tags).__name__}")
    return tags


def _is_path(target: str) -> bool:
    """Whether a target is ``module:name``; a Gymnasium id may hold a colon, but then a version."""
    module, colon, name = target.partition(":")
    return bool(colon) and name.replace(".", "_").isidentifier() and "/" not in module


def _load(target: str) -> Any:
    module, colon, name = target.partition(":")
    if not colon:
        raise ValueError(f"expected module:name, got {target!r}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"module {module!r} has no {name!r}")
        found = getattr(found, part)
    return found
