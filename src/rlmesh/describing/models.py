"""The parts of a model's envelope. Nothing is loaded: they are read off the class.

An instance is read where it says more than its class: what it wraps, what its ``load`` set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rlmesh.describing.badges import guarded
from rlmesh.describing.envs import bare
from rlmesh.describing.targets import Target, kind_of_object, method_of
from rlmesh.envs import binding
from rlmesh.envs.params import ParamSpec
from rlmesh.models.corners import CHUNKED, CORNERS, sources
from rlmesh.models.model import NO_ADAPTER, Model, is_model
from rlmesh.models.signatures import read_signature
from rlmesh.values import NUMPY, Framework
from rlmesh.values.plain import text_of

__all__ = ["bind_model", "describe_model"]


def describe_model(target: Target) -> dict[str, Any]:
    """Return the parts of the envelope that only a model has.

    Beside what the published envelope has: ``framework``, ``device`` and ``allow_fusion`` of the
    model, ``signatures``, how each corner takes the horizon and the context, and ``sources``, which
    of its corners answers each of the four.
    """
    thing = target.thing
    corners = _corners(thing)
    described: dict[str, Any] = {"model_spec": guarded(lambda: _spec(thing)), "corners": corners}
    native = guarded(lambda: getattr(thing, "native_chunk", None))
    if native is not None:
        described["native_chunk"] = native
    described["params"] = guarded(lambda: _params(thing))
    framework: Framework = getattr(thing, "_framework", NUMPY) if is_model(thing) else NUMPY
    described["framework"] = framework.name
    described["device"] = guarded(lambda: _device(thing))
    described["allow_fusion"] = guarded(lambda: bool(getattr(thing, "allow_fusion", True)))
    described["signatures"] = {name: guarded(lambda: _signature(thing, name)) for name in corners}  # noqa: B023
    described["sources"] = sources(corners, fuses=framework.fuses)
    return described


def bind_model(target: Target) -> Callable[[Mapping[str, Any]], Any]:
    """Return what checks the params of a variant of ``target``."""
    thing, owner = target.thing, target.name.rpartition(":")[2]
    return lambda params: binding.resolve(_param_spec(thing), _load(thing), params, owner)


def _corners(thing: Any) -> list[str]:
    """Return the corners that the thing, or its class, defines."""
    if kind_of_object(thing) is None:
        return ["predict"]  # a mere function
    defined = [name for name in CORNERS if _defines(thing, name)]
    return defined if defined or is_model(thing) else ["predict"]  # a class with __call__


def _defines(thing: Any, name: str) -> bool:
    corner = method_of(thing, name)
    return corner is not None and getattr(corner, "__func__", corner) is not getattr(Model, name)


def _spec(thing: Any) -> dict[str, Any] | None:
    spec = getattr(thing, "spec", None)
    if spec is None or spec is NO_ADAPTER:
        return None
    from rlmesh.adapters.specs import ModelSpec

    if not isinstance(spec, ModelSpec):
        raise TypeError(
            f"spec must be a ModelSpec, rlmesh.NO_ADAPTER or None, got {type(spec).__name__}"
        )
    return spec.to_dict()


def _device(thing: Any) -> str | None:
    device = getattr(thing, "device", None) if kind_of_object(thing) else None
    return None if device is None else text_of(device)


def _signature(thing: Any, name: str) -> dict[str, Any]:
    """Return how the corner takes its optional arguments, or why it cannot be called."""
    policy = bare(thing) if kind_of_object(thing) else thing
    signature = read_signature(name, getattr(policy, name, policy), chunked=name in CHUNKED)
    facts: dict[str, Any] = {"context": signature.context}
    if name in CHUNKED:
        facts["execution_horizon"] = signature.horizon
    return facts


def _params(thing: Any) -> dict[str, Any]:
    """Return what ``load`` may be given. Only a Model has one: policies are made without any."""
    return binding.describe(_param_spec(thing), _load(thing))


def _param_spec(thing: Any) -> ParamSpec | None:
    spec = getattr(thing, "params", None)
    if spec is not None and not isinstance(spec, ParamSpec):
        raise TypeError(f"params must be a ParamSpec or None, got {type(spec).__name__}")
    return spec


def _load(thing: Any) -> Callable[..., Any]:
    return bare(thing).load if is_model(thing) else _nothing


def _nothing() -> None:
    """Take no parameters."""
