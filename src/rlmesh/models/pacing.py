"""When a model server starts a batch: the clock of the loop, for clients that come and go."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlmesh.models.batching import BatchClock

if TYPE_CHECKING:
    from rlmesh.models.pool import Seat
    from rlmesh.models.served import Job

__all__ = ["Pace"]

_LONGEST_TURN = 10.0
"""Seconds; a client that takes longer between two predictions is driven by hand."""

_PROMPT_SECONDS = 0.0005
"""A look this soon after the last answer finds what came before it: nobody waited for it."""

_TRIES = 64

_WATCHED = 2
"""Batches before each review that wait for everybody, if too few clients were seen to come."""


class Pace:
    """Decides how long ready requests wait for company.

    Clients that keep coming back are the lanes of a :class:`~rlmesh.models.batching.BatchClock`.
    Unlike its loop, the model's thread does not see when a request comes in while it predicts, only
    that it is there afterwards. Taken for the moment it came, that would say that clients stay away
    for as long as batches last, whatever they do. So it is guessed from those that were seen, and
    where hardly any are, two batches wait for everybody in order to see them.

    Args:
        max_batch: most rows in a forward pass; None: all.
        wait_s: fixed bound on the wait; None: found from what batches cost and clients take.
    """

    def __init__(self, max_batch: int | None, wait_s: float | None) -> None:
        self.fuses = True  # whether waiting can be of use at all
        self._clock = BatchClock(1, max_batch, wait_s)
        self._turn = 0.0  # how long a client is away, smoothed upwards
        self._seen: deque[float] = deque(maxlen=256)  # since the last review
        self._looked = self._looked_before = 0.0
        self._free = 0.0

    def looks(self) -> None:
        """Note that the model's thread takes in what has come."""
        self._looked_before, self._looked = self._looked, time.perf_counter()

    def arrived(self, seat: Seat, job: Job) -> None:
        """Note a request."""
        turn: float | None = self._looked - seat.answered
        if seat.answered and turn < _LONGEST_TURN:
            self._turn = max(turn, 0.9 * self._turn + 0.1 * turn)
            if self._looked - self._free > _PROMPT_SECONDS:
                self._seen.append(turn)
            else:
                turn = self._guess(self._looked_before - seat.answered, turn)
            if turn is not None:
                self._clock.returned(turn)
        seat.rows = job.rows

    def _guess(self, shortest: float, longest: float) -> float | None:
        """Return a time between these that a client was seen to take."""
        seen = self._seen
        for _ in range(min(_TRIES, len(seen))):
            seen.rotate()
            if shortest <= seen[0] <= longest:
                return seen[0]
        return None

    def start_at(self, jobs: Sequence[Job], seats: Iterable[Seat]) -> float:
        """Return when to start, on ``perf_counter``'s clock; 0.0 means now."""
        clock = self._clock
        if not self.fuses:
            return 0.0
        soon = self._free - 2 * self._turn - clock.wait_s
        away = sum(seat.rows for seat in seats if not seat.busy and seat.answered > soon)
        rows = sum(job.rows for job in jobs)
        lanes = max(1, away + rows)
        clock.resize(lanes)
        first = jobs[0].arrived / 1e9
        if away and len(self._seen) < lanes and clock.due_within(_WATCHED):
            return max(first, self._free) + clock.longest_wait if rows < clock.max_batch else 0.0
        return clock.start_at(rows, bool(away), first)

    def answered(self, batch: Sequence[Job]) -> None:
        """Note what a batch cost, its answers included."""
        ended = time.perf_counter()
        seconds = ended - min(job.began for job in batch) / 1e9
        if self._clock.predicted(sum(job.rows for job in batch), seconds, ended):
            self._seen.clear()
            self._clock.forget()
        self._free = time.perf_counter()
