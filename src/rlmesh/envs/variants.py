"""`Variant`: one of the envs that a factory can make, and the catalogue of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

__all__ = ["MOST_ENTRIES", "Variant", "read_axes", "read_variants"]

MOST_ENTRIES = 10_000
"""A longer list of variants or values is taken for one without an end."""


@dataclass(frozen=True, init=False)
class Variant:
    """One named env of a catalogue, as ``EnvFactory.enumerate_variants`` lists them.

    Equal to another with the same id, params and metadata.

    Args:
        id: its name in the catalogue, unique there.
        params: the keyword arguments of ``make``; copied.
        **metadata: whatever else is known of it; ``name`` is what people are shown.

    Raises:
        ValueError: ``params`` is no mapping, or ``id`` is empty.
        TypeError: ``id`` is no str.

    Example:
        >>> import rlmesh
        >>> rlmesh.Variant("spatial-0", {"suite": "spatial", "task": 0}, name="Black bowl")
        Variant(id='spatial-0', params={'suite': 'spatial', 'task': 0}, metadata={'name': 'Black bowl'})
    """  # noqa: E501

    id: str
    params: dict[str, Any]
    metadata: dict[str, Any]

    def __init__(self, id: str, params: Mapping[str, Any], /, **metadata: Any) -> None:
        if not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"variant id must be a str, got {id!r}")
        if not id:
            raise ValueError("variant id must not be empty")
        if not isinstance(params, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(
                f"params of variant {id!r} must be a mapping, the keyword arguments of make(); got "
                f"{type(params).__name__}"
            )
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "params", dict(params))
        object.__setattr__(self, "metadata", metadata)


def read_variants(source: Any) -> Iterator[Variant]:
    """Yield the variants that ``source.enumerate_variants()`` returns or yields, each checked.

    Lazily: what nobody asks for is not made. A mapping with ``id`` and ``params`` is a variant,
    too; what else it holds is its metadata.

    Raises:
        TypeError: they are not iterable, or an entry is no variant.
        ValueError: an id comes twice, or an entry's id or params are impossible.
    """
    seen: set[str] = set()
    for entry in source.enumerate_variants():
        variant = entry if isinstance(entry, Variant) else _from_mapping(entry)
        if variant.id in seen:
            raise ValueError(f"duplicate variant id {variant.id!r}")
        seen.add(variant.id)
        yield variant


def _from_mapping(entry: Any) -> Variant:
    if not isinstance(entry, Mapping) or "id" not in entry:
        raise TypeError(
            "enumerate_variants() must return or yield Variant objects, or mappings with an id; "
            f"got {entry!r}"
        )
    rest = {str(key): value for key, value in cast("Mapping[Any, Any]", entry).items()}
    return Variant(rest.pop("id"), rest.pop("params", {}), **rest)


def read_axes(source: Any) -> dict[str, list[Any]]:
    """Return what ``source.enumerate_params()`` says may be swept: values by parameter.

    A str is one value, not its letters.

    Raises:
        TypeError: it is no mapping of names to values.
        ValueError: a param has more than :data:`MOST_ENTRIES` values.
    """
    axes: Any = source.enumerate_params()
    if not isinstance(axes, Mapping):
        raise TypeError(
            "enumerate_params() must return a mapping of parameter to values, got "
            f"{type(axes).__name__}"
        )
    return {str(name): _values(name, values) for name, values in axes.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _values(name: object, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes)):
        return [values]
    try:
        found = list(itertools.islice(cast("Iterable[Any]", values), MOST_ENTRIES + 1))
    except TypeError:
        raise TypeError(
            f"enumerate_params(): {name!r} must have a list of values, got {values!r}"
        ) from None
    if len(found) > MOST_ENTRIES:
        raise ValueError(
            f"enumerate_params(): {name!r} has more than {MOST_ENTRIES} values, or no end; list "
            "those worth sweeping"
        )
    return found
