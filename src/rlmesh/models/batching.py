"""When the model should start: how long to wait for more lanes before a batch.

"Whatever is ready, at once" starves the model of rows, waiting for everybody starves the lanes.
Waiting a bounded time after the first lane is ready does well, if the bound suits the case. So the
engine measures what a batch of b rows costs (a + c b) and how long the lanes' envs take, replays a
closed loop of those times with several bounds, and takes the best. A replay costs milliseconds and
is made after 8, 16, 32, ... batches, and only while it stays a small part of the run.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Sequence

__all__ = ["BatchClock", "CostModel", "best_wait", "closed_loop_bound", "replay"]

_FRACTIONS = (0.0, 0.1, 0.25, 0.5, 0.8, 1.2, 2.0, 4.0)
"""Bounds tried, as multiples of what a batch costs before its first row."""

_FIRST_FRACTION = 0.6
"""The best single fraction over all cases; used until there is something to replay."""

_LEAST_TURNS = 8
"""Times of envs that a replay needs."""

_ENOUGH = 0.97
"""What a bound must serve of what the best serves; closer than that, replays do not tell."""

_SHARE = 0.02
"""Share of the run's time that replays may take."""


class CostModel:
    """What a batch of ``b`` rows costs, ``a + c b`` seconds: least squares that forgets slowly."""

    __slots__ = ("_count", "_n", "_odd", "_x", "_xx", "_xy", "_y")

    _KEEP = 0.97
    _KNOWN = 4  # batches, before one can be told to be odd
    _ODD = 5.0  # times what is expected

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._count = 0
        self._odd = False

    def add(self, rows: int, seconds: float) -> None:
        """Note one batch. The first is left out: it compiles, allocates and warms up.

        So is one that takes many times as long as it should, if the next does not: a batch size
        that was compiled for, or a machine that stood still.
        """
        self._count += 1
        if self._count == 1:
            return
        fixed, slope = self.fit()
        self._odd = not self._odd and seconds > self._ODD * (fixed + slope * rows)
        if self._odd and self._n > self._KNOWN:
            return
        keep = self._KEEP
        self._n = keep * self._n + 1
        self._x = keep * self._x + rows
        self._y = keep * self._y + seconds
        self._xx = keep * self._xx + rows * rows
        self._xy = keep * self._xy + rows * seconds

    def fit(self) -> tuple[float, float]:
        """Return (a, c) in seconds; both 0 or more. With one batch size seen, all is fixed cost."""
        if not self._n:
            return 0.0, 0.0
        spread = self._n * self._xx - self._x * self._x
        if spread <= 1e-9 * self._n * self._xx:
            return self._y / self._n, 0.0
        slope = max(0.0, (self._n * self._xy - self._x * self._y) / spread)
        fixed = (self._y - slope * self._x) / self._n
        if fixed < 0:
            return 0.0, self._y / self._x
        return fixed, slope


