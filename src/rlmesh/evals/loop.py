"""The loop: every evaluation is this one, whether of one local env or of fifty endpoints.

A :class:`Group` is the lanes of one endpoint, which step together. One turn of the loop receives
from the groups that have answered, advances their lanes, serves queued chunk actions at once, and
gives the model a batch of the lanes that need a prediction, when the clock says so.
"""

from __future__ import annotations

import contextlib
import selectors
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from rlmesh.evals.batching import BatchClock
from rlmesh.evals.endpoints import Endpoint, LocalScalar, RemoteScalar
from rlmesh.evals.group import Group
from rlmesh.evals.hooks import HookList, StepEvent
from rlmesh.evals.lanes import Lane, Limits
from rlmesh.evals.policy import Policy, misfit, note_lanes, planned
from rlmesh.evals.results import EpisodeFailure, EpisodeResult
from rlmesh.evals.schedule import Assignment, Schedule
from rlmesh.evals.telemetry import Telemetry
from rlmesh.wire.ids import uuid7

__all__ = ["Loop"]

_RECONNECT_SECONDS = 60.0
"""How long a run goes on with no endpoint at all before it gives up."""

_GLANCE_SECONDS = 1.0
"""How often the loop looks for endpoints that have not answered in time."""

_DOWN_SECONDS = 0.02
"""How long a loop with nothing but lost endpoints sleeps before it looks again."""

_SETTLE_SECONDS = 5.0
"""How long a run that failed waits for the answers that are on their way."""


