"""A group: the lanes of one endpoint, which are reset and stepped together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlmesh.errors import EnvironmentException
from rlmesh.evals.endpoints import Endpoint, ResetReply, StepReply
from rlmesh.evals.lanes import Lane
from rlmesh.evals.policy import fitted, replayed
from rlmesh.evals.resets import Reset, apart, plan_resets
from rlmesh.evals.results import SUCCESS_KEYS
from rlmesh.evals.schedule import Assignment
from rlmesh.wire.contract import AutoresetMode

if TYPE_CHECKING:
    from rlmesh.evals.loop import Loop

__all__ = ["LOST", "Group"]

LOST = (ConnectionError, TimeoutError, EnvironmentException)
"""What a remote endpoint costs an attempt with, rather than the run, where there are retries."""

_UNSET: Any = object()
_GONE: Any = object()


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
        self.down = False  # it was lost, and is not found again yet
        self.copies: Sequence[int] = [0] * count  # which replica of the model each slot asks
        self.stale = False  # the answer on its way is for episodes that were given up
        self._loop = loop
        self._begun = False
        self._beginning: dict[int, tuple[Assignment, float]] = {}
        self._resets: list[Reset] = []
        self._reset = Reset((), ())
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
    def local(self) -> bool:
        """Whether the env lives in this process: its answer is there whenever it is asked for."""
        return self.endpoint.fileno() is None

    @property
    def working(self) -> bool:
        """Whether a slot has an episode, or is about to."""
        return bool(self._beginning) or any(lane is not None for lane in self.lanes)

    @property
    def outstanding(self) -> int:
        """How many lanes will ask for a prediction with the next answer, unless they end."""
        if not self.awaiting:
            return 0
        acting = sum(lane is not None and not lane.queue for lane in self.lanes)
        return acting + len(self._beginning)

    # Work in

    def start(self) -> None:
        """Give an idle endpoint episodes, if there are any left."""
        if self.working or self.awaiting or self.down:
            return
        if not self.endpoint.resets_lanes:
            self._begun = False  # its lanes went on by themselves: all are reset
        self._assign(range(self.endpoint.lanes))
        self._go_on()

    def receive(self) -> None:
        """Take the answer that is there, and go on."""
        if self.watched is None:
            self.sent_at = time.perf_counter()  # a local env starts to work now
        if self.stale:
            self._take_stale()
            return
        if self.awaiting == "reset":
            reply = self._attempt(self.endpoint.recv_reset)
            if reply is not _GONE:
                self._take_reset(reply)
        else:
            self._keep_copies()
            reply = self._attempt(self.endpoint.recv_step)
            if reply is not _GONE:
                self._take_step(reply)

    def give(self, slot: int, action: Any) -> None:
        """Act in a slot; with the last one the step is sent."""
        self._put(slot, action)
        if self._complete():
            self._send_step()

    def _attempt(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the endpoint answers; _GONE, its episodes given back, if it is lost."""
        try:
            return act(*arguments)
        except LOST as exc:
            if self.local:
                raise  # nothing to connect again
            self._loop.losses.endpoint_lost(self, exc)
            return _GONE

    def _assign(self, free: Sequence[int]) -> None:
        """Take episodes for free slots, and note which slots must be reset for them."""
        now = time.perf_counter()
        assigned: dict[int, Assignment] = {}
        for slot in free:
            if self._loop.replica(self, slot).down:
                continue
            assignment = self._loop.schedule.take()
            if assignment is None:
                break
            assigned[slot] = assignment
            self._beginning[slot] = (assignment, now)
        self._resets = plan_resets(
            self.endpoint, free, assigned, begun=self._begun, working=self.working
        )

    def _go_on(self) -> None:
        """Send what is due next: a reset, or a step once every lane has an action."""
        if self._resets:
            self._send_reset(self._resets.pop(0))
            return
        now = time.perf_counter()
        for slot, lane in enumerate(self.lanes):
            if lane is not None and self._actions[slot] is _UNSET:
                if lane.queue:
                    self._put(slot, replayed(self._loop.policy, lane))
                else:
                    self._loop.replica(self, slot).want(self, slot, now)
        if self.working and self._complete():
            self._send_step()

    def _put(self, slot: int, action: Any) -> None:
        self._actions[slot] = fitted(
            self._loop.policy, self.lane(slot), action, self.endpoint.conform
        )

    def _complete(self) -> bool:
        return all(
            lane is None or action is not _UNSET
            for lane, action in zip(self.lanes, self._actions, strict=True)
        )

    # Out to the endpoint

    def _send_reset(self, reset: Reset) -> None:
        endpoint = self.endpoint
        assigned = [self._beginning[slot][0] for slot in reset.begins]
        seeds = [a.seed for a in assigned if a.seed is not None]
        options = self._loop.options(endpoint, assigned[0]) if assigned else None
        if options is not None and len(reset.slots) > 1:
            self._resets[:0] = apart(endpoint, reset, begun=self._begun)
            self._go_on()
            return
        self._reset = reset
        everything = len(reset.slots) == endpoint.lanes
        slots = None if everything else reset.slots
        self._send("reset", endpoint.send_reset, slots, seeds, options)

    def _send_step(self) -> None:
        endpoint = self.endpoint
        if endpoint.steps_lanes:
            slots = [slot for slot, lane in enumerate(self.lanes) if lane is not None]
            everything = len(slots) == endpoint.lanes
            actions = [self._actions[slot] for slot in slots]
        else:
            slots, everything = range(endpoint.lanes), True
            actions = [self._act(slot) for slot in slots]
        self._slots = slots
        sent = self._send("step", endpoint.send_step, actions, None if everything else slots)
        lead = self._loop.lead
        if sent and lead:
            for slot, lane in enumerate(self.lanes):
                if lane is not None and len(lane.queue) < lead:
                    self._loop.replica(self, slot).want_ahead(lane)

    def _send(self, what: str, act: Callable[..., Any], *arguments: Any) -> bool:
        self.sent_at = time.perf_counter()
        if self._attempt(act, *arguments) is _GONE:
            return False
        self.awaiting = what
        descriptor = self.endpoint.fileno()
        if descriptor != self.watched:
            self._loop.watch(self, descriptor)
        return True

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

    # Back from the endpoint

    def _take_reset(self, reply: ResetReply) -> None:
        self._loop.telemetry.reset_s.append(time.perf_counter() - self.sent_at)
        self.awaiting = ""
        self._begun = True
        for slot, row in zip(self._reset.slots, reply[0], strict=True):
            if slot in self._reset.begins:
                self._open(slot, row)
        self._go_on()

    def _open(self, slot: int, observation: Any) -> None:
        begun = self._beginning.pop(slot, None)
        if begun is not None:
            assignment, started = begun
            self.lanes[slot] = self._loop.episodes.begin(
                assignment, observation, started, self.endpoint, self.copies[slot]
            )

    def _keep_copies(self) -> None:
        """Let hooks see what the policy saw and did, though a local env writes into its arrays."""
        keep = self.endpoint.keep
        if keep is not None and self._loop.episodes.shows_steps:
            for slot, lane in enumerate(self.lanes):
                if lane is not None:
                    lane.observation = keep(lane.observation)
                    self._actions[slot] = keep(self._actions[slot])

    def _take_step(self, reply: StepReply) -> None:
        endpoint, loop = self.endpoint, self._loop
        episodes, shows = loop.episodes, loop.episodes.shows_steps
        rows, rewards, terminated, truncated, info = reply
        step_s = time.perf_counter() - self.sent_at
        self.awaiting = ""
        env_s = endpoint.env_seconds
        loop.returned(self, env_s or step_s)
        loop.telemetry.step_s.append(step_s)
        if env_s:
            loop.telemetry.env_s.append(env_s)
        looks = shows or any(key in info for key in SUCCESS_KEYS)
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
            if shows:
                episodes.show_step(
                    lane, acted_on, action, rewards[row], terminated[row], lane.info, step_s
                )
            if over:
                self.lanes[slot] = None
                if done or endpoint.resets_lanes:  # else it goes on, unscored, until its env ends
                    freed.append(slot)
                episodes.finish(lane)
        if loop.losses.reruns and len(loop.schedule) and endpoint.resets_lanes:
            freed = [slot for slot, lane in enumerate(self.lanes) if lane is None]
        if freed:
            self._assign(freed)
            if self._mode is AutoresetMode.SAME_STEP and not endpoint.resets_lanes:
                for row, slot in enumerate(self._slots):
                    if slot in freed:
                        self._open(slot, rows[row])
        self._go_on()

    # Lost and found

    def drop(self) -> list[tuple[Assignment, Lane | None]]:
        """Empty every slot, as their model is lost; return the episodes that were in them."""
        self.stale = bool(self.awaiting)
        return self._empty()

    def _take_stale(self) -> None:
        self.stale = False
        receive = self.endpoint.recv_reset if self.awaiting == "reset" else self.endpoint.recv_step
        if self._attempt(receive) is not _GONE:
            self.awaiting = ""
            self.start()

    def abandon(self) -> list[tuple[Assignment, Lane | None]]:
        """Empty every slot of an endpoint that is lost; return the episodes that were in them."""
        attempts = self._empty()
        self.awaiting = ""
        self.stale = False
        self._loop.watch(self, None)
        self.down = True
        return attempts

    def _empty(self) -> list[tuple[Assignment, Lane | None]]:
        attempts: list[tuple[Assignment, Lane | None]] = [
            (lane.assignment, lane) for lane in self.lanes if lane is not None
        ]
        attempts += [(assignment, None) for assignment, _ in self._beginning.values()]
        count = self.endpoint.lanes
        self.lanes = [None] * count
        self._beginning.clear()
        self._resets = []
        self._actions = [_UNSET] * count
        self._begun = False
        return attempts

    def hang_up(self) -> None:
        """Leave the endpoint: its answer, if one comes, is of no use."""
        self._loop.watch(self, None)
        self.awaiting = ""
        self.endpoint.hang_up()

    def discard(self) -> None:
        """Take the answer that is there, for nobody."""
        with contextlib.suppress(Exception):
            if self.awaiting == "reset":
                self.endpoint.recv_reset()
            else:
                self.endpoint.recv_step()
        self.awaiting = ""
