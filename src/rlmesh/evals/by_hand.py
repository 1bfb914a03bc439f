"""Driving by hand: one env and one policy, a call at a time, as `Session` hands them out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rlmesh.evals.endpoints import LocalScalar, RemoteScalar
from rlmesh.evals.lanes import Lane, Limits
from rlmesh.evals.policy import Policy, fitted, planned, replayed
from rlmesh.evals.schedule import Assignment
from rlmesh.wire.ids import uuid7

__all__ = ["ByHand"]


class ByHand:
    """One lane that whoever holds it resets, predicts for and steps, in any order."""

    def __init__(self, endpoint: LocalScalar | RemoteScalar, policy: Policy) -> None:
        self._endpoint = endpoint
        self._policy = policy
        self._lane: Lane | None = None

    @property
    def done(self) -> bool:
        """Whether the episode has ended; False where there is none."""
        return self._lane is not None and self._lane.over

    def reset(
        self, seeds: Sequence[int], options: Mapping[str, Any] | None
    ) -> tuple[Any, Mapping[str, Any]]:
        """Begin an episode, with one seed or none; returns (observation, info)."""
        started = time.perf_counter()
        self._endpoint.send_reset(None, seeds, options)
        (observation,), (info,) = self._endpoint.recv_reset()
        assignment = Assignment(0, seeds[0] if seeds else None)
        self._lane = Lane(assignment, Limits(), observation, started, uuid7(), self._endpoint)
        return observation, info

    def predict(self, observation: Any) -> Any:
        """Return the action for an observation: the model's, or the next of its chunk."""
        policy, lane = self._policy, self._open_lane("predict")
        lane.observation = observation
        queue = lane.queue
        if queue:
            action = replayed(policy, lane)
        else:
            began = time.perf_counter()
            action = queue.start(planned(policy, (lane,))[0])
            lane.spent_s += time.perf_counter() - began
        return fitted(policy, lane, action, self._endpoint.conform)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Mapping[str, Any]]:
        """Step the env; a cap on the episode truncates it."""
        endpoint, lane = self._endpoint, self._open_lane("step")
        if lane.over:
            raise RuntimeError("step() after the episode ended; call reset() first")
        before = time.perf_counter()
        observation, reward, terminated, truncated, info = endpoint.step(endpoint.conform(action))
        step_s = time.perf_counter() - before
        lane.note(info)
        lane.over = lane.advance(observation, reward, terminated, truncated, step_s)
        return observation, reward, terminated, lane.truncated or truncated, info

    def _open_lane(self, what: str) -> Lane:
        if self._lane is None:
            raise RuntimeError(f"{what}() before reset(): no episode has begun")
        return self._lane

    def end(self) -> None:
        """End the episode, if there is one: the model is told."""
        lane, self._lane = self._lane, None
        if lane is not None:
            self._policy.end(lane)
