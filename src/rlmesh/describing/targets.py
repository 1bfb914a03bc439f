"""What is to be described: found by its name, and told apart as an env or a model."""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from typing import Any, Literal, cast

from rlmesh.models.corners import CORNERS
from rlmesh.models.model import Model

__all__ = [
    "Kind",
    "Target",
    "find_target",
    "is_env_like",
    "kind_of_object",
    "load_target",
    "method_of",
    "qualified_name",
]

Kind = Literal["env", "model"]


@dataclass(frozen=True)
class Target:
    """A thing to describe.

    Attributes:
        thing: a class, an instance or a callable.
        kind: what it is.
        entrypoint: the text that named it; None if it was handed over.
        name: how it is called where it is defined, as ``module:Class``.
    """

    thing: Any
    kind: Kind
    entrypoint: str | None
    name: str


def find_target(thing: Any, kind: str | None) -> Target:
    """Return what ``thing`` is.

    Raises:
        ValueError: ``kind`` is neither ``"env"`` nor ``"model"``, or text is no ``MODULE:NAME``.
        ImportError: text names nothing.
        TypeError: it is neither an env nor a model, or nobody can tell which.
    """
    if kind not in (None, "env", "model"):
        raise ValueError(f"kind must be 'env' or 'model', got {kind!r}")
    entrypoint = thing if isinstance(thing, str) else None
    thing = load_target(thing)
    found = kind or kind_of_object(thing)
    if found is None:
        called = entrypoint or _shown(thing)
        if callable(thing):
            raise TypeError(
                f"cannot tell whether {called} makes an env or is a policy; say it with kind='env' "
                "or kind='model'"
            )
        raise TypeError(
            f"cannot describe {called}: expected an env, an EnvFactory, a Model or a policy, or "
            "the class of one; pass kind= if it is one of these in another guise"
        )
    target = Target(thing, found, entrypoint, qualified_name(thing))
    _check_kind(target)
    return target


def load_target(target: Any) -> Any:
    """Return what ``module:name`` (or ``module:Class.name``) names; other things as they are.

    Raises:
        ImportError: there is no such module, nothing of that name in it, or it ends the process.
        ValueError: the text has another form.
    """
    if not isinstance(target, str):
        return target
    module_name, _, path = target.partition(":")
    if not module_name or not path or module_name.startswith("."):
        raise ValueError(f"expected MODULE:NAME, got {target!r}")
    try:
        found: Any = importlib.import_module(module_name)
    except SystemExit as exc:
        raise ImportError(
            f"{target}: importing {module_name} ended the process with sys.exit({exc}); put what "
            'the script does under if __name__ == "__main__"'
        ) from exc
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
    return all(method_of(thing, name) is not None for name in ("reset", "step"))


def kind_of_object(thing: Any) -> Kind | None:
    """Return what a thing with methods of its own is; None for a mere callable, and other things.

    What has ``reset`` and ``step``, or ``make``, is an env; what has a predict corner is a model,
    and so is a class whose instances can be called.
    """
    if isinstance(thing, Model) or (isinstance(thing, type) and issubclass(thing, Model)):
        return "model"
    if is_env_like(thing) or method_of(thing, "make") is not None:
        return "env"
    if any(method_of(thing, corner) is not None for corner in CORNERS):
        return "model"
    return "model" if isinstance(thing, type) and "__call__" in dir(thing) else None


def method_of(thing: Any, name: str) -> Any:
    """Return the method, or None where there is none or asking for it fails."""
    try:
        method = getattr(thing, name, None)
    except Exception:  # a property of the author's
        return None
    return method if callable(method) else None


def qualified_name(thing: Any) -> str:
    """Return ``module:Class.name`` of a class or function, or of the class of anything else."""
    try:
        return f"{thing.__module__}:{thing.__qualname__}"
    except Exception:  # no class or function, or a __getattr__ of the author's
        named = cast("type[Any]", type(thing))
        return f"{named.__module__}:{named.__qualname__}"


def _shown(thing: Any) -> str:
    try:
        return repr(thing)
    except Exception:  # the author's
        return f"an object of {qualified_name(thing)}"


def _check_kind(target: Target) -> None:
    """Raise TypeError for what cannot be of the kind it was said to be."""
    thing, kind = target.thing, target.kind
    actual = kind_of_object(thing)
    if actual not in (None, kind):
        raise TypeError(f"{target.name} is no {kind}: it has the methods of {_article(actual)}")
    if actual is None and not callable(thing):
        raise TypeError(f"{target.name} is no {kind}, nor can it be called to make one")


def _article(kind: Kind | None) -> str:
    return f"an {kind}" if kind == "env" else f"a {kind}"
