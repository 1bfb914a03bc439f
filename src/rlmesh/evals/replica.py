"""A replica: one copy of the model, the lanes that wait for it, and the batch it works on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlmesh.evals.lanes import Lane
from rlmesh.evals.policy import Copy, note_lanes, planned, replayed
from rlmesh.models.batching import BatchClock

if TYPE_CHECKING:
    from rlmesh.evals.group import Group
    from rlmesh.evals.loop import Loop

__all__ = ["Replica"]

LOST = (ConnectionError, TimeoutError)
"""What a served model costs an attempt with, rather than the run, where there are retries."""


@dataclass(frozen=True)
class _Flight:
    """A batch on its way: the lanes that wait for it, and those planned ahead of time."""

    batch: Sequence[tuple[Group, int, float]]
    lanes: Sequence[Lane]
    ahead: Sequence[Lane]
    began: float

    @property
    def rows(self) -> list[Lane]:
        return [*self.lanes, *self.ahead]


class Replica:
    """A copy of the model in this process (``copy`` is None), which answers while it is asked, or
    one that is served, which answers when its descriptor is readable. ``number`` is its place among
    the copies, by which groups ask for it.
    """

    def __init__(self, loop: Loop, number: int, copy: Copy | None, clock: BatchClock) -> None:
        self.number = number
        self.copy = copy
        self.clock = clock
        self.flight: _Flight | None = None
        self.down = False  # it was lost, and is not found again yet
        self._loop = loop
        self._waiting: list[tuple[Group, int, float]] = []
        self._ahead: list[tuple[Lane, Any]] = []
        self._pending: set[Lane] = set()  # lanes that are being planned ahead
        self._starved: dict[Lane, tuple[Group, int]] = {}  # those of them whose queue ran dry
        self.watched: int | None = None

    # Work in

    def want(self, group: Group, slot: int, now: float) -> None:
        """Queue a lane for a prediction."""
        lane = group.lane(slot)
        if lane in self._pending:
            self._starved[lane] = (group, slot)
        else:
            self._waiting.append((group, slot, now))

    def want_ahead(self, lane: Lane) -> None:
        """Queue a lane for a chunk that it will need soon, from what it observes now."""
        if self.copy is None:
            self._ahead.append((lane, None))
        elif lane not in self._pending:
            self._pending.add(lane)
            self._ahead.append((lane, self.copy.keep(lane.observation)))

    def forget(self, group: Group) -> None:
        """Drop the lanes of a group that lost its episodes."""
        self._waiting = [entry for entry in self._waiting if entry[0] is not group]
        self._starved = {lane: at for lane, at in self._starved.items() if at[0] is not group}

    def due(self) -> float | None:
        """Start a batch if it is time to; return how long to wait for lanes (None: no bound)."""
        clock, loop = self.clock, self._loop
        while self.flight is None and not self.down:
            waiting = self._waiting
            if self._ahead:
                # At once: what it is predicted from must not depend on when answers come.
                self._start(waiting[: clock.max_batch])
                continue
            if not waiting:
                return None
            if len(waiting) < clock.max_batch and loop.local_at_work:
                return 0.0  # envs in this process work while nobody else does: wait for them all
            start = clock.start_at(len(waiting), loop.outstanding(self), waiting[0][2])
            if start:
                left = start - time.perf_counter()
                if left > 0:
                    return left
            self._start(waiting[: clock.max_batch])
        return None

    def _start(self, batch: list[tuple[Group, int, float]]) -> None:
        del self._waiting[: len(batch)]
        room = self.clock.max_batch - len(batch)
        ahead = [entry for entry in self._ahead[:room] if not entry[0].over]
        self._pending.difference_update(lane for lane, _ in self._ahead[:room] if lane.over)
        del self._ahead[:room]
        lanes = [group.lane(slot) for group, slot, _ in batch]
        flight = _Flight(batch, lanes, [lane for lane, _ in ahead], time.perf_counter())
        rows = flight.rows
        if not rows:
            return
        if self.copy is None:
            self._land(flight, planned(self._loop.policy, rows))
            return
        self.flight = flight
        observations = [lane.observation for lane in lanes] + [seen for _, seen in ahead]
        try:
            self.copy.start(rows, observations)
        except LOST as exc:
            self._loop.losses.replica_lost(self, exc)
            return
        except Exception as exc:
            note_lanes(exc, rows)
            raise
        if self.watched is None:
            self._loop.watch(self, self.copy.fileno())

    # Back from the model

    @property
    def awaiting(self) -> bool:
        """Whether its descriptor has something to say."""
        return not self.down

    def receive(self) -> None:
        """Take the answer that is there, and go on."""
        if self.copy is None or self.down:
            return
        flight = self.flight
        try:
            plans = self.copy.advance()
        except LOST as exc:
            self._loop.losses.replica_lost(self, exc)
            return
        except Exception as exc:
            if flight is not None:
                note_lanes(exc, flight.rows)
            raise
        if plans is not None and flight is not None:
            self.flight = None
            self._land(flight, plans)

    def _land(self, flight: _Flight, plans: Sequence[Sequence[Any]]) -> None:
        ended = time.perf_counter()
        rows, took = flight.rows, ended - flight.began
        self.clock.predicted(len(rows), took, ended)
        self._loop.telemetry.predict_s.append(took)
        self._loop.telemetry.rows.append(len(rows))
        for lane in rows:
            lane.spent_s += took
            lane.rows = len(rows)
        for lane, plan in zip(flight.ahead, plans[len(flight.lanes) :], strict=True):
            self._pending.discard(lane)
            lane.queue.extend(plan)
            waits = self._starved.pop(lane, None)
            if waits is not None and not lane.over:
                waits[0].give(waits[1], replayed(self._loop.policy, lane))
        for (group, slot, _), lane, plan in zip(flight.batch, flight.lanes, plans, strict=False):
            if not lane.over:
                group.give(slot, lane.queue.start(plan))

    # Lost and found

    def late(self, now: float) -> TimeoutError | None:
        """Return what to raise if the answer is overdue."""
        flight, copy = self.flight, self.copy
        if flight is None or copy is None or copy.timeout is None:
            return None
        if now - flight.began <= copy.timeout:
            return None
        return TimeoutError(
            f"model server at {copy.name} did not answer within {copy.timeout:.3g} s; raise "
            "request_timeout_seconds, or see what its model is doing"
        )

    def abandon(self) -> None:
        """Drop everything: the server is gone, and with it what it knew of its episodes."""
        assert self.copy is not None
        self._loop.watch(self, None)
        self.copy.hang_up()
        self.flight = None
        self._waiting.clear()
        self._ahead.clear()
        self._pending.clear()
        self._starved.clear()
        self.down = True
