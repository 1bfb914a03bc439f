"""What a model class says of itself, without being made: the facts of `Model.describe`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlmesh.models.corners import CHUNKED, CORNERS, sources
from rlmesh.models.signatures import read_signature

if TYPE_CHECKING:
    from rlmesh.models.model import Model

__all__ = ["describe_model"]


def describe_model(cls: type[Model]) -> dict[str, Any]:
    """Return the class's metadata as plain data; nothing is loaded and nothing of it is called."""
    from rlmesh.models.model import Model

    framework = cls._framework  # pyright: ignore[reportPrivateUsage]
    defined = [name for name in CORNERS if getattr(cls, name) is not getattr(Model, name)]
    described = {
        "kind": "model",
        "target": {"qualname": f"{cls.__module__}:{cls.__qualname__}"},
        "framework": framework.name,
        "model_spec": _plain(cls.spec),
        "corners": defined,
        "signatures": {name: _signature(cls, name) for name in defined},
        "sources": sources(defined, fuses=framework.fuses),
        "allow_fusion": cls.allow_fusion,
        "device": None if cls.device is None else str(cls.device),
        "params": _plain(cls.params),
        "load": _load_parameters(cls),
    }
    if cls.native_chunk is not None:
        described["native_chunk"] = cls.native_chunk
    return described


def _plain(value: Any) -> Any:
    if value is None:
        return None
    to_dict: Callable[[], Any] | None = getattr(value, "to_dict", None)
    return repr(value) if to_dict is None else to_dict()


def _signature(cls: type[Model], name: str) -> dict[str, Any]:
    """Return how the corner takes its optional arguments, or why it cannot be called."""
    # Bound to a bare instance: __new__ runs none of the author's code and loads nothing.
    try:
        signature = read_signature(name, getattr(cls.__new__(cls), name), chunked=name in CHUNKED)
    except TypeError as exc:
        return {"error": str(exc)}
    facts: dict[str, Any] = {"context": signature.context}
    if name in CHUNKED:
        facts["execution_horizon"] = signature.horizon
    return facts


def _load_parameters(cls: type[Model]) -> list[str]:
    parameters = inspect.signature(cls.load).parameters
    return list(parameters)[1:]
