"""Making the model that a target names."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rlmesh.models.model import Model, as_model, is_model, model_corners
from rlmesh.values import NUMPY

__all__ = ["close_quietly", "hint_without_spec", "make_model"]


def make_model(target: Any, binding: Mapping[str, Any], name: str) -> Model:
    """Return the model; a Model subclass is made with ``load(**binding)``.

    Raises:
        TypeError: ``target`` is no model, or takes no binding.
        ParamError: ``binding`` does not fit ``load``; nothing was loaded.
    """
    if is_model(target) and not isinstance(target, Model):
        return target.from_config(**binding)
    if binding:
        raise TypeError(
            f"{name} takes no {', '.join(sorted(binding))}: keyword arguments go to the load() of "
            "a Model subclass, and it is none"
        )
    return as_model(target, NUMPY)


def hint_without_spec(model: Model) -> None:
    """Say on standard error that a model without a spec gets what the env emits."""
    if model.spec is None:
        print(
            "rlmesh.serve: note: the model declares no spec, so it is given each env's raw "
            "observations; set spec = ModelSpec(...), or rlmesh.NO_ADAPTER if that is meant",
            file=sys.stderr,
        )


def close_quietly(model: Model) -> None:
    """Close a model that nobody will serve."""
    with suppress(Exception):
        model_corners(model).close()
