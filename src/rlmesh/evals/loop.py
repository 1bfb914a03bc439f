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

from rlmesh.evals.endpoints import Endpoint, LocalScalar, RemoteScalar
from rlmesh.evals.group import Group
from rlmesh.evals.hooks import HookList, StepEvent
from rlmesh.evals.lanes import Lane, Limits
from rlmesh.evals.policy import Policy, misfit, note_lanes
from rlmesh.evals.replica import Replica
from rlmesh.evals.results import EpisodeFailure, EpisodeResult
from rlmesh.evals.schedule import Assignment, Schedule
from rlmesh.evals.telemetry import Telemetry
from rlmesh.models.batching import BatchClock
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
        options: reset options for an episode, at its endpoint.
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
        options: Callable[[Endpoint, Assignment], Mapping[str, Any] | None],
    ) -> None:
        self.policy = policy
        self.schedule = schedule
        self.limits = limits
        self.hooks = hooks
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
        self._down: list[Group | Replica] = []
        self._replicas = self._share(clock)
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

    def _share(self, clock: BatchClock) -> list[Replica]:
        """Divide the lanes among the copies of the model: whole groups, if there are enough."""
        copies = self.policy.copies
        if len(copies) < 2:
            return [Replica(self, copies[0] if copies else None, clock)]
        slot = 0
        for index, group in enumerate(self._groups):
            count = len(group.lanes)
            at = [index] * count if len(self._groups) >= len(copies) else range(slot, slot + count)
            group.copies = [number % len(copies) for number in at]
            slot += count
        asked = [number for group in self._groups for number in group.copies]
        return [
            Replica(self, copy, clock.share(max(1, asked.count(number))))
            for number, copy in enumerate(copies)
        ]

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
        endpoint.send_reset(None, seeds, self.options(endpoint, assignment))
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
                    for ready in self._ready(self._predict_due()):
                        ready.receive()
                    if self._down:
                        self._revive()
            finally:
                for lost in self._down:
                    lost.give_up()

    def _unfinished(self) -> bool:
        if any(group.working or group.stale for group in self._groups):
            return True
        if not len(self.schedule):
            return False
        for group in self._groups:
            group.start()
        return True

    def watch(self, member: Group | Replica, descriptor: int | None) -> None:
        """Wake up when ``descriptor`` is readable, instead of what was watched for the member."""
        assert self._selector is not None
        if member.watched is not None:
            self._selector.unregister(member.watched)
        member.watched = descriptor
        if descriptor is not None:
            self._selector.register(descriptor, selectors.EVENT_READ, member)

    def _ready(self, wait: float | None) -> list[Group | Replica]:
        """Return those whose answers are there, waiting for one up to ``wait`` seconds."""
        assert self._selector is not None
        local: list[Group | Replica] = [group for group in self._local if group.awaiting]
        flying = any(replica.flight is not None for replica in self._replicas)
        if not flying and not any(group.awaiting for group in self._remote):
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

    def _check_timeouts(self, now: float, answered: Collection[Group | Replica]) -> None:
        for replica in self._replicas:
            overdue = replica.late(now)
            if overdue is not None and replica not in answered:
                self.lost_replica(replica, overdue)
        for group in self._remote:
            timeout = group.endpoint.timeout
            late = timeout is not None and group.awaiting and now - group.sent_at > timeout
            if late and group not in answered:
                assert timeout is not None
                group.hang_up()
                self.lost(group, _no_answer(group, timeout))

    def _predict_due(self) -> float | None:
        """Start batches that are due; return how long to wait for lanes (None: no bound)."""
        waits = [replica.due() for replica in self._replicas]
        return min((wait for wait in waits if wait is not None), default=None)

    # What the replicas ask for

    @property
    def local_at_work(self) -> bool:
        """Whether envs of this process are about to work."""
        return any(group.awaiting for group in self._local)

    def outstanding(self, replica: Replica) -> bool:
        """Whether some lane may still ask the replica for a prediction; asked at every turn."""
        return any(
            group.outstanding and any(self._replicas[number] is replica for number in group.copies)
            for group in self._groups
        )

    # What the groups ask for

    def replica(self, group: Group, slot: int) -> Replica:
        """Return the copy of the model that predicts for a slot."""
        return self._replicas[group.copies[slot]]

    def returned(self, group: Group, seconds: float) -> None:
        """Note how long the group's env took."""
        for number in set(group.copies):
            self._replicas[number].clock.returned(seconds)

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
        self._give_back(group.endpoint.name, [group], attempts, exc, group.hang_up)

    def lost_replica(self, replica: Replica, exc: Exception) -> None:
        """The same for the episodes that a lost copy of the model predicted for."""
        replica.abandon(exc)
        self._down.append(replica)
        groups = [
            group
            for group in self._groups
            if group.down is None and any(self._replicas[n] is replica for n in set(group.copies))
        ]
        attempts = [attempt for group in groups for attempt in group.drop()]
        assert replica.copy is not None
        self._give_back(replica.copy.name, groups, attempts, exc, lambda: None)

    def _give_back(
        self,
        name: str,
        groups: Sequence[Group],
        attempts: Sequence[tuple[Assignment, Lane | None]],
        exc: Exception,
        hang_up: Callable[[], None],
    ) -> None:
        for replica in self._replicas:
            for group in groups:
                replica.forget(group)
        with contextlib.ExitStack() as stack:
            for _, lane in reversed(attempts):
                if lane is not None:
                    stack.callback(self._end, lane)
        if not self._retries or any(a.attempt > self._retries for a, _ in attempts):
            raise exc
        hang_up()
        for assignment, _ in reversed(attempts):  # the first of them is the next to run
            self.schedule.give_back(assignment)
        for assignment, _ in attempts:
            self._on_failure(
                EpisodeFailure(
                    index=assignment.index,
                    seed=assignment.seed,
                    attempt=assignment.attempt,
                    endpoint=name,
                    error=f"{type(exc).__name__}: {exc}",
                )
            )
        self.reruns = True
        for group in self._groups:
            group.start()

    def _revive(self) -> None:
        """Dial what was lost again while there is work for it."""
        if not len(self.schedule):
            return
        down = self._down
        for lost in list(down):
            if lost.revived():
                down.remove(lost)
                for group in self._groups:
                    group.start()
        now = time.perf_counter()
        members: tuple[Sequence[Group | Replica], ...] = (self._groups, self._replicas)
        for kind in members:
            gone = [m.down for m in kind if m.down and now - m.down_since > _RECONNECT_SECONDS]
            if gone and len(gone) == len(kind):
                raise gone[0]


def _no_answer(group: Group, timeout: float) -> TimeoutError:
    return TimeoutError(
        f"env server at {group.endpoint.name} did not answer within {timeout:.3g} s; raise "
        "request_timeout_seconds, or see what its env is doing"
    )
