"""Which adapter stands between a model and an env: one rule for every way of running it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from rlmesh.adapters import Adapter, AdapterResolutionError, resolve_from_contract
from rlmesh.adapters.pushdown import Unlike, frame_processor, pushed_down
from rlmesh.adapters.resolution import published_tags
from rlmesh.adapters.specs import ModelSpec
from rlmesh.models.model import NO_ADAPTER
from rlmesh.values import ProcessedImage, leaf_spaces
from rlmesh.wire.contract import EnvContract

__all__ = ["adapter_for", "check_history", "processed_before"]

_HISTORY_LIMIT = 2 * 1024**3
_HISTORY_VARIABLE = "RLMESH_FRAME_HISTORY_LIMIT_BYTES"


def adapter_for(
    spec: Any, contract: EnvContract, *, name: str, trust_entrypoints: bool
) -> Adapter | None:
    """Return the adapter of an env by its tags; None where the model takes raw values.

    Args:
        spec: the model's.
        name: what to call the env in an error.

    Raises:
        AdapterResolutionError: the model and the env do not fit, or only one of them says what it
            means.
    """
    if spec is NO_ADAPTER:
        return None
    if spec is None:
        if published_tags(contract.metadata) is not None:
            raise AdapterResolutionError(
                f"{name} carries adapter tags, but this model has spec=None; give it a ModelSpec, "
                "or spec=rlmesh.NO_ADAPTER for raw observations and actions"
            )
        return None
    if not isinstance(spec, ModelSpec):
        raise AdapterResolutionError(
            f"a model's spec must be a ModelSpec, rlmesh.NO_ADAPTER or None, got "
            f"{type(spec).__name__}"
        )
    return resolve_from_contract(contract, spec, trust_entrypoints=trust_entrypoints)


def processed_before(
    adapter: Adapter | None, contract: EnvContract, images: Sequence[ProcessedImage]
) -> Adapter:
    """Return the adapter for observations in which these images come processed already.

    Raises:
        ValueError: it would not process them so, or would get other pixels.
    """
    if adapter is None:
        raise ValueError("images come processed, but the model takes raw observations")
    space = contract.observation_space
    spaces = [leaf for _, leaf in leaf_spaces(space)]
    plan = pushed_down(adapter.plan, space, images)
    for image in images:
        try:
            frame_processor(image, spaces[image.leaf])
        except Unlike as exc:
            raise ValueError(
                f"leaf {image.leaf} comes processed as by another model server than this: {exc}"
            ) from None
    return Adapter(plan)


def check_history(adapters: Iterable[Adapter], lanes: int) -> None:
    """Raise ValueError if the frames that all lanes keep would not fit the ceiling.

    The ceiling is 2 GiB, or ``RLMESH_FRAME_HISTORY_LIMIT_BYTES``.
    """
    limit = int(os.environ.get(_HISTORY_VARIABLE, _HISTORY_LIMIT))
    need = lanes * max(
        sum(span * size for _, span, size in adapter.history_windows()) for adapter in adapters
    )
    if need > limit:
        raise ValueError(
            f"the frame history of {lanes} lanes takes {need} bytes, over the limit of {limit}; "
            f"stack fewer or smaller frames, use fewer lanes, or raise {_HISTORY_VARIABLE}"
        )
