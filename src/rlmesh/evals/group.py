"""A group: the lanes of one endpoint, which are reset and stepped together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlmesh.evals.endpoints import Endpoint
from rlmesh.evals.lanes import Lane
from rlmesh.evals.policy import misfit
from rlmesh.evals.results import SUCCESS_KEYS
from rlmesh.evals.schedule import Assignment
from rlmesh.wire.contract import AutoresetMode

if TYPE_CHECKING:
    from rlmesh.evals.loop import Loop

__all__ = ["Group"]

_REDIAL_FIRST, _REDIAL_MOST = 0.1, 5.0
_UNSET: Any = object()


class Group:
    """The lanes of one endpoint, each in its slot.

    A slot is free, about to begin an episode (its reset is on the way), or has a lane. Where the
    endpoint cannot leave a free slot alone, it is stepped along with some valid action, unscored.
    """

    def __init__(self, endpoint: Endpoint, loop: Loop) -> None:
        count = endpoint.lanes
        self.endpoint = endpoint
        self.lanes: list[Lane | None] = [None] * count
        self.awaiting = ""
        self.sent_at = 0.0
        self.watched: int | None = None
        self.down: Exception | None = None
        self.down_since = self.redial_at = 0.0
        self._redial_after = _REDIAL_FIRST
        self._loop = loop
        self._begun = False
        self._beginning: dict[int, tuple[Assignment, float]] = {}
        self._resets: list[list[int]] = []
        self._actions: list[Any] = [_UNSET] * count
        self._filler: list[Any] = [_UNSET] * count
        self._slots: Sequence[int] = ()
        self._mode = endpoint.contract.autoreset_mode

    def lane(self, slot: int) -> Lane:
        """Return the lane of a slot that has one."""
        lane = self.lanes[slot]
        assert lane is not None
        return lane

    @property
    def working(self) -> bool:
        """Whether a slot has an episode, or is about to."""
        return bool(self._beginning) or any(lane is not None for lane in self.lanes)

    @property
    def outstanding(self) -> int:
        """How many lanes may ask for a prediction with the next answer."""
        return sum(lane is not None for lane in self.lanes) if self.awaiting else 0

    # Work in

    def start(self) -> None:
        """Give free slots episodes, if there are any left and the endpoint is not at work."""
        if self.awaiting or self.down is not None:
            return
        self._guarded(self._assign_and_go)

    def receive(self) -> None:
        """Take the answer that is there, and go on."""
        self._guarded(self._receive)

    def give(self, slot: int, action: Any, rows: int) -> None:
        """Act in a slot; with the last one the step is sent."""
        self._put(slot, action, rows)
        if self._complete():
            self._guarded(self._send_step)

    def _guarded(self, act: Any) -> None:
        from rlmesh.evals.loop import LOST

        try:
            act()
        except LOST as exc:
            if self.endpoint.fileno() is None:
                raise  # the env lives in this process: there is nothing to connect again
            self._loop.lost(self, exc)

    def _assign_and_go(self) -> None:
        self._assign([slot for slot, lane in enumerate(self.lanes) if lane is None])
        self._go_on()

    def _assign(self, free: Sequence[int]) -> None:
        """Take episodes for free slots, and note which slots must be reset for them."""
        now = time.perf_counter()
        fresh: list[int] = []
        for slot in free:
            if slot in self._beginning:
                continue
            assignment = self._loop.schedule.take()
            if assignment is None:
                break
            self._beginning[slot] = (assignment, now)
            fresh.append(slot)
        if not fresh and not self._needs_reset(free):
            return
        if not self._begun or self.endpoint.resets_lanes:
            self._plan_resets(fresh, free)

    def _needs_reset(self, free: Sequence[int]) -> bool:
        """Whether free slots must be reset although no episode begins in them."""
        return (
            bool(free)
            and self._begun
            and self.working
            and self._mode is AutoresetMode.DISABLED
            and not self.endpoint.steps_lanes
        )

    def _plan_resets(self, fresh: Sequence[int], free: Sequence[int]) -> None:
        """Group the slots to be reset: those with a seed, and those without."""
        endpoint = self.endpoint
        if not endpoint.resets_lanes:
            self._resets = [list(range(endpoint.lanes))]
            return
        seeded = [slot for slot in fresh if self._beginning[slot][0].seed is not None]
        plain = [slot for slot in fresh if self._beginning[slot][0].seed is None]
        if not endpoint.steps_lanes and (not self._begun or self._mode is AutoresetMode.DISABLED):
            plain += [slot for slot in free if slot not in fresh]
        self._resets = [slots for slots in (seeded, plain) if slots]

    def _go_on(self) -> None:
        """Send what is due next: a reset, or a step once every lane has an action."""
        if self._resets:
            self._send_reset(self._resets.pop(0))
            return
        now = time.perf_counter()
        for slot, lane in enumerate(self.lanes):
            if lane is not None and self._actions[slot] is _UNSET:
                if lane.queue:
                    self._loop.policy.replay(lane)
                    self._put(slot, lane.queue.take(), 1)
                else:
                    self._loop.want(self, slot, now)
        if self.working and self._complete():
            self._send_step()

    def _put(self, slot: int, action: Any, rows: int) -> None:
        lane = self.lane(slot)
        if self._loop.policy.adapts:
            action = self._loop.policy.deliver(lane, action)
        try:
            self._actions[slot] = self.endpoint.conform(action)
        except ValueError as exc:
            raise misfit(exc, self._loop.policy, lane, action, rows) from None

    def _complete(self) -> bool:
        return all(
            lane is None or action is not _UNSET
            for lane, action in zip(self.lanes, self._actions, strict=True)
        )

    # Out to the endpoint

    def _send_reset(self, slots: list[int]) -> None:
        endpoint, loop = self.endpoint, self._loop
        assigned = [self._beginning[slot][0] for slot in slots if slot in self._beginning]
        seeds = [a.seed for a in assigned if a.seed is not None]
        options = loop.options(assigned[0]) if assigned else None
        if options is not None and len(slots) > 1:
            self._resets[:0] = [[slot] for slot in slots[1:]]
            slots, seeds = slots[:1], seeds[:1]
        self._slots = slots
        everything = len(slots) == endpoint.lanes and slots == list(range(endpoint.lanes))
        endpoint.send_reset(None if everything else slots, seeds, options)
        self._sent("reset")

    def _send_step(self) -> None:
        endpoint = self.endpoint
        if endpoint.steps_lanes:
            slots = [slot for slot, lane in enumerate(self.lanes) if lane is not None]
            everything = len(slots) == endpoint.lanes
            actions = [self._actions[slot] for slot in slots]
            endpoint.send_step(actions, None if everything else slots)
        else:
            slots = range(endpoint.lanes)
            endpoint.send_step([self._act(slot) for slot in slots], None)
        self._slots = slots
        self._sent("step")
        lead = self._loop.lead
        if lead:
            for lane in self.lanes:
                if lane is not None and not lane.planning and len(lane.queue) < lead:
                    lane.planning = True
                    self._loop.want_ahead(lane)

    def _act(self, slot: int) -> Any:
        """Return the slot's action; for a free slot any valid one, as its outcome is not scored."""
        action = self._actions[slot]
        if action is not _UNSET:
            self._filler[slot] = action
        elif self._filler[slot] is _UNSET:
            space = self.endpoint.contract.action_space.bound_to(None)
            space.seed(0)
            self._filler[slot] = self.endpoint.conform(space.sample())
        return self._filler[slot]

    def _sent(self, what: str) -> None:
        self.awaiting = what
        self.sent_at = time.perf_counter()
        descriptor = self.endpoint.fileno()
        if descriptor != self.watched:
            self._loop.watch(self, descriptor)

    # Back from the endpoint

    def _receive(self) -> None:
        awaiting = self.awaiting
        if awaiting == "reset":
            rows, _ = self.endpoint.recv_reset()
            loop = self._loop
            loop.telemetry.reset_s.append(time.perf_counter() - self.sent_at)
            self.awaiting = ""
            self._begun = True
            for slot, row in zip(self._slots, rows, strict=True):
                self._open(slot, row)
            self._go_on()
        else:
            self._receive_step()

    def _open(self, slot: int, observation: Any) -> None:
        begun = self._beginning.pop(slot, None)
        if begun is not None:
            assignment, started = begun
            self.lanes[slot] = self._loop.open_lane(assignment, observation, started, self.endpoint)

    def _receive_step(self) -> None:
        endpoint, loop = self.endpoint, self._loop
        rows, rewards, terminated, truncated, info = endpoint.recv_step()
        step_s = time.perf_counter() - self.sent_at
        self.awaiting = ""
        env_s = endpoint.env_seconds
        loop.clock.returned(env_s or step_s)
        loop.telemetry.step_s.append(step_s)
        if env_s:
            loop.telemetry.env_s.append(env_s)
        looks = bool(loop.hooks.steps) or any(key in info for key in SUCCESS_KEYS)
        freed: list[int] = []
        for row, slot in enumerate(self._slots):
            lane = self.lanes[slot]
            done = terminated[row] or truncated[row]
            if lane is None:
                if slot in self._beginning and not endpoint.resets_lanes:
                    self._open(slot, rows[row])  # this step was the lane's reset
                elif done:
                    freed.append(slot)
                continue
            acted_on, action = lane.observation, self._actions[slot]
            self._actions[slot] = _UNSET
            over = lane.advance(rows[row], rewards[row], terminated[row], truncated[row], step_s)
            if over or looks:
                lane.note(endpoint.lane_info(info, slot, ended=done))
            if loop.hooks.steps:
                loop.report_step(
                    lane, acted_on, action, rewards[row], terminated[row], lane.info, step_s
                )
            if over:
                self.lanes[slot] = None
                freed.append(slot)
                loop.close_lane(lane)
        if freed:
            self._assign(freed)
            if self._mode is AutoresetMode.SAME_STEP and not endpoint.resets_lanes:
                for row, slot in enumerate(self._slots):
                    if slot in freed:
                        self._open(slot, rows[row])
        self._go_on()

    # Lost and found

    def abandon(self) -> list[tuple[Assignment, Lane | None]]:
        """Empty every slot; return the episodes that were in them."""
        attempts: list[tuple[Assignment, Lane | None]] = [
            (lane.assignment, lane) for lane in self.lanes if lane is not None
        ]
        attempts += [(assignment, None) for assignment, _ in self._beginning.values()]
        count = self.endpoint.lanes
        self.lanes = [None] * count
        self._beginning.clear()
        self._resets = []
        self._actions = [_UNSET] * count
        self.awaiting = ""
        self._begun = False
        self._loop.watch(self, None)
        self.endpoint.hang_up()
        self.down_since = time.perf_counter()
        self.redial_at = self.down_since
        self._redial_after = _REDIAL_FIRST
        return attempts

    def reopen(self) -> bool:
        """Dial again; on failure put the next try off."""
        try:
            self.endpoint.reopen()
        except (OSError, RuntimeError):
            self.redial_at = time.perf_counter() + self._redial_after
            self._redial_after = min(2 * self._redial_after, _REDIAL_MOST)
            return False
        self.down = None
        return True
