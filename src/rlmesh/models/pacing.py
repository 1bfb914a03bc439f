"""When a model server starts a batch: the clock of the loop, for clients that come and go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlmesh.models.batching import BatchClock

if TYPE_CHECKING:
    from rlmesh.models.pool import Seat
    from rlmesh.models.served import Job

__all__ = ["Pace"]

_LONGEST_TURN = 10.0
"""Seconds; a client that takes longer between two predictions is driven by hand."""


class Pace:
    """Decides how long ready requests wait for company.

    Clients that keep coming back are the lanes of a :class:`~rlmesh.models.batching.BatchClock`.

    Args:
        max_batch: most rows in a forward pass; None: all.
        wait_s: fixed bound on the wait; None: found from what batches cost and clients take.
    """

    def __init__(self, max_batch: int | None, wait_s: float | None) -> None:
        self.fuses = True  # whether waiting can be of use at all
        self._clock = BatchClock(1, max_batch, wait_s)
        self._turn = 0.0  # how long a client is away, smoothed upwards
        self._ended = 0.0

    def arrived(self, seat: Seat, job: Job) -> None:
        """Note a request."""
        turn = job.arrived / 1e9 - seat.answered
        if seat.answered and turn < _LONGEST_TURN:
            self._clock.returned(turn)
            self._turn = max(turn, 0.9 * self._turn + 0.1 * turn)
        seat.rows = job.rows

    def start_at(self, jobs: Sequence[Job], seats: Iterable[Seat]) -> float:
        """Return when to start, on ``perf_counter``'s clock; 0.0 means now."""
        clock = self._clock
        if not self.fuses:
            return 0.0
        soon = self._ended - 2 * self._turn - clock.wait_s
        away = sum(seat.rows for seat in seats if not seat.busy and seat.answered > soon)
        rows = sum(job.rows for job in jobs)
        clock.resize(max(1, away + rows))
        return clock.start_at(rows, bool(away), jobs[0].arrived / 1e9)

    def predicted(self, jobs: Sequence[Job]) -> None:
        """Note what a batch cost."""
        self._ended = max(job.ended for job in jobs) / 1e9
        seconds = self._ended - min(job.began for job in jobs) / 1e9
        self._clock.predicted(sum(job.rows for job in jobs), seconds, self._ended)