class BatchClock:
    """Decides when a batch starts.

    Args:
        lanes: how many lanes are in flight at most.
        max_batch: start as soon as that many rows wait; None: all lanes.
        wait_s: fixed bound on the wait, in seconds; None lets the clock find it.
    """

    def __init__(self, lanes: int, max_batch: int | None, wait_s: float | None) -> None:
        self.cost = CostModel()
        self.wait_s = wait_s if wait_s is not None else 0.0
        self._fixed = wait_s is not None
        self._lanes = self._planned = lanes
        self._limit = max_batch
        self.max_batch = min(max_batch or lanes, lanes)
        self._durations: deque[float] = deque(maxlen=256)
        self._batches = 0
        self._next_replay = 8
        self._replayed = False
        self._spent = 0.0
        self._began = time.perf_counter()
        self._free = 0.0

    def share(self, lanes: int) -> BatchClock:
        """Return a clock like this one for some of the lanes."""
        return BatchClock(lanes, self.max_batch, self.wait_s if self._fixed else None)

    def resize(self, lanes: int) -> None:
        """Go on with another number of lanes; a bound found for far fewer or more is reviewed."""
        if abs(lanes - self._planned) * 4 > self._planned:
            self._next_replay = min(self._next_replay, self._batches + 8)
        self._lanes = lanes
        self.max_batch = min(self._limit or lanes, lanes)

    def start_at(self, waiting: int, outstanding: bool, first_ready: float) -> float:
        """Return when to start, on ``perf_counter``'s clock; 0.0 means now.

        The wait counts from the moment a batch could have started: a row was ready and the model
        free.

        Args:
            waiting: rows that are ready.
            outstanding: whether more lanes may still become ready.
            first_ready: when the first row became ready.
        """
        if waiting >= self.max_batch or not outstanding or not self.wait_s:
            return 0.0
        return max(first_ready, self._free) + self.wait_s

    def returned(self, seconds: float) -> None:
        """Note how long a lane's env took."""
        self._durations.append(seconds)

    def forget(self) -> None:
        """Forget how long the lanes' envs took."""
        self._durations.clear()

    def due_within(self, batches: int) -> bool:
        """Whether a better bound is looked for after that many batches at the latest."""
        soon = not self._fixed and self._next_replay - self._batches <= batches
        return soon and self._spent <= _SHARE * (time.perf_counter() - self._began)

    @property
    def longest_wait(self) -> float:
        """The longest bound there may be, in seconds."""
        return _FRACTIONS[-1] * self.cost.fit()[0]

    def predicted(self, rows: int, seconds: float, ended: float) -> bool:
        """Note what a batch cost and when it ended; look for a better bound when it is time to.

        Returns:
            Whether it was looked for.
        """
        self.cost.add(rows, seconds)
        self._free = ended
        self._batches += 1
        if self._fixed or self._lanes == 1:
            return False
        if self.due_within(0) and len(self._durations) >= _LEAST_TURNS:
            self._next_replay = 2 * self._batches
            self._replan()
            return True
        if not self._replayed:
            self.wait_s = _FIRST_FRACTION * self.cost.fit()[0]
        return False

    def _replan(self) -> None:
        now = time.perf_counter()
        self._replayed = True
        self._planned = self._lanes
        fixed, slope = self.cost.fit()
        durations = list(self._durations)
        self.wait_s = best_wait(self._lanes, self.max_batch, fixed, slope, durations)
        self._spent += time.perf_counter() - now


def best_wait(
    lanes: int, max_batch: int, fixed: float, slope: float, durations: Sequence[float]
) -> float:
    """Return the shortest bound, in seconds, with which a replay of these times served about the
    most rows.

    A loop can settle in several rhythms with the same bound, some of which wait in vain at every
    turn, so a bound is judged by the worst of three replays: all lanes in step at the start, one of
    them ahead of the others, and half of them. The shortest of those that are about as good leaves
    the least to lose where the times to come are others.
    """

    def worst_rate(wait: float) -> float:
        return min(
            replay(lanes, max_batch, fixed, slope, durations, wait, ahead=ahead)
            for ahead in {0, 1, lanes // 2}
        )

    rates = [(worst_rate(fraction * fixed), fraction * fixed) for fraction in _FRACTIONS]
    enough = _ENOUGH * max(rates)[0]
    return min(wait for rate, wait in rates if rate >= enough)


def replay(
    lanes: int,
    max_batch: int,
    fixed: float,
    slope: float,
    durations: Sequence[float],
    wait: float,
    *,
    ahead: int,
    cycles: int = 16,
) -> float:
    """Return the rows per second a closed loop serves: lanes come back after their env's time, wait
    for the model, and leave with its batch.

    The env times are those of ``durations``, in order, so that two bounds are compared on the same.

    Args:
        ahead: how many lanes are ready at the start, when the others' envs begin.
        cycles: how many turns of all lanes to replay.
    """
    times = itertools.cycle(durations)
    flying = [next(times) if lane >= ahead else 0.0 for lane in range(lanes)]
    heapq.heapify(flying)
    now = free = began = 0.0
    served = 0
    ready: list[float] = []
    while served < cycles * lanes:
        while flying and flying[0] <= now:
            ready.append(heapq.heappop(flying))
        if not ready:
            now = flying[0]
            continue
        start = max(ready[0], free) + wait
        if len(ready) < max_batch and flying and start > now:
            now = min(start, flying[0])
            continue
        batch = min(len(ready), max_batch)
        del ready[:batch]
        now = free = now + fixed + slope * batch
        served += batch
        for _ in range(batch):
            heapq.heappush(flying, now + next(times))
        if served <= lanes:
            began = now  # the first turn is not counted
    return (served - lanes) / (now - began) if now > began else float("inf")


def closed_loop_bound(lanes: int, fixed: float, slope: float, env: float) -> float:
    """Return the most rows per second that any schedule of a jitter-free loop serves.

    The best of all splits of the lanes into k groups that take turns: N / max(k m, m + t) with m
    the cost of a batch of N / k.
    """
    best = 0.0
    for groups in range(1, lanes + 1):
        cost = fixed + slope * lanes / groups
        best = max(best, lanes / max(groups * cost, cost + env, 1e-12))
    return best
