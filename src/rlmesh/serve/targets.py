"""From ``module:name`` to the thing, and whether that is a model or an env."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from rlmesh.describing.targets import Kind, is_env_like, kind_of_object, load_target

__all__ = ["is_address", "is_env_like", "kind_of", "kind_of_object", "load_target"]


def is_address(text: str) -> bool:
    """Whether ``text`` is an address rather than ``module:name`` or the id of a registered env."""
    port = text.rpartition(":")[2]
    return "://" in text or text.startswith("unix:") or (port.isascii() and port.isdigit())


def kind_of(thing: Any, binding: Mapping[str, Any], name: str) -> Kind:
    """Return what ``thing`` is.

    What has ``reset`` and ``step``, or ``make``, is an env; what has a predict corner is a model.
    A function that can be called with ``binding`` alone makes an env; one that wants one argument,
    the observation, is a policy.

    Raises:
        TypeError: it is neither, or which cannot be told.
    """
    kind = kind_of_object(thing)
    if kind is not None:
        return kind
    if callable(thing) and not isinstance(thing, type):
        return _kind_of_function(thing, binding, name)
    raise TypeError(
        f"{name} is {_article(thing)}: expected a Model, a policy with predict(), an env with "
        "reset() and step(), or a function that returns an env"
    )


def _kind_of_function(function: Any, binding: Mapping[str, Any], name: str) -> Kind:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise TypeError(f"cannot tell what {name} is; say it with --env or --model") from None
    if _binds(signature, (), binding):
        return "env"
    if next(iter(signature.parameters), "") == "self" and not inspect.ismethod(function):
        raise TypeError(f"{name}{signature} is a method; name its class, or an instance of it")
    if not binding and _binds(signature, (None,), {}):
        return "model"
    raise TypeError(
        f"{name}{signature} is neither a function that makes an env from "
        f"{', '.join(binding) or 'no arguments'} nor a policy, a function of one observation; give "
        "the env's arguments as --kwargs-json"
    )


def _binds(signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _article(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else type(thing).__name__
