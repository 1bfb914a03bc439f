"""The part of an envelope that lists the envs or checkpoints behind one class."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from rlmesh.describing.badges import Badge, guarded
from rlmesh.envs.factory import EnvFactory
from rlmesh.envs.variants import MOST_ENTRIES, Variant, read_axes, read_variants
from rlmesh.values.plain import plain

__all__ = ["describe_variants"]


def describe_variants(source: Any, bind: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
    """Return ``catalog`` and ``variations``, or what went wrong as ``*_error``; {} without either.

    Args:
        source: a class or instance that may have ``enumerate_variants`` and ``enumerate_params``.
        bind: checks a variant's params, and raises for those that do not fit.
    """
    described: dict[str, Any] = {}
    if _is_authored(source, "enumerate_variants"):
        _put(described, "catalog", guarded(lambda: _catalog(source, bind)))
    if _is_authored(source, "enumerate_params"):
        _put(described, "variations", guarded(lambda: plain(read_axes(source))))
    return described


def _put(described: dict[str, Any], name: str, part: Any) -> None:
    if isinstance(part, Badge):
        described[f"{name}_error"] = part["error"]
    else:
        described[name] = part


def _is_authored(source: Any, name: str) -> bool:
    """Whether a class defines the method, rather than inheriting the factory's empty one."""
    method = getattr(source, name, None)
    inherited: Any = getattr(EnvFactory, name)
    return callable(method) and getattr(method, "__func__", method) is not inherited.__func__


def _catalog(source: Any, bind: Callable[[Mapping[str, Any]], Any]) -> list[dict[str, Any]]:
    variants = list(itertools.islice(read_variants(source), MOST_ENTRIES + 1))
    if len(variants) > MOST_ENTRIES:
        raise ValueError(
            f"enumerate_variants() yields more than {MOST_ENTRIES} variants, or has no end; list "
            "those worth naming, and the values worth sweeping in enumerate_params()"
        )
    return [_entry(variant, bind) for variant in variants]


def _entry(variant: Variant, bind: Callable[[Mapping[str, Any]], Any]) -> dict[str, Any]:
    entry = {
        "id": variant.id,
        "params": plain(variant.params),
        "metadata": plain(variant.metadata),
    }
    fits = guarded(lambda: bind(variant.params))
    if isinstance(fits, Badge):
        entry["error"] = fits["error"]
    return entry
