"""A model behind its adapters: what the env emits as the policy was trained to see it, and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlmesh.adapters import Adapter, AdapterResolutionError, resolve_from_contract
from rlmesh.adapters.resolution import published_tags
from rlmesh.adapters.specs import ModelSpec
from rlmesh.evals.endpoints import Endpoint
from rlmesh.evals.lanes import Lane
from rlmesh.evals.policy import CornersPolicy
from rlmesh.models import Corners
from rlmesh.models.model import NO_ADAPTER

__all__ = ["AdaptedPolicy", "check_history", "resolve_adapters"]

_HISTORY_LIMIT = 2 * 1024**3
_HISTORY_VARIABLE = "RLMESH_FRAME_HISTORY_LIMIT_BYTES"


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


def resolve_adapters(
    spec: Any, endpoints: Sequence[Endpoint], *, trust_entrypoints: bool
) -> Mapping[Endpoint, Adapter] | None:
    """Return the adapter of each endpoint, by its tags; None where the model takes raw values.

    Raises:
        AdapterResolutionError: the model and an env do not fit, or only one of them says what it
            means.
    """
    if spec is NO_ADAPTER:
        return None
    if spec is None:
        for endpoint in endpoints:
            if published_tags(endpoint.contract.metadata) is not None:
                raise AdapterResolutionError(
                    f"{endpoint.name} carries adapter tags, but this model has spec=None; give it "
                    "a ModelSpec, or spec=rlmesh.NO_ADAPTER for raw observations and actions"
                )
        return None
    if not isinstance(spec, ModelSpec):
        raise AdapterResolutionError(
            f"a model's spec must be a ModelSpec, rlmesh.NO_ADAPTER or None, got "
            f"{type(spec).__name__}"
        )
    return {
        endpoint: resolve_from_contract(
            endpoint.contract, spec, trust_entrypoints=trust_entrypoints
        )
        for endpoint in endpoints
    }


class AdaptedPolicy(CornersPolicy):
    """A model whose observations and actions go through adapters.

    The memory of an adapter (stacked frames, previous actions) is kept by episode. A replayed chunk
    action counts as a step: its observation is seen, and it is remembered as the action taken.
    """

    adapts = True

    def __init__(
        self,
        corners: Corners,
        horizon: int,
        adapters: Mapping[Endpoint, Adapter],
        instruction: str | None,
    ) -> None:
        super().__init__(corners, horizon)
        self._adapters: Mapping[Any, Adapter] = adapters
        self._instruction = instruction
        self.remembers = any(adapter.history_keys() for adapter in adapters.values())

    def seen(self, lane: Lane) -> Any:
        return self._adapters[lane.group].transform_obs(
            lane.observation, episode=lane.episode_id, instruction=self._instruction
        )

    def act(self, lane: Lane) -> Any:
        seen = self.seen(lane)
        if self._contexts is None:
            return self._predict(seen)
        return self._predict(seen, self._context(lane))

    def replay(self, lane: Lane) -> None:
        self._adapters[lane.group].observe(lane.observation, episode=lane.episode_id)

    def deliver(self, lane: Lane, action: Any) -> Any:
        return self._adapters[lane.group].transform_action(action, episode=lane.episode_id)

    def end(self, lane: Lane) -> None:
        self._adapters[lane.group].reset(lane.episode_id)
        super().end(lane)
