"""From ``module:name`` to the thing, and whether that is a model or an env."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from rlmesh.serve.arguments import Kind

__all__ = ["is_env_like", "kind_of", "load_target"]

_CORNERS = ("predict", "predict_chunk", "predict_batch", "predict_chunk_batch")


def load_target(target: Any) -> Any:
    """Return what ``module:name`` (or ``module:Class.name``) names; other things as they are.

    Raises:
        ImportError: there is no such module, or nothing of that name in it.
        ValueError: the text has another form.
    """
    if not isinstance(target, str):
        return target
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise ValueError(f"expected MODULE:NAME, got {target!r}")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            known = [known for known in dir(found) if not known.startswith("_")]
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise ImportError(f"{target}: {module_name} has no {name!r}{meant}")
        found = getattr(found, name)
    return found


def is_env_like(thing: Any) -> bool:
    """Whether ``thing`` is an env or its class."""
    return all(callable(getattr(thing, name, None)) for name in ("reset", "step"))


def kind_of(thing: Any, binding: Mapping[str, Any], name: str) -> Kind:
    """Return what ``thing`` is.

    What has ``reset`` and ``step``, or ``make``, is an env; what has a predict corner is a model.
    A function that can be called with ``binding`` alone makes an env; one that wants one argument,
    the observation, is a policy.

    Raises:
        TypeError: it is neither, or which cannot be told.
    """
    from rlmesh.models.model import Model

    cls: type[Any] | None = cast("type[Any]", thing) if isinstance(thing, type) else None
    if isinstance(thing, Model) or (cls is not None and issubclass(cls, Model)):
        return "model"
    if is_env_like(thing) or callable(getattr(thing, "make", None)):
        return "env"
    if any(callable(getattr(thing, corner, None)) for corner in _CORNERS):
        return "model"
    if cls is not None:
        if "__call__" in dir(cls):
            return "model"
    elif callable(thing):
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
