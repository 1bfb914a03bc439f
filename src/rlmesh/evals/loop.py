"""The loop: every evaluation is this one, whether of one local env or of fifty endpoints.

A :class:`Group` is the lanes of one endpoint, which step together. One turn of the loop receives
from the groups that have answered, advances their lanes, serves queued chunk actions at once, and
gives the model a batch of the lanes that need a prediction, when the clock says so.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlmesh.errors import EnvironmentException
from rlmesh.evals.batching import BatchClock
from rlmesh.evals.endpoints import Endpoint, LocalScalar, RemoteScalar
from rlmesh.evals.group import Group
from rlmesh.evals.hooks import HookList, StepEvent
from rlmesh.evals.lanes import Lane, Limits
from rlmesh.evals.policy import Policy, misfit
from rlmesh.evals.results import EpisodeFailure, EpisodeResult
from rlmesh.evals.schedule import Assignment, Schedule
from rlmesh.evals.telemetry import Telemetry
from rlmesh.wire.ids import uuid7

__all__ = ["LOST", "Loop"]

LOST = (ConnectionError, TimeoutError, EnvironmentException)
"""What costs an attempt rather than the run, where there are retries."""

_RECONNECT_SECONDS = 60.0
"""How long a run goes on with no endpoint at all before it gives up."""

_GLANCE_SECONDS = 1.0
"""How often an idle loop looks for endpoints that have not answered in time."""


class Loop:
    """Runs a schedule over endpoints.

    Args:
        endpoints: where the lanes live.
        policy: the model.
        schedule: which episodes to run.
        limits: the caps on an episode.
        hooks: who watches.
        clock: when batches start.
        prefetch_lead: plan a lane's next chunk while that many of its actions are still queued.
        retries: how often a lost episode is run again.
        on_result: called with every finished episode, before the hooks.
        on_failure: called with every lost attempt.
        read: reads an observation by role, for step events.
        options: reset options for an episode.
    """

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        policy: Policy,
        schedule: Schedule,
        *,
        limits: Limits,
        hooks: HookList,
        clock: BatchClock,
        prefetch_lead: int = 0,
        retries: int = 0,
        on_result: Callable[[EpisodeResult], None],
        on_failure: Callable[[EpisodeFailure], None],
        read: Callable[[Any, object], object],
        options: Callable[[Assignment], Mapping[str, Any] | None],
    ) -> None:
        self.policy = policy
        self.schedule = schedule
        self.limits = limits
        self.hooks = hooks
        self.clock = clock
        self.lead = prefetch_lead
        self.options = options
        self.telemetry = Telemetry()
        self._id = uuid7()
        self._retries = retries
        self._on_result = on_result
        self._on_failure = on_failure
        self._read = read
        self._groups = [Group(endpoint, self) for endpoint in endpoints]
        self._waiting: list[tuple[Group, int, float]] = []
        self._ahead: list[Lane] = []
        self._selector: selectors.BaseSelector | None = None
        self._alone: Lane | None = None

    def run(self) -> None:
        """Run every episode of the schedule; what goes wrong is raised."""
        group = self._groups[0]
        endpoint = group.endpoint
        alone = len(self._groups) == 1 and isinstance(endpoint, (LocalScalar, RemoteScalar))
        if alone and not self.lead and not self._retries:
            self._run_alone(endpoint)  # pyright: ignore[reportArgumentType]
        else:
            self._run_together()

    # One lane: nobody to wait for, so the scheduler between the same steps falls away.

    def _run_alone(self, endpoint: LocalScalar | RemoteScalar) -> None:
        policy, conform, step = self.policy, endpoint.conform, endpoint.step
        act = policy.act if policy.horizon == 1 else None
        clock = time.perf_counter
        on_step = self.hooks.steps
        measured = self.telemetry
        note_step = measured.step_s.append
        while (assignment := self.schedule.take()) is not None:
            started = clock()
            seeds = () if assignment.seed is None else (assignment.seed,)
            endpoint.send_reset(None, seeds, self.options(assignment))
            (observation,), _ = endpoint.recv_reset()
            measured.reset_s.append(clock() - started)
            lane = self._alone = self.open_lane(assignment, observation, started, endpoint)
            after = clock()
            while True:
                action = act(lane) if act is not None else self._next_of_plan(lane)
                before = clock()
                lane.spent_s = before - after
                try:
                    action = conform(action)
                except ValueError as exc:
                    raise misfit(exc, policy, lane, action, 1) from None
                seen, reward, terminated, truncated, info = step(action)
                after = clock()
                step_s = after - before
                note_step(step_s)
                acted_on = lane.observation
                over = lane.advance(seen, reward, terminated, truncated, step_s)
                if info:
                    lane.note(info)
                elif lane.info:
                    lane.info = info
                if on_step:
                    self.report_step(lane, acted_on, action, reward, terminated, info, step_s)
                    after = clock()
                if over:
                    break
            self._alone = None
            self.close_lane(lane)

    def _next_of_plan(self, lane: Lane) -> Any:
        policy, queue = self.policy, lane.queue
        if queue:
            policy.replay(lane)
            return policy.deliver(lane, queue.take())
        return policy.deliver(lane, queue.start(policy.plan(lane)))

    # Several lanes

    def _run_together(self) -> None:
        with selectors.DefaultSelector() as self._selector:
            for group in self._groups:
                group.start()
            while self._unfinished():
                wait = self._predict_due()
                for group in self._ready(wait):
                    group.receive()
                self._revive()

    def _unfinished(self) -> bool:
        if any(group.working for group in self._groups):
            return True
        if not len(self.schedule):
            return False
        for group in self._groups:
            if not group.down:
                group.start()  # work came back from an endpoint that was lost
        return True

    def watch(self, group: Group, descriptor: int | None) -> None:
        """Wake up when ``descriptor`` is readable, instead of what was watched for the group."""
        assert self._selector is not None
        if group.watched is not None:
            self._selector.unregister(group.watched)
        group.watched = descriptor
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ, group)

    def _ready(self, wait: float | None) -> list[Group]:
        """Return the groups whose answers are there, waiting for one up to ``wait`` seconds."""
        assert self._selector is not None
        local = [group for group in self._groups if group.awaiting and group.watched is None]
        if local:
            wait = 0.0
        waiting = [group for group in self._groups if group.awaiting and group.watched is not None]
        if not waiting:
            if not local and wait != 0.0:
                time.sleep(min(wait if wait is not None else 0.05, 0.05))
            return local
        glance = _GLANCE_SECONDS if wait is None else min(wait, _GLANCE_SECONDS)
        events = self._selector.select(glance)
        ready = [key.data for key, _ in events if key.data.awaiting]
        if not events and wait != 0.0:
            now = time.perf_counter()
            for group in waiting:
                timeout = group.endpoint.timeout
                if timeout is not None and now - group.sent_at > timeout:
                    self.lost(group, _no_answer(group, timeout))
        return local + ready

    def want(self, group: Group, lane: int, now: float) -> None:
        """Queue a lane for a prediction."""
        self._waiting.append((group, lane, now))

    def want_ahead(self, lane: Lane) -> None:
        """Queue a lane for a chunk that it will need soon."""
        self._ahead.append(lane)

    def _predict_due(self) -> float | None:
        """Start a batch if it is time to; return how long to wait for lanes (None: no bound)."""
        while True:
            waiting = self._waiting
            if not waiting:
                if self._ahead:
                    self._predict([])
                return None
            outstanding = sum(group.outstanding for group in self._groups)
            start = self.clock.start_at(len(waiting), outstanding, waiting[0][2])
            if start:
                left = start - time.perf_counter()
                if left > 0:
                    return left
            self._predict(waiting[: self.clock.max_batch])

    def _predict(self, batch: list[tuple[Group, int, float]]) -> None:
        del self._waiting[: len(batch)]
        lanes = [group.lane(slot) for group, slot, _ in batch]
        ahead = [lane for lane in self._ahead if not lane.over]
        self._ahead.clear()
        rows = lanes + ahead
        if not rows:
            return
        began = time.perf_counter()
        plans = [self.policy.plan(rows[0])] if len(rows) == 1 else self.policy.plan_many(rows)
        ended = time.perf_counter()
        self.clock.predicted(len(rows), ended - began, ended)
        self.telemetry.predict_s.append(ended - began)
        self.telemetry.rows.append(len(rows))
        for lane in rows:
            lane.spent_s += ended - began
        for (group, slot, _), lane, plan in zip(batch, lanes, plans, strict=False):
            group.give(slot, lane.queue.start(plan), len(rows))
        for lane, plan in zip(ahead, plans[len(lanes) :], strict=True):
            lane.queue.extend(plan)
            lane.planning = False

    # What the groups ask for

    def open_lane(
        self, assignment: Assignment, observation: Any, started: float, group: object
    ) -> Lane:
        """Begin an episode whose reset has come back."""
        episode_id = f"{self._id}.{assignment.index}.{assignment.attempt}"
        lane = Lane(assignment, self.limits, observation, started, episode_id, group)
        self.hooks.on_episode_start(episode=assignment.index, seed=assignment.seed)
        return lane

    def close_lane(self, lane: Lane) -> None:
        """End an episode: on record first, then told to the model and the hooks."""
        lane.over = True
        lane.queue.clear()
        result = lane.result()
        self._on_result(result)
        self.policy.end(lane)
        self.hooks.on_episode_end(result)

    def end_open_lanes(self) -> None:
        """Tell the model of every episode that is in flight that it is over: the run failed."""
        lanes = [lane for group in self._groups for lane in group.lanes if lane is not None]
        if self._alone is not None:
            lanes.append(self._alone)
        for lane in lanes:
            lane.over = True
            self.policy.end(lane)

    def report_step(
        self,
        lane: Lane,
        observation: Any,
        action: Any,
        reward: float,
        terminated: bool,
        info: Mapping[str, Any],
        step_s: float,
    ) -> None:
        """Tell the hooks of a step that the lane has just booked."""
        read = self._read
        assignment = lane.assignment
        self.hooks.on_step(
            StepEvent(
                episode=assignment.index,
                seed=assignment.seed,
                step=lane.steps - 1,
                observation=observation,
                action=action,
                reward=reward,
                terminated=terminated,
                truncated=lane.truncated,
                info=info,
                predict_ms=1000 * lane.charged_s,
                step_ms=1000 * step_s,
                read=lambda item: read(observation, item),
            )
        )

    # Endpoints that are lost

    def lost(self, group: Group, exc: Exception) -> None:
        """Give a lost endpoint's episodes back to the schedule; raise if they are out of tries."""
        attempts = group.abandon()
        self._waiting = [entry for entry in self._waiting if entry[0] is not group]
        for assignment, lane in attempts:
            if lane is not None:
                lane.over = True
                self.policy.end(lane)
            if assignment.attempt > self._retries:
                raise exc
            self._on_failure(
                EpisodeFailure(
                    index=assignment.index,
                    seed=assignment.seed,
                    attempt=assignment.attempt,
                    endpoint=group.endpoint.name,
                    error=f"{type(exc).__name__}: {exc}",
                )
            )
            self.schedule.give_back(assignment)
        if not self._retries:
            raise exc
        group.down = exc

    def _revive(self) -> None:
        """Dial lost endpoints again, each ever less often, while there is work for them."""
        down = [group for group in self._groups if group.down is not None]
        if not down or not len(self.schedule):
            return
        now = time.perf_counter()
        for group in down:
            if now >= group.redial_at and group.reopen():
                group.start()
        alive = [group for group in self._groups if group.down is None]
        if not alive and all(now - group.down_since > _RECONNECT_SECONDS for group in down):
            assert down[0].down is not None
            raise down[0].down


def _no_answer(group: Group, timeout: float) -> TimeoutError:
    return TimeoutError(
        f"env server at {group.endpoint.name} did not answer within {timeout:.3g} s; raise "
        "request_timeout_seconds, or see what its env is doing"
    )