class Loop:
    """Runs a schedule over endpoints.

    Args:
        endpoints: where the lanes live.
        policy: the model.
        schedule: which episodes to run.
        limits: the caps on an episode.
        hooks: who watches.
        clock: when batches start.
        prefetch_lead: plan a lane's next chunk while that many of its actions are still to be
            executed.
        retries: how often a lost episode is run again.
        on_result: called with every finished episode, before the hooks.
        on_failure: called with every lost attempt.
        read: ``read(endpoint, observation, item)`` reads by role, for step events.
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
        read: Callable[[Any, Any, object], object],
        options: Callable[[Assignment], Mapping[str, Any] | None],
    ) -> None:
        self.policy = policy
        self.schedule = schedule
        self.limits = limits
        self.hooks = hooks
        self.clock = clock
        self.lead = prefetch_lead
        self.options = options
        self.reruns = False
        self.telemetry = Telemetry()
        self._id = uuid7()
        self._retries = retries
        self._on_result = on_result
        self._on_failure = on_failure
        self._read = read
        self._groups = [Group(endpoint, self) for endpoint in endpoints]
        self._local = [group for group in self._groups if group.local]
        self._remote = [group for group in self._groups if not group.local]
        self._down: list[Group] = []
        self._waiting: list[tuple[Group, int, float]] = []
        self._ahead: list[Lane] = []
        self._selector: selectors.BaseSelector | None = None
        self._glanced = time.perf_counter()
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
        policy, adapts, chunks = self.policy, self.policy.adapts, self.policy.horizon > 1
        act = self._next_of_plan if chunks else policy.act  # the former books its own time
        conform, step = endpoint.conform, endpoint.step
        clock = time.perf_counter
        on_step, keep, acted_on, acted = self.hooks.steps, endpoint.keep, None, None
        note_step, note_predict = self.telemetry.step_s.append, self.telemetry.predict_s.append
        while (assignment := self.schedule.take()) is not None:
            lane = self._reset_alone(endpoint, assignment)
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
                if on_step:
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
                if on_step:
                    self.report_step(lane, acted_on, acted, reward, terminated, info, step_s)
                    after = clock()
                if over:
                    break
            self._alone = None
            self.close_lane(lane)

    def _reset_alone(self, endpoint: LocalScalar | RemoteScalar, assignment: Assignment) -> Lane:
        started = time.perf_counter()
        seeds = () if assignment.seed is None else (assignment.seed,)
        endpoint.send_reset(None, seeds, self.options(assignment))
        (observation,), _ = endpoint.recv_reset()
        self.telemetry.reset_s.append(time.perf_counter() - started)
        lane = self._alone = self.make_lane(assignment, observation, started, endpoint)
        self.open_lane(lane)
        return lane

    def _next_of_plan(self, lane: Lane) -> Any:
        if lane.queue:
            self.policy.replay(lane)
            return lane.queue.take()
        began = time.perf_counter()
        plan = self.policy.plan(lane)
        lane.spent_s = time.perf_counter() - began
        self.telemetry.predict_s.append(lane.spent_s)
        return lane.queue.start(plan)

    # Several lanes

    def _run_together(self) -> None:
        with selectors.DefaultSelector() as self._selector:
            try:
                for group in self._groups:
                    group.start()
                while self._unfinished():
                    wait = self._predict_due()
                    for group in self._ready(wait):
                        group.receive()
                    if self._down:
                        self._revive()
            finally:
                for group in self._down:
                    group.give_up()

    def _unfinished(self) -> bool:
        if any(group.working for group in self._groups):
            return True
        if not len(self.schedule):
            return False
        for group in self._groups:
            group.start()
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
        local = [group for group in self._local if group.awaiting]
        if not any(group.awaiting for group in self._remote):
            if not local and wait != 0.0:
                time.sleep(_DOWN_SECONDS)  # every endpoint is lost, and being dialled
            return local
        if local:
            wait = 0.0
        glance = _GLANCE_SECONDS if wait is None else min(wait, _GLANCE_SECONDS)
        events = self._selector.select(glance)
        now = time.perf_counter()
        if now - self._glanced >= _GLANCE_SECONDS:
            self._glanced = now
            self._check_timeouts(now, [key.data for key, _ in events])
        return local + [key.data for key, _ in events if key.data.awaiting]

    def _check_timeouts(self, now: float, answered: Collection[Group]) -> None:
        for group in self._remote:
            timeout = group.endpoint.timeout
            late = timeout is not None and group.awaiting and now - group.sent_at > timeout
            if late and group not in answered:
                assert timeout is not None
                group.hang_up()
                self.lost(group, _no_answer(group, timeout))

    def want(self, group: Group, lane: int, now: float) -> None:
        """Queue a lane for a prediction."""
        self._waiting.append((group, lane, now))

    def want_ahead(self, lane: Lane) -> None:
        """Queue a lane for a chunk that it will need soon."""
        self._ahead.append(lane)

    def _predict_due(self) -> float | None:
        """Start a batch if it is time to; return how long to wait for lanes (None: no bound)."""
        clock = self.clock
        while True:
            waiting = self._waiting
            if self._ahead:
                # At once: what it is predicted from must not depend on when answers come.
                self._predict(waiting[: clock.max_batch])
                continue
            if not waiting:
                return None
            if len(waiting) < clock.max_batch and any(group.awaiting for group in self._local):
                return 0.0  # envs in this process work while nobody else does: wait for them all
            outstanding = sum(group.outstanding for group in self._groups)
            start = clock.start_at(len(waiting), outstanding, waiting[0][2])
            if start:
                left = start - time.perf_counter()
                if left > 0:
                    return left
            self._predict(waiting[: clock.max_batch])

    def _predict(self, batch: list[tuple[Group, int, float]]) -> None:
        del self._waiting[: len(batch)]
        lanes = [group.lane(slot) for group, slot, _ in batch]
        room = self.clock.max_batch - len(batch)
        ahead = [lane for lane in self._ahead[:room] if not lane.over]
        del self._ahead[:room]
        rows = lanes + ahead
        if not rows:
            return
        began = time.perf_counter()
        plans = planned(self.policy, rows)
        ended = time.perf_counter()
        self.clock.predicted(len(rows), ended - began, ended)
        self.telemetry.predict_s.append(ended - began)
        self.telemetry.rows.append(len(rows))
        for lane in rows:
            lane.spent_s += ended - began
            lane.rows = len(rows)
        for lane, plan in zip(ahead, plans[len(lanes) :], strict=True):
            lane.queue.extend(plan)
        for (group, slot, _), lane, plan in zip(batch, lanes, plans, strict=False):
            group.give(slot, lane.queue.start(plan))

    # What the groups ask for

    def make_lane(
        self, assignment: Assignment, observation: Any, started: float, group: object
    ) -> Lane:
        """Return the lane of an episode whose reset has come back."""
        episode_id = f"{self._id}.{assignment.index}.{assignment.attempt}"
        return Lane(assignment, self.limits, observation, started, episode_id, group)

    def open_lane(self, lane: Lane) -> None:
        """Begin the lane's episode."""
        assignment = lane.assignment
        self.hooks.on_episode_start(episode=assignment.index, seed=assignment.seed)

    def close_lane(self, lane: Lane) -> None:
        """End an episode: on record first, then told to the model and the hooks."""
        lane.over = True
        lane.queue.clear()
        result = lane.result()
        try:
            self._on_result(result)
        finally:
            self.policy.end(lane)
        self.hooks.on_episode_end(result)

    def end_open_lanes(self) -> None:
        """Tell the model of every episode that is in flight that it is over: the run failed."""
        lanes = [lane for group in self._groups for lane in group.lanes if lane is not None]
        if self._alone is not None:
            lanes.append(self._alone)
        with contextlib.ExitStack() as stack:  # every one of them, whatever the model raises
            for lane in reversed(lanes):
                stack.callback(self._end, lane)

    def _end(self, lane: Lane) -> None:
        lane.over = True
        lane.queue.clear()
        self.policy.end(lane)

    def settle(self, endpoints: Collection[Endpoint]) -> None:
        """Take the answers that are on their way, so that these endpoints can be used again.

        One that does not answer soon is left.
        """
        with selectors.DefaultSelector() as selector:
            for group in self._remote:
                descriptor = group.endpoint.fileno()
                if group.awaiting and group.endpoint in endpoints and descriptor is not None:
                    selector.register(descriptor, selectors.EVENT_READ, group)
            deadline = time.perf_counter() + _SETTLE_SECONDS
            while selector.get_map():
                events = selector.select(deadline - time.perf_counter())
                for key, _ in events:
                    selector.unregister(key.fd)
                    key.data.discard()
                if not events:
                    for key in list(selector.get_map().values()):
                        key.data.endpoint.hang_up()
                    return

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
        read, endpoint = self._read, lane.group
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
                read=lambda item: read(endpoint, observation, item),
            )
        )

    # Endpoints that are lost

    def lost(self, group: Group, exc: Exception) -> None:
        """Give a lost endpoint's episodes back to the schedule; raise if they are out of tries."""
        attempts = group.abandon(exc)
        self._down.append(group)
        self._waiting = [entry for entry in self._waiting if entry[0] is not group]
        with contextlib.ExitStack() as stack:
            for _, lane in reversed(attempts):
                if lane is not None:
                    stack.callback(self._end, lane)
        if not self._retries or any(a.attempt > self._retries for a, _ in attempts):
            raise exc
        group.hang_up()
        for assignment, _ in reversed(attempts):  # the first of them is the next to run
            self.schedule.give_back(assignment)
        for assignment, _ in attempts:
            self._on_failure(
                EpisodeFailure(
                    index=assignment.index,
                    seed=assignment.seed,
                    attempt=assignment.attempt,
                    endpoint=group.endpoint.name,
                    error=f"{type(exc).__name__}: {exc}",
                )
            )
        self.reruns = True
        for other in self._groups:
            other.start()

    def _revive(self) -> None:
        """Dial lost endpoints again while there is work for them."""
        if not len(self.schedule):
            return
        down = self._down
        for group in list(down):
            if group.revived():
                down.remove(group)
                group.start()
        now = time.perf_counter()
        alive = len(down) < len(self._groups)
        if not alive and all(now - group.down_since > _RECONNECT_SECONDS for group in down):
            assert down[0].down is not None
            raise down[0].down


def _no_answer(group: Group, timeout: float) -> TimeoutError:
    return TimeoutError(
        f"env server at {group.endpoint.name} did not answer within {timeout:.3g} s; raise "
        "request_timeout_seconds, or see what its env is doing"
    )
