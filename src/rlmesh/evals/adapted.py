"""A model behind its adapters: what the env emits as the policy was trained to see it, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlmesh.adapters import Adapter
from rlmesh.adapters.pushdown import pushable, pushed_down
from rlmesh.evals.endpoints import Endpoint
from rlmesh.evals.lanes import Lane
from rlmesh.evals.policy import CornersPolicy, PushableImages
from rlmesh.models import Corners
from rlmesh.models.adapting import adapter_for, check_history
from rlmesh.values import ProcessedImage, leaves_under

__all__ = ["AdaptedPolicy", "check_history", "resolve_adapters"]


def resolve_adapters(
    spec: Any, endpoints: Sequence[Endpoint], *, trust_entrypoints: bool
) -> Mapping[Endpoint, Adapter] | None:
    """Return the adapter of each endpoint, by its tags; None where the model takes raw values.

    Raises:
        AdapterResolutionError: the model and an env do not fit, or only one of them says what it
            means.
    """
    found = {
        endpoint: adapter_for(
            spec, endpoint.contract, name=endpoint.name, trust_entrypoints=trust_entrypoints
        )
        for endpoint in endpoints
    }
    adapters = {endpoint: adapter for endpoint, adapter in found.items() if adapter is not None}
    return adapters or None


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
        self._adapters: dict[Any, Adapter] = dict(adapters)
        self._whole = adapters
        self._instruction = instruction
        self.remembers = any(adapter.history_keys() for adapter in adapters.values())
        found = [advisory for adapter in adapters.values() for advisory in adapter.advisories()]
        self.advisories = tuple(dict.fromkeys(found))

    def reads(self, endpoint: Endpoint) -> Sequence[int] | None:
        adapter = self._whole[endpoint]
        if adapter.reads_all:
            return None
        return leaves_under(endpoint.contract.observation_space, adapter.read_paths())

    def pushable(self, endpoint: Endpoint) -> PushableImages:
        return pushable(self._whole[endpoint].plan, endpoint.contract.observation_space), ()

    def process(self, endpoint: Endpoint, images: Sequence[ProcessedImage]) -> None:
        adapter = self._whole[endpoint]
        if images:
            space = endpoint.contract.observation_space
            adapter = Adapter(pushed_down(adapter.plan, space, images))
        self._adapters[endpoint] = adapter

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
        return self._adapters[lane.group].env_action(action, episode=lane.episode_id)

    def end(self, lane: Lane) -> None:
        self._adapters[lane.group].reset(lane.episode_id)
        super().end(lane)
