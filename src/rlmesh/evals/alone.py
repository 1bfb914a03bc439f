"""One lane: nobody to wait for, so the same steps go without the scheduler between them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rlmesh.evals.endpoints import Endpoint, LocalScalar, RemoteScalar
from rlmesh.evals.episodes import Episodes
from rlmesh.evals.lanes import Lane
from rlmesh.evals.policy import Policy, misfit, note_lanes
from rlmesh.evals.schedule import Assignment, Schedule
from rlmesh.evals.telemetry import Telemetry

__all__ = ["run_alone"]


def run_alone(
    endpoint: LocalScalar | RemoteScalar,
    policy: Policy,
    schedule: Schedule,
    episodes: Episodes,
    telemetry: Telemetry,
    options: Callable[[Endpoint, Assignment], Mapping[str, Any] | None],
) -> None:
    """Run every episode of the schedule on the one lane of ``endpoint``."""
    adapts, chunks = policy.adapts, policy.horizon > 1
    # The former books its own time.
    act = partial(_next_of_plan, policy, telemetry) if chunks else policy.act
    conform, step, keep = endpoint.conform, endpoint.step, endpoint.keep
    clock, shows, acted_on, acted = time.perf_counter, episodes.shows_steps, None, None
    note_step, note_predict = telemetry.step_s.append, telemetry.predict_s.append
    while (assignment := schedule.take()) is not None:
        started = clock()
        observation = _reset(endpoint, assignment, options(endpoint, assignment))
        telemetry.reset_s.append(clock() - started)
        lane = episodes.begin(assignment, observation, started, endpoint)
        after = clock()
        while True:
            try:
                action = act(lane)
                if adapts:
                    action = policy.deliver(lane, action)
            except Exception as exc:
                note_lanes(exc, (lane,))
                raise
            before = clock()
            if not chunks:
                lane.spent_s = spent_s = before - after
                note_predict(spent_s)
            try:
                action = conform(action)
            except ValueError as exc:
                raise misfit(exc, policy, lane, action) from None
            if shows:
                acted_on, acted = lane.observation, action
                if keep is not None:
                    acted_on, acted = keep(acted_on), keep(acted)
            seen, reward, terminated, truncated, info = step(action)
            after = clock()
            step_s = after - before
            note_step(step_s)
            over = lane.advance(seen, reward, terminated, truncated, step_s)
            if info:
                lane.note(info)
            elif lane.info:
                lane.info = info
            if shows:
                episodes.show_step(lane, acted_on, acted, reward, terminated, info, step_s)
                after = clock()
            if over:
                break
        episodes.finish(lane)


def _reset(
    endpoint: LocalScalar | RemoteScalar,
    assignment: Assignment,
    options: Mapping[str, Any] | None,
) -> Any:
    seeds = () if assignment.seed is None else (assignment.seed,)
    endpoint.send_reset(None, seeds, options)
    (observation,), _ = endpoint.recv_reset()
    return observation


def _next_of_plan(policy: Policy, telemetry: Telemetry, lane: Lane) -> Any:
    if lane.queue:
        policy.replay(lane)
        return lane.queue.take()
    began = time.perf_counter()
    plan = policy.plan(lane)
    lane.spent_s = time.perf_counter() - began
    telemetry.predict_s.append(lane.spent_s)
    return lane.queue.start(plan)
